//! The shortcut for text. Nearly every line of an agent is a piece of what it says, so that is read in one pass; whatever
//! does not look exactly like it goes the long way ([`super::Envelope`], [`super::Update`]), which understands more.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Lines above this are no small pieces of text, and are not read twice to find that out.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A piece of text.
#[derive(Debug, PartialEq)]
pub struct Chunk<'a> {
    pub session_id: Cow<'a, str>,
    /// The agent thinks, and does not speak.
    pub is_thought: bool,
    pub text: Cow<'a, str>,
}

/// Names that have escapes in them are not borrowed, and so refused here.
#[derive(Deserialize)]
struct Line<'a> {
    id: Option<IgnoredAny>,
    method: &'a str,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    update: Update<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    session_update: &'a str,
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl<'a> Chunk<'a> {
    pub fn read(line: &'a str) -> Option<Self> {
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
        let Line { id, method, params: Params { session_id, update } } = serde_json::from_str(line).ok()?;
        let Content { kind, text } = update.content;
        let is_thought = match update.session_update {
            "agent_message_chunk" => false,
            "agent_thought_chunk" => true,
            _ => return None,
        };
        let is_text = id.is_none() && method == "session/update" && kind == "text";
        is_text.then_some(Self { session_id, is_thought, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(update: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
    }

    #[test]
    fn text_is_read_and_everything_else_goes_the_long_way() {
        let speech = line(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\n\"b\""}}"#);
        let chunk = Chunk::read(&speech).unwrap();
        assert_eq!(chunk, Chunk { session_id: "s".into(), is_thought: false, text: "a\n\"b\"".into() });
        let thought =
            line(r#"{"content":{"text":"hm","type":"text","_meta":{}},"sessionUpdate":"agent_thought_chunk"}"#);
        let chunk = Chunk::read(&thought).unwrap();
        assert!(chunk.is_thought && matches!(chunk.text, Cow::Borrowed("hm")));
        for other in [
            line(r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"x"}}"#),
            line(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"x"}}"#),
            line(r#"{"sessionUpdate":"tool_call","toolCallId":"c"}"#),
            speech.replace("session/update", "session/other"),
            speech.replace("\"jsonrpc\"", "\"id\""),
            format!("log: {speech}"),
            "{}".to_owned(),
            "noise".to_owned(),
        ] {
            assert_eq!(Chunk::read(&other), None, "{other}");
        }
    }
}
