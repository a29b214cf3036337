//! Whether a process is there, and how to wait until it is not.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::within;

/// Whether the process runs. A zombie is dead: it only waits for its parent.
pub fn process_alive(process_id: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process_id}/stat")) else {
        return false;
    };
    // The name, in parentheses, may itself contain parentheses and spaces; the state follows the last one.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Waits until the process has ended, reaped or not. The kernel says so: a pidfd becomes readable.
pub async fn process_gone(process_id: u32) {
    let id = Pid::from_raw(process_id.cast_signed()).expect("a process id is not 0");
    let descriptor = match pidfd_open(id, PidfdFlags::NONBLOCK) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return,
        Err(error) => panic!("cannot open a pidfd of {process_id}: {error}"),
    };
    #[expect(deprecated, reason = "its successor is `unsafe`, and what that asks for holds of any `OwnedFd`")]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE).expect("a pidfd can be polled");
    let end = within(&format!("the end of process {process_id}"), descriptor.readable()).await;
    drop(end.expect("a pidfd becomes readable"));
}
