//! What we understand of `session/update`.
//!
//! Text chunks, which are nearly all of the traffic, are read without copying anything but their text. The rest is read
//! through the schema's types, which are strict in places; where they refuse, the update is [`Update::Other`] and its
//! own JSON is kept. So an unknown update is never dropped and never fatal.

use std::borrow::Cow;

use agent_client_protocol_schema::v1 as schema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{content, usage};
use crate::model::Adapter;
use crate::model::message::PlanStep;

/// The parameters of `session/update`.
#[derive(Deserialize)]
pub struct UpdateParams<'a> {
    #[serde(rename = "sessionId", borrow)]
    pub session_id: Cow<'a, str>,
    #[serde(borrow)]
    pub update: &'a RawValue,
}

#[derive(Debug, PartialEq)]
pub enum Update<'a> {
    AgentText {
        text: Cow<'a, str>,
    },
    AgentThought {
        text: Cow<'a, str>,
    },
    /// An image, a sound or a resource of the agent's: anything but text.
    AgentBlock(Value),
    ToolCall(Box<ToolCall>),
    Plan(Vec<PlanStep>),
    Usage(usage::Told),
    /// What can be chosen of the agent, or is chosen now.
    Choices,
    /// Whatever else there is, or will be.
    Other,
}

/// A tool call or a change to one; what is absent is unchanged.
#[derive(Debug, Default, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: Option<String>,
    pub title: Option<String>,
    pub kind: Option<String>,
    pub status: Option<String>,
    pub raw_input: Option<Value>,
    pub raw_output: Option<Value>,
    pub content: Option<Value>,
    /// The files that it touches.
    pub locations: Option<Vec<String>>,
}

impl ToolCall {
    pub fn is_final(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed" | "failed"))
    }

    /// Adds the name and the input where an agent gives them only in other fields.
    pub fn completed_by(mut self, adapter: Adapter) -> Self {
        if adapter.quirks().tools_named_in_ids {
            self.name = self.name.or_else(|| adapter.tool_named_in(&self.id).map(str::to_owned));
            self.raw_input = self.raw_input.take().or_else(|| self.input_shown());
        }
        self
    }

    /// The input as far as other fields give it: a command as the title, a JSON object as the text before the call runs, or paths.
    fn input_shown(&self) -> Option<Value> {
        if self.kind.as_deref() == Some("execute") {
            return self.title.as_ref().map(|title| json!({ "command": title }));
        }
        let mut texts = self.texts().filter(|_| !self.is_final());
        let shown = texts.find_map(|text| serde_json::from_str(text).ok().filter(Value::is_object));
        shown.or_else(|| match self.paths().as_slice() {
            [] => None,
            [path] => Some(json!({ "path": path })),
            paths => Some(json!({ "paths": paths })),
        })
    }

    /// The files that the call says it works on, or shows as changed.
    pub fn paths(&self) -> Vec<String> {
        let diffs = self.items().filter(|item| item["type"] == "diff").filter_map(|item| item["path"].as_str());
        let mut paths: Vec<String> = self.locations.iter().flatten().cloned().chain(diffs.map(str::to_owned)).collect();
        paths.dedup();
        paths
    }

    /// Why a call failed, in the agent's words.
    pub fn failure(&self) -> String {
        let shown = self.texts().collect::<Vec<_>>().join("\n");
        match &self.raw_output {
            _ if !shown.is_empty() => shown,
            None => "the agent gave no reason".to_owned(),
            Some(raw) => raw["error"].as_str().or(raw.as_str()).map_or_else(|| raw.to_string(), str::to_owned),
        }
    }

    /// The texts that the call shows.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.items().filter_map(|item| item["content"]["text"].as_str())
    }

    fn items(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().filter_map(Value::as_array).flatten()
    }
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "sessionUpdate", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    content: TextBlock<'a>,
}

#[derive(Deserialize)]
struct TextBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl<'a> Update<'a> {
    pub fn read(raw: &'a RawValue) -> Self {
        let Some(kind) = kind_of(raw) else { return Self::Other };
        let understood = match kind.as_ref() {
            "agent_message_chunk" => {
                text(raw).map(|text| Self::AgentText { text }).or_else(|| block(raw).map(Self::AgentBlock))
            }
            "agent_thought_chunk" => text(raw).map(|text| Self::AgentThought { text }),
            "tool_call" | "tool_call_update" => tool_call(raw).map(|call| Self::ToolCall(Box::new(call))),
            "plan" => plan(raw).map(Self::Plan),
            "usage_update" => Some(Self::Usage(usage::update(raw))),
            "current_mode_update" | "config_option_update" | COMMANDS => Some(Self::Choices),
            _ => None,
        };
        understood.unwrap_or(Self::Other)
    }
}

/// The update that names the commands an agent has.
pub const COMMANDS: &str = "available_commands_update";

/// Whether an update of this kind tells of the conversation itself, and not of the agent's state. When a conversation is
/// taken up again, such updates repeat what is known already.
pub fn is_conversation(raw: &RawValue) -> bool {
    let kinds =
        ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];
    kind_of(raw).is_some_and(|kind| kinds.contains(&kind.as_ref()))
}

