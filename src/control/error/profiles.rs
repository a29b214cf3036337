//! Refusals of agents that are made over the API.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, invalid_answer};
use crate::registry::ProfileRefusal;

pub fn answer(refusal: ProfileRefusal) -> Answer {
    use StatusCode as S;
    let message = refusal.to_string();
    match refusal {
        ProfileRefusal::Taken { slug } => {
            let hint = "choose another slug: each is one agent's in the whole daemon, also while that is archived";
            Answer::new(S::CONFLICT, "agent_exists", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::TooMany { max } => {
            let hint = "change one that is not used any more (PATCH /v1/agents/{slug}) in place of making another";
            Answer::new(S::CONFLICT, "agent_limit", message, hint).details(json!({ "max": max }))
        }
        ProfileRefusal::ReadOnly { slug } => {
            let hint = format!(
                "edit [agents.{slug}] in config.toml, or use `acpd agents add {slug}`; or make one that stands on it: \
                 `acpd agents create NAME --base {slug}`"
            );
            Answer::new(S::CONFLICT, "agent_read_only", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::Archived { slug } => {
            let hint = format!(
                "bring it back with `acpd agents edit {slug} --restore` or PATCH {{\"status\":\"active\"}}, or use another"
            );
            Answer::new(S::CONFLICT, "agent_archived", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::UnknownBase { known, .. } => {
            let hint = format!("a base is an agent of the configuration; there are {}", known.join(", "));
            Answer { hint, ..invalid_answer("base", message) }
        }
        ProfileRefusal::BaseGone { slug, base } => {
            let hint = format!(
                "put [agents.{base}] back into config.toml, or give it another base: `acpd agents edit {slug} --base NAME`"
            );
            Answer::new(S::CONFLICT, "agent_base_missing", message, hint)
                .details(json!({ "agent": slug, "base": base }))
        }
        ProfileRefusal::OwnCommand => {
            let hint = "give a base in place of the command, or ask whoever runs the daemon";
            Answer::new(S::FORBIDDEN, "root_only", message, hint)
        }
    }
}
