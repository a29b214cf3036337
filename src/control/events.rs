//! Events as server-sent events. What a subscriber gets is what is committed, in order, without a gap; the stream ends
//! when the session is deleted or the daemon stops.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Query};
use super::openapi::EventFrame;
use super::streams::OpenStream;
use super::wire::Event;
use crate::hub::{Compacted, Logged, Subscription};
use crate::metrics::Metrics;
use crate::model::SessionId;
use crate::model::event::{LOG_COMPACTED, LOG_RESET};
use crate::store::{EventScope, StoredEvent};

/// What a stream is, for the description.
const STREAM: &str = "Server-sent events with these fields. With `follow`, the stream of one session ends when the \
    session is deleted. Every stream ends when the daemon stops.";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Start after the event with this cursor.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Keep the stream open for new events after the stored ones.
    #[param(default = true)]
    #[serde(default = "yes")]
    follow: bool,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AllEventsQuery {
    /// Start after the event with this cursor.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Keep the stream open for new events after the stored ones.
    #[param(default = true)]
    #[serde(default = "yes")]
    follow: bool,
    /// Include the events of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
}

fn yes() -> bool {
    true
}

/// Stream a session's events: stored ones first, then new ones.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/events",
    operation_id = "followSession",
    tag = "events",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        EventsQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "The cursor of the last event received; it takes precedence over `after`.", minimum = 0),
    ),
    responses((status = 200, description = STREAM, body = EventFrame, content_type = "text/event-stream")),
)]
pub async fn of_session(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
    open: OpenStream,
) -> Result<Response, ApiError> {
    let cursor = cursor(&headers, &query)?.unwrap_or(0);
    // Subscribed before the look: a session that is deleted in between ends the stream.
    let events = api.registry.hub().subscribe(EventScope::Session(id), cursor);
    caller.session(&api, id).await?;
    stream(&api, open, events, EventScope::Session(id), cursor, query.follow).await
}

/// Stream the events of all sessions, by default only new ones.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "followAll",
    tag = "events",
    params(
        AllEventsQuery,
        ("Last-Event-ID" = Option<i64>, Header, description = "The cursor of the last event received; it takes precedence over `after`.", minimum = 0),
    ),
    responses((status = 200, description = STREAM, body = EventFrame, content_type = "text/event-stream")),
)]
pub async fn of_all(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(AllEventsQuery { after, follow, all }): Query<AllEventsQuery>,
    headers: HeaderMap,
    open: OpenStream,
) -> Result<Response, ApiError> {
    let scope = caller.log(all);
    let cursor = match cursor(&headers, &EventsQuery { after, follow })? {
        Some(cursor) => cursor,
        None => api.registry.hub().store().head(scope).await?,
    };
    let events = api.registry.hub().subscribe(scope, cursor);
    stream(&api, open, events, scope, cursor, follow).await
}

/// Where the client is. The header is what a reconnecting client sends by itself, so it is the newer word.
fn cursor(headers: &HeaderMap, query: &EventsQuery) -> Result<Option<i64>, ApiError> {
    let cursor = match headers.get("last-event-id") {
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(number.ok_or_else(|| ApiError::invalid("Last-Event-ID", "must be a whole number"))?)
        }
        None => query.after,
    };
    match cursor {
        Some(cursor) if cursor < 0 => Err(ApiError::invalid("after", "must not be negative")),
        cursor => Ok(cursor),
    }
}

/// What the stream is doing between two chunks of its body.
struct Streaming {
    events: Subscription,
    scope: EventScope,
    follow: bool,
    heartbeat: Duration,
    /// Sent first.
    preamble: Option<Bytes>,
    /// It counts for as long as the body is there.
    _open: OpenStream,
    metrics: Arc<Metrics>,
}

async fn stream(
    api: &Api,
    open: OpenStream,
    mut events: Subscription,
    scope: EventScope,
    cursor: i64,
    follow: bool,
) -> Result<Response, ApiError> {
    let head = api.registry.hub().store().head(scope).await?;
    let preamble = if cursor > head {
        events.rewind();
        // A cursor of another log, such as one before a restored backup: what is here is told from its beginning.
        let frame =
            format!("id: 0\nevent: {LOG_RESET}\ndata: {{\"type\":\"{LOG_RESET}\",\"data\":{{\"head\":{head}}}}}\n\n");
        Bytes::from(frame)
    } else {
        // Headers alone would wait in buffers: the first bytes tell the client that it is connected.
        Bytes::from_static(b": acpd\n\n")
    };
    let streaming = Streaming {
        events,
        scope,
        follow,
        heartbeat: api.registry.shared().config().control.heartbeat,
        preamble: Some(preamble),
        _open: open,
        metrics: Arc::clone(&api.registry.shared().metrics),
    };
    let chunks = futures_util::stream::unfold(streaming, |mut streaming| async move {
        let chunk = streaming.next_chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), streaming))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl Streaming {
    /// The next piece of the body, or its end. The next page is read only when the client has taken this one.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(preamble) = self.preamble.take() {
            return Some(preamble);
        }
        let page = if self.follow {
            match tokio::time::timeout(self.heartbeat, self.events.next()).await {
                Ok(page) => page,
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        } else {
            self.events.page().await.map(|page| (!page.is_empty()).then_some(page))
        };
        match page {
            Ok(Some(page)) => {
                let mut text = self.events.take_compacted().map(compacted_frame).unwrap_or_default();
                frames(&mut text, &page, self.scope);
                self.metrics.streamed(page.len(), text.len());
                Some(Bytes::from(text))
            }
            Ok(None) => None,
            Err(error) => {
                self.metrics.stream_failed();
                // Ending is honest: the client comes again with its cursor and misses nothing.
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "an event stream ended: cannot read the event log"
                );
                None
            }
        }
    }
}

/// Its id is the client's own cursor, so that a client which comes again after it misses nothing.
fn compacted_frame(Compacted { cursor, complete_from }: Compacted) -> Vec<u8> {
    let kind = LOG_COMPACTED;
    let data = format!("{{\"type\":\"{kind}\",\"data\":{{\"completeFrom\":{complete_from}}}}}");
    format!("id: {cursor}\nevent: {kind}\ndata: {data}\n\n").into_bytes()
}

fn frames(text: &mut Vec<u8>, page: &[Arc<Logged>], scope: EventScope) {
    /// About what the line with the id takes.
    const ID_BYTES: usize = 24;
    // A buffer that grows would be copied again and again, and every reader has one.
    text.reserve(page.iter().map(|event| ID_BYTES + event.frame(frame).len()).sum());
    for event in page {
        text.extend_from_slice(format!("id: {}\n", event.cursor(scope)).as_bytes());
        text.extend_from_slice(event.frame(frame));
    }
}

/// All of a frame but its id, which differs from log to log.
fn frame(event: &StoredEvent) -> Bytes {
    let mut text = format!("event: {}\ndata: ", event.kind).into_bytes();
    let start = text.len();
    let data = Event {
        sequence: event.sequence,
        kind: &event.kind,
        session_id: event.session,
        turn_id: event.turn,
        created_at: event.created_at,
        data: &event.data,
    };
    if serde_json::to_writer(&mut text, &data).is_err() {
        text.extend_from_slice(b"{}");
    }
    // In JSON a bare line end can only stand between tokens; in a frame it would end the line.
    let mut rest = &mut text[start..];
    while let Some(position) = memchr::memchr2(b'\r', b'\n', rest) {
        rest[position] = b' ';
        rest = &mut rest[position + 1..];
    }
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}
