//! `acpd rename`: gives a session another title.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::{lookup, several};
use crate::control::wire::PatchSession;

/// Change the title of a session
#[derive(Args, Debug)]
pub struct Rename {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// The new title; several words are joined
    #[arg(required = true)]
    pub title: Vec<String>,
}

impl Rename {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let change = PatchSession { title: Some(self.title.join(" ")), ..PatchSession::default() };
        let answer: Box<RawValue> = daemon.patch(&format!("/v1/sessions/{id}"), &change).await?;
        if context.output.json {
            context.output.print_json(&answer)?;
        } else {
            context.output.print(&several::session_line(context, "renamed", &answer)?)?;
        }
        Ok(Exit::Ok)
    }
}
