//! `acpd messages`: the record of a session.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::connection::with_query;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::transcript::{self, MessageView};
use crate::model::Timestamp;

/// What the daemon gives at once.
const LIMIT_MAX: u32 = 1000;

/// Print the messages of a session
#[derive(Args, Debug)]
pub struct Messages {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
    /// Only those since this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Timestamp>,
    /// Only those after this message
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
    /// At most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

#[derive(Deserialize)]
struct List {
    messages: Vec<MessageView>,
    total: i64,
}

impl Messages {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let parameters: Vec<(&str, String)> = [
            ("since", self.since.map(|since| since.to_string())),
            ("after", self.after.map(|after| after.to_string())),
            ("limit", Some(self.limit.unwrap_or(LIMIT_MAX).to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let path = with_query(&format!("/v1/sessions/{id}/messages"), &parameters);
        let answer: Box<RawValue> = daemon.get(&path).await?;
        let output = context.output;
        context.show(&answer, |list: List| {
            if let Some(last) = list.messages.last().filter(|last| last.sequence < list.total) {
                output.aside(&format!("more follow: --after {} shows them", last.sequence));
            }
            transcript::render(&list.messages, output.style)
        })
    }
}
