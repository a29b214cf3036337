//! A workspace's directory, held open: whatever an agent names is found beneath it, or not at all.
//!
//! The kernel does the looking (`openat2`), in one step that nobody can come between: a link that is swapped at any moment
//! leads inside, or nowhere. A path is therefore never checked first and opened later. Where a decision lies between,
//! what was decided on is the *real* path, without a link in it, and it is opened as one that must have none.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::workspace::OpenWorkspace;

/// The kernel says "try again" while somebody else renames a directory on the way.
const ATTEMPTS_MAX: usize = 16;

/// Why a file is not read, not written or not worked in.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("the path leads out of the workspace")]
    Outside,
    #[error("the path is hidden from agents (sandbox.hide, or acpd's own files)")]
    Hidden,
    #[error("the path leads through a special link of the kernel, as in /proc")]
    MagicLink,
    #[error("the path leads through too many links")]
    LinkLoop,
    #[error("the path is a link whose target does not exist")]
    DanglingLink,
    #[error("there is no such file in the workspace")]
    NotFound,
    #[error("a part of the path is not a directory")]
    NotADirectory,
    #[error("the path names {0}, not a regular file")]
    NotRegular(&'static str),
    #[error("the file has {links} hard links, and a write might change a file outside the workspace")]
    HardLink { links: u64 },
    #[error("the file is larger than {max} bytes (limits.file_max)")]
    TooLarge { max: usize },
    #[error("the file is not text: it has a NUL byte, or is not UTF-8")]
    Binary,
    #[error("the session's owner lacks the permission for that")]
    Denied,
    #[error("the path is not valid")]
    BadPath,
    #[error("the file changed during the check; try again")]
    Changed,
    #[error("system error: {0}")]
    System(#[source] std::io::Error),
}

impl FileError {
    /// Whether it reached for what is not in the workspace.
    pub const fn is_escape(&self) -> bool {
        matches!(self, Self::Outside | Self::Hidden | Self::MagicLink | Self::HardLink { .. })
    }

    pub(super) fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Self::Outside,
            Errno::LOOP => Self::LinkLoop,
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::NAMETOOLONG | Errno::INVAL => Self::BadPath,
            Errno::AGAIN => Self::Changed,
            other => Self::System(other.into()),
        }
    }
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::from_errno(errno)
    }
}

#[derive(Debug)]
pub struct Beneath {
    directory: OwnedFd,
    /// The real path that the workspace was registered by.
    path: PathBuf,
    /// Real paths in it that agents may not reach through the daemon.
    hidden: Vec<PathBuf>,
}

impl Beneath {
    /// Holds the workspace that was opened and checked.
    pub fn of(workspace: &OpenWorkspace) -> std::io::Result<Self> {
        let OpenWorkspace { directory, path, hidden, .. } = workspace;
        Ok(Self { directory: directory.try_clone()?, path: path.clone(), hidden: hidden.clone() })
    }

    /// Opens a workspace by its real path, which has no link in it.
    #[cfg(test)]
    pub fn open(workspace: &Path) -> Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let directory = again(|| rustix::fs::openat2(rustix::fs::CWD, workspace, flags, Mode::empty(), resolve))?;
        Ok(Self { directory, path: workspace.to_owned(), hidden: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory in the workspace, held open, and its real path from there. Without a path, the workspace itself.
    pub fn directory(&self, path: Option<&Path>) -> Result<(OwnedFd, PathBuf), FileError> {
        let relative = path.map_or(Ok(Path::new("")), |path| self.relative(path))?;
        let opened = self.open_following(relative, OFlags::PATH | OFlags::DIRECTORY)?;
        let real = self.real(opened.as_fd())?;
        Ok((opened, real))
    }

    /// What of an absolute path is below the workspace, by its text alone: `..` and links are the kernel's business.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> Result<&'a Path, FileError> {
        match path.strip_prefix(&self.path) {
            Ok(relative) => Ok(relative),
            Err(_) if path.is_absolute() => Err(FileError::Outside),
            Err(_) => Ok(path),
        }
    }

    /// Opens what a path leads to, by links too, as long as they stay beneath.
    pub(super) fn open_following(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, FileError> {
        match self.open_at(relative, flags, ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::LOOP) => Err(self.kind_of_loop(relative)),
            other => Ok(other?),
        }
    }

    /// Opens a real path. A link in it was put there after it was found.
    pub(super) fn open_real(&self, real: &Path, flags: OFlags) -> Result<OwnedFd, FileError> {
        match self.open_at(real, flags, ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP | Errno::XDEV) => Err(FileError::Changed),
            other => Ok(other?),
        }
    }

