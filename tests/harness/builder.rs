//! Prepares a daemon: its directories, its configuration, its scripted agents and their gates.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cgroup::Cgroup;
use super::daemon::{ACPD, Daemon, Output};
use super::gate::Gate;

/// The kernel takes 107 bytes; a test that comes near is told so in plain words.
const SOCKET_PATH_BYTES_MAX: usize = 99;
const PRIVATE: u32 = 0o700;
const EXECUTABLE: u32 = 0o555;
/// Starts a program as the first process of a PID namespace, and ends with it.
const UNSHARE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
/// Others may go through, and see nothing.
const PASSABLE: u32 = 0o711;
/// Others may enter and list it.
const SHARED: u32 = 0o755;

/// An ordinary user, for a daemon that is not to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Where everything of one test is, below one temporary directory.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub root: PathBuf,
    /// The daemon's program.
    pub acpd: PathBuf,
    pub config: PathBuf,
    pub home: PathBuf,
    pub log: PathBuf,
    pub socket: PathBuf,
    pub state: PathBuf,
    pub workspace: PathBuf,
}

impl Paths {
    /// Makes the directories. The root is canonical, because the daemon reports canonical paths.
    fn create(root: &Path) -> Self {
        let root = root.canonicalize().expect("the temporary directory is there");
        let paths = Self {
            acpd: PathBuf::from(ACPD),
            config: root.join("config.toml"),
            home: root.join("home"),
            log: root.join("daemon.log"),
            socket: root.join("run/acpd.sock"),
            state: root.join("state"),
            workspace: root.join("workspace"),
            root,
        };
        assert!(
            paths.socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX,
            "TMPDIR is too long for a socket: {}",
            paths.socket.display()
        );
        for directory in [&paths.root.join("run"), &paths.home, &paths.state, &paths.workspace] {
            DirBuilder::new().mode(PRIVATE).create(directory).expect("a directory can be made");
        }
        paths
    }

    pub fn scripts(&self, agent: &str) -> PathBuf {
        self.root.join("scripts").join(agent)
    }
}

struct Agent {
    name: String,
    script: Value,
    /// More lines for the agent's section of the configuration.
    extra: String,
}

/// Everything that is decided before the daemon starts.
pub struct DaemonBuilder {
    directory: TempDir,
    paths: Paths,
    config: String,
    agents: Vec<Agent>,
    environment: Vec<(String, String)>,
    user: Option<User>,
    owner: Option<User>,
    group: Option<u32>,
    cgroup: Option<PathBuf>,
    has_landlock: bool,
    isolates: bool,
    is_first_in_namespace: bool,
    open_files: Option<(u64, u64)>,
}

impl DaemonBuilder {
    pub fn new() -> Self {
        // Not `TMPDIR`: snapshots hold for paths of this length, and a socket's path has a limit.
        Self::below(Path::new("/tmp"))
    }

    /// Everything of the test in a directory of its own below this one.
    pub fn below(base: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("acpd-").tempdir_in(base);
        let directory = directory.expect("a temporary directory can be made");
        let paths = Paths::create(directory.path());
        Self {
            directory,
            paths,
            config: String::new(),
            agents: Vec::new(),
            environment: Vec::new(),
            user: None,
            owner: None,
            group: None,
            cgroup: None,
            has_landlock: true,
            isolates: false,
            is_first_in_namespace: false,
            open_files: None,
        }
    }

    /// A daemon that isolates its agents, as by default. Its directory is not below /tmp, which isolated agents do not see.
    pub fn isolated() -> Self {
        Self { isolates: true, ..Self::below(Path::new("/var/tmp")) }
    }

    /// Runs the daemon as if the kernel had no Landlock.
    #[must_use]
    pub fn without_landlock(mut self) -> Self {
        self.has_landlock = false;
        self
    }

    /// Runs the daemon as the first process of a PID namespace. The test's own process id is that of `unshare`.
    #[must_use]
    pub fn first_in_namespace(mut self) -> Self {
        self.is_first_in_namespace = true;
        self
    }

