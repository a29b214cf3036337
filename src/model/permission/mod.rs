//! What an agent may do: policies with their modes and rules, how they judge what an agent is about to do, and the
//! questions that are left for a person.
//!
//! Everything here is pure. Where a path really leads is looked up before, and comes as a [`Place`].

pub mod command;
pub mod input;
pub mod policy;
pub mod question;
pub mod rule;
pub mod shown;
pub mod standing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

/// The answer to permission requests that no rule answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionMode {
    /// A person is asked.
    Ask,
    /// Reading is allowed, and all else asked.
    ReadOnly,
    /// Reading, and edits in the workspace, are allowed, and all else asked.
    Edit,
    Allow,
    Deny,
}

impl PermissionMode {
    pub const ALL: [Self; 5] = [Self::Ask, Self::ReadOnly, Self::Edit, Self::Allow, Self::Deny];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::ReadOnly => "read-only",
            Self::Edit => "edit",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Whether a session may choose `self` when its profile grants `granted`. A session only ever narrows.
    pub const fn narrows(self, granted: Self) -> bool {
        match granted {
            Self::Allow => true,
            Self::Edit => !matches!(self, Self::Allow),
            Self::ReadOnly => matches!(self, Self::ReadOnly | Self::Ask | Self::Deny),
            Self::Ask => matches!(self, Self::Ask | Self::Deny),
            Self::Deny => matches!(self, Self::Deny),
        }
    }

    /// The stricter of two modes.
    #[must_use]
    pub const fn or_stricter(self, other: Self) -> Self {
        if self.narrows(other) { self } else { other }
    }

    /// How it answers what no rule has answered. What is guarded is allowed by no mode.
    pub fn judge(self, action: &Located) -> Verdict {
        let is_inside = action.touched().all(|place| matches!(place, Place::Inside { .. }));
        let is_edit = action.kind() == ToolKind::Edit && !action.places.is_empty();
        let is_allowed = match self {
            Self::Deny => return Verdict::Deny { by: "mode deny".to_owned() },
            Self::Allow => true,
            Self::Ask => false,
            Self::ReadOnly => action.kind().only_reads() && is_inside,
            Self::Edit => (action.kind().only_reads() || is_edit) && is_inside,
        };
        if is_allowed && !action.is_guarded() {
            Verdict::Allow { by: format!("mode {}", self.as_str()) }
        } else {
            Verdict::Ask
        }
    }
}

impl FromStr for PermissionMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = || format!("{text:?} is not a permission mode; use ask, read-only, edit, allow or deny");
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(problem)
    }
}

/// The kind of a tool, as defined by ACP. `Other` if the agent gives no kind, or an unknown one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

impl ToolKind {
    pub fn from_protocol(name: &str) -> Self {
        Self::deserialize(StrDeserializer::<value::Error>::new(name)).unwrap_or_default()
    }

    /// Whether it changes nothing and reaches nobody.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::Search | Self::Think)
    }
}

/// The action that an agent asks permission for, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    pub kind: ToolKind,
    /// The files that it touches, as the agent named them: absolute, or relative to the workspace.
    pub paths: Vec<String>,
    /// The command: a list of arguments, or one string for a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandText>,
    /// The directory of the command, absolute or relative to the workspace. Default: the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables that are set for the command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The hash of the tool's input. This and the following fields are for rules, and nothing to read.
    #[serde(skip)]
    pub input: Option<String>,
    /// Strings of the input that can be paths.
    #[serde(skip)]
    pub mentioned: Vec<String>,
    /// What else came with the command.
    #[serde(skip)]
    pub texts: Vec<String>,
    /// Whether acpd does not understand all of the input.
    #[serde(skip)]
    pub is_unclear: bool,
}

/// An action whose paths were looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// What the agent calls it.
    pub said: ToolKind,
    pub places: Vec<Place>,
    /// Where other strings of the tool's input lead that can be paths.
    pub beside: Vec<Place>,
    pub command: Option<CommandText>,
    /// The tool's name, or what else tells it from others.
    pub tool: Option<String>,
    /// Where the command runs; none is the workspace itself.
    pub cwd: Option<Place>,
    pub env: BTreeMap<String, String>,
    pub input: Option<String>,
    pub texts: Vec<String>,
    pub is_unclear: bool,
    /// The words of the command, as if they were paths.
    pub mentioned: Vec<Place>,
    /// Directories of which a glob may match everything.
    pub swept: Vec<Place>,
    /// Whether a repository may be in a directory that is to go away.
    pub holds_git: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below the workspace: by its real path from there, and as it was named, with the `..` and `.` in it taken out.
    Inside { real: String, named: String },
    /// Elsewhere, or it cannot be said where.
    Outside { named: String },
}

