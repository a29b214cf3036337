//! How much there is, for whoever looks after the daemon.

use super::{Store, StoreError, health};

/// What is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub turns_queued: i64,
    pub turns_running: i64,
    pub permissions_open: i64,
}

impl Store {
    /// Each count is that of an index which has nothing but what is open.
    pub async fn tally(&self) -> Result<Tally, StoreError> {
        let (turns_queued, turns_running, permissions_open) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM turns WHERE status = 'queued'), \
             (SELECT count(*) FROM turns WHERE status = 'running'), \
             (SELECT count(*) FROM permissions WHERE status = 'open')",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::database("counting what is open"))?;
        Ok(Tally { turns_queued, turns_running, permissions_open })
    }

    /// The bytes of the database's file and of its write-ahead log.
    pub fn sizes(&self) -> (u64, u64) {
        let database = &self.guard.database;
        let size = |path: &std::path::Path| path.metadata().map_or(0, |metadata| metadata.len());
        (size(database), size(&health::write_ahead_log(database)))
    }
}
