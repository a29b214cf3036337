//! A look at a database from outside, while no daemon has it open: whether it is one, and whether this program can use it.
//!
//! Nothing is changed, made or locked: the file is read as it is, without its write-ahead log.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::migrate::newest_known;

/// How every SQLite database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What a file says that is to be the database.
#[derive(Debug, PartialEq, Eq)]
pub enum Peek {
    /// Nothing is in it yet.
    Empty,
    Schema(i64),
    /// A newer program has made it what it is.
    TooNew {
        schema: i64,
        known: i64,
    },
    NoDatabase,
    /// It is one, and cannot be read.
    Unreadable(String),
}

/// Looks at the file.
pub fn peek(path: &Path) -> io::Result<Peek> {
    let beginning = beginning(path)?;
    if beginning.is_empty() {
        return Ok(Peek::Empty);
    }
    if beginning != MAGIC {
        return Ok(Peek::NoDatabase);
    }
    Ok(match schema(path) {
        Ok(schema) if schema > newest_known() => Peek::TooNew { schema, known: newest_known() },
        Ok(schema) => Peek::Schema(schema),
        Err(error) => Peek::Unreadable(error.to_string()),
    })
}

/// Whether the file begins like a database, whoever's it is.
pub fn begins_like_one(path: &Path) -> io::Result<bool> {
    Ok(beginning(path)? == MAGIC)
}

fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning)
}

fn schema(path: &Path) -> Result<i64, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{}?immutable=1", encoded(path)), flags)?;
    let count = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
    if connection.query_row(count, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM _sqlx_migrations", [], |row| row.get(0))
}

/// A path may have anything in it that means something in an address.
pub(super) fn encoded(path: &Path) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
    let encode = |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}
