//! One question, asked in lines of text: what is shown, what is asked for, and what a line means.

use std::fmt::Write;

use serde_json::Value;

use crate::control::wire::permissions::{AnswerPermission, ElicitationAction, Permission};
use crate::model::permission::question::{Decision, OptionKind, PermissionKind, PermissionOption};

use super::super::style::Style;
use super::super::text::{one_line, short_id};
use super::details::Details;
use super::form::Form;
use super::what;

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

/// What follows from a line.
pub enum Move {
    /// This is shown, and it is asked again.
    Ask(String),
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

    /// What is shown first: lines, each with its end.
    pub fn opening(&self) -> String {
        // What the details tell needs not be in the title as well.
        let title = one_line(&self.permission.title);
        let title = if title.is_empty() { what(&self.permission) } else { title };
        let head = format!("{} {}\n", self.style.yellow("?"), self.style.bold(&title));
        let mut text = head + &self.details.brief(self.style);
        match &self.subject {
            Subject::Permission { options } if !options.is_empty() => {
                let numbered =
                    (1..).zip(options).map(|(number, option)| format!("[{number}] {}", one_line(&option.name)));
                let _ = writeln!(text, "{}", numbered.collect::<Vec<_>>().join("  "));
            }
            Subject::TooHard => {
                let id = short_id(self.permission.id);
                let _ = writeln!(text, "it takes more than lines: `acpd approve {id} --content '{{…}}'` answers it");
            }
            _ => {}
        }
        text
    }

    /// The line that waits for an answer, without an end.
    pub fn prompt(&self) -> String {
        let all = if self.details.is_long() { "  [d] show all" } else { "" };
        let keys = match &self.subject {
            Subject::Permission { .. } => format!("[y] once  [a] always  [n] reject{all}  [q] decide later > "),
            Subject::Offer(_) => format!("[y] answer  [n] decline{all}  [q] decide later > "),
            Subject::Link => format!("[y] agree  [n] decline{all}  [q] decide later > "),
            Subject::TooHard => format!("[n] decline{all}  [q] decide later > "),
            Subject::Field(form) => form.prompt().unwrap_or_default(),
        };
        self.style.bold(&keys)
    }

    pub fn line(&mut self, line: &str) -> Move {
        if let Subject::Field(form) = &mut self.subject {
            let complaint = form.line(line).err().map(|complaint| format!("{complaint}\n"));
            return self.next_field(complaint.unwrap_or_default());
        }
        let word = line.trim().to_lowercase();
        match (word.as_str(), &self.subject) {
            ("d" | "all", _) => Move::Ask(self.details.whole(self.style)),
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

fn not_understood() -> Move {
    Move::Ask("one of the letters, then Enter\n".to_owned())
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

    fn answer(dialog: &mut Dialog, line: &str) -> Value {
        match dialog.line(line) {
            Move::Answer(answer) => serde_json::to_value(answer).unwrap(),
            Move::Ask(text) => json!(text),
            Move::Later => Value::Null,
        }
    }

    #[test]
    fn a_permission_is_given_once_always_or_not_at_all() {
        let mut asked = dialog(&json!({"action": {"kind": "execute", "paths": [], "command": "make -j"}}));
        assert_eq!(asked.opening(), "? Run make\n  │ $ make -j\n");
        assert_eq!(asked.prompt(), "[y] once  [a] always  [n] reject  [q] decide later > ");
        for (line, body) in [
            (" Y ", json!({"decision": "allow", "always": false})),
            ("a", json!({"decision": "allow", "always": true})),
            ("n", json!({"decision": "reject", "always": false})),
            ("q", Value::Null),
        ] {
            assert_eq!(answer(&mut asked, line), body);
        }
        for line in ["", "yy", "1", "\x1b[A"] {
            assert!(answer(&mut asked, line).as_str().unwrap().starts_with("one of the letters"), "{line:?}");
        }
        assert_eq!(answer(&mut asked, "d"), "  │ $ make -j\n");
    }

    #[test]
    fn options_that_acpd_cannot_tell_apart_are_chosen_by_number() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": format!("Yes, {id}"), "kind": kind});
        let options = [option("slow", "allow_once"), option("fast", "allow_once"), option("no", "reject_once")];
        let mut asked = dialog(&json!({"options": options}));
        assert_eq!(asked.opening(), "? Run make\n[1] Yes, slow  [2] Yes, fast  [3] Yes, no\n");
        assert_eq!(answer(&mut asked, "2"), json!({"optionId": "fast"}));
        assert!(answer(&mut asked, "0").is_string() && answer(&mut asked, "4").is_string());
        assert!(!dialog(&json!({"options": options[1..]})).opening().contains("[1]"));
    }

    #[test]
    fn a_form_is_offered_filled_in_and_sent() {
        let properties = json!({"name": {"type": "string"}, "port": {"type": "integer"}});
        let request = json!({"mode": "form", "requestedSchema": {"properties": properties, "required": ["name"]}});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Which?", "request": request}));
        assert_eq!(asked.prompt(), "[y] answer  [n] decline  [q] decide later > ");
        assert_eq!(answer(&mut asked, "n"), json!({"action": "decline"}));
        assert_eq!(answer(&mut asked, "y"), "");
        assert_eq!(asked.prompt(), "name > ");
        assert_eq!(answer(&mut asked, "q"), "", "a value, not a command");
        assert_eq!(answer(&mut asked, "many"), "it is a whole number\n");
        assert_eq!(answer(&mut asked, "7"), json!({"action": "accept", "content": {"name": "q", "port": 7}}));
    }

    #[test]
    fn a_link_is_shown_and_a_hard_form_is_for_the_interface() {
        let link = json!({"mode": "url", "url": "https://example.com/\x1b[2Jlogin"});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Sign in", "request": link}));
        assert_eq!(asked.opening(), "? Sign in\n  │ https://example.com/[2Jlogin\n");
        assert_eq!(answer(&mut asked, "y"), json!({"action": "accept"}));

        let hard = json!({"mode": "form", "requestedSchema": {"properties": {"x": {"type": "array"}}}});
        let mut asked = dialog(&json!({"kind": "elicitation", "title": "Tags?", "request": hard}));
        assert!(asked.opening().contains("acpd approve 5f6a7b8c9d0e --content"), "{}", asked.opening());
        assert_eq!(asked.prompt(), "[n] decline  [q] decide later > ");
        assert!(answer(&mut asked, "y").is_string());
        assert_eq!(answer(&mut asked, "n"), json!({"action": "decline"}));
    }
}
