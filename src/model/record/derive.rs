//! The record of one of acpd's own sessions: derived from its turns and tool calls, with its checkpoints and what was
//! submitted for it. It follows from the record alone, without a look at the clock.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{listed, time};
use crate::model::TurnId;
use crate::model::checkpoint::Checkpoint;
use crate::model::session::Session;
use crate::model::status::SessionStatus;
use crate::model::time::Timestamp;
use crate::model::turn::{Turn, TurnStatus};

/// Actions in a derived record; the newest are kept.
pub const ACTIONS_MAX: usize = 1000;
/// Bytes of all states in a derived record together. Those of older checkpoints are left out.
const STATES_BYTES_MAX: usize = 1 << 20;
/// Bytes of a tool's arguments, and characters of an error, that are told.
pub const ARGUMENTS_BYTES_MAX: usize = 2048;
pub const ERROR_CHARS_MAX: usize = 1000;

/// A tool call as the messages tell it.
#[derive(Clone, Debug)]
pub struct ToolUse {
    pub turn: Option<TurnId>,
    pub id: String,
    pub name: String,
    pub kind: String,
    /// As JSON; nothing when they are too long to be told.
    pub arguments: Option<Value>,
    /// Nothing: it never ended.
    pub status: Option<String>,
    pub error: Option<String>,
    /// When it ended, or began.
    pub at: Timestamp,
}

/// What a record is derived from. Turns and tools are the newest, in order.
#[derive(Debug)]
pub struct Sources {
    pub turns: Vec<Turn>,
    pub tools: Vec<ToolUse>,
    pub checkpoints: Vec<Checkpoint>,
    /// The snapshot of what was submitted.
    pub submitted: Map<String, Value>,
    /// Whether there was more than this.
    pub is_cut: bool,
}

/// When the session was over, if it is. One that can go on has no end. A change of status is an update too; only the import of
/// a session that was over before is later than that, and not its end.
pub fn ended_at(session: &Session) -> Option<Timestamp> {
    match session.status {
        SessionStatus::Active | SessionStatus::Suspended => None,
        SessionStatus::Archived | SessionStatus::Error => Some(session.status_changed_at.min(session.updated_at)),
    }
}

/// The whole record. What was submitted adds to the lists, and has the last word on fields that acpd does not know.
pub fn record(session: &Session, sources: &Sources) -> Map<String, Value> {
    let mut is_cut = sources.is_cut;
    let mut actions: Vec<Value> = sources.tools.iter().map(tool_action).collect();
    actions.extend(sources.turns.iter().filter_map(turn_action));
    add(&mut actions, listed(&sources.submitted, "actions"));
    if actions.is_empty() {
        // The format requires at least one action.
        actions.push(json!({ "type": "session_start", "result": "success", "timestamp": session.created_at }));
    }
    is_cut |= keep_newest(&mut actions);
    let mut checkpoints = own_checkpoints(&sources.checkpoints, &mut is_cut);
    add(&mut checkpoints, listed(&sources.submitted, "checkpoints"));
    let ended = ended_at(session);
    let until = ended.unwrap_or(session.last_active_at);
    let mut record = sources.submitted.clone();
    let own = [
        ("session_id", json!(session.id)),
        ("actions", Value::Array(actions)),
        ("checkpoints", Value::Array(checkpoints)),
        ("outcomes", Value::Array(listed(&sources.submitted, "outcomes").to_vec())),
        ("duration", json!(Some(until.since(session.created_at).as_secs_f64()).filter(|seconds| *seconds > 0.0))),
        ("started_at", json!(session.created_at)),
        ("ended_at", json!(ended)),
        ("truncated", json!(is_cut)),
    ];
    record.extend(own.map(|(field, value)| (field.to_owned(), value)));
    record
}

/// What is submitted may be what was derived before.
fn add(own: &mut Vec<Value>, submitted: &[Value]) {
    let known: HashSet<String> = own.iter().map(Value::to_string).collect();
    own.extend(submitted.iter().filter(|value| !known.contains(&value.to_string())).cloned());
}

/// In order of time, those without a time last, and no more than fit. Whether some did not.
fn keep_newest(actions: &mut Vec<Value>) -> bool {
    let at = |action: &Value| time(action.get("timestamp")).map_or(i64::MAX, Timestamp::as_millis);
    actions.sort_by_cached_key(at);
    let surplus = actions.len().saturating_sub(ACTIONS_MAX);
    actions.drain(..surplus);
    surplus > 0
}

fn own_checkpoints(checkpoints: &[Checkpoint], is_cut: &mut bool) -> Vec<Value> {
    let mut room = STATES_BYTES_MAX;
    let mut shown = Vec::with_capacity(checkpoints.len());
    for checkpoint in checkpoints.iter().rev() {
        let mut value = json!({ "name": checkpoint.name, "timestamp": checkpoint.created_at });
        let state = checkpoint.state.get();
        match room.checked_sub(state.len()) {
            Some(left) => {
                room = left;
                // The format requires an object.
                let state: Value = serde_json::from_str(state).unwrap_or_default();
                value["state"] = if state.is_object() || state.is_null() { state } else { json!({ "value": state }) };
            }
            None => *is_cut = true,
        }
        shown.push(value);
    }
    shown.reverse();
    shown
}

