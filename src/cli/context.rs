//! What every client command has at hand: where the daemon is, how to reach it, and where output goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::config::{Overrides, Paths};
use crate::private;

use super::autostart;
use super::connection::Daemon;
use super::error::ClientError;
use super::exit::Exit;
use super::output::Output;
use super::service;

/// What the kernel takes as a socket's path.
const SOCKET_BYTES_MAX: usize = 107;

pub struct Context {
    pub output: Output,
    pub socket: PathBuf,
    paths: Paths,
    named_config: Option<PathBuf>,
    /// A system daemon is systemd's to start.
    may_start: bool,
    /// Nobody has named another place for anything.
    is_usual: bool,
}

impl Context {
    pub fn new(overrides: &Overrides, output: Output) -> Result<Self, ClientError> {
        let mut environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        service::complete(&mut environment);
        let paths = Paths::resolve(overrides, &environment)
            .map_err(|error| ClientError::local(error.to_string(), "set HOME, or give --state-dir"))?;
        let (socket, may_start) = find_socket(&paths, overrides.socket.is_some(), overrides.state_dir.is_some());
        if socket.as_os_str().len() > SOCKET_BYTES_MAX {
            let message = format!("the socket's path {} is longer than {SOCKET_BYTES_MAX} bytes", socket.display());
            return Err(ClientError::local(message, "choose a shorter path with --socket or ACPD_SOCKET"));
        }
        let named_config = overrides.config.clone();
        let Overrides { config, socket: named_socket, state_dir } = overrides;
        let is_usual = config.is_none() && named_socket.is_none() && state_dir.is_none();
        Ok(Self { output, socket, paths, named_config, may_start, is_usual })
    }

    /// The daemon, started when none runs. Sessions are kept on disk, so even a list is worth starting it.
    pub async fn daemon(&self) -> Result<Daemon, ClientError> {
        let daemon = Daemon::new(self.socket.clone());
        if self.may_start
            && let Some(note) = self.start(&daemon).await?
        {
            self.output.note(&note);
        }
        Ok(daemon)
    }

    /// Starts the daemon when none runs, and returns a note about it.
    pub async fn start(&self, daemon: &Daemon) -> Result<Option<String>, ClientError> {
        let is_usual = self.is_usual && self.socket == self.paths.socket;
        autostart::ensure(daemon, &self.paths, is_usual).await
    }

    /// Whether a daemon that this client starts gets variables of this shell.
    pub fn hands_over_variables(&self) -> bool {
        self.may_start && !(self.is_usual && autostart::has_unit(&self.paths))
    }

    /// Whether this client would start the daemon that now runs. Only systemd starts the machine's; and a daemon with another
    /// state directory has other sessions.
    pub fn may_restart(&self) -> bool {
        let socket = std::path::absolute(&self.socket).unwrap_or_else(|_| self.socket.clone());
        self.may_start && told_socket(&self.paths).is_some_and(|told| told == socket)
    }

    /// Where a daemon that is started from here keeps things.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Whether nobody has named another place for anything.
    pub fn is_usual(&self) -> bool {
        self.is_usual
    }

    /// The configuration file, when somebody has named one.
    pub fn named_config(&self) -> Option<&Path> {
        self.named_config.as_deref()
    }

    /// The daemon, if one runs.
    pub async fn running_daemon(&self) -> Result<Daemon, ClientError> {
        let daemon = Daemon::new(self.socket.clone());
        daemon.probe().await?;
        Ok(daemon)
    }

    /// The daemon for a command that starts none. Without one, the hint says what that means.
    pub async fn running_daemon_or(&self, hint: &str) -> Result<Daemon, ClientError> {
        let failed = |error: ClientError| if error.is_absent() { self.not_running(hint) } else { error };
        self.running_daemon().await.map_err(failed)
    }

    pub fn not_running(&self, hint: &str) -> ClientError {
        let message = format!("no daemon is running at {}", self.socket.display());
        ClientError::NotStarted { message, hint: hint.to_owned() }
    }

    /// Prints an answer: as it came, or as text for people.
    pub fn show<T: DeserializeOwned>(
        &self,
        answer: &RawValue,
        people: impl FnOnce(T) -> String,
    ) -> Result<Exit, ClientError> {
        if self.output.json {
            self.output.print_json(answer)?;
        } else {
            self.output.print(&people(read(answer)?))?;
        }
        Ok(Exit::Ok)
    }
}

/// The socket to talk to, and whether a daemon may be started behind it: the one that is named; else the usual one of the
/// user; else where the daemon of the state directory says that it is, for it may have been started with another
/// environment; else the machine's, unless the user has a service of their own.
fn find_socket(paths: &Paths, is_named: bool, is_state_named: bool) -> (PathBuf, bool) {
    // Without a connection: where systemd listens, that would have it start the daemon.
    let answers = private::is_listened_at;
    let usual = paths.socket.clone();
    if is_named || answers(&usual) {
        return (usual, true);
    }
    match told_socket(paths).filter(|path| answers(path)) {
        Some(told) => (told, true),
        None if !is_state_named && service::machine_serves_us(&paths.home) => {
            (PathBuf::from(service::SYSTEM_SOCKET), false)
        }
        None => (usual, true),
    }
}

/// Where the daemon of this state directory says that it listens.
fn told_socket(paths: &Paths) -> Option<PathBuf> {
    std::fs::read_to_string(paths.lock()).map(PathBuf::from).ok()
}

/// An answer, understood.
pub fn read<T: DeserializeOwned>(answer: &RawValue) -> Result<T, ClientError> {
    serde_json::from_str(answer.get())
        .map_err(|source| ClientError::Answer { operation: "the request".to_owned(), source })
}
