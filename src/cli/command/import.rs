//! `acpd import`: sessions that were elsewhere go on here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};

use crate::cli::connection::Daemon;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::import::{self, Labelled, Workspaces};
use crate::cli::output::Output;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{count, one_line, short_id};
use crate::control::wire::{AgentList, ImportCounts, ImportOutcome, ImportReport, ImportSessions};
use crate::model::Policy;

/// One transaction of everything takes as long as the disk takes.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Import sessions and session records
///
/// Reads an export, a directory of exports and session records, or the database of the application that acpd replaces.
/// An import is atomic, but files of a directory that cannot be imported are skipped. It never changes sessions that already
/// exist, so you can repeat it. An imported session uses the agent of the same name in the directory of the same path, unless
/// you choose others. Its agent gets the conversation so far with the next prompt. EXPIRES says when retention makes a session
/// expire; `acpd keep` exempts it.
#[derive(Args, Debug)]
pub struct Import {
    /// Export (`acpd export --format json`), session record, directory of such files, or SQLite database
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Agent for all imported sessions
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Directory for all imported sessions, or OLD=NEW to move those at or below OLD; can be repeated
    #[arg(long, value_name = "DIR")]
    pub workspace: Vec<String>,
    /// Only show what would be imported
    #[arg(long)]
    pub dry_run: bool,
}

impl Import {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let workspaces = Workspaces::read(&self.workspace)?;
        let daemon = context.daemon().await?;
        let policies = policies(&daemon).await?;
        let (path, agent) = (self.path.clone(), self.agent.clone());
        // It reads files and a database.
        let read = tokio::task::spawn_blocking(move || import::read(&path, agent.as_deref(), &policies)).await;
        let found =
            read.map_err(|error| ClientError::local(format!("cannot read {}: {error}", self.path.display()), ""))??;
        let (mut labels, mut notes, mut sessions) = (Labels::default(), Vec::new(), Vec::new());
        let (of_records, records) = found.records.into_iter().unzip();
        labels.records = of_records;
        for Labelled { label, notes: of_it, mut document } in found.sessions {
            if let Some(workspace) = workspaces.of(&document.session.workspace)? {
                document.session.workspace = workspace;
            }
            let operation = format!("the document of {label}");
            sessions.push(to_raw_value(&document).map_err(|source| ClientError::Answer { operation, source })?);
            labels.sessions.push(label);
            notes.push(of_it);
        }
        let (agent, dry_run) = (self.agent, self.dry_run);
        let request = ImportSessions { sessions, records, agent, workspace: None, dry_run };
        let answer: Result<ImportReport, ClientError> = daemon.post_patiently("/v1/import", &request, TIMEOUT).await;
        let mut report = answer.map_err(|error| labelled(error, &labels))?;
        for (session, notes) in report.sessions.iter_mut().zip(notes) {
            session.notes.splice(0..0, notes);
        }
        let operation = "the report".to_owned();
        let report: Box<RawValue> =
            to_raw_value(&report).map_err(|source| ClientError::Answer { operation, source })?;
        context.show(&report, |report: ImportReport| text(&report, context.output))?;
        for file in &found.skipped {
            context.output.note(&format!("skipped: {file}"));
        }
        Ok(if found.skipped.is_empty() { Exit::Ok } else { Exit::Error })
    }
}

/// What each agent may do here.
async fn policies(daemon: &Daemon) -> Result<BTreeMap<String, Policy>, ClientError> {
    let list: AgentList = daemon.get("/v1/agents?limit=1000").await?;
    Ok(list.agents.into_iter().map(|agent| (agent.slug, agent.permissions)).collect())
}

/// Where the documents come from, in their order.
#[derive(Default)]
struct Labels {
    sessions: Vec<String>,
    records: Vec<String>,
}

impl Labels {
    /// The label of what a refusal is about, and the rest of what it says: `records[3].actions: …`.
    fn of<'a>(&self, message: &'a str) -> Option<(&str, &'a str)> {
        let (kind, rest) = message.split_once('[')?;
        let (number, rest) = rest.split_once(']')?;
        let labels = match kind {
            "sessions" => &self.sessions,
            "records" => &self.records,
            _ => return None,
        };
        Some((labels.get(number.parse::<usize>().ok()?)?, rest.trim_start_matches([':', '.', ' '])))
    }
}

/// A refusal that names a document by its number, with the name that a person knows it by.
fn labelled(error: ClientError, labels: &Labels) -> ClientError {
    let ClientError::Api { status, mut body, retry_after } = error else { return error };
    if let Some((label, rest)) = labels.of(&body.message) {
        body.message = format!("{label}: {rest}");
    }
    ClientError::Api { status, body, retry_after }
}

fn text(report: &ImportReport, output: Output) -> String {
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("", Fit::Whole),
        ("STATUS", Fit::Whole),
        ("EXPIRES", Fit::IfAny),
        ("AGENT", Fit::Whole),
        ("TURNS", Fit::Number),
        ("MESSAGES", Fit::Number),
        ("WORKSPACE", Fit::CutStart),
        ("TITLE", Fit::CutEnd),
    ])
    .without_if_narrow(&["WORKSPACE", "AGENT"]);
    for session in &report.sessions {
        let outcome = match session.outcome {
            ImportOutcome::Made if report.dry_run => "new",
            ImportOutcome::Made => "made",
            ImportOutcome::AlreadyHere => "exists",
        };
        table.row(&[
            short_id(session.id),
            outcome.to_owned(),
            session.status.to_string(),
            session.expires_at.map(|at| at.to_string()).unwrap_or_default(),
            session.agent.clone(),
            session.turns.to_string(),
            session.messages.to_string(),
            session.workspace.clone(),
            session.title.clone(),
        ]);
    }
    let of_sessions = report.sessions.iter().map(|session| (short_id(session.id), &session.notes));
    let of_records = report.records.iter().map(|record| (one_line(&record.session_id), &record.notes));
    let notes = of_sessions.chain(of_records);
    let notes = notes.flat_map(|(name, notes)| notes.iter().map(move |note| format!("{name}: {}", one_line(note))));
    let notes: Vec<String> = notes.collect();
    let mut parts = vec![table.render(output.width(), output.style), notes.join("\n"), summary(report)];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// `imported: 2 sessions (3 turns, 9 messages), 1 record; already here: 1 session (1 turn, 2 messages)`
fn summary(report: &ImportReport) -> String {
    let counts = |counts: &ImportCounts| {
        let ImportCounts { sessions, turns, messages, records } = *counts;
        let (turns, messages) = (count(turns as u64, "turn"), count(messages as u64, "message"));
        let sessions = (sessions > 0).then(|| format!("{} ({turns}, {messages})", count(sessions as u64, "session")));
        let records = (records > 0).then(|| count(records as u64, "record"));
        let parts: Vec<String> = sessions.into_iter().chain(records).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    };
    let done = if report.dry_run { "to import" } else { "imported" };
    let here = match report.already_here {
        none if none == ImportCounts::default() => String::new(),
        here => format!("; already existed: {}", counts(&here)),
    };
    let dry = if report.dry_run { "; dry run: nothing was changed" } else { "" };
    format!("{done}: {}{here}{dry}", counts(&report.made))
}
