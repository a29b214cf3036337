//! `acpd cancel`: ends running turns.

use clap::Args;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several;
use crate::cli::text::count;
use crate::control::wire;
use crate::model::{SessionId, TurnId};

/// Cancel the running turns of sessions, which stay active
///
/// Prints the ids of the turns that were told to end.
#[derive(Args, Debug)]
pub struct Cancel {
    /// Ids or parts of them, titles, or - for the newest session here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Also everything that waits in the queue
    #[arg(long)]
    pub queued: bool,
    /// Only this turn; refused when it is over
    #[arg(long, value_name = "ID")]
    pub turn: Option<TurnId>,
}

impl Cancel {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        if self.turn.is_some() && self.sessions.len() > 1 {
            let hint = "name the session that the turn is of, alone; `acpd turns SESSION` lists them";
            return Err(ClientError::local("a turn is of one session", hint));
        }
        let daemon = context.daemon().await?;
        let body = wire::Cancel { turn_id: self.turn, queued: self.queued };
        let work = async |id: SessionId| daemon.post(&format!("/v1/sessions/{id}/cancel"), &body).await;
        let told = |answer: &serde_json::value::RawValue| {
            let accepted: wire::CancelAccepted = read(answer)?;
            let turns: Vec<String> = accepted.turns.iter().map(ToString::to_string).collect();
            context.output.aside(&format!("{} told to end", count(turns.len() as u64, "turn")));
            Ok(turns.join("\n"))
        };
        several::each(context, &daemon, &self.sessions, work, told).await
    }
}
