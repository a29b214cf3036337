//! The names that the daemon knows: sessions, agents, questions, workspaces, modes and models. Where there is no daemon,
//! where it is slow or refuses, there are none.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap_complete::PathCompleter;
use clap_complete::engine::{CompletionCandidate, ValueCompleter};

use crate::cli::command::choice::{Choice, Kind, Offers};
use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::Context;
use crate::cli::output::Output;
use crate::cli::text::{one_line, short_id};
use crate::cli::{Globals, lookup, question};
use crate::control::wire::permissions::PermissionList;
use crate::control::wire::{AgentList, Session, SessionList, WorkspaceList};

use super::words_of;

/// How long one who pressed Tab waits at the most.
pub const DEADLINE: Duration = Duration::from_millis(500);
/// The newest are what people mean; a longer list helps nobody.
const SESSIONS_MAX: usize = 50;
const OTHERS_MAX: usize = 200;

/// Where the daemon is, by the words that stand in the command line already.
#[derive(Clone)]
pub struct Names {
    words: Arc<Vec<String>>,
}

impl Names {
    pub fn new(arguments: impl Iterator<Item = OsString>) -> Self {
        Self { words: Arc::new(words_of(arguments)) }
    }

    /// The sessions that this command can do something with, by their short ids, with their titles; and by their titles for
    /// who has begun one.
    pub fn sessions(&self, command: &str, current: &OsStr) -> Vec<CompletionCandidate> {
        let status = match command {
            "resume" => "suspended",
            "cancel" => "active",
            "prompt" | "attach" | "archive" | "mode" | "model" | "rename" => "active,suspended",
            _ => "active,suspended,archived,error",
        };
        let parameters = [("status", status.to_owned()), ("limit", SESSIONS_MAX.to_string())];
        let path = with_query("/v1/sessions", &parameters);
        let list: Option<SessionList> = self.asked(async |daemon| daemon.get(&path).await.ok());
        let sessions = list.map(|list| list.sessions).unwrap_or_default();
        if sessions.is_empty() {
            return Vec::new();
        }
        let newest = candidate("-".to_owned(), "newest session of this directory");
        let named = sessions.iter().map(|session| {
            let id = session.id.to_string();
            // Who has begun with the beginning of the whole id goes on with it.
            let is_whole = current.to_str().is_some_and(|text| !text.is_empty() && id.starts_with(text));
            let id = if is_whole { id } else { short_id(session.id) };
            candidate(id, &format!("{}, {}: {}", session.status, session.agent, session.title))
        });
        let mut candidates = fitting([newest].into_iter().chain(named), current);
        candidates.extend(titles(&sessions, current));
        candidates
    }

    pub fn agents(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let path = with_query("/v1/agents", &[("limit", OTHERS_MAX.to_string())]);
        let list: Option<AgentList> = self.asked(async |daemon| daemon.get(&path).await.ok());
        let agents = list.map(|list| list.agents).unwrap_or_default();
        let described = |agent: crate::control::wire::Agent| {
            let absent = if agent.installed { "" } else { " (not installed)" };
            candidate(agent.slug, &format!("{}{absent}", agent.name))
        };
        fitting(agents.into_iter().map(described), current)
    }

    /// The questions that are open.
    pub fn questions(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let path = with_query("/v1/permissions", &[("status", "open".to_owned()), ("limit", OTHERS_MAX.to_string())]);
        let list: Option<PermissionList> = self.asked(async |daemon| daemon.get(&path).await.ok());
        let questions = list.map(|list| list.permissions).unwrap_or_default();
        let named = questions.iter().map(|permission| candidate(short_id(permission.id), &question::what(permission)));
        fitting(named, current)
    }

    /// Directories as the shell has them, and those that have had a session.
    pub fn directories(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let path = with_query("/v1/workspaces", &[("limit", OTHERS_MAX.to_string())]);
        let list: Option<WorkspaceList> = self.asked(async |daemon| daemon.get(&path).await.ok());
        let workspaces = list.map(|list| list.workspaces).unwrap_or_default();
        let is_clean = |path: &String| !path.chars().any(char::is_control);
        let known = workspaces.into_iter().map(|workspace| workspace.path).filter(is_clean);
        let known = fitting(known.map(|path| candidate(path, "has sessions")), current);
        PathCompleter::dir().complete(current).into_iter().chain(known).collect()
    }

