//! Whether a peer descends from an agent: of this daemon, and of which session, or of another daemon.
//!
//! 1. A process that loses its parent below a shim becomes the shim's child, so every process that an agent starts keeps a shim
//!    among its ancestors. If the shim is killed, its daemon inherits them: a child of the daemon is an agent's, unless it is a
//!    shim or was there before the daemon.
//! 2. The shims of other daemons have a process name of their own ([`super::shim::NAME`]). Only the shim can change it, because a
//!    confined agent cannot trace it. `/proc/PID/stat` has the name; to read a command line could block on that process's memory.
//! 3. Shims above the daemon itself do not count: an agent may start a daemon of its own, and then uses it as its user would.
//! 4. Shims of notification commands have another name, and do not count: the configuration names those commands.

use rustix::io::Errno;
use rustix::process::Pid;

use super::children::Below;
use super::host::Host;
use super::procfs;
use crate::model::SessionId;

/// Ancestors that are examined. A process with more of them counts as an agent's.
const ANCESTORS_MAX: usize = 512;
/// How often the walk starts again after a process on the way has ended.
const ATTEMPTS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// An agent of this session. None: of another daemon, or of a session that cannot be determined because the shim is gone.
    Agents(Option<SessionId>),
    Others,
    /// The process has ended, or cannot be examined.
    Unknown,
}

impl Host {
    /// Where a process comes from. `is_still_there` is called after each walk: if the process has ended, its id may by then
    /// belong to another process.
    pub fn descent(&self, pid: i32, is_still_there: impl Fn() -> bool) -> Descent {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.ancestors_of(pid);
            if !is_still_there() {
                return Descent::Unknown;
            }
            if found != Descent::Unknown {
                return found;
            }
        }
        Descent::Unknown
    }

    fn ancestors_of(&self, pid: i32) -> Descent {
        let mut current = pid;
        // What the walk returns when it meets no shim of this daemon.
        let mut otherwise = Descent::Others;
        for _ in 0..ANCESTORS_MAX {
            match self.children.below(current) {
                Some(Below::Agent(session)) => return Descent::Agents(Some(session)),
                Some(Below::Errand) => return otherwise,
                None => {}
            }
            let Some(stat) = procfs::stat(current) else {
                return if otherwise == Descent::Others { of_hidden(current) } else { otherwise };
            };
            if stat.is_shim && !self.is_below(current) {
                otherwise = Descent::Agents(None);
            }
            match stat.parent {
                parent if parent == self.daemon.pid => {
                    return if self.children.is_orphan(current) { Descent::Agents(None) } else { otherwise };
                }
                // The first process, or one that entered this PID namespace from outside (`docker exec`).
                0 | 1 => return otherwise,
                parent => current = parent,
            }
        }
        Descent::Agents(None)
    }

    /// Whether the daemon itself is below this process.
    fn is_below(&self, ancestor: i32) -> bool {
        let parents = std::iter::successors(Some(self.daemon.pid), |pid| procfs::stat(*pid).map(|stat| stat.parent));
        parents.take(ANCESTORS_MAX).any(|pid| pid == ancestor)
    }
}

/// A process that `/proc` does not show: of another user, and so no shim, if the daemon may not signal it. It may also have ended.
fn of_hidden(pid: i32) -> Descent {
    match Pid::from_raw(pid).map(rustix::process::test_kill_process) {
        Some(Err(Errno::PERM)) => Descent::Others,
        _ => Descent::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_taken_for_another_users() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(of_hidden(child.id().cast_signed()), Descent::Unknown);
    }
}
