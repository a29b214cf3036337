//! What becomes of connections for which there is no place: they are told so, and closed.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::error::plain;
use super::guarded::DRAIN_TIMEOUT;

/// How long a client may take to send the beginning of its request. Clients that are answered before they have asked take
/// that for a fault.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const STEP_BYTES: usize = 4 << 10;

/// Waits for a request, answers, and gives the client a moment to read that.
pub async fn patiently(mut stream: UnixStream) {
    let asked = tokio::time::timeout(REQUEST_TIMEOUT, stream.readable()).await;
    if !matches!(asked, Ok(Ok(()))) {
        return at_once(&stream);
    }
    at_once(&stream);
    let draining = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut bytes = [0; STEP_BYTES];
        while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    };
    // A client that sends without an end is cut off.
    drop(tokio::time::timeout(DRAIN_TIMEOUT, draining).await);
}

/// The answer, as far as it goes: nobody waits for a client.
pub fn at_once(stream: &UnixStream) {
    if let Err(error) = stream.try_write(&plain::refusal(StatusCode::SERVICE_UNAVAILABLE)) {
        tracing::debug!(%error, "a client that finds no place is gone already");
    }
}
