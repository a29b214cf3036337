//! The help and the documents are held against the command line: no example in them is wrong.

use std::path::{Path, PathBuf};

use clap::Parser;

use super::shell_lines::calls;
use super::*;
use crate::cli::exit;

const COLUMNS_MAX: usize = 100;

/// Every command that people see, by its path, as it is after clap has built it.
fn all() -> Vec<(String, clap::Command)> {
    fn walk(path: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            found.push((path.clone(), inner.clone()));
            walk(&path, inner, found);
        }
    }
    let mut command = command();
    command.build();
    let mut found = Vec::new();
    walk("", &command, &mut found);
    found
}

fn columns(line: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(line)
}

/// What one types in a line of examples: up to two spaces, outside of quotes.
fn typed(line: &str) -> String {
    let mut is_quoted = false;
    let mut typed = String::new();
    let mut characters = line.trim().chars().peekable();
    while let Some(character) = characters.next() {
        is_quoted ^= matches!(character, '"' | '\'');
        if !is_quoted && character == ' ' && characters.peek() == Some(&' ') {
            break;
        }
        typed.push(character);
    }
    typed
}

fn understood(call: &[String], place: &str) {
    if let Err(error) = Cli::try_parse_from(call) {
        use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
        assert!(matches!(error.kind(), DisplayHelp | DisplayVersion), "{place}: {call:?}\n{error}");
    }
}

#[test]
fn every_command_has_a_summary_and_examples_that_work() {
    for (path, mut command) in all() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && !about.contains('\n'), "{path} has no summary of one line");
        let help = command.render_long_help().to_string();
        let (_, after) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{path} has no examples:\n{help}"));
        let examples: Vec<&str> = after.lines().take_while(|line| line.starts_with("  ")).collect();
        assert!(!examples.is_empty(), "{path} has no examples:\n{help}");
        let mut is_shown = false;
        for example in examples {
            for call in calls(&typed(example)) {
                is_shown |= call[1..].join(" ").starts_with(&path);
                understood(&call, &path);
            }
        }
        assert!(is_shown, "the examples of {path} do not show it");
        for line in help.lines() {
            assert!(columns(line) <= COLUMNS_MAX, "{path}: {line}");
        }
    }
}

#[test]
fn the_first_page_has_every_command_in_a_group_and_fits() {
    // Nothing is wrapped here, so what is too wide shows.
    let mut command = command().term_width(usize::MAX).max_term_width(usize::MAX);
    for page in [command.render_help().to_string(), command.render_long_help().to_string()] {
        assert!(!page.contains(&format!("\n{REST}:\n")), "a command is in no group:\n{page}");
        for (path, _) in all().iter().filter(|(path, _)| !path.contains(' ')) {
            assert!(page.contains(&format!("\n  {path:<NAME_COLUMNS$}")), "{path} is not on the first page");
        }
        for line in page.lines() {
            assert!(columns(line) <= PAGE_COLUMNS, "{line}");
        }
        for call in calls(&page.lines().map(typed).collect::<Vec<_>>().join("\n")) {
            understood(&call, "acpd --help");
        }
    }
    assert!(command.render_long_help().to_string().contains("Exit codes:"));
}

fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).unwrap());
    pages.chain([root.join("README.md")]).map(read).collect()
}

#[test]
fn every_call_in_the_documents_is_understood() {
    let mut count = 0;
    for (path, text) in documents() {
        for block in text.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()) {
            for call in calls(block) {
                count += 1;
                understood(&call, &path.display().to_string());
            }
        }
    }
    assert!(count > 20, "only {count} calls were found");
}

#[test]
fn the_page_about_the_command_line_has_every_command_and_exit_code() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md")).unwrap();
    for (path, _) in all() {
        assert!(page.contains(&format!("`acpd {path}")), "docs/cli.md does not have acpd {path}");
    }
    let codes = exit::long_help("");
    for line in codes.lines().filter(|line| line.starts_with("  ")) {
        let code = line.split_whitespace().next().unwrap();
        assert!(page.contains(&format!("\n| {code} |")), "docs/cli.md does not have the exit code {code}");
    }
}
