//! What was consented to already: an agent asks whether it may do something, and then has acpd do it for it.
//!
//! Gemini CLI does so for every file that it writes. Nobody is asked twice for the same thing, and the same it is only
//! while the tool call is under way, once, for the same command, or for the same files by their real paths; and where the
//! call showed any new text, for the files that it showed and for those very texts.

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
    /// What of it was not done yet.
    left: Left,
}

/// What a grant is still for. Each of it is done once.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// The command, or what else is no file.
    Whole,
    /// These files, by their real paths, with any text: none was shown.
    Files(Vec<String>),
    /// These files with these texts.
    Texts(Vec<(String, BlobHash)>),
}

impl Grant {
    fn new(
        permission: PermissionId,
        tool_call_id: String,
        located: Located,
        shown: Option<Vec<(Place, BlobHash)>>,
    ) -> Self {
        let left = match shown {
            Some(texts) => {
                let text = |(place, hash): (Place, BlobHash)| Some((place.real()?.to_owned(), hash));
                Left::Texts(texts.into_iter().filter_map(text).collect())
            }
            None if located.command.is_some() => Left::Whole,
            None => Left::Files(located.places.iter().filter_map(Place::real).map(str::to_owned).collect()),
        };
        Self { permission, tool_call_id, located, left }
    }

    /// Whether it is for this too; then that is done. `text` is what is to be written.
    fn take(&mut self, action: &Located, text: Option<&str>) -> bool {
        if self.located.kind() != action.kind() {
            return false;
        }
        match (&action.command, &self.located.command) {
            // A line that is nothing but words is the same as those words.
            (Some(asked), Some(granted)) => {
                let is_same = asked == granted
                    || command::vector(asked).is_some_and(|words| command::vector(granted) == Some(words));
                is_same && action.runs_as(&self.located) && self.left.take_whole()
            }
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => only_file(action).is_some_and(|file| self.left.take_file(file, text)),
        }
    }
}

impl Left {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Files(files) if files.is_empty()) || matches!(self, Self::Texts(texts) if texts.is_empty())
    }

    fn take_whole(&mut self) -> bool {
        let is_there = *self == Self::Whole;
        if is_there {
            *self = Self::Files(Vec::new());
        }
        is_there
    }

    /// Where any text was shown, only what was shown is meant.
    fn take_file(&mut self, file: &str, text: Option<&str>) -> bool {
        match (self, text) {
            (Self::Whole, _) | (Self::Texts(_), None) => false,
            (Self::Files(files), _) => take_first(files, |left| left == file),
            (Self::Texts(texts), Some(text)) => {
                let hash = BlobHash::of(text.as_bytes());
                take_first(texts, |(left, shown)| left == file && *shown == hash)
            }
        }
    }
}

/// Takes the first out that is meant; whether there was one.
fn take_first<T>(items: &mut Vec<T>, is_meant: impl Fn(&T) -> bool) -> bool {
    let found = items.iter().position(is_meant);
    found.map(|index| items.swap_remove(index)).is_some()
}

/// The one file that an action is about, by all of its names.
fn only_file(action: &Located) -> Option<&str> {
    let first = action.places.first()?.real()?;
    action.places.iter().all(|place| place.real() == Some(first)).then_some(first)
}

/// The changes that a tool call shows, if it shows any. What is there and cannot be read shows nothing that is known, so
/// nothing is covered by it.
pub(super) fn texts_shown(call: &ToolCall, before: Option<&ToolCall>) -> Option<Vec<Shown>> {
    let content = call.content.as_ref().or_else(|| before?.content.as_ref()).filter(|content| !content.is_null())?;
    let Some(items) = content.as_array() else { return Some(Vec::new()) };
    let diffs: Vec<&Value> = items.iter().filter(|item| item["type"] == "diff").collect();
    let change = |item: &&Value| {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        Some(Shown { path: text("path")?.to_owned(), hash: BlobHash::of(text("newText")?.as_bytes()) })
    };
    (!diffs.is_empty()).then(|| diffs.iter().filter_map(change).collect())
}

impl SessionActor {
    /// The agent is allowed what this tool call is about.
    pub(super) fn grant(&mut self, permission: PermissionId, tool_call_id: String, located: Located, deed: &Deed) {
        let Deed::Agents { shown, .. } = deed else { return };
        let workspace = &self.workspace;
        let place = |shown: &Shown| (agent::place(workspace, &shown.path), shown.hash);
        // As the owner; where that cannot be, nothing was shown.
        let look = |shown: &Vec<Shown>| self.persona.run(|| shown.iter().map(place).collect()).ok();
        let shown = shown.as_ref().and_then(look);
        let transcript = &self.transcript;
        self.grants.retain(|grant| transcript.open_call(&grant.tool_call_id).is_some());
        if self.grants.len() >= GRANTS_MAX {
            self.grants.remove(0);
        }
        self.grants.push(Grant::new(permission, tool_call_id, located, shown));
    }

