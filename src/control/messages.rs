//! Messages that are added by hand: a prompt under another name, or context for the next one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Json};
use super::idempotency::{self, Attempt, Key, Keyed, again};
use super::wire::{Accepted, AddMessage, Prompt};
use super::{Api, content, turns};
use crate::model::message::Message;
use crate::model::{By, MessageId, SessionId};
use crate::session::SystemMessage;
use crate::store::{Claim, StoreError};

/// The name under which keys of this route are kept.
const ROUTE: &str = "messages";

/// Add a message: a prompt, or context for the next prompt.
///
/// The role `user` is the same as a prompt. The role `system` starts no turn: the agent receives the message before the
/// next prompt.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/messages",
    operation_id = "addMessage",
    tag = "messages",
    params(
        ("id" = SessionId, Path, description = "The session's id."),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: acpd carries out requests with the same key and body only once.", min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = AddMessage,
    responses(
        (status = 201, description = "For the role system: the message is committed and goes to the agent with the \
            next prompt.", body = Message, headers(("Idempotent-Replayed" = bool, description = "Present, \
            and `true`, when this repeats the response to an earlier request with the same key."))),
        (status = 202, description = "For the role user: the prompt is committed.", body = Accepted, headers(("Idempotent-Replayed" = bool, description = "Present, \
            and `true`, when this repeats the response to an earlier request with the same key.")))
    ),
)]
pub async fn add(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(session): Id<SessionId>,
    Keyed { key, body }: Keyed<AddMessage>,
) -> Result<Response, ApiError> {
    let AddMessage { role, text, content } = body;
    let message = Prompt { text, content, context: None };
    match role.as_str() {
        "user" => turns::keyed_prompt(&api, &caller, session, key, ROUTE, message).await,
        "system" => keyed_system(&api, &caller, session, key, message).await,
        other => {
            let hint =
                "send the role user for a prompt, or system for context; acpd records what the agent says and does";
            Err(ApiError::misunderstood("role", format!("{other:?} cannot be added; use user or system"), hint))
        }
    }
}

async fn keyed_system(
    api: &Arc<Api>,
    caller: &Caller,
    session: SessionId,
    key: Option<Key>,
    message: Prompt,
) -> Result<Response, ApiError> {
    caller.reach(api, session).await?;
    match idempotency::begin(api, key, ROUTE, Some(session)).await? {
        Attempt::Again(remembered) => {
            let damaged = || StoreError::Damaged { what: "an idempotency key refers to no message".to_owned() };
            let id = remembered.made.message.ok_or_else(damaged)?;
            Ok(again((StatusCode::CREATED, Json(stored(api, session, id).await?))))
        }
        Attempt::First(first) => {
            let added =
                first.run(api, |claim| add_system(Arc::clone(api), Some(caller.by()), session, message, claim)).await?;
            Ok((StatusCode::CREATED, Json(added)).into_response())
        }
    }
}

async fn add_system(
    api: Arc<Api>,
    by: By,
    session: SessionId,
    message: Prompt,
    claim: Option<Claim>,
) -> Result<Message, ApiError> {
    let text = content::text_only(message, &api.registry.shared().config().limits)?;
    api.limits.prompt(session)?;
    let id = MessageId::new();
    api.registry.system_message(session, SystemMessage { id, text, by, claim }).await?;
    stored(&api, session, id).await
}

/// Only a purge can have taken it away.
async fn stored(api: &Api, session: SessionId, id: MessageId) -> Result<Message, ApiError> {
    let message = api.registry.hub().store().message(session, id).await?;
    message.ok_or_else(|| ApiError::NoSuchSession(session.to_string()))
}
