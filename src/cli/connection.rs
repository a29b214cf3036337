//! Requests to the daemon: HTTP/1.1 over its Unix socket, one connection a request.
//!
//! A connection to a local socket costs next to nothing, and without a pool there is no connection that may have gone
//! stale meanwhile: what fails to connect has not been sent.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use crate::control::wire::ErrorBody;

use super::error::ClientError;
use super::wording;

/// Longer than the stop ladder of an agent, because archiving answers when the process is reaped.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// What tells how the daemon is costs it next to nothing: one that has not answered by then is stuck.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// A full listen queue is a moment's matter.
const CONNECT_ATTEMPTS_MAX: u32 = 40;
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// What only reads is asked for again when the daemon has no room for it, so often and no longer than this apart.
const READ_ATTEMPTS_MAX: u32 = 3;
const READ_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The daemon behind a socket.
#[derive(Debug)]
pub struct Daemon {
    socket: PathBuf,
}

/// The body of a stream, and the connection it comes from.
pub struct StreamBody {
    body: Incoming,
    _driver: Driver,
}

/// The task that moves the connection's bytes. It ends with its owner.
type Driver = JoinSet<()>;

impl Daemon {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Connects once, to see whether anyone is there.
    pub async fn probe(&self) -> Result<(), ClientError> {
        self.connect().await.map(drop)
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.get_within(ANSWER_TIMEOUT, path).await
    }

    /// How the daemon is, as it tells itself. One that is stuck does not keep anybody waiting, and is named.
    pub async fn report<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        match self.get_within(REPORT_TIMEOUT, path).await {
            Err(ClientError::TooSlow { seconds, .. }) => Err(silent(self.listener().await, seconds)),
            answer => answer,
        }
    }

    /// The process that listens at the socket. Where systemd made the socket that is systemd, and not whom to look for.
    async fn listener(&self) -> Option<i32> {
        let pid = timeout(REPORT_TIMEOUT, self.connect()).await.ok()?.ok()?.peer_cred().ok()?.pid()?;
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (program.trim_end() == env!("CARGO_PKG_NAME")).then_some(pid)
    }

    async fn get_within<T: DeserializeOwned>(&self, patience: Duration, path: &str) -> Result<T, ClientError> {
        let mut attempts = 1;
        loop {
            let answer = self.call_within(patience, Method::GET, path, Bytes::new()).await;
            let wait = answer.as_ref().err().filter(|error| error.is_overload()).and_then(ClientError::retry_after);
            match wait {
                Some(wait) if wait <= READ_PAUSE_MAX && attempts < READ_ATTEMPTS_MAX => {
                    attempts += 1;
                    sleep_until(Instant::now() + wait).await;
                }
                _ => return answer,
            }
        }
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let operation = operation(&Method::POST, path);
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Answer { operation, source })?;
        self.call(Method::POST, path, body.into()).await
    }

    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let operation = operation(&Method::PATCH, path);
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Answer { operation, source })?;
        self.call(Method::PATCH, path, body.into()).await
    }

    /// A request whose answer takes as long as the work takes.
    pub async fn post_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<T, ClientError> {
        let operation = operation(&Method::POST, path);
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Answer { operation, source })?;
        self.call_within(patience, Method::POST, path, body.into()).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::DELETE, path, Bytes::new()).await
    }

    /// Opens a stream of events. How long it is silent is its reader's affair.
    pub async fn stream(&self, path: &str, last_event_id: Option<i64>) -> Result<StreamBody, ClientError> {
        let mut request = Request::get(path).header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        self.open(request, path).await
    }

    /// A document that may be of any size, to be read in pieces.
    pub async fn document(&self, path: &str) -> Result<StreamBody, ClientError> {
        self.open(Request::get(path), path).await
    }

    /// Only the beginning has a deadline.
    async fn open(&self, request: hyper::http::request::Builder, path: &str) -> Result<StreamBody, ClientError> {
        let operation = operation(&Method::GET, path);
        let opening = async {
            let (response, driver) = self.send(request, Bytes::new(), &operation).await?;
            if response.status().is_success() {
                return Ok(StreamBody { body: response.into_body(), _driver: driver });
            }
            let (status, retry_after) = (response.status(), retry_after(response.headers()));
            let body = read_body(response.into_body(), &operation).await?;
            Err(api_error(status, retry_after, &body))
        };
        timeout(ANSWER_TIMEOUT, opening).await.map_err(|_| too_slow(&operation, ANSWER_TIMEOUT))?
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        self.call_within(ANSWER_TIMEOUT, method, path, body).await
    }

    async fn call_within<T: DeserializeOwned>(
        &self,
        patience: Duration,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let operation = operation(&method, path);
        let is_post = method == Method::POST;
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if is_post {
            // Whoever sends it again, in whatever way, does not do it twice.
            request = request.header("idempotency-key", Uuid::now_v7().to_string());
        }
        let exchange = async {
            // The driver must live until the body is read.
            let (response, _driver) = self.send(request, body, &operation).await?;
            let (status, retry_after) = (response.status(), retry_after(response.headers()));
            Ok((status, retry_after, read_body(response.into_body(), &operation).await?))
        };
        let (status, retry_after, body) =
            timeout(patience, exchange).await.map_err(|_| too_slow(&operation, patience))??;
        if !status.is_success() {
            return Err(api_error(status, retry_after, &body));
        }
        serde_json::from_slice(&body).map_err(|source| ClientError::Answer { operation, source })
    }

    async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
        operation: &str,
    ) -> Result<(Response<Incoming>, Driver), ClientError> {
        let request = request.header(HOST, "acpd").body(Full::new(body)).map_err(|error| {
            ClientError::local(format!("cannot make the request {operation}: {error}"), String::new())
        })?;
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken(operation))?;
        let mut driver = JoinSet::new();
        // Its error, if there is one, reaches the request that waits for the answer.
        driver.spawn(async move { drop(connection.await) });
        let response = sender.send_request(request).await.map_err(broken(operation))?;
        Ok((response, driver))
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        let mut attempts = 1;
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < CONNECT_ATTEMPTS_MAX => {
                    attempts += 1;
                    sleep_until(Instant::now() + CONNECT_PAUSE).await;
                }
                Err(source) => {
                    return Err(ClientError::Unreachable { socket: self.socket.clone(), source });
                }
            }
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl StreamBody {
    /// The next piece; nothing when the stream has ended as it should. Safe to be dropped while it waits.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match self.body.frame().await.transpose()? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// `path?name=value&…`, with the values encoded; without parameters, the path alone.
pub fn with_query(path: &str, parameters: &[(&str, String)]) -> String {
    let query: String = serde_urlencoded::to_string(parameters).unwrap_or_default();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

async fn read_body(body: Incoming, operation: &str) -> Result<Bytes, ClientError> {
    let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let collected = collected.map_err(|source| ClientError::Broken { operation: operation.to_owned(), source })?;
    Ok(collected.to_bytes())
}

/// The one shape of errors; and whatever can be said about an answer that does not have it.
fn api_error(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ClientError {
    let body = serde_json::from_slice::<ErrorBody>(body).unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(body).trim().to_owned();
        ErrorBody {
            error: "unknown".to_owned(),
            message: if said.is_empty() {
                format!("the daemon answered {status}")
            } else {
                format!("{status}: {said}")
            },
            hint: String::new(),
            details: Value::Null,
        }
    });
    ClientError::Api { status, body: Box::new(wording::for_people(body)), retry_after }
}

/// The daemon tells it in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn operation(method: &Method, path: &str) -> String {
    // The query may hold what a person wrote; the path says enough.
    format!("{method} {}", path.split('?').next().unwrap_or(path))
}

