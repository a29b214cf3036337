//! One question, asked in lines of text: what is shown, what is asked for, and what a line means.
//!
//! 1. What an agent wrote never begins a row of its own: it is cut to the row that names it, or stands behind a mark.
//! 2. Who is asked sees what: the whole question fits the terminal, and where anything stands between its head and the
//!    line that waits, the head is said once more, directly above that line.

use serde_json::Value;

use crate::control::wire::permissions::{AnswerPermission, ElicitationAction, Permission};
use crate::model::permission::question::{Decision, OptionKind, PermissionKind, PermissionOption};
use crate::model::permission::shown::visible_line;

use super::super::render::{Colour, Ink, Line};
use super::super::style::Style;
use super::super::terminal::Size;
use super::super::text::{columns, short_id, wrapped};
use super::details::{Details, marked};
use super::form::Form;
use super::what;

/// More of what it is about is shown when it is wanted, also where the terminal is taller.
const BRIEF_ROWS_MAX: usize = 30;
/// The choices have their words beside them where they take no more than this part of the terminal's rows.
const CHOICES_SHARE: usize = 3;
const ELLIPSIS: &str = "…";

pub struct Dialog {
    permission: Permission,
    details: Details,
    style: Style,
    subject: Subject,
}

/// What is being asked for at the moment.
enum Subject {
    /// Whether the agent may.
    Permission {
        /// The agent's own options, where they say more than once, always and no.
        options: Vec<PermissionOption>,
    },
    /// Whether a person will fill in the form.
    Offer(Form),
    /// The next field of the form.
    Field(Form),
    /// Whether a person will follow the link.
    Link,
    /// A form that cannot be filled in here.
    TooHard,
}

/// What fits the terminal.
struct Page {
    /// What the question is about, in rows.
    about: Vec<String>,
    /// How many of them are shown at first.
    room: usize,
    /// What stands between them and the line that waits.
    closing: Vec<String>,
}

/// A question that is taller than this is named again where it is answered, because that is where people look.
const NEAR_ROWS_MAX: usize = 6;

/// What follows from a line.
pub enum Move {
    /// This is said, and it is asked again.
    Ask(String),
    /// What the question is about is shown, all of it, and it is asked again.
    ShowAll,
    Answer(AnswerPermission),
    Later,
}

impl Dialog {
    pub fn new(permission: Permission, style: Style) -> Self {
        let mut details = Details::of(&permission);
        let request: Value = serde_json::from_str(permission.request.get()).unwrap_or(Value::Null);
        let subject = match permission.kind {
            PermissionKind::Tool | PermissionKind::File | PermissionKind::Terminal => {
                Subject::Permission { options: own_options(&permission.options) }
            }
            PermissionKind::Elicitation if request["mode"] == "url" => Subject::Link,
            PermissionKind::Elicitation => Form::of(&request).map_or(Subject::TooHard, Subject::Offer),
        };
        if matches!(subject, Subject::TooHard) {
            details.plain(&serde_json::to_string_pretty(&request["requestedSchema"]).unwrap_or_default());
        }
        Self { permission, details, style, subject }
    }

    pub fn permission(&self) -> &Permission {
        &self.permission
    }

    /// All of the question, and the line that waits for an answer, without an end.
    pub fn opening(&self, size: Size) -> String {
        let Page { about, room, closing } = self.page(size);
        let mut rows = vec![self.head(size)];
        if about.len() > room {
            rows.extend(about.iter().take(room - 1).cloned());
            let more = format!("{ELLIPSIS} {} more lines", about.len() - (room - 1));
            // Of a terminal that is too narrow for it, in one row all the same.
            rows.extend(marked(&more, Ink::DIM, width(size), self.style).into_iter().take(1));
        } else {
            rows.extend(about);
        }
        rows.extend(closing);
        rows.join("\n") + "\n" + &self.prompt(size)
    }

    /// The end of the question, after something else was said: what is answered, and the line that waits.
    pub fn again(&self, said: &str, size: Size) -> String {
        let mut rows = self.choices(size);
        if !matches!(self.subject, Subject::Field(_)) {
            rows.push(self.head(size));
        }
        let rows: String = rows.into_iter().map(|row| row + "\n").collect();
        said.to_owned() + &rows + &self.prompt(size)
    }

    /// What the question is about, all of it: rows, each with its end.
    pub fn whole(&self, size: Size) -> String {
        self.about(size).into_iter().map(|row| row + "\n").collect()
    }

