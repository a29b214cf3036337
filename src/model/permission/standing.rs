//! Standing rules: what a person has answered with "always". They are a session's, listed and revocable, and name exactly
//! what was asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CommandText, Located, Place, ToolKind};
use crate::model::{Peer, RuleId, Timestamp};

/// Standing rules that a session has. Beyond that an "always" holds once.
pub const STANDING_MAX: usize = 256;

#[derive(Clone, Debug)]
pub struct StandingRule {
    pub id: RuleId,
    pub allows: bool,
    pub subject: Subject,
    pub made_by: Peer,
    pub made_at: Timestamp,
}

/// The subject of a rule that came from an "always" answer: files, a command, or a tool with its input and files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    pub kind: ToolKind,
    /// These files, by their real paths below the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// Exactly this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandText>,
    /// The command's directory, relative to the workspace; empty for the workspace itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Environment variables that are set for the command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// This tool, if its kind does not say what it does with files, and it has no command that acpd understands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The hash of the tool's input, for a tool, and for a command whose input acpd does not understand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

impl Subject {
    /// The same action again. There is none for a path outside the workspace, for a tool without a name, and for an
    /// unclear action without an input.
    pub fn of(action: &Located) -> Option<Self> {
        let subject = Self {
            kind: action.kind(),
            paths: None,
            command: action.command.clone(),
            cwd: action.directory()?.to_owned(),
            env: action.env.clone(),
            tool: None,
            input: unclear_input(action),
        };
        let needs_input = action.is_unclear || action.is_unknown_command();
        if needs_input && action.input.is_none() {
            return None;
        }
        if subject.command.is_some() {
            return Some(subject);
        }
        let real = |place: &Place| place.real().map(str::to_owned);
        let paths = action.touched().map(real).collect::<Option<Vec<String>>>()?;
        let paths = Some(paths).filter(|_| !action.places.is_empty());
        if paths.is_some() && acts_on_files(action.kind()) {
            return Some(Self { paths, ..subject });
        }
        let input = action.input.clone();
        action.tool.clone().map(|tool| Self { paths, tool: Some(tool), input, ..subject })
    }
}

/// Whether the kind says what is done with the files. What other tools do only their input says.
const fn acts_on_files(kind: ToolKind) -> bool {
    matches!(kind, ToolKind::Read | ToolKind::Search | ToolKind::Edit | ToolKind::Delete | ToolKind::Move)
}

fn unclear_input(action: &Located) -> Option<String> {
    action.input.clone().filter(|_| action.is_unclear)
}

impl StandingRule {
    /// A rule that allows is met by all files of an action, one that forbids by any.
    pub fn matches(&self, action: &Located) -> bool {
        let Subject { kind, paths, command, cwd, env, tool, input } = &self.subject;
        let is_known = |place: &Place| match (place, paths) {
            (Place::Inside { real, .. }, Some(paths)) => paths.contains(real),
            _ => false,
        };
        let is_met = match (paths, command, tool) {
            // A refusal holds wherever the command runs, and with whatever is set for it.
            (None, Some(_), None) => {
                let is_alike = action.directory() == Some(cwd) && action.env == *env && unclear_input(action) == *input;
                action.command == *command && (is_alike || !self.allows)
            }
            // Older versions made such rules for other kinds, too.
            (Some(_), None, None) if self.allows => {
                acts_on_files(*kind) && !action.places.is_empty() && action.touched().all(is_known)
            }
            (Some(_), None, None) => action.touched().any(is_known),
            (_, None, Some(_)) => action.places.iter().all(is_known) && action.tool == *tool && action.input == *input,
            _ => false,
        };
        is_met && action.kind() == *kind && action.command.is_some() == command.is_some()
    }
}
