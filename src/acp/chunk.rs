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

/// Reads lines that follow each other. An agent that talks sends the same line again and again with another text in it, so a
/// line that begins and ends as the one before needs no parser.
#[derive(Debug, Default)]
pub struct Chunks<'a> {
    last: Option<Shape<'a>>,
}

/// A line without its text.
#[derive(Debug)]
struct Shape<'a> {
    /// Up to the quote that opens the text, and from the one that closes it.
    before: &'a str,
    after: &'a str,
    session_id: &'a str,
    is_thought: bool,
}

impl<'a> Chunks<'a> {
    pub fn read(&mut self, line: &'a str) -> Option<Chunk<'a>> {
        if let Some(chunk) = self.last.as_ref().and_then(|shape| shape.read(line)) {
            return Some(chunk);
        }
        let chunk = Chunk::read(line)?;
        self.last = Shape::of(line, &chunk);
        Some(chunk)
    }
}

impl<'a> Shape<'a> {
    /// None when the line has escapes, which a text of another line would have to be unescaped for.
    fn of(line: &'a str, chunk: &Chunk<'a>) -> Option<Self> {
        let (Cow::Borrowed(session_id), Cow::Borrowed(text)) = (&chunk.session_id, &chunk.text) else { return None };
        // What is borrowed is a piece of the line.
        let start = text.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
        let (before, after) = (line.get(..start)?, line.get(start + text.len()..)?);
        let is_quoted = before.ends_with('"') && after.starts_with('"');
        is_quoted.then_some(Self { before, after, session_id, is_thought: chunk.is_thought })
    }

    /// Between the same two quotes there is nothing but a text, when neither a quote, nor an escape, nor what JSON forbids
    /// is in it.
    fn read(&self, line: &'a str) -> Option<Chunk<'a>> {
        let text = line.strip_prefix(self.before)?.strip_suffix(self.after)?;
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        let is_text = line.len() <= LINE_BYTES_MAX && text.bytes().all(is_plain);
        is_text.then(|| Chunk { session_id: self.session_id.into(), is_thought: self.is_thought, text: text.into() })
    }
}

impl<'a> Chunk<'a> {
    pub(super) fn read(line: &'a str) -> Option<Self> {
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
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn what_came_before_makes_no_difference(
            texts in proptest::collection::vec(r#"(a|é|"|\\\\|\\"|\\n|\t|,"text":"|","type":"text|\}\}\}\}){0,4}"#, 2..8),
            thinks in proptest::collection::vec(any::<bool>(), 8),
        ) {
            let lines: Vec<String> = texts.iter().zip(thinks).map(|(text, thinks)| {
                let kind = if thinks { "agent_thought_chunk" } else { "agent_message_chunk" };
                line(&format!(r#"{{"sessionUpdate":"{kind}","content":{{"type":"text","text":"{text}"}}}}"#))
            }).collect();
            let mut chunks = Chunks::default();
            for line in &lines {
                prop_assert_eq!(chunks.read(line), Chunk::read(line), "{}", line);
            }
        }
    }
}
