//! Configuration: built-in defaults < file < environment < flags, validated as a whole.
//!
//! Every problem is told at once, each with its key path and a hint. The file `config.toml` at the root of the
//! repository holds every key with its default and its reason; a test asserts that it equals [`Config::default`].

mod current;
mod group;
mod mcp;
mod notifications;
mod paths;
mod policy;
mod profiles;
mod read;
mod reload;
mod sandbox;
mod sections;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::permission::rule::Rule;
use crate::model::{AgentProfile, Amount, OnExceed, PermissionMode};

pub use current::{Changes, Current, Origin};
pub use group::ControlGroup;
pub use notifications::{Notification, Notifications, Occasion, PLACEHOLDERS};
pub use paths::{Overrides, Paths};
pub use read::table;
pub use reload::Difference;
pub use sandbox::{BubblewrapMode, HomePaths, NetworkMode, Sandbox, SandboxMode};
pub use value::{ByteSize, duration};

/// Every key with its default and what it does.
pub const DEFAULT_TEXT: &str = include_str!("../../config.toml");

/// `{acpd}` as an agent's command stands for this program itself.
pub const SELF_COMMAND: &str = "{acpd}";

/// The part of all connections that is kept for root and the daemon's own user: one in so many.
pub const KEPT_DIVISOR: usize = 8;

/// How many turns a session has in its life, when nobody says otherwise.
const TURN_CAP: u32 = 50;
/// The default of `limits.memory_max`, in percent of the machine's memory.
pub const MEMORY_PERCENT: u32 = 75;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub control: Control,
    pub store: Store,
    pub workspace: Workspace,
    pub sessions: Sessions,
    pub processes: Processes,
    pub limits: Limits,
    pub permissions: Permissions,
    pub sandbox: Sandbox,
    pub log: Log,
    pub notifications: Notifications,
    pub agents: BTreeMap<String, AgentProfile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Whom a daemon of root serves besides root.
    pub group: Option<ControlGroup>,
    pub connections: usize,
    pub connections_per_user: Option<u32>,
    pub streams_per_user: usize,
    pub body_max: ByteSize,
    pub bodies_max: ByteSize,
    pub import_max: ByteSize,
    pub answers_max: ByteSize,
    pub requests_per_second: u32,
    pub prompts_per_minute: u32,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub write_timeout: Duration,
    pub idle_timeout: Duration,
    pub heartbeat: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub read_connections: u32,
    pub batch_rows: usize,
    pub batch_bytes: ByteSize,
    pub queue: usize,
    pub busy_timeout: Duration,
    pub tail_max: ByteSize,
    pub backups: usize,
    pub free_min: ByteSize,
    pub reserve: Option<ByteSize>,
    pub maintenance_delay: Duration,
    pub replay_turns: Option<u32>,
    pub journal_max: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute, or `~` and what is below it, which is the home of whoever a session belongs to. Empty means that home.
    pub roots: Vec<PathBuf>,
    /// What agents of the scope `project` may write to besides.
    pub extra: HomePaths,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    pub agent: String,
    pub queue: usize,
    pub resume_on_start: bool,
    pub idle_timeout: Option<Duration>,
    pub turn_cap: u32,
    pub tool_call_cap: Option<u32>,
    pub cost_limit: Option<Amount>,
    pub cost_on_exceed: OnExceed,
    pub turn_silence_timeout: Option<Duration>,
    pub silence_notice: Option<Duration>,
    pub transcript_max: ByteSize,
    pub retention_suspended: Option<Duration>,
    pub retention_resumable: Option<Duration>,
    pub retention_error: Option<Duration>,
    pub retention_archived: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    pub initialize_timeout: Duration,
    pub session_timeout: Duration,
    pub session_notice: Option<Duration>,
    pub replay_timeout: Duration,
    pub stdin_timeout: Duration,
    pub cancel_grace: Duration,
    pub eof_grace: Duration,
    pub term_grace: Duration,
    pub shutdown_timeout: Duration,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub crash_limit: u32,
    pub cgroup: CgroupMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub processes: usize,
    /// None: half of them.
    pub processes_per_user: Option<u32>,
    pub memory_max: Option<ByteSize>,
    pub pids_max: Option<u32>,
    pub line_max: ByteSize,
    pub long_lines: ByteSize,
    pub prompt_max: ByteSize,
    pub media_max: ByteSize,
    pub payload_max: ByteSize,
    pub checkpoint_max: ByteSize,
    pub record_max: ByteSize,
    pub stderr_tail: ByteSize,
    pub file_max: ByteSize,
    pub terminals: usize,
    pub terminal_output: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub mode: PermissionMode,
    pub rules: Vec<Rule>,
    pub timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: LogLevel,
    pub files: usize,
}

