//! Records of sessions: those of acpd's own, derived, and those that others submit.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::{ApiError, RecordRefusal};
use super::extract::{Id, Json, NoQuery, Query, Text, page};
use super::openapi::SessionRecord;
use super::wire::records::{RecordEntity, RecordList, SubmittedRecord};
use crate::acp::is_shallow;
use crate::model::record::derive::{ACTIONS_MAX, Sources};
use crate::model::record::validate::{self, Check, Warning};
use crate::model::record::{self, SNAPSHOT_MULTIPLE_MAX};
use crate::model::session::Session;
use crate::model::{EntityId, ObservationId, SessionId};
use crate::store::{CheckpointFilter, EntityFilter, EntityOrder, EntitySource, NewObservation, StoreError};

/// Records in a list at the most: each is put together from much.
const LIMIT_MAX: i64 = 100;
/// A page ends early when it is this large.
const PAGE_BYTES_MAX: usize = 8 << 20;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The field to sort by.
    #[param(
        pattern = "^(started_at|ended_at|duration|session_id|observation_count|last_observed_at)$",
        default = "started_at"
    )]
    order_by: Option<String>,
    /// Ascending or descending order. Records without the value come last.
    #[param(pattern = "^(asc|desc)$", default = "desc")]
    order: Option<String>,
    /// Submitted records, sessions of acpd, or all.
    #[param(pattern = "^(submitted|derived|all)$", default = "all")]
    source: Option<String>,
    /// Include the records of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// Show the session record of a session of acpd.
///
/// acpd derives it from the session's turns and tool calls, and adds its checkpoints and the records submitted for it.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/record",
    operation_id = "getSessionRecord",
    tag = "records",
    params(("id" = SessionId, Path, description = "The session's id.")),
    responses((status = 200, description = "The session record.", body = SessionRecord)),
)]
pub async fn of_session(
    State(api): State<Arc<Api>>,
    caller: Caller,
    _: NoQuery,
    Id(id): Id<SessionId>,
) -> Result<Json<Map<String, Value>>, ApiError> {
    let session = caller.session(&api, id).await?;
    let submitted = api.registry.hub().store().entity_named(&id.to_string(), session.owner_uid).await?;
    Ok(Json(derived(&api, &session, submitted.map(|entity| entity.snapshot).unwrap_or_default()).await?))
}

/// Submit a session record.
///
/// A session can have many records. Submitting the same record again changes nothing.
#[utoipa::path(
    post,
    path = "/v1/records",
    operation_id = "submitRecord",
    tag = "records",
    request_body(content = Object, description = "A SessionRecord. Fields that the schema does not describe are stored too."),
    responses(
        (status = 200, description = "The session record was already stored.", body = SubmittedRecord),
        (status = 201, description = "The session record was stored.", body = SubmittedRecord),
    ),
)]
pub async fn submit(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(document): Json<Map<String, Value>>,
) -> Result<(StatusCode, Json<SubmittedRecord>), ApiError> {
    let (observation, warnings) = observation(&api, &caller, &document, validate::check)?;
    let observed = api.registry.observe(observation).await?;
    let status = if observed.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let (entity_id, observation_count) = (observed.entity, observed.observation_count);
    Ok((status, Json(SubmittedRecord { entity_id, observation_count, warnings })))
}

/// An observation, and the warnings about it.
pub type Checked = (NewObservation, Vec<Warning>);

/// A document as an observation. An agent can name its record as it likes, but not after another session.
pub fn observation(
    api: &Api,
    caller: &Caller,
    document: &Map<String, Value>,
    check: Check,
) -> Result<Checked, ApiError> {
    let warnings = check(document).map_err(RecordRefusal::Invalid)?;
    let name = record::session_id(document);
    if name.parse::<SessionId>().is_ok() {
        caller.writes(name)?;
    }
    let content = recordable(api, caller.owner(), document)?;
    let bytes_max = api.registry.shared().config().limits.record_max.0;
    let bytes = content.get().len();
    if bytes > bytes_max {
        return Err(RecordRefusal::TooLarge { bytes, max: bytes_max }.into());
    }
    let observation = NewObservation {
        id: ObservationId::new(),
        entity: EntityId::new(),
        owner: caller.owner(),
        content,
        snapshot_bytes_max: bytes_max.saturating_mul(SNAPSHOT_MULTIPLE_MAX),
        by: Some(caller.by()),
    };
    Ok((observation, warnings))
}

/// As it is going to be recorded: without secrets, so that it is found by what it says then.
fn recordable(api: &Api, owner: Option<u32>, document: &Map<String, Value>) -> Result<Box<RawValue>, ApiError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged { what: format!("a session record: {error}") };
    let content = to_raw_value(document).map_err(damaged)?;
    if !is_shallow(content.get()) {
        return Err(ApiError::invalid("", "is nested too deeply"));
    }
    let redactor = api.registry.hub().secrets(owner).redactor();
    Ok(redactor.and_then(|redactor| redactor.json(&content)).unwrap_or(content))
}

