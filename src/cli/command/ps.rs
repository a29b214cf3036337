//! `acpd ps`: the running processes of agents.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::processes;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, short_id, size};
use crate::control::wire::ProcessList;

/// List the running processes of agents
///
/// TIME is the time since the running turn started, or since the session was last active. MEMORY counts the agent and
/// all the processes that it has started.
#[derive(Args, Debug)]
pub struct Ps {
    /// As root, list the processes of all users
    #[arg(long, short)]
    pub all: bool,
}

impl Ps {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/processes?all={}", self.all)).await?;
        let output = context.output;
        let exit = context.show(&answer, |list: ProcessList| table(&list).render(output.width(), output.style))?;
        if read::<ProcessList>(&answer)?.processes.is_empty() {
            output.aside("no agent runs; `acpd ls` lists the sessions");
        }
        Ok(exit)
    }
}

fn table(list: &ProcessList) -> Table {
    let table = Table::new([
        ("PID", Fit::Number),
        ("SESSION", Fit::Whole),
        ("AGENT", Fit::Whole),
        ("STATE", Fit::Whole),
        ("TIME", Fit::Number),
        ("MEMORY", Fit::Number),
        ("TITLE", Fit::CutEnd),
    ]);
    let mut table = table.without_if_narrow(&["TITLE"]);
    for process in &list.processes {
        let since = process.turn.as_ref().map(|turn| turn.started_at).or(process.last_active_at);
        table.cells([
            process.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
            short_id(process.session_id).into(),
            process.agent.as_str().into(),
            processes::state_cell(process.process_state),
            since.map(|since| age(since, list.at)).unwrap_or_default().into(),
            size(process.rss_bytes).into(),
            process.title.as_str().into(),
        ]);
    }
    table
}
