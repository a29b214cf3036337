//! The daemon's children.
//!
//! 1. The daemon starts only shims, and records each under the lock under which it starts it. Any other child is an orphan that a
//!    killed shim left, or was there before the daemon. The first process of a container inherits every orphan there.
//! 2. One thread at a time ends and reaps orphans, so the process that is killed is the one that was examined.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::process::{Child, Command};

use super::command::SESSION_MARK;
use super::{family, procfs};
use crate::model::SessionId;
use crate::model::session::ProcessName;

/// How long the strays of a shim that was killed are pursued. SIGKILL takes a moment, unless the kernel holds them.
const PURSUIT_MAX: Duration = Duration::from_secs(20);

/// What is below a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// The agent of this session, or what it has acpd run.
    Agent(SessionId),
    /// A command of the daemon's own user or a session's owner, which the configuration names.
    Errand,
}

#[derive(Debug)]
pub struct Children {
    shims: Mutex<HashMap<i32, Below>>,
    /// Held by whoever ends or reaps strays.
    pursuit: Mutex<()>,
    /// Children from before the daemon: the program that became the daemon started them.
    inherited: Vec<ProcessName>,
}

impl Children {
    pub fn new() -> Self {
        let inherited = procfs::children().into_iter().filter_map(|pid| procfs::name(pid.as_raw_nonzero().get()));
        Self { shims: Mutex::default(), pursuit: Mutex::default(), inherited: inherited.collect() }
    }

    /// Starts a shim. Nobody looks for strays between the start and the note of it.
    pub fn start(&self, shim: &mut Command, below: Below) -> std::io::Result<Child> {
        let mut shims = self.shims();
        let child = shim.spawn()?;
        shims.extend(child.id().map(|pid| (pid.cast_signed(), below)));
        Ok(child)
    }

    /// What is below this process, if it is a shim.
    pub fn below(&self, pid: i32) -> Option<Below> {
        self.shims().get(&pid).copied()
    }

    /// Whether this child of the daemon may come from an agent. In a container that includes the orphans of other programs, because
    /// an agent can clear the environment of its own.
    pub fn is_orphan(&self, pid: i32) -> bool {
        self.below(pid).is_none() && !self.is_inherited(pid)
    }

    /// Notes that a shim was reaped.
    pub fn forget(&self, shim: i32) {
        self.shims().remove(&shim);
    }

    /// Ends every stray, and theirs, until none is left. Blocks; for a thread of its own.
    pub fn end_strays(&self) {
        let mut count = 0;
        let left = {
            let _pursuit = self.pursuit.lock().unwrap_or_else(PoisonError::into_inner);
            family::end(|| self.strays(), Some(PURSUIT_MAX), |_, _| count += 1)
        };
        self.reap();
        if count > 0 {
            tracing::warn!(security = true, count, "a shim was killed; killed the processes that it left running");
        }
        if !left.is_empty() {
            tracing::error!(?left, "cannot kill some processes that a killed shim left running");
        }
    }

    /// Reaps whoever has ended and is no shim: inherited ones, and strays that took their time.
    pub fn reap(&self) {
        // Whoever pursues strays reaps when it is done.
        let Ok(_pursuit) = self.pursuit.try_lock() else { return };
        let shims = self.shims();
        for child in procfs::children().into_iter().filter(|pid| !shims.contains_key(&pid.as_raw_nonzero().get())) {
            waitpid(Some(child), WaitOptions::NOHANG).ok();
        }
    }

    fn strays(&self) -> Vec<Pid> {
        let shims = self.shims();
        // The first process of a container has orphans of other programs too. Only those with a session's mark may be killed.
        let is_foreign = |pid: i32| std::process::id() == 1 && !procfs::is_marked(pid, SESSION_MARK);
        let is_stray = |pid: i32| !shims.contains_key(&pid) && !self.is_inherited(pid) && !is_foreign(pid);
        procfs::children().into_iter().filter(|pid| is_stray(pid.as_raw_nonzero().get())).collect()
    }

    fn is_inherited(&self, pid: i32) -> bool {
        procfs::name(pid).is_some_and(|name| self.inherited.contains(&name))
    }

    fn shims(&self) -> MutexGuard<'_, HashMap<i32, Below>> {
        self.shims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
