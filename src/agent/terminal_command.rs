//! What an agent wants run in a terminal: what is executed, with which arguments, in which environment and where, and
//! whether its profile lists that. Looking for programs blocks: this is for a thread of its own.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::beneath::{Beneath, FileError};
use super::command::{DEFAULT_PATH, find_program, is_executable};
use crate::acp::client::CreateTerminal;
use crate::config::SELF_COMMAND;
use crate::model::permission::{CommandText, command};

/// The command with its arguments. They go to the shim on its command line, which the system bounds too.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
const VARIABLES_MAX: usize = 128;
/// Names and values together.
const ENVIRONMENT_BYTES_MAX: usize = 32 << 10;
/// What may always be set: how a program talks, and to whom.
const HARMLESS: [&str; 15] = [
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBIAN_FRONTEND",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LINES",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "TERM",
    "TZ",
];
/// What begins so tells the loader what else to run, or speaks for acpd. No profile can list it.
const FORBIDDEN_PREFIXES: [&str; 3] = ["LD_", "ACPD_", "GLIBC_"];
const FORBIDDEN_NAMES: [&str; 1] = ["GCONV_PATH"];

const SHELL: &str = "/bin/sh";
/// In a profile's list: any command.
const ANY: &str = "*";

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("{command:?} was not found on the daemon's PATH or in the terminal's directory")]
    NotFound { command: String },
    #[error("the agent's profile does not allow the command {command:?} (agents.{agent}.terminal_commands)")]
    NotListed { command: String, agent: String },
    #[error("{0} is too large for a terminal")]
    TooLarge(&'static str),
    #[error("the variable {0:?} cannot be set for a terminal")]
    Variable(String),
    #[error("the agent's profile does not allow the variable {name:?} in terminals (agents.{agent}.terminal_env)")]
    VariableNotListed { name: String, agent: String },
    #[error("the command, its arguments or its environment contain a NUL byte")]
    NulByte,
    #[error("the directory of the terminal: {0}")]
    Directory(#[from] FileError),
}

/// A command that can be started.
#[derive(Debug)]
pub struct Prepared {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// What a policy judges, and what a person is shown.
    pub text: CommandText,
    /// Beside what every terminal has.
    pub environment: BTreeMap<String, String>,
    pub directory: OwnedFd,
    /// The directory's real path from the workspace.
    pub place: PathBuf,
}

/// Whose terminal it is to be.
#[derive(Clone, Debug)]
pub struct TerminalRights {
    pub agent: String,
    /// The commands that the profile lists.
    pub listed: Vec<String>,
    /// The variables that it lists.
    pub variables: Vec<String>,
    /// The daemon's PATH.
    pub path: Option<String>,
}

pub fn prepare(
    request: &CreateTerminal,
    workspace: &Beneath,
    rights: &TerminalRights,
) -> Result<Prepared, TerminalError> {
    let environment = environment(&request.env, rights)?;
    let texts = || request.args.iter().chain([&request.command]);
    if texts().map(String::len).sum::<usize>() > ARGUMENT_BYTES_MAX {
        return Err(TerminalError::TooLarge("the command"));
    }
    if texts().any(|text| text.contains('\0')) {
        return Err(TerminalError::NulByte);
    }
    let (directory, place) = workspace.directory(request.cwd.as_deref())?;
    let find = |command: &str| find(command, &workspace.path().join(&place), rights.path.as_deref());
    let not_found = |command: &str| TerminalError::NotFound { command: command.to_owned() };

    let (command, args) = (&request.command, &request.args);
    if command.trim().is_empty() {
        return Err(not_found(command));
    }
    let exact = find(command);
    let text = match plain_words(command) {
        // Agents that give one text mean a line of a shell. Where it is only words, no shell is needed for it.
        Some(words) if exact.is_none() && args.is_empty() && words.len() > 1 => CommandText::Arguments(words),
        None if exact.is_none() && args.is_empty() => CommandText::Shell(command.clone()),
        _ => CommandText::Arguments([std::slice::from_ref(command), args].concat()),
    };
    if !is_listed(&text, &rights.listed) {
        return Err(TerminalError::NotListed { command: shown(&text), agent: rights.agent.clone() });
    }
    let (program, args) = match &text {
        CommandText::Shell(line) => (PathBuf::from(SHELL), vec!["-c".to_owned(), line.clone()]),
        CommandText::Arguments(words) => {
            let (first, rest) = words.split_first().ok_or_else(|| not_found(command))?;
            (exact.or_else(|| find(first)).ok_or_else(|| not_found(first))?, rest.to_vec())
        }
    };
    Ok(Prepared { program, args, text, environment, directory, place })
}

/// The words of a text that is nothing more to a shell; none, when it would do more with it, as with `A=1 b`.
fn plain_words(text: &str) -> Option<Vec<String>> {
    command::split(text).filter(|words| words.first().is_some_and(|first| !first.contains('=')))
}

/// The file to execute. A path from the terminal's directory is found there by the system, too.
fn find(command: &str, directory: &Path, path: Option<&str>) -> Option<PathBuf> {
    if command.is_empty() || command == SELF_COMMAND {
        return None;
    }
    if command.contains('/') && !command.starts_with('/') {
        return is_executable(&directory.join(command)).then(|| PathBuf::from(command));
    }
    find_program(command, path.unwrap_or(DEFAULT_PATH))
}

/// Whether the profile lists a command: its first words are one of the entries. A line for a shell can do anything, so
/// only a list of anything has it.
fn is_listed(text: &CommandText, listed: &[String]) -> bool {
    listed.iter().map(|entry| entry.trim()).any(|entry| match text {
        _ if entry == ANY => true,
        CommandText::Shell(_) => false,
        CommandText::Arguments(words) => {
            let mut words = words.iter();
            entry.split_ascii_whitespace().all(|prefix| words.next().is_some_and(|word| word == prefix))
        }
    })
}

fn shown(text: &CommandText) -> String {
    match text {
        CommandText::Shell(line) => line.clone(),
        CommandText::Arguments(words) => words.join(" "),
    }
}

fn environment(
    variables: &[(String, String)],
    rights: &TerminalRights,
) -> Result<BTreeMap<String, String>, TerminalError> {
    let bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
    if variables.len() > VARIABLES_MAX || bytes > ENVIRONMENT_BYTES_MAX {
        return Err(TerminalError::TooLarge("the environment"));
    }
    for (name, value) in variables {
        if !can_be_set(name) {
            return Err(TerminalError::Variable(name.clone()));
        }
        if !may_be_set(name, &rights.variables) {
            return Err(TerminalError::VariableNotListed { name: name.clone(), agent: rights.agent.clone() });
        }
        if value.contains('\0') {
            return Err(TerminalError::NulByte);
        }
    }
    Ok(variables.iter().cloned().collect())
}

fn can_be_set(name: &str) -> bool {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name && !FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !FORBIDDEN_NAMES.contains(&name)
}

fn may_be_set(name: &str, listed: &[String]) -> bool {
    let mut listed = HARMLESS.into_iter().chain(listed.iter().map(String::as_str));
    listed.any(|listed| listed.strip_suffix('*').map_or(listed == name, |start| name.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(command: &[&str], listed: &[&str]) -> bool {
        let command = CommandText::Arguments(command.iter().map(|word| (*word).to_owned()).collect());
        is_listed(&command, &listed.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_list_names_the_first_words() {
        assert!(listed(&["cargo", "test", "--all"], &["cargo"]));
        assert!(listed(&["npm", "test"], &["cargo", "npm test"]));
        assert!(!listed(&["npm", "install"], &["npm test"]));
        assert!(!listed(&["npm"], &["npm test"]));
        assert!(!listed(&["cargo-evil"], &["cargo"]));
        assert!(!listed(&["/tmp/cargo"], &["cargo"]), "another program of that name");
        assert!(!listed(&["npm test"], &["npm test"]), "one word with a space in it");
        assert!(listed(&["anything"], &["*"]));
        assert!(!listed(&["anything"], &[]));
    }

    #[test]
    fn a_line_for_a_shell_is_listed_by_the_star_alone() {
        let line = CommandText::Shell("cargo test; rm -r x".to_owned());
        assert!(!is_listed(&line, &["cargo".to_owned(), "cargo test;".to_owned()]));
        assert!(is_listed(&line, &["*".to_owned()]));
    }

    #[test]
    fn only_plain_words_are_parted_without_a_shell() {
        assert_eq!(plain_words("npm run  test").unwrap(), ["npm", "run", "test"]);
        assert_eq!(plain_words("./gradlew -Px=1 a:b").unwrap(), ["./gradlew", "-Px=1", "a:b"]);
        assert_eq!(plain_words("echo 'a b'").unwrap(), ["echo", "a b"]);
        for line in ["a; b", "a && b", "a | b", "a > b", "a $B", "a `b`", "a *", "A=1 b", "a\nb", "~/a b", "", "a #b"] {
            assert_eq!(plain_words(line), None, "{line:?}");
        }
    }

    #[test]
    fn only_harmless_and_listed_variables_are_set_and_none_of_the_loaders() {
        let listed = ["RUST_LOG".to_owned(), "CARGO_*".to_owned()];
        for name in ["CI", "LANG", "LC_ALL", "RUST_LOG", "CARGO_TERM_COLOR"] {
            assert!(can_be_set(name) && may_be_set(name, &listed), "{name}");
        }
        for name in ["PATH", "GIT_SSH_COMMAND", "PAGER", "RUST_LOGS", "CIA", "BASH_ENV"] {
            assert!(!may_be_set(name, &listed), "{name}");
        }
        for name in ["LD_PRELOAD", "ACPD_SESSION", "GLIBC_TUNABLES", "GCONV_PATH", "", "A=B", "1A", "A-B", "Ä"] {
            assert!(!can_be_set(name), "{name}");
        }
    }
}
