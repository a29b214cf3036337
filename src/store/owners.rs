//! What somebody may see: conditions by the owner of a session or a workspace, and the log of one user's sessions.

use sqlx::{QueryBuilder, Sqlite};

use super::read::EVENT_COLUMNS;
use super::{EventScope, Store, StoreError, StoredEvent};
use crate::model::Sight;

/// Events of everybody that one read of a user's log passes over at the most.
const EVENTS_PASSED_MAX: i64 = 4096;

/// Adds that the owner in this column must be in sight.
pub(super) fn push_sight(query: &mut QueryBuilder<Sqlite>, column: &str, sight: Sight) {
    if let Sight::Own(owner) = sight {
        query.push(format!(" AND {column} IS ")).push_bind(owner);
    }
}

/// The same by the session in this column.
pub(super) fn push_session_sight(query: &mut QueryBuilder<Sqlite>, column: &str, sight: Sight) {
    if let Sight::Own(owner) = sight {
        query.push(format!(" AND {column} IN (SELECT id FROM sessions WHERE owner_uid IS ")).push_bind(owner).push(")");
    }
}

impl Store {
    /// Events of one user's sessions after a cursor over all, in order, and up to where there are no others. That is the
    /// end of the log, or less: what is read at a time is bounded, however little of it is theirs.
    pub async fn events_of_owner(
        &self,
        owner: Option<u32>,
        after: i64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<(Vec<StoredEvent>, i64), StoreError> {
        // Read first: up to there everything is committed, and so in what is read next.
        let head = self.head(EventScope::All).await?;
        let through = head.min(after.saturating_add(EVENTS_PASSED_MAX));
        let mut query = QueryBuilder::<Sqlite>::new(EVENT_COLUMNS);
        query.push(" WHERE events.id > ").push_bind(after).push(" AND events.id <= ").push_bind(through);
        // The plus keeps the plan with the ids, which are what bounds it.
        push_session_sight(&mut query, "+events.session_id", Sight::Own(owner));
        query.push(" ORDER BY events.id");
        let events = self.bounded_events(query, limit, bytes_max).await?;
        // What follows the last one may have been left out.
        let through = events.last().map_or(through.max(after), |event| event.id);
        Ok((events, through))
    }

    /// Up to where deltas may have been removed from the logs of one user's sessions, as a cursor over all.
    pub(super) async fn compacted_of_owner(&self, owner: Option<u32>) -> Result<i64, StoreError> {
        // The mark of a session is one before an event that stays.
        sqlx::query_scalar(
            "SELECT coalesce(max(events.id), 1) - 1 FROM sessions \
             CROSS JOIN compaction ON compaction.session_id = sessions.id AND compaction.compacted_through > 0 \
             CROSS JOIN events ON events.session_id = sessions.id AND events.sequence = compaction.compacted_through + 1 \
             WHERE sessions.owner_uid IS ?",
        )
        .bind(owner)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::database("reading how far a user's log is compacted"))
    }
}
