//! `acpd agents show`: one profile, without values of its environment.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{cut_end, one_line};
use crate::control::wire::Agent;
use crate::model::FsScope;
use crate::model::profile::{Source, Status};

/// Of the system prompt; `--json` has all of it.
const PROMPT_COLUMNS: usize = 200;

/// Show the settings of an agent
#[derive(Args, Debug)]
pub struct Show {
    /// Name or id of the agent
    #[arg(id = "agent", value_name = "NAME")]
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
    let found =
        path.unwrap_or_else(|| if agent.installed { "yes" } else { "no; `acpd agents check` says why" }.to_owned());
    let command = [&[agent.command], agent.args.as_slice()].concat().join(" ");
    let max = agent.permissions_max.map(|max| format!(" (sessions may have {} at most)", max.as_str()));
    let permissions = format!("{}{}", agent.permissions.mode.as_str(), max.unwrap_or_default());
    let scope = format!("{} (sessions may have {} at most)", FsScope::default().as_str(), agent.fs_scope.as_str());
    let servers: Vec<String> = agent.mcp_servers.into_iter().map(|server| server.name).collect();
    let state = [
        (agent.status != Status::Active.as_str()).then_some(agent.status),
        agent.shadowed.then(|| "hidden by an agent of the same name in the configuration".to_owned()),
        agent.base_missing.then(|| "its base is no longer configured".to_owned()),
    ];
    let state: Vec<String> = state.into_iter().flatten().collect();
    // Nobody needs the id of one whose name is for life.
    let id = agent.id.filter(|_| agent.source == Source::Api).map(|id| id.to_string());
    let facts = [
        ("agent", agent.slug),
        ("id", id.unwrap_or_default()),
        ("source", agent.source.as_str().to_owned()),
        ("status", state.join("; ")),
        ("base", agent.base.unwrap_or_default()),
        ("name", agent.name),
        ("description", agent.description),
        ("prompt", agent.system_prompt.map(|text| cut_end(&one_line(&text), PROMPT_COLUMNS)).unwrap_or_default()),
        ("model", agent.model.unwrap_or_default()),
        ("mode", agent.mode.unwrap_or_default()),
        ("temperature", agent.temperature.map(|number| number.to_string()).unwrap_or_default()),
        ("max tokens", agent.max_tokens.map(|number| number.to_string()).unwrap_or_default()),
        ("not applied", agent.not_applied.join(", ")),
        ("default", if agent.default { "yes".to_owned() } else { String::new() }),
        ("command", command),
        ("found", found),
        ("environment", agent.env.join(", ")),
        ("env_file", agent.env_file.join(", ")),
        ("mcp servers", servers.join(", ")),
        ("permissions", permissions),
        ("scope", scope),
        ("tags", agent.tags.join(", ")),
        ("install", if agent.installed { String::new() } else { agent.install_hint }),
        ("sign in", agent.login_hint),
    ];
    let said = facts.iter().filter(|(_, value)| !value.is_empty());
    let lines = said.map(|(name, value)| format!("{} {}", style.dim(&format!("{name:<13}")), one_line(value)));
    lines.collect::<Vec<_>>().join("\n")
}
