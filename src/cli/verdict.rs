//! What the end of a turn means for whoever waited for it.
//!
//! A turn is *denied* when the agent refused (its stop reason is `refusal`), or when the last thing that it was told was a
//! no and it neither said nor did anything after that. An agent that takes a no and finds another way, or explains
//! itself, has done its work.

use std::collections::HashSet;

use crate::model::TurnStatus;

use super::exit::Exit;
use super::render::Outcome;
use super::stream::Event;

/// A turn has far fewer; one that has more only ends with another code.
const QUESTIONS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Verdict {
    /// What the agent only wants to know: to decline that denies it nothing.
    elicitations: HashSet<String>,
    /// Nothing came of the agent since it was rejected.
    is_rejected: bool,
}

impl Verdict {
    pub fn event(&mut self, event: &Event) {
        let data = &event.data;
        let id = data["permissionId"].as_str().unwrap_or_default();
        match event.kind.as_str() {
            "permission.requested" if data["kind"] == "elicitation" && self.elicitations.len() < QUESTIONS_MAX => {
                self.elicitations.insert(id.to_owned());
            }
            "permission.resolved" if data["decision"] == "reject" && !self.elicitations.contains(id) => {
                self.is_rejected = true;
            }
            "permission.resolved" if data["decision"] == "allow" => self.is_rejected = false,
            "message.delta" => self.is_rejected = false,
            "message.created" if data["role"] == "agent" => self.is_rejected = false,
            "tool.started" => self.is_rejected = false,
            "tool.completed" if data["status"] == "completed" => self.is_rejected = false,
            _ => {}
        }
    }

    pub fn exit(&self, outcome: &Outcome) -> Exit {
        let is_refused = outcome.stop_reason.as_deref() == Some("refusal");
        match outcome.status {
            TurnStatus::Completed if is_refused || self.is_rejected => Exit::Denied,
            status => Exit::of_turn(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn exit(events: &[(&str, Value)], end: Value) -> Exit {
        let mut verdict = Verdict::default();
        for (kind, data) in events {
            verdict.event(&serde_json::from_value(json!({"type": kind, "data": data})).unwrap());
        }
        verdict.exit(&serde_json::from_value(end).unwrap())
    }

    #[test]
    fn a_turn_that_ends_with_a_no_is_denied() {
        let ended = || json!({"status": "completed", "stopReason": "end_turn"});
        let rejected = || ("permission.resolved", json!({"permissionId": "p", "decision": "reject"}));
        let failed = ("tool.completed", json!({"status": "failed"}));
        assert_eq!(exit(&[], ended()), Exit::Ok);
        assert_eq!(exit(&[], json!({"status": "completed", "stopReason": "refusal"})), Exit::Denied);
        assert_eq!(exit(&[rejected(), failed], ended()), Exit::Denied);
        assert_eq!(exit(&[rejected()], json!({"status": "cancelled"})), Exit::TurnCancelled);
        for after in [
            ("message.delta", json!({"text": "then not"})),
            ("message.created", json!({"role": "agent"})),
            ("tool.started", json!({})),
            ("permission.resolved", json!({"decision": "allow"})),
        ] {
            assert_eq!(exit(&[rejected(), after.clone()], ended()), Exit::Ok, "{after:?}");
        }
        let asked = ("permission.requested", json!({"permissionId": "p", "kind": "elicitation"}));
        assert_eq!(exit(&[asked, rejected()], ended()), Exit::Ok);
    }
}
