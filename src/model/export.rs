//! A session as one document that another machine can take up: what `acpd export` writes and `acpd import` reads.
//!
//! It is made of the record alone, so that the same record gives the same bytes. What is alive (a process, its open
//! questions), what only this machine knows (the agent's own name for the conversation, whose session it is) and values that
//! may be secrets are not in it. Fields may be added within a version: whoever reads passes over those it does not know.

use std::collections::{BTreeMap, HashSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::agent::FrozenProfile;
use super::block::{Blob, BlobHash};
use super::checkpoint::Checkpoint;
use super::choices::Chosen;
use super::context::SessionContext;
use super::id::SessionId;
use super::mcp::{self, ChosenServer, OwnServer};
use super::message::Message;
use super::permission::policy::Policy;
use super::session::{self, SessionLimits};
use super::status::SessionStatus;
use super::time::Timestamp;
use super::turn::Turn;
use super::usage::Usage;

/// What the document says that it is.
pub const FORMAT: &str = "acpd.session";
/// The version that is written, and the only one so far.
pub const VERSION: u32 = 1;

/// The whole document. It is written piece by piece (a session may be larger than memory), in the order of these fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub format: String,
    pub version: u32,
    pub session: ExportedSession,
    /// In the order in which they were accepted.
    #[serde(default)]
    pub turns: Vec<Turn>,
    /// By sequence. Content is the JSON of a [`super::Content`], as it was recorded.
    #[serde(default)]
    pub messages: Vec<Message>,
    /// Each once, by hash.
    #[serde(default)]
    pub blobs: Vec<ExportedBlob>,
    #[serde(default)]
    pub checkpoints: Vec<ExportedCheckpoint>,
    /// Records that tools submitted, as they were.
    #[serde(default)]
    pub observations: Vec<Box<RawValue>>,
}

/// What stands at the beginning, and is looked at before anything else.
#[derive(Debug, Deserialize)]
struct Kind {
    format: String,
    version: u32,
}

/// The session's own part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedSession {
    pub id: SessionId,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub tags: Vec<String>,
    pub status: SessionStatus,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_changed_at: Option<Timestamp>,
    /// The workspace's real path on the machine that it comes from.
    pub workspace: String,
    pub agent: FrozenProfile,
    pub permissions: Policy,
    #[serde(default)]
    pub context: SessionContext,
    #[serde(default)]
    pub limits: SessionLimits,
    /// Which MCP servers it chose. Absent: all of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<ExportedServer>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Chosen::is_empty")]
    pub chosen: Chosen,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// An MCP server that the session chose: the profile's by its name, or one that it brought along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExportedServer {
    Named(String),
    #[serde(rename_all = "camelCase")]
    Own {
        /// Of its values only those that refer to a variable.
        #[serde(flatten)]
        server: OwnServer,
        /// The names of the others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        values_withheld: Vec<String>,
    },
}

/// Media of messages, with its data in base64.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedBlob {
    pub sha256: BlobHash,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    pub data: String,
}

/// A checkpoint that was made in the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedCheckpoint {
    pub name: String,
    /// As it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<RawValue>>,
    pub created_at: Timestamp,
}

impl From<Checkpoint> for ExportedCheckpoint {
    fn from(checkpoint: Checkpoint) -> Self {
        let Checkpoint { name, state, created_at, .. } = checkpoint;
        Self { name, state: Some(state).filter(|state| state.get() != "null"), created_at }
    }
}

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentProblem {
    #[error("this is not an exported session: {found}")]
    NotAnExport { found: String },
    #[error("the export has format version {found}; this acpd reads versions up to {VERSION}")]
    NewerVersion { found: u32 },
    /// With the path to the field, when there is one.
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
}

impl DocumentProblem {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotAnExport { .. } => "give a file written by `acpd export --format json`",
            Self::NewerVersion { .. } => "import it with the acpd version that wrote it, or a newer one",
            Self::Field { .. } => "export the session again; the file was changed or is incomplete",
        }
    }
}

impl Document {
    /// What a text says, when it is a whole document of a version that is known.
    pub fn read(text: &str) -> Result<Self, DocumentProblem> {
        // What it is comes first: of another version the fields are not known.
        let kind =
            parse::<Kind>(text).map_err(|problem| DocumentProblem::NotAnExport { found: problem.to_string() })?;
        kind.check()?;
        let document = parse::<Self>(text)?;
        document.check()?;
        Ok(document)
    }