/// List session records: submitted ones, and those of acpd's sessions.
#[utoipa::path(
    get,
    path = "/v1/records",
    operation_id = "listRecords",
    tag = "records",
    params(ListQuery),
    responses((status = 200, description = "A page of session records; large records make the page shorter.", body = RecordList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<RecordList>, ApiError> {
    if query.limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit)) {
        return Err(ApiError::invalid("limit", format!("must be from 1 to {LIMIT_MAX}")));
    }
    let (limit, offset) = page(query.limit, query.offset)?;
    let filter = EntityFilter {
        sight: caller.listing(query.all),
        asking: caller.agent_of(),
        source: one_of("source", query.source, &SOURCES)?,
        order: one_of("order_by", query.order_by, &EntityOrder::ALL.map(|order| (order.as_str(), order)))?,
        is_ascending: one_of("order", query.order, &[("asc", true), ("desc", false)])?,
    };
    let (ids, total) = api.registry.hub().store().entities(filter, limit, offset).await?;
    let mut records = Vec::with_capacity(ids.len());
    let mut bytes = 0;
    for id in ids {
        // One that was deleted meanwhile is left out.
        let Some(entity) = whole(&api, &caller, &id).await? else { continue };
        bytes += weight(&entity);
        records.push(entity);
        if bytes > PAGE_BYTES_MAX {
            break;
        }
    }
    Ok(Json(RecordList { records, total, limit, offset }))
}

const SOURCES: [(&str, EntitySource); 3] =
    [("all", EntitySource::All), ("submitted", EntitySource::Submitted), ("derived", EntitySource::Derived)];

/// A word out of a few, each with what it stands for; the usual one when there is none.
fn one_of<T: Copy + Default>(field: &str, word: Option<String>, known: &[(&str, T)]) -> Result<T, ApiError> {
    let Some(word) = word else { return Ok(T::default()) };
    let meant = known.iter().find(|(name, _)| *name == word).map(|(_, meant)| *meant);
    meant.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let hint = format!("use one of {}", names.join(", "));
        ApiError::misunderstood(field, format!("{word:?} is unknown"), hint)
    })
}

/// Show a session record and the observations submitted for it.
#[utoipa::path(
    get,
    path = "/v1/records/{id}",
    operation_id = "getRecord",
    tag = "records",
    params(("id" = String, Path, description = "The entity's id, or the session_id of its session records.")),
    responses((status = 200, description = "The session record.", body = RecordEntity)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    _: NoQuery,
    Text(id): Text,
) -> Result<Json<RecordEntity>, ApiError> {
    let entity = whole(&api, &caller, &id).await?;
    entity.map(Json).ok_or_else(|| RecordRefusal::NoSuchRecord(id).into())
}

/// What is known of an entity, by its id or its name; nothing, when the caller may not see it or it is not there. What is the
/// id of a session means that session, whatever others call theirs.
async fn whole(api: &Api, caller: &Caller, name: &str) -> Result<Option<RecordEntity>, ApiError> {
    let store = api.registry.hub().store();
    let mut session = match name.parse() {
        Ok(id) => store.session(id).await?.filter(|session| caller.sight().has(session.owner_uid)),
        Err(_) => None,
    };
    let submitted = match &session {
        Some(session) => store.entity_named(name, session.owner_uid).await?,
        None => store.entity(name, caller.sight(), caller.owner()).await?,
    };
    if let Some(id) = submitted.as_ref().and_then(|entity| entity.session).filter(|_| session.is_none()) {
        session = store.session(id).await?;
    }
    let (observations, observation_count) = match &submitted {
        Some(entity) => (store.observations(entity).await?, entity.observation_count),
        None => (Vec::new(), 0),
    };
    let (entity_id, mut snapshot) = match (session, submitted) {
        (None, None) => return Ok(None),
        (None, Some(entity)) => (entity.id, entity.snapshot),
        (Some(session), submitted) => {
            let submitted = submitted.map(|entity| entity.snapshot).unwrap_or_default();
            (session.id.to_string(), derived(api, &session, submitted).await?)
        }
    };
    // Readers rely on these lists, which the record of a session of acpd always has.
    for field in ["checkpoints", "outcomes"] {
        snapshot.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    }
    let observations = observations.into_iter().map(Into::into).collect();
    Ok(Some(RecordEntity { entity_id, snapshot, observations, observation_count }))
}

fn weight(entity: &RecordEntity) -> usize {
    let snapshot = serde_json::to_string(&entity.snapshot).map_or(0, |text| text.len());
    snapshot + entity.observations.iter().map(|observation| observation.content.get().len()).sum::<usize>()
}

/// The record of one of acpd's own sessions.
async fn derived(api: &Api, session: &Session, submitted: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let store = api.registry.hub().store();
    let filter = CheckpointFilter { session: Some(session.id), ..CheckpointFilter::default() };
    let (mut checkpoints, count) = store.checkpoints(&filter, i64::MAX, 0).await?;
    checkpoints.reverse();
    let is_cut = i64::try_from(checkpoints.len()).is_ok_and(|shown| shown < count);
    // One more than is shown, so that it is seen when there are more.
    let turns = store.ended_turns(session.id, ACTIONS_MAX + 1).await?;
    let tools = store.tool_uses(session.id, ACTIONS_MAX + 1).await?;
    Ok(record::derive::record(session, &Sources { turns, tools, checkpoints, submitted, is_cut }))
}
