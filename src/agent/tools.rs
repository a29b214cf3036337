//! The private socket by which the agent of a session reaches acpd's own tools: `STATE/run/SESSION/tools.sock`.
//!
//! 1. It is there for as long as a process of the session: it is bound before that starts, and goes with its [`ToolsSocket`].
//! 2. It is in a directory of the daemon's, where a confined agent can put nothing in its place. One that is not confined can,
//!    and then talks to itself.
//! 3. Only the session's user can open it. Whoever connects is looked at besides, because an agent of another session may be
//!    the same user's.
//! 4. It is bound through the directory's descriptor, and connected to in the same way: the kernel takes 107 bytes for the path
//!    of a socket, and a state directory may be as long.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchmod, openat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::confine::SessionDirectories;
use super::shim::Owner;
use crate::model::SessionId;

/// What the socket is called, in the session's own directory.
pub const NAME: &str = "tools.sock";
/// Connections that wait to be accepted. There is one agent.
const BACKLOG: i32 = 16;
/// Sockets that wait to be served. Each is of a process, and they are taken as they come.
pub const OPENED_MAX: usize = 1024;

/// A socket that is listened at, for whoever serves it.
#[derive(Debug)]
pub struct OpenedTools {
    pub listener: UnixListener,
    pub session: SessionId,
    /// Whose session it is. Nothing: the daemon's own user's.
    pub owner: Option<u32>,
    /// As whom the agent runs.
    pub user: u32,
    /// Cancelled when the process is gone.
    pub closed: CancellationToken,
}

/// The socket's file, for whoever has the process. When it is dropped, the file goes and nobody is served any more.
#[derive(Debug)]
pub struct ToolsSocket {
    path: PathBuf,
    _closing: DropGuard,
}

impl ToolsSocket {
    /// Listens in the directory of a session, and hands that on to `served`.
    pub fn open(
        own: &SessionDirectories,
        session: SessionId,
        owner: Option<&Owner>,
        served: &mpsc::Sender<OpenedTools>,
    ) -> io::Result<Self> {
        let path = own.tools_socket();
        let (directory, short) = parts(&path)?;
        remove(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(&short)?)?;
        // From here on the file goes with the guard, whatever fails.
        let closed = CancellationToken::new();
        let guard = Self { path, _closing: closed.clone().drop_guard() };
        if let Some(owner) = owner {
            let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
            chownat(&directory, NAME, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        listen(&socket, BACKLOG)?;
        let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))?;
        let user = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |owner| owner.user);
        let opened = OpenedTools { listener, session, owner: owner.map(|owner| owner.user), user, closed };
        served.try_send(opened).map_err(|_| io::Error::other("no task serves the socket"))?;
        Ok(guard)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ToolsSocket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, socket = %self.path.display(), "cannot remove the socket of a session's tools");
        }
    }
}

/// The directory of a socket, and a path of the socket through it that is short enough for the kernel.
pub fn parts(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let (directory, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, short))
}

/// It may be gone with its directory already.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::agent::confine::Directories;

    #[tokio::test]
    async fn the_socket_is_private_replaces_a_leftover_and_goes_with_its_guard_however_long_its_path() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("x".repeat(120));
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
        let (session, directories) = (SessionId::new(), Directories::new(state, TaskTracker::new()));
        let own = directories.make(session, None).unwrap();
        let (served, mut opened) = mpsc::channel(1);
        std::fs::write(own.tools_socket(), "of a dead daemon").unwrap();
        let socket = ToolsSocket::open(&own, session, None, &served).unwrap();
        assert_eq!(socket.path().metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        let (_directory, short) = parts(socket.path()).unwrap();
        UnixStream::connect(&short).unwrap();
        let served_one = opened.recv().await.unwrap();
        assert_eq!((served_one.session, served_one.owner), (session, None));

        drop(socket);
        served_one.closed.cancelled().await;
        assert!(!own.tools_socket().exists());
        let _first = ToolsSocket::open(&own, session, None, &served).unwrap();
        let refused = ToolsSocket::open(&own, session, None, &served);
        assert!(refused.is_err() && !own.tools_socket().exists(), "what nobody serves is not there");
    }
}
