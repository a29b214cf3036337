//! The harness itself: a test that stands on it must be able to trust it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;
#[path = "harness/self_test.rs"]
mod self_test;
