//! What the daemon answers to a program, in the words of the command line: the fields of a request are arguments here, and
//! what else can be asked is asked with a command.

use serde_json::Value;

use crate::control::wire::ErrorBody;

/// What a person calls a field. Where there is nothing, what is said of it stands for itself.
const FIELDS: [(&str, &str); 14] = [
    ("q", "the query"),
    ("path", ""),
    ("title", "the title"),
    ("tags", "a tag (--tag)"),
    ("reason", "the reason (--reason)"),
    ("workspace", "the directory"),
    ("agent", "the agent (--agent)"),
    ("mode", "the mode"),
    ("model", "the model"),
    ("text", "the prompt"),
    ("content", "the prompt"),
    ("name", "the name"),
    ("state", "the state (--state)"),
    ("optionId", ""),
];

/// What tells the same as a request; the longer ones first, for they begin with the shorter ones.
const REQUESTS: [(&str, &str); 9] = [
    (
        "POST /v1/sessions/{id}/checkpoints/{name}/restore with newSession",
        "`acpd checkpoint restore SESSION NAME --new`",
    ),
    ("GET /v1/sessions/{id}/turns", "`acpd turns SESSION`"),
    ("GET /v1/sessions/{id}/rules", "`acpd rules SESSION`"),
    ("GET /v1/sessions/{id}", "`acpd show SESSION`"),
    ("GET /v1/permissions, and all with ?status=all", "`acpd permissions`, and all with --all"),
    ("GET /v1/permissions/{id}", "`acpd permissions --all`"),
    ("GET /v1/sessions", "`acpd ls`"),
    ("GET /v1/agents", "`acpd agents`"),
    ("GET /v1/workspaces", "`acpd workspaces`"),
];

/// Beside a command that tells the same.
const BESIDE_COMMAND: &str = "` or GET /";
/// How the hint begins that sends programmers to the description of the interface.
const CORRECT_IT: &str = "correct the request and send it again";

/// The refusal as a person reads it.
pub fn for_people(mut body: ErrorBody) -> ErrorBody {
    if body.error == "invalid_request"
        && let Value::String(field) = &body.details["field"]
        && let Some((_, name)) = FIELDS.iter().find(|(known, _)| known == field)
        && let Some(problem) = body.message.strip_prefix(field.as_str()).and_then(|rest| rest.strip_prefix(": "))
    {
        body.message = if name.is_empty() { problem.to_owned() } else { format!("{name} {problem}") };
    }
    if body.hint.starts_with(CORRECT_IT) {
        "correct it and try again; `acpd help COMMAND` explains the arguments".clone_into(&mut body.hint);
    }
    body.hint = with_commands(&body.hint);
    body
}

fn with_commands(hint: &str) -> String {
    let mut hint = hint.to_owned();
    if let Some(begin) = hint.find(BESIDE_COMMAND).map(|quote| quote + 1) {
        let end = hint[begin..].find([';', ',']).map_or(hint.len(), |length| begin + length);
        hint.replace_range(begin..end, "");
    }
    REQUESTS.iter().fold(hint, |hint, (request, command)| hint.replace(request, command))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(field: &str, message: &str, hint: &str) -> (String, String) {
        let body = json!({"error": "invalid_request", "message": message, "hint": hint, "details": {"field": field}});
        let body = for_people(serde_json::from_value(body).unwrap());
        (body.message, body.hint)
    }

    #[test]
    fn fields_are_arguments() {
        assert_eq!(told("q", "q: has no word to search for", "").0, "the query has no word to search for");
        assert_eq!(told("path", "path: cannot write it", "").0, "cannot write it");
        let (message, hint) = told(
            "title",
            "title: must not have control characters",
            "correct the request and send it again; docs/api.md …",
        );
        assert_eq!(message, "the title must not have control characters");
        assert!(!hint.contains("docs/api.md"), "{hint}");
        assert_eq!(told("newer", "newer: is odd", "").0, "newer: is odd", "what is not known stays as it is");
    }

    #[test]
    fn requests_are_commands() {
        for (hint, told) in [
            ("list them with `acpd turns` or GET /v1/sessions/{id}/turns", "list them with `acpd turns`"),
            ("`acpd agents` or GET /v1/agents; add others", "`acpd agents`; add others"),
            (
                "nothing was changed; GET /v1/sessions/{id} shows it",
                "nothing was changed; `acpd show SESSION` shows it",
            ),
            ("start it", "start it"),
        ] {
            assert_eq!(with_commands(hint), told);
        }
    }
}
