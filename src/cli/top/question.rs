//! A question of an agent's, to be looked at and answered.

use crate::cli::question::{Details, what};
use crate::cli::style::Style;
use crate::control::wire::permissions::Permission;
use crate::model::PermissionId;
use crate::model::permission::question::PermissionKind;

/// Lines of what it is about that are kept. A person who wants more asks `acpd attach`.
const LINES_MAX: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub id: PermissionId,
    /// Whether the agent wants to know something, which takes more than a yes.
    pub is_elicitation: bool,
    /// What is asked, on one line.
    pub what: String,
    /// The command, the files, the changes, each line cleaned and behind a mark.
    pub details: Vec<String>,
    /// Whether there would be more of them.
    pub is_cut: bool,
}

impl Question {
    pub fn of(permission: &Permission) -> Self {
        // In one row each: how wide they may be is known when they are drawn.
        let whole = Details::of(permission).rows(usize::MAX, Style::colourless());
        Self {
            id: permission.id,
            is_elicitation: permission.kind == PermissionKind::Elicitation,
            what: what(permission),
            is_cut: whole.len() > LINES_MAX,
            details: whole.into_iter().take(LINES_MAX).collect(),
        }
    }
}
