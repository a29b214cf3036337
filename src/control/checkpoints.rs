//! Checkpoints: made, listed, shown, and gone on from.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::{ApiError, RecordRefusal};
use super::extract::{Id, Json, NoQuery, PageQuery, Query, Texts, named, page};
use super::idempotency::{self, Attempt, Keyed, OptionalKeyed, again};
use super::sessions;
use super::wire::Start;
use super::wire::checkpoints::{
    CheckpointList, CreateCheckpoint, NewSession, RestoreCheckpoint, Restored, RestoredSession,
};
use crate::acp::is_shallow;
use crate::model::checkpoint::check_name;
use crate::model::session::Session;
use crate::model::{By, Checkpoint, CheckpointId, Chosen, ContextChange, SessionId, WorkspaceId};
use crate::registry::{self, Restoring, WorkspaceChoice};
use crate::store::{CheckpointFilter, Claim, NewCheckpoint};

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only checkpoints with exactly this name.
    name: Option<String>,
    /// Only checkpoints of this session.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<SessionId>,
    /// Only checkpoints of sessions in this workspace.
    #[param(value_type = Option<WorkspaceId>)]
    workspace_id: Option<WorkspaceId>,
    /// Include the checkpoints of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// Create a checkpoint of a session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/checkpoints",
    operation_id = "createCheckpoint",
    tag = "records",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: acpd carries out requests with the same key and body only once.", min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = CreateCheckpoint,
    responses((status = 201, description = "The checkpoint, as committed to the store.", body = Checkpoint, headers(("Idempotent-Replayed" = bool, description = "Present, \
        and `true`, when this repeats the response to an earlier request with the same key.")))),
)]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(session): Id<SessionId>,
    Keyed { key, body }: Keyed<CreateCheckpoint>,
) -> Result<Response, ApiError> {
    let owner = caller.session(&api, session).await?.owner_uid;
    match idempotency::begin(&api, key, "checkpoints", Some(session)).await? {
        Attempt::Again(_) => {
            // The body is the same, so its name is, as it was recorded.
            let mut name = body.name;
            api.registry.hub().secrets(owner).redact(&mut name);
            let checkpoint = found(&api, session, name).await?;
            Ok(again((StatusCode::CREATED, Json(checkpoint))))
        }
        Attempt::First(first) => {
            let by = Some(caller.by());
            let made = first.run(&api, |claim| make(Arc::clone(&api), session, owner, body, by, claim)).await?;
            Ok((StatusCode::CREATED, Json(made)).into_response())
        }
    }
}

async fn make(
    api: Arc<Api>,
    session: SessionId,
    owner: Option<u32>,
    request: CreateCheckpoint,
    by: By,
    claim: Option<Claim>,
) -> Result<Checkpoint, ApiError> {
    let CreateCheckpoint { name, state } = request;
    check_name(&name).map_err(|problem| ApiError::invalid("name", problem))?;
    let state = state.unwrap_or_else(|| RawValue::NULL.to_owned());
    let limits = api.registry.shared().config().limits.clone();
    // It goes before a prompt when a session goes on from it.
    let (bytes, bytes_max) = (state.get().len(), limits.checkpoint_max.0.min(limits.prompt_max.0));
    if bytes > bytes_max {
        let problem = format!("has {bytes} bytes; the maximum is {bytes_max} (limits.checkpoint_max)");
        return Err(ApiError::invalid("state", problem));
    }
    if !is_shallow(state.get()) {
        return Err(ApiError::invalid("state", "is nested too deeply"));
    }
    let new = NewCheckpoint { id: CheckpointId::new(), name, state, by };
    Ok(api.registry.add_checkpoint(session, owner, new, claim).await?)
}

/// List a session's checkpoints, newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/checkpoints",
    operation_id = "listSessionCheckpoints",
    tag = "records",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        PageQuery,
    ),
    responses((status = 200, description = "A page of checkpoints; large checkpoints make the page shorter.", body = CheckpointList)),
)]
pub async fn of_session(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(session): Id<SessionId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<CheckpointList>, ApiError> {
    caller.session(&api, session).await?;
    let filter = CheckpointFilter { session: Some(session), ..CheckpointFilter::default() };
    listed(&api, &filter, query.limit, query.offset).await
}

/// List the checkpoints of all sessions, newest first.
#[utoipa::path(
    get,
    path = "/v1/checkpoints",
    operation_id = "listCheckpoints",
    tag = "records",
    params(ListQuery),
    responses((status = 200, description = "A page of checkpoints; large checkpoints make the page shorter.", body = CheckpointList)),
)]
pub async fn of_all(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<CheckpointList>, ApiError> {
    let filter = CheckpointFilter {
        sight: caller.listing(query.all),
        session: query.session_id,
        workspace: query.workspace_id,
        name: query.name,
    };
    listed(&api, &filter, query.limit, query.offset).await
}

async fn listed(
    api: &Api,
    filter: &CheckpointFilter,
    limit: Option<i64>,
    offset: Option<i64>,
) -> Result<Json<CheckpointList>, ApiError> {
    let (limit, offset) = page(limit, offset)?;
    let (checkpoints, total) = api.registry.hub().store().checkpoints(filter, limit, offset).await?;
    Ok(Json(CheckpointList { checkpoints, total, limit, offset }))
}

/// Show a checkpoint by its name or id.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/checkpoints/{name}",
    operation_id = "getCheckpoint",
    tag = "records",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("name" = String, Path, description = "The checkpoint's name or id."),
    ),
    responses((status = 200, description = "The checkpoint.", body = Checkpoint)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    _: NoQuery,
    Texts(session, name): Texts,
) -> Result<Json<Checkpoint>, ApiError> {
    let session = named(session)?;
    caller.session(&api, session).await?;
    found(&api, session, name).await.map(Json)
}

