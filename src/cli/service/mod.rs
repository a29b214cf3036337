//! acpd as a service of systemd's: which manager's, which files make it one ([`units`]), and whether they are there.

pub mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Access, access};
use tokio::process::Command;
use tokio::time::timeout;

use super::error::ClientError;
use super::text::quoted;

/// Where the daemon that systemd runs for the whole machine listens.
pub const SYSTEM_SOCKET: &str = "/run/acpd/acpd.sock";
pub const SERVICE: &str = "acpd.service";
pub const SOCKET: &str = "acpd.socket";
/// Is there where systemd runs the machine.
const RUNNING: &str = "/run/systemd/system";
/// Where units may be, beside where `acpd install-service` puts them.
const SYSTEM_PLACES: [&str; 3] = ["/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const USER_PLACES: [&str; 3] = ["/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user"];
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Where a user's manager listens, below the user's runtime directory.
const USER_MANAGER: &str = "systemd/private";
/// What systemd answers of itself, it answers at once.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(3);
/// A service is started when it is ready, and stopped when its agents are.
const DEED_TIMEOUT: Duration = Duration::from_mins(5);

/// Whether the machine's daemon is there for us: its socket, or at least its unit and a directory that we may pass, which is the
/// group's. One that has failed, or was stopped, is not to be replaced by another that knows nothing of our sessions. Whoever
/// has a service of their own means that one.
pub fn machine_serves_us(home: &Path) -> bool {
    let socket = Path::new(SYSTEM_SOCKET);
    let may_pass = || socket.parent().is_some_and(|directory| access(directory, Access::EXEC_OK).is_ok());
    let is_there = socket.exists() || (Manager::System.installed(home).is_some() && may_pass());
    // A package may bring a unit for everybody, which is nobody's own.
    let has_own = || units::directories(Manager::User, home).iter().any(|place| place.join(SERVICE).is_file());
    is_there && !has_own()
}

/// Whether only systemd listens at the socket: whoever connects has the daemon started.
pub async fn is_idle(socket: &Path) -> bool {
    let is_users = runtime_dir().is_some_and(|directory| socket == directory.join("acpd/acpd.sock"));
    let manager = match socket == Path::new(SYSTEM_SOCKET) {
        true => Manager::System,
        false if is_users => Manager::User,
        false => return false,
    };
    manager.runs()
        && manager.ask("is-active", SOCKET).await == "active"
        && matches!(manager.ask("is-active", SERVICE).await.as_str(), "inactive" | "failed")
}

/// Adds what a login has set and a job of cron's has not, where the user's service needs it: the directory that its socket is in.
pub fn complete(environment: &mut BTreeMap<String, String>) {
    let Some(home) = environment.get("HOME").map(PathBuf::from) else { return };
    let is_set = environment.get(RUNTIME_DIR).is_some_and(|directory| Path::new(directory).is_absolute());
    if !is_set
        && Manager::User.installed(&home).is_some()
        && let Some(directory) = runtime_dir().and_then(|directory| directory.into_os_string().into_string().ok())
    {
        environment.insert(RUNTIME_DIR.to_owned(), directory);
    }
}

/// Where the user's manager, and what it runs, has its sockets.
fn runtime_dir() -> Option<PathBuf> {
    let usual = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    let named = std::env::var_os(RUNTIME_DIR).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| Some(usual()).filter(|path| path.is_dir()))
}

/// The one of systemd's managers that runs the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// The machine's.
    System,
    /// The user's own.
    User,
}

impl Manager {
    /// What a person types.
    pub const fn systemctl(self) -> &'static str {
        match self {
            Self::System => "systemctl",
            Self::User => "systemctl --user",
        }
    }

    pub const fn journalctl(self) -> &'static str {
        match self {
            Self::System => "journalctl -u acpd",
            Self::User => "journalctl --user -u acpd",
        }
    }

    /// Where the unit is, if it is installed.
    pub fn installed(self, home: &Path) -> Option<PathBuf> {
        let places = match self {
            Self::System => SYSTEM_PLACES,
            Self::User => USER_PLACES,
        };
        let all = units::directories(self, home).into_iter().chain(places.into_iter().map(PathBuf::from));
        // One that is masked is a link to where nothing is.
        all.map(|place| place.join(SERVICE)).find(|unit| unit.is_file())
    }

    /// Whether the manager runs, so that it can be told something.
    pub fn runs(self) -> bool {
        match self {
            Self::System => Path::new(RUNNING).is_dir(),
            Self::User => runtime_dir().is_some_and(|directory| directory.join(USER_MANAGER).exists()),
        }
    }

    /// Whether the manager says that it has no such unit, or is not to start it.
    pub async fn is_without(self, unit: &str) -> bool {
        let state = self.answer(&["show", "--property=LoadState", "--value", unit]).await;
        matches!(state.as_str(), "not-found" | "masked")
    }

    /// Where the manager looks for units.
    pub async fn unit_path(self) -> Vec<PathBuf> {
        let answer = self.answer(&["show", "--property=UnitPath", "--value"]).await;
        answer.split_whitespace().map(PathBuf::from).collect()
    }

    /// What systemctl answers to a question about a unit; nothing when it does not answer.
    pub async fn ask(self, verb: &str, unit: &str) -> String {
        self.answer(&[verb, unit]).await
    }

    async fn answer(self, arguments: &[&str]) -> String {
        let mut command = self.command(arguments);
        let answer = timeout(QUESTION_TIMEOUT, command.output()).await.ok().and_then(Result::ok);
        answer.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned()).unwrap_or_default()
    }

    /// Has systemctl do something, and waits until it is done.
    pub async fn tell(self, arguments: &[&str]) -> Result<(), ClientError> {
        let shown = format!("{} {}", self.systemctl(), arguments.join(" "));
        self.carry_out(self.command(arguments), &shown).await
    }

    /// Runs one of systemd's programs, which is shown to people as `shown`.
    pub async fn carry_out(self, mut command: Command, shown: &str) -> Result<(), ClientError> {
        command.stdin(Stdio::null()).kill_on_drop(true);
        let late = || ClientError::local(format!("`{shown}` did not finish within five minutes"), self.hint());
        let output = timeout(DEED_TIMEOUT, command.output()).await.map_err(|_| late())?;
        let output = output.map_err(|source| ClientError::io(format!("run `{shown}`"), source))?;
        if output.status.success() {
            return Ok(());
        }
        let said = quoted(&String::from_utf8_lossy(&output.stderr));
        Err(ClientError::local(format!("`{shown}` failed ({}){said}", output.status), self.hint()))
    }

    fn hint(self) -> String {
        format!("find out why with `{}` and `{} status acpd`", self.journalctl(), self.systemctl())
    }

    fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new("systemctl");
        if self == Self::User {
            command.arg("--user").envs(runtime_dir().map(|directory| (RUNTIME_DIR, directory)));
        }
        command.args(arguments).kill_on_drop(true);
        command
    }
}
