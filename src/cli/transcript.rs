//! Messages as people read them: a head line each, and what it says.

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Content, Timestamp};

use super::render;
use super::style::Style;
use super::text::{age, byte_count, clean, columns, cut_end, local_time, one_line, steady};

const ARGUMENTS_COLUMNS_MAX: usize = 200;
const RESULT_LINES_MAX: usize = 12;
const BRIEF_COLUMNS_MAX: usize = 160;

/// A message as the interface gives it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    pub sequence: i64,
    pub role: String,
    pub content: Value,
    pub created_at: Timestamp,
}

/// With a width, for a person at a terminal: answers are rendered as Markdown, and times are local.
pub fn render(messages: &[MessageView], style: Style, width: Option<usize>) -> String {
    let blocks: Vec<String> = messages
        .iter()
        .map(|message| {
            // Reasoning looks like an answer where there are no colours.
            let thinking = if message.content["type"] == "thought" { ", thinking" } else { "" };
            let head = format!("#{} {}{thinking}", message.sequence, one_line(&message.role));
            let time = width.map_or_else(|| message.created_at.to_string(), |_| local_time(message.created_at));
            let answer =
                width.filter(|_| message.role == "agent" && message.content["type"] == "text").and_then(|width| {
                    let mut text = message.content["text"].as_str()?.to_owned();
                    if message.content["partial"] == true {
                        text.push_str(" […]");
                    }
                    Some(render::markdown(&text, width, style))
                });
            let body = answer.unwrap_or_else(|| body(&message.content, style));
            format!("{} {}\n{body}", style.bold(&head), style.dim(&time))
        })
        .collect();
    blocks.join("\n\n")
}

/// A message on one line: who, how long ago, and the beginning of what it says.
pub fn brief(message: &MessageView, now: Timestamp, width: Option<usize>, style: Style) -> String {
    let who = match message.content["type"].as_str() {
        Some("thought") => "thinking".to_owned(),
        _ => one_line(&message.role),
    };
    let head = format!("{:<12} {:>4}  ", who, age(message.created_at, now));
    let said = body(&message.content, Style::colourless());
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = one_line(&said.join(" "));
    let said = match width {
        Some(width) => cut_end(&steady(&said), width.saturating_sub(columns(&head))),
        None => cut_end(&said, BRIEF_COLUMNS_MAX),
    };
    format!("{}{said}", style.dim(&head))
}

fn body(content: &Value, style: Style) -> String {
    // What this client does not know, a newer daemon says in a way of its own.
    let Ok(known) = serde_json::from_value::<Content>(content.clone()) else {
        return clean(&content.to_string());
    };
    match known {
        Content::Text { text, partial } => with_cut(&text, partial),
        Content::Thought { text, partial } => style.dim(&with_cut(&text, partial)),
        Content::Blocks { blocks } => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
        Content::Plan { steps } => {
            steps.iter().map(|step| step_line(&step.status, &step.content)).collect::<Vec<_>>().join("\n")
        }
        Content::ToolCall { name, title, kind, arguments, .. } => {
            let name = Content::tool_label(&name, title.as_deref());
            let arguments = if arguments.is_null() { String::new() } else { arguments.to_string() };
            let line = format!("{} ({}) {}", one_line(&name), one_line(&kind), one_line(&arguments));
            cut_end(line.trim_end(), ARGUMENTS_COLUMNS_MAX)
        }
        Content::ToolResult { status, result, error, .. } => tool_result(&status, &result, error.as_deref()),
        Content::Notice { code, text } => style.yellow(&format!("{} ({})", clean(&text), one_line(&code))),
    }
}

/// One step of a plan, as a line of a checklist.
pub fn step_line(status: &str, content: &str) -> String {
    let mark = match status {
        "completed" => 'x',
        "in_progress" => '>',
        _ => ' ',
    };
    format!("[{mark}] {}", one_line(content))
}

fn with_cut(text: &str, partial: bool) -> String {
    let text = clean(text);
    let text = text.trim_end();
    if partial { format!("{text} […]") } else { text.to_owned() }
}

