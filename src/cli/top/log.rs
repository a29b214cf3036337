//! The log of one session as a person wants to read it: what is said, line by line as it comes, and a line for each thing
//! that happens. Bounded: the oldest lines go first.

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use serde_json::Value;

use crate::cli::account;
use crate::cli::text::{clean, one_line, steady};
use crate::cli::transcript;
use crate::model::permission::shown::question_of;

const LINES_MAX: usize = 1000;
/// Characters of a line that are kept.
const LINE_CHARS_MAX: usize = 2000;
/// Tool calls whose titles are remembered until they end.
const TOOLS_MAX: usize = 256;

/// What of an event is read.
#[derive(Debug, Deserialize)]
pub struct LogEvent {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub data: Value,
}

/// How a line is meant, which is how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Prompt,
    Said,
    Thought,
    Tool,
    Question,
    Good,
    Bad,
    Aside,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub tone: Tone,
    /// Cleaned, and without line ends.
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Log {
    lines: VecDeque<LogLine>,
    /// The message whose text is coming in.
    open: Option<String>,
    tools: HashMap<String, String>,
}

impl Log {
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        self.lines.iter()
    }

    pub fn take(&mut self, event: &LogEvent) {
        let data = &event.data;
        let text = |field: &str| one_line(data[field].as_str().unwrap_or_default());
        let update = &data["update"];
        match event.kind.as_str() {
            "message.delta" => return self.delta(event),
            "message.created" => return self.message(event),
            "tool.started" => {
                let title = tool_title(update);
                self.remember(data, &title);
                self.add(Tone::Tool, &format!("* {title}"));
            }
            "tool.completed" => self.tool_completed(event),
            "plan.updated" => self.plan(event),
            "permission.requested" => self.add(Tone::Question, &format!("? {}", question_of(data))),
            "permission.resolved" => self.resolved(event),
            "turn.completed" => self.turn_completed(event),
            "process.starting" => self.add(Tone::Aside, "- the agent is starting"),
            "process.ready" => self.add(Tone::Aside, &format!("- the agent is ready, pid {}", data["pid"])),
            "process.waiting" | "turn.waiting" => self.add(Tone::Aside, &format!("- {}", text("message"))),
            "process.exited" => self.exited(event),
            "session.status" => self.add(Tone::Aside, &format!("- the session is {}", text("to"))),
            "file.written" => self.add(Tone::Tool, &format!("* wrote {}", text("path"))),
            "file.read" => self.add(Tone::Tool, &format!("* read {}", text("path"))),
            "file.refused" => self.add(Tone::Bad, &format!("! {}: {}", text("path"), text("reason"))),
            "terminal.created" => {
                let words: Vec<String> =
                    data["command"].as_array().into_iter().flatten().filter_map(Value::as_str).map(one_line).collect();
                self.add(Tone::Tool, &format!("$ {}", words.join(" ")));
            }
            "checkpoint.created" => self.add(Tone::Aside, &format!("- checkpoint {}", text("name"))),
            "terminal.refused" => self.add(Tone::Bad, &format!("! {}", text("reason"))),
            // The log is not the one that was followed.
            "log.reset" => *self = Self::default(),
            // The rest is for programs; a person sees its effect.
            _ => return,
        }
        self.open = None;
    }

    fn delta(&mut self, event: &LogEvent) {
        let data = &event.data;
        let (Some(id), Some(text)) = (data["messageId"].as_str(), data["text"].as_str()) else { return };
        let tone = if data["type"] == "thought" { Tone::Thought } else { Tone::Said };
        let is_new = self.open.as_deref() != Some(id);
        if is_new {
            self.open = Some(id.to_owned());
        }
        for (index, piece) in clean(text).split('\n').enumerate() {
            if index > 0 || is_new {
                self.add(tone, piece);
            } else if let Some(last) = self.lines.back_mut() {
                let room = LINE_CHARS_MAX.saturating_sub(last.text.chars().count());
                last.text.extend(piece.replace('\t', " ").chars().take(room));
            }
        }
    }

    fn message(&mut self, event: &LogEvent) {
        let (data, content) = (&event.data, &event.data["content"]);
        let is_open = self.open.is_some() && data["id"].as_str() == self.open.as_deref();
        let tone = match (data["role"].as_str(), content["type"].as_str()) {
            (Some("user"), _) => Tone::Prompt,
            // It has come in pieces already.
            (Some("agent"), Some("text" | "thought")) if is_open => return self.open = None,
            (Some("agent"), Some("thought")) => Tone::Thought,
            (Some("agent"), _) => Tone::Said,
            (Some("system"), Some("notice")) => Tone::Aside,
            _ => return,
        };
        self.open = None;
        let blocks = content["blocks"].as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        for (index, line) in blocks.iter().map(transcript::block).collect::<Vec<_>>().join("\n").lines().enumerate() {
            match (tone, index) {
                (Tone::Prompt, 0) => self.add(tone, &format!("> {line}")),
                (Tone::Prompt, _) => self.add(tone, &format!("  {line}")),
                (Tone::Aside, 0) => self.add(tone, &format!("- {line}")),
                _ => self.add(tone, line),
            }
        }
    }

    fn tool_completed(&mut self, event: &LogEvent) {
        let known = event.data["toolCallId"].as_str().and_then(|id| self.tools.remove(id));
        let title = known.unwrap_or_else(|| tool_title(&event.data["update"]));
        if event.data["status"] == "failed" {
            self.add(Tone::Bad, &format!("! {title}: failed"));
        } else {
            self.add(Tone::Good, &format!("+ {title}"));
        }
    }

    fn plan(&mut self, event: &LogEvent) {
        let steps = event.data["update"]["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        let done = steps.iter().filter(|step| step["status"] == "completed").count();
        let current = steps.iter().find(|step| step["status"] == "in_progress");
        let current = current.and_then(|step| step["content"].as_str()).map(|step| format!(": {}", one_line(step)));
        self.add(Tone::Aside, &format!("- plan {done}/{}{}", steps.len(), current.unwrap_or_default()));
    }

    fn resolved(&mut self, event: &LogEvent) {
        let (tone, word) = match event.data["decision"].as_str() {
            Some("allow") => (Tone::Good, "allowed"),
            Some("reject") => (Tone::Bad, "rejected"),
            _ => (Tone::Aside, "cancelled"),
        };
        let by = one_line(&account::decided_by_of(&event.data));
        self.add(tone, &format!("? {word} ({by})"));
    }

    fn turn_completed(&mut self, event: &LogEvent) {
        let data = &event.data;
        let status = one_line(data["status"].as_str().unwrap_or_default());
        match data["error"]["message"].as_str() {
            Some(error) => self.add(Tone::Bad, &format!("- the turn is {status}: {}", one_line(error))),
            None => self.add(Tone::Aside, &format!("- the turn is {status}")),
        }
    }

    fn exited(&mut self, event: &LogEvent) {
        let data = &event.data;
        let reason = one_line(data["reason"].as_str().unwrap_or_default());
        match data["error"].as_str() {
            Some(error) => self.add(Tone::Bad, &format!("- the agent exited ({reason}): {}", one_line(error))),
            None => self.add(Tone::Aside, &format!("- the agent exited ({reason})")),
        }
    }

    fn remember(&mut self, data: &Value, title: &str) {
        if self.tools.len() >= TOOLS_MAX {
            // An agent that never ends its calls loses their titles here, nothing else.
            self.tools.clear();
        }
        if let Some(id) = data["toolCallId"].as_str() {
            self.tools.insert(id.to_owned(), title.to_owned());
        }
    }

    fn add(&mut self, tone: Tone, text: &str) {
        let text = steady(&clean(text)).chars().take(LINE_CHARS_MAX).collect();
        self.lines.push_back(LogLine { tone, text });
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }
}

