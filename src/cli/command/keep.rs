//! `acpd keep`: exempts sessions from retention.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::several;
use crate::control::wire::PatchSession;

/// Exempt sessions from retention
///
/// Suspended sessions and sessions in error expire after the times in sessions.retention_*, and are then deleted. A kept session
/// never expires, but `acpd rm --purge` still deletes it. Prints the ids of the sessions.
#[derive(Args, Debug)]
pub struct Keep {
    /// Sessions: ids, id prefixes or suffixes, exact titles, or - for the newest one here
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Let the sessions expire again
    #[arg(long)]
    pub undo: bool,
}

impl Keep {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let change = PatchSession { keep: Some(!self.undo), ..PatchSession::default() };
        let work = async |id| daemon.patch(&format!("/v1/sessions/{id}"), &change).await;
        let verb = if self.undo { "no longer kept:" } else { "kept" };
        several::each(context, &daemon, &self.sessions, work, |answer| several::session_line(context, verb, answer))
            .await
    }
}