    /// Runs the daemon with this limit of open files, and this one that it may be raised to.
    #[must_use]
    pub fn open_files(mut self, soft: u64, hard: u64) -> Self {
        self.open_files = Some((soft, hard));
        self
    }

    /// Adds whole sections to the configuration. One that has its own `[workspace]` replaces the default.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Adds a scripted agent.
    #[must_use]
    pub fn agent(self, name: &str, script: Value) -> Self {
        self.agent_with(name, script, "")
    }

    /// Adds a scripted agent with more lines of TOML in its section.
    #[must_use]
    pub fn agent_with(mut self, name: &str, script: Value, extra: &str) -> Self {
        self.agents.push(Agent { name: name.to_owned(), script, extra: extra.to_owned() });
        self
    }

    /// Adds a variable to the daemon's environment, which has only `PATH` and `HOME` else.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the daemon as this user, to whom everything below the root then belongs. Only root can do that.
    #[must_use]
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = Some(User { uid, gid });
        self
    }

    /// Runs the daemon as one of `users()`.
    #[must_use]
    pub fn user_of(self, user: Option<User>) -> Self {
        match user {
            Some(User { uid, gid }) => self.user(uid, gid),
            None => self,
        }
    }

    /// Gives the workspace and the agents' scripts to this user, for sessions that it owns, and brings the programs
    /// within its reach. The daemon itself stays root's, and serves that user's group.
    #[must_use]
    pub fn owner(mut self, owner: User) -> Self {
        self.owner = Some(owner);
        self.group(owner.gid)
    }

    /// Has a daemon of root serve the members of this group, and make its socket's directory for them.
    #[must_use]
    pub fn group(mut self, gid: u32) -> Self {
        self.group = Some(gid);
        self
    }

    /// Starts the daemon, now and at every restart, in this cgroup.
    #[must_use]
    pub fn cgroup(mut self, cgroup: &Cgroup) -> Self {
        self.cgroup = Some(cgroup.directory().to_owned());
        self
    }

    /// The directory that all others are in, and the only allowed root of workspaces.
    pub fn root(&self) -> &Path {
        &self.paths.root
    }

    pub fn workspace(&self) -> &Path {
        &self.paths.workspace
    }

    pub fn home(&self) -> &Path {
        &self.paths.home
    }

    pub fn state_dir(&self) -> &Path {
        &self.paths.state
    }

    pub fn socket(&self) -> &Path {
        &self.paths.socket
    }

    /// Starts the daemon, and returns when it takes requests.
    pub async fn start(self) -> Daemon {
        let mut daemon = self.prepare();
        daemon.launch().await;
        daemon
    }

    /// Starts a daemon that is to refuse to start, and returns what it said.
    pub async fn fail_to_start(self) -> Output {
        self.prepare().launch_in_vain().await
    }

    fn prepare(mut self) -> Daemon {
        let mut agent_program = test_agent();
        if self.user.is_some() || self.owner.is_some() {
            // The directory that cargo builds in may be closed to that user.
            let programs = self.paths.root.join("bin");
            std::fs::create_dir(&programs).expect("a directory can be made");
            self.paths.acpd = within_reach(&self.paths.acpd, &programs);
            agent_program = within_reach(&agent_program, &programs);
        }
        let mut gates = HashMap::new();
        for agent in &self.agents {
            let directory = self.paths.scripts(&agent.name);
            std::fs::create_dir_all(&directory).expect("a directory can be made");
            std::fs::write(directory.join("script.json"), agent.script.to_string()).expect("a file can be written");
            gates.insert(agent.name.clone(), Gate::listen(&directory.join("gate.sock")));
        }
        std::fs::write(&self.paths.config, self.configuration(&agent_program)).expect("a file can be written");
        // With a umask of 002 the group could change it, which `acpd doctor` reports.
        std::fs::set_permissions(&self.paths.config, Permissions::from_mode(0o644)).expect("a mode can be set");
        if let Some(user) = self.user {
            give(&self.paths.root, user);
        }
        if let Some(owner) = self.owner {
            give(&self.paths.workspace, owner);
            if !self.agents.is_empty() {
                give(&self.paths.root.join("scripts"), owner);
            }
        }
        if self.group.is_some() {
            // All members work in it.
            for (path, mode) in [(&self.paths.root, PASSABLE), (&self.paths.workspace, SHARED)] {
                std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode can be set");
            }
            let directory = self.paths.socket.parent().expect("the socket is in a directory");
            std::fs::remove_dir(directory).expect("nothing is in it yet");
        }
        let launcher = match (self.has_landlock, self.is_first_in_namespace) {
            (false, _) => vec![agent_program.into_os_string(), "--without-landlock".into()],
            (true, true) => UNSHARE.map(OsString::from).to_vec(),
            (true, false) => Vec::new(),
        };
        let Self { directory, paths, environment, user, cgroup, open_files, .. } = self;
        let daemon = Daemon::new(directory, paths, environment, gates, user, cgroup);
        daemon.launched_by(launcher).with_open_files(open_files)
    }

    fn configuration(&self, agent_program: &Path) -> String {
        let mut sections = Vec::new();
        if !self.config.lines().any(|line| line.trim() == "[workspace]") {
            sections.push(format!("[workspace]\nroots = [{}]\n", quoted(&self.paths.root)));
        }
        if let Some(group) = self.group {
            assert!(!self.config.contains("[control]"), "the test's [control] cannot be put together with a group");
            sections.push(format!("[control]\ngroup = {group}\n"));
        }
        // Otherwise a test would depend on whether bubblewrap is installed.
        let never = "[sandbox]\nbubblewrap = \"never\"";
        if !self.isolates && !self.config.contains("[sandbox]") {
            sections.push(format!("{never}\n"));
        }
        sections.push(if self.isolates { self.config.clone() } else { self.config.replace("[sandbox]", never) });
        for Agent { name, extra, .. } in &self.agents {
            let command = quoted(agent_program);
            let script = quoted(&self.paths.scripts(name).join("script.json"));
            sections.push(format!("[agents.{name}]\ncommand = {command}\nargs = [{script}]\n{extra}\n"));
        }
        sections.join("\n")
    }
}

