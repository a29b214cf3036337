//! Refusals that come of who asks, and of what they may see.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, LOG_HINT, WORKSPACES_HINT};

pub(super) fn no_caller_answer() -> Answer {
    let message = "the request has no caller; this is a bug";
    Answer::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, LOG_HINT)
}

pub(super) fn no_workspace_answer(id: &str) -> Answer {
    let message = format!("there is no workspace {id}");
    Answer::new(StatusCode::NOT_FOUND, "workspace_not_found", message, WORKSPACES_HINT)
}

pub(super) fn not_its_agent_answer() -> Answer {
    let message = "this socket is for the agent of one session, and the connection comes from somebody else";
    let hint = "agents have their own among their MCP servers; everybody else asks at acpd's control socket";
    Answer::new(StatusCode::FORBIDDEN, "not_its_agent", message, hint)
}

pub(super) fn other_session_answer() -> Answer {
    let message = "an agent writes to its own session only, and this is another one";
    let hint = "leave the session's id out: it is your own then";
    Answer::new(StatusCode::FORBIDDEN, "other_session", message, hint)
}

/// Only root is told so: to all others it does not exist.
pub(super) fn others_workspace_answer(message: String, path: &str) -> Answer {
    let hint = "give its path as workspace: the directory is then registered for you as well";
    Answer::new(StatusCode::CONFLICT, "workspace_of_another", message, hint).details(json!({ "path": path }))
}

pub(super) fn root_only_answer() -> Answer {
    let message = "this is for root alone: the daemon is root's, and it concerns everybody's sessions";
    let hint = "ask whoever runs the daemon; what is yours you can list, archive and delete yourself";
    Answer::new(StatusCode::FORBIDDEN, "root_only", message, hint)
}
