//! What a starting daemon finds and a stopping one leaves.

use std::sync::Arc;

use super::{Registry, RegistryError};
use crate::model::{Content, ErrorCode, MessageId, Role, SessionId, SessionStatus, Trigger, TurnError, TurnStatus};
use crate::store::{Catalogue, NewMessage, Op, SessionFilter, StoreError, Unit};

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
        self.change_all(SessionStatus::Active, Trigger::Shutdown, "shutdown").await
    }

    async fn change_all(&self, from: SessionStatus, trigger: Trigger, reason: &'static str) -> Result<(), StoreError> {
        let Ok(to) = from.on(trigger) else { return Ok(()) };
        let filter = SessionFilter { statuses: vec![from], ..SessionFilter::default() };
        let (sessions, _) = self.hub().store().sessions(&filter, i64::MAX, 0).await?;
        if sessions.is_empty() {
            return Ok(());
        }
        tracing::info!(sessions = sessions.len(), %from, %to, "changing the status of sessions");
        let ops = sessions.into_iter().map(|session| (session.id, Op::SetStatus { from, to, reason })).collect();
        self.hub().append(Unit { catalogue: Vec::new(), ops }).await?;
        Ok(())
    }

    /// Turns that the record has as running, and that nobody runs: their streamed text becomes partial messages, and
    /// they end. Of all sessions, or of one whose actor is gone.
    pub(super) async fn settle_running_turns(
        &self,
        session: Option<SessionId>,
        code: ErrorCode,
        reason: &str,
    ) -> Result<(), StoreError> {
        let status = if code == ErrorCode::Interrupted { TurnStatus::Interrupted } else { TurnStatus::Failed };
        let store = self.hub().store();
        let mut unit = Unit::default();
        for turn in store.open_turns(session).await? {
            if turn.status != TurnStatus::Running {
                continue;
            }
            let mut record = |id, role, content| {
                let message = NewMessage { id, turn: Some(turn.id), role, content, tool_call_id: None };
                unit.ops.push((turn.session, Op::Message(message)));
            };
            for text in store.unfinished_text(turn.id).await? {
                record(text.id, Role::Agent, text.content);
            }
            record(MessageId::new(), Role::System, Content::notice(code.as_str(), reason));
            let error = Some(TurnError::new(code, reason));
            unit.ops.push((turn.session, Op::FinishTurn { turn: turn.id, status, stop_reason: None, error }));
            tracing::warn!(session = %turn.session, turn = %turn.id, %status, "a turn was running that nobody runs");
        }
        if !unit.ops.is_empty() {
            self.hub().append(unit).await?;
        }
        Ok(())
    }

    async fn take_up_queued_turns(self: &Arc<Self>) -> Result<(), RegistryError> {
        let mut sessions: Vec<SessionId> =
            self.hub().store().open_turns(None).await?.into_iter().map(|turn| turn.session).collect();
        sessions.dedup();
        for session in sessions {
            let _gate = self.gate.lock().await;
            if self.lock().contains_key(&session) {
                continue;
            }
            if let Some((actor, handle)) = self.load(session).await? {
                tracing::info!(%session, "taking up queued turns");
                self.register(session, actor, handle);
            }
        }
        Ok(())
    }
}
