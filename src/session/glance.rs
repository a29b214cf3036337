//! A look at what a session does now, for whoever wants to see what runs. Nothing is kept for it: the actor is asked.

use super::actor::SessionActor;
use crate::agent::Process;
use crate::model::{Timestamp, TurnId};

/// Characters of the title of a tool call that are told.
const TITLE_CHARS_MAX: usize = 500;

/// What a session does at the moment it is asked.
#[derive(Clone, Debug)]
pub struct Glance {
    /// The shims of its agent and of its terminals, by process id. All that the session runs is below them.
    pub shims: Vec<i32>,
    /// The turn that runs, and when it began.
    pub turn: Option<(TurnId, Timestamp)>,
    pub tool: Option<ToolNow>,
    pub queued_turns: usize,
    pub open_permissions: usize,
}

/// The tool call that began last of those that have not ended.
#[derive(Clone, Debug)]
pub struct ToolNow {
    pub tool_call_id: String,
    pub title: String,
    pub started_at: Option<Timestamp>,
}

impl SessionActor {
    pub(super) fn glance(&self) -> Glance {
        let agent = self.link.process().map(Process::shim);
        let began = |running: &super::turns::Running| {
            let elapsed = i64::try_from(running.began.elapsed().as_millis()).unwrap_or(i64::MAX);
            (running.turn, Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(elapsed)))
        };
        Glance {
            shims: agent.into_iter().chain(self.terminals.shims()).collect(),
            turn: self.running.as_ref().map(began),
            tool: self.tool_now(),
            queued_turns: self.queue.len(),
            open_permissions: self.inbox.len(),
        }
    }

    fn tool_now(&self) -> Option<ToolNow> {
        let (message, call) = self.transcript.newest_call()?;
        let mut title = call.title.clone().or_else(|| call.name.clone()).unwrap_or_default();
        // The transcript has it in the agent's own words; what is recorded goes through a gate, and so does this.
        self.shared.hub.secrets(self.owner_uid).redact(&mut title);
        Some(ToolNow {
            tool_call_id: call.id.clone(),
            title: title.chars().take(TITLE_CHARS_MAX).collect(),
            started_at: message.made_at(),
        })
    }
}
