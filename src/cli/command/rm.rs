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

/// Archive sessions, or with --purge delete them with all their messages; prints their ids
///
/// On a terminal it asks first, before it deletes and before it archives several sessions. --force skips that. Scripts are
/// not asked.
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
            context.output.aside("kept as archived; --purge deletes for good");
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
            (true, 1) => "Delete it with all its messages for good? [y/N] ",
            (true, _) => "Delete them with all their messages for good? [y/N] ",
            (false, 1) => "Archive it? [y/N] ",
            (false, _) => "Archive them? [y/N] ",
        })
    }
}