/// A JSON string is a TOML string.
fn quoted(path: &Path) -> String {
    json!(path).to_string()
}

/// The program, linked or else copied into a directory where everybody may execute it, and its new path.
fn within_reach(program: &Path, directory: &Path) -> PathBuf {
    let target = directory.join(program.file_name().expect("a program has a name"));
    let mode = program.metadata().expect("the program is there").permissions().mode();
    if mode & EXECUTABLE != EXECUTABLE || std::fs::hard_link(program, &target).is_err() {
        std::fs::copy(program, &target).expect("the program can be copied");
        std::fs::set_permissions(&target, Permissions::from_mode(EXECUTABLE)).expect("the mode can be set");
    }
    target
}

/// Gives a directory and what is in it to the user. Programs stay whose they are: a link shares its owner with the file
/// in cargo's directory.
fn give(path: &Path, user: User) {
    let metadata = path.symlink_metadata().expect("it has just been made");
    lchown(path, Some(user.uid), Some(user.gid)).expect("only root can run a daemon as another user");
    if metadata.is_dir() && !path.ends_with("bin") {
        for entry in path.read_dir().expect("the directory can be read") {
            give(&entry.expect("the directory can be read").path(), user);
        }
    }
}

/// The scripted agent, which cargo puts next to the daemon as an example.
fn test_agent() -> PathBuf {
    let path = Path::new(ACPD).with_file_name("examples").join("test-agent");
    assert!(path.exists(), "{} is missing: run `cargo build --examples` first", path.display());
    path
}
