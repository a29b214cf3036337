//! Questions of agents, and how they were answered. The JSON of an answer is defined here, because it is the record.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Action;
use crate::model::{Peer, PermissionId, SessionId, Timestamp, TurnId};

/// The kind of a permission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PermissionKind {
    /// One of the agent's own tools.
    Tool,
    /// Writing a file through acpd.
    File,
    /// Running a command through acpd.
    Terminal,
    /// A request for information.
    Elicitation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PermissionStatus {
    Open,
    Answered,
    Cancelled,
    Expired,
}

words!(PermissionKind, "a kind of permission request": Tool = "tool", File = "file", Terminal = "terminal", Elicitation = "elicitation");
words!(PermissionStatus, "a permission request status": Open = "open", Answered = "answered", Cancelled = "cancelled", Expired = "expired");

/// A permission request, with its answer if there is one.
#[derive(Clone, Debug)]
pub struct Permission {
    pub id: PermissionId,
    pub session: SessionId,
    pub turn: Option<TurnId>,
    pub kind: PermissionKind,
    pub tool_call_id: Option<String>,
    pub title: String,
    pub action: Action,
    pub options: Vec<PermissionOption>,
    /// The agent's request, as JSON.
    pub request: Box<RawValue>,
    pub status: PermissionStatus,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub resolution: Option<Resolution>,
}

/// An answer that the agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    pub option_id: String,
    pub name: String,
    pub kind: OptionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// An unknown kind. No policy chooses it; a person can, by its id.
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Reject,
}

impl OptionKind {
    pub const fn new(decision: Decision, always: bool) -> Self {
        match (decision, always) {
            (Decision::Allow, false) => Self::AllowOnce,
            (Decision::Allow, true) => Self::AllowAlways,
            (Decision::Reject, false) => Self::RejectOnce,
            (Decision::Reject, true) => Self::RejectAlways,
        }
    }

    /// Whoever chooses what is not known has read what it is called, and lets the agent go on with it.
    pub const fn decision(self) -> Decision {
        match self {
            Self::AllowOnce | Self::AllowAlways | Self::Other => Decision::Allow,
            Self::RejectOnce | Self::RejectAlways => Decision::Reject,
        }
    }

    pub const fn is_always(self) -> bool {
        matches!(self, Self::AllowAlways | Self::RejectAlways)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Selected,
    Cancelled,
}

/// The answer to a permission request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resolution {
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The agent's option that was chosen, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Whether the answer also applies to the same action in the future.
    pub always: bool,
    pub by: Decider,
    pub at: Timestamp,
}

/// Who answered: a person, or acpd and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Decider {
    Person(Peer),
    Policy { rule: String },
    Timeout,
    Cancelled { reason: String },
}

impl fmt::Display for Decider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(Peer { uid, program: Some(program), .. }) => write!(formatter, "uid {uid} with {program}"),
            Self::Person(Peer { uid, .. }) => write!(formatter, "uid {uid}"),
            Self::Policy { rule } => write!(formatter, "policy {rule}"),
            Self::Timeout => formatter.write_str("timeout"),
            Self::Cancelled { reason } => write!(formatter, "cancelled: {reason}"),
        }
    }
}

impl Decider {
    /// The status of what it has answered.
    pub const fn status(&self) -> PermissionStatus {
        match self {
            Self::Person(_) | Self::Policy { .. } => PermissionStatus::Answered,
            Self::Timeout => PermissionStatus::Expired,
            Self::Cancelled { .. } => PermissionStatus::Cancelled,
        }
    }
}
