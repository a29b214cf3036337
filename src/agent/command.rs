//! What is started: the program found once, the arguments with their placeholders filled in, and a clean environment.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::account::Account;
use super::adapter_home::{AdapterHome, Furniture};
use super::confine::{Confinement, SessionDirectories};
use super::environment::{self, EnvironmentError, Gathered};
use super::mcp::UnsetReference;
use super::redact::Known;
use super::shim::Owner;
use super::workspace::OpenWorkspace;
use crate::config::SELF_COMMAND;
use crate::model::agent::FrozenProfile;
use crate::model::{Adapter, AgentProfile, SessionId};

/// This program itself, also when its file was replaced by a newer one meanwhile.
pub const SELF_PROGRAM: &str = "/proc/self/exe";

/// What stands for the workspace in a profile.
pub const WORKSPACE: &str = "{workspace}";

/// Where programs are looked for when the daemon has no PATH.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Tells an agent, and all that it starts, which session it works for. A daemon finds by it what a dead one left.
pub const SESSION_MARK: &str = "ACPD_SESSION";

/// A command line ready to run. Its environment may hold secrets: it is never logged, stored or shown.
pub struct Command {
    pub session: SessionId,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The names in it that the profile itself gives a value.
    given: BTreeSet<String>,
    /// What of it must not be seen.
    pub secrets: Vec<Known>,
    pub workspace: PathBuf,
    /// The workspace as it was opened and checked: there it runs, whatever is at the path by then.
    pub directory: OwnedFd,
    /// The user it runs as, when that is not the daemon's own.
    pub owner: Option<Owner>,
    /// How it is confined, if it is.
    pub confinement: Option<Confinement>,
    /// What is put into the session's home first.
    pub adapter_home: Option<AdapterHome>,
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{0}; {advice}", advice = .0.advice().unwrap_or_else(|| "install it, or set its absolute path as the profile's command".to_owned()))]
    NoProgram(#[from] NoProgram),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Servers(#[from] UnsetReference),
}

/// Why a command names no program that can be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProgram {
    #[error("the command {0:?} was not found on the daemon's PATH")]
    NotOnPath(String),
    #[error("the command {0:?} is a relative path")]
    Relative(String),
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is a directory", .0.display())]
    Directory(PathBuf),
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    #[error("{} cannot be reached: {}", .0.display(), .1)]
    Unreachable(PathBuf, ErrorKind),
}

impl NoProgram {
    /// The problem, where a client has searched its own PATH.
    pub fn of_client(&self) -> String {
        match self {
            Self::NotOnPath(command) => format!("the command {command:?} was not found on PATH"),
            problem => problem.to_string(),
        }
    }

    /// The remedy, unless that is to install the agent.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::NotOnPath(_) | Self::Missing(_) => None,
            Self::Relative(_) => Some("give the program's absolute path".to_owned()),
            Self::Directory(_) => Some("name the program in it".to_owned()),
            Self::Unreachable(..) => Some("allow the agent's user to enter its directory".to_owned()),
            Self::NotExecutable(path) => Some(format!("make it executable: chmod +x {}", path.display())),
        }
    }
}