/// The name of an update's kind, when it has one.
pub fn kind_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Kind<'_>>(raw.get()).map(|kind| kind.kind).ok()
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let Chunk { content } = serde_json::from_str::<Chunk<'_>>(raw.get()).ok()?;
    (content.kind == "text").then_some(content.text)
}

/// What an agent says that is not text.
fn block(raw: &RawValue) -> Option<Value> {
    #[derive(Deserialize)]
    struct Chunk {
        content: Value,
    }
    let Chunk { content } = serde_json::from_str::<Chunk>(raw.get()).ok()?;
    content::is_sound(&content).then_some(content)
}

/// Both kinds of tool update are read as a change: `tool_call` is only the first of them, and some agents never send it.
fn tool_call(raw: &RawValue) -> Option<ToolCall> {
    let update: schema::ToolCallUpdate = serde_json::from_str(raw.get()).ok()?;
    Some(from_schema(&update))
}

/// The schema's tool call as ours. Its enums are open-ended, so names come from their own serialization.
pub fn from_schema(update: &schema::ToolCallUpdate) -> ToolCall {
    let fields = &update.fields;
    ToolCall {
        id: update.tool_call_id.0.to_string(),
        name: fields.name.clone(),
        title: fields.title.clone(),
        kind: fields.kind.as_ref().and_then(name_of),
        status: fields.status.as_ref().and_then(name_of),
        raw_input: fields.raw_input.clone(),
        raw_output: fields.raw_output.clone(),
        content: fields.content.as_ref().and_then(|content| serde_json::to_value(content).ok()),
        locations: fields
            .locations
            .as_ref()
            .map(|locations| locations.iter().map(|location| location.path.to_string_lossy().into_owned()).collect()),
    }
}

fn plan(raw: &RawValue) -> Option<Vec<PlanStep>> {
    let plan: schema::Plan = serde_json::from_str(raw.get()).ok()?;
    let step = |entry: &schema::PlanEntry| {
        Some(PlanStep {
            content: entry.content.clone(),
            priority: name_of(&entry.priority)?,
            status: name_of(&entry.status)?,
        })
    };
    plan.entries.iter().map(step).collect()
}

fn name_of<T: serde::Serialize>(value: &T) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => Some(name),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn text_is_read_with_and_without_escapes() {
        let plain = raw(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
        assert!(matches!(Update::read(&plain), Update::AgentText { text: Cow::Borrowed("hi") }));
        let escaped = raw(r#"{"content":{"text":"a\nb","type":"text"},"sessionUpdate":"agent_thought_chunk"}"#);
        assert_eq!(Update::read(&escaped), Update::AgentThought { text: "a\nb".into() });
    }

    #[test]
    fn a_tool_call_and_its_change_read_alike() {
        let started = raw(
            r#"{"sessionUpdate":"tool_call","toolCallId":"c1","title":"hello.txt","kind":"read","status":"in_progress","locations":[],"rawInput":{"path":"x"}}"#,
        );
        let Update::ToolCall(call) = Update::read(&started) else { panic!("{:?}", Update::read(&started)) };
        assert_eq!((call.id.as_str(), call.kind.as_deref()), ("c1", Some("read")));
        assert!(!call.is_final());
        let done = raw(r#"{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}"#);
        let Update::ToolCall(call) = Update::read(&done) else { panic!("{:?}", Update::read(&done)) };
        assert!(call.is_final() && call.title.is_none());
    }

    #[test]
    fn what_is_not_understood_is_other_and_never_an_error() {
        for update in [
            r#"{"sessionUpdate":"brand_new_thing","x":1}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":""}}"#,
            r#"{"sessionUpdate":"plan","entries":[{"content":"x","priority":"urgent","status":"pending"}]}"#,
            r#"{"sessionUpdate":7}"#,
            "[]",
            "null",
        ] {
            let update = raw(update);
            let read = Update::read(&update);
            assert!(matches!(read, Update::Other | Update::Plan(_)), "{update}: {read:?}");
        }
    }

    #[test]
    fn a_whole_run_of_the_real_gemini_cli_is_understood() {
        let transcript = include_str!("../../tests/data/gemini-0.61-transcript.jsonl");
        let mut seen = std::collections::BTreeMap::<&str, usize>::new();
        for line in transcript.lines() {
            let entry: Value = serde_json::from_str(line).unwrap();
            if entry["dir"] != "agent->client" || entry["msg"]["method"] != "session/update" {
                continue;
            }
            let update = raw(&entry["msg"]["params"]["update"].to_string());
            let name = match Update::read(&update) {
                Update::AgentText { .. } => "text",
                Update::AgentThought { .. } => "thought",
                Update::AgentBlock(_) => "block",
                Update::ToolCall(_) => "tool call",
                Update::Plan(_) => "plan",
                Update::Usage(_) => "usage",
                Update::Choices => "choices",
                Update::Other => "other",
            };
            *seen.entry(name).or_default() += 1;
        }
        insta::assert_json_snapshot!(seen);
    }
}
