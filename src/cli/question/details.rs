//! What a question is about, as lines: the command, the files, and what the agent shows of it, changes as a diff.
//!
//! Every line stands behind a mark, so that nothing an agent writes can look like the question itself.

use serde_json::Value;

use crate::control::wire::permissions::Permission;
use crate::model::permission::question::PermissionKind;

use super::super::render::Change;
use super::super::style::Style;
use super::super::text::{clean, columns, cut_end};
use super::super::transcript;
use super::{command_text, with_surroundings};

const BRIEF_LINES_MAX: usize = 30;
const BRIEF_COLUMNS_MAX: usize = 400;

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Head(String),
    Plain(String),
    Added(String),
    Removed(String),
}

#[derive(Debug)]
pub struct Details {
    lines: Vec<Line>,
}

impl Details {
    pub fn of(permission: &Permission) -> Self {
        let mut details = Self { lines: Vec::new() };
        let request: Value = serde_json::from_str(permission.request.get()).unwrap_or(Value::Null);
        if let Some(command) = &permission.action.command {
            for (index, line) in command_text(command).lines().enumerate() {
                let mark = if index == 0 { "$ " } else { "  " };
                details.lines.push(Line::Head(format!("{mark}{}", clean(line))));
            }
            let action = &permission.action;
            let surroundings = with_surroundings(String::new(), action.cwd.as_deref(), &action.env);
            if !surroundings.is_empty() {
                details.lines.push(Line::Head(format!(" {}", clean(&surroundings).replace('\n', " "))));
            }
        }
        let items = request["toolCall"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<&str> =
            items.iter().filter(|item| item["type"] == "diff").filter_map(|item| item["path"].as_str()).collect();
        // A file that is shown with its changes needs not be named twice.
        for path in permission.action.paths.iter().filter(|path| !shown.contains(&path.as_str())) {
            details.lines.push(Line::Head(clean(path).replace('\n', " ")));
        }
        for item in items {
            details.item(item);
        }
        match (permission.kind, request["content"].as_str(), request["url"].as_str()) {
            (PermissionKind::File, Some(text), _) => details.texts("", text),
            (PermissionKind::Elicitation, _, Some(url)) => details.plain(url),
            _ => {}
        }
        details
    }

    /// More about it, as it is.
    pub fn plain(&mut self, text: &str) {
        self.lines.extend(clean(text).lines().map(|line| Line::Plain(line.to_owned())));
    }

    fn item(&mut self, item: &Value) {
        match item["type"].as_str() {
            Some("diff") => {
                let path = clean(item["path"].as_str().unwrap_or_default()).replace('\n', " ");
                let new = item["newText"].as_str().unwrap_or_default();
                let old = item["oldText"].as_str();
                self.lines.push(Line::Head(if old.is_some() { path } else { format!("{path} (new)") }));
                self.texts(old.unwrap_or_default(), new);
            }
            Some("content") => self.plain(&transcript::block(&item["content"])),
            // A terminal shows what runs already; and what is not known is in the request.
            _ => {}
        }
    }

    fn texts(&mut self, old: &str, new: &str) {
        let before = self.lines.len();
        self.lines.extend(Change::between(old, new).into_iter().map(|change| match change {
            Change::Added(text) => Line::Added(text),
            Change::Removed(text) => Line::Removed(text),
            Change::Kept(text) => Line::Plain(text),
        }));
        if self.lines.len() == before {
            self.lines.push(Line::Plain("  (nothing is changed)".to_owned()));
        }
    }

    /// Whether the brief form leaves something out.
    pub fn is_long(&self) -> bool {
        self.lines.len() > BRIEF_LINES_MAX || self.lines.iter().any(|line| columns(line.text()) > BRIEF_COLUMNS_MAX)
    }

    /// The beginning, each line with its end; what is left out is told.
    pub fn brief(&self, style: Style) -> String {
        let shown = self.lines.iter().take(BRIEF_LINES_MAX).map(|line| line.render(BRIEF_COLUMNS_MAX, style));
        let mut text: String = shown.collect();
        if let Some(more @ 1..) = self.lines.len().checked_sub(BRIEF_LINES_MAX) {
            text += &mark(&style.dim(&format!("… {more} more lines")), style);
        }
        text
    }

    pub fn whole(&self, style: Style) -> String {
        self.lines.iter().map(|line| line.render(usize::MAX, style)).collect()
    }
}

impl Line {
    fn text(&self) -> &str {
        match self {
            Self::Head(text) | Self::Plain(text) | Self::Added(text) | Self::Removed(text) => text,
        }
    }

    fn render(&self, width: usize, style: Style) -> String {
        let text = cut_end(self.text(), width);
        let styled = match self {
            Self::Head(_) => style.bold(&text),
            Self::Plain(_) => text,
            Self::Added(_) => style.green(&text),
            Self::Removed(_) => style.red(&text),
        };
        mark(&styled, style)
    }
}

fn mark(line: &str, style: Style) -> String {
    format!("  {} {line}\n", style.dim("│"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::example;
    use super::*;

    fn details(old: Option<&str>, new: &str) -> Details {
        Details::of(&example(&json!({
            "title": "Edit", "action": {"kind": "edit", "paths": ["a.txt", "b.txt"]},
            "request": {"toolCall": {"content": [{"type": "diff", "path": "a.txt", "oldText": old, "newText": new}]}},
        })))
    }

    #[test]
    fn changes_are_a_diff_with_something_around_them() {
        let old = "1\n2\n3\n4\n5\nsix\n7\n";
        insta::assert_snapshot!(details(Some(old), &old.replace("six", "6\x1b[2J\r")).brief(Style::plain()), @r"
          │ b.txt
          │ a.txt
          │   3
          │   4
          │   5
          │ - six
          │ + 6[2J
          │   7
        ");
        insta::assert_snapshot!(details(None, "1\n[y] once > ").brief(Style::plain()), @r"
          │ b.txt
          │ a.txt (new)
          │ + 1
          │ + [y] once >
        ");
        assert!(details(Some(old), old).brief(Style::plain()).contains("nothing is changed"));
    }

    #[test]
    fn what_is_long_is_cut_and_can_be_had_whole() {
        let many = "line\n".repeat(100);
        let long = details(None, &many);
        assert!(long.is_long());
        assert!(long.brief(Style::plain()).ends_with("  │ … 72 more lines\n"));
        assert_eq!(long.whole(Style::plain()).lines().count(), 102);
        let wide = details(None, &"x".repeat(1000));
        assert!(wide.is_long() && wide.brief(Style::plain()).contains("x…"));
        assert!(!details(None, "x").is_long());
    }

    #[test]
    fn a_command_and_a_text_are_shown() {
        let permission = example(&json!({
            "action": {"kind": "execute", "paths": [], "command": "make \\\n  install"},
            "request": {"toolCall": {"content": [{"type": "content", "content": {"type": "text", "text": "why\nnot"}}]}},
        }));
        insta::assert_snapshot!(Details::of(&permission).brief(Style::plain()), @r"
          │ $ make \
          │     install
          │ why
          │ not
        ");
    }
}
