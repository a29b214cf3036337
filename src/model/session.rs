//! What a session shows beside its status.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::agent::FrozenProfile;
use super::block::PromptAbilities;
use super::checkpoint::Origin;
use super::choices::Chosen;
use super::context::SessionContext;
use super::id::{SessionId, WorkspaceId};
use super::mcp::ChosenServer;
use super::permission::policy::Policy;
use super::sandbox::Sandbox;
use super::status::SessionStatus;
use super::time::Timestamp;
use super::turn::TurnError;
use super::usage::{Amount, Basis, OnExceed, Usage};

/// A session as it is recorded.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId,
    pub workspace_id: WorkspaceId,
    /// The workspace's real path.
    pub workspace: String,
    /// Which directory it was when it was last worked in.
    pub workspace_identity: Option<DirectoryIdentity>,
    pub profile: FrozenProfile,
    /// The MCP servers that it chose; nothing: all of its profile's.
    pub mcp_servers: Option<Vec<ChosenServer>>,
    /// Its own policy; the profile's holds beside it.
    pub permissions: Policy,
    /// The number of open permission requests.
    pub open_permissions: i64,
    pub title: String,
    pub tags: Vec<String>,
    pub status: SessionStatus,
    /// The agent's own name for the conversation.
    pub agent_session_id: Option<String>,
    pub context_restored: Option<ContextRestored>,
    /// Whether the agent itself can take the conversation up again.
    pub supports_resume: bool,
    /// What the agent takes in a prompt; unknown until its first handshake.
    pub prompt_abilities: Option<PromptAbilities>,
    pub limits: SessionLimits,
    pub context: SessionContext,
    /// Whether the agent has yet to be shown what the context names.
    pub links_owed: bool,
    /// Whether the agent has yet to be given its profile's system prompt.
    pub instructions_owed: bool,
    /// The user that the agent runs as, when that is not the daemon's own.
    pub owner_uid: Option<u32>,
    /// What holds its process, or held the last one.
    pub sandbox: Sandbox,
    pub last_error: Option<LastError>,
    /// Summed over its turns, as far as agents told.
    pub usage: Option<Usage>,
    pub usage_basis: Option<Basis>,
    /// The reason why the session's turns are paused, while they are.
    pub paused: Option<String>,
    /// The agent's current mode, if known.
    pub mode: Option<String>,
    pub model: Option<String>,
    pub chosen: Chosen,
    /// The checkpoint that the session was created from.
    pub restored_from: Option<Origin>,
    pub turns: i64,
    /// Of those, the ones that count against the turn cap: all but those that failed because of it or of the cost.
    pub turns_counted: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    pub status_changed_at: Timestamp,
    /// Retention leaves it alone.
    pub keep: bool,
}

/// A registered directory.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub path: String,
    /// Whose it is, when that is not the daemon's own user.
    pub owner_uid: Option<u32>,
    pub created_at: Timestamp,
}

/// Which directory it is, whatever its path. A number alone may be given to another one when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryIdentity {
    pub device: u64,
    pub inode: u64,
    /// When it was made, in nanoseconds since the epoch, where the file system knows.
    pub born_at: Option<i64>,
}

impl DirectoryIdentity {
    /// Whether both are the same directory. Devices are numbered anew at each boot, so they count only where nothing
    /// better is known.
    pub fn is(&self, other: &Self) -> bool {
        self.inode == other.inode
            && match (self.born_at, other.born_at) {
                (Some(born), Some(others)) => born == others,
                (_, _) => self.device == other.device,
            }
    }
}

/// The state of the agent's process. The session's status does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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

/// How a new process received the conversation so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContextRestored {
    /// The agent restored it itself.
    Native,
    /// acpd sent the transcript with a prompt.
    Replayed,
    /// The process starts without it.
    Fresh,
}

impl ContextRestored {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Replayed => "replayed",
            Self::Fresh => "fresh",
        }
    }
}

impl FromStr for ContextRestored {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "native" => Ok(Self::Native),
            "replayed" => Ok(Self::Replayed),
            "fresh" => Ok(Self::Fresh),
            _ => Err(format!("{text:?} is not a way to restore a context")),
        }
    }
}

/// Limits that a session sets instead of those in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionLimits {
    /// Maximum turns of the session. 0 or absent: the configured limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_cap: Option<u32>,
    /// Maximum tool calls per turn. 0 or absent: the configured limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_cap: Option<u32>,
    /// Maximum cost of all turns together. 0 or absent: the configured limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_limit: Option<Amount>,
    /// What happens to turns beyond the cost limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exceed: Option<OnExceed>,
}

impl SessionLimits {
    /// With a change made: what it does not name stays, and 0 takes the session's own limit away.
    pub fn changed_by(self, change: Self) -> Self {
        let merge = |before: Option<u32>, change: Option<u32>| change.or(before).filter(|cap| *cap > 0);
        Self {
            turn_cap: merge(self.turn_cap, change.turn_cap),
            tool_call_cap: merge(self.tool_call_cap, change.tool_call_cap),
            cost_limit: change.cost_limit.or(self.cost_limit).filter(|limit| !limit.is_zero()),
            on_exceed: change.on_exceed.or(self.on_exceed),
        }
    }
}

/// Who a process is, for as long as the machine is up. A number alone is given to others again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub boot_id: String,
    /// The daemon that started it. While that lives, the process is nobody else's.
    pub daemon: ProcessName,
    /// The shim, which ends only when nothing is left below it.
    pub shim: ProcessName,
    pub agent: ProcessName,
    pub group: i32,
    /// The directory of the agent's cgroup, when it has one.
    pub cgroup: Option<String>,
}

/// A process id, and when that process started, in clock ticks since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessName {
    pub pid: i32,
    pub started: u64,
}

/// The last error of a session's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    pub code: String,
    pub message: String,
    pub at: Timestamp,
}

impl LastError {
    /// It happened now.
    pub fn new(error: &TurnError) -> Self {
        Self { code: error.code.as_str().to_owned(), message: error.message.clone(), at: Timestamp::now() }
    }
}
