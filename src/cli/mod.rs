//! The command line: what a person types, and the client commands that talk to the daemon's socket.
//!
//! `serve`, `migrate` and the hidden agent mode are only declared here; `main` hands them to their own modules. Every
//! other command is a client: it reaches the daemon (starting one when none runs), speaks HTTP over its socket, writes
//! data to stdout and everything for people to stderr, and ends with a code of [`exit`].

mod exit;
mod error;
mod wording;
mod style;
mod text;
mod span;
mod table;
mod facts;
mod output;
mod findings;
mod connection;
mod sse;
mod stream;
mod service;
mod autostart;
mod context;
mod suggest;
mod config_file;
mod reload;
mod doctor;
mod lookup;
mod several;
mod sign_in;
mod interrupts;
mod prompt_text;
mod document;
mod account;
mod attachments;
mod import;
mod transcript;
mod pager;
mod terminal;
mod watch;
mod processes;
mod render;
mod view;
mod question;
mod verdict;
mod follow;
mod command;
mod top;
mod help;
mod misread;
mod man;
pub mod completion;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::Overrides;

use self::context::Context;
use self::error::ClientError;
use self::output::Output;

pub use self::exit::Exit;
pub use self::misread::parse;

const EXAMPLES: &str = "\
Examples:
  acpd run \"fix the failing test\"      start a session here, show its answer
  acpd prompt - \"now document it\"      continue the newest session here
  acpd attach -                        watch it from another terminal
  acpd ls                              list sessions
  acpd permissions                     list open permission requests

Name a SESSION by its id, by a unique prefix or suffix of the id (4 or more
digits), by its exact title, or by - for the newest session of the current
directory.";

const EVERYWHERE: &str = "Global options";

/// Run coding agents in sessions that outlive terminals, editors and restarts
#[derive(Debug, Parser)]
#[command(name = "acpd", version, after_help = EXAMPLES, after_long_help = exit::long_help(EXAMPLES))]
#[command(max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that every command takes. Their variables are read here and not by clap, which would take them for arguments
/// that somebody has typed.
#[derive(Args, Clone, Debug, Default)]
pub struct Globals {
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILE")]
    #[arg(help = "Read this configuration file [env: ACPD_CONFIG]")]
    pub config: Option<PathBuf>,
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "PATH")]
    #[arg(help = "Use this daemon socket [env: ACPD_SOCKET]")]
    pub socket: Option<PathBuf>,
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    #[arg(help = "Use this state directory [env: ACPD_STATE_DIR]")]
    pub state_dir: Option<PathBuf>,
    /// Print JSON instead of text (streams: one event per line)
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    Serve(Serve),
    /// Migrate the store to this version's schema
    Migrate(Migrate),
    Mcp(command::mcp::Mcp),
    /// The built-in agent that needs no model
    #[command(name = "demo-agent", hide = true)]
    DemoAgent,
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Shell(ShellCommand),
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Serve {
    /// Detach from the terminal. Clients that start a daemon pass it
    #[arg(long, hide = true)]
    pub detached: bool,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Migrate {
    /// Migrate back to this schema version, before you install an older acpd
    ///
    /// Deletes what the older version cannot store, such as checkpoints and session records. First copies the store to
    /// backups/ in the state directory.
    #[arg(long, value_name = "VERSION")]
    pub down: Option<i64>,
}

/// The commands that need no daemon, and not even a home.
#[derive(Debug, Subcommand)]
pub enum ShellCommand {
    Completions(command::completions::Completions),
    Man(command::man::ManCommand),
}

/// The commands that are clients of the daemon's socket.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    Run(command::run::Run),
    New(command::new::New),
    Prompt(command::prompt::Prompt),
    Attach(command::attach::Attach),
    Ls(command::ls::Ls),
    Ps(command::ps::Ps),
    Show(command::show::Show),
    Messages(command::messages::Messages),
    Turns(command::turns::Turns),
    Rename(command::rename::Rename),
    Mode(command::choice::Mode),
    Model(command::choice::Model),
    Search(command::search::Search),
    Export(command::export::Export),
    Checkpoint(command::checkpoint::CheckpointCommand),
    Records(command::records::Records),
    Timeline(command::timeline::TimelineCommand),
    Cancel(command::cancel::Cancel),
    Permissions(command::permissions::Permissions),
    Approve(command::answer::Approve),
    Reject(command::answer::Reject),
    Rules(command::rules::Rules),
    Resume(command::resume::Resume),
    Keep(command::keep::Keep),
    Archive(command::archive::Archive),
    Rm(command::rm::Rm),
    Gc(command::gc::Gc),
    Backup(command::backup::BackupCommand),
    Import(command::import::Import),
    Agents(command::agents::Agents),
    Workspaces(command::workspaces::Workspaces),
    Status(command::status::Status),
    Top(top::Top),
    Logs(command::logs::Logs),
    Reload(command::reload::Reload),
    Config(command::config::ConfigCommand),
    Stop(command::stop::Stop),
    Doctor(command::doctor::Doctor),
    InstallService(command::install_service::InstallService),
    Socket(command::socket::Socket),
}

