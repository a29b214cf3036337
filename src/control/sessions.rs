//! Sessions: made, listed, shown, changed and closed; and their messages.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::choices;
use super::error::ApiError;
use super::extract::{Id, Json, NoQuery, OptionalJson, Query, page};
use super::idempotency::{self, Attempt, Keyed, again};
use super::wire::{
    CreateSession, McpChoice, MessageList, PatchSession, Session, SessionList, SessionView, Start, chosen_servers,
};
use crate::model::context::Change;
use crate::model::mcp::{ChosenServer, ServerProblem};
use crate::model::permission::policy::PolicyProblem;
use crate::model::{self, ContextChange, Peer, Policy, SessionId, SessionStatus, Timestamp, WorkspaceId};
use crate::registry::{self, WorkspaceChoice};
use crate::session::{Edit, known};
use crate::store::{Claim, EventScope, SessionChange, SessionFilter};

/// Messages in the view of one session.
const VIEW_MESSAGES: i64 = 200;
pub const TITLE_CHARS_MAX: usize = 200;
pub const TAGS_MAX: usize = 32;
pub const TAG_CHARS_MAX: usize = 64;
const REASON_CHARS_MAX: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only sessions in this workspace.
    #[param(value_type = Option<WorkspaceId>)]
    workspace_id: Option<WorkspaceId>,
    /// Only sessions with this agent.
    agent: Option<String>,
    /// Only sessions with these statuses, separated by commas. Default: active and suspended.
    #[param(pattern = "^(active|suspended|archived|error)(,(active|suspended|archived|error))*$")]
    status: Option<String>,
    /// Only sessions with this tag.
    tag: Option<String>,
    /// Only sessions with exactly this title, or with an id that matches these digits. At least four digits match a
    /// prefix or suffix of the id, or a prefix of its last group. Hyphens are ignored.
    name: Option<String>,
    /// Include archived sessions. Ignored if `status` is given.
    #[serde(default)]
    include_archived: bool,
    /// Include the sessions of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveQuery {
    /// Delete the session permanently with all its data.
    #[serde(default)]
    purge: bool,
    /// The reason for archiving, stored as a message.
    #[param(max_length = 1000)]
    reason: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessagesQuery {
    /// Only messages from this time on.
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only messages after this sequence number.
    after: Option<i64>,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 200)]
    limit: Option<i64>,
}

/// An empty JSON object.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Create a session.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    operation_id = "createSession",
    tag = "sessions",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: acpd carries out requests with the same key and body only once.", min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = CreateSession,
    responses((status = 201, description = "The session, as committed to the store. Unless `start` is `lazy`, its process starts in the background.", body = Session, headers(("Idempotent-Replayed" = bool, description = "Present, \
        and `true`, when this repeats the response to an earlier request with the same key.")))),
)]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Keyed { key, body }: Keyed<CreateSession>,
) -> Result<Response, ApiError> {
    match idempotency::begin(&api, key, "sessions", None).await? {
        Attempt::Again(remembered) => {
            let session = caller.session(&api, remembered.session).await?;
            Ok(again((StatusCode::CREATED, Json(shown(&api, session)))))
        }
        Attempt::First(first) => {
            let created = first.run(&api, |claim| make(Arc::clone(&api), caller, body, claim)).await?;
            Ok((StatusCode::CREATED, Json(shown(&api, created))).into_response())
        }
    }
}

async fn make(
    api: Arc<Api>,
    caller: Caller,
    request: CreateSession,
    claim: Option<Claim>,
) -> Result<model::session::Session, ApiError> {
    let workspace = match (request.workspace, request.workspace_id) {
        (Some(path), None) => WorkspaceChoice::Path(PathBuf::from(path)),
        (None, Some(id)) => WorkspaceChoice::Registered(id),
        (None, None) => {
            return Err(ApiError::invalid("workspace", "is missing; give workspace or workspaceId"));
        }
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("workspaceId", "cannot be given together with workspace"));
        }
    };
    let title = request.title.unwrap_or_default();
    check_title(&title)?;
    check_tags(&request.tags)?;
    let choices = choices::chosen(request.mode, request.model, request.config_options)?;
    let create = registry::CreateSession {
        workspace,
        agent: request.agent,
        title,
        tags: request.tags,
        permissions: checked_policy(&api, caller.owner(), request.permissions)?,
        limits: request.limits,
        choices,
        context: request.context.unwrap_or_default(),
        mcp_servers: checked_servers(&api, caller.owner(), request.mcp_servers)?,
        owner: caller.owner(),
        sight: caller.sight(),
        peer: Some(caller.peer),
        restoring: None,
        claim,
        start: request.start == Start::Eager,
    };
    Ok(api.registry.create(create).await?)
}

