//! The socket file: private from its first moment, one daemon at a time.
//!
//! A lock file is taken before a stale socket is unlinked: two daemons that race by trying to connect can both believe
//! to have won. The mode is set on the descriptor before it is bound, so that no umask and no moment leaves it open.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use crate::private;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// What the kernel takes as a socket's path.
const PATH_BYTES_MAX: usize = 107;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another acpd already serves {0:?}")]
    Taken(PathBuf),
    #[error("the socket's path {path:?} is longer than {PATH_BYTES_MAX} bytes; choose a shorter one with --socket")]
    PathTooLong { path: PathBuf },
    #[error("cannot {operation} {path:?}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The bound socket. The file and the lock go with it.
#[derive(Debug)]
pub struct ControlSocket {
    pub listener: UnixListener,
    path: PathBuf,
    /// Held as long as the socket is served.
    _lock: File,
}

impl ControlSocket {
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketError::PathTooLong { path: path.to_owned() });
        }
        let directory = path.parent().unwrap_or(Path::new("/"));
        private::directory(directory).map_err(failed("use the directory", directory))?;
        let lock = lock(path)?;
        match std::fs::remove_file(path) {
            Ok(()) => tracing::info!(socket = %path.display(), "removed the socket of a daemon that is gone"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove the stale socket", path)(error)),
        }
        let listener = listen(path).map_err(failed("listen on", path))?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, socket = %self.path.display(), "cannot remove the socket");
        }
    }
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = private::lock(&lock_path).map_err(failed("lock", &lock_path))?;
    lock.ok_or_else(|| SocketError::Taken(path.to_owned()))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_socket_is_private_and_only_one_daemon_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/acpd.sock");
        let first = ControlSocket::bind(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert!(matches!(ControlSocket::bind(&path), Err(SocketError::Taken(_))));
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "stale").unwrap();
        ControlSocket::bind(&path).unwrap();
    }
}
