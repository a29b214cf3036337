//! The JSON of a sweep and of the store's upkeep.

use serde::{Deserialize, Serialize};

use crate::model::{SessionId, SessionStatus, Timestamp};
use crate::registry;

/// A sweep over the sessions whose retention is over.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectGarbage {
    /// Only tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a sweep did, or with a dry run would do. Each list names the first thousand; the counts count all.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GarbageReport {
    pub dry_run: bool,
    pub deleted: Vec<ExpiredSession>,
    /// Found expired for the first time.
    pub marked: Vec<ExpiredSession>,
    /// Expired, and not to be deleted yet.
    pub waiting: Vec<ExpiredSession>,
    /// Not expired any more.
    pub unmarked: Vec<ExpiredSession>,
    pub counts: GarbageCounts,
    /// What was done in the store itself. A daemon of before there was that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<UpkeepReport>,
}

/// What was done in the store, or with a dry run would be.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpkeepReport {
    pub bytes_before: u64,
    /// Nobody knows that before it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_after: Option<u64>,
    pub deltas_removed: u64,
    pub messages_indexed: u64,
    /// Whether nothing is left to do; else the daemon goes on by itself.
    pub complete: bool,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GarbageCounts {
    pub deleted: usize,
    pub marked: usize,
    pub waiting: usize,
    pub unmarked: usize,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpiredSession {
    pub id: SessionId,
    pub title: String,
    pub status: SessionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// From when on a sweep may delete it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletable_at: Option<Timestamp>,
    /// Turns that keep it, for as long as they wait.
    pub queued_turns: i64,
}

impl GarbageReport {
    pub fn new(sweep: registry::Sweep, store: UpkeepReport, dry_run: bool) -> Self {
        let registry::Sweep { deleted, marked, waiting, unmarked } = sweep;
        let counts = GarbageCounts {
            deleted: deleted.total,
            marked: marked.total,
            waiting: waiting.total,
            unmarked: unmarked.total,
        };
        let named = |swept: registry::Swept| swept.sessions.into_iter().map(ExpiredSession::from).collect();
        Self {
            dry_run,
            deleted: named(deleted),
            marked: named(marked),
            waiting: named(waiting),
            unmarked: named(unmarked),
            counts,
            store: Some(store),
        }
    }
}

impl From<registry::SweptSession> for ExpiredSession {
    fn from(session: registry::SweptSession) -> Self {
        let registry::SweptSession { id, title, status, expires_at, deletable_at, queued_turns } = session;
        Self { id, title, status, expires_at, deletable_at, queued_turns }
    }
}
