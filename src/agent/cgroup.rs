//! cgroups (v2): where the daemon's own was delegated to it, each agent gets one below it.
//!
//! ```text
//! DELEGATED/            ours to arrange; no process may be in it once it hands controllers down
//!   daemon/             the daemon and the shims
//!   agent-SESSION-…/    one agent with all that it starts; memory.max, pids.max, cgroup.kill
//! ```
//!
//! Nothing depends on it: without delegation the shim alone leaves nothing behind. With it, a whole agent is killed at
//! once, its memory and its processes are bounded, and what a killed daemon and a killed shim leave is found.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::{ByteSize, CgroupMode};
use crate::model::SessionId;

const DAEMON: &str = "daemon";
const AGENT_PREFIX: &str = "agent-";
/// The session's id follows the prefix, and then what tells its processes apart.
const UUID_LENGTH: usize = 36;
/// The marks by which a manager such as systemd says that a cgroup is delegated.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// The controllers that agents are bounded by, where the kernel has them.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// How long what was killed may take to leave its cgroup.
const EMPTY_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait for the kernel to tell of an empty cgroup before looking again.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The delegated cgroup.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    /// Those that agents are bounded by.
    controllers: Vec<String>,
    /// How many were made, for names that are given once.
    made: AtomicU64,
}

/// What one agent may use.
#[derive(Clone, Copy, Debug)]
pub struct CgroupLimits {
    pub memory: Option<ByteSize>,
    pub pids: Option<u32>,
}

impl Cgroups {
    /// Moves the daemon into a leaf of its cgroup, when that is delegated to it.
    pub fn enter(mode: CgroupMode) -> Option<Self> {
        let root = match mode {
            CgroupMode::Off => return None,
            CgroupMode::Auto => delegated_root(own_cgroup()?),
        };
        if !is_delegated(&root) {
            tracing::debug!(cgroup = %root.display(), "the daemon's cgroup is not delegated to it");
            return None;
        }
        match arrange(&root) {
            Ok(controllers) => {
                tracing::info!(cgroup = %root.display(), controllers, "each agent gets its own cgroup");
                let controllers = controllers.split_whitespace().map(str::to_owned).collect();
                Some(Self { root, controllers, made: AtomicU64::new(0) })
            }
            Err(error) => {
                tracing::warn!(cgroup = %root.display(), %error, "cannot use the delegated cgroup; continuing without it");
                None
            }
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// Makes an empty cgroup for a session's agent. Where that fails the agent does without.
    pub fn create(&self, session: SessionId, limits: CgroupLimits) -> Option<AgentCgroup> {
        // An earlier process of this session may not be gone yet, and its end must not meet the new one.
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{AGENT_PREFIX}{session}-{}-{number}", std::process::id());
        let cgroup = AgentCgroup { directory: self.root.join(name), daemon: self.root.join(DAEMON) };
        match cgroup.prepare(limits) {
            Ok(()) => Some(cgroup),
            Err(error) => {
                tracing::warn!(%error, "cannot create a cgroup for the agent; continuing without it");
                // Whatever there is of it is of no use.
                fs::remove_dir(&cgroup.directory).ok();
                None
            }
        }
    }

    /// The sessions whose agents' cgroups are still there.
    pub fn leftovers(&self) -> Vec<(SessionId, PathBuf)> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        entries.filter_map(|entry| session_of(&entry.ok()?.path())).collect()
    }
}

/// The session that a cgroup was made for, by its name.
fn session_of(directory: &Path) -> Option<(SessionId, PathBuf)> {
    let rest = directory.file_name()?.to_str()?.strip_prefix(AGENT_PREFIX)?;
    let session = rest.get(..UUID_LENGTH)?.parse().ok()?;
    Some((session, directory.to_owned()))
}

/// One agent's cgroup.
#[derive(Debug)]
pub struct AgentCgroup {
    directory: PathBuf,
    daemon: PathBuf,
}

impl AgentCgroup {
    fn prepare(&self, limits: CgroupLimits) -> std::io::Result<()> {
        let directory = &self.directory;
        fs::create_dir(directory)?;
        let bound = |file: &str, value: Option<String>| match value {
            Some(value) if directory.join(file).exists() => fs::write(directory.join(file), value),
            _ => Ok(()),
        };
        bound("memory.max", limits.memory.map(|size| size.0.to_string()))?;
        // Memory that is only moved to swap would make a limit that nobody notices.
        bound("memory.swap.max", limits.memory.map(|_| "0".to_owned()))?;
        // The agent dies whole: half of one helps nobody, and then its end says why.
        bound("memory.oom.group", limits.memory.map(|_| "1".to_owned()))?;
        bound("pids.max", limits.pids.map(|count| count.to_string()))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a shim needs: to join it, to leave it, and to kill it.
    pub fn open(&self) -> std::io::Result<[File; 3]> {
        let open = |path: PathBuf| OpenOptions::new().write(true).open(path);
        Ok([
            open(self.directory.join("cgroup.procs"))?,
            open(self.daemon.join("cgroup.procs"))?,
            open(self.directory.join("cgroup.kill"))?,
        ])
    }

    /// The way in, for a terminal of the agent's.
    pub fn door(&self) -> CgroupDoor {
        CgroupDoor { directory: self.directory.clone(), daemon: self.daemon.clone() }
    }

    /// Whether the kernel has killed anybody in it for want of memory.
    pub fn was_out_of_memory(&self) -> bool {
        fs::read_to_string(self.directory.join("memory.events")).is_ok_and(|events| has_oom_kills(&events))
    }

    /// Removes it, if nobody is in it.
    pub fn remove_when_empty(&self) -> bool {
        fs::remove_dir(&self.directory).is_ok()
    }

    /// Kills whoever is in it, and removes it. Blocks until it is empty.
    pub fn remove(self) {
        if let Err(error) = remove(&self.directory) {
            tracing::error!(cgroup = %self.directory.display(), %error, "cannot remove an agent's cgroup");
        }
    }
}

/// The way into an agent's cgroup, and out again, without the right to end it.
#[derive(Clone, Debug)]
pub struct CgroupDoor {
    directory: PathBuf,
    daemon: PathBuf,
}

impl CgroupDoor {
    /// What a shim needs to join it and to leave it.
    pub fn open(&self) -> std::io::Result<[File; 2]> {
        let open = |path: PathBuf| OpenOptions::new().write(true).open(path);
        Ok([open(self.directory.join("cgroup.procs"))?, open(self.daemon.join("cgroup.procs"))?])
    }
}

/// Kills whoever is in the cgroup, waits until it is empty, and removes it. One that is gone is removed.
pub fn remove(directory: &Path) -> std::io::Result<()> {
    let started = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && started.elapsed() < EMPTY_DEADLINE => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
        // Below it there may be cgroups that the agent made; they are killed with it, and go first.
        fs::write(directory.join("cgroup.kill"), "1")?;
        wait_until_empty(directory);
        for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.path().is_dir()) {
            remove(&entry.path())?;
        }
    }
}

