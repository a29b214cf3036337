//! What can go wrong for a client, and what a person can do about it.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::StatusCode;

use crate::control::wire::ErrorBody;

use super::service::SYSTEM_SOCKET;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The daemon answered, and the answer is no.
    #[error("{}", body.message)]
    Api {
        status: StatusCode,
        body: Box<ErrorBody>,
        /// When it is worth asking again, where the daemon tells.
        retry_after: Option<Duration>,
    },
    #[error("cannot reach the daemon at {}", socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The connection was there and then was not.
    #[error("lost the connection to the daemon during {operation}")]
    Broken {
        operation: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("the daemon did not answer {operation} within {seconds} seconds")]
    TooSlow { operation: String, seconds: u64 },
    /// It went away while a session was followed, and did not come back in time.
    #[error("lost the connection to the daemon")]
    Lost {
        hint: String,
        #[source]
        source: Box<ClientError>,
    },
    /// It was asked how it is, and does not even tell that.
    #[error("{message}")]
    Silent { message: String, hint: String },
    #[error("cannot parse the daemon's answer to {operation}")]
    Answer {
        operation: String,
        #[source]
        source: serde_json::Error,
    },
    /// No daemon runs, and the one that was started did not get ready.
    #[error("{message}")]
    NotStarted { message: String, hint: String },
    /// Something is wrong on this side, before or beside the daemon.
    #[error("{message}")]
    Local { message: String, hint: String },
    #[error("cannot {operation}")]
    Io {
        operation: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot write to stdout")]
    Output(#[source] io::Error),
    /// Ctrl-C, before there was a turn to cancel.
    #[error("interrupted")]
    Left,
}

impl ClientError {
    pub fn local(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Local { message: message.into(), hint: hint.into() }
    }

    pub fn io(operation: impl Into<String>, source: io::Error) -> Self {
        Self::Io { operation: operation.into(), source }
    }

    /// Whether it is the named error of the interface.
    pub fn is_api(&self, name: &str) -> bool {
        matches!(self, Self::Api { body, .. } if body.error == name)
    }

    /// Whether no daemon listens at the socket, as opposed to one that cannot be talked to.
    pub fn is_absent(&self) -> bool {
        // The kernel resets a connection that the daemon had not accepted when it ended.
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
        matches!(self, Self::Unreachable { source, .. }
            if matches!(source.kind(), NotFound | ConnectionRefused | ConnectionReset))
    }

    /// Whether the daemon has no room now, and may have soon.
    pub fn is_overload(&self) -> bool {
        let statuses = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        matches!(self, Self::Api { status, .. } if statuses.contains(status))
    }

    /// After which time the daemon wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a person can do about it; empty when there is nothing to say.
    pub fn hint(&self) -> &str {
        match self {
            Self::Api { body, .. } => &body.hint,
            Self::Unreachable { socket, .. } if socket == Path::new(SYSTEM_SOCKET) => {
                "this is the machine's daemon: check it with `systemctl status acpd`; only members of its group can connect"
            }
            Self::Unreachable { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "the socket belongs to another user; name your own with --socket or ACPD_SOCKET"
                }
                _ => "start the daemon with `acpd serve`, or name its socket with --socket or ACPD_SOCKET",
            },
            Self::Broken { .. } | Self::TooSlow { .. } => "check the daemon with `acpd status`, and read `acpd logs`",
            Self::Answer { .. } => {
                "the client and the daemon may have different versions; compare `acpd --version` and `acpd status`"
            }
            Self::Silent { hint, .. }
            | Self::NotStarted { hint, .. }
            | Self::Local { hint, .. }
            | Self::Lost { hint, .. } => hint,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "nothing exists at that path; check its spelling",
                io::ErrorKind::NotADirectory => "that path is not a directory; name a directory",
                io::ErrorKind::PermissionDenied => {
                    "you have no permission for that path; choose another, or ask its owner"
                }
                _ => "",
            },
            Self::Output(_) | Self::Left => "",
        }
    }
}
