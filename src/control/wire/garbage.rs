//! The JSON of a sweep and of the store's upkeep.

use serde::{Deserialize, Serialize};

use crate::model::{SessionId, SessionStatus, Timestamp};
use crate::registry;

/// A run that deletes expired sessions.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectGarbage {
    /// Only report what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Also discard what isolated agents changed in their homes, for sessions without a process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub homes: bool,
}

/// The result of a run; for a dry run, what it would do. Each list has at most the first thousand sessions; the counts
/// include all.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GarbageReport {
    pub dry_run: bool,
    pub deleted: Vec<ExpiredSession>,
    /// Sessions newly marked as expired.
    pub marked: Vec<ExpiredSession>,
    /// Expired sessions that cannot be deleted yet.
    pub waiting: Vec<ExpiredSession>,
    /// Sessions that are no longer expired.
    pub unmarked: Vec<ExpiredSession>,
    pub counts: GarbageCounts,
    /// The result of the store's maintenance. Absent in older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<UpkeepReport>,
    /// What isolated agents changed in their homes. Absent in older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homes: Option<HomesReport>,
}

/// What isolated agents of sessions without a process changed in their homes.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HomesReport {
    pub bytes: u64,
    pub discarded: bool,
}

/// The result of the store's maintenance; for a dry run, what it would do.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpkeepReport {
    pub bytes_before: u64,
    /// Absent for a dry run: the size is only known afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_after: Option<u64>,
    pub deltas_removed: u64,
    pub messages_indexed: u64,
    /// Whether the maintenance is complete. If not, the daemon continues it by itself.
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
    /// When the session can be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletable_at: Option<Timestamp>,
    /// The number of waiting turns, which prevent the deletion.
    pub queued_turns: i64,
}

impl GarbageReport {
    pub fn new(sweep: registry::Sweep, store: UpkeepReport, homes: Option<HomesReport>, dry_run: bool) -> Self {
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
            homes,
        }
    }
}

impl From<registry::SweptSession> for ExpiredSession {
    fn from(session: registry::SweptSession) -> Self {
        let registry::SweptSession { id, title, status, expires_at, deletable_at, queued_turns } = session;
        Self { id, title, status, expires_at, deletable_at, queued_turns }
    }
}
