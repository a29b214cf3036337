//! How the Gemini API is stood in for.
//!
//! ```text
//! POST …/models/M:streamGenerateContent   the answer of `model`, as server-sent events
//! POST …/models/M:generateContent         JSON of the schema that is asked for: the CLI's own questions
//! POST …/models/M:countTokens             a number
//! POST /v1internal:…                      the same in an account's name; other requests to Google are in `google`
//! ```

use std::sync::Arc;

use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::google;
use super::model;
use crate::stand_in::{self, Answer, StandIn};

pub type Api = StandIn<Asked>;

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

impl stand_in::Asked for Asked {
    fn answer(uri: &Uri, headers: &HeaderMap, body: &[u8]) -> (Option<Self>, Answer) {
        if let Some((status, body)) = google::answer(uri.path(), body) {
            return (None, Answer::Whole { status, body });
        }
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        let last = uri.path().rsplit('/').next().unwrap_or_default();
        let (mut model, verb) = last.split_once(':').unwrap_or(("", last));
        let envelope = body.clone();
        let is_wrapped = model == google::ENVELOPE;
        if is_wrapped {
            model = envelope["model"].as_str().unwrap_or_default();
            body = body["request"].take();
        }
        let key = headers.get("x-goog-api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        let whole = |status, body| Answer::Whole { status, body };
        let answer = match verb {
            STREAM => stream(&body, is_wrapped),
            "generateContent" => whole(200, wrapped(is_wrapped, &model::side_answer(&body))),
            "countTokens" => whole(200, json!({"totalTokens": 100})),
            _ => whole(404, json!({"error": {"code": 404, "message": "not of the stand-in", "status": "NOT_FOUND"}})),
        };
        (Some(Self { model: model.to_owned(), verb: verb.to_owned(), key, body }), answer)
    }

    fn prompt(&self) -> &str {
        model::prompt(&self.body)
    }
}

impl Api {
    /// What the model has been told so far, in order.
    pub fn told(&self) -> Vec<Arc<Asked>> {
        self.all().into_iter().filter(|asked| asked.verb == STREAM).collect()
    }

    /// The first request with this prompt, when it has come.
    pub async fn asked(&self, prompt: &str) -> Arc<Asked> {
        self.asked_times(prompt, 1).await
    }

    /// The same request for the nth time, when that has come: the CLI asks again after some errors.
    pub async fn asked_times(&self, prompt: &str, times: usize) -> Arc<Asked> {
        let find =
            || self.told().into_iter().filter(|asked| model::prompt(&asked.body).contains(prompt)).nth(times - 1);
        self.until(&format!("request {times} with {prompt:?}"), find).await
    }
}

/// As it is answered in an account's name.
fn wrapped(is_wrapped: bool, answer: &Value) -> Value {
    if is_wrapped { json!({"response": answer}) } else { answer.clone() }
}

fn stream(body: &Value, is_wrapped: bool) -> Answer {
    let event = |chunk: &Value| format!("data: {}\r\n\r\n", wrapped(is_wrapped, chunk));
    let events = |chunks: Vec<Value>| chunks.iter().map(event).collect();
    match model::answer(body) {
        model::Answer::Error { status, body } => Answer::Whole { status, body },
        model::Answer::Chunks(chunks) => Answer::Stream(events(chunks)),
        model::Answer::Held { first, rest } => Answer::Held { first: events(first), rest: events(rest) },
    }
}
