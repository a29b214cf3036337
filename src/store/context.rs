//! What is kept of contexts beside the session's own: those of single turns, and whether the agent was shown one.

use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::apply::to_json;
use super::{StoreError, row};
use crate::model::{SessionContext, SessionId, TurnId};

pub(super) async fn set_of_turn(
    connection: &mut SqliteConnection,
    turn: TurnId,
    context: &SessionContext,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE turns SET context = ? WHERE id = ?")
        .bind(to_json(context)?)
        .bind(turn.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("to keep a turn's context"))?;
    Ok(())
}

pub(super) fn of_turn(row: &SqliteRow) -> Result<Option<SessionContext>, StoreError> {
    match row::column::<Option<&str>>(row, "context")? {
        Some(_) => row::from_json(row, "context").map(Some),
        None => Ok(None),
    }
}

pub(super) async fn owe_links(
    connection: &mut SqliteConnection,
    session: SessionId,
    owed: bool,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET links_owed = ? WHERE id = ?")
        .bind(owed)
        .bind(session.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("to note what the agent was shown"))?;
    Ok(())
}
