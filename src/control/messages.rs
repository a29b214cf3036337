//! Messages that are added by hand: a prompt under another name, or context for the next one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::extract::{Id, Json};
use super::wire::{AddMessage, Prompt};
use super::{Api, content, turns};
use crate::model::{MessageId, SessionId};

/// Role `user` is exactly a prompt. Role `system` begins no turn and needs no process: the agent gets it before the next
/// prompt.
pub async fn add(
    State(api): State<Arc<Api>>,
    Id(session): Id<SessionId>,
    Json(request): Json<AddMessage>,
) -> Result<Response, ApiError> {
    let AddMessage { role, text, content } = request;
    let prompt = Prompt { text, content };
    match role.as_str() {
        "user" => Ok(turns::accept(&api, session, prompt).await?.into_response()),
        "system" => Ok(add_system(&api, session, prompt).await?.into_response()),
        other => Err(ApiError::invalid("role", format!("{other:?} cannot be added; the roles are user and system"))),
    }
}

async fn add_system(api: &Arc<Api>, session: SessionId, message: Prompt) -> Result<impl IntoResponse, ApiError> {
    let text = content::text_only(message, &api.registry.shared().config().limits)?;
    api.limits.prompt(session)?;
    let id = MessageId::new();
    api.registry.system_message(session, id, text).await?;
    let message = api.registry.hub().store().message(session, id).await?;
    // Only a purge can have come between.
    let message = message.ok_or_else(|| ApiError::NoSuchSession(session.to_string()))?;
    Ok((StatusCode::CREATED, Json(message)))
}
