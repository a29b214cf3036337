//! `acpd cancel`: ends running turns.

use clap::Args;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several;
use crate::cli::text::count;
use crate::control::wire;
use crate::model::{SessionId, TurnId};

/// Cancel the running turns of sessions
///
/// The sessions stay active. Prints the ids of the turns that it cancels.
#[derive(Args, Debug)]
pub struct Cancel {
    /// Sessions: ids, id prefixes or suffixes, exact titles, or - for the newest one here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Cancel queued turns too
    #[arg(long)]
    pub queued: bool,
    /// Cancel only this turn; fails if it has ended
    #[arg(long, value_name = "ID")]
    pub turn: Option<TurnId>,
}

impl Cancel {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        if self.turn.is_some() && self.sessions.len() > 1 {
            let hint = "name only the session of that turn; `acpd turns SESSION` lists its turns";
            return Err(ClientError::local("cannot use --turn with several sessions", hint));
        }
        let daemon = context.daemon().await?;
        let body = wire::Cancel { turn_id: self.turn, queued: self.queued };
        let work = async |id: SessionId| daemon.post(&format!("/v1/sessions/{id}/cancel"), &body).await;
        let told = |answer: &serde_json::value::RawValue| {
            let accepted: wire::CancelAccepted = read(answer)?;
            let turns: Vec<String> = accepted.turns.iter().map(ToString::to_string).collect();
            context.output.aside(&format!("cancelling {}", count(turns.len() as u64, "turn")));
            Ok(turns.join("\n"))
        };
        several::each(context, &daemon, &self.sessions, work, told).await
    }
}
