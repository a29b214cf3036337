//! Who has how many event streams, and requests that wait for a turn. They stay, so there are fewer of them than of
//! connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::ApiError;

#[derive(Debug)]
pub struct Streams {
    per_user: usize,
    /// Of those who have any.
    counts: Mutex<HashMap<u32, usize>>,
}

/// One of a user's streams, until it is dropped, however it ends.
#[derive(Debug)]
pub struct OpenStream {
    streams: Arc<Streams>,
    uid: u32,
}

impl Streams {
    pub fn new(per_user: usize) -> Arc<Self> {
        Arc::new(Self { per_user, counts: Mutex::default() })
    }

    pub fn open(self: &Arc<Self>, uid: u32) -> Result<OpenStream, ApiError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&uid).copied().unwrap_or(0);
        if count >= self.per_user {
            return Err(ApiError::TooManyStreams { max: self.per_user });
        }
        counts.insert(uid, count + 1);
        Ok(OpenStream { streams: Arc::clone(self), uid })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.streams.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_for_its_user_until_it_is_dropped() {
        let streams = Streams::new(2);
        let (one, two) = (streams.open(1).unwrap(), streams.open(1).unwrap());
        assert!(matches!(streams.open(1), Err(ApiError::TooManyStreams { max: 2 })));
        streams.open(2).unwrap();
        drop(one);
        let three = streams.open(1).unwrap();
        drop((two, three));
        assert!(streams.counts.lock().unwrap().is_empty());
    }
}
