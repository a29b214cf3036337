//! What the earlier application kept as the content of a message, as messages of the record.
//!
//! It kept texts, and JSON: parts by type, lists of them, plans, and tools as one object with what went in and what came out.
//! A tool becomes a call and its result. What is none of these is kept as the text that it is, so that nothing is lost.

use serde_json::{Map, Value};

use crate::model::message::PlanStep;
use crate::model::{Content, Role};

/// Whoever wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    User,
    Agent,
    /// The agent, to itself.
    Thoughts,
    Tool,
    System,
}

/// One message of the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub role: Role,
    pub content: Content,
    pub tool_call_id: Option<String>,
}

/// The words that the application, and others like it, have for authors.
const AUTHORS: &[(&str, Author)] = &[
    ("user", Author::User),
    ("human", Author::User),
    ("assistant", Author::Agent),
    ("agent", Author::Agent),
    ("ai", Author::Agent),
    ("model", Author::Agent),
    ("thought", Author::Thoughts),
    ("thinking", Author::Thoughts),
    ("reasoning", Author::Thoughts),
    ("tool", Author::Tool),
    ("tool_call", Author::Tool),
    ("tool_use", Author::Tool),
    ("tool_result", Author::Tool),
    ("function", Author::Tool),
    ("system", Author::System),
    ("developer", Author::System),
];
const UNFINISHED: &str = "the tool had not finished when this was recorded";
/// What a tool is called that nobody has named.
const UNNAMED: &str = "tool";

impl Author {
    pub fn of(role: &str) -> Option<Self> {
        let role = role.trim().to_ascii_lowercase();
        AUTHORS.iter().find(|(word, _)| *word == role).map(|(_, author)| *author)
    }

    /// The words that are understood, for people.
    pub fn words() -> String {
        AUTHORS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }

    const fn role(self) -> Role {
        match self {
            Self::User => Role::User,
            Self::Agent | Self::Thoughts => Role::Agent,
            Self::Tool => Role::ToolResult,
            Self::System => Role::System,
        }
    }
}

impl Said {
    /// Adds the next chunk of the same answer. False if `next` is something else.
    pub fn join(&mut self, next: &Self) -> bool {
        match (&mut self.content, &next.content) {
            (Content::Text { text, partial: is_open @ true }, Content::Text { text: more, partial })
                if self.role == next.role =>
            {
                text.push_str(more);
                *is_open = *partial;
                return true;
            }
            // The agent went on, so its text was not cut off.
            (Content::Text { partial, .. }, Content::ToolCall { .. } | Content::Plan { .. }) => *partial = false,
            _ => {}
        }
        false
    }

    pub fn is_blank(&self) -> bool {
        matches!(&self.content, Content::Text { text, .. } if text.trim().is_empty())
    }
}

/// What a message says. `id` is the message's own, and names a tool call that has no name. Only a text of the agent may be
/// blank, because it may be a chunk of an answer.
pub fn said(author: Author, content: &str, id: &str) -> Vec<Said> {
    let trimmed = content.trim();
    let mut said = Vec::new();
    match serde_json::from_str::<Value>(trimmed).ok().filter(|_| trimmed.starts_with(['{', '[', '"'])) {
        Some(value) => parts(author, &value, id, content, &mut said),
        None => text(author, content, id, &mut said),
    }
    said
}

/// `source` is the text that the value was read from; for a part of a list, the part's own.
fn parts(author: Author, value: &Value, id: &str, source: &str, said: &mut Vec<Said>) {
    match value {
        Value::String(words) => text(author, words, id, said),
        Value::Array(values) if !values.is_empty() && values.iter().all(is_part) => {
            for (index, part) in values.iter().enumerate() {
                parts(author, part, &format!("{id}-{index}"), &part.to_string(), said);
            }
        }
        Value::Object(fields) => object(author, fields, id, source, said),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => text(author, source, id, said),
    }
}

fn is_part(value: &Value) -> bool {
    value.is_string() || value.get("type").is_some_and(Value::is_string)
}

