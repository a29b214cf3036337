//! What a session's record is derived from: its newest turns and tool calls.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use sqlx::sqlite::SqliteRow;

use super::{Store, StoreError, row};
use crate::model::message::Role;
use crate::model::record::derive::{ARGUMENTS_BYTES_MAX, ERROR_CHARS_MAX, ToolUse};
use crate::model::turn::Turn;
use crate::model::{SessionId, Timestamp, TurnId};

/// How a tool call ended.
struct Ending {
    status: String,
    error: Option<String>,
    at: Timestamp,
}

impl Store {
    /// The newest turns that are over, in order.
    pub async fn ended_turns(&self, session: SessionId, limit: usize) -> Result<Vec<Turn>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM turns WHERE session_id = ? AND status NOT IN ('queued', 'running') ORDER BY row DESC LIMIT +?",
        )
        .bind(session.to_string())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading the turns that are over"))?;
        rows.iter().rev().map(row::turn).collect()
    }

    /// The newest tool calls, in order. Those of a turn that is not over are there when they have ended.
    pub async fn tool_uses(&self, session: SessionId, limit: usize) -> Result<Vec<ToolUse>, StoreError> {
        // Of a large content only the parts that are told are read out.
        let mut rows = sqlx::query(
            "SELECT messages.id, role, turn_id, tool_call_id, created_at, content ->> 'name' AS name, \
             content ->> 'kind' AS kind, content ->> 'status' AS status, substr(content ->> 'error', 1, ?3) AS error, \
             CASE WHEN role = 'tool_call' AND length(content) <= ?2 THEN content -> 'arguments' END AS arguments, \
             EXISTS (SELECT 1 FROM turns WHERE turns.session_id = messages.session_id AND turns.id = messages.turn_id \
             AND turns.status = 'running') AS is_open \
             FROM messages WHERE session_id = ?1 AND role IN ('tool_call', 'tool_result') ORDER BY sequence DESC",
        )
        .bind(session.to_string())
        .bind(i64::try_from(ARGUMENTS_BYTES_MAX).unwrap_or(i64::MAX))
        .bind(i64::try_from(ERROR_CHARS_MAX).unwrap_or(i64::MAX))
        .fetch(&self.pool);
        let mut endings: HashMap<(Option<TurnId>, String), Ending> = HashMap::new();
        let mut uses = Vec::new();
        while uses.len() < limit
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("reading tool calls"))?
        {
            let turn: Option<TurnId> = row::parsed_option(&row, "turn_id")?;
            let call = row::column::<Option<String>>(&row, "tool_call_id")?.unwrap_or_default();
            if row::parsed::<Role>(&row, "role")? == Role::ToolResult {
                endings.insert((turn, call), ending(&row)?);
                continue;
            }
            let ending = endings.remove(&(turn, call.clone()));
            if ending.is_some() || !row::column::<bool>(&row, "is_open")? {
                uses.push(tool_use(&row, turn, call, ending)?);
            }
        }
        drop(rows);
        uses.reverse();
        Ok(uses)
    }
}

fn ending(row: &SqliteRow) -> Result<Ending, StoreError> {
    Ok(Ending {
        status: row::column::<Option<String>>(row, "status")?.unwrap_or_default(),
        error: row::column(row, "error")?,
        at: row::time(row, "created_at")?,
    })
}

fn tool_use(row: &SqliteRow, turn: Option<TurnId>, id: String, end: Option<Ending>) -> Result<ToolUse, StoreError> {
    let begun_at = row::time(row, "created_at")?;
    let at = end.as_ref().map_or(begun_at, |end| end.at);
    let (status, error) = end.map(|end| (end.status, end.error)).unzip();
    Ok(ToolUse {
        turn,
        id,
        name: row::column::<Option<String>>(row, "name")?.unwrap_or_default(),
        kind: row::column::<Option<String>>(row, "kind")?.unwrap_or_default(),
        arguments: row::json_option(row, "arguments")?,
        status,
        error: error.flatten(),
        at,
    })
}
