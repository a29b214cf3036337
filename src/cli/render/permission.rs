//! What the agent asked to be allowed, and what it was told.

use std::collections::HashMap;

use serde_json::Value;

use super::super::account;
use super::super::text::one_line;
use crate::model::permission::shown;

/// Questions without an answer. More than that are forgotten, and their answers told without a title.
const OPEN_QUESTIONS_MAX: usize = 64;
/// The profile's ceiling may be lower, so the flag alone may not be enough.
const HINT: &str = "`--permissions edit` allows edits in the workspace, `--permissions allow` all but .git and git that writes; the \
                    agent's permissions_max may forbid both";

#[derive(Debug, Default)]
pub struct Permissions {
    questions: HashMap<String, Question>,
    /// The hint is worth saying once.
    has_hinted: bool,
    /// The last answer of a policy.
    last_automatic: String,
}

#[derive(Debug, Default)]
struct Question {
    title: String,
    /// Whether the agent wants to know something, and not to do it.
    is_elicitation: bool,
    /// The kind of each option, by its id.
    kinds: HashMap<String, String>,
}

pub struct Resolved {
    pub line: String,
    pub hint: Option<&'static str>,
}

impl Permissions {
    pub fn requested(&mut self, data: &Value) {
        let Some(id) = data["permissionId"].as_str() else { return };
        if self.questions.len() >= OPEN_QUESTIONS_MAX {
            self.questions.clear();
        }
        let options = data["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kinds = options
            .iter()
            .filter_map(|option| Some((option["optionId"].as_str()?.to_owned(), option["kind"].as_str()?.to_owned())))
            .collect();
        let title = shown::question_of(data);
        let is_elicitation = data["kind"] == "elicitation";
        self.questions.insert(id.to_owned(), Question { title, is_elicitation, kinds });
    }

    /// Nothing for a policy's answer that only repeats an earlier one: agents ask to write a file, and then ask acpd to write it.
    pub fn resolved(&mut self, data: &Value) -> Option<Resolved> {
        let question = data["permissionId"].as_str().and_then(|id| self.questions.remove(id)).unwrap_or_default();
        let kind = data["optionId"].as_str().and_then(|id| question.kinds.get(id));
        let verdict = match (data["outcome"].as_str(), kind) {
            _ if data["decision"] == "allow" && question.is_elicitation => "answered",
            _ if data["decision"] == "allow" => "allowed",
            _ if data["decision"] == "reject" && question.is_elicitation => "declined",
            _ if data["decision"] == "reject" => "rejected",
            // What follows is for logs in which no decision was recorded.
            (Some("selected"), Some(kind)) if kind.starts_with("allow") => "allowed",
            (Some("selected"), Some(_)) => "rejected",
            // The question was not seen, so its answer cannot be understood either.
            (Some("selected"), None) => "answered",
            // A policy that finds no option to reject with can only cancel the question.
            _ if data["decidedBy"].as_str().is_some_and(|decided_by| decided_by.starts_with("policy")) => "rejected",
            _ => "cancelled",
        };
        let title = if question.title.is_empty() { "an earlier request" } else { &question.title };
        let what = if question.is_elicitation { "request" } else { "permission" };
        let always = if data["always"] == true { " always" } else { "" };
        let decided_by = one_line(&account::decided_by_of(data));
        let by = if decided_by.is_empty() { String::new() } else { format!(" ({decided_by})") };
        // Who rejects it knows what they do.
        let is_automatic = data["by"]["type"] != "person";
        let hint = (verdict == "rejected" && is_automatic && !self.has_hinted).then_some(HINT);
        self.has_hinted |= hint.is_some();
        let line = format!("{what} {verdict}{always}: {title}{by}");
        let automatic = if data["by"]["type"] == "policy" { line.clone() } else { String::new() };
        let is_covered = data["by"]["rule"].as_str().is_some_and(|rule| rule.starts_with(account::EARLIER_ANSWER));
        let is_repeated = is_covered || (!automatic.is_empty() && self.last_automatic == automatic);
        self.last_automatic = automatic;
        (!is_repeated).then_some(Resolved { line, hint })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(permissions: &mut Permissions) {
        permissions.requested(&json!({"permissionId": "p", "toolCallId": "c", "title": "rm -rf\x1b[2J build",
            "options": [{"optionId": "1", "name": "Yes", "kind": "allow_once"}, {"optionId": "2", "name": "No", "kind": "reject_once"}],
        }));
    }

    #[test]
    fn an_answer_is_told_with_its_question_and_the_hint_once() {
        let mut permissions = Permissions::default();
        let answer = |option| json!({"permissionId": "p", "toolCallId": "c", "outcome": "selected", "optionId": option, "decidedBy": "policy ask"});
        for (option, line, has_hint) in [
            ("1", "permission allowed: rm -rf\\u{1b}[2J build (policy ask)", false),
            ("2", "permission rejected: rm -rf\\u{1b}[2J build (policy ask)", true),
            ("2", "permission rejected: rm -rf\\u{1b}[2J build (policy ask)", false),
        ] {
            ask(&mut permissions);
            let resolved = permissions.resolved(&answer(option)).unwrap();
            assert_eq!((resolved.line.as_str(), resolved.hint.is_some()), (line, has_hint));
        }
        ask(&mut permissions);
        let person = json!({"permissionId": "p", "outcome": "selected", "optionId": "1", "decision": "reject",
            "always": true, "by": {"type": "person", "uid": 424_242, "pid": 1, "program": "acpd"}, "decidedBy": "as of old"});
        let resolved = Permissions::default().resolved(&person).unwrap();
        assert_eq!(resolved.line, "permission rejected always: an earlier request (uid 424242 with acpd)");
        assert!(resolved.hint.is_none());
        assert!(permissions.resolved(&person).unwrap().line.starts_with("permission rejected always: rm -rf"));
        let unseen = permissions.resolved(&answer("1")).unwrap();
        assert_eq!(unseen.line, "permission answered: an earlier request (policy ask)");
    }

    #[test]
    fn a_policy_that_allows_the_same_twice_is_shown_once() {
        let mut permissions = Permissions::default();
        let mut shown = |by: &Value| {
            ask(&mut permissions);
            let resolved =
                permissions.resolved(&json!({"permissionId": "p", "decision": "allow", "by": by, "decidedBy": "x"}));
            resolved.map(|resolved| resolved.line)
        };
        let mode = json!({"type": "policy", "rule": "session mode edit"});
        let rule = json!({"type": "policy", "rule": "profile rules[0]"});
        let line = |by: &str| Some(format!("permission allowed: rm -rf\\u{{1b}}[2J build ({by})"));
        assert_eq!(shown(&mode), line("the session's permission mode edit"));
        assert_eq!(shown(&mode), None);
        assert_eq!(shown(&rule), line("the profile's rules[0]"));
        assert_eq!(shown(&json!({"type": "policy", "rule": "permission 01a1f185"})), None, "an answer covers both");
        let person = json!({"type": "person", "uid": 424_242});
        assert_eq!([shown(&person), shown(&person)], [line("uid 424242"), line("uid 424242")]);
    }
}
