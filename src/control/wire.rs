//! The JSON of the control interface: what requests may say and what answers look like. Clients read the same types.

pub mod checkpoints;
pub mod permissions;
pub mod records;
pub mod search;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::choices::Offered;
use super::openapi::{OptionValue, PromptContent};
use crate::config;
use crate::model;
use crate::model::adapter::Asks;
use crate::model::agent::FrozenProfile;
use crate::model::checkpoint::Origin;
use crate::model::context::Change;
use crate::model::message::Message;
use crate::model::object;
use crate::model::{
    ContextChange, ContextRestored, LastError, MessageId, ProcessState, PromptAbilities, SessionContext, SessionId,
    SessionLimits, SessionStatus, Timestamp, TurnId, Usage, WorkspaceId,
};
use crate::session::asks;
use crate::store::{Remembered, StoreError};

mod agent;
mod agent_check;
mod garbage;
mod sandbox;

/// A permission mode and rules.
pub use crate::model::Policy as PermissionPolicy;
pub use crate::model::turn::Turn;

mod health;
mod import;
mod kernel;
mod mcp;
mod processes;
mod store;

pub use agent::{Agent, AgentList, CreateAgent, PatchAgent};
pub use agent_check::{AgentCheck, CheckAgent, CheckProblem};
pub use garbage::{CollectGarbage, ExpiredSession, GarbageReport, HomesReport, UpkeepReport};
pub use health::{Health, HealthProblem, Severity};
pub use import::{ImportCounts, ImportOutcome, ImportReport, ImportSessions};
pub use kernel::{BubblewrapReport, CgroupReport, Kernel, LandlockReport, ResourceLimit, ResourceLimits, Versions};
pub use mcp::{McpChoice, McpServer, chosen as chosen_servers};
pub use processes::{DaemonProcess, ProcessList, RunningProcess};
pub use sandbox::SandboxDetails;
pub use store::{BackUp, Backup, StoreReport};

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub title: Option<String>,
    #[serde(default)]
    #[schema(max_items = 32)]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub permissions: Option<PermissionPolicy>,
    #[serde(default, deserialize_with = "object::plain")]
    pub limits: SessionLimits,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, OptionValue>)]
    pub config_options: BTreeMap<String, Value>,
    #[serde(default, deserialize_with = "object::optional")]
    pub context: Option<ContextChange>,
    /// The session's MCP servers. Absent: all of the profile; an empty list: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub mcp_servers: Option<Vec<McpChoice>>,
    #[serde(default)]
    pub start: Start,
}

/// When to start the process of a new session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// In the background, so that it is ready for the first prompt.
    #[default]
    Eager,
    /// With the first prompt.
    Lazy,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub tags: Option<Vec<String>>,
    /// Absent fields stay unchanged; 0 removes the session's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub limits: Option<SessionLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, OptionValue>)]
    pub config_options: BTreeMap<String, Value>,
    /// Absent fields stay unchanged, and null removes a field. Null instead of the object removes the whole context.
    #[serde(default, skip_serializing_if = "Change::is_keep", deserialize_with = "object::change")]
    #[schema(value_type = Option<ContextChange>)]
    pub context: Change<ContextChange>,
    /// Replaces the whole policy.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub permissions: Option<PermissionPolicy>,
    /// Whether retention is to leave the session alone. Can be changed in every status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}

/// A prompt: either `text` or `content`.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptContent>)]
    pub content: Option<Value>,
    /// Overrides fields of the session's context for this prompt only.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub context: Option<ContextChange>,
}

