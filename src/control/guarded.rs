//! The socket as hyper sees it: with deadlines, and with words where hyper has none.
//!
//! 1. **Heads and pauses have deadlines**, each from its first moment; what is sent meanwhile does not prolong them.
//! 2. **A client that does not read is dropped**: when nothing could be written for a while, the connection ends. What it
//!    costs until then is what hyper holds of the answer, and the kernel's buffer. A large answer, which holds memory that
//!    others wait for, has a deadline as a whole besides, and a trickle does not prolong it. A stalled stream ends earlier
//!    when its user opens another one and has no place left (`streams.rs`).
//! 3. **Refusals have one shape.** hyper answers what is no request by itself, without a body. Whatever it writes while no
//!    request is being answered can only be that, so it is replaced by an answer of ours with the same status.
//! 4. **Whoever is refused gets to read it.** When a client is still sending, what it sends is thrown away for a moment
//!    before the end, because a program whose write fails may not look for an answer any more.
//! 5. **Whoever has said everything is answered.** A client may close its half after the request (`nc -N`). hyper takes that
//!    for the end of the connection, so it is not told before it has answered; that the client is gone, it is told at once.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use rustix::event::PollFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};

use super::error::plain;
use super::load::{Load, LoadEvent};
use super::peer::events_now;
use super::progress::{Phase, Progress};
use crate::config;

/// How long, and how much, is thrown away of what a refused client sends.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const DRAIN_BYTES_MAX: usize = 64 << 20;
const DRAIN_STEP_BYTES: usize = 16 << 10;

/// How fast a large answer has to be taken, at the least.
const ANSWER_BYTES_PER_SECOND: usize = 1 << 20;
/// How often a client that has closed its half is looked for. Nothing wakes us when it closes the other one.
const GONE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection whose place was given to another one.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed to make room for another one")]
pub struct MadeRoom;

#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    head: Duration,
    idle: Duration,
    write: Duration,
}

impl From<&config::Control> for Deadlines {
    fn from(settings: &config::Control) -> Self {
        Self { head: settings.header_timeout, idle: settings.idle_timeout, write: settings.write_timeout }
    }
}

#[derive(Debug)]
pub struct Guarded {
    stream: UnixStream,
    progress: Arc<Progress>,
    load: Arc<Load>,
    deadlines: Deadlines,
    /// For the head or the pause that it was set for.
    reading: Clock<Phase>,
    /// Runs while nothing can be written.
    writing: Clock<()>,
    /// Runs while an answer holds memory.
    holding: Clock<()>,
    /// The client has said everything.
    is_half_closed: bool,
    /// The handler was given a moment to take the last piece of this request's body.
    has_yielded: bool,
    listening: Clock<()>,
    draining: Clock<()>,
    drained: usize,
}

impl Guarded {
    pub fn new(stream: UnixStream, progress: Arc<Progress>, load: Arc<Load>, deadlines: Deadlines) -> Self {
        let mut reading = Clock::default();
        // From the beginning, whether or not a first byte comes.
        reading.start(Phase::Head, deadlines.head);
        let (writing, holding) = (Clock::default(), Clock::default());
        let (listening, draining) = (Clock::default(), Clock::default());
        Self {
            stream,
            progress,
            load,
            deadlines,
            reading,
            writing,
            holding,
            is_half_closed: false,
            has_yielded: false,
            listening,
            draining,
            drained: 0,
        }
    }

