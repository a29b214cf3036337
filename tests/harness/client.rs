//! The harness's HTTP client: one connection per request, so that no test depends on what another left behind.

use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::{Daemon, within};

/// How long the daemon is asked to wait for a turn to end: less than the deadline, so that its answer is what fails.
const TURN_WAIT_SECS: u64 = 30;
const MESSAGES_MAX: u64 = 1000;
pub(super) const JSON: &str = "application/json";

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body as JSON, or `Null` when it is none.
    pub body: Value,
    pub text: String,
}

impl Reply {
    /// The body, when the status is the one that the test expects.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Value {
        assert_eq!(self.status, status, "the answer is: {}", self.text);
        self.body
    }

    /// The body of a refusal, which has the one shape and says what to do.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.header("content-type"), Some(JSON), "{}", self.text);
        let body = self.expect_status(status);
        let fields: Vec<&str> = body.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["error", "message", "hint", "details"], "{body}");
        assert_eq!(body["error"], code, "{body}");
        let is_told = |field: &str| body[field].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_told("message") && is_told("hint"), "{body}");
        body
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// An answer whose body is still coming. Dropping it closes the connection.
pub(super) struct OpenReply {
    pub response: Response<Incoming>,
    pub connection: JoinSet<()>,
}

pub(super) async fn open(socket: &Path, request: Request<Full<Bytes>>) -> Result<OpenReply, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| format!("cannot connect: {error}"))?;
    open_on(stream, request).await
}

pub(super) async fn open_on(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<OpenReply, String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| format!("no handshake: {error}"))?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        // What goes wrong on the connection is told to whoever reads the answer.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.map_err(|error| format!("no answer: {error}"))?;
    Ok(OpenReply { response, connection: task })
}

pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header(HOST, "acpd");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).expect("the test's request is well-formed")
}

async fn exchange(socket: &Path, request: Request<Full<Bytes>>) -> Result<Reply, String> {
    whole(open(socket, request).await?).await
}

pub(super) async fn exchange_on(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<Reply, String> {
    whole(open_on(stream, request).await?).await
}

async fn whole(reply: OpenReply) -> Result<Reply, String> {
    let OpenReply { response, connection: _connection } = reply;
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|error| format!("the answer was cut off: {error}"))?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body, text })
}

/// Any request to the daemon.
impl Daemon {
    pub async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.request_with(method, path, &[], body).await
    }

    /// A request with headers of its own, an `Idempotency-Key` for one.
    pub async fn request_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Reply {
        self.try_request(method, path, headers, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// A request that may fail, because the daemon is about to be killed.
    pub async fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Reply, String> {
        let mut headers = headers.to_vec();
        if body.is_some() {
            headers.push((CONTENT_TYPE.as_str(), JSON));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let exchange = exchange(self.socket(), request(method, path, &headers, body));
        within(&format!("the answer to {method} {path}"), exchange).await
    }

    /// A request whose body is sent as it is, whether or not it is what its type says.
    pub async fn raw_request(&self, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> Reply {
        let request = request(method, path, &[(CONTENT_TYPE.as_str(), content_type)], body.into());
        let reply = within(&format!("the answer to {method} {path}"), exchange(self.socket(), request)).await;
        reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// A bare connection, for a client that misbehaves.
    pub async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.expect("the daemon takes connections")
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.request("PATCH", path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.request("DELETE", path, None).await
    }
}

/// The requests that most tests begin with.
impl Daemon {
    /// Makes a session of that agent in the test's workspace, and returns its id.
    pub async fn create_session(&self, agent: &str) -> String {
        let body = json!({"workspace": self.workspace(), "agent": agent});
        let session = self.post("/v1/sessions", body).await.expect_status(201);
        session["id"].as_str().expect("a session has an id").to_owned()
    }

    /// Makes a session whose process starts with the first prompt only, and returns its id.
    pub async fn create_lazy_session(&self, agent: &str) -> String {
        let body = json!({"workspace": self.workspace(), "agent": agent, "start": "lazy"});
        let session = self.post("/v1/sessions", body).await.expect_status(201);
        session["id"].as_str().expect("a session has an id").to_owned()
    }

    /// The session as it is now, with its messages.
    pub async fn session(&self, id: &str) -> Value {
        self.get(&format!("/v1/sessions/{id}")).await.expect_status(200)
    }

    /// Has a prompt accepted, and returns the answer with its `turnId`, `messageId`, `position` and `after`.
    pub async fn prompt(&self, id: &str, text: &str) -> Value {
        self.post(&format!("/v1/sessions/{id}/prompt"), json!({"text": text})).await.expect_status(202)
    }

    /// Waits until the turn has ended, in whichever way, and returns it.
    pub async fn wait_turn(&self, id: &str, turn_id: &str) -> Value {
        let path = format!("/v1/sessions/{id}/turns/{turn_id}?wait={TURN_WAIT_SECS}");
        let turn = self.get(&path).await.expect_status(200);
        let has_ended = matches!(turn["status"].as_str(), Some("completed" | "failed" | "cancelled" | "interrupted"));
        assert!(has_ended, "the turn has not ended: {turn}");
        turn
    }

    /// Prompts, waits for the turn to end, and returns the turn.
    pub async fn prompt_and_wait(&self, id: &str, text: &str) -> Value {
        let accepted = self.prompt(id, text).await;
        self.wait_turn(id, accepted["turnId"].as_str().expect("a turn has an id")).await
    }

    pub async fn messages(&self, id: &str) -> Vec<Value> {
        let path = format!("/v1/sessions/{id}/messages?limit={MESSAGES_MAX}");
        let body = self.get(&path).await.expect_status(200);
        body["messages"].as_array().expect("a list of messages").clone()
    }
}
