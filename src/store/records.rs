//! Records of sessions that come from outside: observations, which are never changed, and the entities that they are of.
//!
//! An entity is one session of one owner's, by the name that the documents give it. Where that is the id of a session of
//! the owner's own, the entity is that session: it has its id, and goes with it.

use futures_util::TryStreamExt;
use rusqlite::params;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::{Apply, to_json};
use super::owners::push_sight;
use super::{Store, StoreError, row};
use crate::model::record::{self, ENTITIES_MAX, Moment, OBSERVATIONS_MAX};
use crate::model::{By, EntityId, ObservationId, SessionId, Sight, Timestamp};

/// Observations that are shown of an entity: the newest.
const OBSERVATIONS_SHOWN: i64 = 100;
/// Fewer are shown when they are large.
const OBSERVATIONS_BYTES_MAX: usize = 2 << 20;

/// What somebody says of a session.
#[derive(Debug)]
pub struct NewObservation {
    pub id: ObservationId,
    /// The entity, when it is the first of it.
    pub entity: EntityId,
    /// Whose it is; nothing, when it is the daemon's own user's.
    pub owner: Option<u32>,
    /// A record that was found valid.
    pub content: Box<RawValue>,
    /// What the snapshot may have grown to with it.
    pub snapshot_bytes_max: usize,
    pub by: By,
}

/// What is known of an entity.
#[derive(Debug)]
pub struct Entity {
    /// The session's, when it is one of acpd's own.
    pub id: String,
    /// By which its observations are found.
    key: String,
    pub session: Option<SessionId>,
    pub snapshot: Map<String, Value>,
    pub observation_count: i64,
}

/// An observation as it is recorded.
#[derive(Debug)]
pub struct Observation {
    pub id: ObservationId,
    pub observed_at: Timestamp,
    pub content: Box<RawValue>,
}

/// Where entities come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntitySource {
    #[default]
    All,
    /// Records were submitted of it.
    Submitted,
    /// It is a session of acpd's own.
    Derived,
}

/// By what entities are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntityOrder {
    #[default]
    StartedAt,
    EndedAt,
    Duration,
    SessionId,
    ObservationCount,
    LastObservedAt,
}

/// Which entities a list shows, and in which order. Those without the value that they are ordered by come last.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntityFilter {
    pub sight: Sight,
    /// The session whose agent asks. It is not listed until records were submitted for it.
    pub asking: Option<SessionId>,
    pub source: EntitySource,
    pub order: EntityOrder,
    pub is_ascending: bool,
}

impl EntityOrder {
    pub const ALL: [Self; 6] =
        [Self::StartedAt, Self::EndedAt, Self::Duration, Self::SessionId, Self::ObservationCount, Self::LastObservedAt];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StartedAt => "started_at",
            Self::EndedAt => "ended_at",
            Self::Duration => "duration",
            Self::SessionId => "session_id",
            Self::ObservationCount => "observation_count",
            Self::LastObservedAt => "last_observed_at",
        }
    }
}

impl Store {
    /// The ids of entities in order, with how many there are in all.
    pub async fn entities(
        &self,
        filter: EntityFilter,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<String>, i64), StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM (");
        push_entities(&mut count, filter);
        let total: i64 = count
            .push(")")
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting records"))?;
        let mut query = QueryBuilder::<Sqlite>::new("SELECT id FROM (");
        push_entities(&mut query, filter);
        let (column, direction) = (filter.order.as_str(), if filter.is_ascending { "ASC" } else { "DESC" });
        query.push(format!(") ORDER BY {column} IS NULL, {column} {direction}, id {direction} LIMIT +"));
        query.push_bind(limit).push(" OFFSET +").push_bind(offset);
        let ids = query.build_query_scalar().fetch_all(&self.pool).await;
        Ok((ids.map_err(StoreError::database("listing records"))?, total))
    }

