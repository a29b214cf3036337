//! What the agent knows of the conversation, and what it must be given.

use std::pin::Pin;

use super::history;
use super::instructions::Instructions;
use crate::hub::Hub;
use crate::model::SessionId;
use crate::model::session::Session;
use crate::store::StoreError;

/// The conversation so far, on its way from the record. Nothing, when there is nothing to tell.
pub type HistoryRead = Result<Option<String>, StoreError>;

pub struct Context {
    /// The agent's own name for the conversation.
    pub agent_session: Option<String>,
    /// The name that it had before the agent lost it. What comes under that name is history.
    pub abandoned: Option<String>,
    /// Whether there is a conversation to restore.
    pub has_history: bool,
    /// Whether the agent may be asked to restore it; one that did not survive that is not asked again.
    pub may_restore: bool,
    pub owed: Owed,
    /// The profile's system prompt, which comes before the transcript.
    pub instructions: Instructions,
}

/// The transcript for an agent that started from nothing. It is owed until a turn ends with a stop reason.
pub enum Owed {
    Nothing,
    NotRead,
    /// It is read as soon as all that was recorded so far is committed.
    Asked,
    Reading(Pin<Box<dyn Future<Output = HistoryRead> + Send>>),
    Read(Option<String>),
}

/// What a turn that is about to start has to do about the transcript.
pub enum Due {
    /// Go, with what is owed.
    Go(Option<String>),
    /// Have it read.
    Ask,
    /// It is being read.
    Wait,
}

impl Context {
    /// That of a session of which so many turns wait.
    pub fn new(session: &Session, turns_waiting: usize) -> Self {
        Self {
            agent_session: session.agent_session_id.clone(),
            abandoned: None,
            has_history: session.turns.unsigned_abs() > turns_waiting as u64,
            may_restore: true,
            owed: Owed::Nothing,
            instructions: Instructions::new(&session.profile, session.instructions_owed),
        }
    }

    /// The name by which the agent may be asked to restore the conversation. One that never was need not be restored.
    pub fn restorable(&self) -> Option<&str> {
        self.agent_session.as_deref().filter(|_| self.has_history && self.may_restore)
    }

    /// A turn is about to start; the transcript is read first when it is owed, and stays owed.
    pub fn due(&mut self) -> Due {
        let (owed, due) = match std::mem::replace(&mut self.owed, Owed::NotRead) {
            Owed::Nothing => (Owed::Nothing, Due::Go(None)),
            Owed::Read(transcript) => (Owed::NotRead, Due::Go(transcript)),
            Owed::NotRead => (Owed::Asked, Due::Ask),
            under_way @ (Owed::Asked | Owed::Reading(_)) => (under_way, Due::Wait),
        };
        self.owed = owed;
        due
    }

    /// Starts reading what was asked for.
    pub fn begin_reading(&mut self, hub: &Hub, session: SessionId, bytes_max: usize) {
        if matches!(self.owed, Owed::Asked) {
            self.owed = Owed::Reading(Box::pin(history::read(hub.clone(), session, bytes_max)));
        }
    }

    /// Resolves when the transcript is read; never, when it is not being read. Safe to cancel.
    pub async fn read(&mut self) -> HistoryRead {
        match &mut self.owed {
            Owed::Reading(read) => read.as_mut().await,
            Owed::Nothing | Owed::NotRead | Owed::Asked | Owed::Read(_) => std::future::pending().await,
        }
    }
}
