//! What an agent may do: the modes of a policy, and how one judges what an agent is about to do.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a policy answers what no rule of its own answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    pub fn judge(self, action: &Action) -> Verdict {
        let by = format!("mode {}", self.as_str());
        match self {
            Self::Allow => Verdict::Allow { by },
            Self::Deny => Verdict::Deny { by },
            Self::Ask => Verdict::Ask,
            Self::ReadOnly | Self::Edit if action.kind.only_reads() => Verdict::Allow { by },
            Self::Edit if action.kind == ToolKind::Edit => Verdict::Allow { by },
            Self::ReadOnly | Self::Edit => Verdict::Ask,
        }
    }
}

impl FromStr for PermissionMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ask" => Ok(Self::Ask),
            "read-only" => Ok(Self::ReadOnly),
            "edit" => Ok(Self::Edit),
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err(format!("{text:?} is not a permission mode; the modes are ask, read-only, edit, allow and deny")),
        }
    }
}

/// What a tool does, by the protocol's kinds. What an agent does not say, or says in another word, is `Other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
        match name {
            "read" => Self::Read,
            "edit" => Self::Edit,
            "delete" => Self::Delete,
            "move" => Self::Move,
            "search" => Self::Search,
            "execute" => Self::Execute,
            "think" => Self::Think,
            "fetch" => Self::Fetch,
            "switch_mode" => Self::SwitchMode,
            _ => Self::Other,
        }
    }

    /// Whether it changes nothing and reaches nobody.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::Search | Self::Think)
    }
}

/// What an agent is about to do, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Action {
    pub kind: ToolKind,
    /// The files that it touches, as they were named: absolute, or below the workspace.
    pub paths: Vec<String>,
    /// What it runs: an argument vector, or one text for a shell.
    pub command: Option<CommandText>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
