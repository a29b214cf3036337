//! The one thing that the demo agent writes: a note at the top of the workspace. A person is asked first, with the change
//! to see; acpd writes it, and the agent says what it was told.

use std::io::Write;

use serde_json::{Value, json};

use super::words::{Question, counted};
use super::{Agent, Halt, Turn, workspace};

const FILE: &str = "acpd-demo.md";
const CALL: &str = "note";
const ALLOW: &str = "allow";
const ALLOW_ALWAYS: &str = "allow-always";
const REJECT: &str = "reject";

impl<W: Write> Agent<W> {
    /// Proposes the note, and returns the sentence about what came of it.
    pub(super) fn write_note(&mut self, turn: &Turn, question: &Question) -> Result<String, Halt> {
        if !self.client_writes {
            return Ok(format!("I would write a note to `{FILE}`, but acpd does not write files for me here."));
        }
        let path = turn.directory.join(FILE);
        let old = match workspace::text(&path) {
            Ok(old) => old,
            Err(error) => return Ok(format!("I wrote no note, because I cannot read `{FILE}`: {error}.")),
        };
        let new = format!("{}- {}\n", old.as_deref().unwrap_or("# Notes of the demo agent\n\n"), question.quote());
        let call = json!({
            "toolCallId": turn.call(CALL), "title": format!("Write {FILE}"), "kind": "edit", "status": "pending",
            "locations": [{"path": path}], "rawInput": {"path": path},
            "content": [{"type": "diff", "path": path, "oldText": old, "newText": new}],
        });
        let mut update = call.clone();
        update["sessionUpdate"] = json!("tool_call");
        self.update(turn, &update)?;
        let option = |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
        let options = [
            option(ALLOW, "Allow once", "allow_once"),
            option(ALLOW_ALWAYS, "Allow always", "allow_always"),
            option(REJECT, "Reject", "reject_once"),
        ];
        let params = json!({"sessionId": turn.session_id, "toolCall": call, "options": options});
        let answer = match self.ask("session/request_permission", &params)? {
            Ok(answer) => answer,
            Err(error) => return self.not_written(turn, &format!("I could not ask for permission ({error})")),
        };
        if !is_allowed(&answer) {
            return self.not_written(turn, "I was not allowed to");
        }
        self.update(
            turn,
            &json!({"sessionUpdate": "tool_call_update", "toolCallId": turn.call(CALL), "status": "in_progress"}),
        )?;
        let params = json!({"sessionId": turn.session_id, "path": path, "content": new});
        if let Err(error) = self.ask("fs/write_text_file", &params)? {
            return self.not_written(turn, &format!("I was allowed to, but acpd could not ({error})"));
        }
        self.update(
            turn,
            &json!({"sessionUpdate": "tool_call_update", "toolCallId": turn.call(CALL), "status": "completed"}),
        )?;
        Ok(format!(
            "I was allowed to, so acpd wrote `{FILE}` for me; it now has {}.",
            counted(new.lines().count(), "line")
        ))
    }

    fn not_written(&mut self, turn: &Turn, why: &str) -> Result<String, Halt> {
        self.end_call(turn, CALL, &Err(format!("{why}; nothing was written")))?;
        Ok(format!("I asked to write `{FILE}`. {why}, so nothing was written."))
    }
}

fn is_allowed(answer: &Value) -> bool {
    [ALLOW, ALLOW_ALWAYS].iter().any(|option| answer["outcome"]["optionId"] == *option)
}
