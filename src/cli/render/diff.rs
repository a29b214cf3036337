//! Two texts, as the lines that changed between them and a few around those.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::model::permission::shown::visible;

const CONTEXT_LINES: usize = 3;
/// Two large files that have little in common take for ever to compare; after this the diff is coarser.
const TIME_MAX: Duration = Duration::from_millis(300);

/// One line of a diff, cleaned and with its mark.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    Added(String),
    Removed(String),
    /// Around a change, or between two of them.
    Kept(String),
}

impl Change {
    pub fn between(old: &str, new: &str) -> Vec<Self> {
        let diff = TextDiff::configure().timeout(TIME_MAX).diff_lines(old, new);
        let mut changes = Vec::new();
        for (index, hunk) in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks().enumerate() {
            if index > 0 {
                changes.push(Self::Kept("  …".to_owned()));
            }
            for change in hunk.iter_changes() {
                let text = visible(change.value().trim_end_matches(['\r', '\n']));
                changes.push(match change.tag() {
                    ChangeTag::Insert => Self::Added(format!("+ {text}")),
                    ChangeTag::Delete => Self::Removed(format!("- {text}")),
                    ChangeTag::Equal => Self::Kept(format!("  {text}")),
                });
            }
        }
        changes
    }
}