impl Command {
    /// Puts the program of a session's frozen profile ([`find_agent`]) and today's values together. A profile that is gone leaves the names without
    /// values, which is what a session that outlives its profile can have.
    pub fn new(
        session: SessionId,
        program: PathBuf,
        frozen: &FrozenProfile,
        current: Option<&AgentProfile>,
        workspace: OpenWorkspace,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, CommandError> {
        let OpenWorkspace { path: workspace, directory, .. } = workspace;
        let places = [(WORKSPACE, workspace.to_string_lossy().into_owned())];
        let args = frozen.args.iter().map(|argument| fill(argument, &places)).collect();

        let Gathered { mut variables, secrets, given } = environment::gather(frozen, current, environment)?;
        for (name, value) in frozen.adapter.quirks().environment {
            variables.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        Ok(Self { given, secrets, ..Self::plain(session, program, args, workspace, directory, variables) })
    }

    /// What a terminal runs, or an errand, in the directory that is open. It gets what every agent gets, and nothing of the
    /// profile's own, which may be secret.
    pub fn for_terminal(
        session: SessionId,
        program: PathBuf,
        args: Vec<String>,
        workspace: &Path,
        directory: OwnedFd,
        environment: &BTreeMap<String, String>,
    ) -> Self {
        Self::plain(session, program, args, workspace.to_owned(), directory, environment::allowed(environment))
    }

    /// As the daemon's user, without secrets and not confined, with what no environment lacks.
    fn plain(
        session: SessionId,
        program: PathBuf,
        args: Vec<String>,
        workspace: PathBuf,
        directory: OwnedFd,
        mut environment: BTreeMap<String, String>,
    ) -> Self {
        environment.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
        environment.insert(SESSION_MARK.to_owned(), session.to_string());
        Self {
            session,
            program,
            args,
            environment,
            given: BTreeSet::new(),
            secrets: Vec::new(),
            workspace,
            directory,
            owner: None,
            confinement: None,
            adapter_home: None,
        }
    }

    /// Runs it as this user. Its environment is of that user's already ([`Account::environment`]).
    pub fn owned_by(mut self, account: &Account) -> Self {
        self.owner = Some(account.owner());
        self
    }

    /// Fills the session's own directories in: in the arguments, and in the profile's own part of the environment.
    pub fn with_directories(mut self, own: &SessionDirectories, env_names: &[String]) -> Self {
        let places = own.places();
        let named = self.environment.iter_mut().filter(|(name, _)| env_names.contains(name));
        for text in self.args.iter_mut().chain(named.map(|(_, value)| value)) {
            *text = fill(text, &places);
        }
        self
    }

    /// Confines it. Temporary files go where it may write.
    pub fn confined(mut self, confinement: Confinement, own: &SessionDirectories) -> Self {
        self.environment.insert("TMPDIR".to_owned(), own.tmp.to_string_lossy().into_owned());
        self.confinement = Some(confinement);
        self
    }

    /// Makes a file visible that isolation would hide.
    pub fn showing(mut self, path: &Path) -> Self {
        if let Some(isolation) = self.confinement.as_mut().and_then(|confinement| confinement.isolation.as_mut()) {
            isolation.shown.push(path.to_owned());
        }
        self
    }

    /// An agent that keeps its things in the user's home gets a place for them in the session's own.
    pub fn at_home(
        mut self,
        own: &SessionDirectories,
        adapter: Adapter,
        home_copy: &[String],
        conversation: Option<String>,
    ) -> Self {
        if let (Adapter::Generic, Some(confinement)) = (adapter, &self.confinement) {
            self.adapter_home = AdapterHome::private(own, home_copy, confinement, &self.given, &self.environment);
            return self;
        }
        let isolation = self.confinement.as_ref().and_then(|confinement| confinement.isolation.as_ref());
        let wish = Furniture {
            adapter,
            own,
            is_confined: self.confinement.is_some(),
            hidden: isolation.map(|isolation| isolation.hidden.clone()).unwrap_or_default(),
            given: &self.given,
            conversation,
        };
        self.adapter_home = AdapterHome::new(wish, &mut self.environment);
        self
    }
}

/// A text with its placeholders filled in. What takes the place of one is not looked at for another.
pub fn fill(text: &str, places: &[(&str, String)]) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let found = places.iter().find_map(|(name, path)| Some((path.as_str(), from.strip_prefix(name)?)));
        let (text, after) = found.unwrap_or_else(|| from.split_at(1));
        filled.push_str(text);
        rest = after;
    }
    filled + rest
}

/// The file that a profile's command stands for, with the daemon's PATH. For whoever looks, too.
pub fn find_agent(command: &str, environment: &BTreeMap<String, String>) -> Result<PathBuf, NoProgram> {
    let path = environment.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    find_program(command, path).ok_or_else(|| no_program(command, path))
}

