//! Errors of the store as answers.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, OVERLOAD_WAIT, bounds};
use crate::model::error::chain;
use crate::store::{BackupError, DAMAGED_HINT, Fault, SEARCHES_PER_USER_MAX, SearchError, StoreError};

pub fn store_answer(error: &StoreError) -> Answer {
    use StatusCode as S;
    let (message, hint) = (chain(error), error.hint());
    match error.fault() {
        Fault::Full => {
            let details = match error {
                StoreError::ShortOfSpace { directory, free, wanted, .. } => {
                    json!({ "directory": directory, "freeBytes": free, "wantedBytes": wanted })
                }
                _ => json!({}),
            };
            Answer::new(S::INSUFFICIENT_STORAGE, "insufficient_storage", message, hint).details(details)
        }
        Fault::Damaged => {
            tracing::error!(error = error as &dyn std::error::Error, "the database is damaged");
            Answer::new(S::INTERNAL_SERVER_ERROR, "store_damaged", message, DAMAGED_HINT)
        }
        Fault::Other if matches!(error, StoreError::Damaged { .. }) => {
            tracing::error!(error = error as &dyn std::error::Error, "a stored row is damaged");
            Answer::new(S::INTERNAL_SERVER_ERROR, "record_damaged", message, hint)
        }
        Fault::Locked | Fault::Forbidden | Fault::Disk | Fault::Other => {
            tracing::error!(error = error as &dyn std::error::Error, "a request failed");
            Answer::new(S::INTERNAL_SERVER_ERROR, "internal", message, hint)
        }
    }
}

pub fn search_answer(error: &SearchError) -> Answer {
    use StatusCode as S;
    match error {
        SearchError::TooBroad => {
            let hint = "narrow the search: use longer or fewer prefixes, fewer alternatives, or rarer words";
            Answer::new(S::BAD_REQUEST, "invalid_request", format!("q: {error}"), hint).details(json!({ "field": "q" }))
        }
        SearchError::Busy => bounds::overloaded(error.to_string()),
        SearchError::TooMany => {
            let hint = "wait until one of them ends, then try again";
            Answer::new(S::TOO_MANY_REQUESTS, "too_many_searches", error.to_string(), hint)
                .details(json!({ "max": SEARCHES_PER_USER_MAX }))
                .retry_after(OVERLOAD_WAIT)
        }
        SearchError::Store(error) => store_answer(error),
    }
}

pub fn backup_answer(error: BackupError) -> Answer {
    use StatusCode as S;
    let message = chain(&error);
    match error {
        BackupError::NotAFile(_) => {
            let hint = "give the absolute path of the file to create";
            Answer::new(S::BAD_REQUEST, "invalid_request", format!("path: {message}"), hint)
                .details(json!({ "field": "path" }))
        }
        BackupError::Directory { .. } => {
            let hint = "the directory must exist, and the daemon's user must be able to write to it";
            Answer::new(S::BAD_REQUEST, "invalid_request", format!("path: {message}"), hint)
                .details(json!({ "field": "path" }))
        }
        BackupError::Exists(_) => {
            Answer::new(S::CONFLICT, "file_exists", message, "choose another name, or move the existing file")
        }
        BackupError::Busy => Answer::new(S::CONFLICT, "backup_running", message, "wait until it ends"),
        BackupError::NoSpace { directory, needed, free } => {
            let hint = "free some space there, or write the backup to another disk";
            Answer::new(S::INSUFFICIENT_STORAGE, "insufficient_storage", message, hint)
                .details(json!({ "directory": directory, "freeBytes": free, "wantedBytes": needed }))
        }
        BackupError::Abandoned => {
            let hint = "try again when the daemon is running";
            Answer::new(S::SERVICE_UNAVAILABLE, "shutting_down", message, hint).retry_after(OVERLOAD_WAIT)
        }
        BackupError::Unsound(_) => {
            tracing::error!(message, "a backup of the database is damaged");
            Answer::new(S::INTERNAL_SERVER_ERROR, "store_damaged", message, DAMAGED_HINT)
        }
        BackupError::Store(error) => store_answer(&error),
    }
}
