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

use sqlx::SqliteConnection;

use super::{EventScope, Store, StoreError, row};

/// Events that one step looks at.
const EVENTS_PER_STEP: i64 = 500;
/// Sessions that are counted at a time for a dry run.
const SESSIONS_PER_COUNT: i64 = 100;

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
                let Some(boundary) = boundary(&mut connection, &session, replay_turns).await? else { continue };
                let count: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM events WHERE session_id = ? AND sequence > ? AND sequence < ? \
                     AND type = 'message.delta' \
                     AND EXISTS (SELECT 1 FROM messages WHERE messages.id = events.data ->> 'messageId')",
                )
                .bind(session)
                .bind(seen_through)
                .bind(boundary.sequence)
                .fetch_one(&mut *connection)
                .await
                .map_err(StoreError::database(counting))?;
                total += count;
            }
        }
    }
}

/// Has every session looked at again when the setting is another than the last time.
pub(super) async fn begin(connection: &mut SqliteConnection, replay_turns: Option<u32>) -> Result<(), StoreError> {
    let replay_turns = replay_turns.unwrap_or(0);
    // In this order: what is cut off in between is done again at the next start.
    let again = "UPDATE compaction SET due = 1 WHERE due = 0 AND (SELECT replay_turns FROM maintenance) <> ?";
    let noted = "UPDATE maintenance SET replay_turns = ?1 WHERE replay_turns <> ?1";
    for statement in [again, noted] {
        sqlx::query(statement)
            .bind(replay_turns)
            .execute(&mut *connection)
            .await
            .map_err(StoreError::database("to have sessions looked at with another setting"))?;
    }
    Ok(())
}

/// The next events to look at, of some session that is due; none when no session is.
pub(super) async fn next_window(
    connection: &mut SqliteConnection,
    replay_turns: Option<u32>,
) -> Result<Option<Window>, StoreError> {
    let looking = "looking for what can be compacted";
    let due = sqlx::query("SELECT session_id, seen_through FROM compaction WHERE due = 1 LIMIT 1")
        .fetch_optional(&mut *connection)
        .await
        .map_err(StoreError::database(looking))?;
    let Some(due) = due else { return Ok(None) };
    let session: String = row::column(&due, "session_id")?;
    let after = row::column(&due, "seen_through")?;
    let Some(Boundary { sequence, id }) = boundary(connection, &session, replay_turns).await? else {
        return Ok(Some(Window { session, after, through: after, end: after, end_id: 0 }));
    };
    let last: Option<i64> = sqlx::query_scalar(
        "SELECT max(sequence) FROM (SELECT sequence FROM events WHERE session_id = ? AND sequence > ? \
         AND sequence < ? ORDER BY sequence LIMIT ?)",
    )
    .bind(&session)
    .bind(after)
    .bind(sequence)
    .bind(EVENTS_PER_STEP)
    .fetch_one(connection)
    .await
    .map_err(StoreError::database(looking))?;
    Ok(Some(Window { session, after, through: last.unwrap_or(after), end: sequence - 1, end_id: id - 1 }))
}

/// Removes the deltas in the window, and tells how many there were. To be called in a transaction.
pub(super) async fn remove(connection: &mut SqliteConnection, window: &Window) -> Result<u64, StoreError> {
    let Window { session, after, through, end, end_id } = window;
    let removed = sqlx::query(
        "DELETE FROM events WHERE session_id = ? AND sequence > ? AND sequence <= ? AND type = 'message.delta' \
         AND EXISTS (SELECT 1 FROM messages WHERE messages.id = events.data ->> 'messageId')",
    )
    .bind(session)
    .bind(after)
    .bind(through)
    .execute(&mut *connection)
    .await
    .map_err(StoreError::database("to remove deltas"))?
    .rows_affected();
    let is_last = through == after || through >= end;
    sqlx::query(
        "UPDATE compaction SET due = ?, seen_through = ?, \
         compacted_through = CASE WHEN ? THEN max(compacted_through, ?) ELSE compacted_through END WHERE session_id = ?",
    )
    .bind(!is_last)
    .bind(through)
    .bind(removed > 0)
    .bind(end)
    .bind(session)
    .execute(&mut *connection)
    .await
    .map_err(StoreError::database("to note how far a session is compacted"))?;
    if removed > 0 {
        sqlx::query("UPDATE maintenance SET compacted_through = max(compacted_through, ?)")
            .bind(end_id)
            .execute(connection)
            .await
            .map_err(StoreError::database("to note how far the log is compacted"))?;
    }
    Ok(removed)
}

/// From where on the log stays as it is: the beginning of the oldest turn that is kept replayable. When none is, the end
/// of the last one; a turn that runs is never touched. What comes between two turns belongs to the one before.
async fn boundary(
    connection: &mut SqliteConnection,
    session: &str,
    replay_turns: Option<u32>,
) -> Result<Option<Boundary>, StoreError> {
    const STARTED: &str = "SELECT sequence, id FROM events INDEXED BY events_turn_marks WHERE session_id = ? \
         AND type IN ('turn.started', 'turn.completed') AND type = 'turn.started' \
         ORDER BY sequence DESC LIMIT 1 OFFSET ?";
    const EITHER: &str = "SELECT sequence, id FROM events INDEXED BY events_turn_marks WHERE session_id = ? \
         AND type IN ('turn.started', 'turn.completed') ORDER BY sequence DESC LIMIT 1 OFFSET ?";
    let looking = "looking for where a turn begins";
    let (query, skipped) = if let Some(turns) = replay_turns {
        (STARTED, turns.saturating_sub(1))
    } else {
        let runs: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM turns WHERE session_id = ? AND status = 'running')")
                .bind(session)
                .fetch_one(&mut *connection)
                .await
                .map_err(StoreError::database(looking))?;
        (if runs { STARTED } else { EITHER }, 0)
    };
    let found: Option<(i64, i64)> = sqlx::query_as(query)
        .bind(session)
        .bind(skipped)
        .fetch_optional(connection)
        .await
        .map_err(StoreError::database(looking))?;
    Ok(found.map(|(sequence, id)| Boundary { sequence, id }))
}
