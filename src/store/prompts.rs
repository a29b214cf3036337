//! What prompts need of the record: media that is kept once by its hash, messages that wait for the next prompt, and what
//! an agent takes in one.
//!
//! A blob lives as long as a message refers to it: it is written in the unit of the first one, and deleted in the
//! transaction that deletes the last.

use std::collections::HashMap;

use sqlx::SqliteConnection;

use super::{NewMessage, Op, Store, StoreError, row};
use crate::model::message::Message;
use crate::model::{BlobHash, Content, MessageId, SessionId, Timestamp};

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
    pub async fn blob(&self, hash: BlobHash) -> Result<Option<StoredBlob>, StoreError> {
        let row = sqlx::query(
            "SELECT data, (SELECT mime_type FROM message_blobs WHERE message_blobs.sha256 = blobs.sha256 \
             ORDER BY row DESC LIMIT 1) AS mime_type FROM blobs WHERE sha256 = ?",
        )
        .bind(hash.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::database("reading a blob"))?;
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
                let blob = self.blob(*hash).await?;
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
            other => Err(StoreError::Damaged { what: format!("a system message that is no text: {other:?}") }),
        };
        rows.iter().map(waiting).collect()
    }
}

/// What is kept for a session's prompts beside its messages.
pub(super) async fn apply(connection: &mut SqliteConnection, session: SessionId, op: &Op) -> Result<(), StoreError> {
    let query = match op {
        Op::SetPromptAbilities(abilities) => {
            sqlx::query("UPDATE sessions SET prompt_abilities = ? WHERE id = ?").bind(super::apply::to_json(abilities)?)
        }
        Op::KeepForPrompt(message) => {
            sqlx::query("INSERT INTO waiting_messages (message_id, session_id) VALUES (?, ?)").bind(message.to_string())
        }
        Op::ForgetWaiting(messages) => sqlx::query(
            "DELETE FROM waiting_messages WHERE message_id IN (SELECT value FROM json_each(?)) AND session_id = ?",
        )
        .bind(super::apply::to_json(messages)?),
        _ => return Err(StoreError::Refused("an operation that is no prompt's")),
    };
    query
        .bind(session.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("to keep what belongs to a prompt"))?;
    Ok(())
}

/// Writes the media of a message, unless it is there already, and that the message refers to it.
pub(super) async fn keep_blobs(
    connection: &mut SqliteConnection,
    session: SessionId,
    message: &NewMessage,
) -> Result<(), StoreError> {
    for blob in &message.blobs {
        let hash = blob.hash.to_string();
        // Asked first: to bind the data is to copy it.
        let known = sqlx::query("SELECT 1 FROM blobs WHERE sha256 = ?")
            .bind(&hash)
            .fetch_optional(&mut *connection)
            .await
            .map_err(StoreError::database("to look for a blob"))?;
        if known.is_none() {
            sqlx::query("INSERT INTO blobs (sha256, size, data, created_at) VALUES (?, ?, ?, ?)")
                .bind(&hash)
                .bind(i64::try_from(blob.data.len()).unwrap_or(i64::MAX))
                .bind(&blob.data[..])
                .bind(Timestamp::now().as_millis())
                .execute(&mut *connection)
                .await
                .map_err(StoreError::database("to keep a blob"))?;
        }
        sqlx::query(
            "INSERT INTO message_blobs (message_id, session_id, sha256, mime_type) VALUES (?, ?, ?, ?) \
             ON CONFLICT (message_id, sha256) DO NOTHING",
        )
        .bind(message.id.to_string())
        .bind(session.to_string())
        .bind(&hash)
        .bind(&blob.mime_type)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::database("to note who refers to a blob"))?;
    }
    Ok(())
}

/// Deletes what only this session refers to, which is about to be deleted itself.
pub(super) async fn release_blobs(connection: &mut SqliteConnection, session: SessionId) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM blobs WHERE sha256 IN (SELECT sha256 FROM message_blobs WHERE session_id = ?1) AND NOT EXISTS \
         (SELECT 1 FROM message_blobs AS other WHERE other.sha256 = blobs.sha256 AND other.session_id <> ?1)",
    )
    .bind(session.to_string())
    .execute(connection)
    .await
    .map_err(StoreError::database("to delete blobs that nobody refers to"))?;
    Ok(())
}
