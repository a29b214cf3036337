//! Whether a process is an agent of this daemon, or was started by one, and of which session.
//!
//! Whoever loses its parent below a shim becomes that shim's child, so whoever has a shim of ours among its ancestors belongs
//! to an agent. Where a shim was killed the daemon inherits, and a child of its own that is no shim is a stray. Only this
//! daemon's shims count: the daemon itself may have been started by another one's agent. What is below the shim of an errand is
//! no agent's: the configuration has named it, and nobody becomes somebody else's descendant.

use rustix::io::Errno;
use rustix::process::Pid;

use super::children::Below;
use super::host::Host;
use super::procfs;
use crate::model::SessionId;

/// Ancestors that are looked at. A longer line is nobody's who has an honest question.
const ANCESTORS_MAX: usize = 512;
/// How often the walk begins again when somebody on the way ended meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// What is known of a process that was there a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// An agent's of this session; or of one that cannot be told any more, because its shim is gone.
    Agents(Option<SessionId>),
    Others,
    /// It is gone, or cannot be told.
    Unknown,
}

impl Host {
    /// Whether there ever was an agent. Before the first one there is nobody to tell apart.
    pub fn has_had_agents(&self) -> bool {
        self.children.has_started_any()
    }

    /// Where a process comes from. `is_still_there` is asked after the look: a number that was given to somebody else
    /// meanwhile has told of somebody else.
    pub fn descent(&self, pid: i32, is_still_there: impl Fn() -> bool) -> Descent {
        for _ in 0..ATTEMPTS_MAX {
            let found = self.line_of(pid);
            if !is_still_there() {
                return Descent::Unknown;
            }
            if found != Descent::Unknown {
                return found;
            }
        }
        Descent::Unknown
    }

    fn line_of(&self, pid: i32) -> Descent {
        let is_agents = || self.cgroups.as_ref().is_some_and(|cgroups| cgroups.is_agents(pid));
        with_cgroup(self.ancestors_of(pid), is_agents)
    }

    fn ancestors_of(&self, pid: i32) -> Descent {
        let mut current = pid;
        for _ in 0..ANCESTORS_MAX {
            match self.children.below(current) {
                Some(Below::Agent(session)) => return Descent::Agents(Some(session)),
                Some(Below::Errand) => return Descent::Others,
                None => {}
            }
            let Some(stat) = procfs::stat(current) else { return of_hidden(current) };
            match stat.parent {
                parent if parent == self.daemon.pid => {
                    return if self.children.is_stray(current) { Descent::Agents(None) } else { Descent::Others };
                }
                // The beginning, of everybody or of this namespace.
                0 | 1 => return Descent::Others,
                parent => current = parent,
            }
        }
        Descent::Agents(None)
    }
}

/// A cgroup is the way by which nobody gets away, where there is one. Whose agent it is only its ancestors tell: an agent that is
/// not confined may enter the cgroup of another one of its user. So who could not be told by them is looked at again.
fn with_cgroup(line: Descent, is_agents: impl FnOnce() -> bool) -> Descent {
    if line == Descent::Others && is_agents() { Descent::Agents(None) } else { line }
}

/// Of a process that cannot be looked at. Where `/proc` hides other users' processes, one that we may not signal is another
/// user's, and shims are our own; one that is gone tells nothing.
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
    fn a_cgroup_tells_of_whoever_has_left_the_line_and_not_of_whoever_is_looked_at_again() {
        let own = Descent::Agents(Some(SessionId::new()));
        for (line, in_cgroup) in [
            (own, own),
            (Descent::Agents(None), Descent::Agents(None)),
            (Descent::Others, Descent::Agents(None)),
            (Descent::Unknown, Descent::Unknown),
        ] {
            assert_eq!((with_cgroup(line, || true), with_cgroup(line, || false)), (in_cgroup, line));
        }
    }

    #[test]
    fn what_is_gone_is_not_taken_for_another_users() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(of_hidden(child.id().cast_signed()), Descent::Unknown);
    }
}