fn object(author: Author, fields: &Map<String, Value>, id: &str, source: &str, said: &mut Vec<Said>) {
    let kind = fields.get("type").and_then(Value::as_str).map(str::to_ascii_lowercase);
    let inner = ["text", "content", "message", "thinking", "value"].iter().find_map(|name| fields.get(*name));
    match (kind.as_deref(), inner) {
        (Some("plan"), _) if author != Author::User && fields.get("steps").is_some_and(Value::is_array) => {
            let steps = fields["steps"].as_array().into_iter().flatten().map(step).collect();
            said.push(Said { role: Role::System, content: Content::Plan { steps }, tool_call_id: None });
        }
        (Some("tool" | "function"), _) => {
            call(fields, id, said);
            result(fields, id, said);
        }
        (Some("tool_call" | "tool_use" | "function_call"), _) => call(fields, id, said),
        (Some("tool_result" | "tool_response" | "function_result"), _) => result(fields, id, said),
        (Some("thought" | "thinking" | "reasoning"), Some(Value::String(words))) => {
            text(Author::Thoughts, words, id, said);
        }
        // An object of words says what is in it; and so does one without a type that has nothing else. One that has is
        // somebody's JSON.
        (kind @ (None | Some("text" | "message" | "markdown" | "error")), Some(inner))
            if (kind.is_some() || fields.keys().filter(|name| *name != "role").count() == 1)
                && (inner.is_string() || inner.is_array()) =>
        {
            parts(author, inner, id, source, said);
            if let (Some(Value::Bool(true)), Some(Said { content: Content::Text { partial, .. }, .. })) =
                (fields.get("partial"), said.last_mut())
            {
                *partial = true;
            }
        }
        _ => text(author, source, id, said),
    }
}

fn text(author: Author, words: &str, id: &str, said: &mut Vec<Said>) {
    if author != Author::Agent && words.trim().is_empty() {
        return;
    }
    let words = words.to_owned();
    let content = match author {
        Author::User | Author::Agent | Author::System => Content::text(words),
        Author::Thoughts => Content::Thought { text: words, partial: false },
        Author::Tool => {
            // Nobody knows what it was called with.
            call(&Map::new(), id, said);
            let result = Value::String(words);
            Content::ToolResult { status: "completed".to_owned(), result, raw_output: None, error: None }
        }
    };
    let tool_call_id = (author == Author::Tool).then(|| id.to_owned());
    said.push(Said { role: author.role(), content, tool_call_id });
}

/// A step of a plan. Without a text of its own, it is kept as the JSON that it is.
fn step(step: &Value) -> PlanStep {
    let word = |names: &[&str]| step.as_object().and_then(|fields| word(fields, names));
    let content = word(&["content", "text", "title", "description", "step", "name"]);
    let content = content.or_else(|| step.as_str().map(str::to_owned)).unwrap_or_else(|| step.to_string());
    let or = |word: Option<String>, default: &str| word.unwrap_or_else(|| default.to_owned());
    PlanStep { content, priority: or(word(&["priority"]), "medium"), status: or(word(&["status", "state"]), "pending") }
}

fn first<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| fields.get(*name)).filter(|value| !value.is_null())
}

fn word(fields: &Map<String, Value>, names: &[&str]) -> Option<String> {
    first(fields, names).and_then(Value::as_str).filter(|word| !word.is_empty()).map(str::to_owned)
}

