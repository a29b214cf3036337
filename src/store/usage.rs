//! What turns and sessions have used, and whether a session's turns are held back.

use rusqlite::params;

use super::apply::{Apply, to_json};
use super::{StoreError, UsageChange};
use crate::model::SessionId;

impl Apply<'_> {
    /// Keeps a session's sums with what they go on from, and those of the turn that brought the change.
    pub(super) fn set_usage(&self, session: SessionId, change: &UsageChange) -> Result<(), StoreError> {
        let (usage, basis) = (to_json(&change.meter.usage)?, to_json(&change.meter.basis)?);
        self.connection.run(
            "storing a session's usage",
            "UPDATE sessions SET usage = ?2, usage_basis = ?3, updated_at = ?4 WHERE id = ?1",
            params![session.to_string(), usage, basis, self.now.as_millis()],
        )?;
        if let Some((turn, usage)) = &change.turn {
            self.connection.run(
                "storing a turn's usage",
                "UPDATE turns SET usage = ?3 WHERE session_id = ?1 AND id = ?2",
                params![session.to_string(), turn.to_string(), to_json(usage)?],
            )?;
        }
        Ok(())
    }

    pub(super) fn set_paused(&self, session: SessionId, paused: Option<&'static str>) -> Result<(), StoreError> {
        self.connection.run(
            "storing that turns are paused",
            "UPDATE sessions SET paused = ?2, updated_at = ?3 WHERE id = ?1",
            params![session.to_string(), paused, self.now.as_millis()],
        )?;
        Ok(())
    }
}
