//! The JSON of the store: how it is, and copies of it.

use serde::{Deserialize, Serialize};

use crate::model::error::chain;
use crate::store::{BackedUp, Check, StoreHealth};

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreReport {
    /// Whether the last commit succeeded; for a health check, also its test write.
    pub writable: bool,
    pub short_of_space: bool,
    /// `clean`, `running`, `ok`, `damaged` or `failed`.
    pub check: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A backup to make.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackUp {
    pub path: String,
}

/// A finished backup.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    pub path: String,
    pub bytes: u64,
    pub duration_ms: u64,
    pub schema_version: i64,
}

impl From<&StoreHealth> for StoreReport {
    fn from(health: &StoreHealth) -> Self {
        let (check, found) = match &health.check {
            Check::Clean => ("clean", None),
            Check::Running => ("running", None),
            Check::Ok => ("ok", None),
            Check::Damaged { problem } => ("damaged", Some(problem.clone())),
            Check::Failed { problem } => ("failed", Some(problem.clone())),
        };
        Self {
            writable: health.is_writable,
            short_of_space: health.shortage.is_some(),
            check: check.to_owned(),
            // What can be put right at once comes first.
            problem: health.shortage.as_ref().map(|shortage| chain(shortage)).or(found),
        }
    }
}

impl From<BackedUp> for Backup {
    fn from(made: BackedUp) -> Self {
        let BackedUp { path, bytes, duration, schema_version } = made;
        let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { path: path.display().to_string(), bytes, duration_ms, schema_version }
    }
}