/// Whether agents get a cgroup of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// Where the daemon's own cgroup was delegated to it.
    Auto,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    pub message: String,
    pub hint: String,
}

/// Everything that is wrong with the configuration.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    pub source_name: String,
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        let plural = if count == 1 { "problem" } else { "problems" };
        write!(formatter, "the configuration in {} has {count} {plural}", self.source_name)?;
        for Problem { key, message, hint } in &self.problems {
            write!(formatter, "\n  {key}: {message}\n    hint: {hint}")?;
        }
        Ok(())
    }
}

impl ConfigError {
    /// Every problem on one line, without the hints, for where there is one line only.
    pub fn in_one_line(&self) -> String {
        let problems = self.problems.iter().map(|Problem { key, message, hint: _ }| format!("{key}: {message}"));
        problems.collect::<Vec<_>>().join("; ")
    }
}

impl Config {
    /// Reads the file, if there is one, and the environment.
    pub fn load(file: Option<&Path>, environment: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let Some(path) = file else {
            return read::config("", "the environment", environment);
        };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            source_name: name.clone(),
            problems: vec![Problem {
                key: name.clone(),
                message: format!("cannot be read: {error}"),
                hint: "check that the file exists and that acpd's user can read it".to_owned(),
            }],
        })?;
        let has_variables = environment.keys().any(|name| name.starts_with(read::ENVIRONMENT_PREFIX));
        let source = if has_variables { format!("{name} and the environment") } else { name };
        read::config(&text, &source, environment)
    }

    /// Reads a text as the file of that name would be read.
    pub fn read(text: &str, name: &str, environment: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        read::config(text, name, environment)
    }

    /// The roots that workspaces of somebody with this home must lie in.
    pub fn workspace_roots(&self, home: &Path) -> Vec<PathBuf> {
        let root = |root: &PathBuf| match root.strip_prefix("~") {
            Ok(rest) if rest.as_os_str().is_empty() => home.to_owned(),
            Ok(rest) => home.join(rest),
            Err(_) => root.clone(),
        };
        match self.workspace.roots.as_slice() {
            [] => vec![home.to_owned()],
            roots => roots.iter().map(root).collect(),
        }
    }
}

impl Limits {
    /// How many processes one other user than the daemon's may have. Half of them, so that nobody has all: of one, that one.
    pub fn share_of_user(&self) -> usize {
        let configured = self.processes_per_user.and_then(|count| usize::try_from(count).ok());
        configured.unwrap_or(self.processes.div_ceil(2))
    }
}

impl Control {
    /// Connections that one user may have. Where there are several, nobody has most of them.
    pub fn share_of_user(&self) -> usize {
        /// What is a share when nobody says so: one part in so many.
        const SHARES: usize = 3;
        let configured = self.connections_per_user.and_then(|count| usize::try_from(count).ok());
        let others = self.connections - self.connections / KEPT_DIVISOR;
        let default = if self.group.is_some() { others / SHARES } else { others };
        configured.unwrap_or(default).clamp(1, others.max(1))
    }

    /// What one user may have of a budget for all.
    pub fn part_of_user(&self, budget: usize) -> usize {
        if self.group.is_some() { budget / 2 } else { budget }
    }
}

