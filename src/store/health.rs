//! How the store is: whether the last daemon closed it, what a check after an unclean end found, and what is wrong now.
//!
//! A mark beside the database is set before it is opened, and taken away when it was closed so that SQLite left no
//! write-ahead log, and nothing is wrong with it. Whoever finds the mark, or such a log, checks the database: in the
//! background, table by table, so that no checkpoint waits for longer than one table takes.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fault::{Fault, SqlError};
use super::reserve::Space;
use super::{Store, StoreError, StoreOptions, connect_options, files};
use crate::config;
use crate::model::error::chain;

/// Steps of SQLite between two looks whether a long statement is to end.
const STEPS_BETWEEN_LOOKS: i32 = 1000;
/// Problems that are kept; the first ones tell as much as all of them.
const PROBLEMS_MAX: usize = 5;

/// What is known of the database as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The last daemon closed it, so nothing was checked.
    Clean,
    Running,
    Ok,
    Damaged {
        problem: String,
    },
    /// The check itself could not be made.
    Failed {
        problem: String,
    },
}

/// How the store is now.
#[derive(Debug)]
pub struct StoreHealth {
    /// The last commit went well.
    pub is_writable: bool,
    /// Too little space, when there is.
    pub shortage: Option<StoreError>,
    pub check: Check,
}

/// What the store's health rests on.
#[derive(Debug)]
pub struct Guard {
    pub(super) database: PathBuf,
    pub(super) settings: config::Store,
    pub(super) space: std::sync::Arc<Space>,
    check: watch::Sender<Check>,
    /// The daemon stops: checks and copies under way end.
    pub(super) abandoned: CancellationToken,
    /// One copy at a time.
    pub(super) copying: Semaphore,
}

impl Guard {
    /// To be called before the database is opened.
    pub(super) fn start(options: &StoreOptions) -> Result<Self, StoreError> {
        let space = Space::new(options);
        space.preflight()?;
        let (mark, log) = (mark(&options.database), write_ahead_log(&options.database));
        let is_unclean = mark.exists() || log.metadata().is_ok_and(|log| log.len() > 0);
        files::private_file(&mark)?;
        space.start();
        Ok(Self {
            database: options.database.clone(),
            settings: options.settings.clone(),
            space: std::sync::Arc::new(space),
            check: watch::Sender::new(if is_unclean { Check::Running } else { Check::Clean }),
            abandoned: CancellationToken::new(),
            copying: Semaphore::new(1),
        })
    }

    /// A connection of its own that reads, for something long. It ends what it does when the token is cancelled.
    pub(super) async fn long_reader(&self, end: CancellationToken) -> Result<SqliteConnection, StoreError> {
        let failed = StoreError::opening(&self.database);
        let options = connect_options(&self.database, &self.settings).read_only(true);
        let mut connection = options.connect().await.map_err(failed)?;
        end_with(&mut connection, end).await.map_err(failed)?;
        Ok(connection)
    }
}

/// Has the connection end what it does when the token is cancelled.
pub(super) async fn end_with(connection: &mut SqliteConnection, end: CancellationToken) -> Result<(), sqlx::Error> {
    end_with_and_hold(connection, end, ()).await
}

/// Has the connection end what it does when the token is cancelled, and hold something for as long as it is open. A
/// connection that is dropped is open until the statement that it runs has ended, in a thread of its own.
pub(super) async fn end_with_and_hold(
    connection: &mut SqliteConnection,
    end: CancellationToken,
    held: impl Send + 'static,
) -> Result<(), sqlx::Error> {
    let mut handle = connection.lock_handle().await?;
    handle.set_progress_handler(STEPS_BETWEEN_LOOKS, move || {
        let _held = &held;
        !end.is_cancelled()
    });
    Ok(())
}

impl Store {
    /// Whether there is room, which is asked before new work is taken on.
    pub fn space(&self) -> &Space {
        &self.guard.space
    }

    pub fn health(&self) -> StoreHealth {
        let space = self.space();
        let shortage = space.check().err();
        StoreHealth { is_writable: space.is_writable(), shortage, check: self.guard.check.borrow().clone() }
    }

