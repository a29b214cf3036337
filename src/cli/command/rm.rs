//! `acpd rm`: archives a session with a reason, or deletes it.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::connection::with_query;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::control::wire::Session;

/// Archive a session, or with --purge delete it with all its messages; prints its id
#[derive(Args, Debug)]
pub struct Rm {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
    /// Delete it for good
    #[arg(long)]
    pub purge: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl Rm {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let mut parameters = Vec::new();
        if self.purge {
            parameters.push(("purge", "true".to_owned()));
        }
        parameters.extend(self.reason.map(|reason| ("reason", reason)));
        let answer: Box<RawValue> = daemon.delete(&with_query(&format!("/v1/sessions/{id}"), &parameters)).await?;
        context.show(&answer, |session: Session| session.id.to_string())
    }
}
