//! A session as it is at one moment, read page by page for as long as its reader takes.
//!
//! No transaction is held meanwhile: it would keep a connection from others, and the log of the database from being
//! emptied. What is recorded only grows, so a moment is how far it reached then: messages are never changed, and neither
//! are turns that are over. Only the session itself and the turns that were not over are remembered as they were.

use serde_json::value::RawValue;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::checkpoints::checkpoint;
use super::prompts::StoredBlob;
use super::read::{SESSION_COLUMNS, bounded_messages};
use super::{Store, StoreError, row};
use crate::model::message::Message;
use crate::model::session::Session;
use crate::model::turn::Turn;
use crate::model::{BlobHash, Checkpoint, SessionId, TurnId};

/// What is in memory of a session at once.
const PAGE_ROWS: i64 = 100;
const PAGE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct Snapshot {
    store: Store,
    session: Session,
    /// The sequence of the last message.
    messages_end: i64,
    /// The row of the last turn.
    turns_end: i64,
    /// The rows of the last checkpoint and of the last observation.
    checkpoints_end: i64,
    observations_end: i64,
    /// Those that were not over, as they were. There are no more than the queue takes.
    open: Vec<Turn>,
}

/// A place among a session's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCursor(i64);

impl Store {
    /// The session as it is now; nothing, when there is none.
    pub async fn snapshot(&self, id: SessionId) -> Result<Option<Snapshot>, StoreError> {
        // All of it in one transaction, so that there is no message without its turn.
        let mut moment = self.pool.begin().await.map_err(StoreError::database("starting a read transaction"))?;
        let reading = || StoreError::database("reading a session at one moment");
        let mut query = QueryBuilder::<Sqlite>::new(SESSION_COLUMNS);
        query.push(" WHERE sessions.id = ").push_bind(id.to_string());
        let session = query.build().fetch_optional(&mut *moment).await.map_err(reading())?;
        let Some(session) = session.as_ref().map(row::session).transpose()? else { return Ok(None) };
        let (messages_end, turns_end, checkpoints_end, observations_end) = sqlx::query_as(
            "SELECT (SELECT coalesce(max(sequence), 0) FROM messages WHERE session_id = ?1), \
             (SELECT coalesce(max(row), 0) FROM turns WHERE session_id = ?1), \
             (SELECT coalesce(max(row), 0) FROM checkpoints WHERE session_id = ?1), \
             (SELECT coalesce(max(record_observations.row), 0) FROM record_entities JOIN record_observations \
             ON record_observations.entity_id = record_entities.id WHERE record_entities.session_id = ?1)",
        )
        .bind(id.to_string())
        .fetch_one(&mut *moment)
        .await
        .map_err(reading())?;
        let open = sqlx::query("SELECT * FROM turns WHERE session_id = ? AND status IN ('queued', 'running')")
            .bind(id.to_string())
            .fetch_all(&mut *moment)
            .await
            .map_err(reading())?;
        let open = open.iter().map(row::turn).collect::<Result<_, _>>()?;
        let store = self.clone();
        Ok(Some(Snapshot { store, session, messages_end, turns_end, checkpoints_end, observations_end, open }))
    }
}

impl Snapshot {
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// A page of turns, in the order in which they were accepted, and where the next one begins. An empty one is the end.
    pub async fn turns(&self, after: TurnCursor) -> Result<(Vec<Turn>, TurnCursor), StoreError> {
        let rows =
            sqlx::query("SELECT * FROM turns WHERE session_id = ? AND row > ? AND row <= ? ORDER BY row LIMIT +?")
                .bind(self.session.id.to_string())
                .bind(after.0)
                .bind(self.turns_end)
                .bind(PAGE_ROWS)
                .fetch_all(&self.store.pool)
                .await
                .map_err(StoreError::database("reading turns"))?;
        let Some(last) = rows.last() else {
            // The last row is there for as long as the session is.
            return if after.0 == self.turns_end { Ok((Vec::new(), after)) } else { Err(self.gone("turns")) };
        };
        let next = TurnCursor(row::column(last, "row")?);
        Ok((rows.iter().map(|row| self.as_it_was(row)).collect::<Result<_, _>>()?, next))
    }

    pub async fn turn(&self, id: TurnId) -> Result<Turn, StoreError> {
        let row = sqlx::query("SELECT * FROM turns WHERE session_id = ? AND id = ?")
            .bind(self.session.id.to_string())
            .bind(id.to_string())
            .fetch_optional(&self.store.pool)
            .await
            .map_err(StoreError::database("reading a turn"))?;
        self.as_it_was(&row.ok_or_else(|| self.gone("a turn"))?)
    }

