//! Agents in requests and answers. Of their environment there are names and references, never values.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{McpChoice, McpServer, PermissionPolicy};
use crate::model::context::Change;
use crate::model::mcp::FrozenServer;
use crate::model::object;
use crate::model::profile::{MadeProfile, Program, Source, Status, Temperature};
use crate::model::{AgentId, AgentProfile, FsScope, Known, PermissionMode, Timestamp};
use crate::store::Registered;

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own on the wire")]
pub struct Agent {
    /// The agent's id. Absent in older daemons, like other optional fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<AgentId>,
    pub slug: String,
    /// Where the agent is defined: in config.toml, or over the API.
    #[serde(default)]
    pub source: Source,
    /// The owner's user id, for an agent made over the API by another user than the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The agent of the configuration that provides the command and the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    pub name: String,
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The default model of its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Settings that ACP has no method for. They apply only if the agent announces a matching option; a session shows
    /// which apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<String>,
    pub command: String,
    pub args: Vec<String>,
    /// The names of its environment variables, without values.
    pub env: Vec<String>,
    /// The variables that the profile passes on from the daemon's environment, and that have a value neither there nor in any other
    /// source. Names only. Only shown to the daemon's own user, and not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_unset: Vec<String>,
    /// Files with more environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_file: Vec<String>,
    /// The default policy of its sessions.
    pub permissions: PermissionPolicy,
    /// The widest permission mode that a session of the caller may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub permissions_max: Option<PermissionMode>,
    /// The widest file system scope that its sessions may have, within the limits of the configuration.
    #[serde(default)]
    pub fs_scope: FsScope,
    /// The MCP servers of its sessions, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
    /// Whether its sessions have acpd's own MCP server.
    #[serde(default, skip_serializing_if = "is_false")]
    pub acpd_tools: bool,
    pub tags: Vec<String>,
    /// `active` or `archived`.
    pub status: String,
    /// Whether an agent of the configuration has the same slug. The slug then means that agent; use the id for this
    /// one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadowed: bool,
    /// Whether its base is missing from the configuration. Such an agent takes no new sessions.
    #[serde(default, skip_serializing_if = "is_false")]
    pub base_missing: bool,
    /// Whether the command is installed on this machine.
    pub installed: bool,
    /// The path of the command. Absent in older daemons, like the fields that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How to install it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub install_hint: String,
    /// How to sign in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub login_hint: String,
    /// The program that signs a person in, with its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login_command: Vec<String>,
    /// Whether this is the default agent for new sessions.
    pub default: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentList {
    pub agents: Vec<Agent>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
}

/// A new agent: a narrowed copy of an agent from the configuration, or a command.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateAgent {
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,63}$")]
    pub slug: String,
    /// The agent of the configuration to build on. Without a base and a command: the default agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 65536)]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_tokens: Option<u32>,
    /// Absent: all of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub mcp_servers: Option<Vec<McpChoice>>,
    /// Whether its sessions have acpd's own tools; a base must have them too. Absent: like the base, unless
    /// `mcpServers` omits `acpd`. With a command the default is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acpd_tools: Option<bool>,
    /// Default: the base's policy. A policy here can only narrow it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub permissions: Option<PermissionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub tags: Option<Vec<String>>,
    /// The command, instead of a base. Only the daemon's own user and root may set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub args: Option<Vec<String>>,
    /// Names of variables to pass on from the daemon's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub env_pass: Option<Vec<String>>,
    /// Files with environment variables, read at each start of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub env_file: Option<Vec<String>>,
    /// Environment variables, each with the name of the systemd credential that holds its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<BTreeMap<String, String>>,
    /// Not supported: the API stores no values. The error explains the alternatives.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub env: Option<IgnoredAny>,
}

/// Absent fields stay unchanged, and null removes a field.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchAgent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, max_length = 2000)]
    pub description: Change<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 65536)]
    pub system_prompt: Change<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub model: Change<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 200)]
    pub mode: Change<String>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<Temperature>)]
    pub temperature: Change<Temperature>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub max_tokens: Change<u32>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<Vec<McpChoice>>, max_items = 32)]
    pub mcp_servers: Change<Vec<McpChoice>>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<bool>)]
    pub acpd_tools: Change<bool>,
    #[serde(default, skip_serializing_if = "Change::is_keep", deserialize_with = "object::change")]
    #[schema(value_type = Option<PermissionPolicy>)]
    pub permissions: Change<PermissionPolicy>,
    #[serde(default, skip_serializing_if = "Change::is_keep")]
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    pub tags: Change<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub env_pass: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub env_file: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<BTreeMap<String, String>>,
    /// An archived agent takes no new sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Not supported: the API stores no values. The error explains the alternatives.
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    pub env: Option<IgnoredAny>,
}

