//! Users by their names, where this machine knows them.

use nix::unistd::{Uid, User};
use serde_json::Value;

use crate::model::Peer;
use crate::model::permission::question::Decider;

/// The account's name, or `uid 1001` for a user without an account here.
pub fn name(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Who or what answered a permission request.
pub fn decided_by(by: &Decider) -> String {
    match by {
        Decider::Person(Peer { uid, program: Some(program), .. }) => format!("{} with {program}", name(*uid)),
        Decider::Person(Peer { uid, program: None, .. }) => name(*uid),
        Decider::Policy { rule } => policy(rule),
        Decider::Cancelled { reason } => reason.clone(),
        Decider::Timeout => by.to_string(),
    }
}

/// How the rule begins if the answer to another request of the turn allows this one too. The id of that request follows.
pub const EARLIER_ANSWER: &str = "permission ";

/// `session mode edit` is the session's permission mode edit.
fn policy(rule: &str) -> String {
    match rule.split_once(' ') {
        _ if rule.starts_with(EARLIER_ANSWER) => "an earlier answer".to_owned(),
        Some((whose @ ("base" | "profile" | "session"), what)) => {
            let kind = if what.starts_with("mode ") { "permission " } else { "" };
            format!("the {whose}'s {kind}{what}")
        }
        _ => rule.to_owned(),
    }
}

/// The same, of an event. Old logs have words for it and nothing else.
pub fn decided_by_of(data: &Value) -> String {
    let by = serde_json::from_value::<Decider>(data["by"].clone()).ok();
    by.map_or_else(|| data["decidedBy"].as_str().unwrap_or_default().to_owned(), |by| decided_by(&by))
}