/// A turn that is over. One that was cut off has not failed, but has not done what was asked either; the same goes for one
/// that the agent ended for another reason than that it was done.
fn turn_action(turn: &Turn) -> Option<Value> {
    let result = match turn.status {
        TurnStatus::Queued | TurnStatus::Running => return None,
        TurnStatus::Completed if turn.stop_reason.as_deref().is_none_or(|reason| reason == "end_turn") => "success",
        TurnStatus::Completed | TurnStatus::Cancelled | TurnStatus::Interrupted => "warning",
        TurnStatus::Failed => "failure",
    };
    let mut details = json!({ "turn_id": turn.id, "status": turn.status });
    if let Some(reason) = &turn.stop_reason {
        details["stop_reason"] = json!(reason);
    }
    if let Some(error) = &turn.error {
        details["error"] = json!({ "code": error.code, "message": shortened(&error.message) });
    }
    let at = turn.finished_at.unwrap_or(turn.queued_at);
    Some(json!({ "type": "turn", "result": result, "details": details, "timestamp": at }))
}

/// A call that did not end is neither: nobody knows what it did.
fn tool_action(tool: &ToolUse) -> Value {
    let result = match tool.status.as_deref() {
        Some("completed") => "success",
        Some("failed") => "failure",
        Some(_) | None => "warning",
    };
    let mut details = json!({ "tool_call_id": tool.id, "name": tool.name, "kind": tool.kind });
    let optional = [
        ("turn_id", tool.turn.map(|turn| json!(turn))),
        ("status", tool.status.as_ref().map(|status| json!(status))),
        ("arguments", tool.arguments.clone().filter(|arguments| !arguments.is_null())),
        ("error", tool.error.as_deref().map(|error| json!(shortened(error)))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            details[name] = value;
        }
    }
    json!({ "type": "tool_call", "result": result, "details": details, "timestamp": tool.at })
}

fn shortened(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    fn turn(status: TurnStatus, stop_reason: Option<&str>) -> Turn {
        Turn {
            id: TurnId::new(),
            session_id: SessionId::new(),
            status,
            stop_reason: stop_reason.map(str::to_owned),
            error: None,
            usage: None,
            queued_at: Timestamp::from_millis(1000),
            started_at: None,
            finished_at: Some(Timestamp::from_millis(2000)),
        }
    }

    fn tool(status: Option<&str>) -> ToolUse {
        ToolUse {
            turn: None,
            id: "call-1".to_owned(),
            name: "read".to_owned(),
            kind: "read".to_owned(),
            arguments: None,
            status: status.map(str::to_owned),
            error: None,
            at: Timestamp::from_millis(1500),
        }
    }

    #[test]
    fn every_status_has_its_result() {
        let of_turn = |status, reason| turn_action(&turn(status, reason)).map(|action| action["result"].clone());
        assert_eq!(of_turn(TurnStatus::Queued, None), None);
        assert_eq!(of_turn(TurnStatus::Running, None), None);
        assert_eq!(of_turn(TurnStatus::Completed, Some("end_turn")), Some(json!("success")));
        assert_eq!(of_turn(TurnStatus::Completed, Some("max_tokens")), Some(json!("warning")));
        assert_eq!(of_turn(TurnStatus::Completed, Some("refusal")), Some(json!("warning")));
        assert_eq!(of_turn(TurnStatus::Failed, None), Some(json!("failure")));
        assert_eq!(of_turn(TurnStatus::Cancelled, Some("cancelled")), Some(json!("warning")));
        assert_eq!(of_turn(TurnStatus::Interrupted, None), Some(json!("warning")));
        let of_tool = |status| tool_action(&tool(status))["result"].clone();
        assert_eq!([of_tool(Some("completed")), of_tool(Some("failed"))], [json!("success"), json!("failure")]);
        assert_eq!([of_tool(Some("in_progress")), of_tool(None)], [json!("warning"), json!("warning")]);
    }

    #[test]
    fn actions_are_in_order_and_the_newest_are_kept() {
        let mut actions: Vec<Value> = (0..ACTIONS_MAX + 2)
            .rev()
            .map(|index| json!({ "type": "t", "timestamp": Timestamp::from_millis(i64::try_from(index).unwrap()) }))
            .collect();
        assert!(keep_newest(&mut actions));
        assert_eq!(actions.len(), ACTIONS_MAX);
        assert_eq!(actions[0]["timestamp"], json!(Timestamp::from_millis(2)));
        let mut few = vec![json!({"type": "late"}), json!({"type": "t", "timestamp": "2026-01-01T00:00:00Z"})];
        assert!(!keep_newest(&mut few));
        assert_eq!(few[1]["type"], "late", "what has no time comes last");
    }

    #[test]
    fn what_is_submitted_again_is_not_there_twice() {
        let mut own = vec![json!({"type": "a"})];
        add(&mut own, &[json!({"type": "a"}), json!({"type": "b"})]);
        assert_eq!(own, [json!({"type": "a"}), json!({"type": "b"})]);
    }
}
