//! What a session shows beside its status.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::agent::{FrozenProfile, PermissionMode};
use super::id::{SessionId, WorkspaceId};
use super::status::SessionStatus;
use super::time::Timestamp;

/// A session as it is recorded.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId,
    pub workspace_id: WorkspaceId,
    /// The workspace's real path.
    pub workspace: String,
    pub profile: FrozenProfile,
    pub permissions: PermissionMode,
    pub title: String,
    pub tags: Vec<String>,
    pub status: SessionStatus,
    pub context_restored: Option<ContextRestored>,
    pub last_error: Option<LastError>,
    pub turns: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    pub status_changed_at: Timestamp,
}

/// A registered directory.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub path: String,
    pub created_at: Timestamp,
}

/// The agent's subprocess as people see it. It comes and goes; the session's status does not follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    Stopped,
    Starting,
    Ready,
    Busy,
    Stopping,
}

impl ProcessState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
        }
    }
}

/// How a new process came by the conversation so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextRestored {
    /// It starts from nothing.
    Fresh,
}

impl ContextRestored {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
        }
    }
}

impl FromStr for ContextRestored {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fresh" => Ok(Self::Fresh),
            _ => Err(format!("{text:?} does not say how a context was restored")),
        }
    }
}

/// The last thing that went wrong with a session's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    pub code: String,
    pub message: String,
    pub at: Timestamp,
}
