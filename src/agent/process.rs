//! The process and its supervisor: spawn, wait, and the ladder of stopping.
//!
//! ```text
//! running ──stop──▶ stdin closed ──eof_grace──▶ SIGTERM to the group ──term_grace──▶ SIGKILL to the group
//!    └────────────────────┴──────────── exit ────────────┴───────────────────────────────┴──▶ drained ──▶ Exited
//! ```
//!
//! The clock of the ladder starts with the first request to stop, and no later one can reset it; `kill` goes straight
//! to its end.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::fs::Mode;
use tokio::process::Child;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::command::{Command, CommandError, SELF_PROGRAM};
use super::pipes::{self, Signals, Tail};
use super::shim;
use crate::acp::Line;
use crate::lane::{Lane, LaneWatch};

/// Lines that wait to be read by the actor; their bytes are bounded besides.
const OUTPUT_LINES_MAX: usize = 256;
/// Lines that wait to be written to the agent. More means that it does not read.
const INPUT_LINES_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub line_bytes_max: usize,
    pub stderr_tail_bytes: usize,
    pub stdin_timeout: Duration,
    pub eof_grace: Duration,
    pub term_grace: Duration,
    /// The umask that agents get, which is the one the daemon was started with.
    pub umask: Mode,
}

/// What comes from a process, in order.
#[derive(Debug)]
pub enum Output {
    /// The permit is the line's share of the memory for lines that wait; it goes with the line.
    Line { line: Line, permit: OwnedSemaphorePermit },
    /// The agent is alive and takes nothing in.
    NotReading { message: String },
    /// The last one.
    Exited(Exit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("cannot start {program:?} in {workspace:?}")]
    Spawn {
        program: PathBuf,
        workspace: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the process {program:?} was started without its pipes")]
    NoPipes { program: PathBuf },
}

/// The agent does not take what it is sent.
#[derive(Debug, thiserror::Error)]
#[error("the agent does not read its standard input: {INPUT_LINES_MAX} messages wait for it")]
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
    pid: u32,
    input: mpsc::Sender<Bytes>,
    output: mpsc::Receiver<Output>,
    stop: Lane<Stop>,
    stderr: Tail,
}