    /// That nothing in it belongs to another session, or to a turn that is not there.
    fn check(&self) -> Result<(), DocumentProblem> {
        let wrong = |field: String, problem: &str| DocumentProblem::Field { field, problem: problem.to_owned() };
        let id = self.session.id;
        let mut turns = HashSet::new();
        for (index, turn) in self.turns.iter().enumerate() {
            if turn.session_id != id {
                return Err(wrong(format!("turns[{index}].sessionId"), "belongs to another session"));
            }
            if !turns.insert(turn.id) {
                return Err(wrong(format!("turns[{index}].id"), "appears twice"));
            }
        }
        let mut before = 0;
        for (index, message) in self.messages.iter().enumerate() {
            if message.session_id != id {
                return Err(wrong(format!("messages[{index}].sessionId"), "belongs to another session"));
            }
            if message.sequence <= before {
                return Err(wrong(format!("messages[{index}].sequence"), "is not in order after the previous one"));
            }
            before = message.sequence;
            if message.turn_id.is_some_and(|turn| !turns.contains(&turn)) {
                return Err(wrong(format!("messages[{index}].turnId"), "refers to a turn that is not in the document"));
            }
        }
        for (index, blob) in self.blobs.iter().enumerate() {
            blob.blob().map_err(|problem| wrong(format!("blobs[{index}].data"), &problem))?;
        }
        Ok(())
    }
}

impl Kind {
    fn check(&self) -> Result<(), DocumentProblem> {
        if self.format != FORMAT {
            return Err(DocumentProblem::NotAnExport { found: format!("the format is {:?}", self.format) });
        }
        match self.version {
            VERSION => Ok(()),
            0 => Err(DocumentProblem::NotAnExport { found: "the version is 0".to_owned() }),
            found => Err(DocumentProblem::NewerVersion { found }),
        }
    }
}

fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, DocumentProblem> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| DocumentProblem::Field {
        field: error.path().to_string(),
        problem: error.into_inner().to_string(),
    })?;
    let end = |error: serde_json::Error| DocumentProblem::Field { field: ".".to_owned(), problem: error.to_string() };
    json.end().map_err(end)?;
    Ok(value)
}

impl From<session::Session> for ExportedSession {
    fn from(session: session::Session) -> Self {
        Self {
            id: session.id,
            title: session.title,
            tags: session.tags,
            status: session.status,
            created_at: session.created_at,
            updated_at: session.updated_at,
            last_active_at: session.last_active_at,
            status_changed_at: Some(session.status_changed_at),
            workspace: session.workspace,
            agent: session.profile,
            permissions: session.permissions,
            context: session.context,
            limits: session.limits,
            mcp_servers: session.mcp_servers.map(|servers| servers.into_iter().map(ExportedServer::from).collect()),
            model: session.model,
            mode: session.mode,
            chosen: session.chosen,
            usage: session.usage,
        }
    }
}

impl From<ChosenServer> for ExportedServer {
    fn from(server: ChosenServer) -> Self {
        match server {
            ChosenServer::Named(name) => Self::Named(name),
            ChosenServer::Own(mut server) => {
                let (kept, withheld): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    server.values.into_iter().partition(|(_, value)| mcp::only_refers(value));
                server.values = kept;
                Self::Own { server, values_withheld: withheld.into_keys().collect() }
            }
        }
    }
}

impl ExportedBlob {
    #[cfg(test)]
    pub fn new(hash: BlobHash, mime_type: &str, data: &[u8]) -> Self {
        Self {
            sha256: hash,
            size: data.len() as u64,
            mime_type: Some(mime_type.to_owned()).filter(|mime_type| !mime_type.is_empty()),
            data: BASE64_STANDARD.encode(data),
        }
    }

