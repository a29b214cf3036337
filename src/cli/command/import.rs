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

/// Import sessions: an export, a directory of exports, or the database of the earlier application
///
/// All of it or nothing, and what is here already stays as it is, so that an import can be repeated. A session goes on with
/// this machine's agent of the same name, in the directory where it was, unless you say otherwise. Its agent gets the
/// conversation so far with the next prompt.
#[derive(Args, Debug)]
pub struct Import {
    /// A file of `acpd export --format json`, a directory of such files, or an SQLite database
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// The agent that everything goes on with
    #[arg(long, value_name = "SLUG")]
    pub agent: Option<String>,
    /// Where it goes on: DIR for everything, or OLD=NEW for what was in OLD and below it
    #[arg(long, value_name = "DIR")]
    pub workspace: Vec<String>,
    /// Only tell what would be done
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
        let found = read.map_err(|error| ClientError::local(format!("reading failed: {error}"), ""))??;
        let (mut labels, mut notes, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
        for Labelled { label, notes: of_it, mut document } in found {
            if let Some(workspace) = workspaces.of(&document.session.workspace)? {
                document.session.workspace = workspace;
            }
            let operation = format!("the document of {label}");
            sessions.push(to_raw_value(&document).map_err(|source| ClientError::Answer { operation, source })?);
            labels.push(label);
            notes.push(of_it);
        }
        let request = ImportSessions { sessions, agent: self.agent, workspace: None, dry_run: self.dry_run };
        let answer: Result<ImportReport, ClientError> = daemon.post_patiently("/v1/import", &request, TIMEOUT).await;
        let mut report = answer.map_err(|error| labelled(error, &labels))?;
        for (session, notes) in report.sessions.iter_mut().zip(notes) {
            session.notes.splice(0..0, notes);
        }
        let operation = "the report".to_owned();
        let report: Box<RawValue> =
            to_raw_value(&report).map_err(|source| ClientError::Answer { operation, source })?;
        context.show(&report, |report: ImportReport| text(&report, context.output))
    }
}

/// What each agent may do here.
async fn policies(daemon: &Daemon) -> Result<BTreeMap<String, Policy>, ClientError> {
    let list: AgentList = daemon.get("/v1/agents?limit=1000").await?;
    Ok(list.agents.into_iter().map(|agent| (agent.slug, agent.permissions)).collect())
}

/// A refusal that names a document by its number, with the name that a person knows it by.
fn labelled(error: ClientError, labels: &[String]) -> ClientError {
    let ClientError::Api { status, mut body, retry_after } = error else { return error };
    let number = |message: &str| message.strip_prefix("sessions[")?.split_once(']')?.0.parse::<usize>().ok();
    if let Some(label) = number(&body.message).and_then(|number| labels.get(number)) {
        let rest = body.message.split_once(']').map_or("", |(_, rest)| rest);
        let rest = rest.trim_start_matches([':', '.', ' ']);
        body.message = format!("{label}: {rest}");
    }
    ClientError::Api { status, body, retry_after }
}

fn text(report: &ImportReport, output: Output) -> String {
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("", Fit::Whole),
        ("STATUS", Fit::Whole),
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
            ImportOutcome::AlreadyHere => "already here",
        };
        table.row(&[
            short_id(session.id),
            outcome.to_owned(),
            session.status.to_string(),
            session.agent.clone(),
            session.turns.to_string(),
            session.messages.to_string(),
            session.workspace.clone(),
            session.title.clone(),
        ]);
    }
    let notes = report
        .sessions
        .iter()
        .flat_map(|session| session.notes.iter().map(|note| format!("{}: {}", short_id(session.id), one_line(note))));
    let notes: Vec<String> = notes.collect();
    let mut parts = vec![table.render(output.width(), output.style), notes.join("\n"), summary(report)];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn summary(report: &ImportReport) -> String {
    let counts = |counts: &ImportCounts| {
        let ImportCounts { sessions, turns, messages } = *counts;
        let (turns, messages) = (count(turns as u64, "turn"), count(messages as u64, "message"));
        format!("{} ({turns}, {messages})", count(sessions as u64, "session"))
    };
    let made = counts(&report.made);
    let here = match report.already_here.sessions {
        0 => String::new(),
        sessions => format!("; already here: {}", count(sessions as u64, "session")),
    };
    let dry = if report.dry_run { "; a dry run: nothing was changed" } else { "" };
    let done = if report.dry_run { "to import" } else { "imported" };
    format!("{done}: {made}{here}{dry}")
}
