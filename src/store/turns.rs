//! A turn's row, which only goes forward.

use rusqlite::params;

use super::apply::{Apply, to_json};
use super::{Op, StoreError};
use crate::model::{By, EventBody, SessionId, Timestamp, TurnId, TurnStatus};

impl Apply<'_> {
    /// A change that does not follow from the turn's status is a bug, and fails the unit.
    pub(super) fn turn(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        match op {
            Op::QueueTurn { turn, position, by } => {
                self.connection.run(
                    "queuing a turn",
                    "INSERT INTO turns (id, session_id, status, queued_at) VALUES (?1, ?2, 'queued', ?3)",
                    params![turn.to_string(), session.to_string(), now],
                )?;
                self.note_activity(session);
                self.event(session, Some(*turn), &EventBody::TurnQueued { position: *position, by: by.clone() })
            }
            Op::StartTurn { turn } => {
                self.event(session, Some(*turn), &EventBody::TurnStarted {})?;
                let sequence = self.last_event(session)?;
                let changed = self.connection.run(
                    "starting a turn",
                    "UPDATE turns SET status = 'running', started_at = ?2, started_sequence = ?3 \
                     WHERE session_id = ?4 AND id = ?1 AND status = 'queued'",
                    params![turn.to_string(), now, sequence, session.to_string()],
                )?;
                went_forward(changed)
            }
            Op::RequestCancel { turn, by } => went_forward(self.connection.run(
                "storing the cancellation of a turn",
                // The first one's.
                "UPDATE turns SET cancel_requested_at = coalesce(cancel_requested_at, ?2), \
                 cancel_requested_by = coalesce(cancel_requested_by, ?4) \
                 WHERE session_id = ?3 AND id = ?1 AND status IN ('queued', 'running')",
                params![turn.to_string(), now, session.to_string(), by.as_ref().map(to_json).transpose()?],
            )?),
            Op::FinishTurn { turn, status, stop_reason, error, usage, at } => {
                debug_assert!(status.is_final(), "a turn finishes with a final status");
                let (status, stop_reason, error, usage) = (*status, stop_reason.clone(), error.clone(), usage.clone());
                let kept = usage.as_ref().map(to_json).transpose()?;
                let (code, message) = error.as_ref().map(|error| (error.code.as_str(), error.message.clone())).unzip();
                let hint = error.as_ref().and_then(|error| error.hint.clone());
                let retry_after = error.as_ref().and_then(|error| error.retry_after_seconds);
                let by = if status == TurnStatus::Cancelled { self.canceller(session, *turn)? } else { None };
                let body = EventBody::TurnCompleted { status, stop_reason: stop_reason.clone(), error, usage, by };
                self.event(session, Some(*turn), &body)?;
                let sequence = self.last_event(session)?;
                let may_be_queued = TurnStatus::Queued.may_become(status);
                let changed = self.connection.run(
                    "ending a turn",
                    "UPDATE turns SET status = ?2, stop_reason = ?3, error_code = ?4, error_message = ?5, \
                     error_hint = ?11, retry_after_seconds = ?12, usage = coalesce(?6, usage), finished_at = ?7, finished_sequence = ?8 \
                     WHERE session_id = ?10 AND id = ?1 AND (status = 'running' OR (status = 'queued' AND ?9))",
                    params![
                        turn.to_string(),
                        status.as_str(),
                        stop_reason,
                        code,
                        message,
                        kept,
                        at.map_or(now, Timestamp::as_millis),
                        sequence,
                        may_be_queued,
                        session.to_string(),
                        hint,
                        retry_after,
                    ],
                )?;
                went_forward(changed)
            }
            _ => Err(StoreError::Refused("an operation that does not concern a turn")),
        }
    }

    /// Whoever wanted the turn to end.
    fn canceller(&self, session: SessionId, turn: TurnId) -> Result<By, StoreError> {
        let by = self.connection.first(
            "reading who cancelled a turn",
            "SELECT cancel_requested_by FROM turns WHERE session_id = ?2 AND id = ?1",
            [turn.to_string(), session.to_string()],
            |row| row.get::<_, Option<String>>(0),
        )?;
        let damaged = |error| StoreError::Damaged { what: format!("who cancelled the turn {turn}: {error}") };
        by.flatten().map(|json| serde_json::from_str(&json)).transpose().map_err(damaged)
    }
}

fn went_forward(changed: usize) -> Result<(), StoreError> {
    match changed {
        1 => Ok(()),
        _ => Err(StoreError::Refused("a change that the turn's status does not allow")),
    }
}
