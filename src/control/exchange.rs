//! A request and its answer on their way between hyper and the router: their bodies tell the connection how far it is, and
//! large answers take their share of the memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};

use super::connections::Seat;
use super::error::ApiError;
use super::memory::{Budget, SMALL_BYTES, Share};
use super::progress::Phase;

/// A request's body. When it has ended, the request is whole.
#[derive(Debug)]
pub struct Asked {
    body: Incoming,
    seat: Arc<Seat>,
    is_whole: bool,
}

impl Asked {
    pub fn new(body: Incoming, seat: Arc<Seat>) -> Self {
        seat.progress().enter(Phase::Body);
        let mut asked = Self { body, seat, is_whole: false };
        asked.look(asked.body.is_end_stream());
        asked
    }

    fn look(&mut self, is_whole: bool) {
        if !self.is_whole && is_whole {
            self.is_whole = true;
            self.seat.progress().enter(Phase::Work);
            self.seat.progress().settle();
        }
    }
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            let is_whole = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
            self.look(is_whole);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.is_whole {
            return;
        }
        // hyper reads the rest only if it has arrived already, and otherwise closes the connection. So the answer announces that
        // the connection closes, or the client would send its next request into it.
        self.seat.progress().leave_unread();
        self.seat.progress().enter(Phase::Work);
        // Nobody waits for the rest, so it is served like any other.
        self.seat.progress().settle();
    }
}

/// An answer's body. When it goes, what is left is to write it, and that is little: hyper gets it in small pieces, because
/// whatever it gets it takes, and only the body here knows when that is too much.
#[derive(Debug)]
pub struct Answered {
    body: Body,
    /// What is left of a large piece.
    rest: Bytes,
    seat: Arc<Seat>,
    _share: Option<Arc<Share>>,
}

impl Answered {
    /// The answer as it goes out.
    pub fn response(mut response: Response, seat: &Arc<Seat>) -> Response<Self> {
        let share = response.extensions_mut().remove::<Arc<Share>>();
        if let Some(share) = &share {
            seat.progress().hold(share.bytes());
        }
        let mut response =
            response.map(|body| Self { body, rest: Bytes::new(), seat: Arc::clone(seat), _share: share });
        if seat.progress().is_unread() {
            // What comes next is the rest of a body.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The answer with its share of the memory; another one, when there is none to spend on it. Streams have no size, and take
/// none.
pub fn within_budget(mut response: Response, budget: &Budget, uid: u32) -> Response {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let Some(size) = size.filter(|size| *size > SMALL_BYTES) else { return response };
    let Some(share) = budget.take(uid, size) else {
        return ApiError::Overloaded { what: "a response of this size" }.into_response();
    };
    response.extensions_mut().insert(Arc::new(share));
    response
}

impl Answered {
    /// A piece of a piece. They share their memory.
    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        if data.len() > SMALL_BYTES {
            self.rest = data.split_off(SMALL_BYTES);
        }
        Frame::data(data)
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()? else {
            return Poll::Ready(None);
        };
        let frame = match frame.into_data() {
            Ok(data) => self.piece(data),
            Err(trailers) => trailers,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.seat.progress().hold(0);
        self.seat.progress().enter(Phase::Flush);
    }
}

/// The router never fails.
pub fn unfailing<T>(outcome: Result<T, Infallible>) -> T {
    match outcome {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
