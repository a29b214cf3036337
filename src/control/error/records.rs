//! Refusals of checkpoints and records.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, misreading};
use crate::model::record::validate::Invalid;

#[derive(Debug)]
pub enum RecordRefusal {
    NoSuchCheckpoint(String),
    NoSuchRecord(String),
    Invalid(Box<Invalid>),
    TooLarge { bytes: usize, max: usize },
}

pub fn answer(refusal: RecordRefusal) -> Answer {
    use StatusCode as S;
    match refusal {
        RecordRefusal::NoSuchCheckpoint(name) => {
            let message = format!("the session has no checkpoint {:?}", misreading::shortened(name));
            let hint = "list the checkpoints with `acpd checkpoint list` or GET /v1/sessions/{id}/checkpoints";
            Answer::new(S::NOT_FOUND, "checkpoint_not_found", message, hint)
        }
        RecordRefusal::NoSuchRecord(id) => {
            let message = format!("there is no session record {:?}", misreading::shortened(id));
            Answer::new(
                S::NOT_FOUND,
                "record_not_found",
                message,
                "list the session records with `acpd records` or GET /v1/records",
            )
        }
        RecordRefusal::Invalid(invalid) => {
            let Invalid { field, value, expected, message } = *invalid;
            let hint = "nothing was stored; GET /v1/openapi.json describes the fields of a session record";
            let details = json!({ "field": field, "value": value, "expected": expected, "message": message });
            Answer::new(S::UNPROCESSABLE_ENTITY, "schema_validation_failed", message, hint).details(details)
        }
        RecordRefusal::TooLarge { bytes, max } => {
            let message = format!("the session record has {bytes} bytes; the maximum is {max}");
            Answer::new(
                S::PAYLOAD_TOO_LARGE,
                "body_too_large",
                message,
                "leave details out, or raise limits.record_max",
            )
        }
    }
}

pub(super) fn checkpoint_exists(message: String, name: &str) -> Answer {
    let hint = "choose another name; checkpoints cannot be changed";
    Answer::new(StatusCode::CONFLICT, "checkpoint_exists", message, hint).details(json!({ "name": name }))
}

pub(super) fn checkpoint_limit(message: String, max: i64) -> Answer {
    let hint = "continue in a new session: POST /v1/sessions/{id}/checkpoints/{name}/restore with newSession";
    Answer::new(StatusCode::CONFLICT, "checkpoint_limit", message, hint).details(json!({ "max": max }))
}

pub(super) fn record_full(message: String, what: &str, max: i64) -> Answer {
    let hint = "submit it with another session_id, with fewer fields, or as another user";
    Answer::new(StatusCode::CONFLICT, "record_full", message, hint).details(json!({ "of": what, "max": max }))
}
