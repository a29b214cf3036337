//! An agent profile: how to start an ACP agent and how much it may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::adapter::Adapter;
use super::choices::{Choice, Known};
use super::id::AgentId;
use super::mcp::{FrozenServer, OwnServer, ProfileServer};
use super::permission::PermissionMode;
use super::permission::policy::{Authority, Policy};
use super::permission::standing::StandingRule;
use super::profile::{Source, Temperature};
use super::sandbox::FsScope;
use super::secret::Secret;

/// A profile as the configuration gives it. It may hold secrets in `env`, so it is neither stored nor shown: what is
/// frozen into a session is its [`FrozenProfile`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct AgentProfile {
    pub slug: String,
    /// Those of the configuration have theirs in the record alone.
    pub id: Option<AgentId>,
    pub source: Source,
    /// The profile of the configuration that one of the API takes its command and environment from.
    pub base: Option<String>,
    pub name: String,
    pub description: String,
    /// What the agent is told before anything else.
    pub system_prompt: Option<String>,
    /// What a session has that chooses none.
    pub model: Option<String>,
    pub mode: Option<String>,
    pub temperature: Option<Temperature>,
    pub max_tokens: Option<u32>,
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
    /// What its sessions have that name no policy.
    pub permissions: Policy,
    /// The widest mode that its sessions may have. None: it depends on the owner, see [`AgentProfile::ceiling`].
    pub permissions_max: Option<PermissionMode>,
    /// What the base has, whose rules hold beside its own.
    pub base_permissions: Option<Policy>,
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
    /// Those that one of the API brings along.
    pub own_servers: Vec<OwnServer>,
    /// Whether a session may bring others along.
    pub mcp_servers_allowed: bool,
    /// Whether those may be at addresses of this machine and its network.
    pub mcp_private_urls: bool,
    /// Whether its sessions have acpd's own server among them, by which the agent writes to and reads from the record.
    pub acpd_tools: bool,
    /// The widest scope that its sessions may have.
    pub fs_scope: FsScope,
    /// Paths that isolation hides, and that its agent needs.
    pub sandbox_show: Vec<String>,
    /// Paths in the home that the agent gets copies of, if it has a private home.
    pub home_copy: Vec<String>,
    pub tags: Vec<String>,
    /// What to tell a person whose machine does not have the command.
    pub install_hint: String,
    /// What to tell a person whom the agent does not know yet.
    pub login_hint: String,
    /// The program that signs a person in, with its arguments. Empty: the agent's own, if it announces how.
    pub login_command: Vec<String>,
}