/// Caches that build tools share between projects. Not the directories around them: those hold programs and settings.
const CACHES: &str = "~/.cache/pip ~/.cache/uv ~/.cargo/git ~/.cargo/registry ~/.gradle/caches \
                      ~/.m2/repository ~/.npm/_cacache ~/.npm/_logs ~/go/pkg/mod";

impl Default for Workspace {
    fn default() -> Self {
        Self { roots: Vec::new(), extra: HomePaths::from_words(CACHES) }
    }
}

/// What clients may have.
fn control() -> Control {
    Control {
        group: None,
        connections: 256,
        connections_per_user: None,
        streams_per_user: 64,
        body_max: ByteSize::mib(32),
        bodies_max: ByteSize::mib(128),
        import_max: ByteSize::mib(64),
        answers_max: ByteSize::mib(128),
        requests_per_second: 500,
        prompts_per_minute: 600,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(30),
        write_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_mins(1),
        heartbeat: Duration::from_secs(15),
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            control: control(),
            store: Store {
                read_connections: 2,
                batch_rows: 512,
                batch_bytes: ByteSize::mib(1),
                queue: 1024,
                busy_timeout: Duration::from_secs(5),
                tail_max: ByteSize::mib(4),
                backups: 5,
                free_min: ByteSize::mib(16),
                reserve: Some(ByteSize::mib(4)),
                maintenance_delay: Duration::from_millis(500),
                replay_turns: Some(20),
                journal_max: ByteSize::mib(4),
            },
            workspace: Workspace::default(),
            sessions: Sessions {
                agent: "gemini".to_owned(),
                queue: 16,
                resume_on_start: false,
                idle_timeout: Some(Duration::from_mins(30)),
                turn_cap: TURN_CAP,
                tool_call_cap: Some(500),
                cost_limit: None,
                cost_on_exceed: OnExceed::Fail,
                turn_silence_timeout: Some(Duration::from_mins(15)),
                silence_notice: Some(Duration::from_secs(30)),
                transcript_max: ByteSize::kib(64),
                retention_suspended: Some(Duration::from_hours(7 * 24)),
                retention_resumable: Some(Duration::from_hours(30 * 24)),
                retention_error: Some(Duration::from_hours(24)),
                retention_archived: None,
            },
            processes: default_processes(),
            limits: default_limits(),
            permissions: Permissions { mode: PermissionMode::Ask, rules: Vec::new(), timeout: None },
            sandbox: Sandbox::default(),
            log: Log { level: LogLevel::Info, files: 7 },
            notifications: Notifications::default(),
            agents: profiles::shipped(),
        }
    }
}

fn default_processes() -> Processes {
    Processes {
        initialize_timeout: Duration::from_mins(1),
        session_timeout: Duration::from_mins(2),
        session_notice: Some(Duration::from_secs(10)),
        replay_timeout: Duration::from_secs(10),
        stdin_timeout: Duration::from_secs(30),
        cancel_grace: Duration::from_secs(10),
        eof_grace: Duration::from_secs(2),
        term_grace: Duration::from_secs(2),
        shutdown_timeout: Duration::from_secs(10),
        backoff_min: Duration::from_secs(1),
        backoff_max: Duration::from_mins(1),
        crash_limit: 5,
        cgroup: CgroupMode::Auto,
    }
}

fn default_limits() -> Limits {
    Limits {
        processes: 5,
        processes_per_user: None,
        memory_max: Some(ByteSize::of_machine(MEMORY_PERCENT)),
        pids_max: Some(4096),
        line_max: ByteSize::mib(32),
        long_lines: ByteSize::mib(64),
        prompt_max: ByteSize::mib(1),
        media_max: ByteSize::mib(16),
        payload_max: ByteSize::mib(1),
        checkpoint_max: ByteSize::kib(256),
        record_max: ByteSize::mib(1),
        stderr_tail: ByteSize::kib(8),
        file_max: ByteSize::mib(10),
        terminals: 8,
        terminal_output: ByteSize::mib(1),
    }
}
