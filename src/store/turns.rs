//! A turn's row, which only goes forward.

use super::apply::{Apply, to_json};
use super::batch::EndedTurn;
use super::{Op, StoreError};
use crate::model::{EventBody, SessionId, TurnStatus};

impl Apply<'_> {
    /// A change that does not follow from the turn's status is a bug, and fails the unit.
    pub(super) fn turn(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::QueueTurn { turn, position } => {
                self.batch.queue(session, *turn);
                self.event(session, Some(*turn), &EventBody::TurnQueued { position: *position })
            }
            Op::StartTurn { turn } => {
                self.batch.start(*turn);
                self.event(session, Some(*turn), &EventBody::TurnStarted {})
            }
            Op::RequestCancel { turn } => {
                self.batch.cancel(*turn);
                Ok(())
            }
            Op::FinishTurn { turn, status, stop_reason, error, usage } => {
                debug_assert!(status.is_final(), "a turn finishes with a final status");
                self.batch.end(EndedTurn(
                    *turn,
                    *status,
                    stop_reason.clone(),
                    error.as_ref().map(|error| error.code.as_str()),
                    error.as_ref().map(|error| error.message.clone()),
                    usage.as_ref().map(to_json).transpose()?,
                    TurnStatus::Queued.may_become(*status),
                ));
                let body = EventBody::TurnCompleted {
                    status: *status,
                    stop_reason: stop_reason.clone(),
                    error: error.clone(),
                    usage: usage.clone(),
                };
                self.event(session, Some(*turn), &body)
            }
            _ => Err(StoreError::Refused("an operation that is no turn's")),
        }
    }
}
