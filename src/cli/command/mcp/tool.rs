//! The tools as a model is told of them.

use std::sync::Arc;

use rmcp::model::{Tool as Described, ToolAnnotations};
use serde_json::{Value, json};

/// What an agent can do with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    SubmitAgentSession,
    QueryAgentHistory,
    QueryEntityTimeline,
    CreateCheckpoint,
    RestoreCheckpoint,
}

impl Tool {
    pub const ALL: [Self; 5] = [
        Self::SubmitAgentSession,
        Self::QueryAgentHistory,
        Self::QueryEntityTimeline,
        Self::CreateCheckpoint,
        Self::RestoreCheckpoint,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::SubmitAgentSession => "submit_agent_session",
            Self::QueryAgentHistory => "query_agent_history",
            Self::QueryEntityTimeline => "query_entity_timeline",
            Self::CreateCheckpoint => "create_checkpoint",
            Self::RestoreCheckpoint => "restore_checkpoint",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub fn described(self) -> Described {
        let Value::Object(schema) = self.schema() else { return Described::default() };
        let annotations = ToolAnnotations::new().read_only(self.is_read_only()).destructive(false).open_world(false);
        Described::new(self.name(), self.description(), Arc::new(schema)).with_annotations(annotations)
    }

    const fn is_read_only(self) -> bool {
        match self {
            Self::SubmitAgentSession | Self::CreateCheckpoint => false,
            Self::QueryAgentHistory | Self::QueryEntityTimeline | Self::RestoreCheckpoint => true,
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::SubmitAgentSession => {
                "Record what you did in this session, for people and for later sessions: the actions you took and how each ended, \
                 and what came of them. Call it when a piece of work is done; every call adds an observation, and of each field \
                 the latest counts."
            }
            Self::QueryAgentHistory => {
                "List the records of earlier agent sessions of the same user, the newest first: what was done, how it ended, \
                 which checkpoints there are. Use it to find out what happened before you were asked."
            }
            Self::QueryEntityTimeline => {
                "List in order of time what happened to one entity, across sessions: starts and ends of sessions, checkpoints, \
                 and outcomes that name it. An entity is a session, by its id, or whatever outcomes name as their id, such as a \
                 file, a ticket or a pull request."
            }
            Self::CreateCheckpoint => {
                "Save a named checkpoint of this session: what is done, what is left, and all that you or a successor needs to go \
                 on from here without this conversation. It outlives the session, and is never changed: a name is used once in a \
                 session."
            }
            Self::RestoreCheckpoint => {
                "Get the state that was saved under a checkpoint's name: of this session, or else the newest of that name in the \
                 same workspace, of any earlier session. It only returns the state; nothing is changed by it."
            }
        }
    }

    fn schema(self) -> Value {
        match self {
            Self::SubmitAgentSession => submission(),
            Self::QueryAgentHistory => object(
                &json!({
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10,
                        "description": "How many at the most"},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "How many are passed over"},
                    "order_by": {"type": "string", "default": "started_at", "enum": ["started_at", "ended_at", "duration",
                        "session_id", "observation_count", "last_observed_at"]},
                    "order": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
                }),
                &[],
            ),
            Self::QueryEntityTimeline => object(
                &json!({
                    "entity": {"type": "string", "description": "The id of a session, or an id that outcomes name"},
                    "from": time("Nothing before this time"),
                    "to": time("Nothing after this time"),
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50,
                        "description": "How many at the most"},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "How many are passed over"},
                }),
                &["entity"],
            ),
            Self::CreateCheckpoint => object(
                &json!({
                    "name": {"type": "string", "description": "A short name by which it is found again, such as tests-green"},
                    "state": {"description": "Whatever is needed to go on: any JSON, an object as a rule"},
                }),
                &["name"],
            ),
            Self::RestoreCheckpoint => object(
                &json!({
                    "name": {"type": "string", "description": "The name that it was saved under"},
                    "session_id": {"type": "string", "description": "Whose checkpoint, when it is not this session's or the \
                        newest of that name"},
                }),
                &["name"],
            ),
        }
    }
}

fn submission() -> Value {
    let action = object(
        &json!({
            "type": {"type": "string", "description": "What kind of thing you did, such as edit, test, research"},
            "result": {"type": "string", "description": "How it ended: success, failure, warning, or a word of your own"},
            "details": {"description": "What is worth knowing about it"},
            "timestamp": time("When it was"),
        }),
        &["type", "result"],
    );
    let outcome = object(
        &json!({
            "type": {"type": "string", "description": "What kind of thing came of it, such as file, pull_request, decision"},
            "id": {"type": "string", "description": "By which it is found again, in a timeline too"},
            "details": {"description": "What is worth knowing about it"},
        }),
        &["type"],
    );
    let checkpoint = object(
        &json!({"name": {"type": "string"}, "timestamp": time("When it was"), "state": {}}),
        &["name", "timestamp"],
    );
    object(
        &json!({
            "actions": {"type": "array", "minItems": 1, "items": action, "description": "What you did, in order"},
            "outcomes": {"type": "array", "items": outcome, "description": "What came of it"},
            "checkpoints": {"type": "array", "items": checkpoint,
                "description": "Points that you passed; create_checkpoint saves one that can be restored"},
            "started_at": time("When the work began"),
            "ended_at": time("When it ended; not before it began"),
            "duration": {"type": "number", "exclusiveMinimum": 0, "description": "How long it took, in seconds"},
            "session_id": {"type": "string", "description": "Your own session's, which it is without a word"},
        }),
        &["actions"],
    )
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": format!("{description} (RFC 3339)")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_tells_what_it_is_for_and_what_it_takes() {
        for tool in Tool::ALL {
            let described = tool.described();
            assert_eq!(Tool::named(&described.name), Some(tool));
            assert!(described.description.is_some_and(|text| text.len() > 80), "{tool:?}");
            let schema = &described.input_schema;
            let required = schema["required"].as_array().unwrap();
            assert!(required.iter().all(|name| schema["properties"].get(name.as_str().unwrap()).is_some()), "{tool:?}");
        }
        assert_eq!(Tool::named("acpd_serve"), None);
    }
}
