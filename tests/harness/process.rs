//! Whether a process is there, and how to wait until it is not.

use std::process::Stdio;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use super::{User, within};

/// Nobody, who is an ordinary user everywhere.
pub const ORDINARY: User = User { uid: 65534, gid: 65534 };

/// Whether the process runs. A zombie is dead: it only waits for its parent.
pub fn process_alive(process_id: u32) -> bool {
    !matches!(stat(process_id, 0).as_deref(), None | Some("Z" | "X"))
}

/// The process id of a process's parent, when it is there.
pub fn parent_of(process_id: u32) -> Option<u32> {
    stat(process_id, 1)?.parse().ok()
}

/// When a process started, in the kernel's own unit: together with its number, this is who it is.
pub fn process_started(process_id: u32) -> u64 {
    // The state is the third field of the line, the start is the twenty-second.
    let started = stat(process_id, 19).expect("the process is there");
    started.parse().expect("the kernel tells a number")
}

/// Waits until the process is stopped, as by SIGSTOP. The kernel tells its parent only, so it is looked at again and again.
pub async fn process_stopped(process_id: u32) {
    within(&format!("the stop of process {process_id}"), async {
        while stat(process_id, 0).as_deref() != Some("T") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// One of the fields in `/proc/PID/stat` that follow the name. That is in parentheses, and may itself contain
/// parentheses and spaces.
fn stat(process_id: u32, index: usize) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(index).map(str::to_owned)
}

/// Whom a daemon is to run as in a test that is about both kinds of users: root, which is `None`, and an ordinary one.
/// Tests of an ordinary user can only do the second half, as themselves.
pub fn users() -> Vec<Option<User>> {
    if rustix::process::geteuid().is_root() {
        vec![None, Some(ORDINARY)]
    } else {
        eprintln!("not root: only a daemon of an ordinary user is tested, not one of root");
        vec![None]
    }
}

/// Waits until the process has ended, reaped or not. The kernel says so: a pidfd becomes readable.
pub async fn process_gone(process_id: u32) {
    let id = Pid::from_raw(process_id.cast_signed()).expect("a process id is not 0");
    let descriptor = match pidfd_open(id, PidfdFlags::NONBLOCK) {
        Ok(descriptor) => descriptor,
        // Of one that is being reaped at this moment, the kernel says that the number is none of a process.
        Err(Errno::SRCH | Errno::INVAL) => return,
        Err(error) => panic!("cannot open a pidfd of {process_id}: {error}"),
    };
    #[expect(deprecated, reason = "its successor is `unsafe`, and what that asks for holds of any `OwnedFd`")]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE).expect("a pidfd can be polled");
    let end = within(&format!("the end of process {process_id}"), descriptor.readable()).await;
    drop(end.expect("a pidfd becomes readable"));
}

/// A process that has nothing to do with the daemon, and that nobody but the test may end. It goes with the test.
pub struct Bystander {
    child: Child,
    pub pid: u32,
}

impl Bystander {
    /// One that carries this mark of a session in its environment.
    pub fn start(user: Option<User>, session_mark: &str) -> Self {
        let mut command = Command::new("cat");
        command.env("ACPD_SESSION", session_mark).stdin(Stdio::piped()).kill_on_drop(true);
        if let Some(User { uid, gid }) = user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().expect("cat can be started");
        let pid = child.id().expect("the process has just been started");
        Self { child, pid }
    }

    pub fn is_alive(&self) -> bool {
        process_alive(self.pid)
    }
}
