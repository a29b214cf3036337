//! `acpd agents create`: makes an agent with the daemon, on the base of one that is configured.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::control::wire::{Agent, CreateAgent, McpChoice, PermissionPolicy};
use crate::model::PermissionMode;
use crate::model::profile::Temperature;

/// Create an agent based on a configured one and print its name
///
/// It runs the program of its base, with its own system prompt, model or policy. It can have no more permissions than its
/// base. It is kept in the store; to add an agent to the configuration file, use `acpd agents add`.
#[derive(Args, Debug)]
pub struct Create {
    /// Name of the agent: lower-case letters, digits, - and _
    #[arg(value_name = "NAME")]
    slug: String,
    #[command(flatten)]
    options: ProfileOptions,
}

/// What an agent is, beside what it runs.
#[derive(Args, Debug)]
pub struct ProfileOptions {
    /// Configured agent to base it on [default for a new one: the default agent]
    #[arg(long, value_name = "NAME")]
    pub base: Option<String>,
    /// Display name
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Description for lists
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// System prompt, or @ and a file with it
    #[arg(long, value_name = "TEXT|@FILE")]
    system_prompt: Option<String>,
    /// Default model of its sessions, by the agent's id for it
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Default mode of its sessions, by the agent's id for it
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Temperature from 0 to 2, for agents with such an option
    #[arg(long, value_name = "NUMBER", value_parser = temperature)]
    pub temperature: Option<Temperature>,
    /// Maximum tokens per answer, for agents with such an option
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// MCP server of its base to use; can be repeated [default: all]
    #[arg(long = "mcp", value_name = "NAME", conflicts_with = "no_mcp")]
    mcp: Vec<String>,
    /// Use none of its base's MCP servers
    #[arg(long)]
    no_mcp: bool,
    /// Permission mode, no wider than its base's: ask, read-only, edit, allow or deny
    #[arg(long, value_name = "MODE")]
    permissions: Option<PermissionMode>,
    /// Tag; can be repeated
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
    output.aside(&format!("{what} the agent {:?}; start a session with `acpd new --agent {}`", agent.slug, agent.slug));
    if !agent.not_applied.is_empty() {
        let fields = agent.not_applied.join(" and ");
        output.note(&format!("{fields}: stored, but used only by agents that have such an option"));
    }
    Ok(Exit::Ok)
}

fn temperature(text: &str) -> Result<Temperature, String> {
    text.parse().ok().and_then(Temperature::new).ok_or_else(|| "write a number from 0 to 2".to_owned())
}
