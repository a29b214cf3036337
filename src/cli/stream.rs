//! A session's events, in order and without a gap, across any number of connections.
//!
//! The cursor moves when an event is handed out, never before; a connection that breaks is opened again from there. So
//! a daemon that restarts, or a stream that is cut, costs the reader nothing but time.
//!
//! A daemon that stops ends its streams; one that is killed cuts them. The stream waits for a stopped daemon to come back, because
//! a person or systemd stopped it. A killed daemon is started again, where the client may do that.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep_until, timeout};

use crate::model::event::LOG_RESET;
use crate::model::{SessionId, Timestamp, TurnId};

use super::connection::{Daemon, StreamBody, with_query};
use super::context::Context;
use super::error::ClientError;
use super::output::Output;
use super::sse::{Frame, SseParser};

/// In a row, without a byte from the daemon between them. With the pauses it is time enough for a restart.
const RECONNECTS_MAX: u32 = 10;
/// After so many attempts in vain a person wants to know what is being waited for.
const PATIENCE_ATTEMPTS: u32 = 3;
/// A daemon that is killed more often than this is not started again.
const RESTARTS_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// What the daemon says of when to come again counts up to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Many heartbeats long. A daemon that is silent longer is asked again.
const SILENCE_MAX: Duration = Duration::from_mins(5);

/// An event as the stream gives it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[serde(default)]
    pub sequence: i64,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub turn_id: Option<TurnId>,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    #[serde(default)]
    pub data: Value,
    /// The whole of it, as it came.
    #[serde(skip)]
    pub json: String,
}

/// What a person has to know of a stream that does not flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Lost,
    /// The daemon was killed, and is being started again.
    Killed,
    NoRoom,
    /// It flows again.
    Back,
}

impl Notice {
    /// In words, where it takes any.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Lost => Some("lost the connection to the daemon; reconnecting"),
            Self::Killed => Some("the daemon was killed; starting it again"),
            Self::NoRoom => Some("the daemon has too many streams now; retrying"),
            Self::Back => None,
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct EventStream<'a> {
    daemon: &'a Daemon,
    output: Output,
    path: String,
    /// The last event that was handed out, or where the reader wants to begin.
    cursor: Option<i64>,
    follow: bool,
    connection: Option<StreamBody>,
    parser: SseParser,
    frames: VecDeque<Frame>,
    failures: u32,
    /// The last connection was cut, and not ended by the daemon.
    is_cut: bool,
    /// The person knows that the stream does not flow.
    is_told: bool,
    is_at_end: bool,
    /// Who tells the person, when not the stream itself.
    notices: Option<Sender<Notice>>,
    restarts: u32,
    /// Starts a daemon that was killed.
    starter: Option<&'a Context>,
}

impl<'a> EventStream<'a> {
    /// The events after the cursor (without one, from the start), and then, with `follow`, those to come.
    pub fn new(daemon: &'a Daemon, output: Output, session: SessionId, cursor: Option<i64>, follow: bool) -> Self {
        Self {
            daemon,
            output,
            path: format!("/v1/sessions/{session}/events"),
            cursor,
            follow,
            connection: None,
            parser: SseParser::default(),
            frames: VecDeque::new(),
            failures: 0,
            is_cut: false,
            is_told: false,
            is_at_end: false,
            notices: None,
            restarts: 0,
            starter: None,
        }
    }

    /// Starts the daemon again if it is killed, where this client would start the same one.
    pub fn restarting(mut self, context: &'a Context) -> Self {
        self.starter = Some(context).filter(|context| context.may_restart());
        self
    }

    /// Leaves what a person has to know to somebody who knows what else is on the terminal.
    pub fn telling(mut self, notices: Sender<Notice>) -> Self {
        self.notices = Some(notices);
        self
    }