/// The part of a profile that a session keeps for its whole life, without the values of `env`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrozenProfile {
    pub slug: String,
    /// Absent in older sessions, like the fields that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<AgentId>,
    #[serde(default)]
    pub source: Source,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub base: Option<String>,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub temperature: Option<Temperature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    pub command: String,
    pub args: Vec<String>,
    pub env_names: Vec<String>,
    pub env_pass: Vec<String>,
    /// Files that hold values, never the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_file: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_plain: Vec<String>,
    /// Absent in older sessions.
    #[serde(default)]
    pub adapter: Adapter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub auth_method: Option<String>,
    /// Absent in older sessions, which have only the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Policy>,
    /// The widest permission mode that the session may have. Absent in older sessions: then the policy's mode is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub permissions_max: Option<PermissionMode>,
    /// The base's policy, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub base_permissions: Option<Policy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes_allowed: Vec<String>,
    /// Older sessions have the default.
    #[serde(default = "client_files_default")]
    pub client_files: bool,
    #[serde(default)]
    pub terminal_commands: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal_env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<FrozenServer>,
    /// Whether the server named `acpd` is acpd's own.
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
            id: None,
            source: Source::Config,
            base: None,
            name: slug.to_owned(),
            description: String::new(),
            system_prompt: None,
            model: None,
            mode: None,
            temperature: None,
            max_tokens: None,
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
            permissions_max: None,
            base_permissions: None,
            modes_allowed: Vec::new(),
            client_files: true,
            terminal_commands: Vec::new(),
            terminal_env: Vec::new(),
            mcp_servers: BTreeMap::new(),
            own_servers: Vec::new(),
            mcp_servers_allowed: false,
            mcp_private_urls: false,
            acpd_tools: false,
            fs_scope: FsScope::Full,
            sandbox_show: Vec::new(),
            home_copy: Vec::new(),
            tags: Vec::new(),
            install_hint: String::new(),
            login_hint: String::new(),
            login_command: Vec::new(),
        }
    }

    /// The section of the configuration that says what it is granted.
    pub fn section(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.slug)
    }

    /// What a person does whose machine does not have the command.
    pub fn how_to_install(&self) -> String {
        if self.install_hint.is_empty() {
            format!("install it, or set its absolute path as agents.{}.command", self.section())
        } else {
            self.install_hint.clone()
        }
    }

    /// What a person does whom the agent does not know.
    pub fn how_to_sign_in(&self) -> String {
        if self.login_hint.is_empty() {
            let variable = if self.adapter.quirks().key.is_some() { "" } else { " --variable NAME" };
            format!(
                "sign in with `acpd agents login {0}`, or store a key with `acpd agents key {0}{variable}`",
                self.section()
            )
        } else {
            self.login_hint.clone()
        }
    }

    /// The widest mode that a session of this owner may have; nothing stands for the daemon's own user. One that was made over
    /// the API with a policy and a base has that policy's mode at most.
    pub fn ceiling(&self, owner: Option<u32>) -> PermissionMode {
        let default = if owner.is_none() { PermissionMode::Allow } else { PermissionMode::Ask };
        let configured = self.permissions_max.unwrap_or(default);
        if self.base_permissions.is_some() { configured.or_stricter(self.permissions.mode) } else { configured }
    }

    /// What a session of this owner has that names no policy. `read-only` also forbids writes, so it is never replaced.
    pub fn default_policy(&self, owner: Option<u32>) -> Policy {
        let Policy { mode, rules } = self.permissions.clone();
        let is_kept = self.permissions.forbids_writes();
        Policy { mode: if is_kept { mode } else { mode.or_stricter(self.ceiling(owner)) }, rules }
    }

    /// What a session of this owner keeps of it.
    pub fn freeze_for(&self, owner: Option<u32>) -> FrozenProfile {
        FrozenProfile { permissions_max: Some(self.ceiling(owner)), ..self.freeze() }
    }

    pub fn freeze(&self) -> FrozenProfile {
        let tools = self.acpd_tools.then(FrozenServer::tools);
        FrozenProfile {
            slug: self.slug.clone(),
            id: self.id,
            source: self.source,
            base: self.base.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            system_prompt: self.system_prompt.clone(),
            model: self.model.clone(),
            mode: self.mode.clone(),
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            tags: self.tags.clone(),
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
            permissions_max: self.permissions_max,
            base_permissions: self.base_permissions.clone(),
            modes_allowed: self.modes_allowed.clone(),
            client_files: self.client_files,
            terminal_commands: self.terminal_commands.clone(),
            terminal_env: self.terminal_env.clone(),
            mcp_servers: self.mcp_servers.iter().map(|(name, server)| server.freeze(name)).chain(tools).collect(),
            acpd_tools: self.acpd_tools,
        }
    }
}