    /// The entity with this id; or the session's by this name, this owner's own before others'.
    pub async fn entity(&self, name: &str, sight: Sight, owner: Option<u32>) -> Result<Option<Entity>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM record_entities WHERE (id = ");
        query.push_bind(name).push(" OR name = ").push_bind(name).push(")");
        push_sight(&mut query, "owner_uid", sight);
        query.push(" ORDER BY id = ").push_bind(name).push(" DESC, owner_uid IS ").push_bind(owner);
        query.push(" DESC LIMIT 1");
        let row = query.build().fetch_optional(&self.pool).await.map_err(StoreError::database("reading a record"))?;
        row.as_ref().map(entity).transpose()
    }

    /// The entity of this owner's that is called so.
    pub async fn entity_named(&self, name: &str, owner: Option<u32>) -> Result<Option<Entity>, StoreError> {
        let row =
            sqlx::query("SELECT * FROM record_entities WHERE name = ?1 AND ifnull(owner_uid, -1) = ifnull(?2, -1)")
                .bind(name)
                .bind(owner)
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::database("reading a record"))?;
        row.as_ref().map(entity).transpose()
    }

    /// The newest observations of an entity, in order.
    pub async fn observations(&self, entity: &Entity) -> Result<Vec<Observation>, StoreError> {
        let mut rows = sqlx::query("SELECT * FROM record_observations WHERE entity_id = ? ORDER BY row DESC LIMIT +?")
            .bind(&entity.key)
            .bind(OBSERVATIONS_SHOWN)
            .fetch(&self.pool);
        let mut observations = Vec::new();
        let mut bytes = 0;
        while bytes < OBSERVATIONS_BYTES_MAX
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("reading observations"))?
        {
            let content = row::raw(&row, "content")?;
            bytes += content.get().len();
            let (id, observed_at) = (row::parsed(&row, "id")?, row::time(&row, "observed_at")?);
            observations.push(Observation { id, observed_at, content });
        }
        drop(rows);
        observations.reverse();
        Ok(observations)
    }

    /// Whether it was recorded. What had been said before is not.
    pub async fn has_observation(&self, id: ObservationId) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM record_observations WHERE id = ?)")
            .bind(id.to_string())
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("looking for an observation"))
    }
}

fn entity(row: &SqliteRow) -> Result<Entity, StoreError> {
    let (key, session) = (row::column::<String>(row, "id")?, row::parsed_option::<SessionId>(row, "session_id")?);
    Ok(Entity {
        id: session.map_or_else(|| key.clone(), |session| session.to_string()),
        key,
        session,
        snapshot: row::from_json(row, "snapshot")?,
        observation_count: row::column(row, "observation_count")?,
    })
}

/// When one of acpd's own sessions was over, if it is: as [`record::derive::ended_at`] has it.
pub(super) const SESSION_END: &str = "CASE WHEN sessions.status IN ('archived', 'error') \
     THEN min(sessions.status_changed_at, sessions.updated_at) END";

/// A row each, with all that they can be ordered by.
fn push_entities(query: &mut QueryBuilder<Sqlite>, filter: EntityFilter) {
    if filter.source != EntitySource::Derived {
        query.push(
            "SELECT id, name AS session_id, started_at, ended_at, duration, observation_count, last_observed_at \
             FROM record_entities WHERE session_id IS NULL",
        );
        push_sight(query, "owner_uid", filter.sight);
        query.push(" UNION ALL ");
    }
    query.push(format!(
        "SELECT sessions.id, sessions.id AS session_id, sessions.created_at AS started_at, {SESSION_END} AS ended_at, \
         (coalesce({SESSION_END}, sessions.last_active_at) - sessions.created_at) / 1000.0 AS duration, \
         coalesce(submitted.observation_count, 0) AS observation_count, \
         max(sessions.last_active_at, coalesce(submitted.last_observed_at, 0)) AS last_observed_at \
         FROM sessions LEFT JOIN record_entities AS submitted ON submitted.session_id = sessions.id WHERE TRUE",
    ));
    push_sight(query, "sessions.owner_uid", filter.sight);
    if filter.source == EntitySource::Submitted {
        query.push(" AND submitted.id IS NOT NULL");
    }
    if let Some(asking) = filter.asking {
        query.push(" AND (submitted.id IS NOT NULL OR sessions.id != ").push_bind(asking.to_string()).push(")");
    }
}

