//! Writes that the sandbox refused: what programs say about them, and what a person does.

use std::path::Path;

use super::start::Start;
use crate::config::SandboxMode;
use crate::model::agent::FrozenProfile;
use crate::model::{Adapter, FsScope, TurnError};

/// How programs say that they may not write somewhere, in lower case.
const REFUSALS: [&str; 7] = [
    "permission denied",
    "eacces",
    "eperm",
    "read-only file system",
    "erofs",
    "value too large for defined data type",
    "eoverflow",
];
/// Directories of the home that hold those of many programs.
const SHARED: [&str; 4] = [".cache/", ".config/", ".local/share/", ".local/state/"];

impl Start<'_> {
    /// An error of the agent's. If it tells of a write that the sandbox refused, its hint says how to allow it.
    pub fn explained(&self, error: TurnError, profile: &FrozenProfile) -> TurnError {
        let is_confined = self.shared.config().sandbox.mode != SandboxMode::Off && self.scope != FsScope::Full;
        let hint = self.refusal(&error.message, profile).filter(|_| is_confined);
        TurnError { hint: error.hint.or(hint), ..error }
    }

    /// What to tell people about a text that reports a write that the sandbox refused in the home.
    pub fn refusal(&self, text: &str, profile: &FrozenProfile) -> Option<String> {
        let home = self.persona.home(&self.shared.home).filter(|home| home.parent().is_some())?;
        let path = refused_path(text).filter(|path| !Path::new(path).starts_with(self.workspace))?;
        let own = path.split_once(&format!("/{}/home/", self.session)).map(|(_, below)| below);
        let below =
            own.or_else(|| Path::new(path).strip_prefix(home).ok()?.to_str()).filter(|below| !below.is_empty())?;
        let from = SHARED.iter().find(|shared| below.starts_with(**shared)).map_or(0, |shared| shared.len());
        let entry = &below[..below[from..].find('/').map_or(below.len(), |end| from + end)];
        let section = profile.base.as_ref().unwrap_or(&profile.slug);
        let config = self.shared.config();
        let is_hidden = config.sandbox.hide.below(home).iter().any(|hidden| home.join(below).starts_with(hidden));
        let remedy = match profile.adapter {
            _ if is_hidden => format!("sandbox_show = [\"~/{entry}\"] in [agents.{section}] lets the agent read it"),
            Adapter::Generic => format!("home_copy = [\"~/{entry}\"] in [agents.{section}] gives the agent a copy"),
            _ => "only sessions with the scope project can write there".to_owned(),
        };
        Some(format!(
            "the sandbox refused access to {path} (scope {}): {remedy}; workspace.extra lists what sessions with the \
                scope project (`--scope project`) may write to",
            self.scope.as_str()
        ))
    }
}

/// The path that a text says may not be written to: in the line of these words, the first one after them, or else the last one
/// before.
fn refused_path(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let (before, after) = text.split_at(REFUSALS.iter().filter_map(|words| lower.find(words)).min()?);
    paths(after.lines().next()?).next().or_else(|| paths(before.rsplit('\n').next()?).last())
}

/// The absolute paths in a text. One in quotes may have blanks in it.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('/').filter_map(|(at, _)| {
        let end = match text[..at].chars().next_back() {
            Some(quote @ ('\'' | '"' | '`')) => text[at..].find([quote, '\\']),
            None | Some(' ' | '\t' | '(' | '=' | '[' | ':') => {
                text[at..].find(|letter: char| letter.is_whitespace() || "'\"`,:;)]\\".contains(letter))
            }
            Some(_) => return None,
        };
        Some(&text[at..end.map_or(text.len(), |end| at + end)])
    })
}
