//! A stand-in for a model's API on the loopback. It records every request, and a test decides when a held stream goes on.
//!
//! The tests of one agent say how a request is read and answered; this module serves, records and holds.

#![allow(dead_code, reason = "every test file compiles its own copy and uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::harness::within;

pub enum Answer {
    Whole {
        status: u16,
        body: Value,
    },
    /// Server-sent events, all at once.
    Stream(Vec<String>),
    /// Server-sent events, and the rest of them when the test releases the stream.
    Held {
        first: Vec<String>,
        rest: Vec<String>,
    },
}

/// A request for the model, as the tests of an agent read it.
pub trait Asked: Send + Sync + 'static {
    /// Reads and answers a request. A request that is not for the model is answered and not recorded.
    fn answer(uri: &Uri, headers: &HeaderMap, body: &[u8]) -> (Option<Self>, Answer)
    where
        Self: Sized;

    fn prompt(&self) -> &str;
}

/// A stream that stays open after its first events. Dropping it ends the stream in the middle.
pub struct Held {
    prompt: String,
    rest: Vec<String>,
    sender: UnboundedSender<Bytes>,
}

impl Held {
    /// Sends the rest.
    pub fn release(self) {
        send(&self.sender, self.rest);
    }

    /// Waits until the agent has closed the connection.
    pub async fn hung_up(&self) {
        within("the end of the agent's request", self.sender.closed()).await;
    }

    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

struct Shared<A> {
    asked: Mutex<Vec<Arc<A>>>,
    held: Mutex<VecDeque<Held>>,
    changed: Notify,
}

pub struct StandIn<A> {
    address: String,
    shared: Arc<Shared<A>>,
    _server: JoinSet<()>,
}

impl<A: Asked> StandIn<A> {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let shared = Arc::new(Shared { asked: Mutex::default(), held: Mutex::default(), changed: Notify::new() });
        let router =
            Router::new().fallback(take::<A>).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.expect("the stand-in serves") });
        Self { address, shared, _server: server }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// All requests for the model so far, in order.
    pub fn all(&self) -> Vec<Arc<A>> {
        self.shared.asked.lock().expect("no thread panics with the lock").clone()
    }

    /// The stream to a prompt that holds, when its first events are sent.
    pub async fn held(&self, prompt: &str) -> Held {
        let take = || {
            let mut held = self.shared.held.lock().expect("no thread panics with the lock");
            let index = held.iter().position(|held| held.prompt.contains(prompt))?;
            held.remove(index)
        };
        self.until(&format!("a held stream to {prompt:?}"), take).await
    }

    pub async fn until<T>(&self, what: &str, find: impl Fn() -> Option<T>) -> T {
        within(what, async {
            loop {
                // Listen before the look, so that a request between the two is not missed.
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

async fn take<A: Asked>(State(shared): State<Arc<Shared<A>>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let (asked, answer) = A::answer(&uri, &headers, &body);
    let prompt = asked.as_ref().map_or_else(String::new, |asked| asked.prompt().to_owned());
    shared.asked.lock().expect("no thread panics with the lock").extend(asked.map(Arc::new));
    let response = match answer {
        Answer::Whole { status, body } => whole(status, &body),
        Answer::Stream(events) => stream(events).0,
        Answer::Held { first, rest } => {
            let (response, sender) = stream(first);
            let held = Held { prompt, rest, sender };
            shared.held.lock().expect("no thread panics with the lock").push_back(held);
            response
        }
    };
    shared.changed.notify_waiters();
    response
}

/// A stream that ends when the sender is dropped.
fn stream(events: Vec<String>) -> (Response, UnboundedSender<Bytes>) {
    let (sender, mut receiver) = unbounded_channel();
    send(&sender, events);
    let chunks = futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|chunk| chunk.map(Ok::<_, std::io::Error>))
    });
    (respond(200, "text/event-stream", Body::from_stream(chunks)), sender)
}

fn send(sender: &UnboundedSender<Bytes>, events: Vec<String>) {
    for event in events {
        // An agent that has closed the connection gets nothing more.
        let _ = sender.send(event.into());
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
