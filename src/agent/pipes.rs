//! The three pipes, each with its own task, so that none can block another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use super::process::Output;
use crate::acp::{Line, LineCodec};

/// Bytes of lines that wait for the actor. One line may be larger; then it waits alone.
const INBOUND_BYTES_MAX: usize = 4 << 20;
const STDERR_READ_BYTES: usize = 4096;

/// Says when to stop reading a pipe that does not end, because a descendant of the agent holds it open: when the agent
/// is gone and nothing has come for a while. What is in the pipe already is always read, however slow the reader.
#[derive(Clone, Debug)]
pub struct Drain {
    pub exited: CancellationToken,
    pub grace: Duration,
}

impl Drain {
    async fn is_over(&self) {
        self.exited.cancelled().await;
        tokio::time::sleep_until(Instant::now() + self.grace).await;
    }
}

/// Reads lines until the pipe ends. When the actor does not take them, neither are they read, and the agent waits.
pub async fn read_lines(
    stdout: impl AsyncRead + Unpin,
    line_bytes_max: usize,
    output: mpsc::Sender<Output>,
    drain: Drain,
) {
    let budget = Arc::new(Semaphore::new(INBOUND_BYTES_MAX));
    let mut lines = FramedRead::new(stdout, LineCodec::new(line_bytes_max));
    loop {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            () = drain.is_over() => break,
        };
        let line = match line {
            None => break,
            Some(Ok(line)) => line,
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot read the agent's output");
                break;
            }
        };
        let bytes = match &line {
            Line::Text(text) => text.len(),
            Line::TooLong { .. } | Line::NotUtf8 { .. } => 0,
        };
        let share = u32::try_from(bytes.min(INBOUND_BYTES_MAX)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&budget).acquire_many_owned(share).await else {
            break;
        };
        if output.send(Output::Line { line, permit }).await.is_err() {
            break;
        }
    }
}

/// When standard input is closed, and by whom.
#[derive(Clone, Debug, Default)]
pub struct Stdin {
    /// We close it: the first rung of the ladder.
    pub close: CancellationToken,
    /// The agent has closed it, or is gone.
    pub broken: CancellationToken,
}

/// Writes lines in order until it is told to close. An agent that does not read is noticed by the deadline of a write.
/// One that has closed its end is not at fault yet: what it said before is still to be read, and its exit tells more.
pub async fn write_lines(
    mut pipe: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
    timeout: Duration,
    stdin: Stdin,
    output: mpsc::Sender<Output>,
) {
    loop {
        let line = tokio::select! {
            biased;
            () = stdin.close.cancelled() => return,
            line = lines.recv() => line,
        };
        let Some(line) = line else { return };
        let write = async {
            pipe.write_all(&line).await?;
            pipe.flush().await
        };
        let written = tokio::select! {
            biased;
            () = stdin.close.cancelled() => return,
            written = tokio::time::timeout(timeout, write) => written,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the agent has closed its standard input");
                return stdin.broken.cancel();
            }
            Err(_) => {
                let message = format!("the agent did not read its standard input for {timeout:?}");
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

/// Keeps the tail of standard error until the pipe ends.
pub async fn keep_tail(mut stderr: impl AsyncRead + Unpin, tail: Tail, drain: Drain) {
    let mut buffer = vec![0; STDERR_READ_BYTES];
    loop {
        let count = tokio::select! {
            biased;
            count = stderr.read(&mut buffer) => count,
            () = drain.is_over() => break,
        };
        let Ok(count @ 1..) = count else { break };
        let chunk = &buffer[..count];
        tail.push(chunk);
        tracing::debug!(stderr = %String::from_utf8_lossy(chunk).trim_end(), "the agent wrote to standard error");
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
