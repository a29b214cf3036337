//! `acpd checkpoint`: names and states that sessions are given, and sessions that go on from them.

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use crate::cli::connection::Daemon;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::text::{age, byte_count, one_line, short_id};
use crate::cli::{document, lookup};
use crate::control::wire::checkpoints::{
    CheckpointList, CreateCheckpoint, NewSession, RestoreCheckpoint, Restored, RestoredSession,
};
use crate::model::{Checkpoint, Timestamp};

/// Create and list checkpoints, or continue from one
///
/// A checkpoint is a named state of a session: any JSON that a new session needs to continue from there. A checkpoint never
/// changes, and its name is unique within its session.
#[derive(Args, Debug)]
pub struct CheckpointCommand {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Create a checkpoint of a session and print its id
    Create {
        /// Session: id, id prefix or suffix, exact title, or - for the newest one here
        session: String,
        /// Name of the checkpoint
        name: String,
        /// State to save: JSON, @FILE, or - for stdin
        #[arg(long, value_name = "JSON")]
        state: Option<String>,
    },
    /// List the checkpoints of a session, newest first
    List {
        /// Session: id, id prefix or suffix, exact title, or - for the newest one here
        session: String,
    },
    /// Print the state of a checkpoint
    Show {
        /// Session: id, id prefix or suffix, exact title, or - for the newest one here
        session: String,
        /// Name or id of the checkpoint
        name: String,
    },
    /// Print the state of a checkpoint, or continue from it with --new
    Restore(Restore),
}

#[derive(Args, Debug)]
pub struct Restore {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Name or id of the checkpoint
    pub name: String,
    /// Start a session in the same directory and print its id; its agent gets the state before the first prompt
    #[arg(long)]
    pub new: bool,
    /// Title of the new session
    #[arg(long, requires = "new", value_name = "TEXT")]
    pub title: Option<String>,
    /// Agent of the new session [default: the same agent]
    #[arg(long, short, requires = "new", value_name = "NAME")]
    pub agent: Option<String>,
}

impl CheckpointCommand {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        match self.action {
            Action::Create { session, name, state } => create(context, &session, name, state.as_deref()).await,
            Action::List { session } => list(context, &session).await,
            Action::Show { session, name } => {
                let daemon = context.daemon().await?;
                let answer: Box<RawValue> = daemon.get(&path(&daemon, &session, &name).await?).await?;
                if context.output.json {
                    context.output.print_json(&answer)?;
                } else {
                    let checkpoint: Checkpoint = read(&answer)?;
                    document::print(context.output, &checkpoint.state)?;
                }
                Ok(Exit::Ok)
            }
            Action::Restore(restore) => restore.execute(context).await,
        }
    }
}

async fn create(context: &Context, session: &str, name: String, state: Option<&str>) -> Result<Exit, ClientError> {
    let state = state.map(document::argument).transpose()?;
    let daemon = context.daemon().await?;
    let id = lookup::session(&daemon, session).await?;
    let request = CreateCheckpoint { name, state };
    let answer: Box<RawValue> = daemon.post(&format!("/v1/sessions/{id}/checkpoints"), &request).await?;
    let is_seen = context.output.stdout_is_terminal;
    context.show(
        &answer,
        |made: Checkpoint| {
            if is_seen { format!("checkpoint {}", one_line(&made.name)) } else { made.id.to_string() }
        },
    )
}

async fn list(context: &Context, session: &str) -> Result<Exit, ClientError> {
    let daemon = context.daemon().await?;
    let id = lookup::session(&daemon, session).await?;
    let answer: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}/checkpoints?limit=1000")).await?;
    let output = context.output;
    if output.json {
        output.print_json(&answer)?;
        return Ok(Exit::Ok);
    }
    let list: CheckpointList = read(&answer)?;
    output.print(&table(&list.checkpoints).render(output.width(), output.style))?;
    if list.checkpoints.is_empty() {
        output.aside("no checkpoints; create one with `acpd checkpoint create`");
    } else if i64::try_from(list.checkpoints.len()).is_ok_and(|shown| shown < list.total) {
        output.aside(&format!("the newest {} of {}", list.checkpoints.len(), list.total));
    }
    Ok(Exit::Ok)
}

fn table(checkpoints: &[Checkpoint]) -> Table {
    let now = Timestamp::now();
    let heads = [("NAME", Fit::CutEnd), ("AGE", Fit::Number), ("STATE", Fit::Number), ("ID", Fit::Whole)];
    let mut table = Table::new(heads);
    for checkpoint in checkpoints {
        table.cells([
            checkpoint.name.as_str().into(),
            age(checkpoint.created_at, now).into(),
            byte_count(checkpoint.state.get().len()).into(),
            Cell::new(&checkpoint.id.to_string(), Paint::Dim),
        ]);
    }
    table
}

impl Restore {
    async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let path = format!("{}/restore", path(&daemon, &self.session, &self.name).await?);
        let wanted = RestoredSession { title: self.title, agent: self.agent, ..RestoredSession::default() };
        let new_session = self.new.then(|| NewSession::Options(Box::new(wanted)));
        let answer: Box<RawValue> = daemon.post(&path, &RestoreCheckpoint { new_session }).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let restored: Restored = read(&answer)?;
        match restored.session {
            None => document::print(output, &restored.state)?,
            Some(session) if output.stdout_is_terminal => {
                let name = one_line(&restored.checkpoint.name);
                output.print(&format!("session {} continues from {name}", short_id(session.id)))?;
            }
            Some(session) => output.print(&session.id.to_string())?,
        }
        Ok(Exit::Ok)
    }
}

async fn path(daemon: &Daemon, session: &str, name: &str) -> Result<String, ClientError> {
    let id = lookup::session(daemon, session).await?;
    Ok(format!("/v1/sessions/{id}/checkpoints/{}", utf8_percent_encode(name, NON_ALPHANUMERIC)))
}
