//! What was refused or dropped so that the rest could be served, counted since the daemon started.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEvent {
    /// A connection that found no place.
    Refused,
    /// A connection that had to make room for another one.
    MadeRoom,
    /// Something that is no request.
    BadRequest,
    /// A request's head that did not come in time.
    HeadTimeout,
    /// A request's body that did not come in time.
    BodyTimeout,
    /// A client that did not take its answer.
    Stalled,
    /// A body or an answer for which there was no memory to spend.
    Memory,
    /// A stream too many.
    Streams,
}

impl LoadEvent {
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::MadeRoom,
        Self::BadRequest,
        Self::HeadTimeout,
        Self::BodyTimeout,
        Self::Stalled,
        Self::Memory,
        Self::Streams,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::MadeRoom => "made_room",
            Self::BadRequest => "bad_request",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::Stalled => "stalled",
            Self::Memory => "memory",
            Self::Streams => "streams",
        }
    }
}

#[derive(Debug, Default)]
pub struct Load {
    counts: [AtomicU64; LoadEvent::ALL.len()],
}

impl Load {
    pub fn count(&self, event: LoadEvent) {
        if let Some(count) = self.counts.get(event as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LoadEvent::ALL.iter().zip(&self.counts).map(|(event, count)| (event.as_str(), count.load(Ordering::Relaxed)))
    }
}
