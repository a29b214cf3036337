//! What requests and answers may take of the memory, all together. What is small is always there for everybody: how much of
//! that there can be is bounded by the number of connections.

use std::error::Error;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::guarded::MadeRoom;

/// What is not counted. Nearly every request and answer is smaller, so that whoever spends the budget on large ones keeps
/// nobody from prompting.
pub const SMALL_BYTES: usize = 64 << 10;
/// What is taken at a time for a body that grows.
const STEP_BYTES: usize = 256 << 10;
/// Budgets are counted in these, because a permit's number has 32 bits.
const UNIT_BYTES: usize = 1 << 10;

/// Bytes that can be spent, and come back.
#[derive(Debug)]
pub struct Budget(Arc<Semaphore>);

/// A part of a budget, until it is dropped.
pub type Share = OwnedSemaphorePermit;

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS))))
    }

    /// A share of so many bytes, if they are there.
    pub fn take(&self, bytes: usize) -> Option<Share> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(units).ok()
    }
}

/// A body that is being read. Its share grows with what has come, not with what was announced: else a few clients that
/// announce much and send nothing would keep everybody else from sending.
struct Growing<'a> {
    budget: &'a Budget,
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
        let taken = self.budget.take(more).ok_or(ApiError::Overloaded { what: "so large a body" })?;
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
    budget: &Budget,
) -> Result<(Bytes, Option<Share>), ApiError> {
    if announced.is_some_and(|announced| announced > max) {
        return Err(ApiError::BodyTooLarge { max });
    }
    let mut growing = Growing { budget, share: None, covered: SMALL_BYTES };
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
    ApiError::invalid("", format!("the body could not be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 8 * SMALL_BYTES;

    fn chunked(sizes: &[usize]) -> Body {
        let chunks: Vec<_> = sizes.iter().map(|size| Ok::<_, io::Error>(Bytes::from(vec![b'x'; *size]))).collect();
        Body::from_stream(futures_util::stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_takes_what_has_come_and_gives_it_back() {
        let budget = Budget::new(LARGE);
        let (body, share) = collect(chunked(&[10, 20, 30]), None, LARGE, &budget).await.unwrap();
        assert_eq!((body.len(), share.is_none()), (60, true), "small ones take nothing");
        let (body, share) = collect(chunked(&[SMALL_BYTES; 4]), None, LARGE, &budget).await.unwrap();
        assert_eq!((body.len(), share.is_some()), (4 * SMALL_BYTES, true));
        let refused = collect(chunked(&[SMALL_BYTES; 8]), Some(LARGE), LARGE, &budget).await;
        assert!(matches!(refused, Err(ApiError::Overloaded { .. })));
        drop(share);
        assert!(budget.take(LARGE).is_some(), "everything is back");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_when_it_is_announced_and_when_it_comes() {
        let budget = Budget::new(LARGE);
        for announced in [Some(LARGE), None] {
            let refused = collect(chunked(&[SMALL_BYTES; 8]), announced, SMALL_BYTES, &budget).await;
            assert!(matches!(refused, Err(ApiError::BodyTooLarge { max: SMALL_BYTES })));
        }
    }
}
