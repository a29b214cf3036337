//! The answers to what goes over a bound.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, OVERLOAD_WAIT};

pub fn no_room(what: &str) -> Answer {
    overloaded(format!("acpd is overloaded: no room for {what}"))
}

/// Whatever there is too much of, it passes.
pub fn overloaded(message: String) -> Answer {
    let hint = "try again in a moment; if this happens often, raise the limits in [control] (`acpd config --default` \
        explains them)";
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
    let hint = "send a smaller body, or raise control.body_max (for an import: control.import_max)";
    Answer::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message, hint).details(json!({ "max": max }))
}

pub fn body_timeout() -> Answer {
    let message = "the body did not arrive in time";
    Answer::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message, "send the body without pauses")
}

pub fn unsupported_encoding(found: &str) -> Answer {
    let message = format!("cannot read a body with Content-Encoding {found:?}");
    let hint = "send plain JSON without a Content-Encoding header";
    Answer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message, hint)
        .details(json!({ "encoding": found }))
}
