//! Answers to what never became a request, as bytes: the same shape as all others, and the end of the connection.

use axum::http::StatusCode;

use super::bounds;
use super::{Answer, ErrorBody};

/// A whole answer, with the error that this status stands for when there is no request.
pub fn refusal(status: StatusCode) -> Vec<u8> {
    let Answer { code, message, hint, details, retry_after, .. } = answer(status);
    let body = ErrorBody { error: code.to_owned(), message, hint, details };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or_default();
    let retry_after = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{retry_after}\r\n",
        status.as_u16(),
        body.len(),
    );
    [head.into_bytes(), body].concat()
}

fn answer(status: StatusCode) -> Answer {
    let new = |code, message: &str, hint: &str| Answer::new(status, code, message, hint);
    match status {
        StatusCode::SERVICE_UNAVAILABLE => bounds::overloaded("another connection"),
        StatusCode::REQUEST_TIMEOUT => new(
            "head_timeout",
            "the request's head did not come in time",
            "send the request at once when you connect; how long it may take is control.header_timeout",
        ),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => new(
            "head_too_large",
            "the request's head is too large",
            "it may have 32 KiB and 100 header fields; what is larger belongs into the body",
        ),
        StatusCode::URI_TOO_LONG => {
            new("uri_too_long", "the request's target is too long", "what is longer belongs into the body")
        }
        _ => new(
            "bad_request",
            "this is not a request of HTTP/1.1",
            "send one, such as curl --unix-socket SOCKET http://acpd/v1/health",
        ),
    }
}
