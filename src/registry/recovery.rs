//! What a starting daemon finds and a stopping one leaves.

use std::sync::Arc;

use super::{Registry, RegistryError};
use crate::config::Config;
use crate::model::{
    Content, ErrorCode, LastError, MessageId, Role, SessionId, SessionStatus, Trigger, TurnError, TurnStatus,
};
use crate::session::SessionHandle;
use crate::store::{Catalogue, NewMessage, Op, StoreError, Unit};

impl Registry {
    /// Puts the record right after whatever ended the last daemon, and takes up the work that was accepted then.
    ///
    /// 1. Questions that were open are cancelled, and a turn that was running is interrupted: it is never run twice.
    /// 2. What a dead daemon left of its processes is ended, before anything new is started, and so are directories.
    /// 3. The configured agents are recorded; those that are gone become archived.
    /// 4. With `resume_on_start`, suspended sessions become active.
    /// 5. Queued turns of active sessions run, each when there is a slot for its process.
    pub async fn recover(self: &Arc<Self>) -> Result<(), RegistryError> {
        self.withdraw_questions(None, true).await?;
        self.settle_open_turns().await?;
        self.clear_leftovers().await?;
        self.clear_directories().await?;
        self.record_agents(&self.shared().config()).await?;
        if self.shared().config().sessions.resume_on_start {
            self.change_all(SessionStatus::Suspended, Trigger::Resume, "resume").await?;
        }
        self.take_up_queued_turns().await?;
        self.log_session_counts().await;
        Ok(())
    }

    /// Nobody waits for the answers to open questions any more: those of one session, or all that there are.
    pub(super) async fn withdraw_questions(&self, session: Option<SessionId>, are_any: bool) -> Result<(), StoreError> {
        if are_any {
            let reason = "the agent that asked has ended";
            self.hub().append_own(Unit::catalogue(Catalogue::CancelPermissions { session, reason })).await?;
        }
        Ok(())
    }

    /// A cgroup counts as ours when its session is in our record: another daemon may have agents beside ours.
    async fn clear_leftovers(&self) -> Result<(), RegistryError> {
        let store = self.hub().store();
        let known = store.processes().await?;
        let mut cgroups = Vec::new();
        for (session, directory) in self.shared().host.cgroups_left() {
            if store.status(session).await?.is_some() {
                cgroups.push((session, directory));
            }
        }
        if known.is_empty() && cgroups.is_empty() {
            return Ok(());
        }
        self.shared().host.clear_leftovers(known, cgroups).await;
        self.hub().append_own(Unit::catalogue(Catalogue::ClearProcesses)).await?;
        Ok(())
    }

    /// The directories of sessions that are gone, or in which nothing starts any more, and the sockets of dead processes.
    async fn clear_directories(&self) -> Result<(), RegistryError> {
        let directories = &self.shared().host.directories;
        for session in directories.sessions() {
            match self.hub().store().status(session).await? {
                None | Some(SessionStatus::Archived) => drop(directories.remove(session)),
                Some(SessionStatus::Active | SessionStatus::Suspended | SessionStatus::Error) => {
                    directories.remove_tools_socket(session);
                }
            }
        }
        Ok(())
    }

    /// Resolves when every actor has committed what it had to write for the halt. From then on none changes a status.
    pub async fn settled(&self) {
        // Whoever was being loaded when the halt came is registered once the gate is free, and nobody comes after.
        drop(self.gate.pass().await);
        let handles: Vec<SessionHandle> = self.lock().values().cloned().collect();
        for handle in handles {
            handle.settled().await;
        }
    }

    /// Records the configured agents, which sessions refer to; those that are gone become archived.
    pub async fn record_agents(&self, config: &Config) -> Result<(), StoreError> {
        let agents = config.agents.values().cloned().collect();
        self.hub().append_own(Unit::catalogue(Catalogue::SetAgents(agents))).await?;
        Ok(())
    }

    /// Every active session becomes suspended, in one transaction.
    pub async fn suspend_all(&self) -> Result<(), StoreError> {
        let _gate = self.gate.pass().await;
        self.change_all(SessionStatus::Active, Trigger::Shutdown, "shutdown").await
    }

