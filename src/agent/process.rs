//! The process and its supervisor: spawn, wait, and the ladder of stopping.
//!
//! ```text
//! running ──stop──▶ stdin closed ──eof_grace──▶ SIGTERM to the group ──term_grace──▶ everything killed
//!    └────────────────────┴──────────── exit ────────────┴───────────────────────────────┴──▶ drained ──▶ Exited
//! ```
//!
//! The clock of the ladder starts with the first request to stop, and no later one can reset it; `kill` goes straight
//! to its end. Signals are sent by the shim, which alone knows that the numbers are still the agent's. A shim that does
//! not do as it is told is killed itself, and the daemon ends what it leaves.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::Mode;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::cgroup::{AgentCgroup, CgroupDoor, CgroupLimits};
use super::children::Children;
use super::command::{Command, CommandError};
use super::confine::RefusedDirectory;
use super::host::Host;
use super::keeper::Keeper;
use super::pipes::{self, Signals, Tail};
use super::procfs;
use super::redact::OwnerSecrets;
use super::shim::{Order, Report, Shim, Started, Told};
use crate::acp::{Line, LineCodec};
use crate::config::Config;
use crate::lane::{Lane, LaneWatch};
use crate::metrics::{Metrics, StopStep};
use crate::model::Sandbox;
use crate::model::session::{ProcessIdentity, ProcessName};

/// Batches of lines that wait to be read by the actor; their bytes are bounded besides.
const OUTPUT_BATCHES_MAX: usize = 64;
/// Bytes that wait to be written to the agent. More means that it does not read. An agent that asks for many things at once is
/// answered many things at once, so it is not their number that counts.
const INPUT_BYTES_MAX: usize = 64 << 20;
/// What a line counts at the least.
const INPUT_LINE_BYTES_MIN: usize = 4 << 10;
/// How long a shim may take to end what is below it. It takes milliseconds, seconds for a fork bomb, and for ever when the
/// kernel holds a process.
const SHIM_GRACE: Duration = Duration::from_secs(10);

/// How long a session waits for the end of what a killed shim left.
const STRAYS_WAIT: Duration = Duration::from_secs(3);
/// How long it waits for a cgroup to be empty.
const CGROUP_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub line_bytes_max: usize,
    pub stderr_tail_bytes: usize,
    pub stdin_timeout: Duration,
    pub eof_grace: Duration,
    pub term_grace: Duration,
    pub cgroup: CgroupLimits,
    /// The umask that agents get, which is the one the daemon was started with.
    pub umask: Mode,
}

impl Bounds {
    pub fn new(config: &Config, umask: Mode) -> Self {
        Self {
            line_bytes_max: config.limits.line_max.0,
            stderr_tail_bytes: config.limits.stderr_tail.0,
            stdin_timeout: config.processes.stdin_timeout,
            eof_grace: config.processes.eof_grace,
            term_grace: config.processes.term_grace,
            cgroup: CgroupLimits { memory: config.limits.memory_max, pids: config.limits.pids_max },
            umask,
        }
    }
}

/// What comes from a process, in order.
#[derive(Debug)]
pub enum Output {
    /// The agent runs: who it is, and what holds it.
    Started {
        identity: Box<ProcessIdentity>,
        sandbox: Box<Sandbox>,
        /// What is known of how the agent signs in, for when that fails.
        account: Option<String>,
    },
    /// With their shares of the memory for lines, which go with them.
    Lines { lines: Vec<Line>, shares: Shares },
    /// The agent is alive and takes nothing in.
    NotReading { message: String },
    /// The last one.
    Exited(Exit),
}

/// A line for the agent, with its share of the room for such lines.
#[derive(Debug)]
pub struct InputLine {
    pub line: Bytes,
    /// Given back when it is written.
    pub room: OwnedSemaphorePermit,
}

/// The memory that lines on their way to the actor take, until they are dropped.
#[derive(Debug)]
pub struct Shares {
    pub(super) _of_the_agent: OwnedSemaphorePermit,
    pub(super) _of_all: Option<OwnedSemaphorePermit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stderr: String,
    pub cause: Cause,
}

impl Exit {
    /// Nobody saw it.
    pub const LOST: Self = Self { code: None, signal: None, stderr: String::new(), cause: Cause::ShimLost };
}

