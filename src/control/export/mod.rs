//! Exports: a session as one document, in the format that is asked for.
//!
//! Whatever its size, a document is written while it is read: page by page from a [`Snapshot`], into pieces that wait until
//! the client has taken the one before. Nothing in it comes from the clock or from what is alive, so that the same record
//! gives the same bytes. When the record cannot be read to its end, the connection is cut and the client knows that it has
//! not got it all.

mod contained;
mod json;
mod markdown;
mod pieces;
mod tools;
mod workflow;
mod yaml;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Query};
use super::streams::OpenStream;
use crate::model::SessionId;
use crate::store::Snapshot;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// The format of the document.
    #[param(inline, default = "json")]
    #[serde(default)]
    format: ExportFormat,
}

/// The format of an export: JSON for another acpd, Markdown for people, or a workflow for a workflow engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    #[default]
    Json,
    Markdown,
    Workflow,
}

impl ExportFormat {
    const fn mime_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Workflow => "application/yaml",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Markdown => "md",
            Self::Workflow => "yaml",
        }
    }
}

/// Export a session.
///
/// JSON contains everything that another acpd needs to continue the session. Markdown is for reading. A workflow is a
/// scaffold with one agent node per completed turn. The same stored session always gives the same bytes.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/export",
    operation_id = "exportSession",
    tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session's id; any status."),
        ExportQuery,
    ),
    responses((
        status = 200,
        description = "The exported document. If the connection ends early, the document is incomplete.",
        content(
            (Object = "application/json"),
            (String = "text/markdown"),
            (String = "application/yaml")
        ),
        headers(("Content-Disposition" = String, description = "A suggested file name."))
    )),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(ExportQuery { format }): Query<ExportQuery>,
    // An export takes as long as its reader, so it counts as a stream.
    open: OpenStream,
) -> Result<Response, ApiError> {
    let snapshot = api.registry.hub().store().snapshot(id).await?;
    let snapshot = snapshot.filter(|snapshot| caller.sight().has(snapshot.session().owner_uid));
    let snapshot = snapshot.ok_or_else(|| ApiError::NoSuchSession(id.to_string()))?;
    let mut response = Response::new(pieces::body(open, |out| write(snapshot, format, out)));
    let name = format!("attachment; filename=\"{id}.{}\"", format.extension());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.mime_type()));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

async fn write(snapshot: Snapshot, format: ExportFormat, mut out: pieces::Out) -> Result<(), pieces::Failure> {
    match format {
        ExportFormat::Json => json::write(&snapshot, &mut out).await?,
        ExportFormat::Markdown => markdown::write(&snapshot, &mut out).await?,
        ExportFormat::Workflow => workflow::write(&snapshot, &mut out).await?,
    }
    out.end().await
}