    fn as_it_was(&self, row: &SqliteRow) -> Result<Turn, StoreError> {
        let turn = row::turn(row)?;
        let before = self.open.iter().find(|open| open.id == turn.id);
        Ok(before.cloned().unwrap_or(turn))
    }

    /// A page of messages after this one. An empty one is the end.
    pub async fn messages(&self, after: i64) -> Result<Vec<Message>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM messages WHERE session_id = ? AND sequence > ? AND sequence <= ? ORDER BY sequence LIMIT +?",
        )
        .bind(self.session.id.to_string())
        .bind(after)
        .bind(self.messages_end)
        .bind(PAGE_ROWS)
        .fetch(&self.store.pool);
        let messages = bounded_messages(rows, PAGE_BYTES).await?;
        if messages.is_empty() && after < self.messages_end { Err(self.gone("messages")) } else { Ok(messages) }
    }

    /// One message again.
    pub async fn message(&self, sequence: i64) -> Result<Message, StoreError> {
        let row = sqlx::query("SELECT * FROM messages WHERE session_id = ? AND sequence = ?")
            .bind(self.session.id.to_string())
            .bind(sequence)
            .fetch_optional(&self.store.pool)
            .await
            .map_err(StoreError::database("reading a message"))?;
        row::message(&row.ok_or_else(|| self.gone("a message"))?)
    }

    /// The next of the blobs that its messages name, by hash. It is called what the first of them calls it.
    pub async fn blob(&self, after: Option<BlobHash>) -> Result<Option<(BlobHash, StoredBlob)>, StoreError> {
        // The data is looked for when it is known whose.
        let row = sqlx::query(
            "SELECT named.sha256, named.mime_type, blobs.data FROM (SELECT message_blobs.sha256, \
             message_blobs.mime_type, min(messages.sequence) FROM message_blobs \
             JOIN messages ON messages.id = message_blobs.message_id \
             WHERE message_blobs.session_id = ? AND messages.sequence <= ? AND message_blobs.sha256 > ? \
             GROUP BY message_blobs.sha256 ORDER BY message_blobs.sha256 LIMIT 1) AS named \
             LEFT JOIN blobs ON blobs.sha256 = named.sha256",
        )
        .bind(self.session.id.to_string())
        .bind(self.messages_end)
        .bind(after.map(|hash| hash.to_string()).unwrap_or_default())
        .fetch_optional(&self.store.pool)
        .await
        .map_err(StoreError::database("reading a blob"))?;
        let Some(row) = row else { return Ok(None) };
        let data: Option<Vec<u8>> = row::column(&row, "data")?;
        let blob =
            StoredBlob { mime_type: row::column(&row, "mime_type")?, data: data.ok_or_else(|| self.gone("a blob"))? };
        Ok(Some((row::parsed(&row, "sha256")?, blob)))
    }

    /// The next of its checkpoints, in the order in which they were made, and its place among them.
    pub async fn checkpoint(&self, after: i64) -> Result<Option<(i64, Checkpoint)>, StoreError> {
        let sql = "SELECT * FROM checkpoints WHERE session_id = ? AND row > ? AND row <= ? ORDER BY row LIMIT 1";
        let row = self.next(sql, after, self.checkpoints_end, "checkpoints").await?;
        row.map(|row| Ok((row::column(&row, "row")?, checkpoint(&row)?))).transpose()
    }

    /// The next of what tools said of it, and its place.
    pub async fn observation(&self, after: i64) -> Result<Option<(i64, Box<RawValue>)>, StoreError> {
        let sql = "SELECT row, content FROM record_observations \
                   WHERE entity_id = (SELECT id FROM record_entities WHERE session_id = ?) AND row > ? AND row <= ? \
                   ORDER BY row LIMIT 1";
        let row = self.next(sql, after, self.observations_end, "observations").await?;
        row.map(|row| Ok((row::column(&row, "row")?, row::raw(&row, "content")?))).transpose()
    }

    async fn next(
        &self,
        sql: &'static str,
        after: i64,
        end: i64,
        what: &'static str,
    ) -> Result<Option<SqliteRow>, StoreError> {
        let row = sqlx::query(sql).bind(self.session.id.to_string()).bind(after).bind(end);
        let row = row.fetch_optional(&self.store.pool).await.map_err(StoreError::database("exporting a session"))?;
        if row.is_none() && after < end { Err(self.gone(what)) } else { Ok(row) }
    }

    /// A session is deleted as a whole, also while it is read.
    fn gone(&self, what: &str) -> StoreError {
        StoreError::Damaged {
            what: format!(
                "{what} of the session {} cannot be read: the session was deleted during the export",
                self.session.id
            ),
        }
    }
}
