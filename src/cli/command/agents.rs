//! `acpd agents`: who can be talked to.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::table::{Fit, Table};
use crate::control::wire::{Agent, AgentList};

/// List the agents
#[derive(Args, Debug)]
pub struct Agents {}

impl Agents {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.get("/v1/agents?limit=1000").await?;
        let output = context.output;
        context.show(&answer, |list: AgentList| table(list.agents).render(output.width(), output.style))
    }
}

fn table(agents: Vec<Agent>) -> Table {
    let mut table = Table::new([
        ("AGENT", Fit::Whole),
        ("INSTALLED", Fit::Whole),
        ("DEFAULT", Fit::Whole),
        ("PERMISSIONS", Fit::Whole),
        ("COMMAND", Fit::CutStart),
        ("DESCRIPTION", Fit::CutEnd),
    ]);
    let yes_or = |fact: bool, otherwise: &str| if fact { "yes".to_owned() } else { otherwise.to_owned() };
    for agent in agents {
        let description = if agent.description.is_empty() { agent.name } else { agent.description };
        table.row(&[
            agent.slug,
            yes_or(agent.installed, "no"),
            yes_or(agent.default, ""),
            agent.permissions.mode.as_str().to_owned(),
            agent.command,
            description,
        ]);
    }
    table
}
