//! The space that the database takes: its write-ahead log is cut back, and pages that nothing is on are given back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{Executor, Row, SqliteConnection};

use super::{Store, StoreError, row};

/// Pages that are given back in one step.
const PAGES_PER_STEP: i64 = 64;
/// Free pages are kept for what comes next, up to this many (16 MiB): a file that shrinks and grows all day wears the disk.
const FREE_PAGES_KEPT: i64 = 4096;
/// How SQLite numbers `auto_vacuum = INCREMENTAL`. Databases of before have no such mode, and keep their free pages for
/// themselves: only a VACUUM of the whole file could change that.
const INCREMENTAL: i64 = 2;

/// What came of an attempt to cut the write-ahead log back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// It is small enough.
    NotDue,
    Done,
    /// Somebody reads in it.
    Busy,
}

/// The database's file, and that of its write-ahead log.
pub(super) async fn files(connection: &mut SqliteConnection) -> Result<(PathBuf, PathBuf), StoreError> {
    let database: String = sqlx::query("PRAGMA database_list")
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get("file"))
        .map_err(StoreError::database("reading where the database is"))?;
    let journal = PathBuf::from(format!("{database}-wal"));
    Ok((PathBuf::from(database), journal))
}

/// Writes the log into the database and empties it, when its file is larger than `bytes_max`. It waits for no reader.
pub(super) async fn checkpoint(
    connection: &mut SqliteConnection,
    journal: &Path,
    bytes_max: u64,
    busy_timeout: Duration,
) -> Result<Checkpoint, StoreError> {
    if std::fs::metadata(journal).map_or(0, |file| file.len()) <= bytes_max {
        return Ok(Checkpoint::NotDue);
    }
    let emptying = "to write its log back";
    connection.execute("PRAGMA busy_timeout = 0").await.map_err(StoreError::database(emptying))?;
    let outcome = connection.fetch_one("PRAGMA wal_checkpoint(TRUNCATE)").await;
    // Whoever has the database locked is waited for again.
    let patience = format!("PRAGMA busy_timeout = {}", busy_timeout.as_millis());
    connection.execute(sqlx::AssertSqlSafe(patience)).await.map_err(StoreError::database(emptying))?;
    let is_busy: bool = row::column(&outcome.map_err(StoreError::database(emptying))?, "busy")?;
    Ok(if is_busy { Checkpoint::Busy } else { Checkpoint::Done })
}

/// Gives some free pages back to the disk, and tells whether there are more to give. With `all`, none are kept.
pub(super) async fn give_back(connection: &mut SqliteConnection, all: bool) -> Result<bool, StoreError> {
    let giving = "to give free pages back";
    let number = async |connection: &mut SqliteConnection, pragma: &'static str| -> Result<i64, StoreError> {
        sqlx::query_scalar(pragma).fetch_one(connection).await.map_err(StoreError::database(giving))
    };
    let kept = if all { 0 } else { FREE_PAGES_KEPT };
    let free = number(connection, "PRAGMA freelist_count").await?;
    if free <= kept || number(connection, "PRAGMA auto_vacuum").await? != INCREMENTAL {
        return Ok(false);
    }
    let pages = PAGES_PER_STEP.min(free - kept);
    let statement = format!("PRAGMA incremental_vacuum({pages})");
    connection.execute(sqlx::AssertSqlSafe(statement)).await.map_err(StoreError::database(giving))?;
    Ok(free - pages > kept)
}

impl Store {
    /// How many bytes the database and its write-ahead log take on the disk.
    pub async fn bytes_on_disk(&self) -> Result<u64, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(StoreError::database("reading how large it is"))?;
        let (database, journal) = files(&mut connection).await?;
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        Ok(bytes(&database) + bytes(&journal))
    }
}
