//! The directories that each session has for itself: `STATE/run/SESSION/{home,tmp,layer}`, and beside them the socket of its tools.
//!
//! The session's directory belongs to the daemon, so that no agent puts a link in their place. They belong to the session's owner.
//! For an owner who is not the daemon's user the way there is passable, and shows nothing.

use std::ffi::OsStr;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::home_layer;
use crate::agent::shim::Owner;
use crate::agent::tools;
use crate::model::SessionId;
use crate::private;

const RUN: &str = "run";
const HOME: &str = "home";
const TMP: &str = "tmp";
const LAYER: &str = "layer";
const PRIVATE: u32 = 0o700;
/// Others go through, and see nothing.
const PASSABLE: u32 = 0o711;
/// Directories in directories that are opened up for their removal: each holds a descriptor for as long.
const DEPTH_MAX: usize = 200;

/// Where the directories of all sessions are.
#[derive(Debug)]
pub struct Directories {
    state_dir: PathBuf,
    tasks: TaskTracker,
}

/// Those of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDirectories {
    pub home: PathBuf,
    pub tmp: PathBuf,
    /// What the isolated agent has changed in its user's home.
    pub layer: PathBuf,
}

impl SessionDirectories {
    pub(in crate::agent) fn in_directory(directory: &Path) -> Self {
        Self { home: directory.join(HOME), tmp: directory.join(TMP), layer: directory.join(LAYER) }
    }

    /// What stands for them in a profile.
    pub fn places(&self) -> [(&'static str, String); 2] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [("{home}", text(&self.home)), ("{tmp}", text(&self.tmp))]
    }

    /// Where the agent reaches acpd's own tools, when it has them.
    pub fn tools_socket(&self) -> PathBuf {
        self.home.with_file_name(tools::NAME)
    }
}

impl Directories {
    /// Removals are tracked by `tasks`.
    pub fn new(state_dir: PathBuf, tasks: TaskTracker) -> Self {
        Self { state_dir, tasks }
    }

    /// Makes what is not there yet. The paths are real ones.
    pub fn make(&self, session: SessionId, owner: Option<&Owner>) -> io::Result<SessionDirectories> {
        let state_dir = self.state_dir.canonicalize()?;
        let run = state_dir.join(RUN);
        private::directory(&run)?;
        let own = run.join(session.to_string());
        make(&own)?;
        if owner.is_some() {
            for directory in [&state_dir, &run, &own] {
                std::fs::set_permissions(directory, Permissions::from_mode(PASSABLE))?;
            }
        }
        for name in [HOME, TMP, LAYER] {
            if make(&own.join(name))?
                && let Some(owner) = owner
            {
                lchown(own.join(name), Some(owner.user), Some(owner.group))?;
            }
        }
        Ok(SessionDirectories::in_directory(&own))
    }

    /// Removes a session's directories, in the background: there may be much in them. Whoever wants to waits for it.
    pub fn remove(&self, session: SessionId) -> JoinHandle<()> {
        let path = self.state_dir.join(RUN).join(session.to_string());
        self.tasks.spawn_blocking(move || remove(&path))
    }

    /// What the agents of these sessions have changed in their homes, in bytes. It blocks.
    pub fn homes_size(&self, sessions: &[SessionId]) -> u64 {
        sessions.iter().map(|session| home_layer::size(&self.layer_of(*session), u64::MAX)).sum()
    }

    /// Discards what they have changed there. The sessions must have no process.
    pub fn discard_homes(&self, sessions: &[SessionId]) {
        for session in sessions {
            remove(&self.layer_of(*session));
        }
    }

    fn layer_of(&self, session: SessionId) -> PathBuf {
        self.state_dir.join(RUN).join(session.to_string()).join(LAYER)
    }

    /// Removes what a dead daemon left of the socket of a session's tools.
    pub fn remove_tools_socket(&self, session: SessionId) {
        let path = self.state_dir.join(RUN).join(session.to_string()).join(tools::NAME);
        if let Err(error) = tools::remove(&path) {
            tracing::warn!(socket = %path.display(), %error, "cannot remove the socket of a session's tools");
        }
    }

