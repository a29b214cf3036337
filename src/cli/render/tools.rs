//! The agent's tool calls: a line each, with a spinner while they run, and below those that are over what they changed or
//! said, as far as a person wants to see it at once.

use serde_json::Value;

use crate::model::Timestamp;

use super::super::text::{duration, one_line};
use super::super::transcript;
use super::diff::Change;
use super::glyphs::Glyphs;
use super::ink::{Colour, Ink, Line};
use super::waiting::elapsed;

/// Calls that have begun and not ended. An agent that never ends them loses lines here, nothing else.
const RUNNING_MAX: usize = 256;
/// Of calls that run at the same time, those that began last are shown.
const REGION_CALLS: usize = 6;
/// Lines of all changes of one call.
const DIFF_LINES_MAX: usize = 20;
/// Lines of what a command wrote, from its end.
const OUTPUT_LINES_MAX: usize = 5;

pub struct Tools {
    glyphs: &'static Glyphs,
    running: Vec<Call>,
}

struct Call {
    id: String,
    title: String,
    kind: String,
    began: Timestamp,
    content: Value,
}

impl Call {
    fn new(id: &str, at: Timestamp) -> Self {
        Self { id: id.to_owned(), title: "a tool".to_owned(), kind: String::new(), began: at, content: Value::Null }
    }

    /// What is absent in an update is unchanged.
    fn update(&mut self, update: &Value) {
        if let Some(title) = update["title"].as_str().map(one_line).filter(|title| !title.is_empty()) {
            self.title = title;
        }
        if let Some(kind) = update["kind"].as_str() {
            self.kind = one_line(kind);
        }
        if update["content"].as_array().is_some_and(|content| !content.is_empty()) {
            self.content = update["content"].clone();
        }
    }

    fn name(&self) -> String {
        // A title often says already what kind of thing is done.
        match self.kind.as_str() {
            "" | "other" => self.title.clone(),
            kind => format!("{} ({kind})", self.title),
        }
    }
}

