//! What retention asks of the record: which sessions might be expired, which of them were found so, and when that was
//! last looked after.

use rusqlite::params;
use sqlx::sqlite::SqliteRow;

use super::apply::Apply;
use super::{Store, StoreError, row};
use crate::model::{SessionId, SessionStatus, Timestamp};

/// A session as a sweep sees it.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: SessionId,
    pub title: String,
    pub status: SessionStatus,
    pub status_changed_at: Timestamp,
    pub supports_resume: bool,
    pub keep: bool,
    /// When a sweep first found its retention over.
    pub expired_seen_at: Option<Timestamp>,
    pub queued_turns: i64,
}

impl Store {
    /// Sessions that might be expired or were found so, by id, after one of them: all but the active ones, which never
    /// expire. Who is expired is the policy's to say.
    pub async fn retention_candidates(
        &self,
        after: Option<SessionId>,
        limit: i64,
    ) -> Result<Vec<Candidate>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, title, status, status_changed_at, supports_resume, keep, expired_seen_at, \
             (SELECT count(*) FROM turns WHERE turns.session_id = sessions.id AND turns.status = 'queued') \
             AS queued_turns \
             FROM sessions WHERE id > ? AND (status <> 'active' OR expired_seen_at IS NOT NULL) ORDER BY id LIMIT +?",
        )
        .bind(after.map(|after| after.to_string()).unwrap_or_default())
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("looking for expired sessions"))?;
        rows.iter().map(candidate).collect()
    }

    /// When the last sweep was made.
    pub async fn last_sweep(&self) -> Result<Option<Timestamp>, StoreError> {
        let at: Option<i64> = sqlx::query_scalar("SELECT at FROM sweeps")
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading when the last sweep was"))?;
        Ok(at.map(Timestamp::from_millis))
    }
}

fn candidate(row: &SqliteRow) -> Result<Candidate, StoreError> {
    Ok(Candidate {
        id: row::parsed(row, "id")?,
        title: row::column(row, "title")?,
        status: row::parsed(row, "status")?,
        status_changed_at: row::time(row, "status_changed_at")?,
        supports_resume: row::column(row, "supports_resume")?,
        keep: row::column(row, "keep")?,
        expired_seen_at: row::column::<Option<i64>>(row, "expired_seen_at")?.map(Timestamp::from_millis),
        queued_turns: row::column(row, "queued_turns")?,
    })
}

impl Apply<'_> {
    /// Marks a session, or takes its mark away. One that has changed its status since it was looked at is left alone.
    pub(super) fn mark_expired(
        &self,
        session: SessionId,
        status_changed_at: Timestamp,
        seen_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "marking an expired session",
            "UPDATE sessions SET expired_seen_at = ?2 WHERE id = ?1 AND status_changed_at = ?3",
            params![session.to_string(), seen_at.map(Timestamp::as_millis), status_changed_at.as_millis()],
        )?;
        Ok(())
    }

    pub(super) fn note_sweep(&self, at: Timestamp) -> Result<(), StoreError> {
        let sql = "INSERT INTO sweeps (id, at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET at = ?1";
        self.connection.run("storing the time of the retention run", sql, [at.as_millis()])?;
        Ok(())
    }
}
