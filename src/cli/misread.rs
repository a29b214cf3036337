//! The command line as it is read; and what is said of one that makes no sense, where clap knows less than we do.

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::exit::Exit;
use super::output::Output;
use super::text::{one_line, shell_word};
use super::{Cli, help, suggest};
use crate::model::mistake;

/// Where clap puts what it takes to be meant.
const SUGGESTIONS: [ContextKind; 3] =
    [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];

/// Commands of other programs, and what does the same here.
const GUESSES: &[(&[&str], &str)] = &[
    (
        &["kill", "abort", "interrupt"],
        "`acpd cancel SESSION` cancels the running turn, `acpd archive SESSION` ends the session, and `acpd stop` stops \
         the daemon",
    ),
    (&["list", "session", "sessions"], "`acpd ls` lists the sessions, and `acpd ps` the running processes"),
    (
        &["delete", "del", "remove", "close", "end", "destroy"],
        "`acpd archive SESSION` ends a session and keeps its messages; `acpd rm --purge SESSION` deletes them too",
    ),
    (
        &["start", "up", "daemon"],
        "`acpd run \"PROMPT\"` starts a session, and a daemon where none runs; `acpd serve` runs only the daemon",
    ),
    (
        &["restart"],
        "`acpd reload` reloads the configuration; after `acpd stop` the next command starts the daemon again",
    ),
    (
        &["log", "history", "tail", "view", "cat", "watch", "follow"],
        "`acpd messages SESSION` prints a session's messages, `acpd attach SESSION` follows it, and `acpd logs` shows the \
         daemon's log",
    ),
    (
        &["down", "exit", "quit", "shutdown", "suspend", "pause"],
        "`acpd stop` stops the daemon, and `acpd archive SESSION` ends a session",
    ),
    (&["allow", "accept", "deny", "yes", "no"], "`acpd approve` and `acpd reject` answer a permission request"),
    (&["permission", "perms"], "`acpd permissions` lists the open permission requests"),
    (&["title", "mv"], "`acpd rename SESSION TITLE` changes the title of a session"),
    (
        &["set", "get", "settings", "conf"],
        "`acpd config` shows the configuration, and `acpd config set KEY VALUE` changes it",
    ),
    (&["info", "health"], "`acpd status` shows the daemon's status"),
    (&["setup", "init"], "`acpd doctor` checks the setup, and `acpd install-service` has systemd run the daemon"),
    (&["continue", "send"], "`acpd prompt - \"PROMPT\"` continues the newest session of this directory"),
    (&["ask", "chat", "exec"], "`acpd run \"PROMPT\"` starts a session with this prompt"),
    (
        &["login", "auth", "key"],
        "`acpd agents login NAME` signs in to an agent, and `acpd agents key NAME` stores a key for it",
    ),
    (&["version"], "`acpd --version` prints the version"),
];

/// What the arguments say. Who wrote a prompt without a command is told which one takes it.
pub fn parse() -> Cli {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let read = matches.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    read.unwrap_or_else(|error| std::process::exit(told(error, &mut command)))
}

/// Tells what clap has to say, help included, and returns the exit code.
fn told(mut error: clap::Error, command: &mut clap::Command) -> i32 {
    let output = Output::new(false);
    if !error.use_stderr() {
        let text = as_shown(&error.render(), output.style.is_enabled());
        return match output.print(text.trim_end()) {
            Ok(()) => error.exit_code(),
            Err(failed) => {
                output.error(&failed);
                Exit::of(&failed).code().into()
            }
        };
    }
    let code = error.exit_code();
    if error.kind() == ErrorKind::MissingSubcommand {
        // Who names no command wants to know which there are, whatever options were given.
        output.show(&as_shown(&command.render_help(), output.note_style.is_enabled()));
        return code;
    }
    let arguments: Vec<String> = std::env::args().collect();
    let hints = hints(&mut error, &arguments, command);
    let text = mistake::with_plain_words(&as_shown(&error.render(), output.note_style.is_enabled()));
    // clap leaves an empty line where a suggestion was.
    output.show(&text.replace("\n\n\n", "\n\n"));
    for hint in hints {
        output.hint(&hint);
    }
    code
}

fn as_shown(text: &clap::builder::StyledStr, is_coloured: bool) -> String {
    if is_coloured { text.ansi().to_string() } else { text.to_string() }
}

