//! As whom the daemon looks at files: with the rights of the user for whom it does so, never with its own.
//!
//! For its own user it does so as itself. For another one, whom only a daemon of root serves, a thread is started that takes
//! on the user's identity towards file systems (groups, group, user), works, and ends. It never goes back: an identity that
//! ends with its thread cannot be left over, whatever fails or panics meanwhile. With the user the kernel takes the rights
//! away by which root passes over permissions; the thread gives up the others itself, by some of which more is seen than the
//! user may see (in `/proc`). Its other identity stays root's, because whoever shared that could send signals to the daemon.
//!
//! What is asked for by `access(2)` is asked for the real user, which is root: `AT_EACCESS` has to be used instead.

use std::io;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups};

use super::account::{Account, AccountError};
use super::beneath::FileError;
use super::shim::Owner;
use super::workspace::{self, Grounds, OpenWorkspace, WorkspaceError};

/// No user and no group: a call with it changes nothing, and tells what holds.
const NOBODY: u32 = u32::MAX;

/// As whom.
#[derive(Clone, Debug)]
pub enum Persona {
    /// The daemon's own user.
    Own,
    Other(Arc<Account>),
    /// Another user, whom nobody has looked up yet: nothing is done for them.
    Unknown,
}

impl Persona {
    /// Of a session's owner. For another user than the daemon's, the user database is asked.
    pub fn of(owner: Option<u32>) -> Result<Self, AccountError> {
        match other(owner) {
            Some(uid) => Account::of(uid).map(|account| Self::Other(Arc::new(account))),
            None => Ok(Self::Own),
        }
    }

    /// The same, without a question to the user database yet.
    pub fn to_be_asked_for(owner: Option<u32>) -> Self {
        if other(owner).is_some() { Self::Unknown } else { Self::Own }
    }

    /// Whom a process of theirs runs as, when that is not the daemon's own user.
    pub fn owner(&self) -> Option<Owner> {
        self.account().map(Account::owner)
    }

    /// Who that is, when it is not the daemon's user.
    pub fn account(&self) -> Option<&Account> {
        match self {
            Self::Own | Self::Unknown => None,
            Self::Other(account) => Some(account),
        }
    }

    /// Their home; `own` is that of the daemon's user.
    pub fn home<'a>(&'a self, own: &'a Path) -> Option<&'a Path> {
        match self {
            Self::Own => Some(own),
            Self::Other(account) => Some(&account.home),
            Self::Unknown => None,
        }
    }

    /// Does something that looks at files. It blocks. When the identity cannot be taken on, nothing is done.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let account = match self {
            Self::Own => return Ok(work()),
            Self::Other(account) => account,
            Self::Unknown => return Err(io::Error::other("the session's owner has not been looked up yet")),
        };
        let in_thread = || take_on(account).map(|()| work());
        let work_and_wait = || {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name("as-owner".to_owned());
                thread.spawn_scoped(scope, in_thread).map(std::thread::ScopedJoinHandle::join)
            })
        };
        // Where a user's files are, and how long a look at them takes, is that user's affair: a thread of the runtime hands
        // everybody else's tasks to another one meanwhile. On other threads this changes nothing.
        let worked = tokio::task::block_in_place(work_and_wait);
        worked?.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The same for what can fail because of a file.
    pub fn run_on_files<T: Send>(&self, work: impl FnOnce() -> Result<T, FileError> + Send) -> Result<T, FileError> {
        self.run(work).map_err(FileError::System).flatten()
    }

    pub fn resolve_workspace(&self, path: &Path, grounds: &Grounds) -> Result<String, WorkspaceError> {
        self.look_at(path, || workspace::resolve_workspace(path, grounds))
    }

    pub fn open_workspace(&self, path: &Path, grounds: &Grounds) -> Result<OpenWorkspace, WorkspaceError> {
        self.look_at(path, || workspace::open_workspace(path, grounds))
    }

    fn look_at<T: Send>(
        &self,
        path: &Path,
        look: impl FnOnce() -> Result<T, WorkspaceError> + Send,
    ) -> Result<T, WorkspaceError> {
        let missing = |source| WorkspaceError::Missing { path: path.to_owned(), source };
        match self.run(look).map_err(missing).flatten() {
            // What somebody cannot reach is for them as if it were not there.
            Err(WorkspaceError::Missing { source, .. })
                if self.account().is_some() && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Err(missing(rustix::io::Errno::NOENT.into()))
            }
            looked => looked,
        }
    }
}

