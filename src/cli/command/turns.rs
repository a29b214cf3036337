//! `acpd turns`: what became of each prompt.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, duration};
use crate::control::wire::{Turn, TurnList};
use crate::model::Timestamp;

/// List the turns of a session
#[derive(Args, Debug)]
pub struct Turns {
    /// An id or a part of it, a title, or - for the newest session here
    pub session: String,
}

impl Turns {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/sessions/{id}/turns?limit=1000")).await?;
        let output = context.output;
        context.show(&answer, |list: TurnList| table(list.turns).render(output.width(), output.style))
    }
}

fn table(turns: Vec<Turn>) -> Table {
    let now = Timestamp::now();
    // Ids are whole here, because `cancel --turn` takes them.
    let mut table = Table::new([
        ("STATUS", Fit::Whole),
        ("AGE", Fit::Number),
        ("TOOK", Fit::Number),
        ("ID", Fit::Whole),
        ("END", Fit::CutEnd),
    ]);
    for turn in turns {
        let took = turn.started_at.map(|started| duration(started, turn.finished_at.unwrap_or(now)));
        let end = turn.error.map(|error| error.message).or(turn.stop_reason);
        table.row(&[
            turn.status.to_string(),
            age(turn.queued_at, now),
            took.unwrap_or_default(),
            turn.id.to_string(),
            end.unwrap_or_default(),
        ]);
    }
    table
}