/// The kernel tells of a change in `cgroup.events` by POLLPRI.
fn wait_until_empty(directory: &Path) {
    let Ok(events) = File::open(directory.join("cgroup.events")) else { return };
    let is_empty =
        || fs::read_to_string(directory.join("cgroup.events")).is_ok_and(|text| text.contains("populated 0"));
    if !is_empty() {
        // A change between the look and the wait costs one pause.
        poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&LOOK_AGAIN)).ok();
    }
}

fn has_oom_kills(events: &str) -> bool {
    let count = |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse::<u64>().ok());
    events.lines().find_map(count).is_some_and(|count| count > 0)
}

/// A manager may have put the daemon into its leaf already (systemd: `DelegateSubgroup=daemon`).
fn delegated_root(own: PathBuf) -> PathBuf {
    match own.parent() {
        Some(parent) if own.file_name().is_some_and(|name| name == DAEMON) && is_delegated(parent) => parent.to_owned(),
        _ => own,
    }
}

/// The directory of the cgroup that this process is in, when cgroup v2 is mounted.
fn own_cgroup() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&membership, &mounts)
}

fn locate(membership: &str, mounts: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount_point) = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        kind.starts_with("cgroup2 ").then(|| Some((fields.next()?, fields.next()?))).flatten()
    })?;
    // In a namespace the mount shows a part of the tree, and the path begins where that does.
    let inside = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mount_point).join(inside))
}

/// By the manager's mark; or, where the manager leaves none that we may read, because it gave the directory to our user
/// and nobody but us is in it. To root every directory belongs, so for root only the mark counts.
fn is_delegated(root: &Path) -> bool {
    let is_marked = |mark: &&str| {
        let mut value = [0; 1];
        rustix::fs::getxattr(root, *mark, &mut value).is_ok_and(|length| value[..length] == *b"1")
    };
    if DELEGATION_MARKS.iter().any(is_marked) {
        return true;
    }
    let user = rustix::process::geteuid();
    let own = std::process::id().to_string();
    !user.is_root()
        && fs::metadata(root).is_ok_and(|metadata| metadata.uid() == user.as_raw())
        && fs::read_to_string(root.join("cgroup.procs")).is_ok_and(|processes| processes.trim() == own)
}

/// Moves this process into the leaf, and hands the controllers down; tells which.
fn arrange(root: &Path) -> std::io::Result<String> {
    let leaf = root.join(DAEMON);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Before Linux 5.14 a cgroup cannot be killed, and then it is not worth having.
    fs::metadata(leaf.join("cgroup.kill"))?;
    fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())?;
    let available = fs::read_to_string(root.join("cgroup.controllers"))?;
    let mut handed_down = Vec::new();
    for controller in CONTROLLERS.into_iter().filter(|name| available.split_whitespace().any(|found| found == *name)) {
        match fs::write(root.join("cgroup.subtree_control"), format!("+{controller}")) {
            Ok(()) => handed_down.push(controller),
            // Somebody else is in the cgroup; killing works all the same.
            Err(error) => tracing::warn!(controller, %error, "cannot enable a cgroup controller for the agents"),
        }
    }
    Ok(handed_down.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_on_any_layout() {
        let systemd = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = locate("0::/system.slice/acpd.service\n", systemd).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/system.slice/acpd.service"));
        let hybrid = "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = locate("9:name=systemd:/\n4:memory:/x\n0::/test\n", hybrid).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/test"));
        let container = "50 40 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(locate("0::/docker/abc/x\n", container).unwrap(), Path::new("/sys/fs/cgroup/x"));
        assert_eq!(locate("4:memory:/x\n", hybrid), None, "a system without cgroup v2");
    }

    #[test]
    fn a_kill_for_want_of_memory_is_read_from_the_events() {
        assert!(has_oom_kills("low 0\nhigh 0\nmax 17\noom 1\noom_kill 1\noom_group_kill 1\n"));
        assert!(!has_oom_kills("low 0\nhigh 0\nmax 17\noom 0\noom_kill 0\n"));
        assert!(!has_oom_kills(""));
    }
}
