//! Where an agent may work: a real directory inside the allowed roots.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, accessat};
use rustix::io::Errno;

use super::account::AccountError;
use crate::model::Peer;
use crate::model::session::DirectoryIdentity;
use crate::security::{Security, SecurityEvent};

/// A workspace that was opened and checked. Whatever is put at its path later, this is the directory that was meant.
#[derive(Debug)]
pub struct OpenWorkspace {
    /// Its real path.
    pub path: PathBuf,
    pub directory: OwnedFd,
    pub identity: DirectoryIdentity,
    /// Paths in it that agents may not reach through the daemon.
    pub hidden: Vec<PathBuf>,
}

/// Where agents may work.
#[derive(Clone, Debug, Default)]
pub struct Grounds {
    pub roots: Vec<PathBuf>,
    /// What is acpd's own, by its real paths: at or below these nobody works.
    pub reserved: Vec<PathBuf>,
    /// Real paths that acpd neither reads nor writes for agents.
    pub hidden: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the workspace {0:?} is not an absolute path")]
    NotAbsolute(PathBuf),
    #[error("cannot open the workspace {path:?}")]
    Missing {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An agent can do that: no sandbox forbids `chmod`.
    #[error("the mode {mode:03o} of the directory {directory:?} does not let its owner in")]
    Closed { directory: PathBuf, mode: u32 },
    #[error("the workspace {0:?} is not a directory")]
    NotADirectory(PathBuf),
    #[error("the path of the workspace {0:?} is not UTF-8")]
    NotUtf8(PathBuf),
    #[error("the workspace {path:?} is outside the allowed roots")]
    OutsideRoots { path: PathBuf, real: PathBuf, roots: Vec<PathBuf> },
    #[error("the workspace {path:?} is inside {place:?}, which is reserved for acpd")]
    Reserved { path: PathBuf, place: PathBuf },
    /// Whoever it is for is not somebody whose rights can be taken on.
    #[error(transparent)]
    Owner(#[from] AccountError),
    #[error("cannot inspect the workspace: {0}")]
    NotLooked(String),
    /// What was a real path once is none any more. It does not lead out of the roots, but to another place.
    #[error("the workspace {path:?} is now a link to {real:?}")]
    Moved { path: PathBuf, real: PathBuf },
}

impl WorkspaceError {
    /// Whether the path that was real once now leads somewhere else, and out of the roots: somebody has put a link in
    /// its way. Roots that were narrowed meanwhile are no such thing. Says where it leads.
    pub fn escape(&self) -> Option<String> {
        match self {
            Self::OutsideRoots { path, real, .. } if path != real => {
                let (path, real) = (path.to_string_lossy(), real.to_string_lossy());
                Some(format!("the workspace {path:?} now leads to {real:?}, outside the allowed roots"))
            }
            Self::OutsideRoots { .. }
            | Self::NotAbsolute(_)
            | Self::Missing { .. }
            | Self::Closed { .. }
            | Self::NotADirectory(_)
            | Self::NotUtf8(_)
            | Self::Reserved { .. }
            | Self::Owner(_)
            | Self::NotLooked(_)
            | Self::Moved { .. } => None,
        }
    }

    /// Why a path cannot be looked at: the outermost directory on it that the caller cannot enter may be closed to its own
    /// owner. Else it is the error that the system gave.
    pub(super) fn unreachable(path: &Path, source: std::io::Error) -> Self {
        let denied = |path: &&Path| accessat(CWD, *path, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS);
        let metadata = |path: &Path| path.symlink_metadata().ok().filter(std::fs::Metadata::is_dir);
        let outermost = path.ancestors().filter(denied).last().and_then(|path| Some((path, metadata(path)?.mode())));
        match outermost {
            Some((path, mode)) if mode & Mode::XUSR.bits() == 0 => {
                Self::Closed { directory: path.to_owned(), mode: mode & 0o777 }
            }
            _ => Self::Missing { path: path.to_owned(), source },
        }
    }

    /// How to let acpd in, when only a directory's mode keeps it out.
    pub fn hint(&self) -> Option<String> {
        let Self::Closed { directory, .. } = self else { return None };
        Some(format!("run `chmod u+rwx {}`", directory.display()))
    }

    /// Tells of it when it is an attempt to get out of the roots. `peer` is whoever asked.
    pub fn report(&self, security: &Security, peer: Option<&Peer>) {
        if let Self::OutsideRoots { path, real, .. } = self {
            let real = real.to_string_lossy();
            let why = format!("workspace leads to {real:?}, outside the allowed roots");
            security.refused(SecurityEvent::OutsideRoots, peer, Some(path), why);
        }
    }
}

/// The real path of a directory, when it is inside one of the roots, and not acpd's own.
pub fn resolve_workspace(path: &Path, grounds: &Grounds) -> Result<String, WorkspaceError> {
    let Grounds { roots, reserved, .. } = grounds;
    if !path.is_absolute() {
        return Err(WorkspaceError::NotAbsolute(path.to_owned()));
    }
    let real = path.canonicalize().map_err(|error| WorkspaceError::unreachable(path, error))?;
    if !is_inside(&real, roots) {
        return Err(WorkspaceError::OutsideRoots { path: path.to_owned(), real, roots: roots.clone() });
    }
    if !real.is_dir() {
        return Err(WorkspaceError::NotADirectory(path.to_owned()));
    }
    check_reserved(path, &real, reserved)?;
    real.into_os_string().into_string().map_err(|name| WorkspaceError::NotUtf8(PathBuf::from(name)))
}

/// Compared by components, so that /srv/ab is not inside /srv/a. Roots may be links themselves.
fn is_inside(real: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root)))
}