    /// Looks after the store for as long as the daemon runs: after an unclean end the database is checked, and when there
    /// was too little space, it is looked for again.
    pub async fn look_after(self) {
        tokio::select! {
            biased;
            () = self.guard.abandoned.cancelled() => {}
            () = async { tokio::join!(self.check_when_unclean(), self.space().keep()); } => {}
        }
    }

    /// The daemon stops: a check or a copy under way ends.
    pub fn abandon(&self) {
        self.guard.abandoned.cancel();
    }

    /// To be called after the last connection was closed. SQLite removes the write-ahead log when it could be emptied.
    pub fn note_clean_close(&self) {
        let database = &self.guard.database;
        match *self.guard.check.borrow() {
            Check::Clean | Check::Ok => {}
            // What was not found out, or not put right, is for the next daemon to look at.
            Check::Running | Check::Damaged { .. } | Check::Failed { .. } => return,
        }
        if write_ahead_log(database).exists() {
            return tracing::warn!("the database was not closed cleanly; the next start checks it");
        }
        if let Err(error) = std::fs::remove_file(mark(database)) {
            tracing::warn!(%error, "cannot remove the marker of an open database; the next start checks the database");
        }
    }

    async fn check_when_unclean(&self) {
        if *self.guard.check.borrow() == Check::Clean {
            return;
        }
        tracing::info!("the database was not closed cleanly; checking it");
        let started = Instant::now();
        let check = match self.find_problems().await {
            Ok(problems) if problems.is_empty() => Check::Ok,
            Ok(problems) => Check::Damaged { problem: problems.join("; ") },
            Err(error) if error.fault() == Fault::Damaged => Check::Damaged { problem: chain(&error) },
            Err(error) => Check::Failed { problem: chain(&error) },
        };
        let millis = started.elapsed().as_millis();
        match &check {
            Check::Damaged { problem } => tracing::error!(problem, hint = DAMAGED_HINT, "the database is damaged"),
            Check::Failed { problem } => tracing::error!(problem, "cannot check the database"),
            Check::Clean | Check::Running | Check::Ok => tracing::info!(millis, "the database has no errors"),
        }
        self.guard.check.send_replace(check);
    }

    async fn find_problems(&self) -> Result<Vec<String>, StoreError> {
        let mut connection = self.guard.long_reader(self.guard.abandoned.clone()).await?;
        let problems = problems(&mut connection).await;
        // It only read.
        drop(connection.close().await);
        problems
    }
}

/// What to do about damage.
pub const DAMAGED_HINT: &str = "stop acpd, move acpd.db and acpd.db-wal to another directory, and copy the \
    newest good backup (made by `acpd backup`, or from backups/) to acpd.db; without a backup acpd starts with an empty store";

/// What SQLite finds wrong with the schema and with each table, up to a bound. Each table is a transaction of its own.
pub(super) async fn problems(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    let mut tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
            .fetch_all(&mut *connection)
            .await
            .map_err(StoreError::database("listing its tables"))?;
    tables.insert(0, "sqlite_schema".to_owned());
    let mut problems = Vec::new();
    for table in tables {
        let found: Result<Vec<String>, sqlx::Error> =
            sqlx::query_scalar("SELECT quick_check FROM pragma_quick_check(?)")
                .bind(&table)
                .fetch_all(&mut *connection)
                .await;
        match found {
            Ok(found) => problems.extend(found.into_iter().filter(|line| line != "ok").map(|line| {
                let line = line.replace('\n', " ");
                format!("table {table}: {line}")
            })),
            Err(source) => {
                let source = SqlError::from(source);
                let is_interrupt = source.is_interrupt();
                let error = StoreError::Database { operation: "checking a table", source };
                if is_interrupt || error.fault() != Fault::Damaged {
                    return Err(error);
                }
                problems.push(format!("table {table}: {}", chain(&error)));
            }
        }
        if problems.len() >= PROBLEMS_MAX {
            problems.truncate(PROBLEMS_MAX);
            break;
        }
    }
    Ok(problems)
}

fn mark(database: &Path) -> PathBuf {
    database.with_extension("open")
}

pub(super) fn write_ahead_log(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    PathBuf::from(path)
}
