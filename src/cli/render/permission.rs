//! What the agent asked to be allowed, and what it was told.

use std::collections::HashMap;

use serde_json::Value;

use super::super::account;
use super::super::text::one_line;

/// Questions without an answer. More than that are forgotten, and their answers told without a title.
const OPEN_QUESTIONS_MAX: usize = 64;
/// A session may only narrow what its agent's profile grants, so the flag alone may not be enough.
const HINT: &str = "`acpd run --permissions allow` lets an agent act without asking, if its profile permits that \
                    ([agents.NAME] in config.toml)";

#[derive(Debug, Default)]
pub struct Permissions {
    questions: HashMap<String, Question>,
    /// The hint is worth saying once.
    has_hinted: bool,
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
        let title = one_line(data["title"].as_str().unwrap_or_default());
        let is_elicitation = data["kind"] == "elicitation";
        self.questions.insert(id.to_owned(), Question { title, is_elicitation, kinds });
    }

    pub fn resolved(&mut self, data: &Value) -> Resolved {
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
        let decided_by = decided_by.strip_prefix("cancelled: ").unwrap_or(&decided_by);
        let by = if decided_by.is_empty() { String::new() } else { format!(" ({decided_by})") };
        // Who rejects it knows what they do.
        let is_automatic = data["by"]["type"] != "person";
        let hint = (verdict == "rejected" && is_automatic && !self.has_hinted).then_some(HINT);
        self.has_hinted |= hint.is_some();
        Resolved { line: format!("{what} {verdict}{always}: {title}{by}"), hint }
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
            ("1", "permission allowed: rm -rf[2J build (policy ask)", false),
            ("2", "permission rejected: rm -rf[2J build (policy ask)", true),
            ("2", "permission rejected: rm -rf[2J build (policy ask)", false),
        ] {
            ask(&mut permissions);
            let resolved = permissions.resolved(&answer(option));
            assert_eq!((resolved.line.as_str(), resolved.hint.is_some()), (line, has_hint));
        }
        ask(&mut permissions);
        let person = json!({"permissionId": "p", "outcome": "selected", "optionId": "1", "decision": "reject",
            "always": true, "by": {"type": "person", "uid": 424_242, "pid": 1, "program": "acpd"}, "decidedBy": "as of old"});
        let resolved = Permissions::default().resolved(&person);
        assert_eq!(resolved.line, "permission rejected always: an earlier request (uid 424242 with acpd)");
        assert!(resolved.hint.is_none());
        assert!(permissions.resolved(&person).line.starts_with("permission rejected always: rm -rf"));
        let unseen = permissions.resolved(&answer("1"));
        assert_eq!(unseen.line, "permission answered: an earlier request (policy ask)");
    }
}
