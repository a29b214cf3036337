//! Socket activation: systemd listens before there is a daemon, starts one for the first client, and passes the socket on.
//!
//! Where the socket is and who may connect is then the unit's to say. Its file is left alone, also at the end: systemd goes on
//! listening, and whoever connects meanwhile waits for the next daemon.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::config::{Overrides, Paths};
use crate::system;

/// `FileDescriptorName=` in acpd.socket: what else a unit may pass is not meant for us.
const NAME: &str = "control";

#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    #[error("systemd passed {0} sockets, but acpd takes one; keep only one ListenStream= in the socket unit")]
    Count(usize),
    #[error(
        "systemd passed a socket named {0:?}, but acpd expects {NAME:?}; set FileDescriptorName={NAME} in the socket \
            unit"
    )]
    Name(String),
    #[error(
        "systemd did not pass a Unix stream socket that listens at a path; the socket unit needs one \
            ListenStream=/PATH and Accept=no"
    )]
    Kind,
    #[error(
        "systemd passed the socket {passed:?}, but {named:?} was requested; remove --socket and ACPD_SOCKET from the \
            unit"
    )]
    Elsewhere { passed: PathBuf, named: PathBuf },
    #[error("cannot use the socket that systemd passed")]
    Io(#[from] io::Error),
}

/// The socket that systemd listens at for us.
#[derive(Debug)]
pub struct Activated {
    pub listener: UnixListener,
    path: PathBuf,
}

impl Activated {
    /// Takes what systemd passed, if it passed anything. To be called before anything is opened.
    pub fn take() -> Result<Option<Self>, ActivationError> {
        let mut passed: Vec<_> = sd_notify::listen_fds_with_names()?.collect();
        let (descriptor, name) = match passed.len() {
            0 => return Ok(None),
            1 => passed.swap_remove(0),
            count => return Err(ActivationError::Count(count)),
        };
        if name != NAME {
            return Err(ActivationError::Name(name));
        }
        let socket = system::take_inherited(descriptor).ok_or(ActivationError::Kind)?;
        let is_stream = sockopt::socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
            && sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM)
            && sockopt::socket_acceptconn(&socket).unwrap_or(false);
        if !is_stream {
            return Err(ActivationError::Kind);
        }
        let listener = UnixListener::from(socket);
        let path = listener.local_addr()?.as_pathname().map(Path::to_owned).ok_or(ActivationError::Kind)?;
        listener.set_nonblocking(true)?;
        Ok(Some(Self { listener, path }))
    }

    /// The socket is where it is, whatever its usual place would be. Whoever named another one is mistaken.
    pub fn settle(&self, paths: &mut Paths, overrides: &Overrides) -> Result<(), ActivationError> {
        if let Some(named) = overrides.socket.as_ref().filter(|named| **named != self.path) {
            return Err(ActivationError::Elsewhere { passed: self.path.clone(), named: named.clone() });
        }
        paths.has_own_socket_dir &= paths.socket == self.path;
        paths.socket.clone_from(&self.path);
        Ok(())
    }
}
