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

/// Archive sessions, or with --purge delete them with all their messages; prints their ids
///
/// On a terminal --purge asks first, unless --force is given; a script is not asked.
#[derive(Args, Debug)]
pub struct Rm {
    /// Ids or parts of them, titles, or - for the newest session here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Delete them for good
    #[arg(long)]
    pub purge: bool,
    /// Do not ask
    #[arg(long, short, short_alias = 'y', alias = "yes")]
    pub force: bool,
    /// Why, for the record
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
            context.output.aside("kept as archived; --purge deletes for good");
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
        context.output.show(&format!("Delete {what} for good? [y/N] "));
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|source| ClientError::io("read the answer", source))?;
        Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}
