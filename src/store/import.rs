//! Sessions that come from elsewhere: what they bring is written as if it had happened here, at the times at which it did.

use rusqlite::params;

use super::apply::Apply;
use super::{Imported, Store, StoreError};
use crate::model::{MessageId, SessionId, Timestamp};

impl Store {
    /// Whether a message has one of these ids. They are unique over all sessions.
    pub async fn has_any_message(&self, ids: &[MessageId]) -> Result<bool, StoreError> {
        let ids = serde_json::to_string(ids).unwrap_or_default();
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM json_each(?) AS wanted JOIN messages ON messages.id = wanted.value)",
        )
        .bind(ids)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::database("looking for the ids of messages"))
    }

    /// Whether this was said before of a session that this owner calls so.
    pub async fn knows_observation(
        &self,
        name: &str,
        owner: Option<u32>,
        content_hash: &[u8],
    ) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM record_entities JOIN record_observations \
             ON record_observations.entity_id = record_entities.id \
             WHERE name = ? AND ifnull(owner_uid, -1) = ifnull(?, -1) AND content_hash = ?)",
        )
        .bind(name)
        .bind(owner)
        .bind(content_hash)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::database("looking for an observation"))
    }

    /// When a session came here, if it did not begin here. What its log tells from before that happened elsewhere.
    pub async fn imported_at(&self, session: SessionId) -> Result<Option<Timestamp>, StoreError> {
        let at: Option<Option<String>> =
            sqlx::query_scalar("SELECT data ->> '$.importedFrom.at' FROM events WHERE session_id = ? AND sequence = 1")
                .bind(session.to_string())
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::database("looking where a session comes from"))?;
        Ok(at.flatten().and_then(|at| at.parse().ok()))
    }

    pub async fn message_count(&self, session: SessionId) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM messages WHERE session_id = ?")
            .bind(session.to_string())
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting messages"))
    }
}

impl Apply<'_> {
    /// Every step is carried out as it would have been then. Only how long the session is kept is counted from now: else one
    /// that was archived long ago would be gone with the next sweep.
    pub(super) fn import(&mut self, session: SessionId, imported: &Imported) -> Result<(), StoreError> {
        let Imported { new, from, created_at, updated_at, last_active_at, steps, observations } = imported;
        let now = self.now;
        self.now = *created_at;
        self.create_session(session, new, Some(from))?;
        for (at, step) in steps {
            self.now = *at;
            self.op(session, step)?;
        }
        self.now = now;
        self.forget_activity(session);
        self.connection.run(
            "storing an imported session's times",
            "UPDATE sessions SET updated_at = ?2, last_active_at = ?3, status_changed_at = ?4 WHERE id = ?1",
            params![session.to_string(), updated_at.as_millis(), last_active_at.as_millis(), from.at.as_millis()],
        )?;
        self.adopt_entity(session, new.owner_uid)?;
        observations.iter().try_for_each(|new| self.observe(new))
    }
}
