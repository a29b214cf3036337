//! What requests and answers may take of the memory, all together and each user's. What is small is always there for
//! everybody: how much of that there can be is bounded by the number of connections.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body_util::BodyExt;

use super::error::ApiError;
use super::guarded::MadeRoom;
use super::load::{Load, LoadEvent};

/// What is not counted. Nearly every request and answer is smaller, so that whoever spends the budget on large ones keeps
/// nobody from prompting.
pub const SMALL_BYTES: usize = 64 << 10;
/// What is taken at a time for a body that grows.
const STEP_BYTES: usize = 256 << 10;

/// Bytes that can be spent, and come back.
#[derive(Debug)]
pub struct Budget {
    max: usize,
    /// What one user may have of them. Whoever has nothing may take more, as long as it is there: else what is larger than
    /// a share could never be had.
    per_user: usize,
    load: Arc<Load>,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    spent: usize,
    /// Of those who have spent any.
    users: HashMap<u32, usize>,
}

/// A part of a budget, until it is dropped.
#[derive(Debug)]
pub struct Share {
    books: Arc<Mutex<Books>>,
    uid: u32,
    bytes: usize,
}

impl Budget {
    pub fn new(max: usize, per_user: usize, load: Arc<Load>) -> Self {
        Self { max, per_user, load, books: Arc::default() }
    }

    /// A share of so many bytes for this user, if they are there. It is counted when they are not.
    pub fn take(&self, uid: u32, bytes: usize) -> Option<Share> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let own = books.users.get(&uid).copied().unwrap_or(0);
        let is_within_share = own == 0 || own.saturating_add(bytes) <= self.per_user;
        if !is_within_share || books.spent.saturating_add(bytes) > self.max {
            self.load.count(LoadEvent::Memory);
            return None;
        }
        books.spent += bytes;
        books.users.insert(uid, own + bytes);
        Some(Share { books: Arc::clone(&self.books), uid, bytes })
    }
}

impl Share {
    fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.spent -= self.bytes;
        match books.users.get_mut(&self.uid) {
            Some(spent) if *spent > self.bytes => *spent -= self.bytes,
            Some(_) => drop(books.users.remove(&self.uid)),
            None => {}
        }
    }
}

/// A body that is being read. Its share grows with what has come, not with what was announced: else a few clients that
/// announce much and send nothing would keep everybody else from sending.
struct Growing<'a> {
    budget: &'a Budget,
    uid: u32,
    share: Option<Share>,
    /// What may have come before more is taken.
    covered: usize,
}

impl Growing<'_> {
    fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.covered {
            return Ok(());
        }
        let more = (bytes - self.covered).max(STEP_BYTES);
        let taken = self.budget.take(self.uid, more).ok_or(ApiError::Overloaded { what: "a body of this size" })?;
        match &mut self.share {
            Some(share) => share.merge(taken),
            None => self.share = Some(taken),
        }
        self.covered += more;
        Ok(())
    }
}

/// The whole body, and its share of the budget, which is held until it is understood.
pub async fn collect(
    mut body: Body,
    announced: Option<usize>,
    max: usize,
    (budget, uid): (&Budget, u32),
) -> Result<(Bytes, Option<Share>), ApiError> {
    if announced.is_some_and(|announced| announced > max) {
        return Err(ApiError::BodyTooLarge { max });
    }
    let mut growing = Growing { budget, uid, share: None, covered: SMALL_BYTES };
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        let length = first.len() + whole.len() + data.len();
        if length > max {
            return Err(ApiError::BodyTooLarge { max });
        }
        growing.grow_to(length)?;
        // Most bodies come in one piece, which is not copied then.
        if length == data.len() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            // Pages that are not written to cost nothing yet.
            whole.reserve(announced.unwrap_or(length));
            whole.extend_from_slice(&first);
            first = Bytes::new();
        }
        whole.extend_from_slice(&data);
    }
    Ok((if whole.is_empty() { first } else { whole.freeze() }, growing.share))
}

fn unreadable(error: &axum::Error) -> ApiError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let told = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if told.is_some_and(<dyn Error + Send + Sync>::is::<MadeRoom>) {
            return ApiError::Overloaded { what: "another connection" };
        }
        cause = error.source();
    }
    ApiError::invalid("", format!("cannot read the body: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 8 * SMALL_BYTES;
    const ANN: u32 = 1000;
    const BOB: u32 = 1001;

    fn budget(per_user: usize) -> Budget {
        Budget::new(LARGE, per_user, Arc::default())
    }

    #[test]
    fn nobody_spends_what_is_the_others() {
        let budget = budget(LARGE / 2);
        let first = budget.take(ANN, LARGE / 2).unwrap();
        assert!(budget.take(ANN, 1).is_none(), "the share is spent");
        let other = budget.take(BOB, LARGE / 2).unwrap();
        assert!(budget.take(BOB + 1, 1).is_none(), "all is spent");
        drop((first, other));
        let whole = budget.take(ANN, LARGE).unwrap();
        assert!(budget.take(BOB, 1).is_none());
        drop(whole);
        let books = budget.books.lock().unwrap();
        assert!(books.spent == 0 && books.users.is_empty(), "{books:?}");
        assert_eq!(budget.load.counts().find(|(name, _)| *name == "memory").unwrap().1, 3);
    }

    fn chunked(sizes: &[usize]) -> Body {
        let chunks: Vec<_> = sizes.iter().map(|size| Ok::<_, io::Error>(Bytes::from(vec![b'x'; *size]))).collect();
        Body::from_stream(futures_util::stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_takes_what_has_come_and_gives_it_back() {
        let budget = budget(LARGE);
        let (body, share) = collect(chunked(&[10, 20, 30]), None, LARGE, (&budget, ANN)).await.unwrap();
        assert_eq!((body.len(), share.is_none()), (60, true), "small ones take nothing");
        let (body, share) = collect(chunked(&[SMALL_BYTES; 4]), None, LARGE, (&budget, ANN)).await.unwrap();
        assert_eq!((body.len(), share.is_some()), (4 * SMALL_BYTES, true));
        let refused = collect(chunked(&[SMALL_BYTES; 8]), Some(LARGE), LARGE, (&budget, ANN)).await;
        assert!(matches!(refused, Err(ApiError::Overloaded { .. })));
        drop(share);
        assert!(budget.take(ANN, LARGE).is_some(), "everything is back");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_when_it_is_announced_and_when_it_comes() {
        let budget = budget(LARGE);
        for announced in [Some(LARGE), None] {
            let refused = collect(chunked(&[SMALL_BYTES; 8]), announced, SMALL_BYTES, (&budget, ANN)).await;
            assert!(matches!(refused, Err(ApiError::BodyTooLarge { max: SMALL_BYTES })));
        }
    }
}
