//! A subscriber: reads a session's server-sent events, and fails when one is missing.

use std::borrow::Cow;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::client::{Chunks, Client, Length};
use crate::text::Received;

/// Of a `message.delta`, what a client shows.
#[derive(Deserialize)]
struct DeltaEvent<'a> {
    #[serde(borrow)]
    data: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CompletedEvent {
    data: Completed,
}

#[derive(Deserialize)]
struct Completed {
    status: String,
}

pub struct Subscriber {
    body: BufReader<Chunks>,
    /// The sequence of the last event.
    cursor: u64,
    line: Vec<u8>,
    kind: Vec<u8>,
    data: Vec<u8>,
}

impl Subscriber {
    /// Returns when the daemon has said that it is connected.
    pub fn connect(socket: &Path, session: &str, cursor: u64) -> anyhow::Result<Self> {
        let mut client = Client::connect(socket)?;
        client.send("GET", &format!("/v1/sessions/{session}/events?after={cursor}"), None)?;
        let head = client.receive_head()?;
        if head.status != 200 || head.length != Length::Chunked {
            bail!("no stream of events: {head:?}");
        }
        let mut subscriber = Self {
            body: BufReader::new(client.into_chunks()),
            cursor,
            line: Vec::new(),
            kind: Vec::new(),
            data: Vec::new(),
        };
        subscriber.read_line()?;
        if !subscriber.line.starts_with(b":") {
            bail!("the stream does not begin with a comment");
        }
        Ok(subscriber)
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Reads until an event of this type.
    pub fn until(&mut self, kind: &str) -> anyhow::Result<()> {
        while self.kind != kind.as_bytes() {
            self.next()?;
        }
        self.kind.clear();
        Ok(())
    }

    /// Reads until the turn is completed, and returns when that was. All the chunks must have come before it.
    pub fn until_completed(&mut self, chunks: usize) -> anyhow::Result<Instant> {
        let mut received = Received::expecting(chunks);
        loop {
            self.next()?;
            match self.kind.as_slice() {
                b"message.delta" => {
                    let event: DeltaEvent<'_> = serde_json::from_slice(&self.data).context("a delta without text")?;
                    received.push(&event.data.text)?;
                }
                b"turn.completed" => break,
                _ => {}
            }
        }
        let at = Instant::now();
        let event: CompletedEvent = serde_json::from_slice(&self.data).context("a completed turn without a status")?;
        if event.data.status != "completed" {
            bail!("the turn did not complete: {}", String::from_utf8_lossy(&self.data));
        }
        received.finish()?;
        Ok(at)
    }

    fn next(&mut self) -> anyhow::Result<()> {
        let mut id = None;
        loop {
            self.read_line()?;
            if let Some(value) = self.line.strip_prefix(b"id: ") {
                id = Some(std::str::from_utf8(value)?.parse::<u64>()?);
            } else if let Some(value) = self.line.strip_prefix(b"event: ") {
                self.kind.clear();
                self.kind.extend_from_slice(value);
            } else if self.line.starts_with(b"data: ") {
                std::mem::swap(&mut self.line, &mut self.data);
                self.data.drain(..b"data: ".len());
            } else if self.line.starts_with(b":") {
                // A heartbeat: nothing has happened for so long that nothing will, as when the prompt was refused.
                bail!("nothing follows event {}; the daemon's log tells why", self.cursor);
            } else if self.line.is_empty()
                && let Some(id) = id
            {
                if id != self.cursor + 1 {
                    bail!("lost data: event {id} follows event {}", self.cursor);
                }
                self.cursor = id;
                return Ok(());
            }
        }
    }

    fn read_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        if self.body.read_until(b'\n', &mut self.line)? == 0 {
            bail!("the stream ended");
        }
        self.line.pop();
        Ok(())
    }
}
