//! Blobs: the media of messages, by its hash.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{NoQuery, Text};
use crate::model::BlobHash;

/// What is named by its hash never changes.
const CACHING: &str = "private, max-age=31536000, immutable";

/// Download the data of a content block.
///
/// The media type comes from the newest message, unless a browser would execute that type. Headers tell browsers to
/// save the data and not to guess its type.
#[utoipa::path(
    get,
    path = "/v1/blobs/{sha256}",
    operation_id = "getBlob",
    tag = "messages",
    params(
        ("sha256" = String, Path, description = "The blob's SHA-256 hash in lower case.", pattern = "^[0-9a-f]{64}$"),
        ("If-None-Match" = Option<String>, Header, description = "Entity tags that the client already has."),
    ),
    responses(
        (
            status = 200,
            description = "The blob's bytes. Images, audio, video and plain text have the media type of their \
                message.",
            content(
                (String = "application/octet-stream"),
                (String = "image/*"),
                (String = "audio/*"),
                (String = "video/*"),
                (String = "text/plain")
            ),
            headers(("ETag" = String, description = "The blob's hash in quotes."))
        ),
        (status = 304, description = "The client already has this blob.")
    ),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Text(text): Text,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Ok(hash) = text.parse::<BlobHash>() else { return Err(ApiError::NoSuchBlob(text)) };
    let blob = api.registry.hub().store().blob(hash, caller.sight()).await?;
    let blob = blob.ok_or_else(|| ApiError::NoSuchBlob(hash.to_string()))?;
    let tag = format!("\"{hash}\"");
    let is_known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| known.trim().trim_start_matches("W/") == tag || known.trim() == "*");
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(blob.data) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let mime_type = harmless(&blob.mime_type);
    for (name, value) in [
        (header::CONTENT_TYPE, HeaderValue::from_str(mime_type).unwrap_or(HeaderValue::from_static(UNTYPED))),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
        (header::CACHE_CONTROL, HeaderValue::from_static(CACHING)),
    ] {
        response.headers_mut().insert(name, value);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

const UNTYPED: &str = "application/octet-stream";

/// A type that is only ever looked at or listened to; all others are just bytes.
fn harmless(mime_type: &str) -> &str {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // An SVG is a document with scripts.
    let is_media = ["image/", "audio/", "video/"].iter().any(|family| essence.starts_with(family));
    let is_document = essence.contains("svg") || essence.contains("xml");
    if (is_media && !is_document) || essence == "text/plain" { mime_type } else { UNTYPED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_browser_runs_is_called_by_its_name() {
        for kept in ["image/png", "audio/wav", "text/plain; charset=utf-8", "Image/JPEG"] {
            assert_eq!(harmless(kept), kept);
        }
        for dropped in
            ["text/html", "image/svg+xml", "IMAGE/SVG+XML; x=y", "application/javascript", "application/pdf", "", "x"]
        {
            assert_eq!(harmless(dropped), UNTYPED, "{dropped}");
        }
    }
}
