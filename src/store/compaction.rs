//! Compaction: deltas of finished messages are removed from the log, turn by turn, in small steps.
//!
//! ```text
//! sequence  1 ──── seen_through ──── window ──── boundary ─────────────▶ head
//!           looked through           this step   the oldest turn that stays replayable delta by delta
//! ```
//!
//! Nothing but `message.delta` goes, and only when its message is recorded: `message.created` then has all of its text.
//! Every event is looked at once in its life. `compacted_through` is one before the boundary as soon as the first delta
//! below it is gone, so that a reader who is told hears of all the holes at once.

use rusqlite::params;

use super::connection::Connection;
use super::{EventScope, Store, StoreError};

/// Events that one step looks at.
const EVENTS_PER_STEP: i64 = 500;
/// Sessions that are counted at a time for a dry run.
const SESSIONS_PER_COUNT: i64 = 100;

/// From where on the log of session ?1 stays as it is: the beginning of the oldest of the ?2 turns that are kept replayable.
/// When none is, the end of the last one; a turn that runs is never touched. What comes between two turns belongs to the
/// one before.
const BOUNDARY: &str = "SELECT sequence, id FROM events WHERE session_id = ?1 AND sequence = \
     CASE WHEN ?2 > 0 OR EXISTS (SELECT 1 FROM turns WHERE session_id = ?1 AND status = 'running') \
     THEN (SELECT started_sequence FROM turns WHERE session_id = ?1 AND started_sequence IS NOT NULL \
         ORDER BY started_sequence DESC LIMIT 1 OFFSET max(?2, 1) - 1) \
     ELSE (SELECT max(coalesce(finished_sequence, started_sequence)) FROM turns WHERE session_id = ?1) END";

/// Where a turn begins or ends in the log.
struct Boundary {
    sequence: i64,
    id: i64,
}

/// What one step looks at.
#[derive(Debug)]
pub(super) struct Window {
    session: String,
    after: i64,
    through: i64,
    /// The last event before the boundary, in the session's log and over all sessions.
    end: i64,
    end_id: i64,
}

impl Store {
    /// Up to where deltas may have been removed from a log; 0 when it is whole.
    pub async fn compacted_through(&self, scope: EventScope) -> Result<i64, StoreError> {
        let query = match scope {
            EventScope::Session(session) => {
                sqlx::query_scalar("SELECT compacted_through FROM compaction WHERE session_id = ?")
                    .bind(session.to_string())
            }
            EventScope::Owner(owner) => return self.compacted_of_owner(owner).await,
            EventScope::All => sqlx::query_scalar("SELECT compacted_through FROM maintenance"),
        };
        let through = query.fetch_optional(&self.pool).await;
        Ok(through.map_err(StoreError::database("reading how far the log is compacted"))?.unwrap_or(0))
    }

    /// How many deltas compaction would remove now.
    pub async fn removable_deltas(&self, replay_turns: Option<u32>) -> Result<i64, StoreError> {
        let counting = "counting what can be compacted";
        let mut total = 0;
        let mut last = String::new();
        loop {
            // Given back after each page: the other readers have few connections, and many sessions may be due.
            let mut connection = self.pool.acquire().await.map_err(StoreError::database(counting))?;
            let sessions: Vec<(String, i64)> = sqlx::query_as(
                "SELECT session_id, seen_through FROM compaction WHERE due = 1 AND session_id > ? \
                 ORDER BY session_id LIMIT ?",
            )
            .bind(&last)
            .bind(SESSIONS_PER_COUNT)
            .fetch_all(&mut *connection)
            .await
            .map_err(StoreError::database(counting))?;
            let Some((newest, _)) = sessions.last() else { return Ok(total) };
            last.clone_from(newest);
            for (session, seen_through) in sessions {
                let boundary: Option<(i64, i64)> = sqlx::query_as(BOUNDARY)
                    .bind(&session)
                    .bind(replay_turns.unwrap_or(0))
                    .fetch_optional(&mut *connection)
                    .await
                    .map_err(StoreError::database(counting))?;
                let Some((boundary, _)) = boundary else { continue };
                let count: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM events WHERE session_id = ? AND sequence > ? AND sequence < ? \
                     AND type = 'message.delta' \
                     AND EXISTS (SELECT 1 FROM messages WHERE messages.id = events.data ->> 'messageId')",
                )
                .bind(session)
                .bind(seen_through)
                .bind(boundary)
                .fetch_one(&mut *connection)
                .await
                .map_err(StoreError::database(counting))?;
                total += count;
            }
        }
    }
}

/// Has every session looked at again when the setting is another than the last time.
pub(super) fn begin(connection: &Connection, replay_turns: Option<u32>) -> Result<(), StoreError> {
    // In this order: what is cut off in between is done again at the next start.
    let again = "UPDATE compaction SET due = 1 WHERE due = 0 AND (SELECT replay_turns FROM maintenance) <> ?1";
    let noted = "UPDATE maintenance SET replay_turns = ?1 WHERE replay_turns <> ?1";
    for sql in [again, noted] {
        connection.run("resetting the compaction state", sql, [replay_turns.unwrap_or(0)])?;
    }
    Ok(())
}

/// The next events to look at, of some session that is due; none when no session is.
pub(super) fn next_window(connection: &Connection, replay_turns: Option<u32>) -> Result<Option<Window>, StoreError> {
    let looking = "looking for what can be compacted";
    let sql = "SELECT session_id, seen_through FROM compaction WHERE due = 1 LIMIT 1";
    let due = connection.first(looking, sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let Some((session, after)) = due else { return Ok(None) };
    let boundary = connection.first(looking, BOUNDARY, params![session, replay_turns.unwrap_or(0)], |row| {
        Ok(Boundary { sequence: row.get(0)?, id: row.get(1)? })
    })?;
    let Some(Boundary { sequence, id }) = boundary else {
        return Ok(Some(Window { session, after, through: after, end: after, end_id: 0 }));
    };
    let last = connection.first(
        looking,
        "SELECT max(sequence) FROM (SELECT sequence FROM events WHERE session_id = ?1 AND sequence > ?2 \
         AND sequence < ?3 ORDER BY sequence LIMIT ?4)",
        params![session, after, sequence, EVENTS_PER_STEP],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    let through = last.flatten().unwrap_or(after);
    Ok(Some(Window { session, after, through, end: sequence - 1, end_id: id - 1 }))
}

/// Removes the deltas in the window, and tells how many there were. To be called in a transaction.
pub(super) fn remove(connection: &Connection, window: &Window) -> Result<u64, StoreError> {
    let Window { session, after, through, end, end_id } = window;
    let removed = connection.run(
        "removing deltas",
        "DELETE FROM events WHERE session_id = ?1 AND sequence > ?2 AND sequence <= ?3 AND type = 'message.delta' \
         AND EXISTS (SELECT 1 FROM messages WHERE messages.id = events.data ->> 'messageId')",
        params![session, after, through],
    )?;
    let is_last = through == after || through >= end;
    connection.run(
        "storing a session's compaction position",
        "UPDATE compaction SET due = ?2, seen_through = ?3, \
         compacted_through = CASE WHEN ?4 THEN max(compacted_through, ?5) ELSE compacted_through END \
         WHERE session_id = ?1",
        params![session, !is_last, through, removed > 0, end],
    )?;
    if removed > 0 {
        let sql = "UPDATE maintenance SET compacted_through = max(compacted_through, ?1)";
        connection.run("storing the log's compaction position", sql, [end_id])?;
    }
    Ok(removed as u64)
}