    /// The next event; nothing at the end, which a stream that follows does not have. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                let event = self.read(frame)?;
                self.cursor = Some(event.sequence);
                return Ok(Some(event));
            }
            if self.is_at_end {
                return Ok(None);
            }
            if let Err(error) = self.receive().await {
                self.disconnect();
                self.pause(error).await?;
            }
        }
    }

    /// Whether everything that came was handed out.
    pub fn is_caught_up(&self) -> bool {
        self.frames.is_empty()
    }

    /// From now on the stream has an end: where the log ends.
    pub fn end_at_tail(&mut self) {
        if self.follow {
            self.follow = false;
            self.disconnect();
        }
    }

    /// Waits for the next piece of the stream, connecting when there is no connection.
    async fn receive(&mut self) -> Result<(), ClientError> {
        let connection = if let Some(connection) = &mut self.connection {
            connection
        } else {
            let opened = self.open().await?;
            self.connection.insert(opened)
        };
        let piece = timeout(SILENCE_MAX, connection.piece()).await.map_err(|_| self.too_slow())?;
        match piece {
            Ok(Some(bytes)) => {
                self.failures = 0;
                if std::mem::take(&mut self.is_told) {
                    self.tell(Notice::Back);
                }
                let frames = self.parser.push(&bytes).map_err(|error| self.broken(error))?;
                self.frames.extend(frames);
                Ok(())
            }
            Ok(None) if !self.follow => {
                self.is_at_end = true;
                Ok(())
            }
            Ok(None) => {
                self.is_cut = false;
                Err(self.broken("the daemon closed the event stream"))
            }
            Err(error) => {
                self.is_cut = true;
                Err(self.broken(error))
            }
        }
    }

    async fn open(&self) -> Result<StreamBody, ClientError> {
        let mut parameters = Vec::new();
        if !self.follow {
            parameters.push(("follow", "false".to_owned()));
        }
        self.daemon.stream(&with_query(&self.path, &parameters), self.cursor).await
    }

    /// Whatever came but was not handed out comes again: the cursor stands before it.
    fn disconnect(&mut self) {
        self.connection = None;
        self.parser = SseParser::default();
        self.frames.clear();
    }

    /// Waits before the next attempt, or gives up with the error.
    async fn pause(&mut self, error: ClientError) -> Result<(), ClientError> {
        let is_passing = match &error {
            ClientError::Unreachable { .. } | ClientError::Broken { .. } | ClientError::TooSlow { .. } => true,
            error => error.is_overload(),
        };
        if !is_passing || self.failures >= RECONNECTS_MAX {
            return Err(error);
        }
        let is_killed = self.is_cut && error.is_absent();
        if !self.is_told && (is_killed || self.failures >= PATIENCE_ATTEMPTS) {
            self.is_told = true;
            self.tell(match &error {
                ClientError::Api { .. } => Notice::NoRoom,
                _ if is_killed && self.starter.is_some() => Notice::Killed,
                _ => Notice::Lost,
            });
        }
        if is_killed && let Some(context) = self.starter {
            self.restarts += 1;
            self.starter = self.starter.filter(|_| self.restarts < RESTARTS_MAX);
            context.start(self.daemon).await?;
            return Ok(());
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures).min(PAUSE_MAX);
        let pause = pause.max(error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX));
        self.failures += 1;
        sleep_until(Instant::now() + pause).await;
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        match (&self.notices, notice.text()) {
            // One that is not taken in time is one of many.
            (Some(notices), _) => drop(notices.try_send(notice)),
            (None, Some(text)) => self.output.note(text),
            (None, None) => {}
        }
    }

    fn read(&self, frame: Frame) -> Result<Event, ClientError> {
        let mut event: Event = serde_json::from_str(&frame.data)
            .map_err(|source| ClientError::Answer { operation: format!("GET {}", self.path), source })?;
        event.json = frame.data;
        if event.kind == LOG_RESET {
            // The log is not the one that the cursor was of; what follows is the whole of it.
            event.sequence = 0;
        } else if let Some(id) = frame.id {
            event.sequence = id;
        }
        Ok(event)
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Broken { operation: format!("GET {}", self.path), source: source.into() }
    }

    fn too_slow(&self) -> ClientError {
        ClientError::TooSlow { operation: format!("GET {}", self.path), seconds: SILENCE_MAX.as_secs() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use tokio::task::JoinSet;

    use super::*;

    fn frame(sequence: i64) -> String {
        format!("id: {sequence}\nevent: x\ndata: {{\"sequence\":{sequence},\"type\":\"x\",\"data\":{{}}}}\n\n")
    }

    /// Serves each text as the body of one connection, and gives the requests that came.
    async fn serve(listener: UnixListener, bodies: Vec<String>) -> Vec<String> {
        let mut requests = Vec::new();
        for body in bodies {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        requests
    }

    #[tokio::test]
    async fn a_stream_that_breaks_goes_on_without_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let cut = frame(3);
        let bodies = vec![
            format!(": hello\n\n{}{}{}", frame(1), frame(2), &cut[..cut.len() / 2]),
            format!("{}{}", frame(3), frame(4)),
            "event: log.reset\ndata: {\"type\":\"log.reset\",\"data\":{\"head\":1}}\n\n".to_owned(),
            frame(1),
        ];
        let mut server = JoinSet::new();
        server.spawn(serve(listener, bodies));

        let daemon = Daemon::new(socket);
        let mut stream = EventStream::new(&daemon, Output::new(false), SessionId::new(), Some(0), true);
        let mut seen = Vec::new();
        while seen.len() < 6 {
            let event = stream.next().await.unwrap().expect("a stream that follows has no end");
            seen.push(event.sequence);
        }
        assert_eq!(seen, [1, 2, 3, 4, 0, 1]);
        let requests = server.join_next().await.unwrap().unwrap();
        let cursors: Vec<&str> = requests
            .iter()
            .map(|request| request.split("last-event-id: ").nth(1).unwrap().lines().next().unwrap())
            .collect();
        assert_eq!(cursors, ["0", "2", "4", "0"]);
    }

    #[tokio::test]
    async fn a_refusal_is_final() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope").await.unwrap();
            stream.read_u8().await
        });
        let daemon = Daemon::new(socket);
        let error =
            EventStream::new(&daemon, Output::new(false), SessionId::new(), None, true).next().await.unwrap_err();
        assert_eq!(error.to_string(), "404 Not Found: nope");
    }

    #[tokio::test]
    async fn a_stream_for_which_there_is_no_room_is_asked_for_again_when_the_daemon_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close";
            stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
            serve(listener, vec![frame(1)]).await
        });
        let (daemon, began) = (Daemon::new(socket), Instant::now());
        let mut stream = EventStream::new(&daemon, Output::new(false), SessionId::new(), None, true);
        assert_eq!(stream.next().await.unwrap().unwrap().sequence, 1);
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    }
}
