//! The manual: one page for acpd and one for each command, from the same texts as the help, and what the help has no place
//! for: files and environment. The same program makes the same pages, to the byte.

use std::io;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::help;

const SECTION: &str = "1";
const MANUAL: &str = "acpd manual";

const FILES: &[(&str, &str)] = &[
    ("~/.config/acpd/config.toml", "Configuration of a user's daemon. A system daemon reads /etc/acpd/config.toml."),
    ("~/.local/state/acpd/", "State directory: acpd.db with all sessions and messages, logs/, backups/, run/."),
    ("$XDG_RUNTIME_DIR/acpd/acpd.sock", "Socket. If XDG_RUNTIME_DIR is not set: run/acpd.sock in the state directory."),
    ("/run/acpd/acpd.sock", "Socket of a system daemon. Clients use it if the user has no daemon."),
];

/// What has a meaning to clients and daemon, in the order in which one would look for it.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("ACPD_CONFIG, ACPD_SOCKET, ACPD_STATE_DIR", "Same as the options --config, --socket and --state-dir."),
    ("ACPD_SECTION_KEY", "Sets a configuration key: ACPD_LIMITS_PROCESSES=8 means processes = 8 in [limits]."),
    (
        "AGENT_WORKSPACE_ROOT, AGENT_SESSION_IDLE_TIMEOUT",
        "Same as workspace.roots and sessions.idle_timeout (in minutes).",
    ),
    ("NO_COLOR, TERM", "Colours are off if NO_COLOR is not empty, or TERM is unset or dumb."),
    ("ACPD_PAGER, PAGER", "Pager for `acpd messages` on a terminal. Default: less -FRX."),
    ("ACPD_SESSION", "Id of the session; set for agents and the programs that they start."),
];

/// What every piece of roff begins with; a page needs it once.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

const SEE_ALSO: &str = "`acpd help COMMAND` explains a command. `GET /v1/openapi.json` describes the API.";

/// The page of acpd itself.
pub fn first_page() -> io::Result<String> {
    page(&built())
}

/// Writes every page into the directory, and tells the files' names.
pub fn write_all(directory: &Path) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(directory)?;
    let root = built();
    let mut names = Vec::new();
    for command in with_all_below(&root) {
        let name = format!("{}.{SECTION}", title(command));
        std::fs::write(directory.join(&name), page(command)?)?;
        names.push(name);
    }
    Ok(names)
}

fn built() -> clap::Command {
    // The pages are told apart by commands, so that one for `help` would say nothing.
    let mut command = help::command().disable_help_subcommand(true).subcommand_help_heading("Commands");
    command.build();
    command
}

fn with_all_below(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().filter(|inner| !inner.is_hide_set()).flat_map(with_all_below);
    [command].into_iter().chain(below).collect()
}

fn title(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command) -> io::Result<String> {
    let is_first = title(command) == "acpd";
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    sections(&after.map(ToString::to_string).unwrap_or_default()).to_writer(&mut page)?;
    if is_first {
        listed("FILES", FILES).to_writer(&mut page)?;
        listed("ENVIRONMENT", ENVIRONMENT).to_writer(&mut page)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["SEE ALSO"]);
    if !is_first {
        end.text([bold("acpd"), roman("(1). ")]);
    }
    end.text([roman(SEE_ALSO)]);
    end.to_writer(&mut page)?;
    let body = String::from_utf8_lossy(&page).replace(PREAMBLE, "");
    // An empty date has to be written as one, or the version would stand in its place.
    let heading = format!(".TH {} {SECTION} \"\" \"acpd {}\" \"{MANUAL}\"", title(command), env!("CARGO_PKG_VERSION"));
    Ok(format!("{PREAMBLE}{heading}\n{body}"))
}

/// One line, as in the help.
fn synopsis(command: &clap::Command) -> Roff {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage.trim_start_matches("Usage:").trim())]);
    roff
}

/// What stands below the options in the help: paragraphs, of which some are a heading with indented lines.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let lines: Vec<&str> = paragraph.lines().collect();
        let heading = lines[0].strip_suffix(':').filter(|_| lines[1..].iter().all(|line| line.starts_with("  ")));
        match heading {
            Some(heading) => {
                let heading = if heading == "Exit codes" { "EXIT STATUS".to_owned() } else { heading.to_uppercase() };
                roff.control("SH", [heading.as_str()]);
                literal(&mut roff, &lines[1..]);
            }
            None if lines.len() > 1 => {
                roff.control("PP", []);
                literal(&mut roff, &lines);
            }
            None => {
                roff.control("PP", []);
                roff.text([roman(paragraph)]);
            }
        }
    }
    roff
}

/// Lines as they stand.
fn literal(roff: &mut Roff, lines: &[&str]) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("fi", []);
}

fn listed(heading: &str, entries: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*meaning)]);
    }
    roff
}
