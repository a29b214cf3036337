//! The answer to a reload of a configuration that is not valid.

use axum::http::StatusCode;
use serde_json::json;

use super::Answer;
use crate::config::{ConfigError, Problem};

pub(super) fn invalid_answer(error: &ConfigError) -> Answer {
    let message = format!("the configuration is not valid, and nothing was changed: {}", error.in_one_line());
    let hint = match error.problems.as_slice() {
        [Problem { hint, .. }] => hint.clone(),
        _ => "correct these keys and reload again; `acpd doctor` explains each, `acpd config --default` has every key"
            .to_owned(),
    };
    let problems = error
        .problems
        .iter()
        .map(|Problem { key, message, hint }| json!({ "key": key, "message": message, "hint": hint }));
    let problems: Vec<_> = problems.collect();
    Answer::new(StatusCode::UNPROCESSABLE_ENTITY, "config_invalid", message, hint)
        .details(json!({ "problems": problems }))
}
