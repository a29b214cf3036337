//! Answers to what never became a request, as bytes: the same shape as all others, and the end of the connection.

use axum::http::StatusCode;

use super::{Answer, ApiError, ErrorBody};

/// A whole answer, with the error that this status stands for when there is no request.
pub fn refusal(status: StatusCode) -> Vec<u8> {
    let error = match status {
        StatusCode::SERVICE_UNAVAILABLE => ApiError::Overloaded { what: "another connection" },
        StatusCode::REQUEST_TIMEOUT => ApiError::HeadTimeout,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ApiError::HeadTooLarge,
        StatusCode::URI_TOO_LONG => ApiError::UriTooLong,
        _ => ApiError::NotHttp,
    };
    let Answer { status, code, message, hint, details, retry_after } = error.answer();
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

pub(super) fn head_timeout() -> Answer {
    let message = "the request head did not arrive in time";
    let hint = "send the request right after connecting; control.header_timeout sets the time limit";
    Answer::new(StatusCode::REQUEST_TIMEOUT, "head_timeout", message, hint)
}

pub(super) fn head_too_large() -> Answer {
    let message = "the request head is too large";
    let hint = "keep the head within 32 KiB and 100 header fields; put larger data into the body";
    Answer::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message, hint)
}

pub(super) fn uri_too_long() -> Answer {
    let message = "the request target is too long";
    Answer::new(StatusCode::URI_TOO_LONG, "uri_too_long", message, "put long values into the body")
}

pub(super) fn not_http() -> Answer {
    let message = "cannot parse this as an HTTP/1.1 request";
    let hint = "send an HTTP/1.1 request, such as curl --unix-socket SOCKET http://acpd/v1/health";
    Answer::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
}