fn check_reserved(path: &Path, real: &Path, reserved: &[PathBuf]) -> Result<(), WorkspaceError> {
    match reserved.iter().find(|place| real.starts_with(place)) {
        Some(place) => Err(WorkspaceError::Reserved { path: path.to_owned(), place: place.clone() }),
        None => Ok(()),
    }
}

/// Opens a directory of acpd's own as a workspace: for a process that has no other one.
pub fn open_own(path: &Path) -> std::io::Result<OpenWorkspace> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let identity = identity_of(&directory)?;
    Ok(OpenWorkspace { path: path.to_owned(), directory, identity, hidden: Vec::new() })
}

/// Opens a workspace by its real path, on which there must be no link now, and looks at what was opened.
pub fn open_workspace(path: &Path, grounds: &Grounds) -> Result<OpenWorkspace, WorkspaceError> {
    let Grounds { roots, reserved, hidden } = grounds;
    // Without NOFOLLOW, which would have a link at the end opened, and refused for being no directory.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let directory = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(directory) => directory,
        Err(Errno::LOOP) => {
            let real = PathBuf::from(resolve_workspace(path, grounds)?);
            return Err(WorkspaceError::Moved { path: path.to_owned(), real });
        }
        Err(Errno::NOTDIR) => return Err(WorkspaceError::NotADirectory(path.to_owned())),
        Err(error) => return Err(WorkspaceError::unreachable(path, error.into())),
    };
    if !is_inside(path, roots) {
        let (path, roots) = (path.to_owned(), roots.clone());
        return Err(WorkspaceError::OutsideRoots { real: path.clone(), path, roots });
    }
    check_reserved(path, path, reserved)?;
    // It was opened for its name only, which needs no right on it.
    let entered = accessat(&directory, ".", Access::EXEC_OK, AtFlags::EACCESS).map_err(std::io::Error::from);
    let identity = entered.and_then(|()| identity_of(&directory));
    let identity = identity.map_err(|error| WorkspaceError::unreachable(path, error))?;
    Ok(OpenWorkspace { path: path.to_owned(), directory, identity, hidden: hidden.clone() })
}

fn identity_of(directory: impl AsFd) -> std::io::Result<DirectoryIdentity> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)?;
    let is_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let born_at = || found.stx_btime.tv_sec.checked_mul(1_000_000_000)?.checked_add(found.stx_btime.tv_nsec.into());
    Ok(DirectoryIdentity {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born_at: is_born.then(born_at).flatten(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::symlink;

    use super::*;

    fn grounds(roots: &[PathBuf]) -> Grounds {
        Grounds { roots: roots.to_vec(), ..Grounds::default() }
    }

    #[test]
    fn a_root_that_is_the_beginning_of_another_name_is_not_a_root_of_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        for name in ["a", "ab", "a/inside"] {
            std::fs::create_dir(base.join(name)).unwrap();
        }
        let roots = grounds(&[base.join("a")]);
        assert!(resolve_workspace(&base.join("a/inside"), &roots).is_ok());
        assert!(resolve_workspace(&base.join("a"), &roots).is_ok(), "a root is inside itself");
        let refused = resolve_workspace(&base.join("ab"), &roots);
        assert!(matches!(refused, Err(WorkspaceError::OutsideRoots { .. })));
        let refused = resolve_workspace(&base.join("a/../ab"), &roots);
        assert!(matches!(refused, Err(WorkspaceError::OutsideRoots { .. })));
    }

    #[test]
    fn a_workspace_is_the_directory_that_was_meant_or_it_says_what_it_is_now() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (root, path, other) = (base.join("root"), base.join("root/a/work"), base.join("root/other"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let linked_root = base.join("linked");
        symlink(&root, &linked_root).unwrap();
        let open = || open_workspace(&path, &grounds(std::slice::from_ref(&linked_root)));
        let first = open().unwrap().identity;
        assert!(first.is(&open().unwrap().identity) && open().unwrap().path == path);

        std::fs::rename(&path, base.join("root/moved")).unwrap();
        assert!(matches!(open(), Err(WorkspaceError::Missing { source, .. }) if source.kind() == ErrorKind::NotFound));
        std::fs::create_dir(&path).unwrap();
        assert!(!first.is(&open().unwrap().identity), "another directory at the same path");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(matches!(open(), Err(WorkspaceError::NotADirectory(_))));
        std::fs::remove_file(&path).unwrap();
        for (target, is_escape) in [(&other, false), (&base, true), (&PathBuf::from("/etc"), true)] {
            symlink(target, &path).unwrap();
            let error = open().unwrap_err();
            assert_eq!(error.escape().is_some(), is_escape, "{error}");
            assert_eq!(matches!(error, WorkspaceError::Moved { .. }), !is_escape, "{error}");
            std::fs::remove_file(&path).unwrap();
        }
        // A link in the middle of the path is one too.
        std::fs::remove_dir(base.join("root/a")).unwrap();
        std::fs::create_dir(base.join("work")).unwrap();
        symlink(&base, base.join("root/a")).unwrap();
        assert!(open().unwrap_err().escape().is_some());
    }

    #[test]
    fn roots_that_were_narrowed_are_no_escape() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("work")).unwrap();
        let error = open_workspace(&base.join("work"), &grounds(&[base.join("other")])).unwrap_err();
        assert!(matches!(error, WorkspaceError::OutsideRoots { .. }) && error.escape().is_none());
    }
}
