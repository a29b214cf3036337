//! `acpd timeline`: what became of something, over all sessions that had to do with it.

use clap::Args;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::connection::with_query;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::{lookup, span};
use crate::control::wire::records::{Timeline, TimelineItem};
use crate::model::Timestamp;

/// Show an entity's history across sessions
///
/// An entity is a session, or anything that the outcomes of session records name by an id, such as an issue. The oldest
/// entry comes first. The exit code is 1 if there are no entries.
#[derive(Args, Debug)]
pub struct TimelineCommand {
    /// Id that outcomes name, session id, `session_id`, record id, or - for the newest session here
    pub entity: String,
    /// Only entries since this time (2026-01-31T12:00:00Z) or for this long (12h, 7d)
    #[arg(long, value_name = "TIME", value_parser = span::since)]
    pub from: Option<Timestamp>,
    /// Only entries up to this time or to the end of this day, or up to this long ago
    #[arg(long, value_name = "TIME", value_parser = span::until)]
    pub to: Option<Timestamp>,
    /// Include the sessions of all users (root only)
    #[arg(long)]
    pub all: bool,
    /// List at most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

impl TimelineCommand {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let entity = match self.entity.as_str() {
            "-" => lookup::session(&daemon, "-").await?.to_string(),
            _ => self.entity,
        };
        let mut parameters = vec![("entity", entity)];
        let others = [
            ("from", self.from.map(|from| from.to_string())),
            ("to", self.to.map(|to| to.to_string())),
            ("all", self.all.then(|| "true".to_owned())),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ];
        parameters.extend(others.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let answer: Box<RawValue> = daemon.get(&with_query("/v1/timeline", &parameters)).await?;
        let timeline: Timeline = read(&answer)?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
        } else {
            output.print(&table(&timeline.items).render(output.width(), output.style))?;
            if timeline.items.is_empty() {
                output.aside("no entries; `acpd records` lists the session records");
            } else if i64::try_from(timeline.items.len()).is_ok_and(|shown| shown < timeline.total) {
                output.aside(&format!("{} of {}; --limit shows more", timeline.items.len(), timeline.total));
            }
        }
        Ok(if timeline.items.is_empty() { Exit::Error } else { Exit::Ok })
    }
}

fn table(items: &[TimelineItem]) -> Table {
    let heads = [("TIME", Fit::Whole), ("SESSION", Fit::CutStart), ("EVENT", Fit::Whole), ("DETAILS", Fit::CutEnd)];
    let mut table = Table::new(heads);
    for item in items {
        let (what, paint) = match item.kind.as_str() {
            "session_start" => ("start", Paint::Dim),
            "session_end" => ("end", Paint::Dim),
            other => (other, Paint::Plain),
        };
        table.cells([
            item.timestamp.to_string().into(),
            item.session_id.as_str().into(),
            Cell::new(what, paint),
            about(item).into(),
        ]);
    }
    table
}

/// The name of a checkpoint; the type of an outcome, and what it is about.
fn about(item: &TimelineItem) -> String {
    let data = item.checkpoint.as_ref().or(item.outcome.as_ref());
    let data: Value = data.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let said = |field: &str| match &data[field] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let words = ["name", "type", "id"].into_iter().filter_map(said);
    words.collect::<Vec<_>>().join(" ")
}
