//! `acpd doctor`: whether everything is as it should be, and what to do where it is not. It changes nothing.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::doctor;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::findings::{exit, render, summary};
use crate::cli::text::clean_json;

/// Check the installation and say how to fix problems
///
/// Changes nothing and starts no daemon. If no daemon runs, checks that need one are skipped. The default agent is
/// started, initialized and stopped. The exit code is 1 if there is a problem, and 0 if there are only warnings.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Start every installed agent instead of only the default agent
    #[arg(long)]
    agents: bool,
    /// Start no agent
    #[arg(long, conflicts_with = "agents")]
    no_agents: bool,
}

impl Doctor {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let trials = match (self.agents, self.no_agents) {
            (true, _) => doctor::Trials::All,
            (false, true) => doctor::Trials::None,
            (false, false) => doctor::Trials::Default,
        };
        let findings = doctor::examine(context, trials).await;
        if context.output.json {
            let json = serde_json::to_string(&findings).unwrap_or_default();
            context.output.print(&clean_json(&json))?;
        } else {
            let text = render(&findings, context.output);
            context.output.print(&format!("{text}\n\n{}", summary(&findings, context.output.style)))?;
        }
        Ok(exit(&findings))
    }
}