fn tool_title(update: &Value) -> String {
    let title = one_line(update["title"].as_str().unwrap_or_default());
    if title.is_empty() { "a tool".to_owned() } else { title }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(events: &[(&str, Value)]) -> Log {
        let mut log = Log::default();
        for (kind, data) in events {
            log.take(&LogEvent { kind: (*kind).to_owned(), data: data.clone() });
        }
        log
    }

    fn shown(events: &[(&str, Value)]) -> String {
        log(events).lines().map(|line| format!("{:?} {}", line.tone, line.text)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_happens_is_lines() {
        let delta = |id: &str, text: &str| ("message.delta", json!({"messageId": id, "type": "text", "text": text}));
        let text = |role: &str, id: &str, text: &str| {
            ("message.created", json!({"id": id, "role": role, "content": {"type": "text", "text": text}}))
        };
        let events = [
            ("process.ready", json!({"pid": 7})),
            text("user", "u", "do\x1b[2J\nit"),
            delta("a", "One, "),
            delta("a", "two\nthr"),
            delta("a", "ee\x07"),
            text("agent", "a", "One, two\nthree"),
            ("tool.started", json!({"toolCallId": "t", "update": {"title": "Run\nmake"}})),
            ("tool.completed", json!({"toolCallId": "t", "status": "completed", "update": {}})),
            ("tool.completed", json!({"toolCallId": "u", "status": "failed", "update": {"title": "Read a"}})),
            text("agent", "b", "compacted away"),
            ("permission.requested", json!({"title": "Run rm"})),
            ("permission.resolved", json!({"decision": "reject", "decidedBy": "uid 0 with acpd"})),
            (
                "plan.updated",
                json!({"update": {"entries": [{"status": "completed"}, {"status": "in_progress", "content": "test"}]}}),
            ),
            ("turn.completed", json!({"status": "failed", "error": {"message": "it broke"}})),
            ("process.exited", json!({"reason": "idle"})),
            ("usage.updated", json!({})),
        ];
        insta::assert_snapshot!(shown(&events), @r"
        Aside - the agent is ready, pid 7
        Prompt > do[2J
        Prompt   it
        Said One, two
        Said three
        Tool * Run make
        Good + Run make
        Bad ! Read a: failed
        Said compacted away
        Question ? Run rm
        Bad ? rejected (uid 0 with acpd)
        Aside - plan 1/2: test
        Bad - the turn is failed: it broke
        Aside - the agent exited (idle)
        ");
        assert_eq!(shown(&[events[0].clone(), ("log.reset", json!({}))]), "");
    }

    #[test]
    fn nothing_makes_it_grow_for_ever() {
        let long = "x".repeat(10 * LINE_CHARS_MAX);
        let delta = |text: &str| ("message.delta", json!({"messageId": "m", "type": "text", "text": text}));
        let mut events = vec![delta("begin\n"); LINES_MAX + 10];
        events.extend([delta(&long), delta(&long)]);
        let full = log(&events);
        assert_eq!(full.lines().len(), LINES_MAX);
        assert_eq!(full.lines().next_back().unwrap().text.chars().count(), LINE_CHARS_MAX);
        let tools = (0..3 * TOOLS_MAX).map(|id| ("tool.started", json!({"toolCallId": id.to_string(), "update": {}})));
        assert!(log(&tools.collect::<Vec<_>>()).tools.len() <= TOOLS_MAX);
    }
}