/// A block as people read it: its text, or one line that says what it is.
pub fn block(block: &Value) -> String {
    if let Some(text) = block["text"].as_str() {
        return clean(text);
    }
    let kind = block["type"].as_str().unwrap_or("unknown");
    // What is embedded says what it is one level further down.
    let about = if block["resource"].is_object() { &block["resource"] } else { block };
    let size = about["size"].as_u64().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let said = [
        about["mimeType"].as_str().map(one_line),
        about["uri"].as_str().map(one_line),
        size.map(byte_count),
        about["sha256"].as_str().map(|hash| format!("sha256 {}", one_line(hash))),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    format!("[{} {}]", one_line(kind), said.join(", ")).replace(" ]", "]")
}

fn tool_result(status: &str, result: &Value, error: Option<&str>) -> String {
    let status = one_line(status);
    if let Some(error) = error {
        return format!("{status}: {}", clean(error));
    }
    let text = match result {
        Value::Null => String::new(),
        Value::String(text) => clean(text),
        other => result_texts(other).unwrap_or_else(|| one_line(&other.to_string())),
    };
    let mut lines: Vec<String> = text.lines().map(|line| cut_end(line, ARGUMENTS_COLUMNS_MAX)).collect();
    if lines.len() > RESULT_LINES_MAX {
        let more = lines.len() - RESULT_LINES_MAX;
        lines.truncate(RESULT_LINES_MAX);
        lines.push(format!("… {more} more lines (--json shows them)"));
    }
    lines.insert(0, status);
    lines.join("\n")
}

/// The texts of ACP's tool call content, when that is what the result is.
fn result_texts(result: &Value) -> Option<String> {
    let texts: Option<Vec<String>> = result
        .as_array()?
        .iter()
        .map(|item| {
            let content = &item["content"];
            (content["text"].is_string() || content["sha256"].is_string()).then(|| block(content))
        })
        .collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_readable() {
        let contents = [
            ("user", json!({"type": "text", "text": "hello\x1b[2J", "partial": false})),
            ("agent", json!({"type": "thought", "text": "hm", "partial": false})),
            ("agent", json!({"type": "text", "text": "I was", "partial": true})),
            (
                "system",
                json!({"type": "plan", "steps": [{"content": "look", "priority": "high", "status": "completed"}]}),
            ),
            (
                "tool_call",
                json!({"type": "tool_call", "id": "1", "name": "read_file", "kind": "read", "arguments": {"path": "a"}}),
            ),
            (
                "tool_result",
                json!({"type": "tool_result", "status": "completed",
                "result": [{"type": "content", "content": {"type": "text", "text": "one\ntwo"}}], "error": null}),
            ),
            (
                "user",
                json!({"type": "blocks", "blocks": [
                    {"type": "text", "text": "and these"},
                    {"type": "image", "mimeType": "image/png", "size": 34_816, "sha256": "ba78"},
                    {"type": "resource", "resource": {"uri": "file:///a.bin", "size": 7, "sha256": "cf01"}},
                    {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"},
                ]}),
            ),
            ("system", json!({"type": "notice", "code": "agent_exited", "text": "the agent exited"})),
            ("agent", json!({"type": "hologram"})),
        ];
        let messages: Vec<MessageView> = (1..)
            .zip(contents)
            .map(|(sequence, (role, content))| MessageView {
                sequence,
                role: role.to_owned(),
                content,
                created_at: Timestamp::from_millis(0),
            })
            .collect();
        insta::assert_snapshot!(render(&messages, Style::plain(), None), @r#"
        #1 user 1970-01-01T00:00:00.000Z
        hello[2J

        #2 agent, thinking 1970-01-01T00:00:00.000Z
        hm

        #3 agent 1970-01-01T00:00:00.000Z
        I was […]

        #4 system 1970-01-01T00:00:00.000Z
        [x] look

        #5 tool_call 1970-01-01T00:00:00.000Z
        read_file (read) {"path":"a"}

        #6 tool_result 1970-01-01T00:00:00.000Z
        completed
        one
        two

        #7 user 1970-01-01T00:00:00.000Z
        and these
        [image image/png, 34 KiB, sha256 ba78]
        [resource file:///a.bin, 7 bytes, sha256 cf01]
        [resource_link file:///a.txt]

        #8 system 1970-01-01T00:00:00.000Z
        the agent exited (agent_exited)

        #9 agent 1970-01-01T00:00:00.000Z
        {"type":"hologram"}
        "#);
    }
}
