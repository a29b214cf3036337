//! `acpd reload`: has the daemon read its configuration again.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::facts::Facts;
use crate::cli::reload;

/// Reload the daemon's configuration, and print what changed
///
/// A configuration with a mistake changes nothing. Some keys take effect after a restart only; they are named.
#[derive(Args, Debug)]
pub struct Reload {}

impl Reload {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let hint = "there is nothing to reload: the next daemon reads the configuration when it starts";
        let daemon = context.running_daemon_or(hint).await?;
        let output = context.output;
        let reload = reload::ask(&daemon).await?;
        if output.json {
            output.print(&serde_json::to_string(&reload).map_err(|error| ClientError::Output(error.into()))?)?;
            return Ok(Exit::Ok);
        }
        let listed = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        let mut facts = Facts::default();
        facts.tell("file", reload.file.as_deref().unwrap_or("none"));
        facts.tell("changed", &listed(&reload.changed));
        facts.tell("needs restart", &listed(&reload.needs_restart));
        output.print(&facts.render(output.width(), output.style))?;
        Ok(Exit::Ok)
    }
}