/// What is known of why a process ended, beside its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended, or was ended; the status tells.
    Ended,
    /// It never started, and why.
    NotStarted(String),
    /// The kernel killed it, because it used more memory than it may.
    OutOfMemory,
    /// Its shim was killed, so that nobody saw its end. Whatever was left was ended.
    ShimLost,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot create the session's own directories in the state directory")]
    Directories(#[source] std::io::Error),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Confinement(#[from] RefusedDirectory),
    #[error("cannot start {program:?} in {workspace:?}")]
    Spawn {
        program: PathBuf,
        workspace: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl SpawnError {
    pub(super) fn of(command: &Command, source: std::io::Error) -> Self {
        Self::Spawn { program: command.program.clone(), workspace: command.workspace.clone(), source }
    }
}

/// The agent does not take what it is sent.
#[derive(Debug, thiserror::Error)]
#[error("the agent does not read its standard input: more than {INPUT_BYTES_MAX} bytes wait for it")]
pub struct InputFull;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stop {
    No,
    Ladder,
    Kill,
}

/// A running agent, for the one who owns it.
#[derive(Debug)]
pub struct Process {
    /// Nothing, when nothing more is said to it.
    input: Option<mpsc::UnboundedSender<InputLine>>,
    input_room: Arc<Semaphore>,
    output: mpsc::Receiver<Output>,
    stop: Lane<Stop>,
    /// Has the shim give a renewed login back, where it may have lent one.
    give_back: Option<Arc<Notify>>,
    stderr: Tail,
    /// Where its terminals go.
    door: Option<CgroupDoor>,
    shim: i32,
}

impl Process {
    /// Starts the agent. Its tasks belong to the host, and outlive the handle until nothing is left of the process. What it
    /// starts with is secret from here on.
    pub fn spawn(command: &Command, bounds: Bounds, secrets: OwnerSecrets, host: &Host) -> Result<Self, SpawnError> {
        secrets.learn(command.secrets.clone());
        let cgroup = host.cgroups.as_ref().and_then(|cgroups| cgroups.create(command.session, bounds.cgroup));
        let started = match Shim::start(command, bounds.umask, cgroup.as_ref(), &host.children) {
            Ok(started) => started,
            Err(source) => {
                // Nobody is in it, so it is removed at once.
                if let Some(cgroup) = cgroup {
                    cgroup.remove();
                }
                return Err(SpawnError::of(command, source));
            }
        };
        let Started { shim, stdin, stdout, stderr } = started;
        let shim_pid = shim.pid();
        let door = cgroup.as_ref().map(AgentCgroup::door);

        let (output_sender, output) = mpsc::channel(OUTPUT_BATCHES_MAX);
        let (input, input_lines) = mpsc::unbounded_channel();
        let stop = Lane::new(Stop::No);
        let give_back = command.adapter_home.as_ref().map(|_| Arc::new(Notify::new()));
        let signals = Signals::default();
        let tail = Tail::new(bounds.stderr_tail_bytes);
        let span = tracing::Span::current();
        let timeout = bounds.stdin_timeout;
        let metrics = Arc::clone(&host.metrics);
        let writing = pipes::write_lines(stdin, input_lines, timeout, signals.clone(), output_sender.clone(), metrics);
        host.tasks.spawn(writing.instrument(span.clone()));
        let codec = LineCodec::new(bounds.line_bytes_max, Arc::clone(&host.long_lines));
        let reading =
            pipes::read_lines(stdout, codec, output_sender.clone(), signals.clone(), Arc::clone(&host.metrics));
        let reader = host.tasks.spawn(reading.instrument(span.clone()));
        let keeping = pipes::keep_tail(stderr, tail.clone(), secrets, signals.clone());
        let stderr_reader = host.tasks.spawn(keeping.instrument(span.clone()));
        let supervisor = Supervisor {
            shim,
            bounds,
            boot_id: host.boot_id.clone(),
            daemon: host.daemon,
            cgroup,
            children: Arc::clone(&host.children),
            keeper: host.keeper.clone(),
            stop: stop.watch(),
            give_back: give_back.clone(),
            signals: signals.clone(),
            output: output_sender.clone(),
            sandbox: Sandbox::NONE,
            account: None,
            metrics: Arc::clone(&host.metrics),
        };
        let stderr = tail.clone();
        let ends = [signals.close_stdin.clone().drop_guard(), signals.exited.clone().drop_guard()];
        let supervision = async move {
            // However this task ends, the others do not wait for it.
            let _ends = ends;
            let Ending { code, signal, cause } = supervisor.run().await;
            signals.exited.cancel();
            for ended in [reader.await, stderr_reader.await] {
                if let Err(error) = ended {
                    tracing::error!(%error, "a task that reads the agent's output failed");
                }
            }
            tracing::info!(code, signal, ?cause, "the agent's process has ended");
            // An owner that dropped its handle does not wait for the end.
            drop(output_sender.send(Output::Exited(Exit { code, signal, stderr: tail.text(), cause })).await);
        };
        host.tasks.spawn(supervision.instrument(span));
        let input_room = Arc::new(Semaphore::new(INPUT_BYTES_MAX));
        Ok(Self { input: Some(input), input_room, output, stop, give_back, stderr, door, shim: shim_pid })
    }

    /// The way into its cgroup, where it has one.
    pub fn cgroup_door(&self) -> Option<&CgroupDoor> {
        self.door.as_ref()
    }

    /// The end of what it has written to standard error so far.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Nothing more is said to it.
    pub fn hush(&mut self) {
        self.input = None;
    }

    /// Queues a line; never waits.
    pub fn send(&self, line: Bytes) -> Result<(), InputFull> {
        let Some(input) = &self.input else { return Ok(()) };
        let bytes = u32::try_from(line.len().clamp(INPUT_LINE_BYTES_MIN, INPUT_BYTES_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.input_room).try_acquire_many_owned(bytes).map_err(|_| InputFull)?;
        // A closed pipe is told by `Exited`, which is on its way.
        input.send(InputLine { line, room }).ok();
        Ok(())
    }

    /// The next thing from the process; nothing after `Exited`. Safe to cancel.
    pub async fn next(&mut self) -> Option<Output> {
        self.output.recv().await
    }

    /// The process id of its shim, below which all of it is.
    pub fn shim(&self) -> i32 {
        self.shim
    }

    /// Whether [`Self::next`] has something at once.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Has a login that the agent has renewed given back to the user. At its end that is done without a word.
    pub fn give_login_back(&self) {
        if let Some(give_back) = &self.give_back {
            give_back.notify_one();
        }
    }

    /// Starts down the ladder. Asking again changes nothing.
    pub fn stop(&self) {
        self.stop.raise(Stop::Ladder);
    }

    /// Goes to the end of the ladder at once.
    pub fn kill(&self) {
        self.stop.raise(Stop::Kill);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Resolves when a login is wished back; never, where none was lent.
async fn wished(give_back: Option<&Notify>) {
    match give_back {
        Some(give_back) => give_back.notified().await,
        None => std::future::pending().await,
    }
}

struct Supervisor {
    shim: Shim,
    bounds: Bounds,
    boot_id: String,
    daemon: ProcessName,
    cgroup: Option<AgentCgroup>,
    children: Arc<Children>,
    keeper: Keeper,
    stop: LaneWatch<Stop>,
    give_back: Option<Arc<Notify>>,
    signals: Signals,
    output: mpsc::Sender<Output>,
    /// What holds the agent, as its shim has told.
    sandbox: Sandbox,
    /// What its shim has told of how it signs in.
    account: Option<String>,
    metrics: Arc<Metrics>,
}

/// The rungs of the ladder, each with the time at which the next one is taken.
#[derive(Clone, Copy, Debug)]
enum Rung {
    Running,
    StdinClosed(Instant),
    Terminated(Instant),
    Killed(Instant),
    ShimKilled,
}

impl Rung {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::StdinClosed(at) | Self::Terminated(at) | Self::Killed(at) => Some(at),
            Self::Running | Self::ShimKilled => None,
        }
    }

    /// What was asked for and is being done already.
    fn granted(self) -> Stop {
        match self {
            Self::Running => Stop::No,
            Self::StdinClosed(_) | Self::Terminated(_) => Stop::Ladder,
            Self::Killed(_) | Self::ShimKilled => Stop::Kill,
        }
    }
}

/// How it ended, as far as the shim has told.
struct Ending {
    code: Option<i32>,
    signal: Option<i32>,
    cause: Cause,
}

impl Supervisor {
    /// Waits for the end, helping it along when asked to, and sees to it that nothing is left.
    async fn run(mut self) -> Ending {
        let (status, told) = self.watch().await;
        let is_clean = status.is_some_and(|status| status.success());
        if !is_clean && !matches!(told, Some(Ending { cause: Cause::NotStarted(_), .. })) {
            tracing::error!(shim = self.shim.pid(), ?status, "an agent's shim ended unexpectedly");
            let children = Arc::clone(&self.children);
            self.keeper.run(STRAYS_WAIT, move || children.end_strays()).await;
        }
        let mut ending = told.unwrap_or(Ending { code: None, signal: None, cause: Cause::ShimLost });
        if let Some(cgroup) = self.cgroup {
            if matches!(ending.cause, Cause::Ended) && cgroup.was_out_of_memory() {
                ending.cause = Cause::OutOfMemory;
            }
            // As a rule it is empty by now.
            if !cgroup.remove_when_empty() {
                self.keeper.run(CGROUP_WAIT, move || cgroup.remove()).await;
            }
        }
        ending
    }

    /// Until the shim is gone: its status, and what it told of the agent's end.
    async fn watch(&mut self) -> (Option<ExitStatus>, Option<Ending>) {
        let mut rung = Rung::Running;
        let mut ending = None;
        loop {
            let deadline = rung.deadline();
            tokio::select! {
                biased;
                told = self.shim.next() => match told {
                    Ok(Told::Report(report)) => {
                        ending = self.on_report(report).await.or(ending);
                        // The agent is gone; what it left goes now, and nobody waits for that without a bound.
                        if ending.is_some() && rung.granted() < Stop::Kill {
                            rung = self.kill_all();
                        }
                    }
                    Ok(Told::Gone(status)) => return (Some(status), ending),
                    Err(error) => {
                        tracing::error!(shim = self.shim.pid(), %error, "cannot wait for an agent's shim");
                        return (None, ending);
                    }
                },
                level = self.stop.above(rung.granted()) => rung = self.climb(rung, level),
                () = wished(self.give_back.as_deref()) => self.shim.order(Order::GiveBack),
                // An agent that cannot be talked to is of no use: it has the grace to end by itself.
                () = self.signals.broken.cancelled(), if matches!(rung, Rung::Running) => {
                    rung = self.climb(rung, Stop::Ladder);
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    rung = self.climb(rung, Stop::Ladder);
                }
            }
        }
    }

    async fn on_report(&mut self, report: Report) -> Option<Ending> {
        match report {
            Report::Account(account) => {
                self.account = Some(account);
                None
            }
            Report::Confined(sandbox) => {
                self.sandbox = sandbox;
                None
            }
            Report::Started(agent) => {
                // The shim is our child and not reaped, so its number is its own.
                let pid = self.shim.pid();
                let shim = procfs::name(pid).unwrap_or(ProcessName { pid, started: 0 });
                let identity = ProcessIdentity {
                    boot_id: self.boot_id.clone(),
                    daemon: self.daemon,
                    shim,
                    agent,
                    group: agent.pid,
                    cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.directory().display().to_string()),
                };
                // An owner that dropped its handle needs no telling.
                let (identity, sandbox) = (Box::new(identity), Box::new(self.sandbox.clone()));
                let account = self.account.take();
                drop(self.output.send(Output::Started { identity, sandbox, account }).await);
                self.signals.started.cancel();
                None
            }
            Report::Failed(message) => Some(Ending { code: None, signal: None, cause: Cause::NotStarted(message) }),
            Report::Exited { code, signal } => Some(Ending { code, signal, cause: Cause::Ended }),
        }
    }

    /// Has the shim end whatever there is.
    fn kill_all(&mut self) -> Rung {
        self.signals.close_stdin.cancel();
        self.shim.order(Order::Kill);
        Rung::Killed(Instant::now() + SHIM_GRACE)
    }

    fn climb(&mut self, rung: Rung, level: Stop) -> Rung {
        let now = Instant::now();
        match (rung, level) {
            (Rung::Killed(_) | Rung::ShimKilled, Stop::Ladder) => {
                self.metrics.stop_step(StopStep::Shim);
                self.shim.kill();
                Rung::ShimKilled
            }
            (_, Stop::Kill) | (Rung::Terminated(_), Stop::Ladder) => {
                self.metrics.stop_step(StopStep::Kill);
                self.kill_all()
            }
            (Rung::Running, Stop::Ladder) => {
                self.metrics.stop_step(StopStep::Eof);
                self.signals.close_stdin.cancel();
                Rung::StdinClosed(now + self.bounds.eof_grace)
            }
            (Rung::StdinClosed(_), Stop::Ladder) => {
                self.metrics.stop_step(StopStep::Terminate);
                self.shim.order(Order::Terminate);
                Rung::Terminated(now + self.bounds.term_grace)
            }
            (rung, Stop::No) => rung,
        }
    }
}
