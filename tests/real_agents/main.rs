//! acpd with real agents, of pinned releases, against a stand-in of their models' APIs. Gemini CLI has its own tests.
//!
//! ```text
//! test ──▶ acpd ──▶ shim ──▶ the agent, confined ──▶ the stand-in, driven by the test
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../stand_in/mod.rs"]
mod stand_in;

mod agents;
mod api;
mod life;
mod model;
mod stage;