    fn page(&self, size: Size) -> Page {
        let about = self.about(size);
        let mut closing = self.choices(size);
        if about.len() + closing.len() > NEAR_ROWS_MAX && !matches!(self.subject, Subject::Field(_)) {
            closing.push(self.head(size));
        }
        let head_rows = 1;
        // With a column for the answer.
        let prompt_rows = (columns(&self.keys(true, size)) + 1).div_ceil(size.columns.max(1));
        let room = size.rows.saturating_sub(head_rows + closing.len() + prompt_rows).clamp(1, BRIEF_ROWS_MAX);
        Page { about, room, closing }
    }

    /// The command or the files come first, so that a long title is what is cut.
    fn head(&self, size: Size) -> String {
        let what = what(&self.permission);
        let head = Line::new("?", Ink::PLAIN.colour(Colour::Yellow)).and(" ", Ink::PLAIN).and(&what, Ink::BOLD);
        head.cut(width(size), ELLIPSIS).render(self.style)
    }

    fn about(&self, size: Size) -> Vec<String> {
        let mut rows = self.details.rows(width(size), self.style);
        if Line::new(&what(&self.permission), Ink::PLAIN).width() + 2 > width(size) {
            rows.extend(marked(&visible_line(&self.permission.title), Ink::PLAIN, width(size), self.style));
        }
        rows
    }

    /// The agent's own options, or what else there is to know of how it is answered.
    fn choices(&self, size: Size) -> Vec<String> {
        let width = width(size);
        match &self.subject {
            Subject::Permission { options } if !options.is_empty() => {
                let numbered: Vec<Line> = (1..)
                    .zip(options)
                    .map(|(number, option)| {
                        Line::new(&format!("[{number}] {}", visible_line(&option.name)), Ink::PLAIN)
                            .cut(width, ELLIPSIS)
                    })
                    .collect();
                let together = numbered.iter().map(Line::text).collect::<Vec<_>>().join("  ");
                if columns(&together) <= width { vec![together] } else { numbered.iter().map(Line::text).collect() }
            }
            Subject::TooHard => {
                let id = short_id(self.permission.id);
                wrapped(
                    &format!("use `acpd approve {id} --content '{{…}}'`: this form cannot be filled in here"),
                    width,
                )
            }
            Subject::Permission { .. } | Subject::Offer(_) | Subject::Field(_) | Subject::Link => Vec::new(),
        }
    }

    /// The line that waits for an answer, without an end.
    fn prompt(&self, size: Size) -> String {
        let Subject::Field(form) = &self.subject else {
            let Page { about, room, .. } = self.page(size);
            return self.style.bold(&self.keys(about.len() > room, size));
        };
        let field = form.prompt().unwrap_or_default();
        if columns(&field) < width(size) {
            return self.style.bold(&field);
        }
        // What is asked of the field is the agent's, and too long for the line.
        let rows = marked(&field, Ink::BOLD, width(size), self.style).into_iter();
        let rows: String = rows.take(size.rows.saturating_sub(1).max(1)).map(|row| row + "\n").collect();
        rows + &self.style.bold("> ")
    }

    fn keys(&self, has_more: bool, size: Size) -> String {
        let mut keys = match &self.subject {
            Subject::Permission { .. } => vec![("y", "once"), ("a", "always"), ("n", "reject")],
            Subject::Offer(_) => vec![("y", "answer"), ("n", "decline")],
            Subject::Link => vec![("y", "agree"), ("n", "decline")],
            Subject::TooHard => vec![("n", "decline")],
            Subject::Field(_) => return String::new(),
        };
        keys.extend(has_more.then_some(("d", "show all")));
        keys.push(("q", "decide later"));
        let words: Vec<String> = keys.iter().map(|(key, word)| format!("[{key}] {word}")).collect();
        let words = words.join("  ") + " > ";
        if columns(&words).div_ceil(size.columns.max(1)) * CHOICES_SHARE <= size.rows {
            words
        } else {
            keys.iter().map(|(key, _)| *key).collect::<Vec<_>>().join("/") + " > "
        }
    }

