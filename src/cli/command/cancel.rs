//! `acpd cancel`: ends the running turn.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::control::wire;
use crate::model::TurnId;

/// Cancel the running turn of a session, which stays active
///
/// Prints the ids of the turns that were told to end.
#[derive(Args, Debug)]
pub struct Cancel {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
    /// Also everything that waits in the queue
    #[arg(long)]
    pub queued: bool,
    /// Only this turn; refused when it is over
    #[arg(long, value_name = "ID")]
    pub turn: Option<TurnId>,
}

impl Cancel {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let body = wire::Cancel { turn_id: self.turn, queued: self.queued };
        let answer: Box<RawValue> = daemon.post(&format!("/v1/sessions/{id}/cancel"), &body).await?;
        context.show(&answer, |accepted: wire::CancelAccepted| {
            accepted.turns.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })
    }
}
