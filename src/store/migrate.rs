//! Schema versions: up at every start, down on request, a copy before either, a refusal for what is not known.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use tokio_util::sync::CancellationToken;

use super::backup::{self, BackupError, Partial};
use super::reserve::free_bytes;
use super::{StoreError, StoreOptions, connect_options, files};
use crate::model::Timestamp;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the newest version that this program knows.
    Up,
    /// Back to this version; 0 is the empty database.
    DownTo(i64),
}

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub from: i64,
    pub to: i64,
}

/// Brings the database to a version. Nothing happens, and no copy is made, when it is there already.
pub async fn migrate(options: &StoreOptions, direction: Direction) -> Result<Migrated, StoreError> {
    let path = &options.database;
    if let Some(directory) = path.parent() {
        files::private_directory(directory)?;
    }
    files::remove_unfinished_backups(&options.backups)?;
    files::private_file(path)?;
    let mut connect = connect_options(path, &options.settings);
    if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        // Only a database that is made here takes this on; it lets free pages be given back a few at a time.
        connect = connect.auto_vacuum(SqliteAutoVacuum::Incremental);
    }
    let mut connection = connect.connect().await.map_err(StoreError::opening(path))?;
    let outcome = run(&mut connection, options, direction).await;
    connection.close().await.map_err(StoreError::database("closing the database after the migration"))?;
    outcome
}

async fn run(
    connection: &mut SqliteConnection,
    options: &StoreOptions,
    direction: Direction,
) -> Result<Migrated, StoreError> {
    let path = &options.database;
    let known = newest_known();
    let from = version(connection).await?;
    if from > known {
        return Err(StoreError::NewerSchema { path: path.clone(), found: from, known });
    }
    let to = match direction {
        Direction::Up => known,
        Direction::DownTo(target) if (0..=from).contains(&target) => target,
        Direction::DownTo(_) => return Err(StoreError::Refused("a migration down to a version above the current one")),
    };
    let migrated = Migrated { from, to };
    if from == to {
        return Ok(migrated);
    }
    if from > 0 {
        back_up(connection, options, from).await?;
    }
    let outcome = match direction {
        Direction::Up => MIGRATIONS.run(&mut *connection).await,
        Direction::DownTo(target) => MIGRATIONS.undo(&mut *connection, target).await,
    };
    outcome.map_err(|source| StoreError::Migrate { path: path.clone(), source })?;
    Ok(migrated)
}

/// What the store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Versions {
    pub schema: i64,
    pub sqlite: &'static str,
}

pub fn versions() -> Versions {
    Versions { schema: newest_known(), sqlite: rusqlite::version() }
}

pub(super) fn newest_known() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The newest migration that was applied; 0 for a database that has none.
pub(super) async fn version(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let reading = "reading the schema version";
    let table = sqlx::query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(StoreError::database(reading))?;
    if table.is_none() {
        return Ok(0);
    }
    sqlx::query("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(StoreError::database(reading))
}

/// A whole copy before anything is changed, which has its name only when it is sound and on the disk.
async fn back_up(connection: &mut SqliteConnection, options: &StoreOptions, version: i64) -> Result<(), StoreError> {
    let directory = &options.backups;
    files::private_directory(directory)?;
    check_room(options, backup::used_bytes(connection).await?)?;
    let stamp = Timestamp::now().to_string().replace(':', "");
    let path = directory.join(format!("{stamp}-schema-{version}.db"));
    copy(connection, &path, directory).await.map_err(|error| StoreError::Copy(Box::new(error)))?;
    tracing::info!(backup = %path.display(), schema_version = version, "copied the database before the migration");
    files::prune_backups(directory, options.settings.backups)
}

async fn copy(connection: &mut SqliteConnection, path: &Path, directory: &Path) -> Result<(), BackupError> {
    let partial = Partial::create(path, directory)?;
    partial.fill(connection, directory).await?;
    // Nobody is there yet who could have it end early.
    partial.verify(CancellationToken::new()).await?;
    partial.keep(path, directory).await
}

/// The copy needs room, and so does the migration, which may write every message anew. It is asked for before either
/// begins: a disk that the copy has filled could not even be opened again.
fn check_room(options: &StoreOptions, bytes: u64) -> Result<(), StoreError> {
    let own = options.database.parent().unwrap_or(Path::new("/"));
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let wants = if device(own) == device(&options.backups) {
        vec![(own, bytes.saturating_mul(2))]
    } else {
        vec![(own, bytes), (options.backups.as_path(), bytes)]
    };
    for (directory, wanted) in wants {
        let free = free_bytes(directory);
        if free < wanted {
            return Err(StoreError::NoRoomToMigrate { directory: directory.to_owned(), free, wanted });
        }
    }
    Ok(())
}
