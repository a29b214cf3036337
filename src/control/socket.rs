//! The socket file: private from its first moment, one daemon at a time.
//!
//! A lock file is taken before a stale socket is unlinked: two daemons that race by trying to connect can both believe
//! to have won. The mode is set on the descriptor before it is bound, so that no umask and no moment leaves it open.
//!
//! A daemon of root with a group lets that group in (0660 in 0750). The file is closed to all but root until it is the
//! group's, and whoever has it then still has to be a member in the kernel's eyes ([`super::peer`]).

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use crate::config::ControlGroup;
use crate::private;

/// Connections that wait to be accepted. Accepting is quick, and whoever finds the line full cannot even be told so.
const BACKLOG: i32 = 1024;
/// What the kernel takes as a socket's path.
const PATH_BYTES_MAX: usize = 107;
/// What is to be done about a socket unit that does not fit the configuration.
const CLOSED_TO_GROUP: &str = "members of control.group cannot reach the socket; set SocketGroup= and SocketMode=0660 \
    in the socket unit, and let the group enter its directory";
const NO_GROUP: &str = "the socket is open to a group, but acpd refuses its members because control.group is not set";
/// Whoever is to connect must be able to write.
const GROUP_SOCKET_MODE: u32 = 0o660;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another acpd already serves {0:?}")]
    Taken(PathBuf),
    #[error(
        "another program listens on {0:?}; where the service is installed, this is systemd: start acpd with \
            `systemctl start acpd` (or with --user), or choose another place with --state-dir or --socket"
    )]
    Listened(PathBuf),
    #[error("the socket path {path:?} is longer than {PATH_BYTES_MAX} bytes; choose a shorter one with --socket")]
    PathTooLong { path: PathBuf },
    #[error(
        "the socket {socket:?} is inside the state directory, which a group cannot enter; choose another path, such \
            as --socket /run/acpd/acpd.sock, or remove control.group"
    )]
    GroupInState { socket: PathBuf },
    #[error("cannot {operation} {path:?}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The socket. The file goes first, so that nobody connects to what does not listen any more.
#[derive(Debug)]
pub struct ControlSocket {
    /// None when somebody else has made it, and goes on listening.
    pub file: Option<SocketFile>,
    pub listener: UnixListener,
    /// Held as long as anybody is served.
    pub lock: File,
}

/// The socket's file, until it is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

/// Who may reach the socket besides the daemon's own user.
#[derive(Clone, Copy, Debug)]
pub struct Door<'a> {
    pub group: Option<&'a ControlGroup>,
    /// Whether the socket's directory is acpd's own: nobody has named another one.
    pub is_own_directory: bool,
    pub state_dir: &'a Path,
}

impl Door<'_> {
    /// Makes the directory, or makes sure that the one which is there lets in whom it should.
    fn prepare(&self, socket: &Path) -> Result<(), SocketError> {
        let directory = socket.parent().unwrap_or(Path::new("/"));
        let failed = failed("use the directory", directory);
        let Some(group) = self.group else {
            return private::directory(directory).map_err(failed);
        };
        if is_below(directory, self.state_dir) {
            return Err(SocketError::GroupInState { socket: socket.to_owned() });
        }
        private::directory_of_group(directory, group.gid, self.is_own_directory).map_err(failed)?;
        if let Some(closed) = directory.ancestors().skip(1).find(|ancestor| !lets_pass(ancestor, group.gid)) {
            let (group, closed, socket) = (group.name.as_str(), closed.display(), socket.display());
            tracing::warn!(group, %closed, %socket, "members of control.group cannot reach the socket: a directory on \
                its path is closed to the group");
        }
        Ok(())
    }
}

/// By their real paths, as far as they are there.
fn is_below(directory: &Path, state_dir: &Path) -> bool {
    let real = |path: &Path| {
        path.ancestors().find_map(|ancestor| {
            let rest = path.strip_prefix(ancestor).ok()?;
            Some(ancestor.canonicalize().ok()?.join(rest))
        })
    };
    real(directory).zip(real(state_dir)).is_some_and(|(directory, state_dir)| directory.starts_with(state_dir))
}

/// Whether members of the group may go through a directory.
fn lets_pass(directory: &Path, gid: u32) -> bool {
    let Ok(metadata) = directory.metadata() else { return false };
    let needed = if metadata.gid() == gid { 0o010 } else { 0o001 };
    metadata.mode() & needed != 0
}