    pub fn line(&mut self, line: &str) -> Move {
        if let Subject::Field(form) = &mut self.subject {
            let complaint = form.line(line).err().map(|complaint| format!("{complaint}\n"));
            return self.next_field(complaint.unwrap_or_default());
        }
        let word = line.trim().to_lowercase();
        match (word.as_str(), &self.subject) {
            ("d" | "all", _) => Move::ShowAll,
            ("q" | "later", _) => Move::Later,
            ("y" | "yes" | "once", Subject::Permission { .. }) => Move::Answer(decision(Decision::Allow, false)),
            ("a" | "always", Subject::Permission { .. }) => Move::Answer(decision(Decision::Allow, true)),
            ("n" | "no" | "reject", Subject::Permission { .. }) => Move::Answer(decision(Decision::Reject, false)),
            (number, Subject::Permission { options }) => {
                let chosen = number.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
                chosen.map_or_else(not_understood, |option| {
                    Move::Answer(AnswerPermission {
                        option_id: Some(option.option_id.clone()),
                        ..AnswerPermission::default()
                    })
                })
            }
            ("n" | "no" | "decline", _) => Move::Answer(action(ElicitationAction::Decline)),
            ("y" | "yes" | "agree", Subject::Link) => Move::Answer(action(ElicitationAction::Accept)),
            ("y" | "yes" | "answer", Subject::Offer(_)) => {
                if let Subject::Offer(form) = std::mem::replace(&mut self.subject, Subject::TooHard) {
                    self.subject = Subject::Field(form);
                }
                self.next_field(String::new())
            }
            _ => not_understood(),
        }
    }

    fn next_field(&self, said: String) -> Move {
        match &self.subject {
            Subject::Field(form) if form.prompt().is_none() => {
                Move::Answer(AnswerPermission { content: Some(form.content()), ..action(ElicitationAction::Accept) })
            }
            _ => Move::Ask(said),
        }
    }
}

/// The columns that may be written on. The last is left free: what a terminal does after it differs.
fn width(size: Size) -> usize {
    size.columns.saturating_sub(1).max(1)
}

fn not_understood() -> Move {
    Move::Ask("type one of the letters, then Enter\n".to_owned())
}

fn decision(decision: Decision, always: bool) -> AnswerPermission {
    AnswerPermission { decision: Some(decision), always: Some(always), ..AnswerPermission::default() }
}

fn action(action: ElicitationAction) -> AnswerPermission {
    AnswerPermission { action: Some(action), ..AnswerPermission::default() }
}

