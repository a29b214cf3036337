//! Turns: prompts are accepted, cancelled, listed and waited for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::content::{self, Checked};
use super::error::ApiError;
use super::extract::{Id, Json, OptionalJson, PageQuery, Query, Within, page};
use super::idempotency::{self, Attempt, Key, Keyed, again};
use super::wire::{Accepted, Cancel, CancelAccepted, Prompt, Turn, TurnList};
use crate::model::{By, MessageId, SessionId, TurnId};
use crate::session::NewPrompt;
use crate::store::{Claim, EventScope};

/// The longest that a request may wait for a turn's end.
pub const WAIT_SECONDS_MAX: u64 = 600;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowQuery {
    /// Seconds to wait for the end of the turn.
    #[param(maximum = 600, default = 0)]
    wait: Option<u64>,
}

/// Send a prompt to a session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/prompt",
    operation_id = "promptSession",
    tag = "turns",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: acpd carries out requests with the same key and body only once.", min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = Prompt,
    responses((status = 202, description = "The accepted prompt. It is committed to the store.", body = Accepted, headers(("Idempotent-Replayed" = bool, description = "Present, \
        and `true`, when this repeats the response to an earlier request with the same key.")))),
)]
pub async fn prompt(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Keyed { key, body }: Keyed<Prompt>,
) -> Result<Response, ApiError> {
    keyed_prompt(&api, &caller, id, key, "prompt", body).await
}

/// Accepts a prompt, or answers as when it was accepted under the same key.
pub async fn keyed_prompt(
    api: &Arc<Api>,
    caller: &Caller,
    id: SessionId,
    key: Option<Key>,
    route: &'static str,
    body: Prompt,
) -> Result<Response, ApiError> {
    caller.reach(api, id).await?;
    match idempotency::begin(api, key, route, Some(id)).await? {
        Attempt::Again(remembered) => Ok(again((StatusCode::ACCEPTED, Json(Accepted::of(&remembered)?)))),
        Attempt::First(first) => {
            let accepted = first.run(api, |claim| accept(Arc::clone(api), Some(caller.by()), id, body, claim)).await?;
            Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
        }
    }
}

/// Checks a prompt and has it accepted.
async fn accept(
    api: Arc<Api>,
    by: By,
    id: SessionId,
    mut request: Prompt,
    claim: Option<Claim>,
) -> Result<Accepted, ApiError> {
    let context = request.context.take();
    let Checked { content, blobs } = content::prompt(request, &api.registry.shared().config().limits)?;
    let context = match context {
        Some(context) => Some(api.registry.checked_context(id, context, by.as_deref()).await?),
        None => None,
    };
    api.limits.prompt(id)?;
    let prompt = NewPrompt { turn: TurnId::new(), message: MessageId::new(), content, blobs, context, by, claim };
    let (turn_id, message_id) = (prompt.turn, prompt.message);
    let accepted = api.registry.prompt(id, prompt).await?;
    Ok(Accepted { turn_id, message_id, position: accepted.position, after: accepted.after })
}

/// Cancel the running turn, a given turn, or all waiting turns.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/cancel",
    operation_id = "cancelTurn",
    tag = "turns",
    params(("id" = SessionId, Path, description = "The session's id.")),
    request_body = Option<Cancel>,
    responses((status = 202, description = "The turns that are being cancelled.", body = CancelAccepted)),
)]
pub async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    OptionalJson(request): OptionalJson<Cancel>,
) -> Result<(StatusCode, Json<CancelAccepted>), ApiError> {
    caller.reach(&api, id).await?;
    let turns = api.registry.cancel(id, request.turn_id, request.queued, Some(caller.by())).await?;
    Ok((StatusCode::ACCEPTED, Json(CancelAccepted { turns })))
}

/// List a session's turns.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/turns",
    operation_id = "listTurns",
    tag = "turns",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        PageQuery,
    ),
    responses((status = 200, description = "A page of turns.", body = TurnList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id<SessionId>,
    Query(query): Query<PageQuery>,
) -> Result<Json<TurnList>, ApiError> {
    let (limit, offset) = page(query.limit, query.offset)?;
    caller.session(&api, id).await?;
    let (turns, total) = api.registry.hub().store().turns(id, limit, offset).await?;
    Ok(Json(TurnList { turns, total, limit, offset }))
}

/// Show a turn, and optionally wait for its end.
///
/// The response comes at once, or with `wait` when the turn has ended. If the time runs out first, it shows the turn as
/// it is then.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/turns/{turn}",
    operation_id = "getTurn",
    tag = "turns",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("turn" = TurnId, Path, description = "The turn's id."),
        ShowQuery,
    ),
    responses((status = 200, description = "The turn; if `wait` runs out first, as it is then.", body = Turn)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Within { session, id }: Within<TurnId>,
    Query(query): Query<ShowQuery>,
) -> Result<Json<Turn>, ApiError> {
    let mut wait = query.wait.unwrap_or(0);
    if wait > WAIT_SECONDS_MAX {
        return Err(ApiError::invalid("wait", format!("must be at most {WAIT_SECONDS_MAX}")));
    }
    let deadline = Instant::now() + Duration::from_secs(wait);
    let hub = api.registry.hub();
    caller.session(&api, session).await?;
    // Subscribed before the turn is read, so that its end cannot fall between the two.
    let head = hub.store().head(EventScope::Session(session)).await?;
    let mut log = hub.subscribe(EventScope::Session(session), head);
    loop {
        let turn = hub.store().turn(session, id).await?;
        let turn = turn.ok_or_else(|| ApiError::NoSuchTurn(id.to_string()))?;
        if turn.status.is_final() || wait == 0 {
            return Ok(Json(turn));
        }
        match tokio::time::timeout_at(deadline, log.next()).await {
            Ok(Ok(Some(_))) => {}
            // The time is over, or nothing will follow because the daemon stops: the turn is told as it is now.
            Ok(Ok(None)) | Err(_) => wait = 0,
            Ok(Err(error)) => return Err(error.into()),
        }
    }
}
