//! Terminals: commands that an agent has run, each another process of its session under a shim of its own.
//!
//! A terminal is born in the agent's cgroup, where there is one, and goes with it; but the end of a terminal does not end
//! the agent, so its shim is not given the file that kills the cgroup. Standard output and standard error are one pipe, so
//! that what the command wrote is kept in the order in which it wrote it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::Mode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::cgroup::CgroupDoor;
use super::children::Children;
use super::command::Command;
use super::host::Host;
use super::keeper::Keeper;
use super::pipes::end_with_what_is_there;
use super::process::SpawnError;
use super::shim::{Order, Report, Shim, Told};
use crate::lane::{Lane, LaneWatch};

const READ_BYTES: usize = 16 << 10;
/// How long a shim may take to end what is below it, before it is ended itself.
const SHIM_GRACE: Duration = Duration::from_secs(10);
/// How long to wait for the end of what a killed shim left.
const STRAYS_WAIT: Duration = Duration::from_secs(3);

/// What is told of a terminal, by its id: `Started` once at most, `Ended` once and last.
#[derive(Debug)]
pub enum TerminalTold {
    Started,
    /// Nothing is left of it, and all that it wrote is kept.
    Ended(TerminalEnd),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalEnd {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Why it never started.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct TerminalBounds {
    pub output_bytes_max: usize,
    /// The umask that agents get, and their terminals too.
    pub umask: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stop {
    No,
    Kill,
}

/// A terminal, for the one who owns it. Dropping it kills.
#[derive(Debug)]
pub struct Terminal {
    stop: Lane<Stop>,
    output: Output,
    shim: i32,
}

impl Terminal {
    /// Starts the command. Its tasks belong to the host, and outlive the handle until
    /// nothing is left of it.
    pub fn spawn(
        id: String,
        command: &Command,
        bounds: TerminalBounds,
        door: Option<&CgroupDoor>,
        host: &Host,
        told: mpsc::Sender<(String, TerminalTold)>,
    ) -> Result<Self, SpawnError> {
        let started = Shim::start_terminal(command, bounds.umask, door, &host.children);
        let started = started.map_err(|source| SpawnError::of(command, source))?;
        Ok(Self::supervise(id, started, bounds.output_bytes_max, host, told))
    }

    /// Keeps what it writes, and sees it to its end.
    pub(super) fn supervise(
        id: String,
        (shim, written): (Shim, pipe::Receiver),
        output_bytes_max: usize,
        host: &Host,
        told: mpsc::Sender<(String, TerminalTold)>,
    ) -> Self {
        let (stop, shim_pid) = (Lane::new(Stop::No), shim.pid());
        let output = Output::new(output_bytes_max);
        let exited = CancellationToken::new();
        let reader = host.tasks.spawn(keep_output(written, output.clone(), exited.clone()));
        let supervisor =
            Supervisor { id, shim, children: Arc::clone(&host.children), keeper: host.keeper.clone(), told };
        let watch = stop.watch();
        let supervision = async move {
            // However this task ends, the reader does not wait for it.
            let guard = exited.drop_guard();
            supervisor
                .run(watch, async move {
                    drop(guard);
                    if let Err(error) = reader.await {
                        tracing::error!(%error, "a task that reads a terminal's output failed");
                    }
                })
                .await;
        };
        host.tasks.spawn(supervision.instrument(tracing::Span::current()));
        Self { stop, output, shim: shim_pid }
    }

    /// The process id of its shim, below which its command is.
    pub fn shim(&self) -> i32 {
        self.shim
    }

    /// Ends the command, and all that it started. Asking again changes nothing.
    pub fn kill(&self) {
        self.stop.raise(Stop::Kill);
    }

    /// What is kept of what it wrote, and whether the beginning is missing. While it runs, a character of which only a
    /// part has come is left for the next time.
    pub fn output(&self, has_ended: bool) -> (String, bool) {
        self.output.text(has_ended)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Supervisor {
    id: String,
    shim: Shim,
    children: Arc<Children>,
    keeper: Keeper,
    told: mpsc::Sender<(String, TerminalTold)>,
}

impl Supervisor {
    async fn run(mut self, stop: LaneWatch<Stop>, drained: impl Future<Output = ()>) {
        let (is_clean, end) = self.watch(stop).await;
        if !is_clean && end.failure.is_none() {
            tracing::error!(shim = self.shim.pid(), "a terminal's shim ended unexpectedly");
            let children = Arc::clone(&self.children);
            self.keeper.run(STRAYS_WAIT, move || children.end_strays()).await;
        }
        drained.await;
        self.tell(TerminalTold::Ended(end)).await;
    }

    /// An owner that is gone needs no telling.
    async fn tell(&self, told: TerminalTold) {
        drop(self.told.send((self.id.clone(), told)).await);
    }

    /// Until the shim is gone: whether it ended as it should, and what it told of the command.
    async fn watch(&mut self, mut stop: LaneWatch<Stop>) -> (bool, TerminalEnd) {
        let mut end = TerminalEnd::default();
        let (mut granted, mut deadline) = (Stop::No, None::<Instant>);
        loop {
            tokio::select! {
                biased;
                told = self.shim.next() => match told {
                    // The same holds it that holds the agent.
                    Ok(Told::Report(Report::Confined(_) | Report::Account(_))) => {}
                    Ok(Told::Report(Report::Started(_))) => self.tell(TerminalTold::Started).await,
                    Ok(Told::Report(Report::Failed(message))) => end.failure = Some(message),
                    Ok(Told::Report(Report::Exited { code, signal })) => {
                        (end.code, end.signal) = (code, signal);
                        // What the command left goes now, and nobody waits for that without a bound.
                        deadline.get_or_insert(Instant::now() + SHIM_GRACE);
                    }
                    Ok(Told::Gone(status)) => return (status.success(), end),
                    Err(error) => {
                        tracing::error!(shim = self.shim.pid(), %error, "cannot wait for a terminal's shim");
                        return (false, end);
                    }
                },
                level = stop.above(granted) => {
                    granted = level;
                    self.shim.order(Order::Kill);
                    deadline.get_or_insert(Instant::now() + SHIM_GRACE);
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.shim.kill();
                    deadline = None;
                }
            }
        }
    }
}

/// The end of what was written, bounded.
#[derive(Clone, Debug)]
struct Output {
    kept: Arc<Mutex<Kept>>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl Output {
    fn new(bytes_max: usize) -> Self {
        Self { kept: Arc::default(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, chunk: &[u8]) {
        let mut kept = self.lock();
        kept.bytes.extend(chunk);
        let excess = kept.bytes.len().saturating_sub(self.bytes_max);
        kept.bytes.drain(..excess);
        kept.is_cut |= excess > 0;
    }

    fn text(&self, has_ended: bool) -> (String, bool) {
        let mut kept = self.lock();
        let is_cut = kept.is_cut;
        let mut bytes: &[u8] = kept.bytes.make_contiguous();
        if is_cut {
            let rest = bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
            bytes = &bytes[rest..];
        }
        if !has_ended {
            bytes = &bytes[..bytes.len() - unfinished(bytes)];
        }
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        // What stands for bytes that are not UTF-8 is longer than they are.
        let excess = text.len().saturating_sub(self.bytes_max);
        let start = (excess..=text.len()).find(|index| text.is_char_boundary(*index)).unwrap_or(text.len());
        text.drain(..start);
        (text, is_cut || start > 0)
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes at the end are the beginning of a character of which the rest has not come.
fn unfinished(bytes: &[u8]) -> usize {
    let trailing = bytes.iter().rev().take(3).take_while(|byte| is_continuation(**byte)).count();
    let length = match bytes.iter().rev().nth(trailing) {
        Some(0b1100_0000..=0b1101_1111) => 2,
        Some(0b1110_0000..=0b1110_1111) => 3,
        Some(0b1111_0000..=0b1111_0111) => 4,
        _ => return 0,
    };
    if trailing + 1 < length { trailing + 1 } else { 0 }
}

/// Keeps what is written until the pipe ends; after the end of the command, what is in the pipe then.
async fn keep_output(written: pipe::Receiver, output: Output, exited: CancellationToken) {
    let mut written = written.take(u64::MAX);
    let mut buffer = vec![0; READ_BYTES];
    let mut is_ending = false;
    loop {
        let count = tokio::select! {
            biased;
            () = exited.cancelled(), if !is_ending => {
                is_ending = true;
                end_with_what_is_there(&mut written);
                continue;
            }
            count = written.read(&mut buffer) => count,
        };
        let Ok(count @ 1..) = count else { break };
        output.push(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes_max: usize, chunks: &[&[u8]], has_ended: bool) -> (String, bool) {
        let output = Output::new(bytes_max);
        for chunk in chunks {
            output.push(chunk);
        }
        output.text(has_ended)
    }

    #[test]
    fn the_beginning_is_dropped_on_a_character_boundary() {
        let text = "grüße über 😀 alles".as_bytes();
        for bytes_max in 0..=text.len() {
            for piece in 1..5 {
                let chunks: Vec<&[u8]> = text.chunks(piece).collect();
                let (kept, is_cut) = output(bytes_max, &chunks, true);
                assert!(kept.len() <= bytes_max && !kept.contains('\u{fffd}'), "{bytes_max}: {kept:?}");
                assert!("grüße über 😀 alles".ends_with(&kept), "{bytes_max}: {kept:?}");
                assert!(kept.len() + 3 >= bytes_max, "no more is dropped than one character");
                assert_eq!(is_cut, bytes_max < text.len());
            }
        }
    }

    #[test]
    fn what_is_not_utf_8_is_replaced_and_still_within_the_limit() {
        assert_eq!(output(100, &[b"a\xffb"], true), ("a\u{fffd}b".to_owned(), false));
        assert_eq!(output(4, &[b"\xff\xff\xff"], true), ("\u{fffd}".to_owned(), true));
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        assert_eq!(output(100, &[b"a\xe2\x82"], false).0, "a");
        assert_eq!(output(100, &[b"a\xe2\x82", b"\xac"], false).0, "a€");
        assert_eq!(output(100, &[b"a\xe2\x82"], true).0, "a\u{fffd}", "there is no other half");
        assert_eq!(output(100, &["a€".as_bytes()], false).0, "a€");
    }
}