    async fn change_all(&self, from: SessionStatus, trigger: Trigger, reason: &'static str) -> Result<(), StoreError> {
        let Ok(to) = from.on(trigger) else { return Ok(()) };
        self.hub().append_own(Unit::catalogue(Catalogue::SetStatusOfAll { from, to, reason })).await?;
        Ok(())
    }

    /// After the death of a daemon. A session whose record is damaged does not keep the others from going on.
    async fn settle_open_turns(&self) -> Result<(), StoreError> {
        let reason = "the daemon crashed while the turn was running; acpd kept the answer so far";
        for session in self.hub().store().open_turn_ids().await?.into_keys() {
            match self.settle_running_turns(session, ErrorCode::Interrupted, reason).await {
                Ok(_) => {}
                Err(StoreError::Damaged { what }) => drop(self.condemn(session, what).await?),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The record of a session is damaged: its open turns end, and it is in error from here on, if it can still become that.
    /// Returns what a request for it is refused with.
    pub(super) async fn condemn(&self, session: SessionId, what: String) -> Result<RegistryError, StoreError> {
        let store = self.hub().store();
        let message = format!("the stored session is damaged ({what}); acpd keeps the readable part");
        let error = TurnError::new(ErrorCode::RecordDamaged, message);
        let cause = LastError::new(&error);
        let from = store.status(session).await?.unwrap_or(SessionStatus::Error);
        match from.on(Trigger::Fatal) {
            Ok(to @ SessionStatus::Error) if to != from => {
                tracing::error!(%session, message = error.message, "set a damaged session to error");
                let mut unit = Unit::default();
                let notice = Content::notice(&*cause.code, &*error.message);
                let notice = Op::Message(NewMessage::new(MessageId::new(), None, Role::System, &notice));
                for turn in store.open_turn_ids().await?.remove(&session).unwrap_or_default() {
                    let (status, error) = (TurnStatus::Failed, Some(error.clone()));
                    let finish = Op::FinishTurn { turn, status, stop_reason: None, error, usage: None, at: None };
                    unit.ops.push((session, finish));
                }
                let status = Op::SetStatus { from, to, reason: "fatal", by: None };
                unit.ops.extend([notice, Op::SetLastError(cause.clone()), status].map(|op| (session, op)));
                self.hub().append_own(unit).await?;
            }
            Ok(SessionStatus::Error) => {}
            _ => return Ok(StoreError::Damaged { what }.into()),
        }
        Ok(RegistryError::InError { cause: Some(cause) })
    }

    /// What a request for a session in error is refused with.
    pub(super) async fn in_error(&self, session: SessionId) -> Result<RegistryError, StoreError> {
        let row = self.hub().store().session(session).await?;
        Ok(RegistryError::InError { cause: row.and_then(|row| row.last_error) })
    }

    /// Turns that the record has as running, and that nobody runs: their streamed text becomes partial messages, and
    /// they end. Tells how many there were.
    pub(super) async fn settle_running_turns(
        &self,
        session: SessionId,
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
            for text in store.unfinished_text(turn.session, turn.id).await? {
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
            // The time of its end is unknown; its last event is the last sign of life.
            let (usage, at) = (turn.usage, store.last_event_at(turn.session, turn.id).await?);
            let finish = Op::FinishTurn { turn: turn.id, status, stop_reason: None, error, usage, at };
            unit.ops.push((turn.session, finish));
            tracing::warn!(session = %turn.session, turn = %turn.id, %status, "ended a turn that had no process");
        }
        if settled > 0 {
            self.hub().append_own(unit).await?;
        }
        Ok(settled)
    }

    /// Makes actors for the sessions that have turns waiting. Those of one whose cost is over its limit wait on, without.
    pub async fn take_up_queued_turns(self: &Arc<Self>) -> Result<(), RegistryError> {
        for session in self.hub().store().sessions_with_queued_turns().await? {
            let _gate = self.gate.pass().await;
            if self.is_stopping() {
                return Ok(());
            }
            if self.lock().contains_key(&session) {
                continue;
            }
            match self.load(session).await {
                Ok(Some((actor, handle))) => {
                    tracing::info!(%session, "continuing with queued turns");
                    self.register(session, actor, handle);
                }
                Ok(None) => {}
                // One session in trouble does not keep the others.
                Err(RegistryError::InError { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
