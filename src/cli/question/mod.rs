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

use crate::control::wire::permissions::Permission;
use crate::model::permission::question::{Decision, PermissionKind, Resolution};
use crate::model::permission::shown;

use super::text::short_id;

/// When a person answered "always", and no rule was made.
pub const APPLIES_ONCE: &str = "this answer applies once: acpd makes no rule for a path outside the workspace, for a \
                                command without input, or if the session has too many rules";

/// What is asked, on one line.
pub fn what(permission: &Permission) -> String {
    shown::question(&permission.title, &permission.action)
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
        assert_eq!(asked("Run make", command(json!("make"))), "$ make");
        assert_eq!(asked("Read form", command(json!("rm"))), "$ rm — Read form", "the title is no substitute");
        assert_eq!(asked("Shell\x1b[2J", command(json!("rm -rf\n\r/"))), r"$ rm -rf\n\r/ — Shell\u{1b}[2J");
        assert_eq!(asked("", command(json!(["sh", "-c", "a b"]))), "$ sh -c \"a b\"");
        assert_eq!(asked("Edit", json!({"kind": "edit", "paths": ["a", "b"]})), "a, b — Edit");
        assert_eq!(asked("Edit a", json!({"kind": "edit", "paths": ["a"]})), "Edit a");
        // Zero-width, reordering, tags, fillers and blanks; what has a picture stays.
        let hidden = "a\u{200b}\u{202e}\u{e0041}\u{3164}\u{a0}\u{fe0f}\u{200d}é日e\u{301}";
        let shown = r"$ a\u{200b}\u{202e}\u{e0041}\u{3164}\u{a0}\u{fe0f}\u{200d}é日".to_owned() + "e\u{301}";
        assert_eq!(asked("", command(json!(hidden))), shown);
        assert_eq!(asked("", command(json!(format!("a{}; b", " ".repeat(300))))), "$ a [300 blanks] ; b");
    }
}
