//! What was consented to already: an agent asks whether it may do something, and then has acpd do it for it.
//!
//! Gemini CLI does so for every file that it writes. Nobody is asked twice for the same thing, and the same it is only
//! while the tool call is under way, for the same command, or for the same files; and for a file whose new text was shown,
//! for that very text.

use serde_json::Value;

use super::actor::SessionActor;
use super::consent::Deed;
use crate::acp::update::ToolCall;
use crate::agent;
use crate::model::permission::{Located, Place, command};
use crate::model::{BlobHash, PermissionId};

/// Approved tool calls that are remembered until they end. The oldest are forgotten, and asked about again.
const GRANTS_MAX: usize = 64;

/// The new text of a file, as the agent shows it.
#[derive(Debug)]
pub(super) struct Shown {
    path: String,
    hash: BlobHash,
}

/// A tool call that was approved.
pub(super) struct Grant {
    permission: PermissionId,
    tool_call_id: String,
    located: Located,
    shown: Vec<(Place, BlobHash)>,
}

impl Grant {
    /// Whether it is for this too. `text` is what is to be written.
    fn covers(&self, action: &Located, text: Option<&str>) -> bool {
        let is_inside = |place: &Place| matches!(place, Place::Inside { .. });
        let is_named = |place: &Place| is_inside(place) && self.located.places.contains(place);
        let is_same = match (&action.command, &self.located.command) {
            // A line that is nothing but words is the same as those words.
            (Some(asked), Some(granted)) => {
                let is_same_text = asked == granted
                    || command::vector(asked).is_some_and(|words| command::vector(granted) == Some(words));
                is_same_text && action.runs_as(&self.located)
            }
            (Some(_), None) => false,
            (None, _) => !action.places.is_empty() && action.places.iter().all(is_named),
        };
        is_same && self.located.kind() == action.kind() && text.is_none_or(|text| self.shows(&action.places, text))
    }

    /// Whether the text is the one that was shown for the file; a file whose text was not shown may have any.
    fn shows(&self, places: &[Place], text: &str) -> bool {
        let mut of_file = self.shown.iter().filter(|(place, _)| places.contains(place)).peekable();
        of_file.peek().is_none() || of_file.any(|(_, hash)| *hash == BlobHash::of(text.as_bytes()))
    }
}

/// The changes that a tool call shows.
pub(super) fn shown(call: &ToolCall) -> Vec<Shown> {
    let items = call.content.as_ref().and_then(Value::as_array).into_iter().flatten();
    let changes = items.filter_map(|item| {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let (Some("diff"), Some(path), Some(new)) = (text("type"), text("path"), text("newText")) else { return None };
        Some(Shown { path: path.to_owned(), hash: BlobHash::of(new.as_bytes()) })
    });
    changes.collect()
}

impl SessionActor {
    /// The agent is allowed what this tool call is about.
    pub(super) fn grant(&mut self, permission: PermissionId, tool_call_id: String, located: Located, deed: &Deed) {
        let Deed::Agents { shown, .. } = deed else { return };
        let place = |shown: &Shown| (agent::place(&self.workspace, &shown.path), shown.hash);
        let shown = shown.iter().map(place).collect();
        let transcript = &self.transcript;
        self.grants.retain(|grant| transcript.open_call(&grant.tool_call_id).is_some());
        if self.grants.len() >= GRANTS_MAX {
            self.grants.remove(0);
        }
        self.grants.push(Grant { permission, tool_call_id, located, shown });
    }

    /// The permission of a tool call under way that covers this too.
    pub(super) fn granted(&self, action: &Located, text: Option<&str>) -> Option<PermissionId> {
        let is_under_way = |grant: &&Grant| self.transcript.open_call(&grant.tool_call_id).is_some();
        let mut grants = self.grants.iter().filter(is_under_way);
        grants.find(|grant| grant.covers(action, text)).map(|grant| grant.permission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::permission::{CommandText, ToolKind};

    fn inside(path: &str) -> Place {
        Place::Inside { real: path.to_owned(), named: path.to_owned() }
    }

    fn located(said: ToolKind, places: Vec<Place>, command: Option<CommandText>) -> Located {
        Located { said, places, command, ..Located::default() }
    }

    fn grant(located: Located, shown: Vec<(Place, BlobHash)>) -> Grant {
        Grant { permission: PermissionId::new(), tool_call_id: "c".to_owned(), located, shown }
    }

    #[test]
    fn a_write_is_covered_when_it_is_what_was_shown() {
        let edit = |path: &str| located(ToolKind::Edit, vec![inside(path)], None);
        let granted = grant(edit("a"), vec![(inside("a"), BlobHash::of(b"text"))]);
        assert!(granted.covers(&edit("a"), Some("text")));
        assert!(!granted.covers(&edit("a"), Some("text and more")), "another text");
        assert!(!granted.covers(&edit("b"), Some("text")), "another file");
        assert!(!granted.covers(&located(ToolKind::Delete, vec![inside("a")], None), None), "another thing to do");
        assert!(grant(edit("a"), vec![]).covers(&edit("a"), Some("any")), "nothing was shown");
        let outside = Place::Outside { named: "/etc/x".to_owned() };
        let there = located(ToolKind::Edit, vec![outside], None);
        assert!(!grant(there.clone(), vec![]).covers(&there, Some("any")), "outside the workspace");
    }

    #[test]
    fn a_command_is_covered_when_its_words_are_the_same() {
        let run = |command| located(ToolKind::Execute, vec![], Some(command));
        let words = |text: &str| run(CommandText::Arguments(text.split(' ').map(str::to_owned).collect()));
        let line = |text: &str| run(CommandText::Shell(text.to_owned()));
        assert!(grant(line("cargo test"), vec![]).covers(&words("cargo test"), None));
        assert!(!grant(line("cargo test"), vec![]).covers(&words("cargo test -- x"), None));
        assert!(grant(line("a; b"), vec![]).covers(&line("a; b"), None));
        assert!(!grant(line("a; b"), vec![]).covers(&words("a; b"), None), "one is for a shell");
    }

    #[test]
    fn what_a_call_shows_is_its_diffs() {
        let content = serde_json::json!([
            {"type": "diff", "path": "/w/a", "oldText": "", "newText": "text"},
            {"type": "content", "content": {"type": "text", "text": "hi"}},
        ]);
        let call = ToolCall { content: Some(content), ..ToolCall::default() };
        let shown = shown(&call);
        assert_eq!((shown.len(), shown[0].path.as_str()), (1, "/w/a"));
        assert_eq!(shown[0].hash, BlobHash::of(b"text"));
    }
}