impl Process {
    /// Starts the agent. Its tasks belong to `tasks`, and outlive the handle until the process is reaped.
    pub fn spawn(command: &Command, bounds: Bounds, tasks: &TaskTracker) -> Result<Self, SpawnError> {
        let mut child = tokio::process::Command::new(SELF_PROGRAM)
            .arg0("acpd")
            .args(shim::arguments(bounds.umask))
            .arg(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(&command.environment)
            .current_dir(&command.workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| SpawnError::Spawn {
                program: command.program.clone(),
                workspace: command.workspace.clone(),
                source,
            })?;
        let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) =
            (child.id(), child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(SpawnError::NoPipes { program: command.program.clone() });
        };

        let (output_sender, output) = mpsc::channel(OUTPUT_LINES_MAX);
        let (input, input_lines) = mpsc::channel(INPUT_LINES_MAX);
        let stop = Lane::new(Stop::No);
        let signals = Signals::default();
        let tail = Tail::new(bounds.stderr_tail_bytes);
        let stderr_tail = tail.clone();
        let span = tracing::Span::current();
        let writing =
            pipes::write_lines(stdin, input_lines, bounds.stdin_timeout, signals.clone(), output_sender.clone());
        tasks.spawn(writing.instrument(span.clone()));
        let reading = pipes::read_lines(stdout, bounds.line_bytes_max, output_sender.clone(), signals.clone());
        let reader = tasks.spawn(reading.instrument(span.clone()));
        let stderr_reader =
            tasks.spawn(pipes::keep_tail(stderr, tail.clone(), signals.clone()).instrument(span.clone()));
        let supervisor = Supervisor { child, pid, bounds, stop: stop.watch(), signals: signals.clone() };
        tasks.spawn(
            async move {
                let status = supervisor.run().await;
                // Whoever is left of the group goes with its leader, and then the pipes end.
                kill_group(pid, Signal::SIGKILL);
                signals.exited.cancel();
                for ended in [reader.await, stderr_reader.await] {
                    if let Err(error) = ended {
                        tracing::error!(pid, %error, "a reader of the agent's pipes did not end well");
                    }
                }
                let exit = Exit { code: status.code(), signal: status.signal(), stderr: tail.text() };
                tracing::info!(pid, code = exit.code, signal = exit.signal, "the agent's process ended");
                // An owner that dropped its handle does not wait for the end.
                drop(output_sender.send(Output::Exited(exit)).await);
            }
            .instrument(span),
        );
        Ok(Self { pid, input, output, stop, stderr: stderr_tail })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The end of what it has written to standard error so far.
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// Queues a line; never waits.
    pub fn send(&self, line: Bytes) -> Result<(), InputFull> {
        match self.input.try_send(line) {
            // A closed pipe is told by `StdinFailed` or `Exited`, which are on their way.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(InputFull),
        }
    }

    /// The next thing from the process; nothing after `Exited`. Safe to cancel.
    pub async fn next(&mut self) -> Option<Output> {
        self.output.recv().await
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

struct Supervisor {
    child: Child,
    pid: u32,
    bounds: Bounds,
    stop: LaneWatch<Stop>,
    signals: Signals,
}

/// The rungs of the ladder, each with the time at which the next one is taken.
#[derive(Clone, Copy, Debug)]
enum Rung {
    Running,
    StdinClosed(Instant),
    Terminated(Instant),
    Killed,
}

impl Rung {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::StdinClosed(at) | Self::Terminated(at) => Some(at),
            Self::Running | Self::Killed => None,
        }
    }

    /// What was asked for and is being done already.
    fn granted(self) -> Stop {
        match self {
            Self::Running => Stop::No,
            Self::StdinClosed(_) | Self::Terminated(_) => Stop::Ladder,
            Self::Killed => Stop::Kill,
        }
    }
}

impl Supervisor {
    /// Waits for the end, helping it along when asked to.
    async fn run(mut self) -> ExitStatus {
        let mut rung = Rung::Running;
        loop {
            let deadline = rung.deadline();
            tokio::select! {
                biased;
                status = self.child.wait() => match status {
                    Ok(status) => return status,
                    Err(error) => {
                        tracing::error!(pid = self.pid, %error, "cannot wait for the agent's process");
                        kill_group(self.pid, Signal::SIGKILL);
                        return ExitStatus::from_raw(0);
                    }
                },
                level = self.stop.above(rung.granted()) => rung = self.climb(rung, level),
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

    fn climb(&self, rung: Rung, level: Stop) -> Rung {
        let now = Instant::now();
        match (rung, level) {
            (_, Stop::Kill) | (Rung::Terminated(_) | Rung::Killed, Stop::Ladder) => {
                self.signals.close_stdin.cancel();
                kill_group(self.pid, Signal::SIGKILL);
                Rung::Killed
            }
            (Rung::Running, Stop::Ladder) => {
                self.signals.close_stdin.cancel();
                Rung::StdinClosed(now + self.bounds.eof_grace)
            }
            (Rung::StdinClosed(_), Stop::Ladder) => {
                kill_group(self.pid, Signal::SIGTERM);
                Rung::Terminated(now + self.bounds.term_grace)
            }
            (rung, Stop::No) => rung,
        }
    }
}

/// Signals everybody in the agent's group. The group outlives its leader while anybody is in it, so its number cannot
/// have been given to another one.
fn kill_group(pid: u32, signal: Signal) {
    let Ok(group) = i32::try_from(pid) else { return };
    match killpg(Pid::from_raw(group), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(pid, %signal, %error, "cannot signal the agent's process group"),
    }
}
