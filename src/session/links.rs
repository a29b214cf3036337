//! What the agent is shown beside the prompts: links to what the session's context names.
//!
//! They go out with the first prompt, and again when they have changed or the agent has started from nothing. Like the
//! transcript they are owed until a turn that shows them ends with a stop reason.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::actor::SessionActor;
use crate::model::context::Selection;
use crate::model::{Content, ContextChange, ContextProblem, FsScope, SessionContext};
use crate::store::Op;

pub struct Links {
    context: SessionContext,
    owed: bool,
    /// The running turn shows them.
    shown: bool,
}

impl Links {
    pub const fn new(context: SessionContext, owed: bool) -> Self {
        Self { context, owed, shown: false }
    }

    /// The agent has yet to be shown what the context names, if it names anything. What there is to record.
    pub fn owe(&mut self) -> Option<Op> {
        self.shown = false;
        self.set_owed(self.context.has_links())
    }

    /// The turn that runs has ended with a stop reason.
    pub fn were_shown(&mut self) -> Option<Op> {
        if std::mem::take(&mut self.shown) { self.set_owed(false) } else { None }
    }

    fn set_owed(&mut self, owed: bool) -> Option<Op> {
        (std::mem::replace(&mut self.owed, owed) != owed).then_some(Op::OweLinks(owed))
    }

    /// What goes before the prompt of a turn that begins: what the turn names for itself, or what is owed.
    pub fn blocks(&mut self, workspace: &Path, of_turn: Option<&SessionContext>) -> Vec<Value> {
        self.shown = of_turn.is_none() && self.owed;
        match of_turn {
            Some(context) => links(workspace, context),
            None if self.owed => links(workspace, &self.context),
            None => Vec::new(),
        }
    }
}

impl Links {
    /// What the session may touch, which is for life.
    pub fn scope(&self) -> FsScope {
        self.context.fs_scope
    }
}

impl SessionActor {
    /// Whether the session's context can be changed so.
    pub(super) fn checked_context(&self, change: Option<&ContextChange>) -> Result<(), ContextProblem> {
        let changed = change.map(|change| self.links.context.changed_by(change.clone()));
        changed.transpose().map(drop)
    }

    /// Changes the session's context, and tells what it is then.
    pub(super) fn change_context(&mut self, change: ContextChange) -> Result<SessionContext, ContextProblem> {
        let context = self.links.context.changed_by(change)?;
        let before = std::mem::replace(&mut self.links.context, context.clone());
        if (before.active_file, before.selection) != (context.active_file.clone(), context.selection.clone())
            && let Some(op) = self.links.owe()
        {
            self.record(op);
        }
        Ok(context)
    }

    /// A prompt as it is recorded and sent, and the context that its turn has in place of the session's, when it is to
    /// show anything else.
    pub(super) fn in_context(
        &self,
        prompt: Content,
        change: Option<ContextChange>,
    ) -> Result<(Content, Option<SessionContext>), ContextProblem> {
        let bytes_max = self.shared.config().limits.prompt_max.0;
        let Some(change) = change else {
            return Ok((self.links.context.fill_in(prompt, bytes_max)?, None));
        };
        let touches_links = change.touches_links();
        let context = self.links.context.changed_by(change)?;
        let prompt = context.fill_in(prompt, bytes_max)?;
        // The variables have done what they are for.
        let of_turn = touches_links.then(|| SessionContext { variables: BTreeMap::new(), ..context });
        Ok((prompt, of_turn))
    }
}

fn links(workspace: &Path, context: &SessionContext) -> Vec<Value> {
    let active_file = context.active_file.as_ref().map(|file| {
        json!({ "type": "resource_link", "uri": file_uri(&workspace.join(file)), "name": file,
            "description": "File open in the user's editor" })
    });
    let selection = context.selection.as_ref().map(|Selection { file, start_line, end_line }| {
        let uri = file_uri(&workspace.join(file));
        json!({ "type": "resource_link", "uri": format!("{uri}#L{start_line}-L{end_line}"),
            "name": format!("{file}, lines {start_line}-{end_line} (selected)"),
            "description": "Selection in the user's editor" })
    });
    active_file.into_iter().chain(selection).collect()
}

fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            // Writing to a text does not fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> SessionContext {
        let selection = Selection { file: "src/ä b#1.rs".to_owned(), start_line: 10, end_line: 20 };
        SessionContext {
            active_file: Some("src/main.rs".to_owned()),
            selection: Some(selection),
            ..SessionContext::default()
        }
    }

    #[test]
    fn links_say_where_and_what() {
        insta::assert_json_snapshot!(links(Path::new("/work"), &context()));
    }

    #[test]
    fn links_are_owed_until_a_turn_that_shows_them_has_ended() {
        let workspace = Path::new("/work");
        let mut links = Links::new(context(), false);
        assert!(links.blocks(workspace, None).is_empty(), "the agent has seen them");
        assert!(matches!(links.owe(), Some(Op::OweLinks(true))));
        assert!(links.owe().is_none(), "nothing new to record");
        assert_eq!(links.blocks(workspace, None).len(), 2);
        assert_eq!(links.blocks(workspace, None).len(), 2, "the turn before failed");
        assert_eq!(links.blocks(workspace, Some(&SessionContext::default())).len(), 0, "a turn with its own context");
        assert!(links.were_shown().is_none(), "that turn did not show them");
        assert_eq!(links.blocks(workspace, None).len(), 2);
        assert!(links.owe().is_none());
        assert!(links.were_shown().is_none(), "they have changed while the turn was running");
        assert_eq!(links.blocks(workspace, None).len(), 2);
        assert!(matches!(links.were_shown(), Some(Op::OweLinks(false))));
        assert!(links.blocks(workspace, None).is_empty());
    }
}
