//! How far a connection is with its present request. The service, the bodies and the stream below them all write it, each
//! what only they know; the stream reads it to know which deadline holds.
//!
//! ```text
//! head ──asked──▶ body ──heard──▶ work ──answered──▶ flush ──flushed──▶ idle ──first byte──▶ head
//! ```

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// A request's head is being read. So begins a connection.
    Head,
    /// The head was understood; the body is being read.
    Body,
    /// The request is whole; it is being carried out or answered.
    Work,
    /// The answer has ended, but not all of it is written.
    Flush,
    /// Between two requests.
    Idle,
}

impl Phase {
    /// Whether a connection may go: it is not being served, and nothing is being written to it.
    pub fn can_make_room(self) -> bool {
        match self {
            Self::Head | Self::Body | Self::Idle => true,
            Self::Work | Self::Flush => false,
        }
    }
}

/// How many pauses there were on all connections. It tells which of two began first.
static PAUSES: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub struct Progress {
    phase: AtomicU8,
    /// It has not sent a whole request yet.
    is_newcomer: AtomicBool,
    /// The number of its last pause.
    pause: AtomicU64,
    /// The client is sending something that nobody reads.
    is_unread: AtomicBool,
    /// Bytes that the answer holds of what all have together.
    held: AtomicUsize,
    /// Since when bytes have waited to be written without the client taking any.
    stalled_at: Mutex<Option<Instant>>,
    has_to_go: AtomicBool,
    /// The connection closes even while its answer is being written.
    is_evicted: AtomicBool,
    reader: AtomicWaker,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Head as u8),
            is_newcomer: AtomicBool::new(true),
            pause: AtomicU64::new(0),
            is_unread: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            stalled_at: Mutex::new(None),
            has_to_go: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        }
    }
}

impl Progress {
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Head as u8 => Phase::Head,
            phase if phase == Phase::Body as u8 => Phase::Body,
            phase if phase == Phase::Work as u8 => Phase::Work,
            phase if phase == Phase::Flush as u8 => Phase::Flush,
            _ => Phase::Idle,
        }
    }

    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// It has sent a whole request.
    pub fn settle(&self) {
        self.is_newcomer.store(false, Ordering::Relaxed);
    }

    /// Whether it has sent no whole request yet, and is not being served either.
    pub fn is_newcomer(&self) -> bool {
        self.is_newcomer.load(Ordering::Relaxed) && self.phase().can_make_room()
    }

    /// What its answer holds of the memory from now on. Whoever has to wait for that is not kept waiting forever.
    pub fn hold(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Everything was answered.
    pub fn pause(&self) {
        self.pause.store(PAUSES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.enter(Phase::Idle);
    }

    /// Since which of all pauses it has been idle, if it is.
    pub fn idle_since(&self) -> Option<u64> {
        (self.phase() == Phase::Idle).then(|| self.pause.load(Ordering::Relaxed))
    }

    /// Another connection gets its place.
    pub fn make_room(&self) {
        self.has_to_go.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// The client takes no bytes from now on (`Some`), or has taken some.
    pub fn set_stalled(&self, since: Option<Instant>) {
        *self.stalled_at.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    pub fn stalled_at(&self) -> Option<Instant> {
        *self.stalled_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection now, even during a write, because another stream gets its place.
    pub fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.make_room();
    }

    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Acquire)
    }

    pub fn has_to_go(&self) -> bool {
        self.has_to_go.load(Ordering::Acquire)
    }

    /// Whom to wake when it has to go.
    pub fn register(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// The client is still sending what will not be read.
    pub fn leave_unread(&self) {
        self.is_unread.store(true, Ordering::Release);
    }

    pub fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Acquire)
    }
}
