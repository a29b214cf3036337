//! The daemon that is measured: the real binary, with its own directory below cargo's target directory.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent;
use crate::client::Client;
use crate::events::Subscriber;

/// Below the target directory, because /tmp is often memory, where nothing waits for a disk.
const DIRECTORY: &str = env!("CARGO_TARGET_TMPDIR");
const PRIVATE: u32 = 0o700;
/// How often a starting daemon is asked whether it is there.
const POLL: Duration = Duration::from_micros(200);
const START_MAX: Duration = Duration::from_mins(2);
/// The kernel takes 107 bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

/// Says so when the numbers will flatter, because the disk is none.
pub fn warn_of_memory_filesystem() -> anyhow::Result<()> {
    let filesystem = statfs(DIRECTORY).with_context(|| format!("cannot look at {DIRECTORY}"))?;
    if filesystem.filesystem_type() == TMPFS_MAGIC {
        eprintln!("warning: {DIRECTORY} is memory, so that no commit waits for a disk");
    }
    Ok(())
}

/// Where a daemon lives. Dropping it deletes everything.
pub struct Home {
    directory: TempDir,
}

impl Home {
    pub fn create() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(DIRECTORY)?;
        let home = Self { directory };
        ensure!(
            home.socket().as_os_str().len() <= SOCKET_PATH_BYTES_MAX,
            "the target directory's path is too long for a socket: {}",
            home.socket().display()
        );
        for path in [home.path("run"), home.state(), home.workspace()] {
            DirBuilder::new().mode(PRIVATE).create(path)?;
        }
        std::fs::write(home.path("config.toml"), home.configuration()?)?;
        Ok(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn database(&self) -> PathBuf {
        self.state().join("acpd.db")
    }

    fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/s")
    }

    /// The defaults, but for limits that a benchmark would run into.
    fn configuration(&self) -> anyhow::Result<String> {
        // A JSON string is a TOML string.
        let program = json!(std::env::current_exe()?);
        let root = json!(self.directory.path());
        let argument = json!(agent::ARGUMENT);
        Ok(format!(
            "[control]\nconnections = 1000\nstreams_per_user = 1000\nrequests_per_second = 1000000\nprompts_per_minute = 1000000\n\
             [workspace]\nroots = [{root}]\n\
             [sessions]\nagent = \"bench\"\nidle_timeout = 0\nturn_cap = 1000000\n\
             [limits]\nprocesses = 1000\n\
             [agents.bench]\ncommand = {program}\nargs = [{argument}]\n"
        ))
    }

    /// Starts the daemon, and returns how long it took until it answered that it is healthy.
    pub fn start(&self) -> anyhow::Result<(Daemon<'_>, Duration)> {
        let log = File::options().create(true).append(true).open(self.path("daemon.log"))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_acpd"));
        command.arg("serve").arg("--config").arg(self.path("config.toml"));
        command.arg("--state-dir").arg(self.state()).arg("--socket").arg(self.socket());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.workspace());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir(self.workspace());
        let start = Instant::now();
        let mut daemon = Daemon { child: command.spawn().context("cannot start acpd")?, home: self };
        while !daemon.is_healthy() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("acpd ended before it was ready: {status}\n{}", self.log());
            }
            ensure!(start.elapsed() < START_MAX, "acpd does not get ready\n{}", self.log());
            // Nobody wakes this thread: it is a pause that costs the daemon less than asking without one.
            std::thread::park_timeout(POLL);
        }
        Ok((daemon, start.elapsed()))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }
}

/// A running daemon. Dropping it stops it, and with it all its agents.
pub struct Daemon<'a> {
    child: Child,
    home: &'a Home,
}

impl Daemon<'_> {
    fn is_healthy(&self) -> bool {
        self.client().is_ok_and(|mut client| client.get("/v1/health").is_ok())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.home.socket()).context("cannot connect to acpd")
    }

    /// Makes a session whose process starts with the first prompt.
    pub fn create_lazy_session(&self) -> anyhow::Result<String> {
        let body = json!({"workspace": self.home.workspace(), "start": "lazy"});
        session_id(&self.client()?.post("/v1/sessions", &body, 201)?)
    }

    /// Makes a session, and returns when its process is ready for prompts.
    pub fn create_session(&self) -> anyhow::Result<Session> {
        let mut client = self.client()?;
        let body = json!({"workspace": self.home.workspace()});
        let id = session_id(&client.post("/v1/sessions", &body, 201)?)?;
        let mut events = Subscriber::connect(&self.home.socket(), &id, 0)?;
        events.until("process.ready")?;
        Ok(Session { socket: self.home.socket(), path: format!("/v1/sessions/{id}/prompt"), id, client, events })
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // Asked to stop it takes its agents with it, within a bound of its own. After a panic nobody waits for that: the
        // shims see that it is gone, and end their agents.
        let signal = if std::thread::panicking() { Signal::SIGKILL } else { Signal::SIGTERM };
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
        let _ = self.child.wait();
    }
}

fn session_id(session: &Value) -> anyhow::Result<String> {
    Ok(session["id"].as_str().context("a session without an id")?.to_owned())
}

/// A session with a process, a connection for prompts and a stream of its events.
pub struct Session {
    socket: PathBuf,
    path: String,
    id: String,
    client: Client,
    events: Subscriber,
}

impl Session {
    /// Another stream of the same events, from where this one is.
    pub fn subscribe(&self) -> anyhow::Result<Subscriber> {
        Subscriber::connect(&self.socket, &self.id, self.events.cursor())
    }

    /// Sends the prompt and returns when that was.
    pub fn send(&mut self, prompt: &str) -> anyhow::Result<Instant> {
        let body = json!({"text": prompt});
        let start = Instant::now();
        self.client.send("POST", &self.path, Some(&body))?;
        Ok(start)
    }

    /// Reads that the prompt was accepted, and returns when that was.
    pub fn accepted(&mut self) -> anyhow::Result<Instant> {
        self.client.receive(202)?;
        Ok(Instant::now())
    }

    /// Reads the turn's events to its end, and returns when that was.
    pub fn completed(&mut self, chunks: usize) -> anyhow::Result<Instant> {
        self.events.until_completed(chunks)
    }

    /// Prompts, and returns how long it took until the turn's end was read from the stream.
    pub fn turn(&mut self, prompt: &str, chunks: usize) -> anyhow::Result<Duration> {
        let start = self.send(prompt)?;
        let end = self.completed(chunks)?;
        self.accepted()?;
        Ok(end - start)
    }
}
