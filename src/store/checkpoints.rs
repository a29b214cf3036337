//! Checkpoints of sessions.

use futures_util::TryStreamExt;
use rusqlite::params;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::{Apply, to_json};
use super::owners::push_session_sight;
use super::read::MESSAGES_BYTES_MAX;
use super::{NewCheckpoint, Store, StoreError, row};
use crate::model::checkpoint::{CHECKPOINTS_MAX, Checkpoint, Origin};
use crate::model::{EventBody, SessionId, Sight, TurnId, WorkspaceId};

/// Which checkpoints a list shows.
#[derive(Clone, Debug, Default)]
pub struct CheckpointFilter {
    pub sight: Sight,
    pub session: Option<SessionId>,
    pub workspace: Option<WorkspaceId>,
    pub name: Option<String>,
}

impl Store {
    /// By its name in the session, or by its id.
    pub async fn checkpoint(&self, session: SessionId, name: &str) -> Result<Option<Checkpoint>, StoreError> {
        let row = sqlx::query(
            "SELECT * FROM checkpoints WHERE session_id = ?1 AND (name = ?2 OR id = ?2) ORDER BY name = ?2 DESC LIMIT 1",
        )
        .bind(session.to_string())
        .bind(name)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::database("reading a checkpoint"))?;
        row.as_ref().map(checkpoint).transpose()
    }

    pub async fn count_checkpoints(&self, session: SessionId) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM checkpoints WHERE session_id = ?")
            .bind(session.to_string())
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting checkpoints"))
    }

    /// Newest first, with how many there are in all; fewer than `limit` when they are large, but never none when there are
    /// any.
    pub async fn checkpoints(
        &self,
        filter: &CheckpointFilter,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<Checkpoint>, i64), StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM checkpoints");
        push_filter(&mut count, filter);
        let total: i64 = count
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting checkpoints"))?;
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM checkpoints");
        push_filter(&mut query, filter);
        query.push(" ORDER BY created_at DESC, row DESC LIMIT +").push_bind(limit).push(" OFFSET +").push_bind(offset);
        let mut rows = query.build().fetch(&self.pool);
        let mut checkpoints = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGES_BYTES_MAX
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("listing checkpoints"))?
        {
            let checkpoint = checkpoint(&row)?;
            bytes += checkpoint.state.get().len();
            checkpoints.push(checkpoint);
        }
        drop(rows);
        Ok((checkpoints, total))
    }
}

fn push_filter(query: &mut QueryBuilder<Sqlite>, filter: &CheckpointFilter) {
    query.push(" WHERE TRUE");
    push_session_sight(query, "session_id", filter.sight);
    if let Some(session) = filter.session {
        query.push(" AND session_id = ").push_bind(session.to_string());
    }
    if let Some(workspace) = filter.workspace {
        query.push(" AND session_id IN (SELECT id FROM sessions WHERE workspace_id = ");
        query.push_bind(workspace.to_string()).push(")");
    }
    if let Some(name) = &filter.name {
        query.push(" AND name = ").push_bind(name.clone());
    }
}

pub(super) fn checkpoint(row: &SqliteRow) -> Result<Checkpoint, StoreError> {
    Ok(Checkpoint {
        id: row::parsed(row, "id")?,
        session_id: row::parsed(row, "session_id")?,
        name: row::column(row, "name")?,
        state: row::raw(row, "state")?,
        turn_id: row::parsed_option(row, "turn_id")?,
        sequence: row::column(row, "sequence")?,
        created_at: row::time(row, "created_at")?,
        by: row::json_option(row, "made_by")?,
    })
}

impl Apply<'_> {
    /// Decided here, after everything that was appended before: whether the session can have it, and in which turn it is.
    pub(super) fn add_checkpoint(&mut self, session: SessionId, new: &NewCheckpoint) -> Result<(), StoreError> {
        let id = session.to_string();
        let turn = self.connection.first(
            "finding the turn of a checkpoint",
            "SELECT id FROM turns WHERE session_id = ?1 AND status = 'running'",
            [&id],
            |row| row.get::<_, String>(0),
        )?;
        let sequence = self.last_event(session)? + 1;
        let added = self.connection.run(
            "adding a checkpoint",
            "INSERT INTO checkpoints (id, session_id, name, state, turn_id, sequence, made_by, created_at) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 \
             WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?2 AND status IN ('active', 'suspended')) \
             AND (SELECT count(*) FROM checkpoints WHERE session_id = ?2) < ?9",
            params![
                new.id.to_string(),
                id,
                new.name,
                new.state.get(),
                turn,
                sequence,
                new.by.as_ref().map(to_json).transpose()?,
                self.now.as_millis(),
                CHECKPOINTS_MAX,
            ],
        )?;
        if added != 1 {
            return Err(StoreError::Refused(
                "a checkpoint of a session that cannot continue or has the maximum number of checkpoints",
            ));
        }
        let turn: Option<TurnId> = turn.and_then(|turn| turn.parse().ok());
        let body = EventBody::CheckpointCreated {
            checkpoint_id: new.id,
            name: new.name.clone(),
            bytes: new.state.get().len(),
            by: new.by.clone(),
        };
        self.event(session, turn, &body)
    }

    pub(super) fn set_origin(&self, session: SessionId, origin: &Origin) -> Result<(), StoreError> {
        self.connection.run(
            "storing the origin of a session",
            "UPDATE sessions SET restored_from = ?2 WHERE id = ?1",
            params![session.to_string(), to_json(origin)?],
        )?;
        Ok(())
    }
}