impl Place {
    /// All names that it has below the workspace, as far as can be said.
    fn names(&self) -> impl Iterator<Item = &str> {
        let (real, named) = match self {
            Self::Inside { real, named } => (Some(real), named),
            Self::Outside { named } => (None, named),
        };
        real.into_iter().chain([named]).map(String::as_str)
    }

    fn is_in_git(&self) -> bool {
        self.names().any(command::names_git_directory)
    }

    /// The real path from the workspace.
    pub fn real(&self) -> Option<&str> {
        match self {
            Self::Inside { real, .. } => Some(real),
            Self::Outside { .. } => None,
        }
    }
}

impl Located {
    /// An action with a command, or with an input that may be one, is an execution. The kind that the agent gives it does not matter.
    pub fn kind(&self) -> ToolKind {
        if self.command.is_some() || self.is_unclear { ToolKind::Execute } else { self.said }
    }

    fn touched(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().chain(&self.beside)
    }

    /// The command with its variables and with what else it was given, as a rule searches it that denies or asks.
    pub fn whole_command(&self) -> Option<CommandText> {
        let text = match self.command.as_ref()? {
            CommandText::Arguments(words) => words.join(" "),
            CommandText::Shell(text) => text.clone(),
        };
        let variables = self.env.iter().map(|(name, value)| format!("\n{name}={value}"));
        let texts = self.texts.iter().map(|text| format!("\n{text}"));
        Some(CommandText::Shell(variables.chain(texts).fold(text, |whole, part| whole + &part)))
    }

    /// Whether it touches what no general rule and no mode allows: `.git`, git commands that do more than read, and
    /// commands that acpd does not know.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded_by_path() || self.is_guarded_by_command()
    }

    fn is_guarded_by_path(&self) -> bool {
        self.holds_git || self.touched().any(Place::is_in_git)
    }

    fn is_guarded_by_command(&self) -> bool {
        let is_in_git = self.cwd.iter().chain(&self.mentioned).any(Place::is_in_git);
        self.is_unknown_command()
            || is_in_git
            || self.whole_command().is_some_and(|command| command::is_guarded(&command))
    }

    /// Whether it runs something, or may do so, and does not say what.
    pub fn is_unknown_command(&self) -> bool {
        self.kind() == ToolKind::Execute && self.command.is_none()
    }

    /// Whether files go away by it, and with a directory all that is in it.
    fn takes_away(&self) -> bool {
        matches!(self.said, ToolKind::Delete | ToolKind::Move)
    }

    /// Where a command runs, from the workspace; none for what is not in it.
    fn directory(&self) -> Option<&str> {
        self.cwd.as_ref().map_or(Some(""), Place::real)
    }

    /// Whether two commands that are the same are so where they run, too: one that is named by a path is another program
    /// in another directory, and variables make of a program what they like.
    pub fn runs_as(&self, other: &Self) -> bool {
        self.directory().is_some() && self.directory() == other.directory() && self.env == other.env
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum CommandText {
    Arguments(Vec<String>),
    Shell(String),
}

/// How an action is answered, and which mode or rule answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow {
        by: String,
    },
    Deny {
        by: String,
    },
    /// By a person.
    Ask,
}

impl Verdict {
    /// The stricter of two, and of two that are equally strict the first.
    #[must_use]
    pub fn or_stricter(self, other: Self) -> Self {
        let strictness = |verdict: &Self| match verdict {
            Self::Allow { .. } => 0,
            Self::Ask => 1,
            Self::Deny { .. } => 2,
        };
        if strictness(&other) > strictness(&self) { other } else { self }
    }

    /// Says whose word it is.
    #[must_use]
    fn of(self, whose: &str) -> Self {
        match self {
            Self::Allow { by } => Self::Allow { by: format!("{whose} {by}") },
            Self::Deny { by } => Self::Deny { by: format!("{whose} {by}") },
            Self::Ask => Self::Ask,
        }
    }
}
