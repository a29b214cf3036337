//! The daemon under test: a real process, with its own directories, started and ended as the test says.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::builder::{DaemonBuilder, Paths, User};
use super::cgroup;
use super::gate::Gate;
use super::record::{self, Heard};
use super::terminal::Terminal;
use super::within;

pub(super) const ACPD: &str = env!("CARGO_BIN_EXE_acpd");

/// How much of the log a failed test prints: its end.
const SHOWN_LOG_BYTES: usize = 8 << 10;

/// A running daemon process.
struct Running {
    child: Child,
    pid: u32,
    ready_line: String,
    /// Held open, so that a daemon that says more than its one line does not die of it.
    stdout: Lines<BufReader<ChildStdout>>,
}

/// What a command wrote, and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code, or -1 after a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn new(output: &std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Stdout, when the command succeeded.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Stdout as JSON, when the command succeeded.
    #[track_caller]
    pub fn json(self) -> Value {
        let stdout = self.success();
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {stdout}"))
    }
}

/// The daemon. Dropping it stops the process and deletes its directories.
pub struct Daemon {
    running: Option<Running>,
    environment: Vec<(String, String)>,
    gates: HashMap<String, Gate>,
    user: Option<User>,
    /// Where it is started, when that is not the test's own cgroup.
    cgroup: Option<PathBuf>,
    /// The command line that starts the daemon, if the test does not start it directly.
    launcher: Vec<OsString>,
    /// The limits of open files that it is started with, when they are not the test's own.
    open_files: Option<(u64, u64)>,
    paths: Paths,
    /// The last field, because it is dropped last.
    _directory: TempDir,
}

