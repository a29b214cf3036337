//! What a request makes of an agent's definition: merged, and checked field by field.

use serde_json::Value;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::sessions::{check_tags, checked_policy, checked_servers, holds_secret};
use super::wire::PatchAgent;
use crate::model::context::Change;
use crate::model::profile::{Definition, DefinitionProblem, OwnProgram, Program};
use crate::registry::{ProfileRefusal, RegistryError};

const VALUES_HINT: &str = "acpd stores no values here: name a variable of the daemon's environment (envPass), a file \
    (envFile) or a systemd credential (credentials) together with a command, or set the variable in config.toml for \
    the base";
const SECRET_HINT: &str = "remove it: acpd stores this text and shows it to everyone who can see the agent";

/// The definition with a change made, when that makes sense and the caller may make it. Whether it fits its base is the
/// registry's to say.
pub fn changed(api: &Api, caller: &Caller, before: Definition, mut change: PatchAgent) -> Result<Definition, ApiError> {
    if change.env.is_some() {
        return Err(ApiError::misunderstood(
            "env",
            "is not supported: an agent made over the API has no environment values",
            VALUES_HINT,
        ));
    }
    let had_command = matches!(before.program, Program::Own(_));
    let program = program(before.program, &mut change)?;
    if (had_command || matches!(program, Program::Own(_))) && caller.is_guest() {
        return Err(RegistryError::from(ProfileRefusal::OwnCommand).into());
    }
    let mcp_servers = match change.mcp_servers {
        Change::Keep => before.mcp_servers,
        Change::Remove => None,
        Change::Set(choices) => checked_servers(api, caller.owner(), Some(choices))?,
    };
    let permissions = match change.permissions {
        Change::Keep => before.permissions,
        Change::Remove => None,
        Change::Set(policy) => checked_policy(api, caller.owner(), Some(policy))?,
    };
    let definition = Definition {
        name: change.name.unwrap_or(before.name),
        description: change.description.applied_to(Some(before.description)).unwrap_or_default(),
        system_prompt: change.system_prompt.applied_to(before.system_prompt),
        model: change.model.applied_to(before.model),
        mode: change.mode.applied_to(before.mode),
        temperature: change.temperature.applied_to(before.temperature),
        max_tokens: change.max_tokens.applied_to(before.max_tokens),
        mcp_servers,
        acpd_tools: change.acpd_tools.applied_to(before.acpd_tools),
        permissions,
        tags: change.tags.applied_to(Some(before.tags)).unwrap_or_default(),
        program,
    };
    let told = |DefinitionProblem { field, problem, hint }| ApiError::misunderstood(field, problem, hint);
    definition.check().map_err(told)?;
    check_tags(&definition.tags)?;
    check_secrets(api, caller.owner(), &definition)?;
    Ok(definition)
}

/// What it is to run: a base, or a command with what goes with it.
fn program(before: Program, change: &mut PatchAgent) -> Result<Program, ApiError> {
    let own = match (change.base.take(), change.command.take(), before) {
        (Some(_), Some(_), _) => return Err(ApiError::invalid("command", "cannot be given together with base")),
        (Some(base), None, _) => Err(base),
        (None, Some(command), Program::Own(own)) => Ok(OwnProgram { command, ..own }),
        (None, Some(command), Program::Base(_)) => Ok(OwnProgram { command, ..OwnProgram::default() }),
        (None, None, Program::Own(own)) => Ok(own),
        (None, None, Program::Base(base)) => Err(base),
    };
    let PatchAgent { args, env_pass, env_file, credentials, .. } = change;
    match own {
        Ok(own) => Ok(Program::Own(OwnProgram {
            command: own.command,
            args: args.take().unwrap_or(own.args),
            env_pass: env_pass.take().unwrap_or(own.env_pass),
            env_file: env_file.take().unwrap_or(own.env_file),
            credentials: credentials.take().unwrap_or(own.credentials),
        })),
        Err(base) => {
            let given = [
                ("args", args.is_some()),
                ("envPass", env_pass.is_some()),
                ("envFile", env_file.is_some()),
                ("credentials", credentials.is_some()),
            ];
            match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((field, _)) => {
                    let hint = "add a command, or leave this field out: an agent with a base takes the base's \
                        settings";
                    Err(ApiError::misunderstood(field, "needs a command", hint))
                }
                None => Ok(Program::Base(base)),
            }
        }
    }
}

/// It is recorded unchanged, so nothing of it may be a secret that its owner's agents were given.
fn check_secrets(api: &Api, owner: Option<u32>, definition: &Definition) -> Result<(), ApiError> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(definition) else { return Ok(()) };
    // What it runs is one level deeper, by the kind of program.
    let program = fields.remove("program").and_then(|mut program| program.get_mut("own").map(Value::take));
    if let Some(Value::Object(own)) = program {
        fields.extend(own);
    }
    match fields.iter().find(|(_, value)| holds_secret(api, owner, value)) {
        Some((field, _)) => Err(ApiError::misunderstood(field, "contains the value of an agent's secret", SECRET_HINT)),
        None => Ok(()),
    }
}
