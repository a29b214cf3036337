//! `acpd agents`, `acpd agents list`: every profile, and whether its program is there.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::table::{Fit, Table};
use crate::control::wire::{Agent, AgentList};
use crate::model::profile::{Source, Status};

/// List agents and whether their programs are installed
#[derive(Args, Debug, Default)]
#[command(visible_alias = "ls")]
pub struct List {
    /// Include archived agents
    #[arg(long)]
    all: bool,
}

impl List {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        // A daemon of before agents were entities does not know the word.
        let path = if self.all { "/v1/agents?limit=1000&includeArchived=true" } else { "/v1/agents?limit=1000" };
        let answer: Box<RawValue> = daemon.get(path).await?;
        let output = context.output;
        let mut left = 0;
        let exit = context.show(&answer, |list: AgentList| {
            left = list.total - i64::try_from(list.agents.len()).unwrap_or(list.total);
            table(list.agents).render(output.width(), output.style)
        })?;
        if left > 0 {
            output.note(&format!("{left} more are not shown; list them with GET /v1/agents?offset=N"));
        }
        output.aside("`acpd agents show NAME` shows the settings, `acpd agents check NAME` tests it");
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
        ("SOURCE", Fit::IfAny),
        ("STATUS", Fit::IfAny),
        ("PERMISSIONS", Fit::Whole),
        ("NOT APPLIED", Fit::IfAny),
        ("DESCRIPTION", Fit::CutEnd),
        ("COMMAND", Fit::CutStart),
    ]);
    // Where all are of the configuration there is nothing to tell apart.
    let is_mixed = agents.iter().any(|agent| agent.source == Source::Api);
    for agent in agents {
        let status = if agent.shadowed {
            "shadowed".to_owned()
        } else if agent.base_missing {
            "no base".to_owned()
        } else {
            Some(agent.status).filter(|status| status != Status::Active.as_str()).unwrap_or_default()
        };
        let program = agent.path.filter(|path| !path.starts_with("/proc/")).unwrap_or(agent.command);
        let command = [&[program], agent.args.as_slice()].concat().join(" ");
        table.row(&[
            agent.slug,
            if agent.installed { "yes" } else { "no" }.to_owned(),
            if agent.default { "yes" } else { "" }.to_owned(),
            if is_mixed { agent.source.as_str() } else { "" }.to_owned(),
            status,
            agent.permissions.mode.as_str().to_owned(),
            agent.not_applied.join(", "),
            if agent.description.is_empty() { agent.name } else { agent.description },
            command,
        ]);
    }
    table
}
