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

mod as_user;
mod builder;
mod cgroup;
mod client;
mod daemon;
mod database;
mod disk;
mod events;
mod gate;
mod nasty;
mod npm;
mod pip;
mod process;
mod raw;
mod reader;
mod record;
mod shell;
mod sse;
mod terminal;
mod tmux;
mod traces;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

pub use as_user::AsUser;
pub use builder::{DaemonBuilder, User};
pub use cgroup::{Cgroup, members};
pub use client::Reply;
pub use daemon::{Daemon, Output};
pub use database::HeldWriter;
pub use disk::Disk;
pub use events::{Event, EventStream};
pub use gate::{Gate, Passage};
pub use nasty::{IMPATIENT, NASTY, Tree, kill_with_shims, nasty, signal};
pub use npm::npm_packages;
pub use pip::python_packages;
pub use process::{
    Bystander, ORDINARY, parent_of, process_alive, process_gone, process_started, process_stopped, users,
};
pub use raw::{HEALTH, RawAnswer, answers, ask, next_answer};
pub use reader::Reader;
pub use record::{Heard, prompts};
pub use shell::{ANY_COMMAND, SHELL, output_of_terminal, run, session_of_scope, shell, shell_in_terminal, with_shell};
pub use sse::{Frame, SseParser};
pub use terminal::{CTRL_C, CTRL_D, CTRL_Z, ESCAPE, Ended, Terminal};
pub use tmux::Tmux;
pub use traces::{Contents, contents, processes_of};

/// How long anything may take before the test gives up. It is generous, because two cores may run many tests at once.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// The fact itself, or a panic that names it when the deadline passes first.
pub async fn within<T>(what: &str, fact: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, fact).await else {
        panic!("waited {} seconds in vain: {what}", DEADLINE.as_secs());
    };
    value
}

/// A word that is seen, also of a test that passes: what `eprintln!` says in such a one, nobody sees.
pub fn say(line: &str) {
    // Whoever does not read it does not want to know.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Whether this run has everything that tests can need: the real agents, schemathesis, a booted systemd, a browser.
pub fn is_full_run() -> bool {
    std::env::var_os("ACPD_TEST").is_some_and(|value| value == "full")
}

/// Reports a test, or a part of one, that a full run (`ACPD_TEST=full`) must not leave out.
pub fn skip(reason: &str) {
    assert!(!is_full_run(), "ACPD_TEST=full, but {reason}");
    say(&format!("SKIPPED: {reason}"));
}

/// Whether a program that a test needs is installed; reports it when it is not.
pub fn has(program: &str) -> bool {
    let is_there = std::process::Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        skip(&format!("{program} is not installed"));
    }
    is_there
}

/// Whether a test that needs more than a Rust toolchain runs now; reports the test when it does not.
pub fn runs_in_full(test: &str) -> bool {
    if !is_full_run() {
        say(&format!("SKIPPED: {test} runs with ACPD_TEST=full"));
    }
    is_full_run()
}

/// Whether agents can be isolated here: some containers forbid what bubblewrap needs.
pub fn has_bubblewrap() -> bool {
    let trial = std::process::Command::new("bwrap")
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--unshare-pid", "true"])
        .output();
    let works = trial.is_ok_and(|output| output.status.success());
    if !works {
        skip("bubblewrap is not installed, or user namespaces are forbidden here");
    }
    works
}

/// The script of an agent that says what it is told.
pub fn echo() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}])
}

/// The process of a session that has one.
pub fn pid_of(session: &Value) -> u32 {
    session["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("the session has a process")
}

/// Every file below a directory, with what is in it as far as that can be read.
pub fn files_below(directory: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in directory.read_dir().expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
        }
    }
}

/// How commands name a user: by the account, where there is one.
pub fn user_name(uid: u32) -> String {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).expect("the user database can be read");
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}
