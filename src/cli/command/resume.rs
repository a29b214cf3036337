//! `acpd resume`: takes suspended sessions up again.

use clap::Args;
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several;

/// Make suspended sessions active again, and print their ids
///
/// Turns that waited go on. `acpd prompt` resumes a session by itself.
#[derive(Args, Debug)]
pub struct Resume {
    /// Ids or parts of them, titles, or - for the newest session here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
}

impl Resume {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let work = async |id| daemon.post(&format!("/v1/sessions/{id}/resume"), &json!({})).await;
        several::each(context, &daemon, &self.sessions, work, |answer| {
            several::session_line(context, "resumed", answer)
        })
        .await
    }
}
