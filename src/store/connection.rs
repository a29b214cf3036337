//! A connection that writes: SQLite in the writer's own thread, with every statement prepared once.
//!
//! Readers go through sqlx, which has a thread for each connection, so that they can wait without one of the runtime's. The
//! writer is a thread already, and a way to another one and back would cost more than the statements do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{OpenFlags, Params, Row, Statement};

use super::StoreError;
use crate::config;

/// Statements that stay prepared: more than there are that write.
const STATEMENTS_KEPT: usize = 128;

/// Steps of a statement that count as one. It is a moment's work.
const STEPS_COUNTED: i32 = 10_000;

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The disk (`synchronous=FULL`).
    Full,
    /// The system: what is committed survives the daemon but perhaps not a power cut (`NORMAL`).
    Normal,
}

#[derive(Debug)]
pub struct Connection {
    sqlite: rusqlite::Connection,
}

impl Connection {
    pub fn open(path: &Path, settings: &config::Store, durability: Durability) -> Result<Self, rusqlite::Error> {
        let sqlite = rusqlite::Connection::open_with_flags_and_vfs(path, OpenFlags::default(), super::VFS)?;
        sqlite.busy_timeout(settings.busy_timeout)?;
        sqlite.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        for (name, value) in [("foreign_keys", "ON"), ("synchronous", synchronous), ("cache_size", super::CACHE_KIB)] {
            sqlite.pragma_update(None, name, value)?;
        }
        // The writer does it, when it has told of the commit.
        sqlite.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        sqlite.pragma_update(None, "journal_size_limit", settings.journal_max.0.to_string())?;
        Ok(Self { sqlite })
    }

    /// Counts what SQLite does there, for whoever wants to see that it does something. Waiting for a lock is nothing.
    pub(super) fn count_work(&self, work: &Arc<AtomicU64>) -> Result<(), rusqlite::Error> {
        let work = Arc::clone(work);
        let count = move || {
            work.fetch_add(1, Ordering::Relaxed);
            // It is not to be interrupted.
            false
        };
        self.sqlite.progress_handler(STEPS_COUNTED, Some(count))
    }

    /// Runs a statement, and tells how many rows it changed.
    pub fn run(&self, operation: &'static str, sql: &str, values: impl Params) -> Result<usize, StoreError> {
        self.with(operation, sql, |statement| statement.execute(values))
    }

    /// What a statement gives first, if it gives anything.
    pub fn first<T>(
        &self,
        operation: &'static str,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.with(operation, sql, |statement| statement.query(values)?.next()?.map(read).transpose())
    }

    pub fn all<T>(
        &self,
        operation: &'static str,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.with(operation, sql, |statement| statement.query_map(values, read)?.collect())
    }

    pub fn begin(&self) -> Result<(), StoreError> {
        self.run("beginning a transaction", "BEGIN IMMEDIATE", []).map(drop)
    }

    pub fn commit(&self) -> Result<(), StoreError> {
        self.run("committing a transaction", "COMMIT", []).map(drop)
    }

    /// Takes back what was begun. When a commit fails for want of space, SQLite has done so by itself.
    pub fn roll_back(&self) {
        if !self.sqlite.is_autocommit()
            && let Err(error) = self.run("rolling back a transaction", "ROLLBACK", [])
        {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot roll back a transaction");
        }
    }

    /// How long it waits for whoever has the database locked.
    pub fn set_patience(&self, patience: Duration) -> Result<(), StoreError> {
        self.sqlite.busy_timeout(patience).map_err(StoreError::database("setting the lock timeout"))
    }

    pub fn close(self) {
        if let Err((_, error)) = self.sqlite.close() {
            tracing::error!(%error, "cannot close the database");
        }
    }

    fn with<T>(
        &self,
        operation: &'static str,
        sql: &str,
        work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut statement = self.sqlite.prepare_cached(sql).map_err(StoreError::database(operation))?;
        work(&mut statement).map_err(StoreError::database(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_statement_is_seen_to_work() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acpd.db");
        let connection = Connection::open(&path, &config::Config::default().store, Durability::Normal).unwrap();
        let work = Arc::new(AtomicU64::new(0));
        connection.count_work(&work).unwrap();
        let count =
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT count(*) FROM n";
        let counted = connection.first("to count", count, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(counted, Some(100_000), "it is not interrupted");
        assert!(work.load(Ordering::Relaxed) > 10, "{work:?}");
    }
}
