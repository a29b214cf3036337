//! One subprocess: how it is started, its three pipes, how it is stopped, and the end of whatever it leaves behind.
//!
//! ```text
//!            ┌── writer task ─────────▶ stdin ─┐
//! actor ◀────┤   supervisor ◀─▶ shim ── wait ──├ agent (own process group and cgroup, cwd = workspace)
//!            └── reader task ◀──────── stdout ─┘      stderr ─▶ tail task
//! ```
//!
//! Invariants:
//! 1. The agent is started without a shell, below a shim, with an environment of our making.
//! 2. `Started` comes before every line, and `Exited` is the last thing that a process says, after every whole line it
//!    wrote; each is said once at most.
//! 3. When `Exited` is said, no descendant of the agent is left, wherever it went; or, when the kernel holds something that
//!    was killed, after a bound, and the log says so.
//! 4. A [`Process`] that is dropped is killed: no path, not even a panic, leaves an agent behind that nobody owns. A
//!    daemon that is killed drops everything at once, and the shims see to the rest.
//! 5. What the agent writes is bounded in memory; when nobody takes it, the agent is made to wait (backpressure).

mod account;
mod adapter_home;
mod beneath;
pub mod capabilities;
mod census;
mod cgroup;
mod children;
mod command;
pub mod confine;
mod peer_ancestry;
mod env_file;
mod environment;
mod errand;
mod family;
mod features;
mod files;
mod host;
mod inside;
mod keeper;
mod leftovers;
pub mod mcp;
pub mod open_files;
mod persona;
mod pipes;
mod process;
mod procfs;
mod redact;
pub mod shim;
mod terminal;
mod terminal_command;
pub mod tools;
mod workspace;

pub use account::AccountError;
pub use adapter_home::{opencode_permissions, returns_login};
pub use beneath::{Beneath, FileError};
pub use census::{Census, Figures};
pub use command::{
    Command, CommandError, DEFAULT_PATH, NoProgram, WORKSPACE, fill, find_agent, find_program, own_path,
};
pub use env_file::set as set_variable;
pub use environment::{known as known_secrets, unset as unset_variables};
pub use errand::Errand;
pub use features::Features;
pub use files::{FileIdentity, Target, TextRead, Window, check_text};
pub use host::Host;
pub use inside::{PathProblem, git_ref, holds_git, path_inside, place};
pub use peer_ancestry::Descent;
pub use persona::Persona;
pub use process::{Bounds, Cause, Exit, Output, Process, SpawnError};
#[cfg(test)]
pub use redact::Known;
pub use redact::{OwnerSecrets, Redactor, Secrets, Stream as RedactedStream};
pub use terminal::{Terminal, TerminalBounds, TerminalEnd, TerminalTold};
pub use terminal_command::{Prepared, TerminalError, TerminalRights, prepare};
#[cfg(test)]
pub use workspace::open_workspace;
pub use workspace::{Grounds, OpenWorkspace, WorkspaceError, open_own};