/// A message to add: a prompt (`user`), or context for the next prompt (`system`).
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMessage {
    #[schema(pattern = "^(user|system)$")]
    pub role: String,
    pub text: Option<String>,
    #[schema(value_type = Option<PromptContent>)]
    pub content: Option<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cancel {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Also cancel all waiting turns.
    #[serde(default)]
    pub queued: bool,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterWorkspace {
    pub path: String,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub id: SessionId,
    /// The owner's user id, if it is not the daemon's own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    pub workspace_id: WorkspaceId,
    pub workspace: String,
    pub agent: String,
    pub title: String,
    pub tags: Vec<String>,
    pub status: SessionStatus,
    pub process_state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_restored: Option<ContextRestored>,
    /// Whether the agent itself can continue the conversation in a new process.
    pub supports_resume: bool,
    /// The kinds of content that the agent accepts besides text and links. Absent until its first handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_capabilities: Option<PromptAbilities>,
    /// The sandbox in force for the session's process, or for its last one.
    pub sandbox: String,
    /// The Landlock version in force and the missing protections. Absent if there are no details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_details: Option<SandboxDetails>,
    pub permissions: PermissionPolicy,
    /// The number of open permission requests.
    #[serde(default)]
    pub open_permissions: i64,
    #[serde(default)]
    pub limits: SessionLimits,
    #[serde(default)]
    pub context: SessionContext,
    /// The session's MCP servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
    pub turns: i64,
    /// The agent's current mode, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether the agent asks before it changes a file or runs a command. The permission mode applies only if it does.
    #[serde(default)]
    pub asks: Asks,
    /// The agent's current model, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The reason why the session's turns are paused, while they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The checkpoint that the session was created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<Origin>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    pub status_changed_at: Timestamp,
    /// Whether retention leaves it alone: it never expires.
    #[serde(default)]
    pub keep: bool,
    /// When it expires. A daily sweep deletes it at least 24 hours after the first sweep that found it expired. Null: never.
    pub expires_at: Option<Timestamp>,
}

/// A session with its newest messages.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    #[serde(flatten)]
    pub session: Session,
    pub profile: FrozenProfile,
    /// Settings of the profile that the agent offers no way to set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<&'static str>,
    #[serde(flatten)]
    pub choices: Offered,
    /// The newest messages, in order.
    pub messages: Vec<Message>,
    /// How many messages the session has.
    pub messages_total: i64,
    /// The cursor of the newest event; follow the event stream from here.
    pub cursor: i64,
}

/// An accepted prompt, committed to the store.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub turn_id: TurnId,
    pub message_id: MessageId,
    /// The number of turns before this one.
    pub position: usize,
    /// The cursor after which the turn's events follow.
    pub after: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelAccepted {
    /// The turns being cancelled.
    pub turns: Vec<TurnId>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    pub id: WorkspaceId,
    /// The owner's user id, if it is not the daemon's own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    pub path: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionList {
    pub sessions: Vec<Session>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct MessageList {
    pub messages: Vec<Message>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TurnList {
    pub turns: Vec<Turn>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkspaceList {
    pub workspaces: Vec<Workspace>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    pub version: String,
    pub pid: u32,
    pub started_at: Timestamp,
    pub uptime_seconds: u64,
    /// The state directory. Members of `control.group` do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    pub socket: String,
    /// The number of sessions by status.
    pub sessions: BTreeMap<String, i64>,
    pub processes: ProcessCount,
    pub limits: BTreeMap<String, Value>,
    /// Absent in older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigOrigin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
    /// Absent in older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rlimits: Option<ResourceLimits>,
    /// The number of refused attempts to access foreign data or paths, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub security_events: BTreeMap<String, u64>,
    /// The number of connections, requests and streams refused or dropped under load. Empty in older daemons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub load_events: BTreeMap<String, u64>,
}

/// The source of the configuration in force, and the result of the last reload.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOrigin {
    pub file: Option<String>,
    pub loaded_at: Timestamp,
    /// Changed keys that take effect after a restart.
    pub needs_restart: Vec<String>,
    /// Why the last reload failed, if it did.
    pub error: Option<String>,
}

/// The outcome of a reload.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reload {
    /// The file that was read; null when there is none.
    pub file: Option<String>,
    /// Keys whose new values are in force now. Agents and notifications are named as a whole: `agents.NAME`.
    pub changed: Vec<String>,
    /// Keys whose values in the file take effect after a restart.
    pub needs_restart: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProcessCount {
    /// Running processes of sessions and agent checks.
    pub running: usize,
    pub max: usize,
    /// How many of them are agent checks.
    #[serde(default, skip_serializing_if = "is_none")]
    pub checks: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// An event in the event stream.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    pub sequence: i64,
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    pub created_at: Timestamp,
    #[schema(value_type = Object)]
    pub data: &'a RawValue,
}

/// An error. Every error response has this form.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    pub error: String,
    pub message: String,
    pub hint: String,
    #[schema(value_type = Object)]
    pub details: Value,
}

impl Session {
    pub fn new(
        session: model::session::Session,
        expires_at: Option<Timestamp>,
        process_state: ProcessState,
        pid: Option<u32>,
    ) -> Self {
        let mcp_servers = McpServer::of_session(&session.profile.mcp_servers, session.mcp_servers.as_deref());
        Self {
            id: session.id,
            asks: asks(session.profile.adapter, &session.profile.command, session.mode.as_deref()),
            mcp_servers,
            owner: session.owner_uid,
            workspace_id: session.workspace_id,
            workspace: session.workspace,
            agent: session.profile.slug,
            title: session.title,
            tags: session.tags,
            status: session.status,
            process_state,
            pid,
            context_restored: session.context_restored,
            supports_resume: session.supports_resume,
            prompt_capabilities: session.prompt_abilities,
            sandbox: session.sandbox.level.as_str().to_owned(),
            sandbox_details: SandboxDetails::of(session.sandbox),
            permissions: session.permissions,
            open_permissions: session.open_permissions,
            limits: session.limits,
            context: session.context,
            turns: session.turns,
            mode: session.mode,
            model: session.model,
            usage: session.usage,
            paused: session.paused,
            last_error: session.last_error,
            restored_from: session.restored_from,
            created_at: session.created_at,
            updated_at: session.updated_at,
            last_active_at: session.last_active_at,
            status_changed_at: session.status_changed_at,
            keep: session.keep,
            expires_at,
        }
    }
}

impl Accepted {
    /// As it was answered to the first request with its key.
    pub fn of(remembered: &Remembered) -> Result<Self, StoreError> {
        let Remembered { made, after, .. } = remembered;
        let damaged = || StoreError::Damaged { what: "an idempotency key refers to no turn".to_owned() };
        Ok(Self {
            turn_id: made.turn.ok_or_else(damaged)?,
            message_id: made.message.ok_or_else(damaged)?,
            position: made.position,
            after: *after,
        })
    }
}

impl From<model::session::Workspace> for Workspace {
    fn from(workspace: model::session::Workspace) -> Self {
        Self { id: workspace.id, owner: workspace.owner_uid, path: workspace.path, created_at: workspace.created_at }
    }
}

impl From<&config::Origin> for ConfigOrigin {
    fn from(origin: &config::Origin) -> Self {
        Self {
            file: origin.file.as_ref().map(|file| file.display().to_string()),
            loaded_at: origin.loaded_at,
            needs_restart: origin.needs_restart.iter().map(|key| (*key).to_owned()).collect(),
            error: origin.error.clone(),
        }
    }
}
