//! The command line as it is read; and what is said of one that makes no sense, where clap knows less than we do.

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use super::output::Output;

/// What the arguments say. Who wrote a prompt without a command is told which one takes it.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let prompt = forgotten_run(&error);
        // Nobody is left to be told when neither stream can be written.
        let _ = error.print();
        if let Some(prompt) = prompt {
            Output::new(false).hint(&format!("to prompt an agent with that: acpd run {prompt:?}"));
        }
        std::process::exit(error.exit_code())
    })
}

/// The words that stand where a command should, when they are no mistyped command.
fn forgotten_run(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    let is_sentence = word.contains(char::is_whitespace);
    (is_sentence || !has_suggestion).then(|| super::text::one_line(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forgotten(arguments: &[&str]) -> Option<String> {
        forgotten_run(&Cli::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn a_prompt_without_a_command_is_recognized() {
        assert_eq!(forgotten(&["acpd", "fix the bug"]).as_deref(), Some("fix the bug"));
        assert_eq!(forgotten(&["acpd", "sohw", "x"]), None, "a mistyped command is clap's to correct");
        assert_eq!(forgotten(&["acpd", "ls", "--frobnicate"]), None);
    }
}
