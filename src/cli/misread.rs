//! The command line as it is read; and what is said of one that makes no sense, where clap knows less than we do.

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use super::help;
use super::output::Output;

/// What the arguments say. Who wrote a prompt without a command is told which one takes it.
pub fn parse() -> Cli {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let read = matches.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    read.unwrap_or_else(|error| {
        let prompt = forgotten_run(&error, std::env::args().nth(1).as_deref());
        // Nobody is left to be told when neither stream can be written.
        let _ = error.print();
        if let Some(prompt) = prompt {
            Output::new(false).hint(&format!("to prompt an agent with that: acpd run {prompt:?}"));
        }
        std::process::exit(error.exit_code())
    })
}

/// The words that stand where a command should, when they are no mistyped command; `first` is what follows the program's name.
fn forgotten_run(error: &clap::Error, first: Option<&str>) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if first != Some(word.as_str()) {
        // It stands where a command of a command should.
        return None;
    }
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    let is_sentence = word.contains(char::is_whitespace);
    (is_sentence || !has_suggestion).then(|| super::text::one_line(word))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn forgotten(arguments: &[&str]) -> Option<String> {
        forgotten_run(&Cli::try_parse_from(arguments).unwrap_err(), arguments.get(1).copied())
    }

    #[test]
    fn a_prompt_without_a_command_is_recognized() {
        assert_eq!(forgotten(&["acpd", "fix the bug"]).as_deref(), Some("fix the bug"));
        assert_eq!(forgotten(&["acpd", "sohw", "x"]), None, "a mistyped command is clap's to correct");
        assert_eq!(forgotten(&["acpd", "ls", "--frobnicate"]), None);
        assert_eq!(forgotten(&["acpd", "workspaces", "forget"]), None);
    }
}
