//! The end of a family: every child of this process is killed and reaped, and so is what becomes its child by that,
//! until none is left.
//!
//! Shim and daemon are both subreapers: whoever loses its parent below them becomes their own child. A child that is not
//! reaped keeps its number, so nobody else can be hit by what is sent to it. And it keeps its place among the processes
//! that its user may have: so all are killed before any is reaped, or a fork bomb would fill the places again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process, waitid, waitpid};

/// The pause after a round that changed nothing. Most end at once; one that the kernel holds, that is traced or that
/// belongs to another user has to be waited for.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Kills and reaps until none is left, or until the deadline; then the rest is told. `find` names the children to end,
/// and `ended` gets each one's status, once, before it is reaped.
pub fn end(
    mut find: impl FnMut() -> Vec<Pid>,
    deadline: Option<Duration>,
    mut ended: impl FnMut(Pid, &WaitIdStatus),
) -> Vec<Pid> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    let mut before = (Vec::new(), 0);
    let mut told = HashSet::new();
    loop {
        let children = find();
        if children.is_empty() {
            return children;
        }
        let mut alive = 0;
        for child in &children {
            match status(*child) {
                Ok(Some(status)) => {
                    if told.insert(*child) {
                        ended(*child, &status);
                    }
                }
                // It is no child any more.
                Err(_) => {}
                Ok(None) => {
                    alive += 1;
                    // Refused for a process of another user only, which ends when it likes.
                    kill_process(*child, Signal::KILL).ok();
                }
            }
        }
        if alive == 0 {
            for child in &children {
                waitpid(Some(*child), WaitOptions::NOHANG).ok();
            }
        }
        if deadline.is_some_and(|deadline| started.elapsed() >= deadline) {
            return children;
        }
        // A round that met others, or fewer, has got somewhere; the next one comes at once.
        let now = (children, alive);
        if before == now {
            rest(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        } else {
            pause = PAUSE_MIN;
        }
        before = now;
    }
}

/// The status of a child that only waits to be reaped.
pub fn status(child: Pid) -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
}

/// There is nothing that would tell: one that is traced has ended for everybody but its parent.
fn rest(pause: Duration) {
    if let Ok(timeout) = Timespec::try_from(pause) {
        poll(&mut [], Some(&timeout)).ok();
    }
}
