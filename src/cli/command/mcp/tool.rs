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
                "Submit a record of your work in this session, for people and for later sessions: the actions you took, their \
                 results and their outcomes. Call it when a piece of work is done. Every call adds an observation, and the latest \
                 value of each field counts."
            }
            Self::QueryAgentHistory => {
                "List the records of earlier agent sessions of the same user, newest first, with actions, outcomes and \
                 checkpoints. Use it to find out what happened before this session."
            }
            Self::QueryEntityTimeline => {
                "List the history of one entity across sessions, oldest first: starts and ends of sessions, checkpoints, and \
                 outcomes that name the entity. An entity is a session, by its id, or anything that outcomes name by an id, such \
                 as a file, a ticket or a pull request."
            }
            Self::CreateCheckpoint => {
                "Save a named checkpoint of this session: what is done, what is left, and everything that a later session needs to \
                 continue without this conversation. A checkpoint outlives the session and never changes. Its name is unique \
                 within the session."
            }
            Self::RestoreCheckpoint => {
                "Get the state of a checkpoint by its name: this session's, or else the newest checkpoint of that name from any \
                 earlier session in the same workspace. It only returns the state and changes nothing."
            }
        }
    }

    fn schema(self) -> Value {
        match self {
            Self::SubmitAgentSession => submission(),
            Self::QueryAgentHistory => object(
                &json!({
                    "session_id": {"type": "string", "description": "Get the record of this session instead of a list"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10,
                        "description": "Maximum number of entries"},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Number of entries to skip"},
                    "order_by": {"type": "string", "default": "started_at", "enum": ["started_at", "ended_at", "duration",
                        "session_id", "observation_count", "last_observed_at"]},
                    "order": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
                }),
                &[],
            ),
            Self::QueryEntityTimeline => object(
                &json!({
                    "entity_id": {"type": "string", "description": "Id of a session, or an id that outcomes name"},
                    "start_date": {"type": "string", "description": "Only entries from this day or time on (2026-01-31)"},
                    "end_date": {"type": "string", "description": "Only entries up to and including this day or time"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50,
                        "description": "Maximum number of entries"},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Number of entries to skip"},
                }),
                &["entity_id"],
            ),
            Self::CreateCheckpoint => object(
                &json!({
                    "name": {"type": "string", "description": "Short name to restore it by, such as tests-green"},
                    "state": {"description": "Everything needed to continue: any JSON, usually an object"},
                }),
                &["name"],
            ),
            Self::RestoreCheckpoint => object(
                &json!({
                    "name": {"type": "string", "description": "Name of the checkpoint"},
                    "session_id": {"type": "string", "description": "Session of the checkpoint, if it is not this session's or \
                        the newest of that name"},
                }),
                &["name"],
            ),
        }
    }
}

fn submission() -> Value {
    let action = object(
        &json!({
            "type": {"type": "string", "description": "Kind of action, such as edit, test, research"},
            "result": {"type": "string", "description": "Result: success, failure, warning, or another word"},
            "details": {"type": "object", "description": "Details worth knowing"},
            "timestamp": time("Time of the action"),
        }),
        &["type", "result"],
    );
    let outcome = object(
        &json!({
            "type": {"type": "string", "description": "Kind of outcome, such as file, pull_request, decision"},
            "id": {"type": "string", "description": "Id of the outcome, also used by the timeline"},
            "details": {"type": "object", "description": "Details worth knowing"},
        }),
        &["type"],
    );
    let checkpoint = object(
        &json!({"name": {"type": "string"}, "timestamp": time("Time of the checkpoint"), "state": {"type": "object"}}),
        &["name", "timestamp"],
    );
    object(
        &json!({
            "actions": {"type": "array", "minItems": 1, "items": action, "description": "Actions you took, in order"},
            "outcomes": {"type": "array", "items": outcome, "description": "Outcomes of the work"},
            "checkpoints": {"type": "array", "items": checkpoint,
                "description": "Milestones you reached; create_checkpoint saves one that can be restored"},
            "started_at": time("Start of the work"),
            "ended_at": time("End of the work, not before its start"),
            "duration": {"type": "number", "exclusiveMinimum": 0, "description": "Duration in seconds"},
            "session_id": {"type": "string", "minLength": 5, "description": "Name of the record [default: this session]"},
        }),
        &["actions", "started_at"],
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
