//! The JSON of an import.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::record::validate::Warning;
use crate::model::{SessionId, SessionStatus, Timestamp};
use crate::registry;

/// Sessions and session records to import. Either all are imported, or none.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportSessions {
    /// Documents from JSON exports.
    #[serde(default)]
    #[schema(value_type = Vec<Object>, max_items = 10_000)]
    pub sessions: Vec<Box<RawValue>>,
    /// Session records, in the format of `POST /v1/records`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>, max_items = 10_000)]
    pub records: Vec<Box<RawValue>>,
    /// The agent to continue with. Absent: the agent named in each document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The directory to continue in. Absent: the directory named in each document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only report what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of an import; for a dry run, what it would do.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportReport {
    pub dry_run: bool,
    pub made: ImportCounts,
    /// The number of items that already exist here and stay unchanged.
    pub already_here: ImportCounts,
    /// The sessions, in the order of the documents.
    pub sessions: Vec<ImportedSession>,
    pub records: Vec<ImportedRecord>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ImportCounts {
    pub sessions: usize,
    pub turns: usize,
    pub messages: usize,
    pub records: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ImportOutcome {
    Made,
    AlreadyHere,
}

impl ImportOutcome {
    const fn of(is_new: bool) -> Self {
        if is_new { Self::Made } else { Self::AlreadyHere }
    }
}

/// The result for one session record.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedRecord {
    pub outcome: ImportOutcome,
    /// The `session_id` of the record.
    pub session_id: String,
    /// Warnings about the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The result for one document. An existing session is shown as it is stored here.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportedSession {
    pub outcome: ImportOutcome,
    /// The session's id here.
    pub id: SessionId,
    /// The session's id in the document.
    pub source_id: SessionId,
    pub title: String,
    pub agent: String,
    pub workspace: String,
    pub status: SessionStatus,
    /// When the session expires, if retention deletes sessions of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub turns: usize,
    pub messages: usize,
    /// Differences from the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ImportReport {
    /// `warnings` are those of each record.
    pub fn new(
        dry_run: bool,
        sessions: Vec<registry::ImportedSession>,
        records: Vec<registry::ImportedRecord>,
        warnings: Vec<Vec<Warning>>,
    ) -> Self {
        let mut report = Self { dry_run, ..Self::default() };
        for session in sessions {
            let counts = if session.is_new { &mut report.made } else { &mut report.already_here };
            counts.sessions += 1;
            counts.turns += session.turns;
            counts.messages += session.messages;
            report.sessions.push(session.into());
        }
        for (registry::ImportedRecord { session_id, is_new }, warnings) in records.into_iter().zip(warnings) {
            let counts = if is_new { &mut report.made } else { &mut report.already_here };
            counts.records += 1;
            let notes = warnings.into_iter().map(|warning| warning.message).collect();
            report.records.push(ImportedRecord { outcome: ImportOutcome::of(is_new), session_id, notes });
        }
        report
    }
}

impl From<registry::ImportedSession> for ImportedSession {
    fn from(session: registry::ImportedSession) -> Self {
        let registry::ImportedSession {
            id,
            source_id,
            title,
            agent,
            workspace,
            status,
            expires_at,
            turns,
            messages,
            is_new,
            notes,
        } = session;
        let outcome = ImportOutcome::of(is_new);
        Self { outcome, id, source_id, title, agent, workspace, status, expires_at, turns, messages, notes }
    }
}
