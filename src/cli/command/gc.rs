//! `acpd gc`: looks for sessions whose retention is over.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::output::Output;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{count, relative, short_id, size};
use crate::control::wire::{CollectGarbage, ExpiredSession, GarbageReport, HomesReport, UpkeepReport};
use crate::model::Timestamp;

/// Mark and delete expired sessions, and maintain the store
///
/// The daemon does this itself once a day. A session that is found expired for the first time is only marked. The first run
/// at least a day later deletes it, if it is still expired and has no queued turn. `acpd keep` exempts a session, and
/// `acpd resume` removes the mark. Set how long sessions are kept with sessions.retention_* in the configuration.
///
/// After that, the store indexes messages, compacts the log and frees space, which it otherwise does when it is idle.
#[derive(Args, Debug)]
pub struct Gc {
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Also discard what isolated agents changed in their homes, for sessions without a process
    #[arg(long)]
    pub homes: bool,
}

impl Gc {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let request = CollectGarbage { dry_run: self.dry_run, homes: self.homes };
        let answer: Box<RawValue> = daemon.post("/v1/gc", &request).await?;
        let output = context.output;
        context.show(&answer, |report: GarbageReport| text(&report, Timestamp::now(), output))
    }
}

fn text(report: &GarbageReport, now: Timestamp, output: Output) -> String {
    let counts = &report.counts;
    let (deleted, marked, unmarked) = if report.dry_run {
        (
            "would be deleted",
            "would be marked, to be deleted 24 hours later at the earliest",
            "would be unmarked, no longer expired",
        )
    } else {
        ("deleted", "marked, to be deleted 24 hours later at the earliest", "unmarked, no longer expired")
    };
    let sections = [
        (deleted, counts.deleted, &report.deleted),
        (marked, counts.marked, &report.marked),
        ("marked earlier, not deleted yet", counts.waiting, &report.waiting),
        (unmarked, counts.unmarked, &report.unmarked),
    ];
    let mut parts: Vec<String> = sections
        .into_iter()
        .filter(|(_, total, _)| *total > 0)
        .map(|(what, total, sessions)| {
            let table = table(sessions, now).render(output.width(), output.style);
            let more = total.saturating_sub(sessions.len());
            let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
            format!("{} {what}:\n{table}{more}", count(total as u64, "session"))
        })
        .collect();
    if parts.is_empty() {
        parts.push("no expired sessions".to_owned());
    }
    parts.extend(report.store.as_ref().map(|store| store_text(store, report.dry_run)));
    parts.extend(report.homes.as_ref().filter(|homes| homes.bytes > 0).map(homes_text));
    if report.dry_run {
        parts.push("dry run: nothing was changed".to_owned());
    }
    parts.join("\n\n")
}

/// What became of the store, in a line.
fn store_text(store: &UpkeepReport, dry_run: bool) -> String {
    let UpkeepReport { bytes_before, bytes_after, deltas_removed, messages_indexed, complete } = store;
    let would = if dry_run { "would be " } else { "" };
    let held = match bytes_after {
        Some(after) if after == bytes_before => format!("the store has {}", size(*after)),
        Some(after) => format!("the store has {} (before: {})", size(*after), size(*bytes_before)),
        None => format!("the store has {}", size(*bytes_before)),
    };
    let rest = if *complete || dry_run { "" } else { "; the daemon continues in the background" };
    let deltas = count(*deltas_removed, "text delta");
    let messages = count(*messages_indexed, "message");
    format!("{held}; {deltas} {would}removed, {messages} {would}indexed{rest}")
}

fn homes_text(homes: &HomesReport) -> String {
    let bytes = size(homes.bytes);
    if homes.discarded {
        format!("discarded {bytes} that isolated agents had changed in their homes")
    } else {
        format!("isolated agents have changed {bytes} in their homes; `acpd gc --homes` discards that")
    }
}

fn table(sessions: &[ExpiredSession], now: Timestamp) -> Table {
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("STATUS", Fit::Whole),
        ("EXPIRY", Fit::Whole),
        ("DELETION", Fit::Whole),
        ("TITLE", Fit::CutEnd),
    ]);
    for session in sessions {
        table.row(&[
            short_id(session.id),
            session.status.to_string(),
            session.expires_at.map_or_else(|| "never".to_owned(), |at| relative(at, now)),
            deletion(session, now),
            session.title.clone(),
        ]);
    }
    table
}

/// When a sweep may delete the session, and what keeps it until then.
fn deletion(session: &ExpiredSession, now: Timestamp) -> String {
    match session.deletable_at {
        None => "no".to_owned(),
        Some(_) if session.queued_turns == 1 => "after its queued turn".to_owned(),
        Some(_) if session.queued_turns > 1 => format!("after its {} queued turns", session.queued_turns),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => relative(at, now),
    }
}