/// An entity as the writer finds it.
struct Known {
    id: String,
    session: Option<String>,
    snapshot: Map<String, Value>,
    observations: i64,
}

impl Apply<'_> {
    /// Adds an observation to its entity, and makes that when it is the first. What was said before is not said again.
    pub(super) fn observe(&self, new: &NewObservation) -> Result<(), StoreError> {
        let damaged = |error| StoreError::Damaged { what: format!("an observation is not a session record: {error}") };
        let content: Map<String, Value> = serde_json::from_str(new.content.get()).map_err(damaged)?;
        let hash = record::content_hash(&content);
        let known = match self.known_entity(record::session_id(&content), new.owner)? {
            Some(known) => known,
            None => self.new_entity(record::session_id(&content), new)?,
        };
        let sql = "SELECT 1 FROM record_observations WHERE entity_id = ?1 AND content_hash = ?2";
        let is_known = self.connection.first("looking for an observation", sql, params![known.id, hash], |_| Ok(()))?;
        if is_known.is_some() {
            return Ok(());
        }
        let snapshot = record::merged(known.snapshot, &content);
        let text = to_json(&snapshot)?;
        if known.observations >= OBSERVATIONS_MAX || text.len() > new.snapshot_bytes_max {
            return Err(StoreError::Refused("more than the maximum number of observations of a session"));
        }
        let millis = |field| record::time(snapshot.get(field)).map(Timestamp::as_millis);
        self.connection.run(
            "storing a session record",
            "INSERT INTO record_entities (id, owner_uid, name, session_id, snapshot, started_at, ended_at, duration, \
             observation_count, last_observed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) \
             DO UPDATE SET snapshot = ?5, started_at = ?6, ended_at = ?7, duration = ?8, observation_count = ?9, \
             last_observed_at = ?10",
            params![
                known.id,
                new.owner,
                record::session_id(&content),
                known.session,
                text,
                millis("started_at"),
                millis("ended_at"),
                snapshot.get("duration").and_then(Value::as_f64),
                known.observations + 1,
                self.now.as_millis(),
            ],
        )?;
        self.connection.run(
            "storing an observation",
            "INSERT INTO record_observations (id, entity_id, content_hash, content, made_by, observed_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                new.id.to_string(),
                known.id,
                hash,
                new.content.get(),
                new.by.as_ref().map(to_json).transpose()?,
                self.now.as_millis(),
            ],
        )?;
        for (field, kind, moments) in [
            ("checkpoints", "checkpoint", record::checkpoints(&content)),
            ("outcomes", "outcome", record::outcomes(&content)),
        ] {
            // As in the snapshot: what is not named stays.
            if content.get(field).is_some_and(|value| !value.is_null()) {
                self.set_moments(&known.id, kind, &moments)?;
            }
        }
        Ok(())
    }

    fn known_entity(&self, name: &str, owner: Option<u32>) -> Result<Option<Known>, StoreError> {
        let found = self.connection.first(
            "finding the owner of a session record",
            "SELECT id, session_id, snapshot, observation_count FROM record_entities \
             WHERE name = ?1 AND ifnull(owner_uid, -1) = ifnull(?2, -1)",
            params![name, owner],
            |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?)),
        )?;
        let known = |(id, session, snapshot, observations): (_, _, String, _)| {
            let snapshot = serde_json::from_str(&snapshot)
                .map_err(|error| StoreError::Damaged { what: format!("the snapshot of {id}: {error}") })?;
            Ok(Known { id, session, snapshot, observations })
        };
        found.map(known).transpose()
    }

    /// What was said of a session before it came here is said of it.
    pub(super) fn adopt_entity(&self, session: SessionId, owner: Option<u32>) -> Result<(), StoreError> {
        self.connection.run(
            "finding the observations of a session",
            "UPDATE record_entities SET session_id = ?1 WHERE name = ?1 AND ifnull(owner_uid, -1) = ifnull(?2, -1)",
            params![session.to_string(), owner],
        )?;
        Ok(())
    }

    fn new_entity(&self, name: &str, new: &NewObservation) -> Result<Known, StoreError> {
        let sql = "SELECT count(*) FROM record_entities WHERE owner_uid IS ?1";
        let count = self.connection.first("counting session records", sql, [new.owner], |row| row.get::<_, i64>(0))?;
        if count.is_some_and(|count| count >= ENTITIES_MAX) {
            return Err(StoreError::Refused("more than the maximum number of sessions with records of a user"));
        }
        let session = self.connection.first(
            "finding the session of a session record",
            "SELECT id FROM sessions WHERE id = ?1 AND owner_uid IS ?2",
            params![name, new.owner],
            |row| row.get::<_, String>(0),
        )?;
        // Not the session's: what others brought along may have that for its own.
        Ok(Known { id: new.entity.to_string(), session, snapshot: Map::new(), observations: 0 })
    }

    fn set_moments(&self, entity: &str, kind: &str, moments: &[Moment]) -> Result<(), StoreError> {
        let forget = "DELETE FROM record_moments WHERE entity_id = ?1 AND kind = ?2";
        self.connection.run("replacing the timeline entries of a session record", forget, [entity, kind])?;
        for (ordinal, moment) in moments.iter().enumerate() {
            self.connection.run(
                "storing a timeline entry of a session record",
                "INSERT INTO record_moments (entity_id, kind, ordinal, reference, at, observed_at, data) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    entity,
                    kind,
                    i64::try_from(ordinal).unwrap_or(i64::MAX),
                    moment.reference,
                    moment.at.map(Timestamp::as_millis),
                    self.now.as_millis(),
                    to_json(&moment.data)?,
                ],
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::super::tests::{open, session};
    use super::super::{Catalogue, Unit};
    use super::*;

    fn said(name: &str, field: &str) -> Catalogue {
        let content = json!({"session_id": name, "actions": [{"type": "a", "result": "b"}], (field): 1});
        Catalogue::Observe(Box::new(NewObservation {
            id: ObservationId::new(),
            entity: EntityId::new(),
            owner: None,
            content: to_raw_value(&content).unwrap(),
            snapshot_bytes_max: 4096,
            by: None,
        }))
    }

    #[tokio::test]
    async fn a_whole_directory_is_one_unit_and_changes_nothing_the_second_time() {
        let directory = tempfile::tempdir().unwrap();
        let (store, writer) = open(directory.path()).await;
        let own = session(&writer).await.to_string();
        for _ in 0..2 {
            let catalogue = vec![said("s-100", "a"), said("s-100", "b"), said("s-100", "a"), said(&own, "a")];
            writer.append(Unit { catalogue, ops: vec![] }).await.unwrap();
            let entity = store.entity_named("s-100", None).await.unwrap().unwrap();
            assert_eq!((entity.observation_count, &entity.snapshot["b"]), (2, &json!(1)));
            assert_eq!(store.observations(&entity).await.unwrap().len(), 2);
            assert_eq!(store.entity_named(&own, None).await.unwrap().unwrap().id, own, "it is the session");
        }
        assert!(store.entity_named("s-100", Some(1)).await.unwrap().is_none(), "each owner's are their own");

        // One that is too much fails its unit, whole.
        let catalogue = vec![said("s-200", "a"), said("s-100", &"x".repeat(4096))];
        assert!(writer.append(Unit { catalogue, ops: vec![] }).await.is_err());
        assert!(store.entity_named("s-200", None).await.unwrap().is_none());
        writer.close().await;
    }
}
