//! Refusals that come of who asks, of what they may see, and of what ended a session.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, LOG_HINT, WORKSPACES_HINT};
use crate::model::LastError;

pub(super) fn no_caller_answer() -> Answer {
    let message = "internal error: the request has no caller";
    Answer::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, LOG_HINT)
}

pub(super) fn no_workspace_answer(id: &str) -> Answer {
    let message = format!("there is no workspace {id}");
    Answer::new(StatusCode::NOT_FOUND, "workspace_not_found", message, WORKSPACES_HINT)
}

pub(super) fn not_its_agent_answer() -> Answer {
    let message = "this socket serves only the agent of one session; the connection comes from another process";
    let hint = "agents reach their own socket through their MCP servers; other programs use acpd's control socket";
    Answer::new(StatusCode::FORBIDDEN, "not_its_agent", message, hint)
}

pub(super) fn other_session_answer() -> Answer {
    let message = "an agent can only write to its own session; this is another session";
    let hint = "leave the session id out to use your own session";
    Answer::new(StatusCode::FORBIDDEN, "other_session", message, hint)
}

pub(super) fn in_error_answer(cause: Option<&LastError>) -> Answer {
    let hint = "you can read or delete it (`acpd rm --purge`, ?purge=true); create a new session to continue";
    let why = cause.map(|cause| format!(": {}", cause.message)).unwrap_or_default();
    let message = format!("the session is in error and cannot continue{why}");
    let details = cause.map_or_else(|| json!({}), |cause| json!({ "cause": cause }));
    Answer::new(StatusCode::CONFLICT, "session_error", message, hint).details(details)
}

/// Only root is told so: to all others it does not exist.
pub(super) fn others_workspace_answer(message: String, path: &str) -> Answer {
    let hint = "give the directory's path as workspace; acpd then registers the directory for you too";
    Answer::new(StatusCode::CONFLICT, "workspace_of_another", message, hint).details(json!({ "path": path }))
}

pub(super) fn root_only_answer() -> Answer {
    let message = "only root may do this: the daemon runs as root, and this affects the sessions of all users";
    let hint = "ask the administrator of the daemon; you can list, archive and delete your own sessions";
    Answer::new(StatusCode::FORBIDDEN, "root_only", message, hint)
}