    /// The modes or models that the agent of the session named before offers.
    pub fn choices(&self, kind: Kind, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(name) = self.positional() else { return Vec::new() };
        let offers: Option<Offers> = self.asked(async |daemon| {
            let session = lookup::session(daemon, &name).await.ok()?;
            daemon.get(&format!("/v1/sessions/{session}")).await.ok()
        });
        let choices = offers.unwrap_or_default().of(kind).choices;
        let is_clean = |choice: &Choice| !choice.id.chars().any(char::is_control);
        let named = choices.into_iter().filter(is_clean).map(|choice| candidate(choice.id, &choice.name));
        fitting(named, current)
    }

    /// The first word after the command that is no flag.
    fn positional(&self) -> Option<String> {
        let mut words = self.words.iter().skip(1).filter(|word| *word == "-" || !word.starts_with('-'));
        words.find(|word| *word == "mode" || *word == "model")?;
        words.next().cloned()
    }

    /// Asks the daemon, if one runs.
    fn asked<T>(&self, ask: impl AsyncFnOnce(&Daemon) -> Option<T>) -> Option<T> {
        let path = |flag: &str| value_of(&self.words, flag).map(PathBuf::from);
        let globals =
            Globals { config: path("--config"), socket: path("--socket"), state_dir: path("--state-dir"), json: false };
        let context = Context::new(&globals.overrides(), Output::new(false)).ok()?;
        let daemon = Daemon::new(context.socket);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let answer = async { tokio::time::timeout(DEADLINE, ask(&daemon)).await.ok().flatten() };
        runtime.block_on(answer)
    }
}

/// The titles that begin as the word does and name one session alone.
fn titles(sessions: &[Session], current: &OsStr) -> Vec<CompletionCandidate> {
    // The shell tells the word as it was typed, with the backslashes that keep it together.
    let begun = current.to_string_lossy().replace('\\', "");
    let is_fit = |title: &str| {
        let is_single = sessions.iter().filter(|other| other.title == title).count() == 1;
        // bash takes a colon or an equals sign for the end of a word.
        is_single && title == one_line(title) && !title.contains([':', '=']) && title.starts_with(&begun)
    };
    let fit = sessions.iter().filter(|session| !begun.is_empty() && is_fit(&session.title));
    let about = |session: &Session| format!("{}, {}: {}", session.status, session.agent, short_id(session.id));
    fit.map(|session| candidate(session.title.clone(), &about(session))).collect()
}

/// What follows a flag, after a space or a `=`.
fn value_of(words: &[String], flag: &str) -> Option<String> {
    let position = words
        .iter()
        .position(|word| word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
    match words[position].split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => words.get(position + 1).cloned(),
    }
}

/// A description is one line, and does nothing to a terminal.
fn candidate(value: String, help: &str) -> CompletionCandidate {
    let help = one_line(help);
    CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.into()))
}

fn fitting(candidates: impl Iterator<Item = CompletionCandidate>, current: &OsStr) -> Vec<CompletionCandidate> {
    let begins = |candidate: &CompletionCandidate| {
        candidate.get_value().as_encoded_bytes().starts_with(current.as_encoded_bytes())
    };
    candidates.filter(begins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Names {
        let arguments = ["acpd", "--"].iter().chain(words).map(|word| OsString::from(*word));
        Names::new(arguments.collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn the_session_of_a_mode_is_the_word_after_the_command() {
        assert_eq!(names(&["acpd", "mode", "--json", "-", ""]).positional().as_deref(), Some("-"));
        assert_eq!(names(&["acpd", "model", "ab12", "x"]).positional().as_deref(), Some("ab12"));
        assert_eq!(names(&["acpd", "ls", ""]).positional(), None);
    }

    #[test]
    fn flags_say_where_the_daemon_is() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(value_of(&words("acpd --socket /x ls"), "--socket").as_deref(), Some("/x"));
        assert_eq!(value_of(&words("acpd ls --socket=/y"), "--socket").as_deref(), Some("/y"));
        assert_eq!(value_of(&words("acpd ls --socket"), "--socket"), None);
    }
}
