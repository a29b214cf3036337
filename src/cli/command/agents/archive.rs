//! `acpd agents archive`: puts an agent away that was made with the daemon.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::control::wire::Agent;

/// Archive an agent made with `create` and print its name
///
/// An archived agent accepts no new sessions. Its existing sessions continue. `acpd agents edit NAME --restore` restores it.
#[derive(Args, Debug)]
pub struct Archive {
    /// Name or id of the agent
    #[arg(id = "agent", value_name = "NAME")]
    name: String,
}

impl Archive {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.delete(&super::path(&self.name)).await?;
        context.show(&answer, |agent: Agent| agent.slug)
    }
}
