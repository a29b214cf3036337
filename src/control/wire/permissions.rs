//! The JSON of permissions and standing rules.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::model::permission::Action;
use crate::model::permission::question::{
    self, Decision, PermissionKind, PermissionOption, PermissionStatus, Resolution,
};
use crate::model::permission::standing::{StandingRule, Subject};
use crate::model::{Peer, PermissionId, RuleId, SessionId, Timestamp, TurnId};

/// A permission request, with its answer if there is one.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    pub id: PermissionId,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    pub kind: PermissionKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    pub title: String,
    pub action: Action,
    pub options: Vec<PermissionOption>,
    /// The agent's request, as JSON.
    #[schema(value_type = Value)]
    pub request: Box<RawValue>,
    pub status: PermissionStatus,
    pub asked_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PermissionList {
    pub permissions: Vec<Permission>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

/// An answer: one of `optionId`, `decision` and, for elicitations, `action`.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerPermission {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// With `decision`: also apply the answer to the same action in the future.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub always: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ElicitationAction>,
    /// With the action `accept`: the requested information.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ElicitationAction {
    Accept,
    Decline,
    Cancel,
}

/// A rule that came from an "always" answer.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRule {
    pub id: RuleId,
    pub decision: Decision,
    #[serde(flatten)]
    pub subject: Subject,
    pub made_by: Peer,
    pub made_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PermissionRuleList {
    pub rules: Vec<PermissionRule>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

impl From<question::Permission> for Permission {
    fn from(permission: question::Permission) -> Self {
        Self {
            id: permission.id,
            session_id: permission.session,
            turn_id: permission.turn,
            kind: permission.kind,
            tool_call_id: permission.tool_call_id,
            title: permission.title,
            action: permission.action,
            options: permission.options,
            request: permission.request,
            status: permission.status,
            asked_at: permission.asked_at,
            expires_at: permission.expires_at,
            resolution: permission.resolution,
        }
    }
}

impl From<StandingRule> for PermissionRule {
    fn from(rule: StandingRule) -> Self {
        let StandingRule { id, allows, subject, made_by, made_at } = rule;
        let decision = if allows { Decision::Allow } else { Decision::Reject };
        Self { id, decision, subject, made_by, made_at }
    }
}
