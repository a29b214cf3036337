//! A cgroup for a daemon: made below the mount of cgroup v2, delegated or not, and removed with whoever is in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::User;

/// The mark by which systemd says that a cgroup is delegated.
const DELEGATION_MARK: &str = "user.delegate";
/// What a manager gives away with a directory that it delegates to an ordinary user.
const DELEGATED_FILES: [&str; 3] = ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"];

/// A cgroup of the test's own. Dropping it kills whoever is in it or below it, and removes it all.
pub struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// A cgroup that nobody was given. Nothing, with a word on stderr, where the test may not make one.
    pub fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        let Some(mount) = mount_point(&mounts) else {
            super::say("SKIPPED: cgroup v2 is not mounted, so nothing of agents' cgroups is tested");
            return None;
        };
        match tempfile::Builder::new().prefix("acpd-test-").tempdir_in(mount) {
            // The directory's files are the kernel's, so it is not removed like any other.
            Ok(directory) => Some(Self { directory: directory.keep() }),
            Err(error) => {
                let mount = mount.display();
                super::say(&format!(
                    "SKIPPED: no cgroup can be made in {mount} ({error}), so nothing of agents' cgroups is tested"
                ));
                None
            }
        }
    }

    /// A cgroup that is delegated: to root by the mark, to an ordinary user by giving it away.
    pub fn delegated(user: Option<User>) -> Option<Self> {
        let cgroup = Self::make()?;
        match user {
            None => rustix::fs::setxattr(&cgroup.directory, DELEGATION_MARK, b"1", rustix::fs::XattrFlags::empty())
                .expect("a cgroup can be marked"),
            Some(user) => give(&cgroup.directory, user),
        }
        Some(cgroup)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the daemon puts itself and the shims.
    pub fn daemon(&self) -> PathBuf {
        self.directory.join("daemon")
    }

    /// The cgroup of a session's one process. What follows the session in its name tells processes apart.
    pub fn agent(&self, session: &str) -> PathBuf {
        let prefix = format!("agent-{session}-");
        let is_its = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
        let mut found = self.agents().into_iter().filter(is_its);
        match (found.next(), found.next()) {
            (Some(directory), None) => directory,
            other => panic!("not one cgroup of {session}: {other:?}"),
        }
    }

    /// All agents' cgroups, in order.
    pub fn agents(&self) -> Vec<PathBuf> {
        let mut found = children(&self.directory);
        found.retain(|path| *path != self.daemon());
        found.sort();
        found
    }

    /// Makes another cgroup in it, which belongs to whom it belongs to itself, with this process in it.
    pub fn add(&self, name: &str, process: u32, user: Option<User>) -> PathBuf {
        let directory = self.directory.join(name);
        fs::create_dir(&directory).expect("a cgroup can be made");
        if let Some(user) = user {
            give(&directory, user);
            chown(directory.join("cgroup.kill"), Some(user.uid), Some(user.gid)).expect("root can give it away");
        }
        join(&directory, process);
        directory
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            eprintln!("the cgroup {} cannot be removed: {error}", self.directory.display());
        }
    }
}

/// Moves a new daemon there. A cgroup that hands controllers down takes no processes, so what a dead daemon handed down is
/// taken back first, as by a manager that makes the cgroup anew.
pub(super) fn enter(directory: &Path, process: u32) {
    let file = directory.join("cgroup.subtree_control");
    for controller in fs::read_to_string(&file).expect("the cgroup is there").split_whitespace() {
        fs::write(&file, format!("-{controller}")).expect("a controller can be taken back");
    }
    join(directory, process);
}

fn join(directory: &Path, process: u32) {
    fs::write(directory.join("cgroup.procs"), process.to_string()).expect("a process can be moved into the cgroup");
}

/// Who is in this cgroup, in order; nobody when it is not there.
pub fn members(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut members: Vec<u32> = text.lines().map(|line| line.parse().expect("the kernel tells numbers")).collect();
    members.sort_unstable();
    members
}

fn mount_point(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(Path::new)).flatten()
    })
}

fn give(directory: &Path, user: User) {
    let files = DELEGATED_FILES.map(|file| directory.join(file));
    for path in files.iter().map(PathBuf::as_path).chain([directory]) {
        chown(path, Some(user.uid), Some(user.gid)).expect("only root can give a cgroup away");
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Kills and removes from the leaves up. What was killed leaves its cgroup in a moment, and the kernel has no way to wait
/// for that without a runtime, which may be gone when a test panics.
fn remove(directory: &Path) -> std::io::Result<()> {
    fs::write(directory.join("cgroup.kill"), "1")?;
    for child in children(directory) {
        remove(&child)?;
    }
    let started = std::time::Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && started.elapsed() < super::DEADLINE => {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}
