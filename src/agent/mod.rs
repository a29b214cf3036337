//! One subprocess: how it is started, its three pipes, and how it is stopped.
//!
//! ```text
//!            ┌── writer task ──▶ stdin ─┐
//! actor ◀────┤   supervisor  ── wait ── ├ agent (own process group, cwd = workspace)
//!            └── reader task ◀─ stdout ─┘      stderr ─▶ tail task
//! ```
//!
//! Invariants:
//! 1. The agent is started without a shell, in a process group of its own, with an environment of our making.
//! 2. `Exited` is the last thing that a process says, after every whole line it wrote; it is said exactly once.
//! 3. A [`Process`] that is dropped is killed: no path, not even a panic, leaves an agent behind that nobody owns.
//! 4. What the agent writes is bounded in memory; when nobody takes it, the agent is made to wait (backpressure).

mod command;
mod pipes;
mod process;
pub mod shim;
mod workspace;

pub use command::{Command, find_program};
pub use process::{Bounds, Exit, Output, Process, SpawnError};
pub use workspace::{WorkspaceError, resolve_workspace};
