//! `acpd turns`: what became of each prompt.

use std::collections::HashMap;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::connection::Daemon;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::style::Paint;
use crate::cli::table::{Cell, Fit, Table};
use crate::cli::text::{age, cut_end, duration, one_line, thousands};
use crate::control::wire::{Turn, TurnList};
use crate::model::{SessionId, Timestamp, TurnId, TurnStatus};

/// What is kept of a prompt to show it.
const PROMPT_COLUMNS_MAX: usize = 200;

/// List the turns of a session
///
/// Shows each prompt with its status, duration and usage.
#[derive(Args, Debug)]
pub struct Turns {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
}

/// As much of a message as tells which turn's prompt it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prompt {
    sequence: i64,
    role: String,
    turn_id: Option<TurnId>,
    content: Value,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Prompt>,
}

impl Turns {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}/turns?limit=1000")).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: TurnList = read(&answer)?;
        let prompts = prompts(&daemon, id).await?;
        output.print(&table(&list.turns, &prompts).render(output.width(), output.style))?;
        if list.turns.is_empty() {
            output.aside("no turns yet; start one with `acpd prompt`");
        }
        Ok(Exit::Ok)
    }
}

/// The first line of each turn's prompt. The record is gone through page by page, and only these lines are kept.
async fn prompts(daemon: &Daemon, session: SessionId) -> Result<HashMap<TurnId, String>, ClientError> {
    let (mut prompts, mut after) = (HashMap::new(), 0);
    loop {
        let page: Page = daemon.get(&format!("/v1/sessions/{session}/messages?limit=1000&after={after}")).await?;
        let Some(last) = page.messages.last() else { return Ok(prompts) };
        after = last.sequence;
        for message in page.messages {
            if let (Some(turn), "user") = (message.turn_id, message.role.as_str()) {
                prompts.entry(turn).or_insert_with(|| first_line(&message.content));
            }
        }
    }
}

fn first_line(content: &Value) -> String {
    let blocks = content["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = content["text"].as_str().or_else(|| blocks.iter().find_map(|block| block["text"].as_str()));
    let line = text.unwrap_or_default().lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    cut_end(&one_line(line), PROMPT_COLUMNS_MAX)
}

fn table(turns: &[Turn], prompts: &HashMap<TurnId, String>) -> Table {
    let now = Timestamp::now();
    // Ids are whole here, because `cancel --turn` takes them.
    let table = Table::new([
        ("STATUS", Fit::Whole),
        ("AGE", Fit::Number),
        ("TOOK", Fit::Number),
        ("TOKENS", Fit::NumberIfAny),
        ("COST", Fit::NumberIfAny),
        ("PROMPT", Fit::CutEnd),
        ("END", Fit::CutEnd),
        ("ID", Fit::Whole),
    ]);
    let mut table = table.without_if_narrow(&["ID", "COST", "TOKENS"]);
    for turn in turns {
        let took = turn.started_at.map(|started| duration(started, turn.finished_at.unwrap_or(now)));
        let end = turn.error.as_ref().map(|error| error.message.clone()).or_else(|| turn.stop_reason.clone());
        let end_paint = if turn.error.is_some() { Paint::Red } else { Paint::Dim };
        let usage = turn.usage.as_ref();
        let cost = usage.and_then(|usage| usage.cost.as_ref());
        table.cells([
            Cell::new(turn.status.as_str(), status_paint(turn.status)),
            age(turn.queued_at, now).into(),
            took.unwrap_or_default().into(),
            usage.and_then(|usage| usage.tokens.total).map(thousands).unwrap_or_default().into(),
            cost.map(|cost| format!("{} {}", cost.amount, cost.currency)).unwrap_or_default().into(),
            prompts.get(&turn.id).map(String::as_str).unwrap_or_default().into(),
            Cell::new(&end.unwrap_or_default(), end_paint),
            Cell::new(&turn.id.to_string(), Paint::Dim),
        ]);
    }
    table
}

const fn status_paint(status: TurnStatus) -> Paint {
    match status {
        TurnStatus::Completed => Paint::Green,
        TurnStatus::Failed => Paint::Red,
        TurnStatus::Cancelled | TurnStatus::Interrupted => Paint::Yellow,
        TurnStatus::Running => Paint::Bold,
        TurnStatus::Queued => Paint::Dim,
    }
}