    /// The data, when it is what its hash says.
    pub fn blob(&self) -> Result<Blob, String> {
        let data = BASE64_STANDARD.decode(&self.data).map_err(|error| format!("is not base64: {error}"))?;
        if data.len() as u64 != self.size {
            return Err(format!("has {} bytes instead of {}", data.len(), self.size));
        }
        if BlobHash::of(&data) != self.sha256 {
            return Err(format!("does not match the hash {}", self.sha256));
        }
        let mime_type = self.mime_type.clone().unwrap_or_default();
        Ok(Blob { hash: self.sha256, mime_type, data: Bytes::from(data) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{AgentProfile, MessageId, TurnId};

    fn document() -> Value {
        let (session, turn) = (SessionId::new(), TurnId::new());
        let at = "2026-01-02T03:04:05.006Z";
        let agent = AgentProfile { command: "agent".to_owned(), ..AgentProfile::new("demo") }.freeze();
        json!({
            "format": FORMAT,
            "version": VERSION,
            "session": {
                "id": session, "title": "A title", "tags": ["x"], "status": "active", "createdAt": at, "updatedAt": at,
                "lastActiveAt": at, "statusChangedAt": at, "workspace": "/w", "agent": agent,
                "permissions": {"mode": "ask"}, "context": {"fsScope": "project"}, "limits": {},
            },
            "turns": [{"id": turn, "sessionId": session, "status": "completed", "stopReason": "end_turn", "queuedAt": at}],
            "messages": [{"id": MessageId::new(), "sessionId": session, "sequence": 1, "turnId": turn, "role": "user",
                "content": {"type": "text", "text": "hi", "partial": false}, "toolCallId": null, "createdAt": at}],
            "blobs": [ExportedBlob::new(BlobHash::of(b"abc"), "image/png", b"abc")],
            "checkpoints": [{"name": "first", "state": {"a": 1}, "createdAt": at}],
            "observations": [{"any": "thing"}],
        })
    }

    fn problem(document: &Value) -> DocumentProblem {
        Document::read(&document.to_string()).expect_err("it is wrong")
    }

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let written = document();
        let read = Document::read(&written.to_string()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), written);
        assert_eq!(&read.blobs[0].blob().unwrap().data[..], b"abc");
    }

    #[test]
    fn what_may_be_absent_is_empty_and_what_is_new_is_passed_over() {
        let mut least = document();
        for name in ["turns", "messages", "blobs", "checkpoints", "observations"] {
            least.as_object_mut().unwrap().remove(name);
        }
        least["later"] = json!(1);
        least["session"]["later"] = json!({"x": 1});
        let read = Document::read(&least.to_string()).unwrap();
        assert!(read.messages.is_empty() && read.checkpoints.is_empty());
    }

    #[test]
    fn another_format_and_a_later_version_are_told_before_any_field() {
        for (other, told) in [
            (json!({"format": "other", "version": 1}), "format is \"other\""),
            (json!({"version": 1}), "missing field `format`"),
            (json!([1]), "this is not an exported session"),
        ] {
            let problem = problem(&other);
            assert!(matches!(problem, DocumentProblem::NotAnExport { .. }), "{problem}");
            assert!(problem.to_string().contains(told), "{problem}");
        }
        let later = problem(&json!({"format": FORMAT, "version": 2, "session": "in another way"}));
        assert!(matches!(later, DocumentProblem::NewerVersion { found: 2 }), "{later}");
        assert!(Document::read("").is_err() && Document::read("{").is_err());
        assert!(Document::read(&format!("{} x", document())).is_err(), "something follows it");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let other = json!(SessionId::new());
        for (pointer, value, field) in [
            ("/session/status", json!("completed"), "session.status"),
            ("/session/createdAt", json!("yesterday"), "session.createdAt"),
            ("/turns/0/sessionId", other.clone(), "turns[0].sessionId"),
            ("/messages/0/sessionId", other, "messages[0].sessionId"),
            ("/messages/0/turnId", json!(TurnId::new()), "messages[0].turnId"),
            ("/messages/0/sequence", json!(0), "messages[0].sequence"),
            ("/blobs/0/data", json!("AAAA"), "blobs[0].data"),
            ("/blobs/0/data", json!("?"), "blobs[0].data"),
            ("/blobs/0/size", json!(4), "blobs[0].data"),
            ("/blobs/0/sha256", json!("x"), "blobs[0].sha256"),
        ] {
            let mut wrong = document();
            *wrong.pointer_mut(pointer).unwrap() = value;
            match problem(&wrong) {
                DocumentProblem::Field { field: named, .. } => assert_eq!(named, field),
                other => panic!("{pointer}: {other}"),
            }
        }
    }

    #[test]
    fn of_values_only_references_leave() {
        let own: OwnServer = serde_json::from_value(json!({"name": "x", "type": "http", "url": "https://example.com/",
            "values": {"Authorization": "Bearer ${TOKEN}", "X-Other": "hunter2", "X-Both": "hunter2${TOKEN}"}}))
        .unwrap();
        let exported = serde_json::to_value(ExportedServer::from(ChosenServer::Own(own))).unwrap();
        assert_eq!(exported["values"], json!({"Authorization": "Bearer ${TOKEN}"}));
        assert_eq!(exported["valuesWithheld"], json!(["X-Both", "X-Other"]));
        assert!(!exported.to_string().contains("hunter2"));
        let named = ExportedServer::from(ChosenServer::Named("docs".to_owned()));
        assert_eq!(serde_json::to_value(&named).unwrap(), json!("docs"));
        for server in [named, serde_json::from_value(exported).unwrap()] {
            let text = serde_json::to_string(&server).unwrap();
            assert_eq!(serde_json::from_str::<ExportedServer>(&text).unwrap(), server);
        }
    }
}
