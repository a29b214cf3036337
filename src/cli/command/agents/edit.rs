//! `acpd agents edit`: changes an agent that was made with the daemon.

use clap::{Args, ValueEnum};
use serde_json::value::RawValue;

use super::create::{ProfileOptions, told};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::control::wire::PatchAgent;
use crate::model::context::Change;
use crate::model::profile::Status;

/// Change an agent made with `create` and print its name
///
/// Only the given options change. Existing sessions keep their settings.
#[derive(Args, Debug)]
pub struct Edit {
    /// Name or id of the agent
    #[arg(id = "agent", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    options: ProfileOptions,
    /// Remove this setting and use the one of its base; can be repeated
    #[arg(long, value_name = "FIELD")]
    unset: Vec<Field>,
    /// Restore it after `acpd agents archive`
    #[arg(long)]
    restore: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    Description,
    SystemPrompt,
    Model,
    Mode,
    Temperature,
    MaxTokens,
    Mcp,
    Permissions,
    Tags,
}

impl Edit {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let (mcp_servers, permissions, tags) = (self.options.mcp(), self.options.policy(), self.options.tags());
        let system_prompt = self.options.system_prompt()?;
        let options = self.options;
        let unset = self.unset;
        let change = PatchAgent {
            base: options.base,
            name: options.name,
            description: changed(options.description, &unset, Field::Description),
            system_prompt: changed(system_prompt, &unset, Field::SystemPrompt),
            model: changed(options.model, &unset, Field::Model),
            mode: changed(options.mode, &unset, Field::Mode),
            temperature: changed(options.temperature, &unset, Field::Temperature),
            max_tokens: changed(options.max_tokens, &unset, Field::MaxTokens),
            mcp_servers: changed(mcp_servers, &unset, Field::Mcp),
            permissions: changed(permissions, &unset, Field::Permissions),
            tags: changed(tags, &unset, Field::Tags),
            status: self.restore.then_some(Status::Active),
            ..PatchAgent::default()
        };
        if serde_json::to_string(&change).is_ok_and(|text| text == "{}") {
            let message = format!("no change given for the agent {:?}", self.name);
            return Err(ClientError::local(
                message,
                "give a change, such as --system-prompt @FILE; `acpd agents edit --help` lists them",
            ));
        }
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.patch(&super::path(&self.name), &change).await?;
        told(context, &answer, "changed")
    }
}

fn changed<T>(given: Option<T>, unset: &[Field], field: Field) -> Change<T> {
    match given {
        Some(value) => Change::Set(value),
        None if unset.contains(&field) => Change::Remove,
        None => Change::Keep,
    }
}
