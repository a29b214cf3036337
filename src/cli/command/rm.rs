//! `acpd rm`: archives sessions with a reason, or deletes them.

use std::io::{self, IsTerminal};

use clap::Args;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several::{self, Named};
use crate::cli::text::{cut_end, one_line, short_id};
use crate::control::wire::Session;
use crate::model::SessionId;

const TITLE_COLUMNS: usize = 60;

/// Archive sessions, or delete them with --purge
///
/// --purge deletes the sessions with all their messages. On a terminal acpd asks for confirmation before it deletes, and
/// before it archives several sessions, unless --force is given. Without a terminal it does not ask. Prints the ids of the
/// sessions.
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
        let sessions = several::named(&daemon, &self.sessions).await;
        let is_asked = (self.purge || sessions.len() > 1)
            && !self.force
            && io::stdin().is_terminal()
            && context.output.stderr_is_terminal;
        if is_asked && !self.is_meant(context, &daemon, &sessions).await? {
            context.output.note(if self.purge { "nothing was deleted" } else { "nothing was archived" });
            return Ok(Exit::Error);
        }
        let mut parameters = Vec::new();
        if self.purge {
            parameters.push(("purge", "true".to_owned()));
        }
        parameters.extend(self.reason.clone().map(|reason| ("reason", reason)));
        let work = async |id: SessionId| daemon.delete(&with_query(&format!("/v1/sessions/{id}"), &parameters)).await;
        let verb = if self.purge { "deleted" } else { "archived" };
        let exit =
            several::each_of(context, sessions, work, |answer| several::session_line(context, verb, answer)).await?;
        if !self.purge && exit == Exit::Ok {
            context.output.aside("archived, not deleted; to delete, add --purge");
        }
        Ok(exit)
    }

    /// Shows the sessions, and asks. An error of a name is printed later, in its place.
    async fn is_meant(&self, context: &Context, daemon: &Daemon, sessions: &[Named]) -> Result<bool, ClientError> {
        let mut found = Vec::new();
        for id in sessions.iter().filter_map(|(_, found)| found.as_ref().ok()) {
            if let Ok(session) = daemon.get::<Session>(&format!("/v1/sessions/{id}")).await {
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
        context.output.agrees(match (self.purge, found.len()) {
            (true, 1) => "Permanently delete it with all its messages? [y/N] ",
            (true, _) => "Permanently delete them with all their messages? [y/N] ",
            (false, 1) => "Archive it? [y/N] ",
            (false, _) => "Archive them? [y/N] ",
        })
    }
}
