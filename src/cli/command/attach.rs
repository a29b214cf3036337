//! `acpd attach`: looks on while a session works.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::{follow, lookup};

/// Show a session's conversation and follow it live
///
/// Any number of terminals can attach to a session. Each of them shows permission requests, and the first answer counts.
/// Ctrl-C detaches and does not affect the session.
#[derive(Args, Debug)]
pub struct Attach {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Start after the event with this sequence number [default: from the first event]
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
    /// Show the last COUNT turns first; 0 shows only new events
    #[arg(long, value_name = "COUNT", conflicts_with = "after")]
    pub tail: Option<usize>,
    /// Exit at the end of the log instead of following
    #[arg(long)]
    pub no_follow: bool,
    #[command(flatten)]
    pub following: follow::Following,
}

impl Attach {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let session = lookup::session(&daemon, &self.session).await?;
        let after = match self.tail {
            Some(turns) => Some(follow::tail(context, &daemon, session, turns).await?),
            None => self.after,
        };
        follow::session(context, &daemon, session, after, !self.no_follow, self.following).await
    }
}