fn other(owner: Option<u32>) -> Option<u32> {
    owner.filter(|uid| *uid != rustix::process::geteuid().as_raw())
}

/// Takes on a user's identity towards file systems, for this thread alone and for as long as it lives.
fn take_on(account: &Account) -> io::Result<()> {
    let groups: Vec<_> = account.groups.iter().map(|group| rustix::process::Gid::from_raw(*group)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // Of this thread only: the C library's own function would set those of all threads.
    set_thread_groups(&groups)?;
    setfsgid(gid);
    setfsuid(uid);
    // They do not tell whether they did it.
    let has_taken_on =
        (setfsuid(Uid::from_raw(NOBODY)), setfsgid(Gid::from_raw(NOBODY))) == (uid, gid) && !uid.is_root();
    if !has_taken_on {
        let problem = format!("cannot take on the rights of user {}", account.name);
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    // Last, because the identity cannot be changed without them. These are of this thread only, too; and what is not
    // permitted any more the kernel takes out of the ambient set.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    use super::*;

    const SOMEBODY: u32 = 4321;

    fn somebody() -> Option<Persona> {
        let account = Account {
            uid: SOMEBODY,
            gid: SOMEBODY,
            groups: vec![SOMEBODY],
            name: "somebody".to_owned(),
            home: PathBuf::from("/"),
            shell: PathBuf::from("/bin/sh"),
        };
        rustix::process::geteuid().is_root().then(|| Persona::Other(Arc::new(account)))
    }

    #[test]
    fn files_are_looked_at_and_made_with_the_rights_of_the_other_and_nothing_is_left_over() {
        let Some(persona) = somebody() else { return };
        let base = tempfile::tempdir().unwrap();
        let (closed, open) = (base.path().join("closed"), base.path().join("open"));
        for (directory, mode) in [(base.path(), 0o755), (&closed, 0o700), (&open, 0o777)] {
            std::fs::create_dir_all(directory).unwrap();
            std::fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        }
        std::fs::write(closed.join("secret"), "x").unwrap();
        let denied = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        denied(persona.run(|| std::fs::read(closed.join("secret"))).unwrap().unwrap_err());
        denied(persona.run(|| std::fs::read_dir(&closed).map(drop)).unwrap().unwrap_err());
        denied(persona.run(|| std::fs::write(base.path().join("new"), "x")).unwrap().unwrap_err());
        persona.run(|| std::fs::write(open.join("made"), "x")).unwrap().unwrap();
        let made = open.join("made").metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (SOMEBODY, SOMEBODY));
        // The thread that asked is who it was.
        assert!(std::fs::read(closed.join("secret")).is_ok());
        std::fs::write(open.join("ours"), "x").unwrap();
        assert_eq!(open.join("ours").metadata().unwrap().uid(), 0);
        // And a signal of that user's does not reach the thread.
        let status = persona.run(|| std::fs::read_to_string("/proc/thread-self/status")).unwrap().unwrap();
        assert!(status.contains("Uid:\t0\t0\t0\t4321"), "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
        let ours = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(!ours.contains("CapEff:\t0000000000000000"), "{ours}");
    }

    #[test]
    fn what_cannot_be_reached_is_told_as_what_is_not_there() {
        let Some(persona) = somebody() else { return };
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();
        let closed = base.join("closed");
        std::fs::create_dir_all(closed.join("there")).unwrap();
        std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let grounds = Grounds { roots: vec![base.clone()], ..Grounds::default() };
        let told = |name: &str| {
            let path = closed.join(name);
            let told = crate::model::error::chain(&persona.resolve_workspace(&path, &grounds).unwrap_err());
            let opened = crate::model::error::chain(&persona.open_workspace(&path, &grounds).unwrap_err());
            assert_eq!(told, opened);
            told.replace(name, "NAME")
        };
        assert_eq!(told("there"), told("nothing"));
        assert!(Persona::Own.resolve_workspace(&closed.join("there"), &grounds).is_ok());
    }

    #[test]
    fn a_panic_goes_on_to_whoever_asked() {
        let Some(persona) = somebody() else { return };
        let caught = std::panic::catch_unwind(|| persona.run(|| panic!("of the work")));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"of the work"));
    }
}