/// What may have been meant. clap's own suggestions are taken out of the error, so that all hints look alike.
fn hints(error: &mut clap::Error, arguments: &[String], command: &clap::Command) -> Vec<String> {
    if let Some(hint) = guessed(error, arguments) {
        error.remove(ContextKind::SuggestedSubcommand);
        return vec![hint.to_owned()];
    }
    if let Some(prompt) = forgotten_run(error, arguments) {
        error.remove(ContextKind::SuggestedSubcommand);
        return vec![format!("to send that as a prompt: acpd run {prompt}")];
    }
    let mut hints: Vec<String> =
        SUGGESTIONS.into_iter().filter_map(|kind| did_you_mean(&error.remove(kind)?, command)).collect();
    if let Some(ContextValue::StyledStrs(others)) = error.remove(ContextKind::Suggested) {
        hints.extend(others.iter().map(ToString::to_string));
    }
    if hints.is_empty() {
        hints.extend(unknown_help(error, arguments, command));
    }
    hints
}

fn did_you_mean(suggested: &ContextValue, command: &clap::Command) -> Option<String> {
    let names = match suggested {
        ContextValue::String(name) => std::slice::from_ref(name),
        ContextValue::Strings(names) => names,
        _ => return None,
    };
    let is_hidden = |name: &&String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let shown = names.iter().filter(|name| !is_hidden(name));
    let quoted: Vec<String> = shown.map(|name| format!("`{name}`")).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// What to type instead of a command that other programs have.
fn guessed(error: &clap::Error, arguments: &[String]) -> Option<&'static str> {
    let word = unknown_command(error).filter(|word| arguments.get(1).is_some_and(|first| first == word))?;
    GUESSES.iter().find(|(guesses, _)| guesses.contains(&word)).map(|(_, hint)| *hint)
}

/// The words that stand where a command should, as they go into a shell, when they are no mistyped command.
fn forgotten_run(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let word = unknown_command(error)?;
    // Else it stands where a command of a command should.
    let is_first = arguments.get(1).is_some_and(|first| first == word);
    if !is_first || word.starts_with('-') {
        return None;
    }
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    let is_sentence = word.contains(char::is_whitespace);
    (is_sentence || !has_suggestion).then(|| shell_word(&one_line(word)))
}

/// What to do after `acpd help WORD`, of which clap only says that there is no such command.
fn unknown_help(error: &clap::Error, arguments: &[String], command: &clap::Command) -> Option<String> {
    let word = unknown_command(error)?;
    if arguments.get(1).is_none_or(|first| first != "help") {
        return None;
    }
    let names = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(clap::Command::get_name);
    let guess = GUESSES.iter().find(|(guesses, _)| guesses.contains(&word)).map(|(_, hint)| (*hint).to_owned());
    Some(guess.unwrap_or_else(|| suggest::hint(word, names, "`acpd help` lists the commands")))
}

fn unknown_command(error: &clap::Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hinted(arguments: &[&str]) -> Vec<String> {
        let mut command = help::command();
        let mut error = command.try_get_matches_from_mut(arguments).unwrap_err();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let hints = hints(&mut error, &arguments, &command);
        assert!(!error.to_string().contains("tip:"), "{error}");
        hints
    }

    #[test]
    fn a_prompt_without_a_command_is_recognized() {
        assert_eq!(hinted(&["acpd", "fix the bug"]), ["to send that as a prompt: acpd run \"fix the bug\""]);
        assert_eq!(hinted(&["acpd", "cost $5"]), ["to send that as a prompt: acpd run 'cost $5'"]);
    }

    #[test]
    fn what_is_mistyped_is_corrected_in_a_hint() {
        assert_eq!(hinted(&["acpd", "sohw", "x"]), ["did you mean `show`?"]);
        assert_eq!(hinted(&["acpd", "ls", "--al"]), ["did you mean `--all`?"]);
        assert_eq!(hinted(&["acpd", "help", "promt"]), ["did you mean `prompt`?"]);
        assert!(hinted(&["acpd", "demon-agent"]).iter().all(|hint| !hint.contains("demo-agent")), "it is hidden");
        assert!(hinted(&["acpd", "yes"])[0].contains("acpd approve"));
        for arguments in [["acpd", "help", "zzzzzz"], ["acpd", "workspaces", "zzzzzz"]] {
            assert!(hinted(&arguments).iter().all(|hint| !hint.contains("acpd run")), "{arguments:?}");
        }
        assert!(hinted(&["acpd", "help", "run", "--json"]).iter().all(|hint| !hint.contains("acpd run \"")));
    }
}
