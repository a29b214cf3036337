//! `acpd agents create`: makes an agent with the daemon, on the base of one that is configured.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::control::wire::{Agent, CreateAgent, McpChoice, PermissionPolicy};
use crate::model::PermissionMode;
use crate::model::profile::Temperature;

/// Make an agent of your own from one that is configured, and print its name
///
/// It runs what its base runs, with a system prompt, a model or a policy of its own, and may do no more than its base. It is kept
/// by the daemon and not in the configuration file; for that there is `acpd agents add`.
#[derive(Args, Debug)]
pub struct Create {
    /// What it is called: lower-case letters, digits, - and _
    #[arg(value_name = "NAME")]
    slug: String,
    #[command(flatten)]
    options: ProfileOptions,
}

/// What an agent is, beside what it runs.
#[derive(Args, Debug)]
pub struct ProfileOptions {
    /// The configured agent that it stands on [default for a new one: the default agent]
    #[arg(long, value_name = "NAME")]
    pub base: Option<String>,
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// What people are shown beside its name
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// What the agent is told before anything else, or @ and the file that has it
    #[arg(long, value_name = "TEXT|@FILE")]
    system_prompt: Option<String>,
    /// The model of sessions that choose none, by the agent's own name
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The mode of sessions that choose none, by the agent's own name
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// From 0 to 2, for agents that have an option for it
    #[arg(long, value_name = "NUMBER", value_parser = temperature)]
    pub temperature: Option<Temperature>,
    /// Tokens of one answer, for agents that have an option for it
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// An MCP server of its base's that it has; may be given several times [default: all of them]
    #[arg(long = "mcp", value_name = "NAME", conflicts_with = "no_mcp")]
    mcp: Vec<String>,
    /// Have none of its base's MCP servers
    #[arg(long)]
    no_mcp: bool,
    /// What it may do without asking, and no more than its base: ask, read-only, edit, allow or deny
    #[arg(long, value_name = "MODE")]
    permissions: Option<PermissionMode>,
    /// A tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

impl Create {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let (mcp_servers, permissions, tags) = (self.options.mcp(), self.options.policy(), self.options.tags());
        let system_prompt = self.options.system_prompt()?;
        let ProfileOptions { base, name, description, model, mode, temperature, max_tokens, .. } = self.options;
        let request = CreateAgent {
            slug: self.slug,
            base,
            name,
            description,
            system_prompt,
            model,
            mode,
            temperature,
            max_tokens,
            mcp_servers,
            permissions,
            tags,
            ..CreateAgent::default()
        };
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.post("/v1/agents", &request).await?;
        told(context, &answer, "made")
    }
}

impl ProfileOptions {
    /// Read now, when a file has it.
    pub fn system_prompt(&self) -> Result<Option<String>, ClientError> {
        let Some(file) = self.system_prompt.as_deref().and_then(|text| text.strip_prefix('@')) else {
            return Ok(self.system_prompt.clone());
        };
        let failed = |source| ClientError::io(format!("read the system prompt from {file}"), source);
        std::fs::read_to_string(file).map(Some).map_err(failed)
    }

    pub fn mcp(&self) -> Option<Vec<McpChoice>> {
        (self.no_mcp || !self.mcp.is_empty()).then(|| self.mcp.iter().cloned().map(McpChoice::Named).collect())
    }

    pub fn policy(&self) -> Option<PermissionPolicy> {
        self.permissions.map(PermissionPolicy::of)
    }

    pub fn tags(&self) -> Option<Vec<String>> {
        (!self.tags.is_empty()).then(|| self.tags.clone())
    }
}

/// Prints the agent's name, or all of it, and what of it does not reach the agent.
pub fn told(context: &Context, answer: &RawValue, what: &str) -> Result<Exit, ClientError> {
    let output = context.output;
    if output.json {
        output.print_json(answer)?;
        return Ok(Exit::Ok);
    }
    let agent: Agent = crate::cli::context::read(answer)?;
    output.print(&agent.slug)?;
    output.aside(&format!(
        "{what} the agent {:?}; `acpd new --agent {}` begins a session with it",
        agent.slug, agent.slug
    ));
    if !agent.not_applied.is_empty() {
        let fields = agent.not_applied.join(" and ");
        output.note(&format!("{fields}: kept, and applied only by an agent that has an option for it"));
    }
    Ok(Exit::Ok)
}

fn temperature(text: &str) -> Result<Temperature, String> {
    text.parse().ok().and_then(Temperature::new).ok_or_else(|| "write a number from 0 to 2".to_owned())
}
