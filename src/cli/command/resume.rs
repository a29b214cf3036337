//! `acpd resume`: takes suspended sessions up again.

use clap::Args;
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several;

/// Make suspended sessions active again and print their ids
///
/// Queued turns continue. `acpd prompt` resumes a suspended session too.
#[derive(Args, Debug)]
pub struct Resume {
    /// Sessions: ids, id prefixes or suffixes, exact titles, or - for the newest one here
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
