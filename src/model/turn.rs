//! A turn: one prompt and all that the agent did until it answered.
//!
//! ```text
//! queued ──▶ running ──▶ completed | failed | cancelled | interrupted
//!    └─────────────────▶ failed | cancelled
//! ```
//!
//! `running` is committed before the prompt is written to the agent, so that a crash between the two ends as
//! `interrupted` and never as a second run.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::{SessionId, TurnId};
use super::time::Timestamp;
use super::usage::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    Queued,
    Running,
    Completed,
    Failed,
    Cancelled,
    Interrupted,
}

impl TurnStatus {
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted => true,
        }
    }

    /// Whether a turn may go from this status to that one.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => matches!(next, Self::Running | Self::Failed | Self::Cancelled),
            Self::Running => next.is_final(),
            Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted => false,
        }
    }
}

impl fmt::Display for TurnStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

words!(TurnStatus, "a turn status": Queued = "queued", Running = "running", Completed = "completed", Failed = "failed",
    Cancelled = "cancelled", Interrupted = "interrupted");

/// Why a turn failed, as a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TurnErrorCode)]
pub enum ErrorCode {
    AgentExited,
    Timeout,
    TurnLimit,
    CostLimit,
    AuthRequired,
    RateLimited,
    /// The agent, or the service behind it, failed.
    AgentError,
    Protocol,
    Internal,
    Interrupted,
    /// The agent does not accept a block of the prompt.
    UnsupportedContent,
    /// A link now leads the session's workspace outside the allowed roots.
    WorkspaceEscaped,
    /// What acpd stored of the session cannot be read any more.
    RecordDamaged,
}

words!(ErrorCode, "an error code": AgentExited = "agent_exited", Timeout = "timeout", TurnLimit = "turn_limit",
    CostLimit = "cost_limit", AuthRequired = "auth_required", RateLimited = "rate_limited", AgentError = "agent_error",
    Protocol = "protocol", Internal = "internal", Interrupted = "interrupted", UnsupportedContent = "unsupported_content",
    WorkspaceEscaped = "workspace_escaped", RecordDamaged = "record_damaged");

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnError {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub hint: Option<String>,
    /// Seconds to wait before the next prompt, if the service behind the agent gave a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_seconds: Option<u32>,
}

impl TurnError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after_seconds: None }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A turn of a session.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub id: TurnId,
    pub session_id: SessionId,
    pub status: TurnStatus,
    /// The agent's stop reason, also for a cancelled turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// The turn's usage, as far as the agent reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub queued_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_only_goes_forward() {
        for from in TurnStatus::ALL {
            for to in TurnStatus::ALL {
                let forward = match from {
                    TurnStatus::Queued => {
                        matches!(to, TurnStatus::Running | TurnStatus::Failed | TurnStatus::Cancelled)
                    }
                    TurnStatus::Running => to.is_final(),
                    _ => false,
                };
                assert_eq!(from.may_become(to), forward, "{from} -> {to}");
            }
        }
    }
}
