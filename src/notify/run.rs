//! One command of a notification: found, started as the session's owner, and seen to its end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio_util::sync::CancellationToken;

use super::facts::one_line;
use super::queue::Job;
use crate::agent::{AccountError, Command, DEFAULT_PATH, Errand, Persona, SpawnError, TerminalBounds, find_program};
use crate::metrics::NotificationOutcome;
use crate::model::error::chain;
use crate::session::Shared;

/// What is kept of what a command writes, and what of that is logged when it fails.
const OUTPUT_BYTES_MAX: usize = 4 << 10;
const LOGGED_CHARS_MAX: usize = 500;

/// By what a program finds its user's desktop. Only the daemon's own user has the daemon's.
const OF_THE_DESKTOP: [&str; 5] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"];

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{command:?} was not found on the daemon's PATH, or is not executable")]
    NotFound { command: String },
    #[error("cannot look up the session's owner")]
    Owner(#[from] AccountError),
    #[error("cannot prepare the user that the command runs as")]
    Persona(#[source] std::io::Error),
    #[error(transparent)]
    Start(#[from] SpawnError),
}

impl Failure {
    const fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "install it, or set its absolute path as the notification's command",
            Self::Owner(error) => error.hint(),
            Self::Persona(_) | Self::Start(_) => "check whether the machine has processes and memory left",
        }
    }
}

/// Runs one command to its end, or to the end of its time. Whatever goes wrong is logged, and nobody else's affair.
pub async fn run(shared: Arc<Shared>, job: Job, timeout: Duration, stop: CancellationToken) -> NotificationOutcome {
    let (name, session) = (job.notification.name.clone(), job.facts.session);
    let input = job.facts.json(&job.notification);
    // The user database, and where the owner's files are, may take their time.
    let host = Arc::clone(&shared);
    let prepared = tokio::task::spawn_blocking(move || prepare(&host, &job)).await;
    let failed = |error: &Failure| {
        let (problem, hint) = (chain(error), error.hint());
        tracing::warn!(notification = name, %session, hint, "cannot run a notification's command: {problem}");
        NotificationOutcome::Failed
    };
    let command = match prepared {
        Ok(Ok(command)) => command,
        Ok(Err(error)) => return failed(&error),
        Err(error) => return failed(&Failure::Persona(error.into())),
    };
    if stop.is_cancelled() {
        return NotificationOutcome::Dropped;
    }
    let bounds = TerminalBounds { output_bytes_max: OUTPUT_BYTES_MAX, umask: shared.umask };
    let mut errand = match Errand::start(&command, input.as_bytes(), bounds, &shared.host) {
        Ok(errand) => errand,
        Err(error) => return failed(&error.into()),
    };
    let ended = tokio::time::timeout(timeout, errand.ended()).await;
    let (outcome, how) = match ended {
        Ok(end) if end.code == Some(0) => (NotificationOutcome::Succeeded, String::new()),
        Ok(end) => (NotificationOutcome::Failed, how_it_ended(end.failure, end.code, end.signal)),
        Err(_) => {
            errand.kill();
            errand.ended().await;
            (NotificationOutcome::TimedOut, format!("it took longer than {timeout:?} and was killed"))
        }
    };
    if outcome != NotificationOutcome::Succeeded {
        let output = end_of(&errand.output());
        tracing::warn!(notification = name, %session, output, "a notification's command failed: {how}");
    }
    outcome
}

fn how_it_ended(failure: Option<String>, code: Option<i32>, signal: Option<i32>) -> String {
    match (failure, code, signal) {
        (Some(failure), _, _) => failure,
        (None, Some(code), _) => format!("it exited with code {code}"),
        (None, None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None, None) => "it ended without a status".to_owned(),
    }
}

/// The last of what was written, on one line.
fn end_of(output: &str) -> String {
    let start = output.char_indices().rev().nth(LOGGED_CHARS_MAX - 1).map_or(0, |(index, _)| index);
    one_line(&output[start..], LOGGED_CHARS_MAX)
}

/// The command line, as whom, where and in which environment. Blocks.
fn prepare(shared: &Shared, job: &Job) -> Result<Command, Failure> {
    let Job { notification, facts } = job;
    let persona = Persona::of(facts.owner)?;
    let inherited = match persona.account() {
        Some(account) => Cow::Owned(account.environment(&shared.environment)),
        None => Cow::Borrowed(&shared.environment),
    };
    let path = inherited.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    // As the owner, who may run more than others, or less.
    let found = persona.run(|| find_program(&notification.command, path)).map_err(Failure::Persona)?;
    let program = found.ok_or_else(|| Failure::NotFound { command: notification.command.clone() })?;
    let home = persona.home(&shared.home).unwrap_or(Path::new("/"));
    let (place, directory) = persona.run(|| open_home(home)).flatten().map_err(Failure::Persona)?;
    let args = facts.arguments(notification);
    let mut command = Command::for_terminal(facts.session, program, args, &place, directory, &inherited);
    command.environment.extend(desktop(&persona, &shared.environment));
    command.environment.extend(facts.variables(notification));
    // A command that calls acpd finds this daemon.
    command.environment.insert("ACPD_SOCKET".to_owned(), shared.places.socket.to_string_lossy().into_owned());
    Ok(match persona.account() {
        Some(account) => command.owned_by(account),
        None => command,
    })
}

/// The user's home, or the root where that is not there.
fn open_home(home: &Path) -> std::io::Result<(PathBuf, OwnedFd)> {
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match open(home) {
        Ok(directory) => Ok((home.to_owned(), directory)),
        Err(_) => Ok((PathBuf::from("/"), open(Path::new("/"))?)),
    }
}

/// Where the user's desktop is: what the daemon knows of its own user's, and where systemd has it.
fn desktop(persona: &Persona, daemons: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let account = persona.account();
    let of_daemon = daemons.iter().filter(|(name, _)| account.is_none() && OF_THE_DESKTOP.contains(&name.as_str()));
    let mut found: BTreeMap<String, String> = of_daemon.map(|(name, value)| (name.clone(), value.clone())).collect();
    let uid = account.map_or_else(|| rustix::process::geteuid().as_raw(), |account| account.uid);
    let runtime = format!("/run/user/{uid}");
    if !found.contains_key("XDG_RUNTIME_DIR") && Path::new(&runtime).is_dir() {
        found.insert("XDG_RUNTIME_DIR".to_owned(), runtime);
    }
    let bus = found.get("XDG_RUNTIME_DIR").map(|runtime| format!("{runtime}/bus"));
    if let Some(bus) = bus.filter(|bus| Path::new(bus).exists()) {
        found.entry("DBUS_SESSION_BUS_ADDRESS".to_owned()).or_insert(format!("unix:path={bus}"));
    }
    found
}