impl FrozenProfile {
    /// The profile of today's configuration that has the values for this one, if there is one.
    pub fn configured<'a>(&self, agents: &'a BTreeMap<String, AgentProfile>) -> Option<&'a AgentProfile> {
        match (&self.base, self.source) {
            (Some(base), _) => agents.get(base),
            (None, Source::Config) => agents.get(&self.slug),
            (None, Source::Api) => None,
        }
    }

    /// All that decides what a session's agent may do, which has this policy and these rules of its own.
    pub fn authority(&self, session: Policy, standing: Vec<StandingRule>) -> Authority {
        let profile = self.permissions.clone().map_or_else(|| session.clone(), |policy| self.capped(policy));
        let base = self.base_permissions.clone().map(|policy| self.capped(policy));
        Authority { base, profile, session, standing }
    }

    /// Rules with the widest mode that the session may have.
    fn capped(&self, policy: Policy) -> Policy {
        Policy { mode: self.permissions_max.unwrap_or(policy.mode), ..policy }
    }

    /// The profile's policies, each with the widest mode that the session may have.
    pub fn granted(&self) -> impl Iterator<Item = Policy> {
        self.permissions.iter().chain(&self.base_permissions).map(|policy| self.capped(policy.clone()))
    }

    /// The section of the configuration that says what it is granted.
    pub fn section(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.slug)
    }

    /// What it says of numbers that the agent has an option for, by the field's name. ACP has no other way to set them.
    pub fn numbers(&self, known: &Known) -> Vec<(&'static str, Option<Choice>)> {
        let temperature = self.temperature.map(|number| ("temperature", number.to_string()));
        let max_tokens = self.max_tokens.map(|number| ("maxTokens", number.to_string()));
        let numbers = temperature.into_iter().chain(max_tokens);
        numbers.map(|(field, number)| (field, known.option_for(field, &number))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::permission::Verdict;

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
    fn a_profile_that_was_frozen_before_there_were_entities_is_still_read() {
        let old = r#"{"slug":"x","name":"X","command":"x","args":[],"envNames":[],"envPass":[]}"#;
        let profile: FrozenProfile = serde_json::from_str(old).unwrap();
        assert_eq!((profile.source, profile.id, &profile.system_prompt), (Source::Config, None, &None));
        let agents = [("x".to_owned(), AgentProfile::new("x"))].into();
        assert!(profile.configured(&agents).is_some());
        let session = Policy::of(PermissionMode::Edit);
        assert_eq!(profile.authority(session.clone(), Vec::new()).profile, session);
    }

    #[test]
    fn what_a_base_forbids_stays_forbidden() {
        let (deny, ask) = (Policy::of(PermissionMode::Deny), Policy::of(PermissionMode::Ask));
        let profile = AgentProfile { base_permissions: Some(deny), ..AgentProfile::new("x") }.freeze();
        let authority = profile.authority(ask, Vec::new());
        assert!(authority.forbids_writes());
        assert!(matches!(authority.judge_question(), Verdict::Deny { by } if by == "base mode deny"));
    }

    #[test]
    fn numbers_are_applied_where_the_agent_has_an_option_for_them() {
        let temperature = Temperature::new(0.5);
        let profile = AgentProfile { temperature, max_tokens: Some(100), ..AgentProfile::new("x") }.freeze();
        let option = |id: &str, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            Known { config_options: Some([(id.to_owned(), Some(values))].into()), ..Known::default() }
        };
        let applied = |known: &Known| {
            let numbers = profile.numbers(known).into_iter();
            numbers.filter_map(|(_, choice)| choice).map(|choice| choice.to_string()).collect::<Vec<_>>()
        };
        assert!(applied(&Known::default()).is_empty());
        assert!(applied(&option("temperature", &["1"])).is_empty(), "not this one");
        assert_eq!(applied(&option("Temperature", &["1", "0.5"])), ["\"0.5\" for the option \"Temperature\""]);
        assert_eq!(applied(&option("max_tokens", &["100"])), ["\"100\" for the option \"max_tokens\""]);
    }

    #[test]
    fn a_session_narrows_and_never_widens() {
        use PermissionMode::{Allow, Ask, Deny};
        assert!(Deny.narrows(Allow) && Ask.narrows(Allow) && Deny.narrows(Ask));
        assert!(!Allow.narrows(Ask) && !Allow.narrows(Deny) && !Ask.narrows(Deny));
    }
}
