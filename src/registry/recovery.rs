//! What a starting daemon finds and a stopping one leaves.

use std::sync::Arc;

use super::{Registry, RegistryError};
use crate::model::{Content, ErrorCode, MessageId, Role, SessionId, SessionStatus, Trigger, TurnError, TurnStatus};
use crate::store::{Catalogue, NewMessage, Op, StoreError, Unit};

impl Registry {
    /// Puts the record right after whatever ended the last daemon, and takes up the work that was accepted then.
    ///
    /// 1. The configured agents are recorded; those that are gone become archived.
    /// 2. A turn that was running is interrupted: it is never run twice.
    /// 3. With `resume_on_start`, suspended sessions become active.
    /// 4. Queued turns of active sessions run, each when there is a slot for its process.
    pub async fn recover(self: &Arc<Self>) -> Result<(), RegistryError> {
        let agents = self.shared().config.agents.values().cloned().collect();
        self.hub().append(Unit::catalogue(Catalogue::SetAgents(agents))).await?;
        let reason = "the daemon died while the turn was running; what the agent said until then is kept";
        self.settle_running_turns(None, ErrorCode::Interrupted, reason).await?;
        if self.shared().config.sessions.resume_on_start {
            self.change_all(SessionStatus::Suspended, Trigger::Resume, "resume").await?;
        }
        self.take_up_queued_turns().await?;
        self.log_session_counts().await;
        Ok(())
    }

    /// Every active session becomes suspended, in one transaction.
    pub async fn suspend_all(&self) -> Result<(), StoreError> {
        let _gate = self.gate.lock().await;
        self.change_all(SessionStatus::Active, Trigger::Shutdown, "shutdown").await
    }

    async fn change_all(&self, from: SessionStatus, trigger: Trigger, reason: &'static str) -> Result<(), StoreError> {
        let Ok(to) = from.on(trigger) else { return Ok(()) };
        self.hub().append(Unit::catalogue(Catalogue::SetStatusOfAll { from, to, reason })).await?;
        Ok(())
    }

    /// Turns that the record has as running, and that nobody runs: their streamed text becomes partial messages, and
    /// they end. Of all sessions, or of one whose actor is gone; tells how many.
    pub(super) async fn settle_running_turns(
        &self,
        session: Option<SessionId>,
        code: ErrorCode,
        reason: &str,
    ) -> Result<usize, StoreError> {
        let store = self.hub().store();
        let mut unit = Unit::default();
        let mut settled = 0;
        for turn in store.open_turns(session).await? {
            if turn.status != TurnStatus::Running {
                continue;
            }
            settled += 1;
            let mut record = |id, role, content: &Content| {
                unit.ops.push((turn.session, Op::Message(NewMessage::new(id, Some(turn.id), role, content))));
            };
            for text in store.unfinished_text(turn.id).await? {
                record(text.id, Role::Agent, &text.content);
            }
            // Whoever cancelled it was told so, and that stands.
            let (status, error) = if turn.cancel_requested {
                (TurnStatus::Cancelled, None)
            } else {
                record(MessageId::new(), Role::System, &Content::notice(code.as_str(), reason));
                let status = if code == ErrorCode::Interrupted { TurnStatus::Interrupted } else { TurnStatus::Failed };
                (status, Some(TurnError::new(code, reason)))
            };
            unit.ops.push((turn.session, Op::FinishTurn { turn: turn.id, status, stop_reason: None, error }));
            tracing::warn!(session = %turn.session, turn = %turn.id, %status, "a turn was running that nobody runs");
        }
        if settled > 0 {
            self.hub().append(unit).await?;
        }
        Ok(settled)
    }

    async fn take_up_queued_turns(self: &Arc<Self>) -> Result<(), RegistryError> {
        for session in self.hub().store().sessions_with_queued_turns().await? {
            let _gate = self.gate.lock().await;
            if let Some((actor, handle)) = self.load(session).await? {
                tracing::info!(%session, "taking up queued turns");
                self.register(session, actor, handle);
            }
        }
        Ok(())
    }
}
