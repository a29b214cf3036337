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

/// The subject of a rule that came from an "always" answer. Exactly one of files, command and tool is present.
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
    /// This tool, if it names neither files nor a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The hash of the tool's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

impl Subject {
    /// What the same again would be. There is none for what is outside the workspace, for what has no name, and for
    /// commands that nobody knows.
    pub fn of(action: &Located) -> Option<Self> {
        let subject = Self {
            kind: action.kind(),
            paths: None,
            command: action.command.clone(),
            cwd: action.directory()?.to_owned(),
            env: action.env.clone(),
            tool: None,
            input: None,
        };
        if subject.command.is_some() {
            return Some(subject);
        }
        if action.is_unknown_command() {
            return None;
        }
        if action.places.is_empty() {
            let input = action.input.clone();
            return action.tool.clone().map(|tool| Self { tool: Some(tool), input, ..subject });
        }
        let real = |place: &Place| place.real().map(str::to_owned);
        let paths = action.places.iter().map(real).collect::<Option<Vec<String>>>()?;
        Some(Self { paths: Some(paths), ..subject })
    }
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
                let is_alike = action.directory() == Some(cwd) && action.env == *env;
                action.command == *command && (is_alike || !self.allows)
            }
            (Some(_), None, None) if self.allows => !action.places.is_empty() && action.places.iter().all(is_known),
            (Some(_), None, None) => action.places.iter().any(is_known),
            (None, None, Some(_)) => action.places.is_empty() && action.tool == *tool && action.input == *input,
            _ => false,
        };
        is_met && action.kind() == *kind && action.command.is_some() == command.is_some()
    }
}
