//! The command line as people are told of it: commands in groups on the first page, and examples under each of them.
//!
//! What a command is and takes stands with the command. What is said about all of them is put together here, because no
//! command sees the others: [`command`] is the whole command line, dressed.
//! Its examples are in [`examples`].

mod examples;
#[cfg(test)]
mod shell_lines;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use clap::builder::Styles;
use clap::{Arg, CommandFactory};

use super::Cli;

/// The groups of the first page. A command that is in none of them comes last, under [`REST`].
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Sessions",
        &[
            "run", "new", "prompt", "attach", "ls", "ps", "show", "messages", "turns", "search", "export", "import",
            "rename", "mode", "model", "cancel", "resume", "archive", "rm",
        ],
    ),
    ("Records", &["checkpoint", "records", "timeline"]),
    ("Questions of agents", &["permissions", "approve", "reject", "rules"]),
    ("Agents and workspaces", &["agents", "workspaces", "mcp"]),
    (
        "The daemon",
        &[
            "serve",
            "stop",
            "status",
            "top",
            "logs",
            "reload",
            "config",
            "doctor",
            "gc",
            "backup",
            "migrate",
            "socket",
            "install-service",
        ],
    ),
    ("The shell", &["completions", "man", "help"]),
];
const REST: &str = "Others";
/// clap adds it when it builds the command line, and it has no line of its own before.
const HELP_ABOUT: &str = "Explain a command: acpd help run";
/// What one line of the first page has for the name of a command or an option.
const NAME_COLUMNS: usize = 13;
const OPTION_COLUMNS: usize = 18;
const INDENT: &str = "  ";
/// clap breaks what is as wide as a terminal of 80 columns.
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

/// The template of `acpd --help`: clap lists commands in one heap, and people look for what belongs together.
fn first_page(command: &clap::Command) -> String {
    let styles = Styles::default();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut page = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in grouped(command) {
        let _ = write!(page, "\n{header}{heading}:{header:#}\n");
        for name in names {
            let about = if name == "help" { HELP_ABOUT.to_owned() } else { about(command, &name) };
            // A name that is too long for its column pushes its own line only.
            let columns = NAME_COLUMNS.max(name.len() + INDENT.len());
            let about = shortened(&about, PAGE_COLUMNS - columns - INDENT.len());
            let _ = writeln!(page, "{INDENT}{literal}{name:<columns$}{literal:#}{about}");
        }
    }
    let _ = write!(page, "\n{header}Options of every command:{header:#}\n");
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "  {literal}{:<OPTION_COLUMNS$}{literal:#}{help}", flag(arg));
    }
    let _ = writeln!(page, "  {literal}{:<OPTION_COLUMNS$}{literal:#}Say more about acpd or a command", "--help");
    let _ = write!(page, "  {literal}{:<OPTION_COLUMNS$}{literal:#}Tell the version", "--version");
    page + "{after-help}"
}

/// The groups with the commands that there are, and at the end those that nobody has put into one.
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

/// A summary without as many of its last clauses as it takes to fit into a line; the help of the command has them all.
fn shortened(summary: &str, columns_max: usize) -> &str {
    let mut short = summary.split("; prints ").next().unwrap_or(summary);
    while short.chars().count() > columns_max {
        match short.rfind([',', ';', ':']) {
            Some(end) => short = &short[..end],
            None => break,
        }
    }
    short
}

fn flag(arg: &Arg) -> String {
    let name = arg.get_long().unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().and_then(<[_]>::first).filter(|_| takes_value);
    value.map_or_else(|| format!("--{name}"), |value| format!("--{name} {value}"))
}
