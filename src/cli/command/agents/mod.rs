//! `acpd agents`: who can be talked to, whether they work, and adding others.

mod add;
mod archive;
mod check;
mod create;
mod edit;
mod key;
mod list;
mod login;
mod remove;
mod show;

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::cli::config_file::ConfigFile;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::reload;

pub use check::{checked, finding};

/// List, check, add and change agents
///
/// An agent is any program that speaks ACP on its standard input and output.
#[derive(Args, Debug)]
pub struct Agents {
    #[command(subcommand)]
    command: Option<AgentsCommand>,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    List(list::List),
    Show(show::Show),
    Check(check::Check),
    Key(key::Key),
    Login(login::Login),
    Create(Box<create::Create>),
    Edit(Box<edit::Edit>),
    Archive(archive::Archive),
    Add(Box<add::Add>),
    Remove(remove::Remove),
}

impl Agents {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        match self.command {
            None => list::List::default().execute(context).await,
            Some(AgentsCommand::List(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Show(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Check(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Key(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Login(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Create(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Edit(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Archive(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Add(arguments)) => arguments.execute(context).await,
            Some(AgentsCommand::Remove(arguments)) => arguments.execute(context).await,
        }
    }
}

/// Writes the file and has the daemon read it. What was done is told first: the daemon may take its time.
async fn write(context: &Context, file: &mut ConfigFile, agent: &str, done: &[String]) -> Result<(), ClientError> {
    file.write()?;
    let output = context.output;
    if !output.json {
        for line in done {
            output.note(line);
        }
    }
    let reloaded = reload::after_change(context, file.path()).await;
    if output.json {
        return reloaded.tell_program(output, agent, file.path());
    }
    reloaded.tell(output);
    Ok(())
}

/// An agent's path on the wire. A name may be anything a person types.
pub fn path(name: &str) -> String {
    format!("/v1/agents/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}