impl Globals {
    /// What the flags and their variables say, made absolute: a daemon that is started for them runs in `/`.
    pub fn overrides(&self) -> Overrides {
        let absolute = |flag: &Option<PathBuf>, name: &str| {
            let path = flag.clone().or_else(|| variable(name))?;
            Some(std::path::absolute(&path).unwrap_or(path))
        };
        Overrides {
            config: absolute(&self.config, "ACPD_CONFIG"),
            socket: absolute(&self.socket, "ACPD_SOCKET"),
            state_dir: absolute(&self.state_dir, "ACPD_STATE_DIR"),
        }
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Runs a client command. Whatever goes wrong is told on stderr, and the code says what kind of thing it was.
pub async fn run(client: ClientCommand, globals: &Globals) -> ExitCode {
    let output = Output::new(globals.json);
    let outcome = match Context::new(&globals.overrides(), output) {
        Ok(context) => match execute(client, &context).await {
            Err(error) => Err(suggest::agent(&context, error).await),
            done => done,
        },
        Err(error) => Err(error),
    };
    let exit = outcome.unwrap_or_else(|error| {
        output.error(&error);
        Exit::of(&error)
    });
    ExitCode::from(exit.code())
}

/// Serves an agent its tools. The socket is the session's own, and no other can take its place.
pub async fn serve_tools(command: command::mcp::Mcp, globals: &Globals) -> ExitCode {
    let outcome = command.execute(globals.socket.clone()).await;
    let exit = outcome.map_or_else(
        |error| {
            Output::new(globals.json).error(&error);
            Exit::of(&error)
        },
        |()| Exit::Ok,
    );
    ExitCode::from(exit.code())
}

/// Runs a command that only prints.
pub fn print(command: &ShellCommand, globals: &Globals) -> ExitCode {
    let output = Output::new(globals.json);
    let printed = match command {
        ShellCommand::Completions(arguments) => arguments.text().and_then(|text| output.print(&text)),
        ShellCommand::Man(arguments) => arguments.execute(output),
    };
    let exit = printed.map_or_else(
        |error| {
            output.error(&error);
            Exit::of(&error)
        },
        |()| Exit::Ok,
    );
    ExitCode::from(exit.code())
}

async fn execute(client: ClientCommand, context: &Context) -> Result<Exit, ClientError> {
    match client {
        ClientCommand::Run(arguments) => arguments.execute(context).await,
        ClientCommand::New(arguments) => arguments.execute(context).await,
        ClientCommand::Prompt(arguments) => arguments.execute(context).await,
        ClientCommand::Attach(arguments) => arguments.execute(context).await,
        ClientCommand::Ls(arguments) => arguments.execute(context).await,
        ClientCommand::Ps(arguments) => arguments.execute(context).await,
        ClientCommand::Rename(arguments) => arguments.execute(context).await,
        ClientCommand::Logs(arguments) => arguments.execute(context).await,
        ClientCommand::Reload(arguments) => arguments.execute(context).await,
        ClientCommand::Config(arguments) => arguments.execute(context).await,
        ClientCommand::Show(arguments) => arguments.execute(context).await,
        ClientCommand::Messages(arguments) => arguments.execute(context).await,
        ClientCommand::Turns(arguments) => arguments.execute(context).await,
        ClientCommand::Mode(arguments) => arguments.execute(context).await,
        ClientCommand::Model(arguments) => arguments.execute(context).await,
        ClientCommand::Search(arguments) => arguments.execute(context).await,
        ClientCommand::Export(arguments) => arguments.execute(context).await,
        ClientCommand::Checkpoint(arguments) => arguments.execute(context).await,
        ClientCommand::Records(arguments) => arguments.execute(context).await,
        ClientCommand::Timeline(arguments) => arguments.execute(context).await,
        ClientCommand::Cancel(arguments) => arguments.execute(context).await,
        ClientCommand::Permissions(arguments) => arguments.execute(context).await,
        ClientCommand::Approve(arguments) => arguments.execute(context).await,
        ClientCommand::Reject(arguments) => arguments.execute(context).await,
        ClientCommand::Rules(arguments) => arguments.execute(context).await,
        ClientCommand::Resume(arguments) => arguments.execute(context).await,
        ClientCommand::Keep(arguments) => arguments.execute(context).await,
        ClientCommand::Archive(arguments) => arguments.execute(context).await,
        ClientCommand::Rm(arguments) => arguments.execute(context).await,
        ClientCommand::Gc(arguments) => arguments.execute(context).await,
        ClientCommand::Import(arguments) => arguments.execute(context).await,
        ClientCommand::Backup(arguments) => arguments.execute(context).await,
        ClientCommand::Agents(arguments) => arguments.execute(context).await,
        ClientCommand::Workspaces(arguments) => arguments.execute(context).await,
        ClientCommand::Status(arguments) => arguments.execute(context).await,
        ClientCommand::Top(arguments) => arguments.execute(context).await,
        ClientCommand::Stop(arguments) => arguments.execute(context).await,
        ClientCommand::Doctor(arguments) => arguments.execute(context).await,
        ClientCommand::InstallService(arguments) => arguments.execute(context).await,
        ClientCommand::Socket(_) => command::socket::Socket::execute(context),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn prompt_words_may_stand_around_the_flags() {
        let cli = Cli::try_parse_from(["acpd", "run", "fix", "--agent", "demo", "the", "test", "--json"]).unwrap();
        assert!(cli.globals.json);
        let Command::Client(ClientCommand::Run(run)) = cli.command else { panic!("not a run: {:?}", cli.command) };
        assert_eq!(run.prompt, ["fix", "the", "test"]);
        assert_eq!(run.options.agent.as_deref(), Some("demo"));
    }

    #[test]
    fn a_dash_names_a_session() {
        let cli = Cli::try_parse_from(["acpd", "prompt", "-", "go", "on"]).unwrap();
        let Command::Client(ClientCommand::Prompt(prompt)) = cli.command else { panic!("not a prompt") };
        assert_eq!((prompt.session.as_str(), prompt.text.join(" ").as_str()), ("-", "go on"));
    }

    #[test]
    fn relative_paths_are_made_absolute() {
        let cli = Cli::try_parse_from(["acpd", "--socket", "x.sock", "serve", "--detached"]).unwrap();
        assert!(cli.globals.overrides().socket.unwrap().is_absolute());
        assert!(matches!(cli.command, Command::Serve(Serve { detached: true })));
    }
}
