//! How the shells are answered. Their scripts are clap's; what goes to them is put together here for two reasons:
//!
//! 1. Flags are offered to who has begun one. Else they would stand among the sessions, and where there are no sessions a
//!    Tab would put two dashes into the line.
//! 2. bash has no place for descriptions. They stand behind the names where bash only lists what there is, and never where
//!    it would put them into the line. Nor does it keep a name of several words together: that is done here.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::cli::text::{columns, cut_end, one_line};

/// What `COMP_TYPE` is when bash lists after a second Tab (`?`), with `show-all-if-ambiguous` (`!`), and with
/// `show-all-if-unmodified` (`@`).
const LISTING: [&str; 3] = ["63", "33", "64"];
const DESCRIPTION_COLUMNS: usize = 60;

/// The shells that a script can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn plain(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Zsh => &Zsh,
            Self::Fish => &Fish,
        }
    }

    fn lines(self, candidates: &[CompletionCandidate], is_listing: bool) -> Vec<String> {
        match self {
            Self::Bash => bash_lines(candidates, is_listing),
            // A colon is where the description begins.
            Self::Zsh => candidates
                .iter()
                .map(|one| joined(&value(one).replace('\\', "\\\\").replace(':', "\\:"), ":", one))
                .collect(),
            Self::Fish => candidates.iter().map(|one| joined(&value(one), "\t", one)).collect(),
        }
    }
}

impl EnvCompleter for Shell {
    fn name(&self) -> &'static str {
        self.plain().name()
    }

    fn is(&self, name: &str) -> bool {
        self.plain().is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        self.plain().write_registration(var, name, bin, completer, buf)
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        mut args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let last = args.len().saturating_sub(1);
        let index = variable("_CLAP_COMPLETE_INDEX").parse().unwrap_or(last);
        if args.len() == index {
            // A word that is not begun is none of zsh's words.
            args.push(OsString::new());
        }
        let has_dash = args.get(index).is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
        let mut candidates = complete(cmd, args, index, current_dir)?;
        candidates.retain(|candidate| has_dash || !value(candidate).starts_with("--"));
        let is_listing = LISTING.contains(&variable("_CLAP_COMPLETE_COMP_TYPE").as_str());
        let separator = Some(variable("_CLAP_IFS")).filter(|text| !text.is_empty()).unwrap_or_else(|| "\n".to_owned());
        write!(buf, "{}", self.lines(&candidates, is_listing).join(&separator))
    }
}

fn value(candidate: &CompletionCandidate) -> String {
    candidate.get_value().to_string_lossy().into_owned()
}

/// The first line of what is said about it.
fn description(candidate: &CompletionCandidate) -> String {
    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
    cut_end(&one_line(help.lines().next().unwrap_or_default()), DESCRIPTION_COLUMNS)
}

fn joined(value: &str, separator: &str, candidate: &CompletionCandidate) -> String {
    let description = description(candidate);
    if description.is_empty() { value.to_owned() } else { format!("{value}{separator}{description}") }
}

/// The others put into the line what is one word there; bash puts in what it gets.
fn escaped(value: &str) -> String {
    let is_special = |character: char| character.is_whitespace() || "\\\"'`$&|;<>()[]{}*?!#".contains(character);
    let escape = |character| if is_special(character) { format!("\\{character}") } else { String::from(character) };
    value.chars().map(escape).collect()
}

fn bash_lines(candidates: &[CompletionCandidate], is_listing: bool) -> Vec<String> {
    let values: Vec<String> = candidates.iter().map(|one| escaped(&value(one))).collect();
    // A single one is taken as it stands.
    if !is_listing || candidates.len() < 2 {
        return values;
    }
    let width = values.iter().map(|value| columns(value)).max().unwrap_or_default();
    let described = values.iter().zip(candidates).map(|(value, candidate)| {
        let padding = " ".repeat(width - columns(value));
        match description(candidate) {
            help if help.is_empty() => value.clone(),
            help => format!("{value}{padding}  ({help})"),
        }
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_stand_where_the_shell_has_them() {
        let candidate = |value: &str, help: &str| CompletionCandidate::new(value).help(Some(help.to_owned().into()));
        let several = [candidate("-", "the newest"), candidate("a:2", "a\x07 title")];
        assert_eq!(Shell::Bash.lines(&several, true), ["-    (the newest)", "a:2  (a title)"]);
        assert_eq!(Shell::Bash.lines(&several, false), ["-", "a:2"]);
        assert_eq!(Shell::Bash.lines(&several[1..], true), ["a:2"]);
        assert_eq!(Shell::Zsh.lines(&several, false), ["-:the newest", "a\\:2:a title"]);
        let title = [candidate("fix it's $5", "active")];
        assert_eq!(Shell::Bash.lines(&title, false), [r"fix\ it\'s\ \$5"]);
        assert_eq!(Shell::Zsh.lines(&title, false), ["fix it's $5:active"]);
        assert_eq!(Shell::Fish.lines(&several, false), ["-\tthe newest", "a:2\ta title"]);
    }
}