impl CreateAgent {
    /// Its slug, and the rest as a change of one that has nothing yet.
    pub fn into_change(self) -> (String, PatchAgent) {
        fn set<T>(value: Option<T>) -> Change<T> {
            value.map_or(Change::Keep, Change::Set)
        }
        let change = PatchAgent {
            base: self.base,
            name: self.name,
            description: set(self.description),
            system_prompt: set(self.system_prompt),
            model: set(self.model),
            mode: set(self.mode),
            temperature: set(self.temperature),
            max_tokens: set(self.max_tokens),
            mcp_servers: set(self.mcp_servers),
            acpd_tools: set(self.acpd_tools),
            permissions: set(self.permissions),
            tags: set(self.tags),
            command: self.command,
            args: self.args,
            env_pass: self.env_pass,
            env_file: self.env_file,
            credentials: self.credentials,
            status: None,
            env: self.env,
        };
        (self.slug, change)
    }
}

impl Agent {
    /// The agent as it is for sessions of this owner.
    pub fn new(profile: &AgentProfile, owner: Option<u32>, path: Option<String>, default: bool) -> Self {
        let frozen = profile.freeze();
        let own = profile.own_servers.iter().map(|own| FrozenServer {
            name: own.name.clone(),
            transport: own.transport.clone(),
            value_names: own.values.keys().cloned().collect(),
        });
        let own: Vec<FrozenServer> = own.collect();
        let not_applied = frozen.numbers(&Known::default()).into_iter().map(|(field, _)| field.to_owned());
        Self {
            id: profile.id,
            slug: profile.slug.clone(),
            source: profile.source,
            owner: None,
            base: profile.base.clone(),
            name: profile.name.clone(),
            description: profile.description.clone(),
            system_prompt: profile.system_prompt.clone(),
            model: profile.model.clone(),
            mode: profile.mode.clone(),
            temperature: profile.temperature,
            max_tokens: profile.max_tokens,
            not_applied: not_applied.collect(),
            command: profile.command.clone(),
            args: profile.args.clone(),
            env: profile.env.keys().chain(profile.credentials.keys()).chain(&profile.env_pass).cloned().collect(),
            env_unset: Vec::new(),
            env_file: profile.env_file.clone(),
            permissions: profile.default_policy(owner),
            permissions_max: Some(profile.ceiling(owner)),
            fs_scope: profile.fs_scope,
            mcp_servers: frozen.mcp_servers.iter().chain(&own).map(McpServer::of_profile).collect(),
            acpd_tools: profile.acpd_tools,
            tags: profile.tags.clone(),
            status: Status::Active.as_str().to_owned(),
            shadowed: false,
            base_missing: false,
            installed: path.is_some(),
            path,
            install_hint: profile.install_hint.clone(),
            login_hint: profile.login_hint.clone(),
            login_command: profile.login_command.clone(),
            default,
            created_at: None,
            updated_at: None,
            archived_at: None,
        }
    }

    /// Adds what the record knows of one of the configuration.
    pub fn register(&mut self, known: Option<&Registered>) {
        if let Some(Registered { id, created_at, updated_at }) = known.copied() {
            (self.id, self.created_at, self.updated_at) = (Some(id), Some(created_at), Some(updated_at));
        }
    }

    /// With what the record knows of one of the API.
    pub fn made(self, made: &MadeProfile, shadowed: bool, base_missing: bool) -> Self {
        let base = match &made.definition.program {
            Program::Base(base) => Some(base.clone()),
            Program::Own(_) => None,
        };
        Self {
            owner: made.owner_uid,
            base,
            status: made.status.as_str().to_owned(),
            shadowed,
            base_missing,
            created_at: Some(made.created_at),
            updated_at: Some(made.updated_at),
            archived_at: made.archived_at,
            ..self
        }
    }
}
