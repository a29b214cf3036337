//! What a line is: a request, a notification, an answer, or noise. Everything is borrowed from the line; parameters and
//! results stay raw until somebody wants them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug)]
pub enum Envelope<'a> {
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Answer {
        id: u64,
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// Not JSON-RPC. Counted and logged, never answered.
    Noise,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct RpcError {
    pub code: i64,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    pub const PARSE_ERROR: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The request was cancelled.
    pub const CANCELLED: i64 = -32800;
    /// A file, or a terminal, that is not there.
    pub const NOT_FOUND: i64 = -32002;
    pub const AUTH_REQUIRED: i64 = -32000;
}

impl RpcError {
    /// Whether the agent does not know a session: it refuses the request and names the session.
    pub fn loses(&self, session: &str) -> bool {
        let named = || self.data.as_ref().is_some_and(|data| data.to_string().contains(session));
        matches!(self.code, Self::NOT_FOUND | Self::INVALID_PARAMS) && (self.message.contains(session) || named())
    }

    /// An error of any shape is an error: what does not have the usual one is told as it is. What many put beside a message
    /// that says nothing is put to it.
    fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct Loose {
            code: Value,
            #[serde(default)]
            message: Value,
            data: Option<Value>,
        }
        let strict = |loose: Loose| {
            let code = loose.code.as_i64().or_else(|| loose.code.as_str()?.parse().ok())?;
            Some(Self { code, message: loose.message.as_str().unwrap_or_default().to_owned(), data: loose.data })
        };
        let read = serde_json::from_str(raw.get()).ok().and_then(strict);
        let mut error = read.unwrap_or_else(|| Self { code: 0, message: raw.get().to_owned(), data: None });
        let details = error.data.as_ref().and_then(|data| data.get("details")?.as_str());
        if let Some(details) = details.filter(|details| !details.is_empty() && !error.message.contains(*details)) {
            error.message = format!("{}: {details}", error.message);
        }
        error
    }
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Reads a line. Logging or terminal codes before the object are skipped: they are common, and the object is good.
    pub fn parse(line: &'a str) -> Self {
        if let Ok(fields) = serde_json::from_str::<Fields<'a>>(line) {
            return Self::from_fields(fields);
        }
        match line.find('{') {
            Some(start) if start > 0 => match serde_json::from_str::<Fields<'a>>(&line[start..]) {
                Ok(fields) => Self::from_fields(fields),
                Err(_) => Self::Noise,
            },
            Some(_) | None => Self::Noise,
        }
    }

    fn from_fields(fields: Fields<'a>) -> Self {
        match fields {
            Fields { id: Some(id), method: Some(method), params, .. } => Self::Request { id, method, params },
            Fields { id: None, method: Some(method), params, .. } => Self::Notification { method, params },
            // We number our requests; an answer with any other id is nobody's.
            Fields { id: Some(id), method: None, result, error, .. } => match (id.get().parse(), result, error) {
                (Ok(id), _, Some(error)) => Self::Answer { id, outcome: Err(RpcError::read(error)) },
                (Ok(id), Some(result), None) => Self::Answer { id, outcome: Ok(result) },
                // `"result": null` reads as absent; it is an answer all the same.
                (Ok(id), None, None) => Self::Answer { id, outcome: Ok(RawValue::NULL) },
                (Err(_), _, _) => Self::Noise,
            },
            Fields { id: None, method: None, .. } => Self::Noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        match Envelope::parse(line) {
            Envelope::Request { id, method, .. } => format!("request {} {method}", id.get()),
            Envelope::Notification { method, params } => format!("notification {method} {}", params.is_some()),
            Envelope::Answer { id, outcome: Ok(result) } => format!("answer {id} {}", result.get()),
            Envelope::Answer { id, outcome: Err(error) } => format!("error {id} {} {}", error.code, error.message),
            Envelope::Noise => "noise".to_owned(),
        }
    }

    #[test]
    fn lines_are_routed_by_their_fields() {
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":"a","method":"fs/read","params":{}}"#), "request \"a\" fs/read");
        assert_eq!(kind(r#"{"method":"session/update","params":{"x":1}}"#), "notification session/update true");
        assert_eq!(kind(r#"{"id":3,"result":{"a":1}}"#), "answer 3 {\"a\":1}");
        assert_eq!(kind(r#"{"id":3,"result":null}"#), "answer 3 null");
        assert_eq!(kind(r#"{"id":4,"error":{"code":-32000,"message":"sign in"}}"#), "error 4 -32000 sign in");
        assert_eq!(kind(r#"{"id":4,"error":{"code":429}}"#), "error 4 429 ");
        assert_eq!(kind(r#"{"id":5,"error":{"code":"x","message":null}}"#), r#"error 5 0 {"code":"x","message":null}"#);
        assert_eq!(kind(r#"{"id":5,"error":{"code":"429","message":null}}"#), "error 5 429 ");
        let detailed =
            r#"{"id":6,"error":{"code":-32603,"message":"Internal error","data":{"details":"no such session"}}}"#;
        assert_eq!(kind(detailed), "error 6 -32603 Internal error: no such session");
        assert_eq!(kind(r#"{"id":"not ours","result":1}"#), "noise");
    }

    #[test]
    fn noise_before_the_object_is_skipped_and_other_noise_is_noise() {
        assert_eq!(kind("\u{1b}[2K[info] {\"id\":1,\"result\":1}"), "answer 1 1");
        for noise in ["Loading…", "{", "{}", "[1]", "42", "warn {broken", "\"{\""] {
            assert_eq!(kind(noise), "noise", "{noise}");
        }
    }

    #[test]
    fn escaped_methods_are_read_too() {
        assert_eq!(kind(r#"{"method":"session\/update"}"#), "notification session/update false");
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_a_panic(line in "\\PC*") {
            let _ = Envelope::parse(&line);
        }
    }
}
