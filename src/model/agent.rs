//! An agent profile: how to start an ACP agent and how much it may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::adapter::Adapter;
use super::mcp::{FrozenServer, ProfileServer};
use super::permission::PermissionMode;
use super::permission::policy::Policy;
use super::sandbox::FsScope;
use super::secret::Secret;

/// A profile as the configuration gives it. It may hold secrets in `env`, so it is neither stored nor shown: what is
/// frozen into a session is its [`FrozenProfile`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct AgentProfile {
    pub slug: String,
    pub name: String,
    pub description: String,
    pub command: String,
    pub args: Vec<String>,
    /// Names and values that the process gets.
    pub env: BTreeMap<String, Secret>,
    /// Names that the process gets from the daemon's own environment, when they are set there.
    pub env_pass: Vec<String>,
    /// Files of names and values, read at each start of a process. One with a `-` before its path need not be there.
    pub env_file: Vec<String>,
    /// Names, each with the file in systemd's directory of credentials that has its value.
    pub credentials: BTreeMap<String, String>,
    /// Names whose values are no secrets; with a `*` at its end, all that begin so.
    pub env_plain: Vec<String>,
    pub adapter: Adapter,
    /// The way to sign in that the agent is told to take after `initialize`. None: it is told nothing.
    pub auth_method: Option<String>,
    pub permissions: Policy,
    /// Modes of the agent's that may be chosen although they grant more than the policy does.
    pub modes_allowed: Vec<String>,
    /// Whether the agent may read and write the workspace's files through acpd.
    pub client_files: bool,
    /// What it may run in terminals of acpd's: the first words of commands, or `*`. None means no terminals.
    pub terminal_commands: Vec<String>,
    /// Variables that it may set for them beside the harmless ones; with a `*` at its end, all that begin so.
    pub terminal_env: Vec<String>,
    /// MCP servers that its sessions have, by name.
    pub mcp_servers: BTreeMap<String, ProfileServer>,
    /// Whether a session may bring others along.
    pub mcp_servers_allowed: bool,
    /// Whether those may be at addresses of this machine and its network.
    pub mcp_private_urls: bool,
    /// Whether its sessions have acpd's own server among them, by which the agent writes to and reads from the record.
    pub acpd_tools: bool,
    /// The widest scope that its sessions may have.
    pub fs_scope: FsScope,
    pub tags: Vec<String>,
    /// What to tell a person whose machine does not have the command.
    pub install_hint: String,
    /// What to tell a person whom the agent does not know yet.
    pub login_hint: String,
}

/// What a session keeps of its profile for life: enough to go on when the profile is gone, and no value of `env`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrozenProfile {
    pub slug: String,
    pub name: String,
    pub command: String,
    pub args: Vec<String>,
    pub env_names: Vec<String>,
    pub env_pass: Vec<String>,
    /// Where values are, never the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_file: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_plain: Vec<String>,
    /// Profiles that were frozen before there were adapters have none.
    #[serde(default)]
    pub adapter: Adapter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub auth_method: Option<String>,
    /// Profiles that were frozen before there were rules have none: their sessions have the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Policy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes_allowed: Vec<String>,
    /// Profiles that were frozen before agents could use acpd's files and terminals have these.
    #[serde(default = "client_files_default")]
    pub client_files: bool,
    #[serde(default)]
    pub terminal_commands: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal_env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<FrozenServer>,
    /// Whether the one of these that is called `acpd` is acpd's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acpd_tools: bool,
}

const fn client_files_default() -> bool {
    true
}

impl AgentProfile {
    /// One that has nothing but its name, and grants what is granted when nobody says more.
    pub fn new(slug: &str) -> Self {
        Self {
            slug: slug.to_owned(),
            name: slug.to_owned(),
            description: String::new(),
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            env_file: Vec::new(),
            credentials: BTreeMap::new(),
            env_plain: Vec::new(),
            adapter: Adapter::Generic,
            auth_method: None,
            permissions: Policy::of(PermissionMode::Ask),
            modes_allowed: Vec::new(),
            client_files: true,
            terminal_commands: Vec::new(),
            terminal_env: Vec::new(),
            mcp_servers: BTreeMap::new(),
            mcp_servers_allowed: false,
            mcp_private_urls: false,
            acpd_tools: false,
            fs_scope: FsScope::Full,
            tags: Vec::new(),
            install_hint: String::new(),
            login_hint: String::new(),
        }
    }

    /// What a person does whose machine does not have the command.
    pub fn how_to_install(&self) -> String {
        if self.install_hint.is_empty() {
            format!("install it, or give its absolute path as agents.{}.command", self.slug)
        } else {
            self.install_hint.clone()
        }
    }

    /// What a person does whom the agent does not know.
    pub fn how_to_sign_in(&self) -> String {
        if self.login_hint.is_empty() {
            format!("sign in with the agent's own program, or give it a key (agents.{}.env_file)", self.slug)
        } else {
            self.login_hint.clone()
        }
    }

    pub fn freeze(&self) -> FrozenProfile {
        let tools = self.acpd_tools.then(FrozenServer::tools);
        FrozenProfile {
            slug: self.slug.clone(),
            name: self.name.clone(),
            command: self.command.clone(),
            args: self.args.clone(),
            env_names: self.env.keys().cloned().collect(),
            env_pass: self.env_pass.clone(),
            env_file: self.env_file.clone(),
            credentials: self.credentials.clone(),
            env_plain: self.env_plain.clone(),
            adapter: self.adapter,
            auth_method: self.auth_method.clone(),
            permissions: Some(self.permissions.clone()),
            modes_allowed: self.modes_allowed.clone(),
            client_files: self.client_files,
            terminal_commands: self.terminal_commands.clone(),
            terminal_env: self.terminal_env.clone(),
            mcp_servers: self.mcp_servers.iter().map(|(name, server)| server.freeze(name)).chain(tools).collect(),
            acpd_tools: self.acpd_tools,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_profile_holds_no_value_of_the_environment() {
        let profile = AgentProfile {
            command: "x".into(),
            env: BTreeMap::from([("API_KEY".to_owned(), "hunter2-hunter2".into())]),
            env_file: vec!["/etc/acpd/keys".into()],
            credentials: BTreeMap::from([("OTHER_KEY".to_owned(), "other".to_owned())]),
            ..AgentProfile::new("x")
        };
        let text = serde_json::to_string(&profile.freeze()).unwrap();
        assert!(["API_KEY", "/etc/acpd/keys", "OTHER_KEY"].iter().all(|name| text.contains(name)), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!format!("{profile:?}").contains("hunter2"), "nor does a look at the profile show it");
    }

    #[test]
    fn a_session_narrows_and_never_widens() {
        use PermissionMode::{Allow, Ask, Deny};
        assert!(Deny.narrows(Allow) && Ask.narrows(Allow) && Deny.narrows(Ask));
        assert!(!Allow.narrows(Ask) && !Allow.narrows(Deny) && !Ask.narrows(Deny));
    }
}
