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
use super::openapi::{ContentBlock, OptionValue};
use crate::config;
use crate::model;
use crate::model::agent::FrozenProfile;
use crate::model::checkpoint::Origin;
use crate::model::context::Change;
use crate::model::message::Message;
use crate::model::object;
use crate::model::{
    ContextChange, ContextRestored, LastError, MessageId, ProcessState, PromptAbilities, SessionContext, SessionId,
    SessionLimits, SessionStatus, Timestamp, TurnId, Usage, WorkspaceId,
};
use crate::store::{Remembered, StoreError};

mod agent;
mod agent_check;
mod garbage;
mod sandbox;

/// A mode and rules, in the words of the record.
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
pub use garbage::{CollectGarbage, ExpiredSession, GarbageReport, UpkeepReport};
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
    /// Which MCP servers it has. Absent: all of the profile's; an empty list: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub mcp_servers: Option<Vec<McpChoice>>,
    #[serde(default)]
    pub start: Start,
}

/// When a new session's process is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// In the background, so that the first prompt finds it warm.
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
    /// What is absent in it stays; 0 takes the session's own limit away.
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
    /// What is absent in it stays, and null removes; null in its place removes all of it.
    #[serde(default, skip_serializing_if = "Change::is_keep", deserialize_with = "object::change")]
    #[schema(value_type = Option<ContextChange>)]
    pub context: Change<ContextChange>,
    /// As a whole.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub permissions: Option<PermissionPolicy>,
}

/// Either a text or ACP content blocks.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<ContentBlock>>, min_items = 1, max_items = 64)]
    pub content: Option<Vec<Value>>,
    /// For this prompt alone, in place of what the session's own says.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub context: Option<ContextChange>,
}

/// A message that is added by hand: a prompt (`user`), or context for the next one (`system`).
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMessage {
    #[schema(pattern = "^(user|system)$")]
    pub role: String,
    pub text: Option<String>,
    #[schema(value_type = Option<Vec<ContentBlock>>, min_items = 1, max_items = 64)]
    pub content: Option<Vec<Value>>,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cancel {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Also everything that waits in the queue.
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
    /// Whose it is, when that is another user than the daemon's own.
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
    /// Whether the agent itself can take the conversation up again after its process is gone.
    pub supports_resume: bool,
    /// What the agent takes in a prompt beside text and links; absent until its first handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_capabilities: Option<PromptAbilities>,
    /// The confinement that is really in force for its process, or was for the last one.
    pub sandbox: String,
    /// The version of Landlock in force, and what of the confinement is not; absent when there is nothing to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_details: Option<SandboxDetails>,
    pub permissions: PermissionPolicy,
    /// Questions of the agent's that wait for an answer.
    #[serde(default)]
    pub open_permissions: i64,
    #[serde(default)]
    pub limits: SessionLimits,
    #[serde(default)]
    pub context: SessionContext,
    /// The MCP servers that its agent is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
    pub turns: i64,
    /// The agent's current mode and model, when they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why its turns are held back, while they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The checkpoint that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<Origin>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    pub status_changed_at: Timestamp,
    /// When its retention is over, if it ever is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// One session, whole.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    #[serde(flatten)]
    pub session: Session,
    pub profile: FrozenProfile,
    /// What of the profile does not reach the agent, because it offers no way to set it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<&'static str>,
    #[serde(flatten)]
    pub choices: Offered,
    /// The newest ones, in order.
    pub messages: Vec<Message>,
    /// How far the event log reaches: the cursor to follow from.
    pub cursor: i64,
}

/// A prompt was committed.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub turn_id: TurnId,
    pub message_id: MessageId,
    /// How many turns are before it.
    pub position: usize,
    /// The cursor from which the turn's events follow.
    pub after: i64,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelAccepted {
    /// The turns that were told to end.
    pub turns: Vec<TurnId>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    pub id: WorkspaceId,
    /// Whose it is, when that is another user than the daemon's own.
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
    /// Where its record is; told to those whose daemon it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    pub socket: String,
    /// Sessions by status.
    pub sessions: BTreeMap<String, i64>,
    pub processes: ProcessCount,
    pub limits: BTreeMap<String, Value>,
    /// A daemon of before there were reloads does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigOrigin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
    /// A daemon of before there was more to say does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rlimits: Option<ResourceLimits>,
    /// What was refused because somebody reached for what is not theirs, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub security_events: BTreeMap<String, u64>,
    /// What was refused or dropped under load. An older daemon does not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub load_events: BTreeMap<String, u64>,
}

/// Where the configuration in force comes from, and what a reload could not do.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOrigin {
    pub file: Option<String>,
    pub loaded_at: Timestamp,
    /// Keys whose new values hold after a restart only.
    pub needs_restart: Vec<String>,
    /// Why the last reload changed nothing, if it did not.
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
    /// Sessions' and checks' together.
    pub running: usize,
    pub max: usize,
    /// Those of them that only try an agent.
    #[serde(default, skip_serializing_if = "is_none")]
    pub checks: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// An event as it goes over the stream.
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

/// Every error has this shape.
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
            expires_at,
        }
    }
}

impl Accepted {
    /// As it was answered to the first request with its key.
    pub fn of(remembered: &Remembered) -> Result<Self, StoreError> {
        let Remembered { made, after, .. } = remembered;
        let damaged = || StoreError::Damaged { what: "an idempotency key names no turn".to_owned() };
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
