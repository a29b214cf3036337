//! `acpd rm`: archives sessions with a reason, or deletes them.

use std::io::{self, IsTerminal};

use clap::Args;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{cut_end, one_line, short_id};
use crate::cli::{lookup, several};
use crate::control::wire::Session;
use crate::model::SessionId;

const TITLE_COLUMNS: usize = 60;

/// Archive sessions, or delete them with --purge
///
/// --purge deletes the sessions with all their messages. On a terminal it asks for confirmation, unless --force is given.
/// Without a terminal it does not ask. Prints the ids of the sessions.
#[derive(Args, Debug)]
pub struct Rm {
    /// Sessions: ids, id prefixes or suffixes, exact titles, or - for the newest one here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Delete the sessions with all their messages
    #[arg(long)]
    pub purge: bool,
    /// Do not ask for confirmation
    #[arg(long, short, short_alias = 'y', alias = "yes")]
    pub force: bool,
    /// Reason to store with the session
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl Rm {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let is_asked = self.purge && !self.force && io::stdin().is_terminal() && context.output.stderr_is_terminal;
        if is_asked && !self.is_meant(context, &daemon).await? {
            context.output.note("nothing was deleted");
            return Ok(Exit::Error);
        }
        let mut parameters = Vec::new();
        if self.purge {
            parameters.push(("purge", "true".to_owned()));
        }
        parameters.extend(self.reason.clone().map(|reason| ("reason", reason)));
        let work = async |id: SessionId| daemon.delete(&with_query(&format!("/v1/sessions/{id}"), &parameters)).await;
        let verb = if self.purge { "deleted" } else { "archived" };
        let exit = several::each(context, &daemon, &self.sessions, work, |answer| {
            several::session_line(context, verb, answer)
        })
        .await?;
        if !self.purge && exit == Exit::Ok {
            context.output.aside("archived, not deleted; to delete, add --purge");
        }
        Ok(exit)
    }

    /// Shows what would go, and asks. What cannot be found is told when it is its turn.
    async fn is_meant(&self, context: &Context, daemon: &Daemon) -> Result<bool, ClientError> {
        let mut found = Vec::new();
        for name in &self.sessions {
            if let Ok(id) = lookup::session(daemon, name).await
                && let Ok(session) = daemon.get::<Session>(&format!("/v1/sessions/{id}")).await
            {
                found.push(session);
            }
        }
        if found.is_empty() {
            return Ok(true);
        }
        for session in &found {
            let title = cut_end(&one_line(&session.title), TITLE_COLUMNS);
            context.output.show(&format!("{}  {}  {title}\n", short_id(session.id), session.status));
        }
        let what = if found.len() == 1 { "it with all its messages" } else { "them with all their messages" };
        context.output.show(&format!("Permanently delete {what}? [y/N] "));
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|source| ClientError::io("read the answer", source))?;
        Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}
