//! What all processes have in common: the daemon that they belong to, on this machine, in this boot.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::cgroup::Cgroups;
use super::children::Children;
use super::confine::Directories;
use super::features::Features;
use super::keeper::Keeper;
use super::{leftovers, procfs};
use crate::acp::LongLines;
use crate::config::CgroupMode;
use crate::metrics::Metrics;
use crate::model::SessionId;
use crate::model::session::{ProcessIdentity, ProcessName};

/// The daemon as the processes' host.
#[derive(Debug)]
pub struct Host {
    pub(super) boot_id: String,
    /// The daemon itself.
    pub(super) daemon: ProcessName,
    pub(super) children: Arc<Children>,
    pub(super) keeper: Keeper,
    /// Where each agent gets a cgroup of its own.
    pub(super) cgroups: Option<Cgroups>,
    pub(super) long_lines: LongLines,
    /// The tasks of processes, which outlive their actors until they are reaped.
    pub tasks: TaskTracker,
    /// What each session has for itself.
    pub directories: Directories,
    pub(super) metrics: Arc<Metrics>,
    /// What of the kernel is in use.
    pub features: Features,
}

impl Host {
    /// How long the daemon's own end waits for that of strays. As a rule there are none; a fork bomb takes seconds. Whatever has
    /// a shim is ended by that, also without the daemon.
    pub const LAST_LOOK: Duration = Duration::from_secs(15);

    /// Makes this process the one that inherits whoever loses its shim, and enters its cgroup.
    pub fn new(
        mode: CgroupMode,
        long_lines_bytes: usize,
        state_dir: PathBuf,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let own = std::process::id().cast_signed();
        let tasks = TaskTracker::new();
        let cgroups = Cgroups::enter(mode);
        Ok(Self {
            features: Features::probe(cgroups.as_ref()),
            boot_id: procfs::boot_id()?,
            daemon: procfs::name(own).ok_or_else(|| std::io::Error::other("the daemon is not in /proc"))?,
            children: Arc::new(Children::new()),
            keeper: Keeper::start()?,
            cgroups,
            long_lines: LongLines::new(Semaphore::new(long_lines_bytes)),
            directories: Directories::new(state_dir, tasks.clone()),
            tasks,
            metrics,
        })
    }

    /// Reaps whoever has ended and is no shim.
    pub fn reap(&self) {
        self.children.reap();
    }

    /// The last look before the daemon ends: strays that are being pursued, or that nobody has met yet, end first.
    pub async fn end_strays(&self) {
        let children = Arc::clone(&self.children);
        self.keeper.run(Self::LAST_LOOK, move || children.end_strays()).await;
    }

    /// The cgroups of agents that are there before any was started.
    pub fn cgroups_left(&self) -> Vec<(SessionId, PathBuf)> {
        self.cgroups.as_ref().map(Cgroups::leftovers).unwrap_or_default()
    }

    /// Ends what a dead daemon left.
    pub async fn clear_leftovers(&self, known: Vec<(SessionId, ProcessIdentity)>, cgroups: Vec<(SessionId, PathBuf)>) {
        let boot_id = self.boot_id.clone();
        match tokio::task::spawn_blocking(move || leftovers::clear(&boot_id, &known, cgroups)).await {
            Ok(0) => {}
            Ok(ended) => tracing::warn!(ended, "killed stale agent processes of a previous daemon"),
            Err(error) => tracing::error!(%error, "cannot look for stale agent processes of a previous daemon"),
        }
    }
}
