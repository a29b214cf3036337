//! The directories that each session has for itself: `STATE/run/SESSION/{home,tmp}`.
//!
//! The session's directory is the daemon's, so that nobody else puts a link in the place of the two; those are the owner's.
//! For an owner who is not the daemon's user the way there is passable, and shows nothing.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use tokio_util::task::TaskTracker;

use crate::agent::shim::Owner;
use crate::model::SessionId;
use crate::private;

const RUN: &str = "run";
const HOME: &str = "home";
const TMP: &str = "tmp";
const PRIVATE: u32 = 0o700;
/// Others go through, and see nothing.
const PASSABLE: u32 = 0o711;

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
        for name in [HOME, TMP] {
            if make(&own.join(name))?
                && let Some(owner) = owner
            {
                lchown(own.join(name), Some(owner.user), Some(owner.group))?;
            }
        }
        Ok(SessionDirectories { home: own.join(HOME), tmp: own.join(TMP) })
    }

    /// Removes a session's directories, in the background: there may be much in them.
    pub fn remove(&self, session: SessionId) {
        let path = self.state_dir.join(RUN).join(session.to_string());
        self.tasks.spawn_blocking(move || remove(&path));
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
    match std::fs::remove_dir_all(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "a session's directory cannot be removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
