//! `acpd agents login`: runs the agent's own sign-in in this terminal, and checks it.

use std::collections::BTreeMap;

use clap::Args;
use tokio::process::Command;

use super::check::Check;
use crate::agent::{WORKSPACE, fill, find_agent};
use crate::cli::connection::Daemon;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::interrupts::Interrupts;
use crate::control::wire::{Agent, AgentCheck, CheckAgent};

/// Sign in to an agent with its own program
///
/// Runs the program that signs you in (the profile's `login_command`, or the agent itself where it announces a sign-in in a
/// terminal), and then checks the agent.
#[derive(Args, Debug)]
pub struct Login {
    /// Name or id of the agent
    #[arg(id = "agent", value_name = "NAME")]
    name: String,
}

/// The program that signs a person in.
struct SignIn {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Login {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let agent: Agent = daemon.get(&super::path(&self.name)).await?;
        let key = format!("acpd agents key {}", agent.base.as_ref().unwrap_or(&agent.slug));
        let (program, install) = (agent.command.clone(), agent.install_hint.clone());
        let SignIn { command, environment } = self.sign_in(&daemon, agent, &key).await?;
        let install =
            if command[0] == program && !install.is_empty() { install } else { format!("install `{}`", command[0]) };
        let shown = command.join(" ");
        let here =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let program = find_agent(&command[0], &here.collect()).map_err(|problem| {
            ClientError::local(
                format!("cannot run `{shown}`: {}", problem.of_client()),
                problem.advice().unwrap_or(install),
            )
        })?;
        context.output.note(&format!("running `{shown}`; end it when you are signed in"));
        // Ctrl-C is for that program.
        let _interrupts = Interrupts::listen()?;
        let status = Command::new(program).args(&command[1..]).envs(environment).status().await;
        let status = status.map_err(|source| ClientError::io(format!("run `{shown}`"), source))?;
        if !status.success() {
            context.output.note(&format!("`{shown}` failed ({status})"));
        }
        Check::of(self.name).execute(context).await
    }

    /// The profile's own, or the agent's command with what the agent announces for a terminal.
    async fn sign_in(&self, daemon: &Daemon, agent: Agent, key: &str) -> Result<SignIn, ClientError> {
        if !agent.login_command.is_empty() {
            return Ok(SignIn { command: agent.login_command, environment: BTreeMap::new() });
        }
        let path = format!("{}/check", super::path(&self.name));
        let check: AgentCheck = daemon.post(&path, &CheckAgent::default()).await?;
        let terminal = check.auth_methods.into_iter().find_map(|method| method.terminal);
        let terminal = terminal.ok_or_else(|| {
            let message = format!("acpd does not know how to sign in to the agent {:?}", self.name);
            let hint = format!("sign in with the agent's own program, or store a key with `{key} --variable NAME`");
            ClientError::local(message, hint)
        })?;
        let workspace = std::env::current_dir().unwrap_or_default().display().to_string();
        let usual = agent.args.iter().map(|argument| fill(argument, &[(WORKSPACE, workspace.clone())]));
        let command = std::iter::once(agent.command).chain(usual).chain(terminal.args).collect();
        Ok(SignIn { command, environment: terminal.env })
    }
}