impl ControlSocket {
    pub fn bind(path: &Path, door: Door<'_>) -> Result<Self, SocketError> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketError::PathTooLong { path: path.to_owned() });
        }
        door.prepare(path)?;
        let lock = lock(path)?;
        if private::is_listened_at(path) {
            return Err(SocketError::Listened(path.to_owned()));
        }
        match std::fs::remove_file(path) {
            Ok(()) => tracing::info!(socket = %path.display(), "removed the stale socket of a previous daemon"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove the stale socket", path)(error)),
        }
        let listener = listen(path, door.group).map_err(failed("listen on", path))?;
        Ok(Self { file: Some(SocketFile(path.to_owned())), listener, lock })
    }

    /// Takes over a socket that a service manager listens at. Who may reach it is the manager's to say, and in the end the
    /// kernel's; only when nobody of the group could, a word is due.
    pub fn adopt(listener: std::os::unix::net::UnixListener, path: &Path, door: Door<'_>) -> Result<Self, SocketError> {
        let lock = lock(path)?;
        let (socket, file) = (path.display(), path.metadata().map_err(failed("inspect", path))?);
        let is_open = file.mode() & 0o020 != 0;
        match door.group {
            Some(group) => {
                let may_pass = path.ancestors().skip(1).all(|ancestor| lets_pass(ancestor, group.gid));
                if !(is_open && file.gid() == group.gid && may_pass) {
                    let group = group.name.as_str();
                    tracing::warn!(group, %socket, "{CLOSED_TO_GROUP}");
                }
            }
            None if is_open => tracing::warn!(%socket, gid = file.gid(), "{NO_GROUP}"),
            None => {}
        }
        let listener = UnixListener::from_std(listener).map_err(failed("listen on", path))?;
        Ok(Self { file: None, listener, lock })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, socket = %self.0.display(), "cannot remove the socket");
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

fn listen(path: &Path, group: Option<&ControlGroup>) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    if let Some(group) = group {
        // Nobody but root writes to the directory, so it is still the file that was made. Before `listen` nobody gets in.
        std::os::unix::fs::lchown(path, None, Some(group.gid))?;
        std::fs::set_permissions(path, Permissions::from_mode(GROUP_SOCKET_MODE))?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn the_socket_is_private_and_only_one_daemon_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/acpd.sock");
        let state_dir = directory.path().join("state");
        let bind = || ControlSocket::bind(&path, Door { group: None, is_own_directory: true, state_dir: &state_dir });
        let first = bind().unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert!(matches!(bind(), Err(SocketError::Taken(_))));
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "stale").unwrap();
        bind().unwrap();
    }

    #[tokio::test]
    async fn a_group_gets_to_the_socket_and_to_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let group = ControlGroup { name: "some".to_owned(), gid: 4321 };
        let directory = tempfile::tempdir().unwrap();
        let (path, state_dir) = (directory.path().join("run/acpd.sock"), directory.path().join("state"));
        let bind = |path: &Path, is_own_directory| {
            ControlSocket::bind(path, Door { group: Some(&group), is_own_directory, state_dir: &state_dir })
        };
        let owners = |path: &Path| path.metadata().map(|metadata| (metadata.uid(), metadata.gid())).unwrap();
        let first = bind(&path, false).unwrap();
        assert_eq!((mode(&path), owners(&path)), (0o660, (0, 4321)));
        assert_eq!((mode(path.parent().unwrap()), owners(path.parent().unwrap())), (0o750, (0, 4321)));
        let lock = path.with_extension("sock.lock");
        assert_eq!((mode(&lock), owners(&lock)), (0o600, (0, 0)));
        drop(first);
        drop(bind(&path, false).unwrap());

        // One that somebody has made and named is not changed; one of acpd's own is.
        std::fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        let refused = bind(&path, false).unwrap_err();
        assert!(crate::model::error::chain(&refused).contains("chmod 750"), "{refused:?}");
        assert_eq!(mode(path.parent().unwrap()), 0o755);
        drop(bind(&path, true).unwrap());
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        let inside = bind(&state_dir.join("run/acpd.sock"), true);
        assert!(matches!(inside, Err(SocketError::GroupInState { .. })));
        assert!(!state_dir.exists());
    }
}
