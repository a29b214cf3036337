//! Files and directories that nobody but the daemon's user may read: 0600 in 0700, whatever the umask.
//!
//! A directory that is there already is checked, never changed: it may be somebody's `/tmp`.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The members of a group see what is there and go through; only the owner changes anything.
const GROUP_DIRECTORY_MODE: u32 = 0o750;
/// Whoever may only go through sees nothing and changes nothing: that is how other users get to their own directories.
const OTHERS: u32 = 0o066;
const STICKY: u32 = 0o1000;

/// Makes the directory, or makes sure that the one which is there is ours alone.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    let metadata = std::fs::metadata(path)?;
    let mode = metadata.permissions().mode() & 0o7777;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let problem = match (is_own, mode & OTHERS) {
        (true, 0) => return Ok(()),
        (false, _) => format!("the directory belongs to uid {}; choose one that belongs to you", metadata.uid()),
        // A directory that everybody shares is not to be closed for the others.
        (true, _) if mode & STICKY != 0 => {
            "the directory is shared with all users; choose one only for acpd".to_owned()
        }
        (true, _) => format!(
            "other users can access the directory (mode {mode:o}); run `chmod 700` on it, or choose \
            one only for acpd"
        ),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Makes the directory, or makes sure that the one which is there is ours and lets the group pass, and nobody else. One that is
/// acpd's own is made so, whatever its mode was; another one is only looked at, because it may be somebody's `/root`.
pub fn directory_of_group(path: &Path, gid: u32, is_own: bool) -> io::Result<()> {
    let is_new = !path.exists();
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    let directory = File::open(path)?;
    let metadata = directory.metadata()?;
    let mode = metadata.permissions().mode() & 0o7777;
    let problem = if metadata.uid() != rustix::process::geteuid().as_raw() {
        format!("the directory belongs to uid {}; choose one that belongs to you", metadata.uid())
    } else if mode & STICKY != 0 {
        "the directory is shared with all users; choose one only for acpd".to_owned()
    } else if is_new || is_own {
        // First closed to all, so that it is never the wrong group that may pass.
        directory.set_permissions(Permissions::from_mode(DIRECTORY_MODE))?;
        std::os::unix::fs::fchown(&directory, None, Some(gid))?;
        return directory.set_permissions(Permissions::from_mode(GROUP_DIRECTORY_MODE));
    } else if (metadata.gid(), mode) == (gid, GROUP_DIRECTORY_MODE) {
        return Ok(());
    } else {
        let shown = path.display();
        format!(
            "the group cannot enter the directory (mode {mode:o}, group {}); run `chgrp {gid} {shown} && chmod 750 \
                {shown}`, or choose one only for acpd",
            metadata.gid()
        )
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Whether a process listens at the socket. Unlike a connection that starts nobody: where systemd listens, the first connection
/// has it start the daemon. To a socket of another kind the kernel only says that this one is none of that kind.
pub fn is_listened_at(socket: &Path) -> bool {
    let other_kind = UnixDatagram::unbound().and_then(|other| other.connect(socket));
    other_kind.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::PROTOTYPE))
}

/// Opens the file for appending; makes it when it is not there, narrows it when it is.
pub fn file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Makes a file that was not there.
pub fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(path)
}

/// Gives a file another name in its file system, never over anything.
pub fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Where the file system cannot promise that for a rename, a second name does.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::link(from, to)?;
            rustix::fs::unlink(from)
        }
        renamed => renamed,
    }
}

/// Locks the file for as long as it is open, or tells that somebody else has it.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = file(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_known_without_asking() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a socket");
        assert!(!is_listened_at(&path));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_listened_at(&path));
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody has come");
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_listened_at(&path), "nobody gets there any more");
        std::fs::write(&path, "").unwrap();
        drop(listener);
        assert!(!is_listened_at(&path), "a file that is left is nobody's");
    }

    #[test]
    fn what_is_made_is_private_and_what_is_open_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let made = base.path().join("a/b");
        directory(&made).unwrap();
        assert_eq!(mode(&made), 0o700);
        file(&made.join("f")).unwrap();
        assert_eq!(mode(&made.join("f")), 0o600);

        std::fs::set_permissions(&made, Permissions::from_mode(0o755)).unwrap();
        let error = directory(&made).unwrap_err();
        assert!(error.to_string().contains("chmod 700"), "{error}");
        assert_eq!(mode(&made), 0o755, "what is refused is not changed");
    }

    #[test]
    fn a_lock_is_had_once() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lock");
        let first = lock(&path).unwrap().unwrap();
        assert!(lock(&path).unwrap().is_none());
        drop(first);
        assert!(lock(&path).unwrap().is_some());
    }
}