    /// The sessions that have directories.
    pub fn sessions(&self) -> Vec<SessionId> {
        let Ok(entries) = std::fs::read_dir(self.state_dir.join(RUN)) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }
}

/// Whether it was made now.
fn make(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(PRIVATE).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.symlink_metadata()?.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// What cannot be removed now is looked for again at the next start.
fn remove(path: &Path) {
    let removed = std::fs::remove_dir_all(path).or_else(|error| match error.kind() {
        // Some programs close their directories to themselves: Go does so with all that it downloads.
        ErrorKind::PermissionDenied => {
            open_up(CWD, path.as_os_str(), DEPTH_MAX)?;
            std::fs::remove_dir_all(path)
        }
        _ => Err(error),
    });
    match removed {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove a session's directory"),
    }
}

/// Has the owner of a directory, and of those in it, able to empty them. No link is followed: what is changed is what was
/// opened, and it is opened for its name only, which needs no right on it.
fn open_up(parent: impl AsFd, name: &OsStr, depth_left: usize) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(parent, name, flags | OFlags::PATH, Mode::empty()) {
        // A file, a link, or what is gone by now.
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    if depth_left == 0 {
        return Err(io::Error::other("its directories are nested too deeply"));
    }
    // A descriptor of this kind takes no mode itself; the way by which the system shows it leads to that very directory.
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        let shown = format!("/proc/self/fd/{}", directory.as_raw_fd());
        std::fs::set_permissions(shown, Permissions::from_mode(PRIVATE))?;
    }
    let listed = openat(&directory, ".", flags | OFlags::RDONLY, Mode::empty())?;
    for entry in Dir::new(listed)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if may_be_directory && name != "." && name != ".." {
            open_up(&directory, name, depth_left - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn directories_are_opened_up_and_links_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let (own, outside) = (base.path().join("own"), base.path().join("outside"));
        for directory in [&own.join("a/b"), &own.join("open"), &outside] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(own.join("a/b/file"), "x").unwrap();
        symlink(&outside, own.join("a/link")).unwrap();
        let closed = [own.join("a/b"), own.join("a"), outside.clone()];
        for directory in &closed {
            std::fs::set_permissions(directory, Permissions::from_mode(0o500)).unwrap();
        }
        std::fs::set_permissions(own.join("open"), Permissions::from_mode(0o755)).unwrap();
        open_up(CWD, own.as_os_str(), DEPTH_MAX).unwrap();
        assert_eq!(closed.each_ref().map(|directory| mode_of(directory)), [PRIVATE, PRIVATE, 0o500]);
        assert_eq!(mode_of(&own.join("open")), 0o755, "what is open already stays as it is");
        assert!(open_up(CWD, own.as_os_str(), 2).is_err(), "not deeper than it may");

        std::fs::set_permissions(own.join("a/b"), Permissions::from_mode(0o000)).unwrap();
        std::fs::set_permissions(own.join("a"), Permissions::from_mode(0o500)).unwrap();
        remove(&own);
        assert!(!own.exists() && outside.exists());
    }

    #[tokio::test]
    async fn directories_are_private_made_once_and_removed_whole() {
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), Permissions::from_mode(PRIVATE)).unwrap();
        let tasks = TaskTracker::new();
        let directories = Directories::new(base.path().to_owned(), tasks.clone());
        let session = SessionId::new();
        let own = directories.make(session, None).unwrap();
        for directory in [&own.home, &own.tmp] {
            assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o7777, PRIVATE);
        }
        std::fs::write(own.home.join("kept"), "x").unwrap();
        assert_eq!(directories.make(session, None).unwrap(), own);
        assert!(own.home.join("kept").exists());
        std::fs::write(base.path().join("run/acpd.sock"), "not a session's").unwrap();
        assert_eq!(directories.sessions(), [session]);

        directories.remove(session);
        tasks.close();
        tasks.wait().await;
        assert!(directories.sessions().is_empty());
    }
}
