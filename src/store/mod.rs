//! SQLite: all SQL lives here.
//!
//! One writer thread owns the only connections that write; everybody else reads through a small pool that never waits for
//! it (WAL). What is appended comes in units: a unit is committed whole or not at all, and acknowledged after the commit.
//!
//! Invariants:
//! 1. Sequences are given by the writer, per session, from 1, without gaps.
//! 2. A message and its `message.created` event, a turn's change and its `turn.*` event are one unit: there is never
//!    one without the other.
//! 3. Nobody is told of a commit (acknowledgement or head) before it has happened.

mod actions;
mod apply;
mod backup;
mod catalogue;
mod checkpoints;
mod choices;
mod compaction;
mod confinement;
mod connection;
mod context;
mod count;
mod export;
mod fault;
mod files;
mod foreign;
mod health;
mod idempotency;
mod import;
mod maintenance;
mod migrate;
mod owners;
mod peek;
mod permissions;
mod profiles;
mod prompts;
mod read;
mod records;
mod reserve;
mod retention;
mod row;
mod search;
mod search_query;
mod search_turns;
mod sessions;
mod tally;
mod timeline;
#[cfg(test)]
mod tests;
mod turns;
mod unit;
mod usage;
mod vacuum;
mod workspaces;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use self::connection::{Connection, Durability};
use crate::config;
use crate::metrics::Metrics;

pub use backup::{BackedUp, BackupError};
pub use checkpoints::CheckpointFilter;
pub use export::{Snapshot, TurnCursor};
pub use fault::{Fault, SqlError};
pub use foreign::{Cell, ForeignDatabase, ForeignError, ForeignTable};
pub use health::{Check, DAMAGED_HINT, StoreHealth};
pub use idempotency::{Claim, Made, Remembered};
pub use maintenance::{Goal, Upkeep};
pub use migrate::{Direction, Versions, migrate, versions};
pub use peek::{Peek, begins_like_one, peek};
pub use permissions::{PermissionFilter, Resolved};
pub use profiles::Registered;
pub use prompts::WaitingMessage;
pub use read::{EventScope, OpenTurn, SessionFilter, StoredEvent};
pub use records::{EntityFilter, EntityOrder, EntitySource, NewObservation, Observation};
pub use reserve::preflight;
pub use retention::Candidate;
pub use search::{Hit, SearchError, SearchFilter};
pub use search_query::{SearchQuery, SearchQueryError};
pub use search_turns::SEARCHES_PER_USER_MAX;
use search_turns::SearchTurns;
pub use timeline::{TimelineFilter, TimelineItem};
pub use unit::{
    Catalogue, ChoicesChange, Committed, Imported, NewCheckpoint, NewMessage, NewSession, Op, SessionChange, Unit,
    UsageChange,
};
pub use writer::{Appended, Audience, Connections, Head, Writer};

/// Where the store is and how it is bounded.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub database: PathBuf,
    pub backups: PathBuf,
    pub settings: config::Store,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot prepare {path:?}")]
    Files {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot open the database {path:?}")]
    Open {
        path: PathBuf,
        #[source]
        source: SqlError,
    },
    #[error("the database {path:?} has schema version {found}, but this acpd supports only versions up to {known}")]
    NewerSchema { path: PathBuf, found: i64, known: i64 },
    #[error("cannot migrate the database {path:?}")]
    Migrate {
        path: PathBuf,
        #[source]
        source: sqlx::migrate::MigrateError,
    },
    #[error("cannot copy the database before its migration")]
    Copy(#[source] Box<BackupError>),
    #[error(
        "the migration of the database needs {wanted} bytes in {directory:?} (with a copy made first), but only \
            {free} are free"
    )]
    NoRoomToMigrate { directory: PathBuf, free: u64, wanted: u64 },
    #[error("database error while {operation}")]
    Database {
        operation: &'static str,
        #[source]
        source: SqlError,
    },
    #[error("damaged data in the database: {what}")]
    Damaged { what: String },
    #[error("too little disk space in {directory:?}: {free} bytes are free, {wanted} are needed")]
    ShortOfSpace {
        directory: PathBuf,
        free: u64,
        wanted: u64,
        #[source]
        source: Option<Box<StoreError>>,
    },
    #[error("the store refused an operation: {0}")]
    Refused(&'static str),
    #[error(transparent)]
    NotCommitted(Arc<StoreError>),
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the unit itself is at fault, and not the disk or a lock that would fail every other one too.
    fn is_of_a_unit(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Damaged { .. } => true,
            Self::Database { source, .. } => source.is_constraint(),
            _ => false,
        }
    }

    fn opening<E: Into<SqlError>>(path: &Path) -> impl Fn(E) -> Self + Copy {
        move |source| Self::Open { path: path.to_owned(), source: source.into() }
    }

    fn database<E: Into<SqlError>>(operation: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Database { operation, source: source.into() }
    }
}

/// The reading side. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: SqlitePool,
    guard: Arc<health::Guard>,
    searching: Arc<SearchTurns>,
}

impl Store {
    /// Opens the database, brings its schema up to date, and starts the writer, which tells `audience` of every
    /// commit.
    pub async fn open(
        options: &StoreOptions,
        audience: impl Audience + 'static,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, Writer), StoreError> {
        let guard = health::Guard::start(options)?;
        migrate(options, Direction::Up).await?;
        let path = &options.database;
        let connect =
            |durability| Connection::open(path, &options.settings, durability).map_err(StoreError::opening(path));
        let connections = Connections { durable: connect(Durability::Full)?, quick: connect(Durability::Normal)? };
        let pool = SqlitePoolOptions::new()
            .max_connections(options.settings.read_connections)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(connect_options(path, &options.settings).read_only(true))
            .await
            .map_err(StoreError::opening(path))?;
        let space = Arc::clone(&guard.space);
        let store = Self { pool, guard: Arc::new(guard), searching: SearchTurns::new() };
        let cursor = store.last_cursor().await?;
        let writer = Writer::start(connections, cursor, &options.settings, space, audience, metrics)
            .map_err(|source| StoreError::Files { path: path.clone(), source })?;
        Ok((store, writer))
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// SQLite's file layer for a database that one process uses alone. The process locks the file when it first reads it, until its
/// last connection closes; the index of the write-ahead log is in memory. A process that may only read the file can lock nothing
/// that a commit waits for. No other code of the daemon may open the file: closing a descriptor of it releases the lock.
const VFS: &str = "unix-excl";

/// Negative: KiB. Small, because every connection has its own and the daemon lives in 15 MB.
const CACHE_KIB: &str = "-1024";

fn connect_options(path: &Path, settings: &config::Store) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .vfs(VFS)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(settings.busy_timeout)
        .pragma("cache_size", CACHE_KIB)
        .pragma("journal_size_limit", settings.journal_max.0.to_string())
        .disable_statement_logging()
}