/// List sessions, newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listSessions",
    tag = "sessions",
    params(ListQuery),
    responses((status = 200, description = "A page of sessions.", body = SessionList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let (limit, offset) = page(query.limit, query.offset)?;
    let statuses = match &query.status {
        Some(list) => list
            .split(',')
            .map(|status| status.parse().map_err(|problem: String| ApiError::invalid("status", problem)))
            .collect::<Result<Vec<SessionStatus>, ApiError>>()?,
        None if query.include_archived => {
            vec![SessionStatus::Active, SessionStatus::Suspended, SessionStatus::Archived]
        }
        None => vec![SessionStatus::Active, SessionStatus::Suspended],
    };
    let filter = SessionFilter {
        sight: caller.listing(query.all),
        workspace: query.workspace_id,
        agent: query.agent,
        statuses,
        tag: query.tag,
        name: query.name,
    };
    let (sessions, total) = api.registry.hub().store().sessions(&filter, limit, offset).await?;
    let sessions = sessions.into_iter().map(|session| shown(&api, session)).collect();
    Ok(Json(SessionList { sessions, total, limit, offset }))
}

/// Show a session with its newest messages.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}",
    operation_id = "getSession",
    tag = "sessions",
    params(("id" = SessionId, Path, description = "The session's id.")),
    responses((status = 200, description = "The session with its newest messages.", body = SessionView)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> Result<Json<SessionView>, ApiError> {
    let session = caller.session(&api, id).await?;
    let store = api.registry.hub().store();
    // The cursor is read first: whatever comes after it is followed, and what is in both is recognized by its id.
    let cursor = store.head(EventScope::Session(id)).await?;
    let profile = session.profile.clone();
    let announced = store.announced(id).await?;
    let numbers = profile.numbers(&known(&announced));
    let not_applied = numbers.into_iter().filter(|(_, choice)| choice.is_none()).map(|(field, _)| field).collect();
    let choices = choices::Offered::new(announced, session.mode.as_deref(), session.model.as_deref());
    // They come last: nobody holds them while they wait for the store.
    let messages_total = store.count_messages(id, None).await?;
    let messages = store.last_messages(id, VIEW_MESSAGES).await?;
    let session = shown(&api, session);
    Ok(Json(SessionView { session, profile, not_applied, choices, messages, messages_total, cursor }))
}

/// Change a session. Either all changes apply, or none.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{id}",
    operation_id = "changeSession",
    tag = "sessions",
    params(("id" = SessionId, Path, description = "The session's id.")),
    request_body = PatchSession,
    responses((status = 200, description = "The session after the change.", body = Session)),
)]
pub async fn change(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Json(request): Json<PatchSession>,
) -> Result<Json<Session>, ApiError> {
    let PatchSession { title, tags, limits, mode, model, config_options, context, permissions, keep } = request;
    let choices = choices::chosen(mode, model, config_options)?;
    if let Some(title) = &title {
        check_title(title)?;
    }
    if let Some(tags) = &tags {
        check_tags(tags)?;
    }
    let session = caller.session(&api, id).await?;
    let context = match context {
        Change::Keep => None,
        Change::Remove => Some(ContextChange::removal()),
        Change::Set(context) => Some(context),
    };
    let permissions = match checked_policy(&api, session.owner_uid, permissions)? {
        Some(policy) => Some(registry::narrowed(&session, policy)?),
        None => None,
    };
    let change = SessionChange { title, tags, limits, context: None, permissions, keep, by: Some(caller.by()) };
    if change.is_empty() && choices.is_empty() && context.is_none() {
        return Ok(Json(shown(&api, session)));
    }
    let context = match context {
        Some(context) => Some(api.registry.checked_context(id, context, Some(&caller.peer)).await?),
        None => None,
    };
    api.registry.change(id, Edit { change, context, choices }).await?;
    Ok(Json(shown(&api, caller.session(&api, id).await?)))
}

/// Resume a suspended session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/resume",
    operation_id = "resumeSession",
    tag = "sessions",
    params(("id" = SessionId, Path, description = "The session's id.")),
    request_body = Option<Nothing>,
    responses((status = 200, description = "The session, now active.", body = Session)),
)]
pub async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    OptionalJson(Nothing {}): OptionalJson<Nothing>,
) -> Result<Json<Session>, ApiError> {
    caller.reach(&api, id).await?;
    api.registry.resume(id, Some(caller.by())).await?;
    api.registry.log_session_counts().await;
    Ok(Json(shown(&api, caller.session(&api, id).await?)))
}

/// Archive a session: cancel its turns and stop its process.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/archive",
    operation_id = "archiveSession",
    tag = "sessions",
    params(("id" = SessionId, Path, description = "The session's id.")),
    request_body = Option<Nothing>,
    responses((status = 200, description = "The archived session. Its process has ended.", body = Session)),
)]
pub async fn archive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    OptionalJson(Nothing {}): OptionalJson<Nothing>,
) -> Result<Json<Session>, ApiError> {
    caller.reach(&api, id).await?;
    api.registry.close(id, None, false, Some(caller.by())).await?;
    api.registry.log_session_counts().await;
    Ok(Json(shown(&api, caller.session(&api, id).await?)))
}

