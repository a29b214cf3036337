//! `acpd agents`, `acpd agents list`: every profile, and whether its program is there.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::table::{Fit, Table};
use crate::control::wire::{Agent, AgentList};

/// List the agents, and whether their programs are there
#[derive(Args, Debug)]
#[command(visible_alias = "ls")]
pub struct List {}

impl List {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.get("/v1/agents?limit=1000").await?;
        let output = context.output;
        let exit = context.show(&answer, |list: AgentList| table(list.agents).render(output.width(), output.style))?;
        output.aside("`acpd agents check NAME` tries one; `acpd agents show NAME` tells what it needs");
        Ok(exit)
    }
}

/// What is there comes first, and of that the default.
fn table(mut agents: Vec<Agent>) -> Table {
    agents.sort_by_key(|agent| (!agent.installed, !agent.default));
    let mut table = Table::new([
        ("AGENT", Fit::Whole),
        ("FOUND", Fit::Whole),
        ("DEFAULT", Fit::IfAny),
        ("PERMISSIONS", Fit::Whole),
        ("DESCRIPTION", Fit::CutEnd),
        ("COMMAND", Fit::CutStart),
    ]);
    for agent in agents {
        let program = agent.path.filter(|path| !path.starts_with("/proc/")).unwrap_or(agent.command);
        let command = [&[program], agent.args.as_slice()].concat().join(" ");
        table.row(&[
            agent.slug,
            if agent.installed { "yes" } else { "missing" }.to_owned(),
            if agent.default { "yes" } else { "" }.to_owned(),
            agent.permissions.mode.as_str().to_owned(),
            if agent.description.is_empty() { agent.name } else { agent.description },
            command,
        ]);
    }
    table
}
