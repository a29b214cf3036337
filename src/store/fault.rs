//! What is wrong when the disk or SQLite refuse: the kinds of trouble that somebody can do something about.

use std::io;

use sqlx::migrate::MigrateError;

use super::{BackupError, DAMAGED_HINT, StoreError, files};

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space is left.
    Full,
    /// Another program has the database locked.
    Locked,
    /// The file is no database, or a damaged one.
    Damaged,
    /// The daemon's user may not write there.
    Forbidden,
    /// A read or a write failed. A full disk can look like this too.
    Disk,
    Other,
}

/// SQLite's primary result codes, <https://www.sqlite.org/rescode.html>. An extended code has one in its lowest byte.
mod code {
    pub const PERM: i32 = 3;
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const READONLY: i32 = 8;
    pub const INTERRUPT: i32 = 9;
    pub const IOERR: i32 = 10;
    pub const CORRUPT: i32 = 11;
    pub const FULL: i32 = 13;
    pub const CANTOPEN: i32 = 14;
    pub const CONSTRAINT: i32 = 19;
    pub const NOTADB: i32 = 26;
    /// What of an extended code is its primary one.
    pub const PRIMARY: i32 = 0xff;
}

impl StoreError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::ShortOfSpace { .. } | Self::NoRoomToMigrate { .. } => Fault::Full,
            Self::Copy(error) => of_copy(error),
            Self::Files { source, .. } => of_file(source),
            Self::Open { source, .. } | Self::Database { source, .. } => source.fault(),
            Self::Migrate { source, .. } => match source {
                MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => of_code(code_of(source)),
                _ => Fault::Other,
            },
            Self::NotCommitted(error) => error.fault(),
            // A row that cannot be understood is one session's trouble.
            Self::Damaged { .. } | Self::NewerSchema { .. } | Self::Refused(_) | Self::Closed => Fault::Other,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> String {
        if let Self::NewerSchema { known, .. } = self {
            return format!(
                "use the newer acpd that created it, or run `acpd migrate --down {known}` with it; a copy from backups/ lacks \
                    everything that was stored after the migration"
            );
        }
        match self.fault() {
            Fault::Locked
                if let Self::Open { path, .. } = self
                    && let Some(holder) = files::lock_holder(path) =>
            {
                format!("stop {holder}, which has locked the database; only one program at a time can open it")
            }
            Fault::Full => "free some space on the disk of the state directory, or use a state directory on a larger \
                disk (--state-dir)"
                .to_owned(),
            Fault::Locked => "stop the program that has the database open (`fuser -v FILE` names it)".to_owned(),
            Fault::Damaged => DAMAGED_HINT.to_owned(),
            Fault::Forbidden => "acpd needs a writable state directory that belongs only to its user; correct its \
                owner and mode, or choose another one with --state-dir"
                .to_owned(),
            Fault::Disk | Fault::Other => "read `acpd logs`".to_owned(),
        }
    }
}

pub fn of_file(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Fault::Forbidden,
        _ => Fault::Other,
    }
}

fn of_copy(error: &BackupError) -> Fault {
    match error {
        BackupError::NoSpace { .. } => Fault::Full,
        BackupError::Directory { source, .. } => of_file(source),
        BackupError::Unsound(_) => Fault::Damaged,
        BackupError::Store(error) => error.fault(),
        BackupError::NotAFile(_) | BackupError::Exists(_) | BackupError::Busy | BackupError::Abandoned => Fault::Other,
    }
}

/// What SQLite says, through whichever library asked it: readers go through sqlx, the writer through rusqlite.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    #[error(transparent)]
    Reading(#[from] sqlx::Error),
    #[error(transparent)]
    Writing(#[from] rusqlite::Error),
}

impl SqlError {
    /// A broken constraint is the fault of the row that breaks it.
    pub fn is_constraint(&self) -> bool {
        self.primary_code() == Some(code::CONSTRAINT)
    }

    /// Whether the statement was ended on purpose.
    pub fn is_interrupt(&self) -> bool {
        self.primary_code() == Some(code::INTERRUPT)
    }

    fn fault(&self) -> Fault {
        of_code(self.primary_code())
    }

    fn primary_code(&self) -> Option<i32> {
        match self {
            Self::Reading(error) => code_of(error),
            Self::Writing(error) => Some(error.sqlite_error()?.extended_code & code::PRIMARY),
        }
    }
}

fn code_of(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & code::PRIMARY)
}

fn of_code(code: Option<i32>) -> Fault {
    match code {
        Some(code::FULL) => Fault::Full,
        Some(code::BUSY | code::LOCKED) => Fault::Locked,
        Some(code::CORRUPT | code::NOTADB) => Fault::Damaged,
        Some(code::PERM | code::READONLY | code::CANTOPEN) => Fault::Forbidden,
        Some(code::IOERR) => Fault::Disk,
        _ => Fault::Other,
    }
}