async fn found(api: &Api, session: SessionId, name: String) -> Result<Checkpoint, ApiError> {
    let checkpoint = api.registry.hub().store().checkpoint(session, &name).await?;
    checkpoint.ok_or(ApiError::Record(RecordRefusal::NoSuchCheckpoint(name)))
}

/// Restore a checkpoint: return its state, and optionally create a session that continues from it.
///
/// The new session has the same workspace. Its agent receives the state before the first prompt.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/checkpoints/{name}/restore",
    operation_id = "restoreCheckpoint",
    tag = "records",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("name" = String, Path, description = "The checkpoint's name or id."),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: acpd carries out requests with the same key and body only once.", min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = Option<RestoreCheckpoint>,
    responses(
        (status = 200, description = "The checkpoint with its state.", body = Restored),
        (status = 201, description = "The checkpoint with its state, and the new session that continues from it.", body = Restored, headers(("Idempotent-Replayed" = bool, description = "Present, \
            and `true`, when this repeats the response to an earlier request with the same key."))),
    ),
)]
pub async fn restore(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Texts(session, name): Texts,
    OptionalKeyed(Keyed { key, body }): OptionalKeyed<RestoreCheckpoint>,
) -> Result<Response, ApiError> {
    let session = named(session)?;
    let from = caller.session(&api, session).await?;
    let checkpoint = found(&api, session, name).await?;
    let state = checkpoint.state.clone();
    let Some(wanted) = body.new_session.and_then(NewSession::wanted) else {
        return Ok(Json(Restored { checkpoint, state, session: None }).into_response());
    };
    let told = |checkpoint, session| {
        let session = Some(sessions::shown(&api, session));
        (StatusCode::CREATED, Json(Restored { checkpoint, state, session }))
    };
    let key = key.map(|key| key.about(&checkpoint.id.to_string()));
    match idempotency::begin(&api, key, "restore", Some(session)).await? {
        Attempt::Again(remembered) => {
            let made = caller.session(&api, remembered.session).await?;
            Ok(again(told(checkpoint, made)))
        }
        Attempt::First(first) => {
            let origin = checkpoint.clone();
            let made = first.run(&api, |claim| go_on(Arc::clone(&api), caller, from, origin, wanted, claim)).await?;
            Ok(told(checkpoint, made).into_response())
        }
    }
}

/// Makes a session like the one before, as far as nothing else is wanted.
async fn go_on(
    api: Arc<Api>,
    caller: Caller,
    from: Session,
    checkpoint: Checkpoint,
    wanted: RestoredSession,
    claim: Option<Claim>,
) -> Result<Session, ApiError> {
    let RestoredSession { agent, title, tags, permissions, start } = wanted;
    let title = title.unwrap_or_default();
    let tags = tags.unwrap_or(from.tags);
    sessions::check_title(&title)?;
    sessions::check_tags(&tags)?;
    let permissions = sessions::checked_policy(&api, caller.owner(), permissions)?;
    let is_same_agent = agent.as_ref().is_none_or(|agent| *agent == from.profile.slug);
    let create = registry::CreateSession {
        workspace: WorkspaceChoice::Registered(from.workspace_id),
        agent: Some(agent.unwrap_or(from.profile.slug)),
        title,
        tags,
        // What the session before could not do, this one cannot do either.
        permissions: permissions.or_else(|| is_same_agent.then_some(from.permissions)),
        limits: from.limits,
        choices: if is_same_agent { from.chosen } else { Chosen::default() },
        context: ContextChange::default(),
        mcp_servers: from.mcp_servers.filter(|_| is_same_agent),
        owner: caller.owner(),
        sight: caller.sight(),
        peer: Some(caller.peer),
        restoring: Some(Restoring { origin: checkpoint.origin(), context: checkpoint.as_context() }),
        claim,
        start: start == Start::Eager,
    };
    Ok(api.registry.create(create).await?)
}
