//! The conversation so far as one text, for an agent that cannot restore it: the newest kept, within a bound.

use serde_json::Value;

use crate::hub::Hub;
use crate::model::message::Message;
use crate::model::{Content, PromptAbilities, Role, SessionId};
use crate::store::StoreError;

const HEADING: &str = "# The conversation so far\n\nacpd restarted your process and gives you the transcript of this \
    session. All of it has already happened: continue from here.\n";
const LEFT_OUT: &str = "\n(Earlier messages are omitted.)\n";

/// Reads what came before the turns that wait; nothing, when there is nothing to tell.
pub async fn read(hub: Hub, session: SessionId, bytes_max: usize) -> Result<Option<String>, StoreError> {
    let (newest_first, is_whole) = hub.store().conversation(session, bytes_max).await?;
    Ok(render(&newest_first, is_whole, bytes_max))
}

/// The prompt's first block: a document where the agent takes one, a text where it does not.
pub fn block(session: SessionId, text: &str, abilities: PromptAbilities) -> Value {
    if abilities.embedded_context {
        let uri = format!("acpd://sessions/{session}/transcript.md");
        serde_json::json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/markdown", "text": text } })
    } else {
        serde_json::json!({ "type": "text", "text": text })
    }
}

fn render(newest_first: &[Message], is_whole: bool, bytes_max: usize) -> Option<String> {
    let mut parts = Vec::new();
    let mut left = bytes_max.saturating_sub(HEADING.len() + LEFT_OUT.len());
    let mut is_whole = is_whole;
    for message in newest_first {
        let Some(part) = part(message) else { continue };
        if part.len() > left {
            is_whole = false;
            // The newest is worth having even when it is not whole; its end is the newest of it.
            if parts.is_empty() {
                let start = part.ceil_char_boundary(part.len() - left);
                parts.push(part[start..].to_owned());
            }
            break;
        }
        left -= part.len();
        parts.push(part);
    }
    if parts.is_empty() {
        return None;
    }
    parts.reverse();
    Some(format!("{HEADING}{}{}", if is_whole { "" } else { LEFT_OUT }, parts.concat()))
}

/// One message under its heading. What the agent only thought, and its plans, are not part of the conversation.
fn part(message: &Message) -> Option<String> {
    let content: Content = serde_json::from_str(message.content.get()).ok()?;
    let (heading, text) = match content {
        Content::Text { text, partial } => {
            let who = who(message.role);
            let cut = if partial { " (shortened)" } else { "" };
            (format!("{who}{cut}"), text)
        }
        Content::Blocks { blocks } => {
            (who(message.role).to_owned(), blocks.iter().map(block_text).collect::<Vec<_>>().join("\n"))
        }
        Content::ToolCall { name, title, kind, arguments, .. } => {
            let label = Content::tool_label(&name, title.as_deref());
            (format!("Your tool call: {label} ({kind})"), compact(&arguments))
        }
        Content::ToolResult { status, result, error, .. } => {
            (format!("Its result: {status}"), error.unwrap_or_else(|| compact(&result)))
        }
        Content::Notice { text, .. } => ("acpd".to_owned(), text),
        Content::Thought { .. } | Content::Plan { .. } => return None,
    };
    Some(format!("\n## {heading}\n\n{}\n", text.trim_end()))
}

/// Who said it, as the agent is told.
fn who(role: Role) -> &'static str {
    match role {
        Role::User => "User",
        Role::System => "Context",
        Role::Agent | Role::ToolCall | Role::ToolResult => "You",
    }
}

fn block_text(block: &Value) -> String {
    let text = block.get("text").or_else(|| block.pointer("/resource/text")).and_then(Value::as_str);
    match (text, block.get("uri").or_else(|| block.pointer("/resource/uri")).and_then(Value::as_str)) {
        (Some(text), _) => text.to_owned(),
        (None, Some(uri)) => format!("({uri})"),
        (None, None) => format!("({})", block.get("type").and_then(Value::as_str).unwrap_or("something")),
    }
}

fn compact(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MessageId, Timestamp};

    fn message(role: Role, content: &Content) -> Message {
        Message {
            id: MessageId::new(),
            session_id: SessionId::new(),
            sequence: 1,
            turn_id: None,
            role,
            content: serde_json::value::to_raw_value(content).unwrap(),
            tool_call_id: None,
            model: None,
            by: None,
            created_at: Timestamp::now(),
        }
    }

    fn text(text: &str) -> Content {
        Content::Text { text: text.to_owned(), partial: false }
    }

    #[test]
    fn a_conversation_reads_like_one() {
        let blocks = vec![
            serde_json::json!({"type": "text", "text": "and this file"}),
            serde_json::json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}),
            serde_json::json!({"type": "image", "data": "…", "mimeType": "image/png"}),
        ];
        let call = serde_json::json!({"type": "tool_call", "id": "c", "name": "read", "kind": "read",
            "arguments": {"path": "a.txt"}});
        let result = serde_json::json!({"type": "tool_result", "status": "completed", "result": "line"});
        let mut messages = vec![
            message(Role::User, &text("Read a.txt")),
            message(Role::Agent, &Content::Thought { text: "hm".into(), partial: false }),
            message(Role::ToolCall, &serde_json::from_value(call).unwrap()),
            message(Role::ToolResult, &serde_json::from_value(result).unwrap()),
            message(Role::Agent, &text("It says: line")),
            message(Role::User, &Content::Blocks { blocks }),
            message(Role::Agent, &Content::Text { text: "Half an ans".into(), partial: true }),
            message(Role::System, &Content::notice("interrupted", "the daemon died")),
        ];
        messages.reverse();
        insta::assert_snapshot!(render(&messages, true, 64 << 10).unwrap());
    }

    #[test]
    fn the_newest_is_kept_within_the_bound() {
        let newest_first: Vec<Message> =
            (0..100).rev().map(|index| message(Role::User, &text(&format!("message {index}")))).collect();
        let bound = 500;
        let rendered = render(&newest_first, true, bound).unwrap();
        assert!(rendered.len() <= bound, "{}", rendered.len());
        assert!(rendered.contains("message 99") && !rendered.contains("message 0\n"), "{rendered}");
        assert!(rendered.contains(LEFT_OUT.trim()), "{rendered}");
        let large = [message(Role::User, &text(&"ä".repeat(1000)))];
        assert!(render(&large, true, bound).is_some_and(|rendered| rendered.len() <= bound));
        assert_eq!(render(&[], true, bound), None);
    }
}
