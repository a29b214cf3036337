//! The answers to what goes over a bound.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, OVERLOAD_WAIT};

pub fn no_room(what: &str) -> Answer {
    overloaded(format!("acpd has no room for {what} now"))
}

/// Whatever there is too much of, it passes.
pub fn overloaded(message: String) -> Answer {
    let hint = "try again in a moment; docs/operations.md tells what to raise when this happens often";
    Answer::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message, hint).retry_after(OVERLOAD_WAIT)
}

pub fn too_many_streams(max: usize) -> Answer {
    let message = format!("you have {max} event streams and exports open already");
    let hint = "close one, follow all sessions with one stream (GET /v1/events), or raise control.streams_per_user";
    Answer::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message, hint)
        .details(json!({ "max": max }))
        .retry_after(OVERLOAD_WAIT)
}

pub fn body_too_large(max: usize) -> Answer {
    let message = format!("the body is larger than {max} bytes");
    let hint = "send less, or raise control.body_max (of an import, control.import_max)";
    Answer::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message, hint).details(json!({ "max": max }))
}

pub fn body_timeout() -> Answer {
    let message = "the body did not come in time";
    Answer::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message, "send it without pauses")
}

pub fn unsupported_encoding(found: &str) -> Answer {
    let message = format!("the body's Content-Encoding is {found:?}, which acpd does not read");
    let hint = "send the JSON as it is, without a Content-Encoding";
    Answer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message, hint)
        .details(json!({ "encoding": found }))
}
