//! acpd with the real Gemini CLI, of a pinned release, against a stand-in of the Gemini API.
//!
//! ```text
//! test ──▶ acpd ──▶ shim ──▶ gemini --acp, confined ──▶ the stand-in, driven by the test
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../stand_in/mod.rs"]
mod stand_in;

mod api;
mod google;
mod model;
mod stage;

mod conversation;
mod failures;
mod home;
mod login;
mod mcp;
mod restoring;
mod tools;
