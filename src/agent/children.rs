//! The daemon's children.
//!
//! 1. All that it starts are shims, each started and noted under one lock, with what is below it. Any other child is a stray,
//!    left by a shim that was killed, or was there before the daemon.
//! 2. Strays are ended and reaped by one at a time: so a number stays its owner's between the look and the kill.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Whether there ever was a shim.
    has_started_any: AtomicBool,
    /// Whoever replaced itself by the daemon left these to it.
    inherited: Vec<ProcessName>,
}

impl Children {
    pub fn new() -> Self {
        let inherited = procfs::children().into_iter().filter_map(|pid| procfs::name(pid.as_raw_nonzero().get()));
        Self {
            shims: Mutex::default(),
            pursuit: Mutex::default(),
            has_started_any: AtomicBool::new(false),
            inherited: inherited.collect(),
        }
    }

    /// Starts a shim. Nobody looks for strays between the start and the note of it.
    pub fn start(&self, shim: &mut Command, below: Below) -> std::io::Result<Child> {
        let mut shims = self.shims();
        self.has_started_any.store(true, Ordering::Release);
        let child = shim.spawn()?;
        shims.extend(child.id().map(|pid| (pid.cast_signed(), below)));
        Ok(child)
    }

    pub fn has_started_any(&self) -> bool {
        self.has_started_any.load(Ordering::Acquire)
    }

    /// What is below this process, if it is a shim.
    pub fn below(&self, pid: i32) -> Option<Below> {
        self.shims().get(&pid).copied()
    }

    /// Whether a child of the daemon is neither a shim nor somebody else's.
    pub fn is_stray(&self, pid: i32) -> bool {
        self.below(pid).is_none() && !self.is_anothers(pid)
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
        let is_stray = |pid: i32| !shims.contains_key(&pid) && !self.is_anothers(pid);
        procfs::children().into_iter().filter(|pid| is_stray(pid.as_raw_nonzero().get())).collect()
    }

    /// The first process of a container inherits everybody's orphans. There only the mark tells ours.
    fn is_anothers(&self, pid: i32) -> bool {
        let is_inherited = procfs::name(pid).is_some_and(|name| self.inherited.contains(&name));
        let is_foreign = std::process::id() == 1 && !procfs::is_marked(pid, SESSION_MARK);
        is_inherited || is_foreign
    }

    fn shims(&self) -> MutexGuard<'_, HashMap<i32, Below>> {
        self.shims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
