//! What a question is about, as lines: the command, the files, and what the agent shows of it, changes as a diff.
//!
//! Every row on the screen stands behind a mark, so that nothing an agent writes can look like the question itself. So the
//! lines are broken here and not by the terminal, which would begin the rest of a long one at its edge.

use serde_json::Value;

use crate::control::wire::permissions::Permission;
use crate::model::permission::Action;
use crate::model::permission::input::Input;
use crate::model::permission::question::PermissionKind;
use crate::model::permission::shown::{command_text, visible, visible_line, with_surroundings};

use super::super::render::{Change, Colour, Ink, Line as Inked};
use super::super::style::Style;
use super::super::transcript;

/// Before each row.
const MARK: &str = "  │ ";
const MARK_COLUMNS: usize = 4;

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
        let action = &permission.action;
        if let Some(command) = &action.command {
            for (index, line) in visible(&command_text(command)).split('\n').enumerate() {
                let mark = if index == 0 { "$ " } else { "  " };
                details.lines.push(Line::Head(format!("{mark}{line}")));
            }
            let surroundings = with_surroundings(String::new(), action.cwd.as_deref(), &action.env);
            if !surroundings.is_empty() {
                details.lines.push(Line::Head(format!("  {}", visible_line(&surroundings))));
            }
        }
        let items = request["toolCall"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<&str> =
            items.iter().filter(|item| item["type"] == "diff").filter_map(|item| item["path"].as_str()).collect();
        // A file that is shown with its changes needs not be named twice.
        let is_whole = |shown: &str, path: &str| {
            shown.strip_suffix(path).is_some_and(|rest| matches!(rest.chars().last(), None | Some('/')))
        };
        let is_named = |path: &&String| shown.iter().any(|shown| is_whole(shown, path));
        for path in permission.action.paths.iter().filter(|path| !is_named(path)) {
            details.lines.push(Line::Head(visible_line(path)));
        }
        details.input(&request["toolCall"]["rawInput"], action, &shown);
        if request["truncated"] == true {
            details.plain(&format!("the request is too large to show: {} bytes", request["bytes"]));
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
        self.lines.extend(visible(&text.replace("\r\n", "\n")).lines().map(|line| Line::Plain(line.to_owned())));
    }

    /// What the tool was given beside what the action and the changes show.
    fn input(&mut self, input: &Value, action: &Action, changed: &[&str]) {
        for (key, value) in input.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_text = !changed.is_empty() && Input::is_text(key);
            let is_path = action.paths.contains(&text) || changed.contains(&text.as_str()) || is_text;
            let is_shown = if action.command.is_some() { Input::is_of_command(key) } else { is_path };
            if !is_shown && !text.is_empty() {
                self.plain(&format!("{key}: {text}"));
            }
        }
    }

    fn item(&mut self, item: &Value) {
        match item["type"].as_str() {
            Some("diff") => {
                let path = visible_line(item["path"].as_str().unwrap_or_default());
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
            self.lines.push(Line::Plain("  (no changes)".to_owned()));
        }
    }

    /// All of it in rows of at most so many columns.
    pub fn rows(&self, columns: usize, style: Style) -> Vec<String> {
        self.lines.iter().flat_map(|line| marked(line.text(), line.ink(), columns, style)).collect()
    }
}

/// A text of somebody else's in rows of at most so many columns, each behind the mark.
pub fn marked(text: &str, ink: Ink, columns: usize, style: Style) -> Vec<String> {
    let room = columns.saturating_sub(MARK_COLUMNS);
    let pieces = Inked::new(text, ink).chop(room);
    pieces.into_iter().map(|piece| piece.after(Inked::new(MARK, Ink::DIM)).render(style)).collect()
}

impl Line {
    fn text(&self) -> &str {
        match self {
            Self::Head(text) | Self::Plain(text) | Self::Added(text) | Self::Removed(text) => text,
        }
    }

    fn ink(&self) -> Ink {
        match self {
            Self::Head(_) => Ink::BOLD,
            Self::Plain(_) => Ink::PLAIN,
            Self::Added(_) => Ink::PLAIN.colour(Colour::Green),
            Self::Removed(_) => Ink::PLAIN.colour(Colour::Red),
        }
    }
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

    fn shown(details: &Details, columns: usize) -> String {
        details.rows(columns, Style::plain()).join("\n")
    }

    #[test]
    fn changes_are_a_diff_with_something_around_them() {
        let old = "1\n2\n3\n4\n5\nsix\n7\n";
        insta::assert_snapshot!(shown(&details(Some(old), &old.replace("six", "6\x1b[2J\r")), 80), @r"
          │ b.txt
          │ a.txt
          │   3
          │   4
          │   5
          │ - six
          │ + 6\u{1b}[2J
          │   7
        ");
        insta::assert_snapshot!(shown(&details(None, "1\n[y] once > "), 80), @r"
          │ b.txt
          │ a.txt (new)
          │ + 1
          │ + [y] once >
        ");
        assert!(shown(&details(Some(old), old), 80).contains("no changes"));
    }

    #[test]
    fn every_row_stands_behind_the_mark_and_fits() {
        let forged = format!("{}? Read README.md\t{}[y] once", " ".repeat(76), "漢".repeat(40));
        for columns in [79, 39, 19] {
            let rows = details(None, &forged).rows(columns, Style::plain());
            assert!(rows.len() > 3, "{rows:?}");
            for row in &rows {
                assert!(row.starts_with(MARK) && super::super::super::text::columns(row) <= columns, "{row:?}");
            }
        }
        assert_eq!(details(None, &forged).rows(usize::MAX, Style::plain()).len(), 3);
        // A terminal of a few columns is no place for a question, and no reason to fail.
        assert!(!details(None, &forged).rows(1, Style::plain()).is_empty());
    }

    #[test]
    fn a_command_and_a_text_are_shown() {
        let permission = example(&json!({
            "action": {"kind": "execute", "paths": [], "command": "make \\\n  install"},
            "request": {"toolCall": {"content": [{"type": "content", "content": {"type": "text", "text": "why\nnot"}}]}},
        }));
        insta::assert_snapshot!(shown(&Details::of(&permission), 80), @r"
          │ $ make \
          │     install
          │ why
          │ not
        ");
    }
}