/// As shells do, a file of that name on PATH that is not executable is named when no other is found.
fn no_program(command: &str, path: &str) -> NoProgram {
    if !command.contains('/') {
        let unusable = on_path(command, path).find(|program| program.is_file());
        return unusable.map_or_else(|| NoProgram::NotOnPath(command.to_owned()), NoProgram::NotExecutable);
    }
    let program = PathBuf::from(command);
    match program.metadata() {
        _ if !program.is_absolute() => NoProgram::Relative(command.to_owned()),
        Ok(metadata) if metadata.is_dir() => NoProgram::Directory(program),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            NoProgram::Missing(program)
        }
        Err(error) => NoProgram::Unreachable(program, error.kind()),
        Ok(_) => NoProgram::NotExecutable(program),
    }
}

/// The file that a command stands for: this program itself, a path, or the first match on PATH.
pub fn find_program(command: &str, path: &str) -> Option<PathBuf> {
    if command == SELF_COMMAND {
        return Some(PathBuf::from(SELF_PROGRAM));
    }
    if command.contains('/') {
        let program = PathBuf::from(command);
        return (program.is_absolute() && is_executable(&program)).then_some(program);
    }
    on_path(command, path).find(|program| is_executable(program))
}

fn on_path(command: &str, path: &str) -> impl Iterator<Item = PathBuf> {
    let directories = path.split(':').filter(|directory| directory.starts_with('/'));
    directories.map(move |directory| Path::new(directory).join(command))
}

/// Where the file of this program is, for others to start, if whoever looks may. What it was replaced by is what they get.
pub fn own_path() -> Option<PathBuf> {
    let path = std::fs::read_link(SELF_PROGRAM).ok()?;
    let text = path.to_str()?;
    let path = PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text));
    is_executable(&path).then_some(path)
}

/// For whoever looks, who may be another user than the daemon's ([`super::persona`]).
pub(super) fn is_executable(program: &Path) -> bool {
    program.is_file() && rustix::fs::accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Grounds, open_workspace};

    fn profile() -> AgentProfile {
        AgentProfile {
            command: "sh".into(),
            args: vec!["--dir={workspace}".into(), "plain".into()],
            env: BTreeMap::from([("KEY".to_owned(), "value".into())]),
            env_pass: vec!["PASSED".into()],
            ..AgentProfile::new("x")
        }
    }

    #[test]
    fn the_environment_is_an_allowlist_and_the_profile() {
        let daemon = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/me"),
            ("LC_ALL", "C"),
            ("SECRET", "s"),
            ("PASSED", "p"),
            ("ACPD_SOCKET", "x"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let (session, profile) = (SessionId::new(), profile());
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap().join("work space");
        std::fs::create_dir(&path).unwrap();
        let grounds = Grounds { roots: vec![PathBuf::from("/")], ..Grounds::default() };
        let workspace = || open_workspace(&path, &grounds).unwrap();
        let program = find_agent(&profile.command, &daemon).unwrap();
        let command = Command::new(session, program.clone(), &profile.freeze(), Some(&profile), workspace(), &daemon);
        let command = command.unwrap();
        let names: Vec<&str> = command.environment.keys().map(String::as_str).collect();
        assert_eq!(names, ["ACPD_SESSION", "HOME", "KEY", "LC_ALL", "PASSED", "PATH"]);
        assert_eq!(command.args, [format!("--dir={}", path.display()), "plain".to_owned()]);

        let orphan = Command::new(session, program, &profile.freeze(), None, workspace(), &daemon).unwrap();
        assert!(!orphan.environment.contains_key("KEY"), "values come from the profile as it is now");
    }

    #[test]
    fn a_program_is_found_on_the_path_or_by_its_absolute_path_only() {
        assert!(find_program("sh", "/nonexistent:/usr/bin:/bin").is_some());
        assert!(find_program("/bin/sh", "").is_some());
        for missing in ["sh/../sh", "./sh", "no-such-program", "/etc/passwd", "/etc"] {
            assert_eq!(find_program(missing, "/usr/bin:/bin"), None, "{missing}");
        }
        assert_eq!(find_program("sh", "bin:."), None, "relative entries of PATH are not trusted");
    }
}
