//! What turns and sessions have used, and whether a session's turns are held back.

use sqlx::SqliteConnection;

use super::{StoreError, UsageChange};
use crate::model::{SessionId, Timestamp};

/// Keeps a session's sums with what they go on from, and those of the turn that brought the change.
pub(super) async fn set(
    connection: &mut SqliteConnection,
    session: SessionId,
    change: &UsageChange,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET usage = ?, usage_basis = ?, updated_at = ? WHERE id = ?")
        .bind(super::apply::to_json(&change.meter.usage)?)
        .bind(super::apply::to_json(&change.meter.basis)?)
        .bind(now.as_millis())
        .bind(session.to_string())
        .execute(&mut *connection)
        .await
        .map_err(StoreError::database("to keep what a session has used"))?;
    if let Some((turn, usage)) = &change.turn {
        sqlx::query("UPDATE turns SET usage = ? WHERE id = ?")
            .bind(super::apply::to_json(usage)?)
            .bind(turn.to_string())
            .execute(connection)
            .await
            .map_err(StoreError::database("to keep what a turn has used"))?;
    }
    Ok(())
}

pub(super) async fn set_paused(
    connection: &mut SqliteConnection,
    session: SessionId,
    paused: Option<&'static str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE sessions SET paused = ?, updated_at = ? WHERE id = ?")
        .bind(paused)
        .bind(now.as_millis())
        .bind(session.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("to note that turns are held back"))?;
    Ok(())
}
