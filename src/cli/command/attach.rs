//! `acpd attach`: looks on while a session works.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::{follow, lookup};

/// Show what a session did, and follow what it does
///
/// Any number of terminals can be attached. What the agent asks is asked on each of them, and the first answer counts.
/// Ctrl-C leaves and changes nothing.
#[derive(Args, Debug)]
pub struct Attach {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
    /// Begin after this event instead of at the start
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
    /// Begin with the last turns, as many as given; 0 shows only what is new
    #[arg(long, value_name = "COUNT", conflicts_with = "after")]
    pub tail: Option<usize>,
    /// Stop where the log ends
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