fn broken(operation: &str) -> impl Fn(hyper::Error) -> ClientError {
    let operation = operation.to_owned();
    move |source| ClientError::Broken { operation: operation.clone(), source: Box::new(source) }
}

fn too_slow(operation: &str, patience: Duration) -> ClientError {
    ClientError::TooSlow { operation: operation.to_owned(), seconds: patience.as_secs() }
}

fn silent(pid: Option<i32>, seconds: u64) -> ClientError {
    let (who, hint) = match pid {
        Some(pid) => (
            format!("the daemon (pid {pid})"),
            format!(
                "if it was paused, continue it with `kill -CONT {pid}`; else read `acpd logs`; after `kill -9 {pid}` the next \
                 command starts a new daemon"
            ),
        ),
        None => ("the daemon".to_owned(), "read `acpd logs`, and restart the daemon if it is stuck".to_owned()),
    };
    ClientError::Silent {
        message: format!("{who} accepts connections, but has not answered within {seconds} seconds"),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_daemon_that_ends_before_it_accepts_is_absent() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("acpd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = Daemon::new(socket);
        let mut connecting = std::pin::pin!(daemon.connect());
        tokio::select! {
            biased;
            _ = &mut connecting => panic!("the kernel has not yet reported the connection"),
            () = std::future::ready(()) => {}
        }
        drop(listener);
        let error = connecting.await.unwrap_err();
        assert!(error.is_absent(), "{error:?}");
    }

    #[test]
    fn query_values_are_encoded() {
        let path = with_query("/v1/sessions", &[("tag", "a&b=c d/é".to_owned()), ("limit", "1".to_owned())]);
        assert_eq!(path, "/v1/sessions?tag=a%26b%3Dc+d%2F%C3%A9&limit=1");
        assert_eq!(with_query("/v1/agents", &[]), "/v1/agents");
    }

    #[test]
    fn an_error_of_any_shape_says_something() {
        let json = br#"{"error":"agent_not_installed","message":"no gemini","hint":"install it","details":{}}"#;
        let error = api_error(StatusCode::UNPROCESSABLE_ENTITY, None, json);
        assert!(error.is_api("agent_not_installed"));
        assert_eq!((error.to_string().as_str(), error.hint()), ("no gemini", "install it"));
        assert_eq!(api_error(StatusCode::BAD_GATEWAY, None, b"").to_string(), "the daemon answered 502 Bad Gateway");
        assert_eq!(api_error(StatusCode::NOT_FOUND, None, b"nope\n").to_string(), "404 Not Found: nope");
    }
}
