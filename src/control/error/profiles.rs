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
            let hint = "choose another slug; archived agents keep theirs";
            Answer::new(S::CONFLICT, "agent_exists", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::TooMany { max } => {
            let hint = "change an agent that is no longer used (PATCH /v1/agents/{slug}) instead of creating another";
            Answer::new(S::CONFLICT, "agent_limit", message, hint).details(json!({ "max": max }))
        }
        ProfileRefusal::ReadOnly { slug } => {
            let hint = format!(
                "edit [agents.{slug}] in config.toml, or use `acpd agents add {slug}`; or create an agent based on \
                    it: `acpd agents create NAME --base {slug}`"
            );
            Answer::new(S::CONFLICT, "agent_read_only", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::Archived { slug } => {
            let hint = format!(
                "restore it with `acpd agents edit {slug} --restore` or PATCH {{\"status\":\"active\"}}, or use \
                    another agent"
            );
            Answer::new(S::CONFLICT, "agent_archived", message, hint).details(json!({ "agent": slug }))
        }
        ProfileRefusal::UnknownBase { known, .. } => {
            let hint = format!("the base must be an agent from the configuration: {}", known.join(", "));
            Answer { hint, ..invalid_answer("base", message) }
        }
        ProfileRefusal::BaseGone { slug, base } => {
            let hint = format!(
                "put [agents.{base}] back into config.toml, or choose another base: `acpd agents edit {slug} --base \
                    NAME`"
            );
            Answer::new(S::CONFLICT, "agent_base_missing", message, hint)
                .details(json!({ "agent": slug, "base": base }))
        }
        ProfileRefusal::OwnCommand => {
            let hint = "give a base instead of a command, or ask the administrator of the daemon to add the agent";
            Answer::new(S::FORBIDDEN, "root_only", message, hint)
        }
    }
}
