//! What prompts need of the record: media that is kept once by its hash, messages that wait for the next prompt, and what
//! an agent takes in one.
//!
//! A blob lives as long as a message refers to it: it is written in the unit of the first one, and deleted in the
//! transaction that deletes the last.

use std::collections::HashMap;

use rusqlite::params;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::{Apply, to_json};
use super::owners::push_session_sight;
use super::{Op, Store, StoreError, row};
use crate::model::message::Message;
use crate::model::{Blob, BlobHash, Content, MessageId, SessionId, Sight};

/// A blob as it is handed out.
#[derive(Debug)]
pub struct StoredBlob {
    /// What the newest message that refers to it calls it.
    pub mime_type: String,
    pub data: Vec<u8>,
}

/// A message that the agent gets before the next prompt.
#[derive(Clone, Debug)]
pub struct WaitingMessage {
    pub id: MessageId,
    pub text: String,
}

impl Store {
    /// A blob that a message of a session in sight refers to.
    pub async fn blob(&self, hash: BlobHash, sight: Sight) -> Result<Option<StoredBlob>, StoreError> {
        // CROSS JOIN keeps the order: whoever refers to the blob is looked up first, the newest first.
        let mut query = QueryBuilder::<Sqlite>::new(
            "SELECT data, mime_type FROM message_blobs CROSS JOIN blobs ON blobs.sha256 = message_blobs.sha256 \
             WHERE message_blobs.sha256 = ",
        );
        query.push_bind(hash.to_string());
        push_session_sight(&mut query, "message_blobs.session_id", sight);
        query.push(" ORDER BY message_blobs.row DESC LIMIT 1");
        let row = query.build().fetch_optional(&self.pool).await.map_err(StoreError::database("reading a blob"))?;
        let blob = |row| {
            Ok(StoredBlob {
                mime_type: row::column::<Option<String>>(row, "mime_type")?.unwrap_or_default(),
                data: row::column(row, "data")?,
            })
        };
        row.as_ref().map(blob).transpose()
    }

    /// The data of a prompt's blocks. What is not there is damage, because its message is.
    pub async fn blobs(&self, hashes: &[BlobHash]) -> Result<HashMap<BlobHash, Vec<u8>>, StoreError> {
        let mut blobs = HashMap::new();
        for hash in hashes {
            if !blobs.contains_key(hash) {
                let blob = self.blob(*hash, Sight::All).await?;
                let blob = blob.ok_or_else(|| StoreError::Damaged { what: format!("the blob {hash} is missing") })?;
                blobs.insert(*hash, blob.data);
            }
        }
        Ok(blobs)
    }

    pub async fn message(&self, session: SessionId, message: MessageId) -> Result<Option<Message>, StoreError> {
        let row = sqlx::query("SELECT * FROM messages WHERE session_id = ? AND id = ?")
            .bind(session.to_string())
            .bind(message.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a message"))?;
        row.as_ref().map(row::message).transpose()
    }

    /// What waits for the session's next prompt, in order.
    pub async fn waiting_messages(&self, session: SessionId) -> Result<Vec<WaitingMessage>, StoreError> {
        let rows = sqlx::query(
            "SELECT messages.id, messages.content FROM waiting_messages \
             JOIN messages ON messages.id = waiting_messages.message_id \
             WHERE waiting_messages.session_id = ? ORDER BY messages.sequence",
        )
        .bind(session.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading what waits for a prompt"))?;
        let waiting = |row| match row::from_json(row, "content")? {
            Content::Text { text, .. } => Ok(WaitingMessage { id: row::parsed(row, "id")?, text }),
            other => Err(StoreError::Damaged { what: format!("a system message is not text: {other:?}") }),
        };
        rows.iter().map(waiting).collect()
    }
}

impl Apply<'_> {
    /// What is kept for a session's prompts beside its messages.
    pub(super) fn prompt(&self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        let (sql, value) = match op {
            Op::SetPromptAbilities(abilities) => {
                ("UPDATE sessions SET prompt_abilities = ?2 WHERE id = ?1", to_json(abilities)?)
            }
            Op::KeepForPrompt(message) => {
                ("INSERT INTO waiting_messages (session_id, message_id) VALUES (?1, ?2)", message.to_string())
            }
            Op::ForgetWaiting(messages) => (
                "DELETE FROM waiting_messages WHERE session_id = ?1 AND message_id IN (SELECT value FROM json_each(?2))",
                to_json(messages)?,
            ),
            _ => return Err(StoreError::Refused("an operation that does not concern a prompt")),
        };
        self.connection.run("storing a prompt's context", sql, [session.to_string(), value])?;
        Ok(())
    }

    /// Writes the media of a message, unless it is there already, and that the message refers to it.
    pub(super) fn keep_blobs(&self, session: SessionId, message: MessageId, blobs: &[Blob]) -> Result<(), StoreError> {
        for blob in blobs {
            let hash = blob.hash.to_string();
            self.connection.run(
                "storing a blob",
                "INSERT INTO blobs (sha256, size, data, created_at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (sha256) DO NOTHING",
                params![hash, i64::try_from(blob.data.len()).unwrap_or(i64::MAX), &blob.data[..], self.now.as_millis()],
            )?;
            self.connection.run(
                "storing a blob's reference",
                "INSERT INTO message_blobs (message_id, session_id, sha256, mime_type) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (message_id, sha256) DO NOTHING",
                params![message.to_string(), session.to_string(), hash, blob.mime_type],
            )?;
        }
        Ok(())
    }

    /// Deletes what only this session refers to, which is about to be deleted itself.
    pub(super) fn release_blobs(&self, session: SessionId) -> Result<(), StoreError> {
        self.connection.run(
            "deleting unreferenced blobs",
            "DELETE FROM blobs WHERE sha256 IN (SELECT sha256 FROM message_blobs WHERE session_id = ?1) AND NOT EXISTS \
             (SELECT 1 FROM message_blobs AS other WHERE other.sha256 = blobs.sha256 AND other.session_id <> ?1)",
            [session.to_string()],
        )?;
        Ok(())
    }
}
