//! The space that the database takes: its write-ahead log is cut back, and pages that nothing is on are given back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::connection::Connection;
use super::{Store, StoreError, health};

/// Pages that are given back in one step.
const PAGES_PER_STEP: i64 = 64;
/// Free pages are kept for what comes next, up to this many (16 MiB): a file that shrinks and grows all day wears the disk.
const FREE_PAGES_KEPT: i64 = 4096;
/// How SQLite numbers `auto_vacuum = INCREMENTAL`. Databases of before have no such mode, and keep their free pages for
/// themselves: only a VACUUM of the whole file could change that.
const INCREMENTAL: i64 = 2;

/// Pages in the write-ahead log from which on it is written back. It is SQLite's own number.
pub(super) const JOURNAL_PAGES_MAX: i64 = 1000;
/// The same in the middle of an agent's output. Its end, or whatever else is recorded, has the log written back.
pub(super) const JOURNAL_PAGES_MAX_OF_OUTPUT: i64 = 4 * JOURNAL_PAGES_MAX;

/// What came of an attempt to cut the write-ahead log back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// It is small enough.
    NotDue,
    Done,
    /// Somebody reads in it.
    Busy,
}

/// The file of the write-ahead log.
pub(super) fn journal(connection: &Connection) -> Result<PathBuf, StoreError> {
    let reading = "reading where the database is";
    let database = connection.first(reading, "PRAGMA database_list", [], |row| row.get::<_, String>("file"))?;
    Ok(PathBuf::from(format!("{}-wal", database.unwrap_or_default())))
}

/// Writes the log into the database and empties it, when its file is larger than `bytes_max`. It waits for no reader.
pub(super) fn checkpoint(
    connection: &Connection,
    journal: &Path,
    bytes_max: u64,
    busy_timeout: Duration,
) -> Result<Checkpoint, StoreError> {
    if std::fs::metadata(journal).map_or(0, |file| file.len()) <= bytes_max {
        return Ok(Checkpoint::NotDue);
    }
    connection.set_patience(Duration::ZERO)?;
    let emptying = "checkpointing the write-ahead log";
    let is_busy = connection.first(emptying, "PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>("busy"));
    // A reader that meets a commit holds the write lock for a moment.
    connection.set_patience(busy_timeout)?;
    Ok(if is_busy?.unwrap_or(true) { Checkpoint::Busy } else { Checkpoint::Done })
}

/// Writes the log into the database when it has grown to so many pages. SQLite would do so within the commit that makes
/// it so long, while everybody waits who wants to hear of that commit.
pub(super) fn write_back(connection: &Connection, pages_max: i64) -> Result<(), StoreError> {
    let writing = "checkpointing the write-ahead log";
    let pages = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>("log")?, row.get::<_, i64>("checkpointed")?));
    let looked = connection.first(writing, "PRAGMA wal_checkpoint(NOOP)", [], pages)?;
    if looked.is_some_and(|(pages, written)| pages >= pages_max && written < pages) {
        connection.first(writing, "PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    }
    Ok(())
}

/// Gives some free pages back to the disk, and tells whether there are more to give. With `all`, none are kept.
pub(super) fn give_back(connection: &Connection, all: bool) -> Result<bool, StoreError> {
    let giving = "freeing unused pages";
    let number = |pragma| Ok(connection.first(giving, pragma, [], |row| row.get::<_, i64>(0))?.unwrap_or(0));
    let kept = if all { 0 } else { FREE_PAGES_KEPT };
    let free = number("PRAGMA freelist_count")?;
    if free <= kept || number("PRAGMA auto_vacuum")? != INCREMENTAL {
        return Ok(false);
    }
    let pages = PAGES_PER_STEP.min(free - kept);
    // Each page that is given back is a row of the answer.
    connection.all(giving, &format!("PRAGMA incremental_vacuum({pages})"), [], |_| Ok(()))?;
    Ok(free - pages > kept)
}

impl Store {
    /// How many bytes the database and its write-ahead log take on the disk.
    pub fn bytes_on_disk(&self) -> u64 {
        let database = &self.guard.database;
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        bytes(database) + bytes(&health::write_ahead_log(database))
    }
}