impl Daemon {
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder::new()
    }

    /// A daemon with the built-in agents only.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub(super) fn new(
        directory: TempDir,
        paths: Paths,
        environment: Vec<(String, String)>,
        gates: HashMap<String, Gate>,
        user: Option<User>,
        cgroup: Option<PathBuf>,
    ) -> Self {
        Self {
            running: None,
            environment,
            gates,
            user,
            cgroup,
            launcher: Vec::new(),
            open_files: None,
            paths,
            _directory: directory,
        }
    }

    pub(super) fn launched_by(mut self, launcher: Vec<OsString>) -> Self {
        self.launcher = launcher;
        self
    }

    pub(super) fn with_open_files(mut self, limits: Option<(u64, u64)>) -> Self {
        self.open_files = limits;
        self
    }

    fn spawn(&self) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(&self.paths.log).expect("the log can be opened");
        let mut command = match (&self.cgroup, &self.launcher[..]) {
            (Some(_), _) => clean(shell_that_waits(&self.paths.acpd), &self.paths),
            (None, [launcher, arguments @ ..]) => {
                let mut command = clean(Command::new(launcher), &self.paths);
                command.args(arguments).arg(&self.paths.acpd);
                command
            }
            (None, []) => match self.open_files {
                Some((soft, hard)) => clean(shell_with_limits(&self.paths.acpd, soft, hard), &self.paths),
                None => command(&self.paths),
            },
        };
        command.arg("serve").arg("--config").arg(&self.paths.config);
        command.arg("--state-dir").arg(&self.paths.state).arg("--socket").arg(&self.paths.socket);
        command.envs(self.environment.iter().cloned());
        let (wait, mut go) = std::io::pipe().expect("a pipe can be made");
        command.stdin(if self.cgroup.is_some() { Stdio::from(wait) } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(log).current_dir(&self.paths.home);
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().expect("acpd can be started");
        if let Some(cgroup) = &self.cgroup {
            cgroup::enter(cgroup, child.id().expect("the process has just been started"));
            go.write_all(b"\n").expect("the shell waits");
        }
        child
    }

    /// Starts the process and waits for the line that says it is ready. The log is printed when this panics, because
    /// the daemon is then dropped.
    pub(super) async fn launch(&mut self) {
        let mut child = self.spawn();
        let pid = child.id().expect("the process has just been started");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        let line = within("the daemon's ready line", stdout.next_line()).await.expect("stdout can be read");
        let Some(ready_line) = line else {
            let status = within("the daemon's end", child.wait()).await;
            panic!("the daemon ended before it was ready: {status:?}");
        };
        self.running = Some(Running { child, pid, ready_line, stdout });
    }

    /// Starts the daemon, which is to refuse to start, and returns what it said.
    pub async fn launch_in_vain(&self) -> Output {
        let mut child = self.spawn();
        let mut stdout = child.stdout.take().expect("stdout is a pipe");
        let mut text = String::new();
        let (status, _) =
            within("the daemon's refusal", async { tokio::join!(child.wait(), stdout.read_to_string(&mut text)) })
                .await;
        Output { code: status.expect("acpd has ended").code().unwrap_or(-1), stdout: text, stderr: self.log() }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the daemon runs")
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn pid(&self) -> u32 {
        self.running().pid
    }

    /// What the daemon said on stdout when it was ready.
    pub fn ready_line(&self) -> &str {
        &self.running().ready_line
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("the daemon can be signalled");
    }

    /// SIGKILL, as a crash or a power cut.
    pub async fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.ended().await
    }

    /// SIGTERM, as systemd stops it.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Waits until the daemon has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let running = self.running.as_mut().expect("the daemon runs");
        let status = within("the daemon's end", running.child.wait()).await.expect("the daemon can be waited for");
        self.running = None;
        status
    }

    /// Starts the daemon again on the same directories; one that still runs is terminated first.
    pub async fn restart(&mut self) {
        if self.running.is_some() {
            self.terminate().await;
        }
        self.launch().await;
    }

    /// Runs `acpd` as a client of this daemon, in the workspace.
    pub async fn cli(&self, arguments: &[&str]) -> Output {
        self.cli_with_input(arguments, "").await
    }

    /// A client of this daemon in the workspace, to be started.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.paths);
        command.env("ACPD_SOCKET", &self.paths.socket);
        command.env("ACPD_STATE_DIR", &self.paths.state);
        command.env("ACPD_CONFIG", &self.paths.config);
        command.args(arguments).current_dir(&self.paths.workspace);
        command
    }

    /// A client in a terminal of this size.
    pub fn terminal(&self, columns: u16, rows: u16, arguments: &[&str]) -> Terminal {
        Terminal::start(columns, rows, &self.client(arguments))
    }

    /// A shell that runs this line as a client; `acpd` is its first argument.
    pub fn shell(&self, line: &str) -> Command {
        let client = self.client(&[]);
        let client = client.as_std();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).arg("sh").arg(client.get_program()).current_dir(&self.paths.workspace);
        shell.envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell
    }

    /// Runs `acpd` as a client that reads this text, and then the end, on stdin.
    pub async fn cli_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.client(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("acpd can be started");
        let mut stdin = child.stdin.take().expect("stdin is a pipe");
        let output = within(&format!("the end of acpd {arguments:?}"), async {
            let write = async move {
                // A command that does not read its stdin may have ended already.
                let _ = stdin.write_all(input.as_bytes()).await;
            };
            tokio::join!(child.wait_with_output(), write).0
        })
        .await;
        Output::new(&output.expect("acpd can be waited for"))
    }

    /// Waits until the daemon refuses requests because it stops.
    pub async fn is_stopping(&self) {
        within("a refusal of the stopping daemon", async {
            while self.get("/v1/info").await.status != 503 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The gate of one scripted agent.
    pub fn gate(&self, agent: &str) -> Gate {
        self.gates.get(agent).cloned().unwrap_or_else(|| panic!("the test has no agent {agent:?}"))
    }

    /// What the processes of one scripted agent have heard so far, when its script has a `record` step.
    pub fn heard(&self, agent: &str) -> Vec<Heard> {
        record::read(&self.paths.scripts(agent))
    }

    /// What the daemon has written to stderr, over all its starts.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.paths.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the daemon has logged this, on standard error. Nobody tells, so it is looked at again and again.
    pub async fn logged(&self, text: &str) {
        within(&format!("{text:?} in the log"), async {
            while !self.log().contains(text) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The directory that all others are in, and the only allowed root of workspaces.
    pub fn root(&self) -> &Path {
        &self.paths.root
    }

    pub fn socket(&self) -> &Path {
        &self.paths.socket
    }

    pub fn workspace(&self) -> &Path {
        &self.paths.workspace
    }

    pub fn state_dir(&self) -> &Path {
        &self.paths.state
    }

    pub fn home(&self) -> &Path {
        &self.paths.home
    }

    /// The configuration file, for a test that changes it before a restart or a reload.
    pub fn config_file(&self) -> &Path {
        &self.paths.config
    }
}

/// A shell that becomes acpd when a line comes, and is moved into the daemon's cgroup before. An ordinary user may not move
/// itself there from where the test is.
fn shell_that_waits(acpd: &Path) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(r#"read -r go && exec "$0" "$@" < /dev/null"#).arg(acpd);
    shell
}

/// A shell that becomes acpd with these limits of open files.
fn shell_with_limits(acpd: &Path, soft: u64, hard: u64) -> Command {
    let mut shell = Command::new("/bin/sh");
    let script = format!(r#"ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@""#);
    shell.arg("-c").arg(script).arg(acpd);
    shell
}

/// `acpd` with a clean environment, which dies with the test.
fn command(paths: &Paths) -> Command {
    clean(Command::new(&paths.acpd), paths)
}

fn clean(mut command: Command, paths: &Paths) -> Command {
    command.env_clear().kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &paths.home);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if let Some(running) = &mut self.running {
            // A daemon that is asked to stop takes its agents with it; one that a failed test left in any state is not
            // waited for that long. Either way nothing is written any more when the directories are deleted.
            let process = Pid::from_raw(running.pid.cast_signed());
            let signal = if panicking { Signal::SIGKILL } else { Signal::SIGTERM };
            self.gates.clear();
            if kill(process, signal).is_ok() {
                let _ = waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            }
        }
        if panicking {
            let log = self.log();
            let start = log.ceil_char_boundary(log.len().saturating_sub(SHOWN_LOG_BYTES));
            eprintln!("--- the daemon's log ---\n{}--- end of the log ---", &log[start..]);
        }
    }
}
