//! The keys of requests, each committed with what its request brought about, so that it is not brought about twice.

use std::time::Duration;

use rusqlite::params;

use super::apply::Apply;
use super::{Store, StoreError, row};
use crate::model::{MessageId, SessionId, Timestamp, TurnId};

/// How long a key stands for what it brought about.
const KEY_LIFE: Duration = Duration::from_hours(24);

/// A request that is to be carried out once: whose it is, where it goes, by which key, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub uid: u32,
    pub route: &'static str,
    /// The session that is asked; none when one is to be made.
    pub scope: Option<SessionId>,
    pub key: String,
    /// Of the body as it came.
    pub body_hash: [u8; 32],
}

/// What a request brings about in its session, as far as its answer names it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    pub turn: Option<TurnId>,
    pub message: Option<MessageId>,
    pub position: usize,
}

/// What a key stands for.
#[derive(Clone, Debug)]
pub struct Remembered {
    pub session: SessionId,
    pub made: Made,
    /// How far the session's log reached before it.
    pub after: i64,
    /// Whether this is the request that it was first used for.
    pub is_same_body: bool,
}

impl Store {
    /// What was brought about by this key, unless that is too long ago.
    pub async fn remembered(&self, claim: &Claim) -> Result<Option<Remembered>, StoreError> {
        let row = sqlx::query(
            "SELECT * FROM idempotency_keys WHERE uid = ? AND route = ? AND scope = ? AND key = ? AND created_at > ?",
        )
        .bind(claim.uid)
        .bind(claim.route)
        .bind(scope_of(claim))
        .bind(&claim.key)
        .bind(oldest(Timestamp::now()))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::database("looking for an idempotency key"))?;
        let Some(row) = row else { return Ok(None) };
        let made = Made {
            turn: row::parsed_option(&row, "turn_id")?,
            message: row::parsed_option(&row, "message_id")?,
            position: usize::try_from(row::column::<i64>(&row, "position")?).unwrap_or(0),
        };
        Ok(Some(Remembered {
            session: row::parsed(&row, "session_id")?,
            made,
            after: row::column(&row, "after")?,
            is_same_body: row::column::<&[u8]>(&row, "body_hash")? == claim.body_hash,
        }))
    }
}

impl Apply<'_> {
    /// Keeps a request's key, with what it brings about and how far the session's log reached before that.
    pub(super) fn remember(&mut self, session: SessionId, claim: &Claim, made: &Made) -> Result<(), StoreError> {
        let after = self.last_event(session)?;
        self.connection.run(
            "storing an idempotency key",
            // Replaces one that is too old and not deleted yet. Whoever claims has seen to it that there is no other.
            "INSERT OR REPLACE INTO idempotency_keys (uid, route, scope, key, body_hash, session_id, turn_id, \
             message_id, position, after, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                claim.uid,
                claim.route,
                scope_of(claim),
                claim.key,
                claim.body_hash,
                session.to_string(),
                made.turn.map(|turn| turn.to_string()),
                made.message.map(|message| message.to_string()),
                i64::try_from(made.position).unwrap_or(i64::MAX),
                after,
                self.now.as_millis(),
            ],
        )?;
        Ok(())
    }

    pub(super) fn forget_old_keys(&self, now: Timestamp) -> Result<(), StoreError> {
        let sql = "DELETE FROM idempotency_keys WHERE created_at <= ?1";
        self.connection.run("deleting old idempotency keys", sql, [oldest(now)])?;
        Ok(())
    }
}

/// Keys of then and before are forgotten.
fn oldest(now: Timestamp) -> i64 {
    now.as_millis().saturating_sub(i64::try_from(KEY_LIFE.as_millis()).unwrap_or(i64::MAX))
}

fn scope_of(claim: &Claim) -> String {
    claim.scope.map(|session| session.to_string()).unwrap_or_default()
}
