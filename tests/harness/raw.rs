//! Bytes on the socket, for clients that are no HTTP clients.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{Daemon, within};

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    pub body: String,
}

impl RawAnswer {
    /// The first answer in these bytes, and how many they are; nothing when it is not whole.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let head_bytes = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..head_bytes]).to_lowercase();
        let status = head.split(' ').nth(1).expect("an answer has a status").parse().expect("a status is a number");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        let end = head_bytes + length.parse::<usize>().expect("a length is a number");
        let body = String::from_utf8_lossy(bytes.get(head_bytes..end)?).into_owned();
        Some((Self { status, head, body }, end))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Whether it says that the connection ends.
    pub fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }

    /// Checks that it is this refusal, in the one shape of all refusals.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        assert_eq!(body["error"], code, "{body}");
        for field in ["message", "hint"] {
            assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        }
        assert!(body["details"].is_object(), "{body}");
        body
    }
}

/// Whole answers, and nothing else.
fn split(bytes: &[u8]) -> Vec<RawAnswer> {
    let mut answers = Vec::new();
    let mut rest = bytes;
    while let Some((answer, length)) = RawAnswer::parse(rest) {
        answers.push(answer);
        rest = &rest[length..];
    }
    assert!(rest.is_empty(), "something follows the answers: {:?}", String::from_utf8_lossy(rest));
    answers
}

/// Everything that comes until the daemon closes the connection.
pub async fn answers(stream: &mut UnixStream) -> Vec<RawAnswer> {
    let mut bytes = Vec::new();
    // A connection that is closed while we still send is reset, after all that was written to it.
    let _ = within("the end of the connection", stream.read_to_end(&mut bytes)).await;
    split(&bytes)
}

/// The next answer on a connection that stays open; nothing, when it ends.
pub async fn next_answer(stream: &mut UnixStream) -> Option<RawAnswer> {
    let mut bytes = Vec::new();
    loop {
        if let Some((answer, length)) = RawAnswer::parse(&bytes) {
            assert_eq!(length, bytes.len(), "one answer to one request");
            return Some(answer);
        }
        if within("an answer", stream.read_buf(&mut bytes)).await.unwrap_or(0) == 0 {
            assert!(bytes.is_empty(), "the answer was cut off: {:?}", String::from_utf8_lossy(&bytes));
            return None;
        }
    }
}

/// A connection that asks and waits for the answer, and may ask again.
pub async fn ask(stream: &mut UnixStream, request: &str) -> Option<RawAnswer> {
    // Who is refused already cannot write any more.
    let _ = stream.write_all(request.as_bytes()).await;
    next_answer(stream).await
}

pub const HEALTH: &str = "GET /v1/health HTTP/1.1\r\nhost: acpd\r\n\r\n";

impl Daemon {
    /// Sends these bytes on a connection of their own, and returns what comes until the daemon closes it.
    pub async fn send_raw(&self, bytes: &[u8]) -> Vec<RawAnswer> {
        let (mut reader, mut writer) = self.connect().await.into_split();
        let write = async move {
            let _ = writer.write_all(bytes).await;
            writer
        };
        let read = async move {
            let mut bytes = Vec::new();
            let _ = reader.read_to_end(&mut bytes).await;
            bytes
        };
        let (_writer, bytes) = within("the end of the connection", async { tokio::join!(write, read) }).await;
        split(&bytes)
    }

    /// How often something was refused or dropped under load.
    pub async fn load_events(&self, kind: &str) -> u64 {
        let info = self.get("/v1/info").await.expect_status(200);
        info["loadEvents"][kind].as_u64().unwrap_or_else(|| panic!("{info}"))
    }
}
