//! `acpd archive`: is done with a session and keeps it.

use clap::Args;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::control::wire::Session;

/// Stop a session for good and keep its record; prints its id
///
/// The running turn is cancelled and the agent's process stopped. An archived session can only be read or deleted.
#[derive(Args, Debug)]
pub struct Archive {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
}

impl Archive {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.post(&format!("/v1/sessions/{id}/archive"), &json!({})).await?;
        context.show(&answer, |session: Session| session.id.to_string())
    }
}