    /// The permission of a tool call under way that covers this too. It does so once.
    pub(super) fn take_grant(&mut self, action: &Located, text: Option<&str>) -> Option<PermissionId> {
        let transcript = &self.transcript;
        let permission = self.grants.iter_mut().find_map(|grant| {
            let is_under_way = transcript.open_call(&grant.tool_call_id).is_some();
            (is_under_way && grant.take(action, text)).then_some(grant.permission)
        })?;
        self.grants.retain(|grant| !grant.left.is_nothing());
        Some(permission)
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

    fn grant(located: Located, shown: Option<Vec<(Place, BlobHash)>>) -> Grant {
        Grant::new(PermissionId::new(), "c".to_owned(), located, shown)
    }

    fn edit(path: &str) -> Located {
        located(ToolKind::Edit, vec![inside(path)], None)
    }

    #[test]
    fn a_write_is_covered_when_it_is_what_was_shown() {
        let text = || Some(vec![(inside("a"), BlobHash::of(b"text"))]);
        let mut granted = grant(edit("a"), text());
        assert!(!granted.take(&edit("a"), Some("text and more")), "another text");
        assert!(!granted.take(&edit("b"), Some("text")), "another file");
        assert!(!granted.take(&located(ToolKind::Delete, vec![inside("a")], None), None), "another thing to do");
        assert!(granted.take(&edit("a"), Some("text")));
        assert!(!granted.take(&edit("a"), Some("text")), "it was done");
        let mut granted = grant(located(ToolKind::Edit, vec![inside("a"), inside("b")], None), text());
        assert!(!granted.take(&edit("b"), Some("any")), "of that file nothing was shown");
    }

    #[test]
    fn a_file_is_covered_by_its_real_path_under_whatever_name() {
        let named = |named: &str| Place::Inside { real: "a".to_owned(), named: named.to_owned() };
        let mut granted = grant(edit("a"), Some(vec![(named("link"), BlobHash::of(b"text"))]));
        let write = located(ToolKind::Edit, vec![named("a"), named("link")], None);
        assert!(!granted.take(&write, Some("another")), "the text was shown under another name");
        assert!(granted.take(&write, Some("text")));
    }

    #[test]
    fn where_nothing_was_shown_each_file_is_covered_once() {
        let mut granted = grant(edit("a"), None);
        assert!(granted.take(&edit("a"), Some("any")));
        assert!(!granted.take(&edit("a"), Some("any")), "it was done");
        let outside = Place::Outside { named: "/etc/x".to_owned() };
        let there = located(ToolKind::Edit, vec![outside], None);
        assert!(!grant(there.clone(), None).take(&there, Some("any")), "outside the workspace");
    }

    #[test]
    fn a_command_is_covered_once_when_its_words_are_the_same() {
        let run = |command| located(ToolKind::Execute, vec![], Some(command));
        let words = |text: &str| run(CommandText::Arguments(text.split(' ').map(str::to_owned).collect()));
        let line = |text: &str| run(CommandText::Shell(text.to_owned()));
        let mut granted = grant(line("cargo test"), None);
        assert!(!granted.take(&words("cargo test -- x"), None));
        assert!(granted.take(&words("cargo test"), None));
        assert!(!granted.take(&words("cargo test"), None), "it was done");
        assert!(grant(line("a; b"), None).take(&line("a; b"), None));
        assert!(!grant(line("a; b"), None).take(&words("a; b"), None), "one is for a shell");
    }

    #[test]
    fn what_a_call_shows_is_its_diffs() {
        let content = serde_json::json!([
            {"type": "diff", "path": "/w/a", "oldText": "", "newText": "text"},
            {"type": "content", "content": {"type": "text", "text": "hi"}},
        ]);
        let call = ToolCall { content: Some(content), ..ToolCall::default() };
        let shown = texts_shown(&call, None).unwrap();
        assert_eq!((shown.len(), shown[0].path.as_str()), (1, "/w/a"));
        assert_eq!(shown[0].hash, BlobHash::of(b"text"));
        let later = ToolCall::default();
        assert_eq!(texts_shown(&later, Some(&call)).unwrap().len(), 1, "what was shown before counts");
        assert!(texts_shown(&later, None).is_none());
        let cut = ToolCall { content: Some(serde_json::json!({"truncated": true})), ..ToolCall::default() };
        assert_eq!(texts_shown(&cut, None).unwrap().len(), 0, "what cannot be read covers nothing");
    }
}
