//! A copy of the database, made while it is in use.
//!
//! ```text
//! a private file beside the target ──▶ VACUUM INTO ──▶ check ──▶ sync ──▶ rename, never over anything
//! ```
//!
//! It is read on a connection of its own and never holds the writer up; only the write-ahead log is not cut back
//! meanwhile. Whatever ends it early (an error, the client that goes, the daemon that stops) leaves no file behind.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::fault::{self, Fault};
use super::reserve::free_bytes;
use super::{Store, StoreError, health, migrate};
use crate::private;

/// What the name of a copy ends with while it is being made.
pub(super) const PARTIAL: &str = ".partial";

/// A copy that was made.
#[derive(Clone, Debug)]
pub struct BackedUp {
    pub path: PathBuf,
    pub bytes: u64,
    pub duration: Duration,
    pub schema_version: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0:?} is not an absolute path of a file")]
    NotAFile(PathBuf),
    #[error("{0:?} already exists")]
    Exists(PathBuf),
    #[error("cannot write into the directory {path:?}")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the backup needs {needed} bytes in {directory:?}, but only {free} are free")]
    NoSpace { directory: PathBuf, needed: u64, free: u64 },
    #[error("another backup is running")]
    Busy,
    #[error("the backup was cancelled because the daemon is stopping")]
    Abandoned,
    #[error("the backup is damaged: {0}")]
    Unsound(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Copies the database to a file that is not there yet.
    pub async fn back_up(&self, path: &Path) -> Result<BackedUp, BackupError> {
        let started = Instant::now();
        let _one = self.guard.copying.try_acquire().map_err(|_| BackupError::Busy)?;
        let directory = directory_of(path)?;
        let partial = Partial::create(path, directory)?;
        // Dropping this, when the client goes, ends the copying as the daemon's stop does.
        let token = self.guard.abandoned.child_token();
        let _end = token.clone().drop_guard();
        let mut connection = self.guard.long_reader(token.clone()).await?;
        let copied = self.copy(&mut connection, directory, &partial).await;
        // It only read.
        drop(connection.close().await);
        let copied = match copied {
            Ok(()) => partial.verify(token).await,
            Err(error) => Err(error),
        };
        let (bytes, schema_version) = match copied {
            Err(_) if self.guard.abandoned.is_cancelled() => return Err(BackupError::Abandoned),
            copied => copied?,
        };
        partial.keep(path, directory).await?;
        let backed_up = BackedUp { path: path.to_owned(), bytes, duration: started.elapsed(), schema_version };
        tracing::info!(path = %path.display(), bytes, "backed up the store");
        Ok(backed_up)
    }

    async fn copy(
        &self,
        connection: &mut SqliteConnection,
        directory: &Path,
        partial: &Partial,
    ) -> Result<(), BackupError> {
        self.check_room(directory, used_bytes(connection).await?)?;
        partial.fill(connection, directory).await
    }

    /// A copy on the store's own disk must leave the store what it needs.
    fn check_room(&self, directory: &Path, bytes: u64) -> Result<(), BackupError> {
        let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let is_own_disk = self.guard.database.parent().is_some_and(|own| device(own) == device(directory));
        let needed = if is_own_disk { bytes.saturating_add(self.space().low()) } else { bytes };
        if free_bytes(directory) < needed { Err(no_space(directory, needed)) } else { Ok(()) }
    }
}

/// How large a copy of the database becomes.
pub(super) async fn used_bytes(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(
        "SELECT (page_count - freelist_count) * page_size \
         FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
    )
    .fetch_one(connection)
    .await
    .map_err(StoreError::database("reading the size of the database"))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// The directory of a target that can be written: absolute, and not there yet.
fn directory_of(path: &Path) -> Result<&Path, BackupError> {
    let (Some(directory), Some(_), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
        return Err(BackupError::NotAFile(path.to_owned()));
    };
    // A link that leads nowhere is something too.
    if path.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(path.to_owned()));
    }
    Ok(directory)
}

fn no_space(directory: &Path, needed: u64) -> BackupError {
    BackupError::NoSpace { directory: directory.to_owned(), needed, free: free_bytes(directory) }
}

/// The copy while it is being made. It goes, unless it is kept.
pub(super) struct Partial {
    path: PathBuf,
    is_kept: bool,
}

impl Partial {
    /// An empty private file: SQLite takes it for a new database and leaves its mode alone.
    pub(super) fn create(target: &Path, directory: &Path) -> Result<Self, BackupError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}{PARTIAL}", Uuid::now_v7()));
        let path = directory.join(name);
        private::new_file(&path).map_err(|source| file_error(directory, source))?;
        Ok(Self { path, is_kept: false })
    }

    /// Writes the database into it.
    pub(super) async fn fill(&self, connection: &mut SqliteConnection, directory: &Path) -> Result<(), BackupError> {
        let bytes = used_bytes(connection).await?;
        let copied = sqlx::query("VACUUM INTO ?").bind(self.path.display().to_string()).execute(connection).await;
        match copied.map_err(StoreError::database("copying the database")) {
            Ok(_) => Ok(()),
            Err(error) if error.fault() == Fault::Full => Err(no_space(directory, bytes)),
            Err(error) => Err(error.into()),
        }
    }

    /// How large it is and which schema it has, when it is sound.
    pub(super) async fn verify(&self, end: CancellationToken) -> Result<(u64, i64), BackupError> {
        let failed = StoreError::opening(&self.path);
        let options = SqliteConnectOptions::new().filename(&self.path).read_only(true).immutable(true);
        let mut copy = options.connect().await.map_err(failed)?;
        health::end_with(&mut copy, end).await.map_err(failed)?;
        let problems = health::problems(&mut copy).await;
        let version = migrate::version(&mut copy).await;
        drop(copy.close().await);
        if let Some(problem) = problems?.into_iter().next() {
            return Err(BackupError::Unsound(problem));
        }
        let bytes = std::fs::metadata(&self.path).map_err(|source| file_error(&self.path, source))?.len();
        Ok((bytes, version?))
    }

    /// Gives the copy its name, when all of it is on the disk.
    pub(super) async fn keep(mut self, target: &Path, directory: &Path) -> Result<(), BackupError> {
        let failed = |source| file_error(directory, source);
        tokio::fs::File::open(&self.path).await.map_err(failed)?.sync_all().await.map_err(failed)?;
        match private::rename_new(&self.path, target) {
            Err(Errno::EXIST) => return Err(BackupError::Exists(target.to_owned())),
            renamed => renamed.map_err(|error| failed(error.into()))?,
        }
        self.is_kept = true;
        tokio::fs::File::open(directory).await.map_err(failed)?.sync_all().await.map_err(failed)
    }
}

fn file_error(path: &Path, source: io::Error) -> BackupError {
    match fault::of_file(&source) {
        Fault::Full => no_space(path, 0),
        _ => BackupError::Directory { path: path.to_owned(), source },
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove an incomplete backup");
        }
    }
}
