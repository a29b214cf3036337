//! A turn's row, which only goes forward.

use rusqlite::params;

use super::apply::{Apply, to_json};
use super::{Op, StoreError};
use crate::model::{EventBody, SessionId, TurnId, TurnStatus};

impl Apply<'_> {
    /// A change that does not follow from the turn's status is a bug, and fails the unit.
    pub(super) fn turn(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        match op {
            Op::QueueTurn { turn, position } => {
                self.connection.run(
                    "to queue a turn",
                    "INSERT INTO turns (id, session_id, status, queued_at) VALUES (?1, ?2, 'queued', ?3)",
                    params![turn.to_string(), session.to_string(), now],
                )?;
                self.note_activity(session);
                self.event(session, Some(*turn), &EventBody::TurnQueued { position: *position })
            }
            Op::StartTurn { turn } => {
                self.event(session, Some(*turn), &EventBody::TurnStarted {})?;
                let sequence = self.last_event(session)?;
                let changed = self.connection.run(
                    "to start a turn",
                    "UPDATE turns SET status = 'running', started_at = ?2, started_sequence = ?3 \
                     WHERE id = ?1 AND status = 'queued'",
                    params![turn.to_string(), now, sequence],
                )?;
                went_forward(changed)
            }
            Op::RequestCancel { turn } => went_forward(self.connection.run(
                "to note the wish to cancel a turn",
                "UPDATE turns SET cancel_requested_at = coalesce(cancel_requested_at, ?2) \
                 WHERE id = ?1 AND status IN ('queued', 'running')",
                params![turn.to_string(), now],
            )?),
            Op::FinishTurn { turn, status, stop_reason, error, usage } => {
                debug_assert!(status.is_final(), "a turn finishes with a final status");
                let body = EventBody::TurnCompleted {
                    status: *status,
                    stop_reason: stop_reason.clone(),
                    error: error.clone(),
                    usage: usage.clone(),
                };
                self.event(session, Some(*turn), &body)?;
                self.finish_turn(session, *turn, op)
            }
            _ => Err(StoreError::Refused("an operation that is no turn's")),
        }
    }

    fn finish_turn(&mut self, session: SessionId, turn: TurnId, op: &Op) -> Result<(), StoreError> {
        let Op::FinishTurn { status, stop_reason, error, usage, .. } = op else { return Ok(()) };
        let changed = self.connection.run(
            "to end a turn",
            "UPDATE turns SET status = ?2, stop_reason = ?3, error_code = ?4, error_message = ?5, \
             usage = coalesce(?6, usage), finished_at = ?7, finished_sequence = ?8 \
             WHERE id = ?1 AND (status = 'running' OR (status = 'queued' AND ?9))",
            params![
                turn.to_string(),
                status.as_str(),
                stop_reason,
                error.as_ref().map(|error| error.code.as_str()),
                error.as_ref().map(|error| &error.message),
                usage.as_ref().map(to_json).transpose()?,
                self.now.as_millis(),
                self.last_event(session)?,
                TurnStatus::Queued.may_become(*status),
            ],
        )?;
        went_forward(changed)
    }
}

fn went_forward(changed: usize) -> Result<(), StoreError> {
    match changed {
        1 => Ok(()),
        _ => Err(StoreError::Refused("a turn's change that does not follow from its status")),
    }
}
