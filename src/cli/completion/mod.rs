//! What a shell completes: commands and flags from the command line itself, and names from the running daemon.
//!
//! The script that `acpd completions` prints calls acpd again with [`VARIABLE`] set and the words so far; [`answer`] is
//! the first thing that `main` looks at. Whoever presses Tab waits for it, so nothing here starts a daemon, complains, or
//! takes longer than [`names::DEADLINE`].

mod names;
mod shells;

use std::ffi::OsString;

use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};

use super::command::choice::Kind;
use super::command::config;
use super::help;
use crate::model::message::Role;
use crate::model::{FsScope, PermissionMode};

use self::names::Names;

pub use self::shells::Shell;

/// Set by the scripts, to the name of the shell that asks.
pub const VARIABLE: &str = "ACPD_COMPLETE";

const PROGRAM: &str = "acpd";
const SHELLS: Shells<'static> = Shells(&[&Shell::Bash, &Shell::Zsh, &Shell::Fish]);

/// Answers a shell that asks what can follow, and ends the process then.
pub fn answer() {
    CompleteEnv::with_factory(|| completed(help::command(), &Names::new(std::env::args_os())))
        .var(VARIABLE)
        .shells(SHELLS)
        .complete();
}

/// The script that has the shell ask.
pub fn script(shell: Shell) -> std::io::Result<String> {
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    Ok(String::from_utf8_lossy(&script).trim().to_owned())
}

/// The command line with completers for the arguments that name something of the daemon's. Their ids say what that is, so
/// a command has to do nothing for it.
fn completed(command: clap::Command, names: &Names) -> clap::Command {
    let subcommands: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let name = command.get_name().to_owned();
    let mut command = command.mut_args(|arg| {
        let (names, name) = (names.clone(), name.clone());
        match arg.get_id().as_str() {
            "session" | "sessions" => {
                arg.add(ArgValueCompleter::new(move |current: &_| names.sessions(&name, current)))
            }
            "agent" | "base" => arg.add(ArgValueCompleter::new(move |current: &_| names.agents(current))),
            "permission" => arg.add(ArgValueCompleter::new(move |current: &_| names.questions(current))),
            "workspace" => arg.add(ArgValueCompleter::new(move |current: &_| names.directories(current))),
            "name" if name == "mode" => {
                arg.add(ArgValueCompleter::new(move |current: &_| names.choices(Kind::Mode, current)))
            }
            "name" if name == "model" => {
                arg.add(ArgValueCompleter::new(move |current: &_| names.choices(Kind::Model, current)))
            }
            "permissions" | "permissions_max" => {
                arg.add(ArgValueCandidates::new(|| values(&PermissionMode::ALL.map(PermissionMode::as_str))))
            }
            "scope" => arg.add(ArgValueCandidates::new(|| values(&FsScope::ALL.map(FsScope::as_str)))),
            "role" => arg.add(ArgValueCandidates::new(|| values(&Role::ALL.map(Role::as_str)))),
            "key" if matches!(name.as_str(), "get" | "set") => {
                arg.add(ArgValueCandidates::new(|| values(&config::keys())))
            }
            _ => arg,
        }
    });
    for subcommand in subcommands {
        command = command.mut_subcommand(subcommand, |inner| completed(inner, names));
    }
    command
}

fn values(names: &[impl ToString]) -> Vec<CompletionCandidate> {
    names.iter().map(|name| CompletionCandidate::new(name.to_string())).collect()
}

/// The words that the shell has so far: what follows the `--` of its call.
fn words_of(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    let words = arguments.skip_while(|argument| argument != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}