impl Tools {
    pub fn new(glyphs: &'static Glyphs) -> Self {
        Self { glyphs, running: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub fn updated(&mut self, data: &Value, at: Timestamp) {
        let id = data["toolCallId"].as_str().unwrap_or_default();
        if !self.running.iter().any(|call| call.id == id) {
            if self.running.len() >= RUNNING_MAX {
                self.running.remove(0);
            }
            self.running.push(Call::new(id, at));
        }
        self.running.iter_mut().filter(|call| call.id == id).for_each(|call| call.update(&data["update"]));
    }

    /// The call is over: what is told of it.
    pub fn completed(&mut self, data: &Value, at: Timestamp) -> Vec<Line> {
        let id = data["toolCallId"].as_str().unwrap_or_default();
        let known = self.running.iter().position(|call| call.id == id).map(|index| self.running.remove(index));
        let began = known.as_ref().map(|call| call.began);
        let mut call = known.unwrap_or_else(|| Call::new(id, at));
        call.update(&data["update"]);
        let status = data["status"].as_str().or(data["update"]["status"].as_str()).unwrap_or("completed");
        let is_good = status == "completed";
        let mut line = if is_good {
            Line::new(self.glyphs.done, Ink::PLAIN.colour(Colour::Green)).and(&format!(" {}", call.name()), Ink::PLAIN)
        } else {
            let red = Ink::PLAIN.colour(Colour::Red);
            Line::new(self.glyphs.failed, red)
                .and(&format!(" {} ", call.name()), Ink::PLAIN)
                .and(&one_line(status), red)
        };
        if let Some(began) = began {
            line.push(&format!(" {}", duration(began, at)), Ink::DIM);
        }
        let mut lines = vec![line];
        lines.extend(self.content(&call, is_good));
        lines
    }

    /// The calls that nobody will hear of any more.
    pub fn end(&mut self) -> Vec<Line> {
        let glyphs = self.glyphs;
        let left = std::mem::take(&mut self.running);
        left.iter().map(|call| Line::new(&format!("{} {}, not finished", glyphs.dot, call.name()), Ink::DIM)).collect()
    }

    /// The calls that run.
    pub fn region(&self, now: Timestamp) -> Vec<Line> {
        let hidden = self.running.len().saturating_sub(REGION_CALLS);
        let more = (hidden > 0).then(|| Line::new(&format!("{} {hidden} more", self.glyphs.ellipsis), Ink::DIM));
        let calls = self.running.iter().skip(hidden).map(|call| {
            let spinner = self.glyphs.spinner(now.as_millis());
            Line::new(spinner, Ink::PLAIN.colour(Colour::Cyan))
                .and(&format!(" {}", call.name()), Ink::PLAIN)
                .and(&format!(" {}", elapsed(call.began, now)), Ink::DIM)
        });
        more.into_iter().chain(calls).collect()
    }

    fn content(&self, call: &Call, is_good: bool) -> Vec<Line> {
        let items = call.content.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut lines = Vec::new();
        let diffs: Vec<&Value> = items.iter().filter(|item| item["type"] == "diff").collect();
        for item in &diffs {
            // One file is in the title as a rule.
            if diffs.len() > 1 {
                lines.push(Line::new(&one_line(item["path"].as_str().unwrap_or_default()), Ink::BOLD));
            }
            let text = |field: &str| item[field].as_str().unwrap_or_default();
            lines.extend(Change::between(text("oldText"), text("newText")).iter().map(|change| match change {
                Change::Added(text) => Line::new(text, Ink::PLAIN.colour(Colour::Green)),
                Change::Removed(text) => Line::new(text, Ink::PLAIN.colour(Colour::Red)),
                Change::Kept(text) => Line::new(text, Ink::DIM),
            }));
        }
        if let Some(more @ 1..) = lines.len().checked_sub(DIFF_LINES_MAX) {
            lines.truncate(DIFF_LINES_MAX);
            lines.push(Line::new(&format!("{} {more} more lines", self.glyphs.ellipsis), Ink::DIM));
        }
        // What was read or found is for the agent; what a command wrote, and why something failed, is for people too.
        if call.kind == "execute" || !is_good {
            lines.extend(self.output(items));
        }
        let bar = Line::new(&format!("  {} ", self.glyphs.bar), Ink::DIM);
        lines.iter().map(|line| line.after(bar.clone())).collect()
    }

    fn output(&self, items: &[Value]) -> Vec<Line> {
        let texts =
            items.iter().filter(|item| item["type"] == "content").map(|item| transcript::block(&item["content"]));
        let text = texts.collect::<Vec<_>>().join("\n");
        let all: Vec<&str> = text.trim().lines().collect();
        let hidden = all.len().saturating_sub(OUTPUT_LINES_MAX);
        let more =
            (hidden > 0).then(|| Line::new(&format!("{} {hidden} lines before", self.glyphs.ellipsis), Ink::DIM));
        more.into_iter().chain(all.iter().skip(hidden).map(|line| Line::new(line, Ink::DIM))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn calls_run_side_by_side_and_each_is_told_when_it_is_over() {
        let mut tools = Tools::new(Glyphs::unicode());
        tools.updated(&json!({"toolCallId": "a", "update": {"title": "Read a\x1b[2J.rs", "kind": "read"}}), at(0));
        tools.updated(&json!({"toolCallId": "b", "update": {"title": "cargo test", "kind": "execute"}}), at(1000));
        assert_eq!(texts(&tools.region(at(12_300))), ["⠸ Read a[2J.rs (read) 12s", "⠸ cargo test (execute) 11s"]);
        let output =
            json!([{"type": "content", "content": {"type": "text", "text": "1\n2\n3\n4\n5\n6\nred: \x1b[31m\n"}}]);
        tools.updated(&json!({"toolCallId": "b", "update": {"content": output}}), at(1500));
        let failed = tools.completed(&json!({"toolCallId": "b", "status": "failed", "update": {}}), at(13_400));
        assert_eq!(
            texts(&failed),
            [
                "✗ cargo test (execute) failed 12.4s",
                "  │ … 2 lines before",
                "  │ 3",
                "  │ 4",
                "  │ 5",
                "  │ 6",
                "  │ red: [31m"
            ]
        );
        let update = json!({"title": "Read a.rs", "content": output});
        let read = tools.completed(&json!({"toolCallId": "a", "status": "completed", "update": update}), at(300));
        assert_eq!(texts(&read), ["✓ Read a.rs (read) 0.3s"], "what was read is for the agent");
        assert!(tools.is_empty() && tools.end().is_empty());
    }

    #[test]
    fn changes_are_shown_within_bounds() {
        let mut tools = Tools::new(Glyphs::unicode());
        let diff = |new: &str| json!({"type": "diff", "path": "a.rs", "oldText": "one\n", "newText": new});
        let done = |tools: &mut Tools, content: Value| {
            let data =
                json!({"toolCallId": "c", "status": "completed", "update": {"title": "Edit a.rs", "content": content}});
            texts(&tools.completed(&data, at(0)))
        };
        assert_eq!(done(&mut tools, json!([diff("two\n")])), ["✓ Edit a.rs", "  │ - one", "  │ + two"]);
        let long = done(&mut tools, json!([diff(&"x\n".repeat(50))]));
        assert_eq!((long.len(), long.last().unwrap().as_str()), (DIFF_LINES_MAX + 2, "  │ … 31 more lines"));
        assert!(done(&mut tools, json!([diff("1\n"), diff("2\n")])).contains(&"  │ a.rs".to_owned()));
        tools.updated(&json!({"toolCallId": "c", "update": {"title": "Wait"}}), at(0));
        assert_eq!(texts(&tools.end()), ["· Wait, not finished"]);
    }
}
