//! A stand-in for the Gemini API on the loopback. It records what it is asked, and a test decides when a stream goes on.
//!
//! ```text
//! POST …/models/M:streamGenerateContent   what `model` says, as server-sent events
//! POST …/models/M:generateContent         JSON of the schema that is asked for: the CLI's own questions
//! POST …/models/M:countTokens             a number
//! POST /v1internal:…                      the same in an account's name; what else Google is asked is in `google`
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::google;
use super::model::{self, Answer};
use crate::harness::within;

const STREAM: &str = "streamGenerateContent";

/// One request, as it came.
#[derive(Debug)]
pub struct Asked {
    pub model: String,
    /// What is to be done with it: `streamGenerateContent` for what the model is told.
    pub verb: String,
    pub key: Option<String>,
    pub body: Value,
}

impl Asked {
    pub fn prompt(&self) -> &str {
        model::prompt(&self.body)
    }

    /// How often a text is in what the model knows of the conversation.
    pub fn count(&self, text: &str) -> usize {
        self.body["contents"].to_string().matches(text).count()
    }

    pub fn has(&self, text: &str) -> bool {
        self.count(text) > 0
    }

    /// The names of the tools that the model may call.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        let declared = tools.flat_map(|tool| tool["functionDeclarations"].as_array().into_iter().flatten());
        declared.filter_map(|declared| declared["name"].as_str()).collect()
    }
}

/// A stream that stands open after its first words. Dropping it ends the stream in the middle.
pub struct Held {
    prompt: String,
    rest: Vec<Value>,
    sender: UnboundedSender<Bytes>,
}

impl Held {
    /// Says the rest.
    pub fn release(self) {
        send(&self.sender, &self.rest);
    }

    /// Waits until the CLI has hung up.
    pub async fn hung_up(&self) {
        within("the end of the CLI's request", self.sender.closed()).await;
    }

    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<Arc<Asked>>>,
    held: Mutex<VecDeque<Held>>,
    changed: Notify,
}

pub struct Api {
    address: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

impl Api {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(take).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.expect("the stand-in serves") });
        Self { address, shared, _server: server }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// What the model has been told so far, in order.
    pub fn told(&self) -> Vec<Arc<Asked>> {
        let asked = self.shared.asked.lock().expect("nobody panics with the lock");
        asked.iter().filter(|asked| asked.verb == STREAM).cloned().collect()
    }

    /// The first request with this prompt, when it has come.
    pub async fn asked(&self, prompt: &str) -> Arc<Asked> {
        self.asked_times(prompt, 1).await
    }

    /// The same request for the nth time, when that has come: the CLI asks again after some errors.
    pub async fn asked_times(&self, prompt: &str, times: usize) -> Arc<Asked> {
        let find = || self.told().into_iter().filter(|asked| asked.prompt().contains(prompt)).nth(times - 1);
        self.until(&format!("request {times} with {prompt:?}"), find).await
    }

    /// The stream to a prompt that holds, when its first words are said.
    pub async fn held(&self, prompt: &str) -> Held {
        let take = || {
            let mut held = self.shared.held.lock().expect("nobody panics with the lock");
            let index = held.iter().position(|held| held.prompt.contains(prompt))?;
            held.remove(index)
        };
        self.until(&format!("a held stream to {prompt:?}"), take).await
    }

    async fn until<T>(&self, what: &str, find: impl Fn() -> Option<T>) -> T {
        within(what, async {
            loop {
                // The notification is asked for before the look, so that what comes between the two is not missed.
                let mut changed = std::pin::pin!(self.shared.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = find() {
                    return found;
                }
                changed.await;
            }
        })
        .await
    }
}

async fn take(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if let Some((status, answer)) = google::answer(uri.path(), &body) {
        return whole(status, &answer);
    }
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let (mut model, verb) = last.split_once(':').unwrap_or(("", last));
    let envelope = body.clone();
    let is_wrapped = model == google::ENVELOPE;
    if is_wrapped {
        model = envelope["model"].as_str().unwrap_or_default();
        body = body["request"].take();
    }
    let key = headers.get("x-goog-api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let asked = Arc::new(Asked { model: model.to_owned(), verb: verb.to_owned(), key, body });
    shared.asked.lock().expect("nobody panics with the lock").push(Arc::clone(&asked));
    let response = match verb {
        STREAM => stream(&shared, &asked, is_wrapped),
        "generateContent" => whole(200, &wrapped(is_wrapped, &model::side_answer(&asked.body))),
        "countTokens" => whole(200, &json!({"totalTokens": 100})),
        _ => whole(404, &json!({"error": {"code": 404, "message": "not of the stand-in", "status": "NOT_FOUND"}})),
    };
    shared.changed.notify_waiters();
    response
}

/// As it is answered in an account's name.
fn wrapped(is_wrapped: bool, answer: &Value) -> Value {
    if is_wrapped { json!({"response": answer}) } else { answer.clone() }
}

fn stream(shared: &Shared, asked: &Asked, is_wrapped: bool) -> Response {
    let (sender, mut receiver) = unbounded_channel();
    let all = |chunks: Vec<Value>| chunks.iter().map(|chunk| wrapped(is_wrapped, chunk)).collect::<Vec<_>>();
    match model::answer(&asked.body) {
        Answer::Error { status, body } => return whole(status, &body),
        Answer::Chunks(chunks) => send(&sender, &all(chunks)),
        Answer::Held { first, rest } => {
            let (first, rest) = (all(first), all(rest));
            send(&sender, &first);
            let held = Held { prompt: asked.prompt().to_owned(), rest, sender };
            shared.held.lock().expect("nobody panics with the lock").push_back(held);
        }
    }
    let chunks = futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|chunk| chunk.map(Ok::<_, std::io::Error>))
    });
    respond(200, "text/event-stream", Body::from_stream(chunks))
}

fn send(sender: &UnboundedSender<Bytes>, chunks: &[Value]) {
    for chunk in chunks {
        // Who has hung up hears nothing more.
        let _ = sender.send(format!("data: {chunk}\r\n\r\n").into());
    }
}

fn whole(status: u16, body: &Value) -> Response {
    respond(status, "application/json; charset=UTF-8", Body::from(body.to_string()))
}

fn respond(status: u16, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("the stand-in knows statuses");
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
