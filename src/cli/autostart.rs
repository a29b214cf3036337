//! Starting a daemon when none runs, as tmux does.
//!
//! 1. Clients that find no daemon take turns (a lock beside the log), so that only the first starts one.
//! 2. The daemon is detached: it leaves the terminal's session itself (`--detached`), works in `/`, and of this
//!    client's environment it gets an allowlist and the variables that profiles name in `env_pass`. It must not be a
//!    process group leader here: a leader cannot `setsid`.
//! 3. It is ready when it has said so: one line on stdout. Its stderr goes to a log, which is quoted when it fails.
//!
//! Where the user has the unit installed (`acpd install-service --user`) none of that is done: the manager starts it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::{Config, Paths};
use crate::model::error::chain;
use crate::private;
use crate::system;

use super::connection::Daemon;
use super::error::ClientError;
use super::service::{Manager, SERVICE};
use super::text::quoted;

/// A daemon that checks a large store after an unclean end takes a while.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const READY_LINE_BYTES_MAX: u64 = 4096;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
const LOG_BYTES_MAX: u64 = 8 << 20;
const TAIL_BYTES_MAX: u64 = 4096;

/// The variables that the daemon gets from the client that starts it: where things are, how to reach the network, and acpd's own
/// settings. It gets other variables, such as keys, only if a profile names them in `env_pass`.
const ENVIRONMENT_NAMES: [&str; 19] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "TMPDIR",
    "AGENT_WORKSPACE_ROOT",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];
const ENVIRONMENT_PREFIXES: [&str; 3] = ["LC_", "XDG_", "ACPD_"];

/// Makes sure that a daemon answers at the socket. If it starts one, the answer is a note about it. `is_usual`: the socket, state
/// directory and configuration are at their default places, where the user's unit has them.
pub async fn ensure(daemon: &Daemon, paths: &Paths, is_usual: bool) -> Result<Option<String>, ClientError> {
    let Err(absent) = daemon.probe().await else {
        return Ok(None);
    };
    if !absent.is_absent() {
        return Err(absent);
    }
    let deadline = Instant::now() + READY_TIMEOUT;
    let log = prepare_log(paths)?;
    let _turn = take_turn(paths, deadline).await?;
    // Whoever had the turn before may have started one.
    if daemon.probe().await.is_ok() {
        return Ok(None);
    }
    if is_usual && has_unit(paths) && !Manager::User.is_without(SERVICE).await {
        return start_unit(daemon).await.map(Some);
    }
    let begin = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let mut child = spawn(daemon.socket(), paths, &log)?;
    let pid = child.id().unwrap_or_default();
    let readiness = wait_until_ready(&mut child, deadline).await;
    if matches!(readiness, Readiness::Ready) {
        return Ok(Some(format!("started the daemon (pid {pid}, logs in {})", paths.logs().display())));
    }
    // A daemon that someone started in the same moment holds the lock: ours has gone, and theirs will do.
    if daemon.probe().await.is_ok() {
        return Ok(None);
    }
    Err(not_started(&readiness, pid, &log, begin))
}

/// Whether the user's systemd starts the daemon. Its daemon gets nothing from the environment of a client.
pub fn has_unit(paths: &Paths) -> bool {
    Manager::User.runs() && Manager::User.installed(&paths.home).is_some()
}

/// It is ready when systemctl says so.
async fn start_unit(daemon: &Daemon) -> Result<String, ClientError> {
    Manager::User
        .tell(&["start", SERVICE])
        .await
        .map_err(|error| ClientError::NotStarted { message: chain(&error), hint: error.hint().to_owned() })?;
    daemon.probe().await?;
    Ok(format!("started the daemon (your user service {SERVICE})"))
}

enum Readiness {
    Ready,
    Exited(String),
    Late,
}

async fn wait_until_ready(child: &mut Child, deadline: Instant) -> Readiness {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout.take(READY_LINE_BYTES_MAX));
        match timeout_at(deadline, reader.read_line(&mut line)).await {
            Ok(Ok(bytes)) if bytes > 0 => return Readiness::Ready,
            // The end of its stdout without a line is the end of the daemon; its exit status follows.
            Ok(_) => {}
            Err(_) => return Readiness::Late,
        }
    }
    match timeout_at(deadline, child.wait()).await {
        Ok(Ok(status)) => Readiness::Exited(status.to_string()),
        Ok(Err(error)) => Readiness::Exited(error.to_string()),
        Err(_) => Readiness::Late,
    }
}

fn not_started(readiness: &Readiness, pid: u32, log: &Path, begin: u64) -> ClientError {
    let hint = format!("read its log {}, or run the daemon in this terminal with `acpd serve`", log.display());
    let message = match readiness {
        // It may be in the middle of something that must not be torn, such as a migration; it is left alone.
        Readiness::Ready | Readiness::Late => {
            format!("the daemon (pid {pid}) is not ready after {} seconds", READY_TIMEOUT.as_secs())
        }
        Readiness::Exited(status) => {
            format!("the daemon exited before it was ready ({status}){}", quoted(&tail(log, begin)))
        }
    };
    ClientError::NotStarted { message, hint }
}

