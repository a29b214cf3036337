//! `acpd resume`: takes a suspended session up again.

use clap::Args;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::control::wire::Session;

/// Make a suspended session active again, and print its id
#[derive(Args, Debug)]
pub struct Resume {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
}

impl Resume {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.post(&format!("/v1/sessions/{id}/resume"), &json!({})).await?;
        context.show(&answer, |session: Session| session.id.to_string())
    }
}
