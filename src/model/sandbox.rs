//! How an agent's process is confined: what a session may touch, and what is really in force.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The directories that a session's agent may write to. Each scope includes the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FsScope {
    /// The workspace, and the session's own home and temporary directory.
    #[default]
    Sandboxed,
    /// Also the configured extra directories.
    Project,
    /// Everything that its user may write to: no sandbox.
    Full,
}

impl FsScope {
    pub const ALL: [Self; 3] = [Self::Sandboxed, Self::Project, Self::Full];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandboxed => "sandboxed",
            Self::Project => "project",
            Self::Full => "full",
        }
    }

    /// What is left of it with `sandbox.allow_full`.
    pub fn within(self, allow_full: bool) -> Self {
        if allow_full { self } else { self.min(Self::Project) }
    }
}

impl FromStr for FsScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sandboxed" => Ok(Self::Sandboxed),
            "project" => Ok(Self::Project),
            "full" => Ok(Self::Full),
            _ => Err(format!("{text:?} is not a file system scope; use sandboxed, project or full")),
        }
    }
}

/// What confines a process: the strongest level of which nothing is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    #[default]
    None,
    /// Landlock, but it does not confine all writes.
    Partial,
    /// Landlock and seccomp: the process can read what its user can, and reach sockets.
    #[serde(alias = "landlock", alias = "bubblewrap")]
    WritesOnly,
    /// Also its own namespaces, where files, sockets and processes are hidden.
    Isolated,
}

impl SandboxLevel {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::WritesOnly => "writes-only",
            Self::Isolated => "isolated",
        }
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The confinement that is in force for a process, as that process itself has found before it became the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub level: SandboxLevel,
    /// The version of Landlock's interface that the rules were made for, when there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landlock_abi: Option<i32>,
    /// What was asked for and is not in force, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Sandbox {
    pub const NONE: Self = Self { level: SandboxLevel::None, landlock_abi: None, missing: Vec::new() };
}
