//! What `acpd import` takes: documents of ours, what others have kept, as such documents, and records of sessions.
//!
//! Everything is read and understood here, as the user who has the files; the daemon gets documents, each with a label by
//! which a person finds it again when it is refused.

mod content;
mod database;
mod workspaces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::model::Policy;
use crate::model::error::chain;
use crate::model::export::Document;
use crate::model::record::{self, validate};
use crate::store::{ForeignError, begins_like_one};

use super::error::ClientError;

pub use self::workspaces::Workspaces;

/// A file that is larger is not read: hardly a daemon takes as much.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A document, and where it comes from.
#[derive(Debug)]
pub struct Labelled {
    /// Such as a file's name.
    pub label: String,
    /// What is not as it was there.
    pub notes: Vec<String>,
    pub document: Document,
}

/// What to do about a database that cannot be read.
fn foreign(error: &ForeignError) -> ClientError {
    let hint = match error {
        ForeignError::NoTable { tables, .. } if tables.iter().any(|table| table == "_sqlx_migrations") => {
            "it is a store of acpd: export its sessions with `acpd export` and import the exports"
        }
        ForeignError::NoTable { .. } => "the database must have the tables Repo, AgentSession and AgentMessage",
        ForeignError::Changing { .. } => "stop the program that writes to it, and try again",
        ForeignError::TooLarge { .. } => "import a part of it: delete the rest from a copy of the database",
        ForeignError::Files { .. } => {
            "you need read access to it, and to the files beside it that end in -wal or -journal"
        }
        ForeignError::Database { .. } => "the file may be damaged; `sqlite3 FILE .recover` recovers the readable part",
    };
    ClientError::local(chain(error), hint)
}

/// What was found at a path.
#[derive(Debug, Default)]
pub struct Found {
    pub sessions: Vec<Labelled>,
    /// Records of sessions, each with the file that it is in.
    pub records: Vec<(String, Box<RawValue>)>,
    /// The files of a directory that cannot be imported, each with the reason.
    pub skipped: Vec<String>,
}

/// Reads what is at the path. `agent` is who everything goes on with, and `policies` are the agents' here.
pub fn read(path: &Path, agent: Option<&str>, policies: &BTreeMap<String, Policy>) -> Result<Found, ClientError> {
    let unreadable = |error| ClientError::io(format!("read {}", path.display()), error);
    let mut found = Found::default();
    if path.metadata().map_err(unreadable)?.is_dir() {
        for path in files(path)? {
            if let Err(error) = file(&path, &mut found) {
                found.skipped.push(chain(&error));
            }
        }
    } else if begins_like_one(path).map_err(unreadable)? {
        found.sessions = database::read(path, agent, policies)?;
    } else {
        file(path, &mut found)?;
    }
    Ok(found)
}

/// The JSON files of a directory, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ClientError> {
    let unreadable = |error| ClientError::io(format!("read {}", directory.display()), error);
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "json") && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        let hint = "name a directory of JSON files, an exported session, or a database";
        return Err(ClientError::local(format!("no JSON files in {}", directory.display()), hint));
    }
    files.sort();
    Ok(files)
}

/// Exports have a format, and session records have none.
#[derive(Deserialize)]
struct Shape {
    format: Option<IgnoredAny>,
}

fn file(path: &Path, found: &mut Found) -> Result<(), ClientError> {
    let label = path.display().to_string();
    let unreadable = |error| ClientError::io(format!("read {label}"), error);
    let bytes = path.metadata().map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        let message = format!("{label} has {bytes} bytes; the maximum is {FILE_BYTES_MAX}");
        let hint = "an export of this size cannot be imported; use `acpd export --format markdown` to read the session";
        return Err(ClientError::local(message, hint));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let shape: Shape = serde_json::from_str(&text).map_err(|error| {
        let hint = "name an export (`acpd export`) or a session record; the file may be incomplete";
        ClientError::local(format!("{label} is not a JSON object: {error}"), hint)
    })?;
    if shape.format.is_some() {
        let document = Document::read(&text)
            .map_err(|problem| ClientError::local(format!("{label}: {problem}"), problem.hint()))?;
        found.sessions.push(Labelled { label, notes: Vec::new(), document });
    } else {
        let record = record(path, &text).map_err(|problem| {
            let hint = "an export has the field format, a session record the fields session_id, actions and started_at";
            ClientError::local(format!("{label} is neither an export nor a session record: {problem}"), hint)
        })?;
        found.records.push((label, record));
    }
    Ok(())
}

/// A valid session record. A file may be named after its session (`session-ID.json`) and have no time of its start.
fn record(path: &Path, text: &str) -> Result<Box<RawValue>, String> {
    let mut document: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    document.entry("session_id").or_insert_with(|| name.strip_prefix("session-").unwrap_or(&name).into());
    if !document.contains_key("started_at") {
        let parts =
            ["actions", "checkpoints"].into_iter().filter_map(|field| document.get(field)?.as_array()).flatten();
        let first = parts.filter_map(|part| record::time(part.get("timestamp"))).min();
        document.extend(first.map(|first| ("started_at".to_owned(), first.to_string().into())));
    }
    validate::check(&document).map_err(|invalid| invalid.message)?;
    to_raw_value(&document).map_err(|error| error.to_string())
}
