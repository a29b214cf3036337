//! A database of another program's, to be read and never written.
//!
//! What another program has left may have a log beside it: a write-ahead log with the newest rows, or a journal of what a
//! crash interrupted. SQLite takes such a log up by writing, so then it is a private copy that is opened; without one the
//! file is opened as one that nobody changes, and nothing is made beside it.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::peek::encoded;
use crate::private;

/// What is read of one table at the most: it is all held in memory.
const TABLE_BYTES_MAX: usize = 1 << 30;
/// What SQLite keeps beside a database that was not closed.
const LOGS: [&str; 2] = ["-wal", "-journal"];

#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    #[error("cannot read {path:?}")]
    Files {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the database {path:?}")]
    Database {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("the database {path:?} was changed during the copy")]
    Changing { path: PathBuf },
    #[error("the database {path:?} has no table {table}; its tables are {}", tables.join(", "))]
    NoTable { path: PathBuf, table: &'static str, tables: Vec<String> },
    #[error("the table {table} of {path:?} is larger than {TABLE_BYTES_MAX} bytes")]
    TooLarge { path: PathBuf, table: &'static str },
}

/// What a row has in a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    /// Of bytes that are no text.
    Bytes,
}

/// All of a table, in the order of its rows.
#[derive(Debug)]
pub struct ForeignTable {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// The database, open.
#[derive(Debug)]
pub struct ForeignDatabase {
    path: PathBuf,
    connection: Connection,
    /// Where the copy is, if there is one; it goes with this.
    _copy: Option<Copy>,
}

#[derive(Debug)]
struct Copy {
    directory: PathBuf,
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What is left of it is private, and in a directory for what is temporary.
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

impl ForeignDatabase {
    pub fn open(path: &Path) -> Result<Self, ForeignError> {
        let failed = |source| ForeignError::Files { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(failed)?;
        let has_log = LOGS.iter().any(|suffix| beside(&path, suffix).metadata().is_ok_and(|log| log.len() > 0));
        let (connection, copy) = if has_log {
            let (file, copy) = copied(&path)?;
            (Connection::open(file), Some(copy))
        } else {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            (Connection::open_with_flags(format!("file:{}?immutable=1", encoded(&path)), flags), None)
        };
        let connection = connection.map_err(|source| ForeignError::Database { path: path.clone(), source })?;
        Ok(Self { path, connection, _copy: copy })
    }

    /// The whole of a table.
    pub fn table(&self, table: &'static str) -> Result<ForeignTable, ForeignError> {
        let failed = |source| ForeignError::Database { path: self.path.clone(), source };
        let tables = self.tables().map_err(failed)?;
        if !tables.iter().any(|known| known.eq_ignore_ascii_case(table)) {
            return Err(ForeignError::NoTable { path: self.path.clone(), table, tables });
        }
        let sql = format!("SELECT * FROM \"{table}\"");
        // One without row ids comes in the order of its key.
        let statement = self.connection.prepare(&format!("{sql} ORDER BY rowid"));
        let mut statement = statement.or_else(|_| self.connection.prepare(&sql)).map_err(failed)?;
        let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut found = statement.query([]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            let cells = (0..columns.len()).map(|index| row.get_ref(index).map(Cell::from));
            let cells: Vec<Cell> = cells.collect::<Result<_, _>>().map_err(failed)?;
            bytes += cells.iter().map(Cell::weight).sum::<usize>();
            if bytes > TABLE_BYTES_MAX {
                return Err(ForeignError::TooLarge { path: self.path.clone(), table });
            }
            rows.push(cells);
        }
        drop(found);
        Ok(ForeignTable { columns, rows })
    }

    fn tables(&self) -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    }
}

impl ForeignTable {
    /// Which column is called so, in one of several ways. Case and underscores make no difference.
    pub fn column(&self, spellings: &[&str]) -> Option<usize> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let known: HashMap<String, usize> =
            self.columns.iter().enumerate().map(|(index, name)| (plain(name), index)).collect();
        spellings.iter().find_map(|spelling| known.get(&plain(spelling)).copied())
    }
}

impl Cell {
    fn weight(&self) -> usize {
        size_of::<Self>() + if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            // JSON may be kept as bytes.
            ValueRef::Blob(bytes) => text(bytes).map_or(Self::Bytes, Self::Text),
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A copy of the database and its log, in a directory of its own.
fn copied(path: &Path) -> Result<(PathBuf, Copy), ForeignError> {
    let failed = |source| ForeignError::Files { path: path.to_owned(), source };
    let directory = std::env::temp_dir().join(format!("acpd-import-{}", uuid::Uuid::now_v7()));
    private::directory(&directory).map_err(failed)?;
    let copy = Copy { directory };
    let target = copy.directory.join("copy.db");
    let before = state(path);
    std::fs::copy(path, &target).map_err(failed)?;
    for suffix in LOGS {
        match std::fs::copy(beside(path, suffix), beside(&target, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(_) | Err(_) => {}
        }
    }
    if state(path) != before {
        return Err(ForeignError::Changing { path: path.to_owned() });
    }
    Ok((target, copy))
}

/// What shows whether somebody writes to the database.
fn state(path: &Path) -> [Option<(u64, Option<SystemTime>)>; 3] {
    let seen = |metadata: Metadata| (metadata.len(), metadata.modified().ok());
    ["", LOGS[0], LOGS[1]].map(|suffix| beside(path, suffix).metadata().ok().map(seen))
}
