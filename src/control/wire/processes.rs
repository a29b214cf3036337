//! The JSON of what runs now.

use serde::{Deserialize, Serialize};

use crate::agent::Figures;
use crate::model::session::Session;
use crate::model::{ProcessState, SessionId, Timestamp, TurnId};
use crate::session::{Glance, Live, ToolNow};

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProcessList {
    /// Of the oldest session first.
    pub processes: Vec<RunningProcess>,
    pub daemon: DaemonProcess,
    /// When it was so.
    pub at: Timestamp,
}

/// A session that has a process, and what it does. Figures are of all that it runs.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningProcess {
    pub session_id: SessionId,
    /// Whose it is, when that is another user than the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    pub agent: String,
    pub workspace: String,
    pub title: String,
    pub process_state: ProcessState,
    /// The agent's, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its session last did something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_active_at: Option<Timestamp>,
    /// How many processes there are: the agent, what it has started, and its terminals.
    pub processes: usize,
    pub rss_bytes: u64,
    pub cpu_millis: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<RunningTurn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<RunningTool>,
    pub queued_turns: usize,
    pub open_permissions: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTurn {
    pub id: TurnId,
    pub started_at: Timestamp,
}

/// The tool call that began last of those that have not ended.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTool {
    pub tool_call_id: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// The daemon itself, without what it has started.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonProcess {
    pub pid: u32,
    pub started_at: Timestamp,
    /// Told to those whose daemon it is, and so is the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
}

impl RunningProcess {
    pub fn new(session: Session, live: Live, glance: Option<&Glance>, figures: Figures) -> Self {
        Self {
            session_id: session.id,
            owner: session.owner_uid,
            agent: session.profile.slug,
            workspace: session.workspace,
            title: session.title,
            process_state: live.process_state,
            pid: live.pid,
            started_at: figures.started_at,
            last_active_at: Some(session.last_active_at),
            processes: figures.processes,
            rss_bytes: figures.resident_bytes,
            cpu_millis: figures.cpu_millis(),
            turn: glance.and_then(|glance| glance.turn).map(|(id, started_at)| RunningTurn { id, started_at }),
            tool: glance.and_then(|glance| glance.tool.as_ref()).map(RunningTool::from),
            queued_turns: glance.map_or(0, |glance| glance.queued_turns),
            // The record knows of them too, when the session itself does not say.
            open_permissions: glance
                .map_or(usize::try_from(session.open_permissions).unwrap_or(0), |glance| glance.open_permissions),
        }
    }
}

impl From<&ToolNow> for RunningTool {
    fn from(tool: &ToolNow) -> Self {
        Self { tool_call_id: tool.tool_call_id.clone(), title: tool.title.clone(), started_at: tool.started_at }
    }
}