fn spawn(socket: &Path, paths: &Paths, log: &Path) -> Result<Child, ClientError> {
    let failed = |operation: &str| {
        let operation = operation.to_owned();
        move |source| ClientError::Io { operation, source }
    };
    let program = std::env::current_exe().map_err(failed("find the path of this program"))?;
    let stderr = private::file(log).map_err(failed("open the daemon's log"))?;
    // The daemon outlives this command: a lock or a pipe of the caller's must not live on in it.
    system::keep_descriptors_from_children();
    let mut command = Command::new(program);
    command.args(["serve", "--detached"]);
    // Always by flag: how this client found them (systemd's variables, for one) is not passed on.
    command.arg("--socket").arg(socket).arg("--state-dir").arg(&paths.state_dir);
    if let Some(config) = &paths.config {
        command.arg("--config").arg(config);
    }
    command
        .env_clear()
        .envs(allowed_environment(std::env::vars_os(), &passed_names(paths)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(failed("start the daemon"))
}

/// The names in `env_pass` of every profile that the daemon will have. A daemon whose configuration has mistakes does not start.
fn passed_names(paths: &Paths) -> BTreeSet<String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let environment = std::env::vars_os().filter_map(text).collect();
    let agents = Config::load(paths.config.as_deref(), &environment).map(|config| config.agents).unwrap_or_default();
    agents.into_values().flat_map(|profile| profile.env_pass).collect()
}

fn allowed_environment(
    all: impl Iterator<Item = (OsString, OsString)>,
    passed: &BTreeSet<String>,
) -> impl Iterator<Item = (OsString, OsString)> {
    all.filter(|(name, _)| is_allowed(name) || name.to_str().is_some_and(|name| passed.contains(name)))
}

fn is_allowed(name: &OsStr) -> bool {
    ENVIRONMENT_NAMES.iter().any(|allowed| name == *allowed)
        || ENVIRONMENT_PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// Makes the directory and the file private, and puts a log that has grown too large aside.
fn prepare_log(paths: &Paths) -> Result<PathBuf, ClientError> {
    let failed = |path: &Path| {
        let operation = format!("prepare the daemon's log {}", path.display());
        move |source| ClientError::Io { operation, source }
    };
    let directory = paths.logs();
    private::directory(&paths.state_dir).map_err(failed(&paths.state_dir))?;
    private::directory(&directory).map_err(failed(&directory))?;
    let log = directory.join("autostart.log");
    if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        std::fs::rename(&log, directory.join("autostart.log.1")).map_err(failed(&log))?;
    }
    private::file(&log).map_err(failed(&log))?;
    Ok(log)
}

/// Waits for the clients that are starting a daemon before us. The lock is on a file of its own: the daemon inherits
/// its log, and with it any lock on it.
async fn take_turn(paths: &Paths, deadline: Instant) -> Result<File, ClientError> {
    let path = paths.logs().join("autostart.lock");
    let operation = || format!("lock {}", path.display());
    loop {
        match private::lock(&path).map_err(|source| ClientError::io(operation(), source))? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < deadline => sleep_until(Instant::now() + LOCK_PAUSE).await,
            None => {
                return Err(ClientError::NotStarted {
                    message: "timed out: another client is still starting the daemon".to_owned(),
                    hint: "try again, or run the daemon in this terminal with `acpd serve`".to_owned(),
                });
            }
        }
    }
}

/// The last of what the daemon wrote since `begin`.
fn tail(log: &Path, begin: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(begin.max(end.saturating_sub(TAIL_BYTES_MAX))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_stay_with_the_client_unless_a_profile_names_them() {
        let all = [
            "HOME",
            "LC_ALL",
            "XDG_RUNTIME_DIR",
            "ACPD_LIMITS_PROCESSES",
            "GEMINI_API_KEY",
            "SSH_AUTH_SOCK",
            "LD_PRELOAD",
        ];
        let given = |passed: &[&str]| -> Vec<OsString> {
            let passed = passed.iter().map(|name| (*name).to_owned()).collect();
            let all = all.map(|name| (name.into(), "x".into())).into_iter();
            allowed_environment(all, &passed).map(|(name, _)| name).collect()
        };
        assert_eq!(given(&[]), ["HOME", "LC_ALL", "XDG_RUNTIME_DIR", "ACPD_LIMITS_PROCESSES"]);
        assert_eq!(given(&["GEMINI_API_KEY", "OTHER"]).last().unwrap(), "GEMINI_API_KEY");
    }

    #[test]
    fn the_tail_is_what_this_daemon_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "an earlier daemon\nerror: the lock is held\n").unwrap();
        assert_eq!(tail(&log, "an earlier daemon\n".len() as u64), "error: the lock is held");
        assert_eq!(tail(&directory.path().join("none"), 0), "");
    }
}
