//! The three pipes, each with its own task, so that none can block another.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Take};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use super::process::{InputLine, Output, Shares};
use super::redact::{OwnerSecrets, Stream};
use crate::acp::{BUFFER_BYTES, Line, LineCodec};
use crate::metrics::Metrics;

/// Bytes of lines that wait for the actor. One line may be larger; then it waits alone.
const INBOUND_BYTES_MAX: usize = 256 << 10;
/// Bytes of lines that are handed over together; a quarter of that, so that the actor and the reader work side by side.
const BATCH_BYTES_MAX: usize = INBOUND_BYTES_MAX / 4;
const STDERR_READ_BYTES: usize = 4096;

/// What the tasks of one process tell each other.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// The agent runs, and its owner was told who it is.
    pub started: CancellationToken,
    /// We close its standard input: the first rung of the ladder.
    pub close_stdin: CancellationToken,
    /// The agent has closed its end of a pipe: it cannot be talked to any more.
    pub broken: CancellationToken,
    /// The process is gone.
    pub exited: CancellationToken,
}

/// Reads on after the exit only what is in the pipe then. A descendant of the agent may hold the pipe open and write to
/// it for ever, but what the agent itself wrote is all there.
pub(super) fn end_with_what_is_there<R: AsyncRead + AsFd>(pipe: &mut Take<R>) {
    let bytes = rustix::io::ioctl_fionread(pipe.get_ref()).unwrap_or(0);
    pipe.set_limit(bytes);
}

/// Reads lines until the pipe ends. When the actor does not take them, neither are they read, and the agent waits.
pub async fn read_lines(
    stdout: impl AsyncRead + AsFd + Unpin,
    codec: LineCodec,
    output: mpsc::Sender<Output>,
    signals: Signals,
    metrics: Arc<Metrics>,
) {
    let budget = Arc::new(Semaphore::new(INBOUND_BYTES_MAX));
    let mut lines = FramedRead::with_capacity(stdout.take(u64::MAX), codec, BUFFER_BYTES);
    // The owner hears who the agent is before it hears the agent.
    tokio::select! {
        () = signals.started.cancelled() => {}
        () = signals.exited.cancelled() => {}
    }
    let mut is_ending = false;
    loop {
        let line = tokio::select! {
            biased;
            () = signals.exited.cancelled(), if !is_ending => {
                is_ending = true;
                end_with_what_is_there(lines.get_mut());
                continue;
            }
            line = lines.next() => line,
        };
        let line = match line {
            None => break,
            Some(Ok(line)) => line,
            Some(Err(error)) => {
                log_unreadable(&error);
                break;
            }
        };
        let (batch, bytes) = with_those_that_are_there(line, &mut lines);
        metrics.heard(bytes);
        let share = u32::try_from(bytes.min(INBOUND_BYTES_MAX)).unwrap_or(u32::MAX);
        let Ok(share) = Arc::clone(&budget).acquire_many_owned(share).await else {
            break;
        };
        // A batch ends with the first long line.
        let shares = Shares { _of_the_agent: share, _of_all: lines.decoder_mut().take_share() };
        if output.send(Output::Lines { lines: batch, shares }).await.is_err() {
            break;
        }
    }
    signals.broken.cancel();
}

/// A line with those that have come after it already, up to a bound, and how many bytes they are. An agent that talks fast
/// is heard in few, larger pieces.
fn with_those_that_are_there<R: AsyncRead + Unpin>(
    first: Line,
    lines: &mut FramedRead<R, LineCodec>,
) -> (Vec<Line>, usize) {
    let mut bytes = bytes_of(&first);
    let mut batch = vec![first];
    while bytes < BATCH_BYTES_MAX {
        match lines.next().now_or_never() {
            Some(Some(Ok(line))) => {
                bytes += bytes_of(&line);
                batch.push(line);
            }
            Some(Some(Err(error))) => {
                // The end of the stream, which follows, is all that can be done about it.
                log_unreadable(&error);
                break;
            }
            Some(None) | None => break,
        }
    }
    (batch, bytes)
}

