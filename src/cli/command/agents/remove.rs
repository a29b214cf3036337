//! `acpd agents remove`: takes a profile out of the configuration file.

use clap::Args;

use crate::cli::config_file::{Access, ConfigFile};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::config::Config;

/// Remove an agent from the configuration file
///
/// Its existing sessions continue with their settings. An agent that acpd knows gets its default settings back.
#[derive(Args, Debug)]
#[command(visible_alias = "rm")]
pub struct Remove {
    /// Name of the agent
    #[arg(value_name = "NAME")]
    name: String,
}

impl Remove {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let mut file = ConfigFile::open(context, Access::Change).await?;
        let is_shipped = Config::default().agents.contains_key(&self.name);
        if file.agents()?.remove(&self.name).is_none() {
            let message = format!("{} has no [agents.{}]", file.path().display(), self.name);
            let hint = if is_shipped {
                "it is built into acpd and cannot be removed"
            } else {
                "list the agents with `acpd agents`"
            };
            return Err(ClientError::local(message, hint));
        }
        file.check()?;
        let rest = if is_shipped { "; it has its default settings again" } else { "" };
        let done = format!("removed the agent {:?} from {}{rest}", self.name, file.path().display());
        super::write(context, &mut file, &self.name, &[done]).await?;
        Ok(Exit::Ok)
    }
}
