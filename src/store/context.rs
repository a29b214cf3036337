//! What is kept of contexts beside the session's own: those of single turns, and whether the agent was shown one.

use rusqlite::params;
use sqlx::sqlite::SqliteRow;

use super::apply::{Apply, to_json};
use super::{StoreError, row};
use crate::model::{SessionContext, SessionId, TurnId};

impl Apply<'_> {
    pub(super) fn set_turn_context(
        &self,
        session: SessionId,
        turn: TurnId,
        context: &SessionContext,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "storing a turn's context",
            "UPDATE turns SET context = ?3 WHERE session_id = ?1 AND id = ?2",
            params![session.to_string(), turn.to_string(), to_json(context)?],
        )?;
        Ok(())
    }

    pub(super) fn owe_links(&self, session: SessionId, owed: bool) -> Result<(), StoreError> {
        self.owe("UPDATE sessions SET links_owed = ?2 WHERE id = ?1", session, owed)
    }

    pub(super) fn owe_instructions(&self, session: SessionId, owed: bool) -> Result<(), StoreError> {
        self.owe("UPDATE sessions SET instructions_owed = ?2 WHERE id = ?1", session, owed)
    }

    fn owe(&self, sql: &'static str, session: SessionId, owed: bool) -> Result<(), StoreError> {
        self.connection.run("storing the context that the agent has", sql, params![session.to_string(), owed])?;
        Ok(())
    }
}

pub(super) fn of_turn(row: &SqliteRow) -> Result<Option<SessionContext>, StoreError> {
    match row::column::<Option<&str>>(row, "context")? {
        Some(_) => row::from_json(row, "context").map(Some),
        None => Ok(None),
    }
}
