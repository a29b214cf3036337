//! What of this kernel is in use, found out once, by doing what the daemon does with it.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::cgroup::Cgroups;
use super::command::find_program;
use super::confine;
use crate::config::{ByteSize, Limits, MEMORY_PERCENT};

#[derive(Clone, Debug)]
pub struct Features {
    pub release: String,
    /// Where agents have cgroups of their own, and the controllers that bound them there.
    pub cgroup: Option<(PathBuf, Vec<String>)>,
    /// The version of Landlock, up to the one whose rights are asked for.
    pub landlock_abi: Option<i32>,
    /// Without it no file of a workspace is touched for an agent.
    pub openat2: bool,
    /// With it processes that a dead daemon left are ended; without it they are left.
    pub pidfd: bool,
    pub user_namespaces: bool,
    pub bubblewrap: Option<PathBuf>,
    /// Descriptors that the daemon may have, and could have.
    pub descriptors: (Option<u64>, Option<u64>),
}

impl Features {
    /// Why a limit of agents' memory has no effect, if the configuration sets one. The default applies only where it can.
    pub fn memory_unbounded(&self, limits: &Limits) -> Option<&'static str> {
        limits.memory_max.filter(|limit| *limit != ByteSize::of_machine(MEMORY_PERCENT))?;
        match &self.cgroup {
            None => Some("limits.memory_max has no effect: no cgroup is delegated to the daemon"),
            Some((_, controllers)) if !controllers.iter().any(|controller| controller == "memory") => {
                Some("limits.memory_max has no effect: the daemon's cgroup has no memory controller")
            }
            Some(_) => None,
        }
    }

    /// As somebody who is no daemon finds them: without a cgroup.
    pub fn from_here() -> Self {
        Self::probe(None)
    }

    pub(super) fn probe(cgroups: Option<&Cgroups>) -> Self {
        let limit = getrlimit(Resource::Nofile);
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            cgroup: cgroups.map(|cgroups| (cgroups.root().to_owned(), cgroups.controllers().to_vec())),
            landlock_abi: confine::landlock_abi(),
            openat2: has_openat2(),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
            user_namespaces: has_user_namespaces(),
            bubblewrap: find_program(confine::BUBBLEWRAP, confine::BUBBLEWRAP_PATH),
            descriptors: (limit.current, limit.maximum),
        }
    }
}

/// As files of a workspace are looked up.
fn has_openat2() -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::openat(CWD, "/", flags, Mode::empty()) else { return false };
    openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS).is_ok()
}

/// Whether there may be any; what an unprivileged program may do in one is told by the start of an agent.
fn has_user_namespaces() -> bool {
    let number = |path: &str| std::fs::read_to_string(Path::new(path)).ok()?.trim().parse::<u64>().ok();
    number("/proc/sys/user/max_user_namespaces").is_some_and(|count| count > 0)
        && number("/proc/sys/kernel/unprivileged_userns_clone") != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_holds_together() {
        let features = Features::probe(None);
        assert!(!features.release.is_empty());
        assert!(features.landlock_abi.is_none_or(|abi| (1..=6).contains(&abi)));
        assert!(features.openat2 || features.landlock_abi.is_none(), "Landlock came after openat2");
        assert!(features.cgroup.is_none());
    }
}