    /// Nothing has come. That is for as long as the phase allows.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let phase = self.progress.phase();
        if phase.can_make_room() {
            self.progress.register(context.waker());
            // It may have been told in between.
            if self.progress.has_to_go() {
                return Poll::Ready(Err(self.make_room(phase)));
            }
        }
        let timeout = match phase {
            Phase::Head => self.deadlines.head,
            Phase::Idle => self.deadlines.idle,
            // The handler has its own.
            Phase::Body | Phase::Work | Phase::Flush => {
                self.reading.stop();
                return Poll::Pending;
            }
        };
        if !self.reading.runs_for(phase) {
            self.reading.start(phase, timeout);
        }
        ready!(self.reading.poll(context));
        if phase == Phase::Head {
            self.load.count(LoadEvent::HeadTimeout);
            self.say(StatusCode::REQUEST_TIMEOUT);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn make_room(&mut self, phase: Phase) -> io::Error {
        self.load.count(LoadEvent::MadeRoom);
        // Whoever reads the body answers for it, and between two requests there is nothing to answer.
        if phase == Phase::Head {
            self.say(StatusCode::SERVICE_UNAVAILABLE);
        }
        io::Error::new(io::ErrorKind::ConnectionAborted, MadeRoom)
    }

    /// An answer to what was no request, if the client's buffer has room for it. It has, unless the client never reads.
    fn say(&mut self, status: StatusCode) {
        if let Err(error) = self.stream.try_write(&plain::refusal(status)) {
            tracing::debug!(%error, "a refused client does not read");
        }
        self.progress.leave_unread();
    }

    /// What hyper writes while no request is being answered is a refusal of its own.
    fn replace(&mut self, written: &[u8]) {
        let status = written.get(STATUS_PLACE).and_then(|digits| StatusCode::from_bytes(digits).ok());
        self.load.count(LoadEvent::BadRequest);
        self.say(status.unwrap_or(StatusCode::BAD_REQUEST));
    }

    fn is_unasked(&self) -> bool {
        matches!(self.progress.phase(), Phase::Head | Phase::Idle)
    }

    /// The client has closed its half, or all. While it is being served, it is only gone when it has closed all.
    fn end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_half_closed = true;
        // hyper looks for the end of the connection as soon as it has read the body, and polls the handler after that. Only the
        // handler knows whether the body is whole.
        if self.progress.phase() == Phase::Body && !std::mem::replace(&mut self.has_yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        while !self.progress.phase().can_make_room() && !is_gone(&self.stream) {
            if !self.listening.runs_for(()) {
                self.listening.start((), GONE_INTERVAL);
            }
            ready!(self.listening.poll(context));
            self.listening.stop();
        }
        Poll::Ready(Ok(()))
    }

    /// The outcome of a write, or the end of the client's time.
    fn watch(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match self.progress.held() {
            0 => self.holding.stop(),
            held if !self.holding.runs_for(()) => {
                let seconds = u64::try_from(held / ANSWER_BYTES_PER_SECOND).unwrap_or(u64::MAX);
                self.holding.start((), self.deadlines.write.saturating_add(Duration::from_secs(seconds)));
            }
            _ => {}
        }
        if written.is_ready() {
            if self.writing.runs_for(()) {
                self.writing.stop();
                self.progress.set_stalled(None);
            }
            return written;
        }
        if !self.writing.runs_for(()) {
            self.writing.start((), self.deadlines.write);
            self.progress.set_stalled(Some(Instant::now()));
        }
        self.progress.register(context.waker());
        let is_over = self.writing.poll(context).is_ready() || self.holding.poll(context).is_ready();
        if !is_over && !self.progress.is_evicted() {
            return Poll::Pending;
        }
        self.load.count(LoadEvent::Stalled);
        tracing::debug!("a client has not read for too long; dropped");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Throws away what the client is still sending, for a moment.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.draining.runs_for(()) {
            self.draining.start((), DRAIN_TIMEOUT);
        }
        self.progress.register(context.waker());
        let mut bytes = [0; DRAIN_STEP_BYTES];
        while self.drained < DRAIN_BYTES_MAX && !self.progress.has_to_go() {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.drained += buffer.filled().len(),
                // The end, of one kind or the other.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.draining.poll(context),
            }
        }
        Poll::Ready(())
    }
}

/// Whether the other end is closed as a whole, and not only one half of it.
fn is_gone(stream: &UnixStream) -> bool {
    // One that cannot be asked is of no use either.
    events_now(stream, PollFlags::empty()).map_or(true, |events| events.intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Where the status stands in `HTTP/1.1 400 Bad Request`.
const STATUS_PLACE: std::ops::Range<usize> = 9..12;

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.has_to_go() {
            let phase = self.progress.phase();
            if phase.can_make_room() {
                return Poll::Ready(Err(self.make_room(phase)));
            }
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() == before && buffer.remaining() > 0 => self.end(context),
            Poll::Ready(outcome) => {
                if buffer.filled().len() > before && self.progress.phase() == Phase::Idle {
                    self.progress.enter(Phase::Head);
                }
                Poll::Ready(outcome)
            }
            Poll::Pending => self.wait(context),
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_unasked() {
            self.replace(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_unasked() {
            self.replace(slices.first().map_or(&[], |slice| slice));
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        // hyper flushes when it has written everything.
        if self.progress.phase() == Phase::Flush {
            self.holding.stop();
            self.has_yielded = false;
            self.progress.pause();
            self.progress.register(context.waker());
            // The pause begins here: hyper may have looked for the next request already, and looks again when it is woken.
            let timeout = self.deadlines.idle;
            self.reading.start(Phase::Idle, timeout);
            let is_over = self.reading.poll(context).is_ready() || self.progress.has_to_go();
            if is_over || self.is_half_closed {
                context.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        if self.progress.is_unread() {
            ready!(self.poll_drain(context));
        }
        Poll::Ready(Ok(()))
    }
}

/// One deadline after the other, of which each is for something.
#[derive(Debug)]
struct Clock<T> {
    /// Kept when it is stopped, so that a connection makes it once.
    sleep: Option<Pin<Box<Sleep>>>,
    running: Option<T>,
}

impl<T> Default for Clock<T> {
    fn default() -> Self {
        Self { sleep: None, running: None }
    }
}

impl<T: Copy + PartialEq> Clock<T> {
    fn runs_for(&self, purpose: T) -> bool {
        self.running == Some(purpose)
    }

    fn start(&mut self, purpose: T, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.running = Some(purpose);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(deadline),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline))),
        }
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.sleep {
            Some(sleep) if self.running.is_some() => sleep.as_mut().poll(context),
            _ => Poll::Pending,
        }
    }
}
