//! What every integration test stands on: the real daemon, the scripted agent, and a client of the socket.
//!
//! Nothing here sleeps. Whatever is waited for is a fact (a line, an event, a process that has ended), under a deadline
//! that only a broken daemon reaches; a test that fails prints the daemon's log.
//!
//! ```ignore
//! let script = json!([{"handshake": {}}, {"prompt": [{"text": "hi"}]}]);
//! let daemon = Daemon::builder().agent("echo", script).start().await;
//! let session = daemon.create_session("echo").await;
//! let turn = daemon.prompt(&session, "hello").await;
//! let seen = daemon.events(&session, None).await.until("turn.completed").await;
//! ```

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "every test file compiles its own copy and uses a part of it, and a test fails by panicking"
)]

mod builder;
mod client;
mod daemon;
mod events;
mod gate;
mod process;
mod sse;

use std::time::Duration;

pub use builder::DaemonBuilder;
pub use client::Reply;
pub use daemon::{Daemon, Output};
pub use events::{Event, EventStream};
pub use gate::{Gate, Passage};
pub use process::{process_alive, process_gone};
pub use sse::{Frame, SseParser};

/// How long anything may take before the test gives up. It is generous, because two cores may run many tests at once.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// The fact itself, or a panic that names it when the deadline passes first.
pub async fn within<T>(what: &str, fact: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, fact).await else {
        panic!("waited {} seconds in vain: {what}", DEADLINE.as_secs());
    };
    value
}
