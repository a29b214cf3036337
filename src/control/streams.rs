//! Open event streams and exports of each user. They stay open, so a user may have fewer of them than connections.
//!
//! When a user has all of theirs and opens another, the stream whose client has stalled longest is evicted. So clients that do
//! not read cannot keep their user from following. When no client has stalled, the new stream is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::time::Instant;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::load::LoadEvent;
use super::progress::Progress;

/// A client that reads may fall behind for a moment; after this it has stalled.
const STALL_MIN: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Streams {
    per_user: usize,
    /// The connections of the open streams, by user. Users without a stream are not listed.
    open: Mutex<HashMap<u32, Vec<Arc<Progress>>>>,
}

/// One of a user's streams, until it is dropped or evicted.
#[derive(Debug)]
pub struct OpenStream {
    streams: Arc<Streams>,
    uid: u32,
    progress: Arc<Progress>,
}

impl Streams {
    pub fn new(per_user: usize) -> Arc<Self> {
        Arc::new(Self { per_user, open: Mutex::default() })
    }

    pub fn open(self: &Arc<Self>, uid: u32, progress: Arc<Progress>) -> Result<OpenStream, ApiError> {
        let mut open = self.lock();
        let own = open.entry(uid).or_default();
        if own.len() >= self.per_user {
            let stalled = longest_stalled(own).ok_or(ApiError::TooManyStreams { max: self.per_user })?;
            own.swap_remove(stalled).evict();
        }
        own.push(Arc::clone(&progress));
        Ok(OpenStream { streams: Arc::clone(self), uid, progress })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<Arc<Progress>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn longest_stalled(streams: &[Arc<Progress>]) -> Option<usize> {
    let latest = Instant::now().checked_sub(STALL_MIN)?;
    let stalled = streams.iter().enumerate().filter_map(|(index, stream)| Some((stream.stalled_at()?, index)));
    stalled.filter(|(since, _)| *since <= latest).min().map(|(_, index)| index)
}

impl FromRequestParts<Arc<Api>> for OpenStream {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, api).await?;
        let progress = parts.extensions.get::<Arc<Progress>>().ok_or(ApiError::NoCaller)?;
        let open = api.streams.open(caller.peer.uid, Arc::clone(progress));
        open.inspect_err(|_| api.load.count(LoadEvent::Streams))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        let Some(own) = open.get_mut(&self.uid) else { return };
        if let Some(index) = own.iter().position(|stream| Arc::ptr_eq(stream, &self.progress)) {
            own.swap_remove(index);
        }
        if own.is_empty() {
            open.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_for_its_user_until_it_is_dropped() {
        let streams = Streams::new(2);
        let open = |uid| streams.open(uid, Arc::default());
        let (one, two) = (open(1).unwrap(), open(1).unwrap());
        assert!(matches!(open(1), Err(ApiError::TooManyStreams { max: 2 })));
        open(2).unwrap();
        drop(one);
        let three = open(1).unwrap();
        drop((two, three));
        assert!(streams.lock().is_empty());
    }

    #[test]
    fn the_stream_that_stalled_first_is_evicted() {
        let streams = Streams::new(3);
        let open = || streams.open(1, Arc::default());
        let (reads, late, early) = (open().unwrap(), open().unwrap(), open().unwrap());
        let now = Instant::now();
        late.progress.set_stalled(now.checked_sub(STALL_MIN));
        early.progress.set_stalled(now.checked_sub(2 * STALL_MIN));
        reads.progress.set_stalled(Some(now + STALL_MIN));
        let fourth = open().unwrap();
        assert!(early.progress.is_evicted() && !late.progress.is_evicted());
        drop(early);
        let fifth = open().unwrap();
        assert!(late.progress.is_evicted() && !reads.progress.is_evicted());
        assert!(matches!(open(), Err(ApiError::TooManyStreams { max: 3 })), "the others read");
        drop((reads, late, fourth, fifth));
        assert!(streams.lock().is_empty());
    }
}
