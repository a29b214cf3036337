//! Messages: the primary record. Append-only, numbered per session by the writer, never edited.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::id::{MessageId, SessionId, TurnId};
use super::peer::Peer;
use super::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Agent,
    ToolCall,
    ToolResult,
    System,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::User, Self::Agent, Self::ToolCall, Self::ToolResult, Self::System];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::System => "system",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            format!("{text:?} is not a message role; the roles are {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// A message of a session, also the data of the event `message.created`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(bound = "")]
pub struct Message<C = Box<RawValue>> {
    pub id: MessageId,
    pub session_id: SessionId,
    pub sequence: i64,
    pub turn_id: Option<TurnId>,
    pub role: Role,
    /// The content of the message.
    #[schema(value_type = Content)]
    pub content: C,
    pub tool_call_id: Option<String>,
    /// The agent's model at that time, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The client that added the message. For a prompt, the event `turn.queued` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Peer>,
    pub created_at: Timestamp,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text of the user or the agent. `partial` if the turn ended in the middle of it.
    Text {
        text: String,
        partial: bool,
    },
    /// The agent's reasoning, as far as the agent shows it.
    Thought {
        text: String,
        partial: bool,
    },
    /// ACP content blocks of a prompt or of the agent. A block has `size` and `sha256` instead of its data.
    Blocks {
        blocks: Vec<Value>,
    },
    Plan {
        steps: Vec<PlanStep>,
    },
    ToolCall {
        id: String,
        name: String,
        /// The agent's words for the call, if they are not the name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        kind: String,
        arguments: Value,
        /// The files that the call works on, as far as the agent says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<String>,
    },
    ToolResult {
        status: String,
        /// What the agent shows of the result, or else its raw output.
        result: Value,
        /// The raw output, if it is a JSON object or array and `result` is something else.
        #[serde(default, rename = "rawOutput", skip_serializing_if = "Option::is_none")]
        raw_output: Option<Value>,
        /// Why the call failed or did not end.
        error: Option<String>,
    },
    /// A notice from acpd.
    Notice {
        code: String,
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlanStep {
    pub content: String,
    pub priority: String,
    pub status: String,
}

impl Content {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), partial: false }
    }

    /// A tool call in one line: the tool's name, and the agent's words if they are not the name.
    pub fn tool_label(name: &str, title: Option<&str>) -> String {
        title.map_or_else(|| name.to_owned(), |title| format!("{name}: {title}"))
    }

    pub fn notice(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Notice { code: code.into(), text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_has_the_contracts_json() {
        let contents = [
            Content::text("hello"),
            Content::Thought { text: "hm".into(), partial: true },
            Content::Plan {
                steps: vec![PlanStep { content: "look".into(), priority: "high".into(), status: "pending".into() }],
            },
            Content::ToolCall {
                id: "call-1".into(),
                name: "read_file".into(),
                title: None,
                kind: "read".into(),
                arguments: json!({"path": "a.txt"}),
                locations: Vec::new(),
            },
            Content::ToolResult { status: "completed".into(), result: json!(["x"]), raw_output: None, error: None },
            Content::notice("agent_exited", "the agent exited"),
        ];
        insta::assert_json_snapshot!(contents);
    }
}
