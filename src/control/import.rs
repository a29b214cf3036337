//! Sessions and records from elsewhere, all of one request or none.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use serde_json::value::RawValue;

use super::Api;
use super::caller::Caller;
use super::error::{ApiError, RecordRefusal};
use super::extract::{Bounds, Json, from_json, read_within};
use super::memory::Share;
use super::wire::{ImportReport, ImportSessions};
use super::{choices, records, sessions};
use crate::model::export::{Document, DocumentProblem};
use crate::model::record::validate::{self, Check};
use crate::registry::Import;
use crate::store::NewObservation;

/// Sessions, and records, of one import.
const DOCUMENTS_MAX: usize = 10_000;
/// A body may have a bracket or a comma in so many of its bytes. An export of ordinary talk has half as many.
const STRUCTURE_PART: usize = 16;

/// The body of an import, with a bound and a budget of its own. Its share is held until the import is done.
pub struct ImportBody {
    request: ImportSessions,
    _share: Option<Share>,
}

impl FromRequest<Arc<Api>> for ImportBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        let bytes_max = api.registry.shared().config().control.import_max.0;
        let (structure_max, setting) = (bytes_max / STRUCTURE_PART, "control.import_max");
        let bounds = Bounds { bytes_max, structure_max, setting, budget: &api.imports };
        let body = read_within(request, api, &bounds).await?;
        let body = body.ok_or_else(|| ApiError::invalid("", "the body is missing"))?;
        Ok(Self { request: from_json(&body.bytes)?, _share: body.share })
    }
}

/// Import exported sessions and session records.
///
/// The import is one transaction. Sessions and records that already exist stay unchanged, so an import can be repeated.
#[utoipa::path(
    post,
    path = "/v1/import",
    operation_id = "importSessions",
    tag = "sessions",
    request_body = ImportSessions,
    responses((status = 200, description = "The result; with a dry run, the changes that an import would make.", body = ImportReport)),
)]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ImportBody { request, _share }: ImportBody,
) -> Result<Json<ImportReport>, ApiError> {
    let ImportSessions { sessions, records, agent, workspace, dry_run } = request;
    for (field, count) in [("sessions", sessions.len()), ("records", records.len())] {
        if count > DOCUMENTS_MAX {
            return Err(ApiError::invalid(field, format!("are {count}; the maximum is {DOCUMENTS_MAX}")));
        }
    }
    let documents = sessions.into_iter().enumerate();
    let documents = documents.map(|(index, document)| session(&api, &caller, index, &document));
    let documents = documents.collect::<Result<_, _>>()?;
    let records = records.into_iter().enumerate();
    let records = records
        .map(|(index, document)| record(&api, &caller, &format!("records[{index}]"), document.get(), validate::check));
    let (records, warnings) = records.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let workspace = workspace.map(PathBuf::from);
    let (owner, peer) = (caller.owner(), caller.by());
    let import = Import { documents, records, agent, workspace, dry_run, owner, peer };
    let (sessions, records) = api.registry.import(import).await.map_err(|error| ApiError::Import(Box::new(error)))?;
    Ok(Json(ImportReport::new(dry_run, sessions, records, warnings)))
}

/// A document, and the records in it.
fn session(
    api: &Api,
    caller: &Caller,
    index: usize,
    document: &RawValue,
) -> Result<(Document, Vec<NewObservation>), ApiError> {
    let mut document = read(api, caller.owner(), index, document)?;
    let observations = std::mem::take(&mut document.observations).into_iter().enumerate();
    let observations = observations.map(|(number, value)| {
        let place = format!("sessions[{index}].observations[{number}]");
        record(api, caller, &place, value.get(), validate::check_exported).map(|(observation, _)| observation)
    });
    let observations = observations.collect::<Result<_, _>>()?;
    Ok((document, observations))
}

fn record(api: &Api, caller: &Caller, place: &str, document: &str, check: Check) -> Result<records::Checked, ApiError> {
    let document = serde_json::from_str(document)
        .map_err(|error| ApiError::invalid(place, format!("is not a session record: {error}")))?;
    records::observation(api, caller, &document, check).map_err(|error| match error {
        ApiError::Record(RecordRefusal::Invalid(invalid)) => {
            let hint = "nothing was imported; GET /v1/openapi.json describes the fields of a session record";
            let problem = invalid.message.strip_prefix(&invalid.field).unwrap_or(&invalid.message).trim_start();
            ApiError::misunderstood(format!("{place}.{}", invalid.field), problem, hint)
        }
        ApiError::Record(RecordRefusal::TooLarge { bytes, max }) => {
            ApiError::invalid(place, format!("has {bytes} bytes; the maximum is {max} (limits.record_max)"))
        }
        ApiError::Invalid { problem, .. } => ApiError::invalid(place, problem),
        other => other,
    })
}

/// A document whose own words are such as a request for a new session may have.
fn read(api: &Api, owner: Option<u32>, index: usize, document: &RawValue) -> Result<Document, ApiError> {
    let place = format!("sessions[{index}]");
    let document = Document::read(document.get()).map_err(|problem| unreadable(&place, &problem))?;
    let check = || {
        let session = &document.session;
        sessions::check_title(&session.title)?;
        sessions::check_tags(&session.tags)?;
        sessions::checked_policy(api, owner, Some(session.permissions.clone()))?;
        let chosen = session.chosen.clone();
        choices::chosen(chosen.mode, chosen.model, chosen.config_options)
    };
    check().map_err(|error| placed(&place, error))?;
    Ok(document)
}

fn unreadable(place: &str, problem: &DocumentProblem) -> ApiError {
    let hint = problem.hint();
    match problem {
        DocumentProblem::Field { field, problem } if field != "." => {
            ApiError::misunderstood(format!("{place}.{field}"), problem.clone(), hint)
        }
        DocumentProblem::Field { problem, .. } => ApiError::misunderstood(place, problem.clone(), hint),
        DocumentProblem::NotAnExport { .. } | DocumentProblem::NewerVersion { .. } => {
            ApiError::misunderstood(place, problem.to_string(), hint)
        }
    }
}

/// A refusal of one of a session's words, told with the document that it is in.
fn placed(place: &str, error: ApiError) -> ApiError {
    let inside = |field: String| format!("{place}.session.{field}");
    match error {
        ApiError::Invalid { field, problem } => ApiError::invalid(inside(field), problem),
        ApiError::Misunderstood { field, problem, hint } => ApiError::misunderstood(inside(field), problem, hint),
        other => other,
    }
}