/// The options, when one of them means nothing to acpd, or two the same and so something else to the agent.
fn own_options(options: &[PermissionOption]) -> Vec<PermissionOption> {
    let is_own = |option: &PermissionOption| {
        option.kind == OptionKind::Other || options.iter().filter(|other| other.kind == option.kind).count() > 1
    };
    if options.iter().any(is_own) { options.to_vec() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::example;
    use super::*;

    fn dialog(fields: &Value) -> Dialog {
        Dialog::new(example(fields), Style::plain())
    }

    const SIZE: Size = Size { columns: 80, rows: 24 };

    fn answer(dialog: &mut Dialog, line: &str) -> Value {
        match dialog.line(line) {
            Move::ShowAll => json!(dialog.whole(SIZE)),
            Move::Answer(answer) => serde_json::to_value(answer).unwrap(),
            Move::Ask(text) => json!(text),
            Move::Later => Value::Null,
        }
    }

    #[test]
    fn a_permission_is_given_once_always_or_not_at_all() {
        let mut asked = dialog(&json!({"action": {"kind": "execute", "paths": [], "command": "make -j"}}));
        let prompt = "[y] once  [a] always  [n] reject  [q] decide later > ";
        assert_eq!(asked.opening(SIZE), format!("? $ make -j — Run make\n  │ $ make -j\n{prompt}"));
        assert_eq!(asked.again("what?\n", SIZE), format!("what?\n? $ make -j — Run make\n{prompt}"));
        for (line, body) in [
            (" Y ", json!({"decision": "allow", "always": false})),
            ("a", json!({"decision": "allow", "always": true})),
            ("n", json!({"decision": "reject", "always": false})),
            ("q", Value::Null),
        ] {
            assert_eq!(answer(&mut asked, line), body);
        }
        for line in ["", "yy", "1", "\x1b[A"] {
            assert!(answer(&mut asked, line).as_str().unwrap().starts_with("type one of the letters"), "{line:?}");
        }
        assert_eq!(answer(&mut asked, "d"), "  │ $ make -j\n");
    }

    #[test]
    fn options_that_acpd_cannot_tell_apart_are_chosen_by_number() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": format!("Yes, {id}"), "kind": kind});
        let options = [option("slow", "allow_once"), option("fast", "allow_once"), option("no", "reject_once")];
        let mut asked = dialog(&json!({"options": options}));
        let opening = asked.opening(SIZE);
        assert!(opening.starts_with("? Run make\n[1] Yes, slow  [2] Yes, fast  [3] Yes, no\n[y]"), "{opening}");
        let narrow = asked.opening(Size { columns: 30, rows: 24 });
        assert!(narrow.contains("\n[1] Yes, slow\n[2] Yes, fast\n[3] Yes, no\n[y]"), "{narrow}");
        assert_eq!(answer(&mut asked, "2"), json!({"optionId": "fast"}));
        assert!(answer(&mut asked, "0").is_string() && answer(&mut asked, "4").is_string());
        assert!(!dialog(&json!({"options": options[1..]})).opening(SIZE).contains("[1]"));
    }

    #[test]
    fn the_question_fits_the_terminal_and_says_at_its_end_what_is_answered() {
        let asked = |title: &str, text: &str| {
            dialog(&json!({
                "title": title, "action": {"kind": "execute", "paths": [], "command": "rm -rf ~"},
                "request": {"toolCall": {"content": [{"type": "content", "content": {"type": "text", "text": text}}]}},
            }))
        };
        let forged = format!("{}{}? Read README.md", "\n".repeat(26), " ".repeat(76));
        for (columns, rows) in [(80, 24), (40, 10), (20, 5), (300, 100)] {
            let size = Size { columns, rows };
            for (title, text) in
                [("Delete it", forged.as_str()), ("Delete it", &"line\n".repeat(60)), (&"Delete ".repeat(99), "")]
            {
                let opening = asked(title, text).opening(size);
                let taken: usize =
                    opening.lines().map(|row| super::super::super::text::columns(row).div_ceil(columns).max(1)).sum();
                assert!(taken <= rows, "{taken} rows of {rows}:\n{opening}");
                assert!(opening.starts_with("? $ rm -rf ~ — D"), "{opening}");
                if opening.lines().count() <= NEAR_ROWS_MAX + 2 {
                    // All of it is in sight.
                    assert!(opening.contains("\n  │ $ rm -rf ~\n"), "{opening}");
                    continue;
                }
                let end = opening.lines().rev().nth(1).unwrap();
                assert!(end.starts_with("? $ rm -rf ~ — D"), "{opening}");
                assert!(opening.lines().filter(|row| row.starts_with('?')).count() == 2, "{opening}");
            }
        }
        let small = asked("Delete it", &forged).opening(Size { columns: 20, rows: 5 });
        assert_eq!(
            small,
            "? $ rm -rf ~ — Del…\n  │ $ rm -rf ~\n  │ … 29 more lines\n? $ rm -rf ~ — Del…\ny/a/n/d/q > "
        );
    }

    #[test]
    fn a_form_is_offered_filled_in_and_sent() {
        let properties = json!({"name": {"type": "string"}, "port": {"type": "integer"}});
        let request = json!({"mode": "form", "requestedSchema": {"properties": properties, "required": ["name"]}});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Which?", "request": request}));
        assert_eq!(asked.prompt(SIZE), "[y] answer  [n] decline  [q] decide later > ");
        assert_eq!(answer(&mut asked, "n"), json!({"action": "decline"}));
        assert_eq!(answer(&mut asked, "y"), "");
        assert_eq!(asked.prompt(SIZE), "name > ");
        assert_eq!(answer(&mut asked, "q"), "", "a value, not a command");
        assert_eq!(answer(&mut asked, "many"), "type a whole number\n");
        assert_eq!(answer(&mut asked, "7"), json!({"action": "accept", "content": {"name": "q", "port": 7}}));
    }

    #[test]
    fn a_link_is_shown_and_a_hard_form_is_for_the_interface() {
        let link = json!({"mode": "url", "url": "https://example.com/\x1b[2Jlogin"});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Sign in", "request": link}));
        assert!(asked.opening(SIZE).starts_with("? Sign in\n  │ https://example.com/\\u{1b}[2Jlogin\n[y] agree"));
        assert_eq!(answer(&mut asked, "y"), json!({"action": "accept"}));

        let hard = json!({"mode": "form", "requestedSchema": {"properties": {"x": {"type": "array"}}}});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Tags?", "request": hard}));
        let opening = asked.opening(SIZE);
        assert!(opening.contains("acpd approve 5f6a7b8c9d0e --content"), "{opening}");
        assert_eq!(asked.prompt(SIZE), "[n] decline  [q] decide later > ");
        assert!(answer(&mut asked, "y").is_string());
        assert_eq!(answer(&mut asked, "n"), json!({"action": "decline"}));
    }
}