    fn open_at(&self, relative: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        // Not blocking: what is there may be a pipe that nobody writes to. No terminal becomes the daemon's own.
        let flags = if flags.contains(OFlags::PATH) { flags } else { flags | OFlags::NONBLOCK | OFlags::NOCTTY };
        let (flags, resolve) = (flags | OFlags::CLOEXEC, resolve | ResolveFlags::BENEATH);
        again(|| rustix::fs::openat2(&self.directory, relative, flags, Mode::empty(), resolve))
    }

    /// The kernel has one word for both. Where its own links are not forbidden, it says that they lead out.
    fn kind_of_loop(&self, relative: &Path) -> FileError {
        match self.open_at(relative, OFlags::PATH, ResolveFlags::empty()) {
            Err(Errno::LOOP) => FileError::LinkLoop,
            Ok(_) | Err(_) => FileError::MagicLink,
        }
    }

    /// The path, from the workspace and without links, of what is open. Hidden files are refused.
    pub(super) fn real(&self, opened: BorrowedFd<'_>) -> Result<PathBuf, FileError> {
        let (path, workspace) = (name_of(opened)?, name_of(self.directory.as_fd())?);
        // The name of what is deleted is not its own any more.
        if rustix::fs::fstat(opened)?.st_nlink == 0 {
            return Err(FileError::Changed);
        }
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(FileError::Hidden);
        }
        path.strip_prefix(&workspace).map(Path::to_owned).map_err(|_| FileError::Changed)
    }

    /// Where something would be that is not there yet: the real path of as much of it as exists, and the rest as it is.
    pub(super) fn place(&self, relative: &Path) -> Result<PathBuf, FileError> {
        let is_plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(is_plain) {
            return Err(FileError::NotFound);
        }
        for ancestor in relative.ancestors().skip(1) {
            let opened = match self.open_following(ancestor, OFlags::PATH | OFlags::DIRECTORY) {
                Err(FileError::NotFound) => continue,
                opened => opened?,
            };
            let rest = relative.strip_prefix(ancestor).map_err(|_| FileError::BadPath)?;
            let first = rest.components().next().ok_or(FileError::BadPath)?;
            return match rustix::fs::statat(&opened, first.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(self.real(opened.as_fd())?.join(rest)),
                Err(errno) => Err(errno.into()),
                Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => Err(FileError::DanglingLink),
                Ok(_) => Err(FileError::Changed),
            };
        }
        Err(FileError::BadPath)
    }

    /// Opens a directory by its real path, and makes what is missing of it.
    pub(super) fn make_directory(&self, real: &Path, umask: Mode) -> Result<OwnedFd, FileError> {
        match self.open_real(real, OFlags::PATH | OFlags::DIRECTORY) {
            Err(FileError::NotFound) => {}
            opened => return opened,
        }
        let mode = Mode::from_raw_mode(0o777).difference(umask);
        let mut directory = self.open_real(Path::new(""), OFlags::PATH | OFlags::DIRECTORY)?;
        for name in real.components() {
            let is_new = match rustix::fs::mkdirat(&directory, name.as_os_str(), mode) {
                Err(Errno::EXIST) => false,
                made => made.map(|()| true)?,
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&directory, name.as_os_str(), flags, Mode::empty());
            directory = opened.map_err(|_| FileError::Changed)?;
            if is_new {
                // The daemon's own umask, which is a stricter one, was applied too. What hands the group on stays.
                let inherited = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode) & Mode::SGID;
                rustix::fs::fchmod(&directory, mode | inherited)?;
            }
        }
        Ok(directory)
    }
}

/// Tries while the kernel says so, but not for ever: whoever renames without end must not hold a thread.
pub(super) fn again(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let mut opened = open();
    for _ in 1..ATTEMPTS_MAX {
        match opened {
            Err(Errno::AGAIN | Errno::INTR) => opened = open(),
            other => return other,
        }
    }
    opened
}

fn name_of(opened: BorrowedFd<'_>) -> Result<PathBuf, FileError> {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", opened.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(name.as_bytes())))
}