fn call_id(fields: &Map<String, Value>, id: &str) -> String {
    let names = ["toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "callId", "call_id", "id"];
    word(fields, &names).unwrap_or_else(|| id.to_owned())
}

fn call(fields: &Map<String, Value>, id: &str, said: &mut Vec<Said>) {
    let id = call_id(fields, id);
    let name = word(fields, &["name", "toolName", "tool_name", "tool", "title"]).unwrap_or_else(|| UNNAMED.to_owned());
    let kind = word(fields, &["kind"]).unwrap_or_else(|| "other".to_owned());
    let arguments = first(fields, &["arguments", "args", "input", "params", "parameters"]).cloned();
    let tool_call_id = Some(id.clone());
    let arguments = arguments.unwrap_or(Value::Null);
    let content = Content::ToolCall { id, name, title: None, kind, arguments, locations: Vec::new() };
    said.push(Said { role: Role::ToolCall, content, tool_call_id });
}

fn result(fields: &Map<String, Value>, id: &str, said: &mut Vec<Said>) {
    let result = first(fields, &["result", "output", "response", "content", "text"]).cloned();
    let error = first(fields, &["error"]).filter(|error| **error != Value::Bool(false));
    let error = error.map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned));
    let is_marked = ["isError", "is_error"].iter().any(|name| fields.get(*name) == Some(&Value::Bool(true)));
    let status = word(fields, &["status", "state"]).unwrap_or_default().to_ascii_lowercase();
    let is_open = result.is_none() && ["running", "pending", "in_progress", "started"].contains(&status.as_str());
    let error = error.or_else(|| is_open.then(|| UNFINISHED.to_owned()));
    let has_failed =
        error.is_some() || is_marked || ["failed", "error", "failure", "cancelled"].contains(&status.as_str());
    let status = if has_failed { "failed" } else { "completed" };
    let result = result.unwrap_or(Value::Null);
    let content = Content::ToolResult { status: status.to_owned(), result, raw_output: None, error };
    said.push(Said { role: Role::ToolResult, content, tool_call_id: Some(call_id(fields, id)) });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(author: Author, content: &str) -> Vec<(Role, Value)> {
        let said = said(author, content, "m1");
        said.into_iter()
            .filter(|said| !said.is_blank())
            .map(|said| (said.role, serde_json::to_value(said.content).unwrap()))
            .collect()
    }

    fn words(text: &str) -> Value {
        json!({"type": "text", "text": text, "partial": false})
    }

    #[test]
    fn texts_are_texts_in_whatever_they_are_wrapped() {
        for content in [
            "hi",
            "\"hi\"",
            r#"{"type":"text","text":"hi"}"#,
            r#"{"text":"hi"}"#,
            r#"{"content":["hi"]}"#,
            r#"[{"type":"text","text":"hi"}]"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#,
        ] {
            assert_eq!(of(Author::User, content), [(Role::User, words("hi"))], "{content}");
        }
        assert_eq!(of(Author::Agent, "{not json"), [(Role::Agent, words("{not json"))]);
        assert_eq!(of(Author::Agent, r#"{"odd":1}"#), [(Role::Agent, words(r#"{"odd":1}"#))], "nothing is lost");
        assert_eq!(of(Author::Agent, "[1, 2]"), [(Role::Agent, words("[1, 2]"))]);
        let pasted = r#"{"message": "boom", "code": 5}"#;
        assert_eq!(of(Author::User, pasted), [(Role::User, words(pasted))], "what somebody pasted is not taken apart");
        assert_eq!(of(Author::System, "be brief"), [(Role::System, words("be brief"))]);
        assert_eq!(of(Author::User, "  "), []);
    }

    #[test]
    fn thoughts_are_the_agents() {
        let thought = json!({"type": "thought", "text": "hm", "partial": false});
        assert_eq!(of(Author::Agent, r#"{"type":"thinking","thinking":"hm"}"#), [(Role::Agent, thought.clone())]);
        assert_eq!(of(Author::Thoughts, "hm"), [(Role::Agent, thought)]);
    }

    #[test]
    fn how_a_tool_ended_is_kept() {
        for (fields, status, error) in [
            (json!({"output": 1}), "completed", Value::Null),
            (json!({"error": "boom"}), "failed", json!("boom")),
            (json!({"status": "error", "output": "x"}), "failed", Value::Null),
            (json!({"status": "running"}), "failed", json!(UNFINISHED)),
            (json!({"status": "running", "output": "x"}), "completed", Value::Null),
            (json!({"isError": true}), "failed", Value::Null),
        ] {
            let mut content = fields.clone();
            content["type"] = json!("tool");
            let told = of(Author::Tool, &content.to_string());
            assert_eq!((&told[1].1["status"], &told[1].1["error"]), (&json!(status), &error), "{fields}");
            assert_eq!((&told[0].1["name"], &told[0].1["id"]), (&json!("tool"), &json!("m1")), "nobody named it");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_there_is_taken(content in ".{0,60}", author in 0_usize..5) {
            let author = [Author::User, Author::Agent, Author::Thoughts, Author::Tool, Author::System][author];
            let told = of(author, &content);
            prop_assert!(!told.is_empty() || content.trim_matches(|c: char| c.is_whitespace() || c == '"').is_empty()
                || content.contains('"'));
        }
    }
}
