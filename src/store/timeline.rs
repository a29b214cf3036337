//! Timelines: when the sessions that have to do with something began, what they reached, what came of them, and when they
//! were over.

use futures_util::TryStreamExt;
use serde_json::value::RawValue;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::owners::push_sight;
use super::read::MESSAGES_BYTES_MAX;
use super::records::SESSION_END;
use super::{Store, StoreError, row};
use crate::model::{Sight, Timestamp};

/// Which moments are asked for.
#[derive(Clone, Debug)]
pub struct TimelineFilter {
    pub sight: Sight,
    /// What an outcome is about, a session by its name, or an entity by its id.
    pub entity: String,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// One moment.
#[derive(Debug)]
pub struct TimelineItem {
    pub kind: String,
    pub at: Timestamp,
    pub entity: String,
    /// What the session is called in records; of acpd's own, its id.
    pub session_name: String,
    /// The checkpoint or the outcome.
    pub data: Option<Box<RawValue>>,
}

impl Store {
    /// In order of time; of one time, beginnings come first, then checkpoints, outcomes and ends. With how many there are;
    /// fewer than `limit` when they are large, but never none when there are any.
    pub async fn timeline(
        &self,
        filter: &TimelineFilter,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<TimelineItem>, i64), StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("");
        push_timeline(&mut count, "count(*)", filter);
        let total: i64 = count
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting a timeline"))?;
        let mut query = QueryBuilder::<Sqlite>::new("");
        push_timeline(&mut query, "*", filter);
        query.push(" ORDER BY at, rank, id, ordinal LIMIT +").push_bind(limit).push(" OFFSET +").push_bind(offset);
        let mut rows = query.build().fetch(&self.pool);
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGES_BYTES_MAX
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("reading a timeline"))?
        {
            let item = item(&row)?;
            bytes += item.data.as_ref().map_or(0, |data| data.get().len());
            items.push(item);
        }
        drop(rows);
        Ok((items, total))
    }
}

fn item(row: &SqliteRow) -> Result<TimelineItem, StoreError> {
    let data: Option<String> = row::column(row, "data")?;
    Ok(TimelineItem {
        kind: row::column(row, "kind")?,
        at: row::time(row, "at")?,
        entity: row::column(row, "id")?,
        session_name: row::column(row, "name")?,
        data: data.map(|_| row::raw(row, "data")).transpose()?,
    })
}

/// The sessions are looked up by what they are called and by what their outcomes are about; what follows is theirs alone.
/// `is_whole` is one that was asked for by its own name, all of whose outcomes are of interest. A checkpoint of acpd's own that
/// was submitted besides is told once.
fn push_timeline(query: &mut QueryBuilder<Sqlite>, columns: &str, filter: &TimelineFilter) {
    let entity = || filter.entity.clone();
    query.push(
        "WITH meant AS (SELECT id, max(is_whole) AS is_whole FROM (SELECT coalesce(session_id, id) AS id, 1 AS is_whole \
         FROM record_entities ",
    );
    query.push("WHERE id = ").push_bind(entity()).push(" OR name = ").push_bind(entity());
    query.push(" UNION ALL SELECT id, 1 FROM sessions WHERE id = ").push_bind(entity());
    query.push(
        " UNION ALL SELECT coalesce(entities.session_id, entities.id), 0 FROM record_moments AS referring \
         CROSS JOIN record_entities AS entities ON entities.id = referring.entity_id WHERE reference = ",
    );
    query.push_bind(entity());
    query.push(") GROUP BY id), own AS (SELECT sessions.id, sessions.created_at, ").push(SESSION_END);
    query.push(" AS ended_at FROM meant CROSS JOIN sessions ON sessions.id = meant.id WHERE TRUE");
    push_sight(query, "sessions.owner_uid", filter.sight);
    query.push(
        "), told AS (SELECT meant.id, entities.id AS key, entities.name, entities.session_id, meant.is_whole, entities.started_at, \
         CASE WHEN entities.session_id IS NULL THEN entities.ended_at ELSE ",
    );
    query.push(SESSION_END).push(
        " END AS ended_at FROM meant CROSS JOIN record_entities AS entities \
         ON entities.id = meant.id OR entities.session_id = meant.id \
         LEFT JOIN sessions ON sessions.id = entities.session_id WHERE TRUE",
    );
    push_sight(query, "entities.owner_uid", filter.sight);
    query.push(format!(
        ") SELECT {columns} FROM (\
         SELECT 'session_start' AS kind, 0 AS rank, 0 AS ordinal, created_at AS at, id, id AS name, NULL AS data FROM own \
         UNION ALL SELECT 'session_end', 3, 0, ended_at, id, id, NULL FROM own \
         UNION ALL SELECT 'session_start', 0, 0, started_at, id, name, NULL FROM told WHERE session_id IS NULL \
         UNION ALL SELECT 'session_end', 3, 0, ended_at, id, name, NULL FROM told WHERE session_id IS NULL \
         UNION ALL SELECT 'checkpoint', 1, checkpoints.row, checkpoints.created_at, own.id, own.id, \
         json_object('name', checkpoints.name) FROM own CROSS JOIN checkpoints ON checkpoints.session_id = own.id \
         UNION ALL SELECT moments.kind, iif(moments.kind = 'checkpoint', 1, 2), moments.ordinal, \
         coalesce(moments.at, told.ended_at, moments.observed_at), told.id, told.name, moments.data \
         FROM told CROSS JOIN record_moments AS moments ON moments.entity_id = told.key \
         WHERE NOT EXISTS (SELECT 1 FROM checkpoints WHERE checkpoints.session_id = told.session_id \
         AND moments.kind = 'checkpoint' AND checkpoints.name = moments.data ->> 'name' \
         AND checkpoints.created_at = moments.at) \
         AND (moments.kind = 'checkpoint' OR told.is_whole OR moments.reference = "
    ));
    query.push_bind(entity()).push(")) WHERE at IS NOT NULL");
    if let Some(from) = filter.from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = filter.to {
        query.push(" AND at <= ").push_bind(to.as_millis());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::open;
    use super::*;

    #[tokio::test]
    async fn no_table_is_gone_through_for_a_timeline() {
        let directory = tempfile::tempdir().unwrap();
        let (store, writer) = open(directory.path()).await;
        let filter = TimelineFilter { sight: Sight::Own(None), entity: "I-1".to_owned(), from: None, to: None };
        let mut query = QueryBuilder::<Sqlite>::new("EXPLAIN QUERY PLAN ");
        push_timeline(&mut query, "*", &filter);
        let rows = query.build().fetch_all(&store.pool).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row::column(row, "detail").unwrap()).collect();
        let plan = plan.join("\n");
        assert!(plan.contains("record_moments_by_reference (reference=?)"), "{plan}");
        for table in
            ["record_moments", "referring", "moments", "record_entities", "entities", "checkpoints", "sessions"]
        {
            assert!(!plan.contains(&format!("SCAN {table}")), "{plan}");
        }
        writer.close().await;
    }
}