/// Archive a session, or delete it permanently.
///
/// With `purge`, acpd deletes the session permanently and returns it as it was. Otherwise it archives the session with
/// an optional reason.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}",
    operation_id = "removeSession",
    tag = "sessions",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        RemoveQuery,
    ),
    responses((status = 200, description = "The archived session; with `purge`, the session as it was before it was deleted.", body = Session)),
)]
pub async fn remove(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(query): Query<RemoveQuery>,
) -> Result<Json<Session>, ApiError> {
    let reason = query.reason.unwrap_or_else(|| "the session was archived".to_owned());
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(ApiError::invalid("reason", format!("is longer than {REASON_CHARS_MAX} characters")));
    }
    let before = caller.session(&api, id).await?;
    api.registry.close(id, Some(reason), query.purge, Some(caller.by())).await?;
    if query.purge {
        // The record has nothing of it any more, so the log has to say who it was.
        let Peer { uid, pid, program } = &*caller.peer;
        tracing::info!(session = %id, uid, pid, program, "deleted a session permanently");
    }
    api.registry.log_session_counts().await;
    let session = if query.purge { before } else { caller.session(&api, id).await? };
    Ok(Json(shown(&api, session)))
}

/// List a session's messages in order.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/messages",
    operation_id = "listMessages",
    tag = "messages",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        MessagesQuery,
    ),
    responses((status = 200, description = "A page of messages.", body = MessageList)),
)]
pub async fn messages(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(query): Query<MessagesQuery>,
) -> Result<Json<MessageList>, ApiError> {
    let (limit, offset) = page(query.limit.or(Some(VIEW_MESSAGES)), None)?;
    caller.session(&api, id).await?;
    let store = api.registry.hub().store();
    let (messages, total) = store.messages(id, query.after.unwrap_or(0), query.since, limit).await?;
    Ok(Json(MessageList { messages, total, limit, offset }))
}

pub fn shown(api: &Api, session: model::session::Session) -> Session {
    let live = api.registry.live(session.id);
    let expires_at = api.registry.expires_at(&session);
    Session::new(session, expires_at, live.process_state, live.pid)
}

pub fn checked_policy(api: &Api, owner: Option<u32>, policy: Option<Policy>) -> Result<Option<Policy>, ApiError> {
    let Some(policy) = policy else { return Ok(None) };
    if let Err(PolicyProblem { field, problem }) = policy.check() {
        return Err(ApiError::invalid(format!("permissions.{field}"), problem));
    }
    // It would be kept without the secret, and match something else then.
    if holds_secret(api, owner, &policy) {
        return Err(ApiError::invalid("permissions.rules", "contain the value of an agent's secret; remove it"));
    }
    Ok(Some(policy))
}

pub(super) fn holds_secret(api: &Api, owner: Option<u32>, value: &impl Serialize) -> bool {
    let redactor = api.registry.hub().secrets(owner).redactor();
    let text = serde_json::value::to_raw_value(value).ok();
    redactor.zip(text).is_some_and(|(redactor, text)| redactor.json(&text).is_some())
}

pub(super) fn checked_servers(
    api: &Api,
    owner: Option<u32>,
    choices: Option<Vec<McpChoice>>,
) -> Result<Option<Vec<ChosenServer>>, ApiError> {
    let Some(choices) = choices else { return Ok(None) };
    let chosen = chosen_servers(choices)
        .map_err(|ServerProblem { field, problem, hint }| ApiError::misunderstood(field, problem, hint))?;
    // They are recorded as they are, so that they can be given to every process.
    if holds_secret(api, owner, &chosen) {
        let hint = "write ${NAME} instead: acpd replaces it by the variable NAME of the agent's environment";
        return Err(ApiError::misunderstood("mcpServers", "contain the value of an agent's secret", hint));
    }
    Ok(Some(chosen))
}

pub fn check_title(title: &str) -> Result<(), ApiError> {
    if title.chars().count() > TITLE_CHARS_MAX {
        return Err(ApiError::invalid("title", format!("is longer than {TITLE_CHARS_MAX} characters")));
    }
    if title.chars().any(char::is_control) {
        return Err(ApiError::invalid("title", "must not have control characters"));
    }
    Ok(())
}

pub fn check_tags(tags: &[String]) -> Result<(), ApiError> {
    let problem = |problem: String| Err(ApiError::invalid("tags", problem));
    if tags.len() > TAGS_MAX {
        return problem(format!("cannot be added: the maximum is {TAGS_MAX} tags"));
    }
    for tag in tags {
        if tag.is_empty() || tag.chars().count() > TAG_CHARS_MAX || tag.chars().any(char::is_control) {
            return problem(format!("{tag:?} is not valid: a tag has 1 to {TAG_CHARS_MAX} printable characters"));
        }
    }
    Ok(())
}
