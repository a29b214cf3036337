//! The help: commands in groups on the first page, and examples for each of them.
//!
//! Each command declares its own summary and arguments. [`command`] adds the first page, which spans all commands, and the
//! examples from [`examples`].

mod examples;
#[cfg(test)]
mod shell_lines;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use clap::builder::Styles;
use clap::{Arg, CommandFactory};

use super::{Cli, EVERYWHERE};

/// The groups of the first page. A command that is in none of them comes last, under [`REST`].
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Sessions",
        &[
            "run", "new", "prompt", "attach", "ls", "show", "messages", "turns", "search", "export", "import",
            "rename", "mode", "model", "cancel", "resume", "keep", "archive", "rm",
        ],
    ),
    ("Permissions", &["permissions", "approve", "reject", "rules"]),
    ("Agents and workspaces", &["agents", "workspaces", "mcp"]),
    ("Records", &["checkpoint", "records", "timeline"]),
    (
        "Daemon",
        &[
            "serve",
            "stop",
            "status",
            "top",
            "ps",
            "logs",
            "doctor",
            "config",
            "reload",
            "gc",
            "backup",
            "migrate",
            "socket",
            "install-service",
        ],
    ),
    ("Shell", &["completions", "man", "help"]),
];
const REST: &str = "Other";
/// clap adds `help` when it builds the command line, which is after this page is made.
const HELP_ABOUT: &str = "Explain a command, as in `acpd help run`";
/// Width of the column with the names of commands and options.
const NAME_COLUMNS: usize = 17;
/// clap wraps a line of 80 columns. A test checks that every line of the first page fits.
#[cfg(test)]
const PAGE_COLUMNS: usize = 79;
const EXAMPLES_HEADING: &str = "Examples:";

/// All commands, with their examples, and a first page that fits a terminal of 80 columns.
pub fn command() -> clap::Command {
    let dressed = with_examples(Cli::command(), "");
    let page = first_page(&dressed);
    dressed.help_template(page)
}

fn with_examples(mut command: clap::Command, path: &str) -> clap::Command {
    if let Some(text) = examples::of(path) {
        let long = match command.get_after_long_help() {
            Some(after) => format!("{EXAMPLES_HEADING}\n{text}\n\n{after}"),
            None => format!("{EXAMPLES_HEADING}\n{text}"),
        };
        command = command.after_long_help(long);
    }
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |inner| with_examples(inner, &path));
    }
    command
}

/// The template of `acpd --help`. clap would list all commands in one group.
fn first_page(command: &clap::Command) -> String {
    let styles = Styles::default();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut page = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in grouped(command) {
        let _ = write!(page, "\n{header}{heading}:{header:#}\n");
        for name in names {
            let about = if name == "help" { HELP_ABOUT.to_owned() } else { about(command, &name) };
            let _ = writeln!(page, "  {literal}{name:<NAME_COLUMNS$}{literal:#}{about}");
        }
    }
    let _ = write!(page, "\n{header}{EVERYWHERE}:{header:#}\n");
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "  {literal}{:<NAME_COLUMNS$}{literal:#}{help}", flag(arg));
    }
    let _ = writeln!(page, "  {literal}{:<NAME_COLUMNS$}{literal:#}Print help for acpd or for a command", "--help");
    let _ = write!(page, "  {literal}{:<NAME_COLUMNS$}{literal:#}Print the version", "--version");
    page + "{after-help}"
}

/// The groups with their visible commands; at the end the commands that are in no group.
fn grouped(command: &clap::Command) -> Vec<(&'static str, Vec<String>)> {
    let visible = |name: &str| command.find_subcommand(name).is_some_and(|found| !found.is_hide_set());
    let mut groups: Vec<(&str, Vec<String>)> = GROUPS
        .iter()
        .map(|(heading, names)| {
            let names = names.iter().filter(|name| **name == "help" || visible(name));
            (*heading, names.map(|name| (*name).to_owned()).collect())
        })
        .collect();
    let is_placed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let rest = command.get_subcommands().map(clap::Command::get_name).filter(|name| !is_placed(name) && visible(name));
    let rest: Vec<String> = rest.map(str::to_owned).collect();
    if !rest.is_empty() {
        groups.push((REST, rest));
    }
    groups
}

fn about(command: &clap::Command, name: &str) -> String {
    let about = command.find_subcommand(name).and_then(clap::Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}

fn flag(arg: &Arg) -> String {
    let name = arg.get_long().unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().and_then(<[_]>::first).filter(|_| takes_value);
    value.map_or_else(|| format!("--{name}"), |value| format!("--{name} {value}"))
}
