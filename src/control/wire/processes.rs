//! The JSON of what runs now.

use serde::{Deserialize, Serialize};

use crate::agent::Figures;
use crate::model::session::Session;
use crate::model::{ProcessState, SessionId, Timestamp, TurnId};
use crate::session::{Glance, Live, ToolNow};

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProcessList {
    /// The processes, those of the oldest session first.
    pub processes: Vec<RunningProcess>,
    pub daemon: DaemonProcess,
    /// The time of the figures.
    pub at: Timestamp,
}

/// A session with a running process, and what it does. The figures include all processes of the session.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningProcess {
    pub session_id: SessionId,
    /// The owner's user id, if it is not the daemon's own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    pub agent: String,
    pub workspace: String,
    pub title: String,
    pub process_state: ProcessState,
    /// The agent's process id, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the session was last active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_active_at: Option<Timestamp>,
    /// The number of processes: the agent, its children and its terminals.
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

/// The newest tool call that has not ended.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTool {
    pub tool_call_id: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// The daemon itself, without its child processes.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonProcess {
    pub pid: u32,
    pub started_at: Timestamp,
    /// Resident memory. Members of `control.group` do not see this and the CPU time.
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