fn log_unreadable(error: &std::io::Error) {
    tracing::warn!(%error, "cannot read the agent's output");
}

fn bytes_of(line: &Line) -> usize {
    match line {
        Line::Text(text) => text.len(),
        Line::TooLong { .. } => 0,
    }
}

/// Writes lines in order until it is told to close; what waits then is written first. An agent that does not read is
/// noticed by the deadline of a write. One that has closed its end is not at fault yet: what it said before is still to
/// be read, and its exit tells more.
pub async fn write_lines(
    mut pipe: impl AsyncWrite + Unpin,
    mut lines: mpsc::UnboundedReceiver<InputLine>,
    timeout: Duration,
    signals: Signals,
    output: mpsc::Sender<Output>,
    metrics: Arc<Metrics>,
) {
    let mut is_closing = false;
    loop {
        let line = tokio::select! {
            biased;
            () = signals.close_stdin.cancelled(), if !is_closing => {
                is_closing = true;
                lines.close();
                continue;
            }
            line = lines.recv() => line,
        };
        let Some(InputLine { line, room: _room }) = line else { return };
        let write = async {
            pipe.write_all(&line).await?;
            pipe.flush().await
        };
        let written = tokio::select! {
            biased;
            written = tokio::time::timeout(timeout, write) => written,
            // A write that does not get through now would keep the pipe open for a goodbye that nobody reads.
            () = signals.close_stdin.cancelled() => return,
        };
        match written {
            Ok(Ok(())) => metrics.told(line.len()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the agent has closed its standard input");
                return signals.broken.cancel();
            }
            Err(_) => {
                let message =
                    format!("the agent did not read its standard input for {timeout:?} (processes.stdin_timeout)");
                // An actor that is gone needs no telling.
                return drop(output.send(Output::NotReading { message }).await);
            }
        }
    }
}

/// The last bytes of standard error.
#[derive(Clone, Debug)]
pub struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    bytes_max: usize,
}

impl Tail {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::default(), bytes_max }
    }

    fn push(&self, chunk: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend(chunk);
        let excess = bytes.len().saturating_sub(self.bytes_max);
        bytes.drain(..excess);
    }

    pub fn text(&self) -> String {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(bytes.make_contiguous()).trim().to_owned()
    }
}

/// Keeps the tail of standard error until the pipe ends, without the secrets in it: they are taken out before anything is
/// cut.
pub async fn keep_tail(stderr: impl AsyncRead + AsFd + Unpin, tail: Tail, secrets: OwnerSecrets, signals: Signals) {
    let mut stream = Stream::default();
    let keep = |chunk: &[u8]| {
        tail.push(chunk);
        tracing::debug!(stderr = %String::from_utf8_lossy(chunk).trim_end(), "the agent wrote to standard error");
    };
    let mut stderr = stderr.take(u64::MAX);
    let mut buffer = vec![0; STDERR_READ_BYTES];
    let mut is_ending = false;
    loop {
        let count = tokio::select! {
            biased;
            () = signals.exited.cancelled(), if !is_ending => {
                is_ending = true;
                end_with_what_is_there(&mut stderr);
                continue;
            }
            count = stderr.read(&mut buffer) => count,
        };
        let Ok(count @ 1..) = count else { break };
        match secrets.redactor() {
            Some(redactor) => keep(&stream.push(&redactor, &buffer[..count])),
            None => keep(&buffer[..count]),
        }
    }
    let rest = stream.end(secrets.redactor().as_deref());
    if !rest.is_empty() {
        keep(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_and_bounded() {
        let tail = Tail::new(8);
        tail.push(b"first ");
        tail.push("grün last".as_bytes());
        assert!(tail.text().ends_with("last"));
        assert!(tail.text().len() <= 8 + '\u{fffd}'.len_utf8());
    }
}
