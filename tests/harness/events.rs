//! Following a session's events, as any client does: over SSE.

use std::collections::VecDeque;
use std::fmt::Write;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::CONTENT_TYPE;
use serde_json::Value;

use super::client::{self, OpenReply};
use super::sse::{Frame, SseParser};
use super::{DEADLINE, Daemon, within};

/// How many of the events seen so far a failure shows: the last ones.
const SHOWN_EVENTS: usize = 40;
const SHOWN_CHARACTERS: usize = 300;

/// One event of the stream.
#[derive(Clone, Debug)]
pub struct Event {
    /// The cursor that `after` and `Last-Event-ID` take; 0 before the stream has given one.
    pub id: i64,
    pub kind: String,
    /// The whole frame: `sequence`, `type`, `sessionId`, `turnId`, `createdAt`, `data`.
    pub data: Value,
}

impl Event {
    fn new(frame: &Frame) -> Self {
        let id = if frame.id.is_empty() { Ok(0) } else { frame.id.parse() };
        let data = serde_json::from_str(&frame.data);
        match (id, data) {
            (Ok(id), Ok(data)) => Self { id, kind: frame.event.clone(), data },
            _ => panic!("not an event of acpd: {frame:?}"),
        }
    }

    /// What the event says, without the envelope.
    pub fn payload(&self) -> &Value {
        &self.data["data"]
    }
}

/// An open stream. Dropping it closes the connection.
pub struct EventStream {
    reply: OpenReply,
    parser: SseParser,
    pending: VecDeque<Event>,
    seen: VecDeque<Event>,
    was_cut: bool,
}

impl EventStream {
    /// The next event, or `None` at the end of the stream. Comments are skipped.
    pub async fn next(&mut self) -> Option<Event> {
        let Ok(event) = tokio::time::timeout(DEADLINE, self.receive()).await else {
            panic!("no event within {} seconds; seen so far:\n{}", DEADLINE.as_secs(), self.history());
        };
        if let Some(event) = &event {
            if self.seen.len() == SHOWN_EVENTS {
                self.seen.pop_front();
            }
            self.seen.push_back(event.clone());
        }
        event
    }

    /// Everything up to and including the first event of that type.
    pub async fn until(&mut self, kind: &str) -> Vec<Event> {
        self.until_event(kind, |event| event.kind == kind).await
    }

    /// Everything up to and including the first event that is looked for, described for the failure.
    pub async fn until_event(&mut self, what: &str, is_it: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let found = is_it(&event);
            events.push(event);
            if found {
                return events;
            }
        }
        panic!("the stream ended before {what}; seen so far:\n{}", self.history());
    }

    /// Everything up to the end of the stream.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Whether the stream was broken off, as by a kill of the daemon, and not ended.
    pub fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// How many comments came, heartbeats among them.
    pub fn comments(&self) -> usize {
        self.parser.comments()
    }

    async fn receive(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let Ok(frame) = self.reply.response.body_mut().frame().await? else {
                self.was_cut = true;
                return None;
            };
            let bytes = frame.into_data().unwrap_or_default();
            self.pending.extend(self.parser.push(&bytes).iter().map(Event::new));
        }
    }

    fn history(&self) -> String {
        let mut text = String::new();
        for event in &self.seen {
            let data: String = event.data.to_string().chars().take(SHOWN_CHARACTERS).collect();
            let _ = writeln!(text, "  {} {} {data}", event.id, event.kind);
        }
        text
    }
}

impl Daemon {
    /// Follows a session from its start, or from after a sequence.
    pub async fn events(&self, id: &str, after: Option<i64>) -> EventStream {
        let query = after.map_or_else(String::new, |after| format!("?after={after}"));
        self.event_stream(&format!("/v1/sessions/{id}/events{query}"), &[]).await
    }

    /// Follows a session as a browser does that has lost its connection.
    pub async fn events_with_last_id(&self, id: &str, last_id: i64) -> EventStream {
        let headers = [("last-event-id", &*last_id.to_string())];
        self.event_stream(&format!("/v1/sessions/{id}/events"), &headers).await
    }

    /// The events that are there now, without following.
    pub async fn events_so_far(&self, id: &str, after: Option<i64>) -> Vec<Event> {
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        self.event_stream(&format!("/v1/sessions/{id}/events?follow=false{after}"), &[]).await.rest().await
    }

    /// Any stream of events, of all sessions for one.
    pub async fn event_stream(&self, path: &str, headers: &[(&str, &str)]) -> EventStream {
        let request = client::request("GET", path, headers, Bytes::new());
        let opened = within(&format!("the stream {path}"), client::open(self.socket(), request)).await;
        EventStream::of(path, opened.unwrap_or_else(|error| panic!("GET {path}: {error}")))
    }
}

impl EventStream {
    /// What answered, when it is a stream of events.
    pub(super) fn of(path: &str, reply: OpenReply) -> Self {
        let content_type = reply.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_stream = content_type.is_some_and(|value| value.starts_with("text/event-stream"));
        let status = reply.response.status();
        assert!(status == 200 && is_stream, "GET {path} is no stream of events: {status}, {content_type:?}");
        Self { reply, parser: SseParser::default(), pending: VecDeque::new(), seen: VecDeque::new(), was_cut: false }
    }
}
