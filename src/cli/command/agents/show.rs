//! `acpd agents show`: one profile, without values of its environment.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::one_line;
use crate::control::wire::Agent;

/// Show how an agent is started, and what it needs
#[derive(Args, Debug)]
pub struct Show {
    /// The agent's name
    #[arg(value_name = "NAME")]
    name: String,
}

impl Show {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.get(&super::path(&self.name)).await?;
        context.show(&answer, |agent: Agent| facts(agent, context))
    }
}

fn facts(agent: Agent, context: &Context) -> String {
    let style = context.output.style;
    let path = agent.path.map(|path| if path.starts_with("/proc/") { "built in".to_owned() } else { path });
    let found = path.unwrap_or_else(|| if agent.installed { "yes" } else { "missing" }.to_owned());
    let command = [&[agent.command], agent.args.as_slice()].concat().join(" ");
    let servers: Vec<String> = agent.mcp_servers.into_iter().map(|server| server.name).collect();
    let facts = [
        ("agent", agent.slug),
        ("name", agent.name),
        ("description", agent.description),
        ("default", if agent.default { "yes".to_owned() } else { String::new() }),
        ("command", command),
        ("found", found),
        ("environment", agent.env.join(", ")),
        ("mcp servers", servers.join(", ")),
        ("permissions", agent.permissions.mode.as_str().to_owned()),
        ("scope", agent.fs_scope.as_str().to_owned()),
        ("tags", agent.tags.join(", ")),
        ("install", if agent.installed { String::new() } else { agent.install_hint }),
        ("sign in", agent.login_hint),
    ];
    let said = facts.iter().filter(|(_, value)| !value.is_empty());
    let lines = said.map(|(name, value)| format!("{} {}", style.dim(&format!("{name:<13}")), one_line(value)));
    lines.collect::<Vec<_>>().join("\n")
}
