//! Questions of agents, as people see and answer them.
//!
//! [`Desk`] is what a person has in front of them while a stream is followed: what the agent does, and, on a terminal, the
//! one question that is asked now. What is said in a dialog is decided in `dialog` and `form`, which know of no terminal.

mod desk;
mod details;
mod dialog;
mod find;
mod form;

pub use self::desk::Desk;
pub use self::details::Details;
pub use self::find::{Found, among, permission};

use std::collections::BTreeMap;

use crate::control::wire::permissions::Permission;
use crate::model::permission::question::{Decision, PermissionKind, Resolution};
use crate::model::permission::{Action, CommandText};

use super::text::{one_line, short_id};

/// When a person answered "always", and no rule was made.
pub const APPLIES_ONCE: &str = "this answer applies once: acpd makes no rule for a path outside the workspace, for an \
                                unknown command, or if the session has too many rules";

/// What is asked, on one line: the title, and what it leaves out of the command or the files.
pub fn what(permission: &Permission) -> String {
    let title = one_line(&permission.title);
    let subject = one_line(&subject(&permission.action));
    if title.is_empty() {
        subject
    } else if subject.is_empty() || title.contains(&subject) {
        title
    } else {
        format!("{title}: {subject}")
    }
}

fn subject(action: &Action) -> String {
    let Some(command) = &action.command else { return action.paths.join(", ") };
    with_surroundings(command_text(command), action.cwd.as_deref(), &action.env)
}

/// A command with where it runs, and what is set for it, where that is not as usual.
pub fn with_surroundings(command: String, cwd: Option<&str>, env: &BTreeMap<String, String>) -> String {
    let variables = env.iter().map(|(name, value)| format!("with {name}={value:?}"));
    let surroundings: Vec<String> = cwd.map(|cwd| format!("in {cwd}")).into_iter().chain(variables).collect();
    if surroundings.is_empty() { command } else { format!("{command} ({})", surroundings.join(", ")) }
}

/// A command as people write it. It is shown and never run.
pub fn command_text(command: &CommandText) -> String {
    let word = |word: &String| {
        let is_plain = |character: char| character.is_alphanumeric() || "-_./=:,@%+".contains(character);
        if !word.is_empty() && word.chars().all(is_plain) { word.clone() } else { format!("{word:?}") }
    };
    match command {
        CommandText::Shell(text) => text.clone(),
        CommandText::Arguments(words) => words.iter().map(word).collect::<Vec<_>>().join(" "),
    }
}

/// How it was answered, in a word or two.
pub fn verdict(resolution: &Resolution) -> String {
    let word = match resolution.decision {
        Some(Decision::Allow) => "allowed",
        Some(Decision::Reject) => "rejected",
        None => "cancelled",
    };
    if resolution.always { format!("{word} always") } else { word.to_owned() }
}

/// That the agent waits, and what to type for it to go on.
fn waits(permission: &Permission) -> String {
    let id = short_id(permission.id);
    let ways = match permission.kind {
        PermissionKind::Elicitation => format!("answer with `acpd approve {id}`, or decline with `acpd reject {id}`"),
        PermissionKind::Tool | PermissionKind::File | PermissionKind::Terminal => {
            format!("answer with `acpd approve {id}` or `acpd reject {id}`")
        }
    };
    format!("the agent waits for an answer: {}; {ways}", what(permission))
}

#[cfg(test)]
fn example(fields: &serde_json::Value) -> Permission {
    let mut json = serde_json::json!({
        "id": "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e", "sessionId": "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0f", "kind": "tool",
        "title": "Run make", "action": {"kind": "execute", "paths": []}, "options": [], "request": {},
        "status": "open", "askedAt": "2025-11-16T03:00:00.007Z",
    });
    for (name, value) in fields.as_object().unwrap() {
        json[name] = value.clone();
    }
    // Raw JSON is only read from text.
    serde_json::from_str(&json.to_string()).unwrap()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_one_line_that_leaves_nothing_out() {
        let asked = |title: &str, action: serde_json::Value| what(&example(&json!({"title": title, "action": action})));
        let command = |command: serde_json::Value| json!({"kind": "execute", "paths": [], "command": command});
        assert_eq!(asked("Run make", command(json!("make"))), "Run make");
        assert_eq!(asked("Shell\x1b[2J", command(json!("rm -rf\n\x07/"))), "Shell[2J: rm -rf /");
        assert_eq!(asked("", command(json!(["sh", "-c", "a b"]))), "sh -c \"a b\"");
        assert_eq!(asked("Edit", json!({"kind": "edit", "paths": ["a", "b"]})), "Edit: a, b");
    }
}
