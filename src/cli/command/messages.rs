//! `acpd messages`: the record of a session, whole, page by page.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::output::Output;
use crate::cli::pager::Pager;
use crate::cli::text::clean_json;
use crate::cli::transcript::{self, MessageView};
use crate::cli::{lookup, span};
use crate::model::message::Role;
use crate::model::{SessionId, Timestamp};

/// What the daemon gives at once.
const PAGE: u32 = 1000;

/// Print the messages of a session
///
/// On a terminal the messages are shown in a pager: `$ACPD_PAGER`, `$PAGER` or less. With --json the command prints one
/// object, as in the API, with all requested messages.
#[derive(Args, Debug)]
pub struct Messages {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Only messages since this time (2026-01-31T12:00:00Z) or for this long (2h, 3d)
    #[arg(long, value_name = "TIME", value_parser = span::since)]
    pub since: Option<Timestamp>,
    /// Only messages after the one with this sequence number
    #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(i64).range(0..))]
    pub after: Option<i64>,
    /// Only messages of this role: user, agent, `tool_call`, `tool_result` or system
    #[arg(long, value_name = "ROLE")]
    pub role: Option<Role>,
    /// Print at most this many, oldest first
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print only this many of the newest messages
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["after", "limit", "role"])]
    pub last: Option<u32>,
    /// Print without a pager
    #[arg(long)]
    pub no_pager: bool,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Box<RawValue>>,
    total: i64,
}

/// Which of a page's messages are meant, and where the next page begins.
#[derive(Deserialize)]
struct Head {
    sequence: i64,
    role: String,
}

impl Messages {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let session = lookup::session(&daemon, &self.session).await?;
        let output = context.output;
        let mut sink = Sink::start(output, !self.no_pager)?;
        let mut after = self.first(&daemon, session).await?;
        let mut left = self.limit.unwrap_or(u32::MAX);
        let mut total = 0;
        while left > 0 {
            let limit = if self.role.is_none() { left.min(PAGE) } else { PAGE };
            let answer = self.page(&daemon, session, after, limit, self.since).await?;
            let page: Page = read(&answer)?;
            total = page.total;
            let mut chosen = Vec::new();
            let before = after;
            for message in page.messages {
                let head: Head = read(&message)?;
                after = head.sequence;
                if self.role.is_none_or(|role| role.as_str() == head.role) && left > 0 {
                    chosen.push(message);
                    left -= 1;
                }
            }
            // A page may have less than was asked for when its messages are large; an empty one is the end.
            if after == before || !sink.write(&chosen)? {
                break;
            }
        }
        sink.finish(total, self.limit, total == 0 && self.since.is_none())?;
        Ok(Exit::Ok)
    }

    /// The sequence after which to begin.
    async fn first(&self, daemon: &Daemon, session: SessionId) -> Result<i64, ClientError> {
        let Some(last) = self.last else { return Ok(self.after.unwrap_or(0)) };
        let answer = self.page(daemon, session, 0, 1, None).await?;
        let page: Page = read(&answer)?;
        Ok((page.total - i64::from(last)).max(0))
    }

    async fn page(
        &self,
        daemon: &Daemon,
        session: SessionId,
        after: i64,
        limit: u32,
        since: Option<Timestamp>,
    ) -> Result<Box<RawValue>, ClientError> {
        let mut parameters = vec![("after", after.to_string()), ("limit", limit.to_string())];
        parameters.extend(since.map(|since| ("since", since.to_string())));
        daemon.get(&with_query(&format!("/v1/sessions/{session}/messages"), &parameters)).await
    }
}

/// Where messages go: to a reader, or as one JSON object that is written while it is read.
enum Sink {
    Reader { pager: Pager, output: Output, is_first: bool },
    Json { output: Output, is_first: bool },
}

impl Sink {
    fn start(output: Output, is_paged: bool) -> Result<Self, ClientError> {
        if output.json {
            output.print_part("{\"messages\":[")?;
            return Ok(Self::Json { output, is_first: true });
        }
        Ok(Self::Reader { pager: Pager::start(output, is_paged)?, output, is_first: true })
    }

    /// Tells whether there is still somebody who reads.
    fn write(&mut self, messages: &[Box<RawValue>]) -> Result<bool, ClientError> {
        match self {
            Self::Reader { pager, output, is_first } => {
                for message in messages {
                    let view: MessageView = read(message)?;
                    let text = transcript::render(&[view], output.style, output.width());
                    let gap = if std::mem::take(is_first) { "" } else { "\n" };
                    if !pager.write(&format!("{gap}{text}"))? {
                        return Ok(false);
                    }
                }
            }
            Self::Json { output, is_first } => {
                for message in messages {
                    let comma = if std::mem::take(is_first) { "" } else { "," };
                    output.print_part(&format!("{comma}{}", clean_json(message.get())))?;
                }
            }
        }
        Ok(true)
    }

    fn finish(self, total: i64, limit: Option<u32>, is_empty: bool) -> Result<(), ClientError> {
        match self {
            Self::Reader { pager, output, is_first } => {
                pager.finish()?;
                if is_first {
                    output.aside(if is_empty { "no messages yet" } else { "no matching messages" });
                }
                Ok(())
            }
            Self::Json { output, .. } => {
                let limit = limit.map_or(total, i64::from);
                output.print(&format!("],\"total\":{total},\"limit\":{limit},\"offset\":0}}"))
            }
        }
    }
}
