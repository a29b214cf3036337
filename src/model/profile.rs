//! Profiles that are made over the API: what somebody wrote, its bounds, and what it comes to with today's configuration.
//!
//! Such a profile stands on a base, which is a profile of the configuration and has everything that needs trust: the command,
//! the environment, the adapter. It only narrows what that grants. Or it has a command of its own, and names where the values
//! of its environment are. It never has a value.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::agent::AgentProfile;
use super::id::AgentId;
use super::mcp::reference::is_variable;
use super::mcp::{ChosenServer, TOOLS};
use super::permission::policy::Policy;
use super::time::Timestamp;

const SLUG_LENGTH_MAX: usize = 64;
pub const SLUG_HINT: &str = "use lower-case letters, digits, '-' and '_', starting with a letter";
pub const NAME_CHARS_MAX: usize = 200;
pub const DESCRIPTION_CHARS_MAX: usize = 2000;
/// It goes with every session that is made with it.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 64 << 10;
/// Of a mode or a model.
const CHOICE_CHARS_MAX: usize = 200;
pub const TEMPERATURE_MAX: f64 = 2.0;
const WORDS_MAX: usize = 64;
const WORD_BYTES_MAX: usize = 4096;
/// As long as the name of a file.
const CREDENTIAL_LENGTH_MAX: usize = 255;

/// Where a profile is defined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AgentSource)]
pub enum Source {
    /// It is built in, or a section of config.toml.
    #[default]
    Config,
    Api,
}

impl Source {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Api => "api",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AgentStatus)]
pub enum Status {
    Active,
    /// It takes no new sessions.
    Archived,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "active" => Ok(Self::Active),
            "archived" => Ok(Self::Archived),
            _ => Err(format!("{text:?} is not an agent status; use active or archived")),
        }
    }
}

/// A temperature from 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = f64, minimum = 0, maximum = 2)]
pub struct Temperature(f64);

/// It is a number, which none but the one that is none is unlike itself.
impl Eq for Temperature {}

impl Temperature {
    pub fn new(number: f64) -> Option<Self> {
        // A zero below zero would be written otherwise.
        (0.0..=TEMPERATURE_MAX).contains(&number).then(|| Self(number.abs()))
    }
}

impl fmt::Display for Temperature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Temperature {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Self::new(number).ok_or_else(|| serde::de::Error::custom(format!("must be from 0 to {TEMPERATURE_MAX}")))
    }
}

/// A profile that was made over the API, as it is recorded.
#[derive(Clone, Debug)]
pub struct MadeProfile {
    pub id: AgentId,
    pub slug: String,
    /// Whose it is, when that is not the daemon's own user.
    pub owner_uid: Option<u32>,
    pub definition: Definition,
    pub status: Status,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

/// What somebody wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Nothing: all of the base's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<ChosenServer>>,
    /// Nothing: as the base has them, unless other servers are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acpd_tools: Option<bool>,
    /// Nothing: what the base grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Policy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    pub program: Program,
}

/// What it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Program {
    /// What this profile of the configuration runs.
    Base(String),
    Own(OwnProgram),
}

/// A command, and where the values of its environment are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnProgram {
    pub command: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_pass: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_file: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credentials: BTreeMap<String, String>,
}

/// What is wrong with a definition, by its field. What stands where a reference should is not in it: it may be a key.
#[derive(Debug, PartialEq, Eq)]
pub struct DefinitionProblem {
    pub field: &'static str,
    pub problem: String,
    pub hint: &'static str,
}

impl MadeProfile {
    /// The whole profile, with what today's configuration has for it; or the name of the base that is gone. One with a
    /// command of its own has the general policy, when it has none.
    pub fn resolve(&self, agents: &BTreeMap<String, AgentProfile>, general: &Policy) -> Result<AgentProfile, String> {
        let definition = &self.definition;
        let profile = match &definition.program {
            Program::Base(base) => self.standing_on(agents.get(base).ok_or_else(|| base.clone())?),
            Program::Own(own) => AgentProfile {
                command: own.command.clone(),
                args: own.args.clone(),
                env_pass: own.env_pass.clone(),
                env_file: own.env_file.clone(),
                credentials: own.credentials.clone(),
                permissions: definition.permissions.clone().unwrap_or_else(|| general.clone()),
                acpd_tools: definition.acpd_tools.unwrap_or(false),
                ..AgentProfile::new(&self.slug)
            },
        };
        Ok(self.filled(profile))
    }

    /// With what the definition says itself.
    fn filled(&self, profile: AgentProfile) -> AgentProfile {
        let definition = &self.definition;
        let own_servers = definition.mcp_servers.iter().flatten().filter_map(|server| match server {
            ChosenServer::Own(own) => Some(own.clone()),
            ChosenServer::Named(_) => None,
        });
        AgentProfile {
            slug: self.slug.clone(),
            id: Some(self.id),
            source: Source::Api,
            name: definition.name.clone(),
            description: definition.description.clone(),
            system_prompt: definition.system_prompt.clone().or(profile.system_prompt),
            model: definition.model.clone().or(profile.model),
            mode: definition.mode.clone().or(profile.mode),
            temperature: definition.temperature.or(profile.temperature),
            max_tokens: definition.max_tokens.or(profile.max_tokens),
            tags: definition.tags.clone(),
            own_servers: own_servers.collect(),
            ..profile
        }
    }

    /// What there is to show of one whose base is gone.
    pub fn alone(&self) -> AgentProfile {
        let base = match &self.definition.program {
            Program::Base(base) => AgentProfile::new(base),
            Program::Own(_) => AgentProfile::new(&self.slug),
        };
        self.filled(self.standing_on(&base))
    }

    /// The base, with less.
    fn standing_on(&self, base: &AgentProfile) -> AgentProfile {
        let definition = &self.definition;
        let is_kept = |name: &str| {
            let is_it = |server: &ChosenServer| matches!(server, ChosenServer::Named(named) if named == name);
            definition.mcp_servers.as_ref().is_none_or(|servers| servers.iter().any(is_it))
        };
        let mut profile = AgentProfile { base: Some(base.slug.clone()), ..base.clone() };
        profile.mcp_servers.retain(|name, _| is_kept(name));
        profile.acpd_tools &= definition.acpd_tools.unwrap_or_else(|| is_kept(TOOLS));
        if let Some(own) = &definition.permissions {
            profile.base_permissions = Some(std::mem::replace(&mut profile.permissions, own.clone()));
        }
        profile
    }
}

impl Definition {
    /// One that says nothing but what it runs.
    pub fn new(name: &str, program: Program) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            system_prompt: None,
            model: None,
            mode: None,
            temperature: None,
            max_tokens: None,
            mcp_servers: None,
            acpd_tools: None,
            permissions: None,
            tags: Vec::new(),
            program,
        }
    }

    /// What can be said of it without a look at the configuration; but for the tags, the policy and the servers.
    pub fn check(&self) -> Result<(), DefinitionProblem> {
        check_line("name", &self.name, 1, NAME_CHARS_MAX)?;
        check_line("description", &self.description, 0, DESCRIPTION_CHARS_MAX)?;
        self.system_prompt.as_deref().map_or(Ok(()), |text| check_system_prompt("systemPrompt", text))?;
        self.model.as_deref().map_or(Ok(()), |model| check_choice("model", model))?;
        self.mode.as_deref().map_or(Ok(()), |mode| check_choice("mode", mode))?;
        if self.max_tokens == Some(0) {
            let hint = "leave it out to use the agent's default";
            return Err(DefinitionProblem { field: "maxTokens", problem: "must be at least 1".to_owned(), hint });
        }
        match &self.program {
            Program::Base(_) => Ok(()),
            Program::Own(own) => own.check(),
        }
    }
}

impl OwnProgram {
    fn check(&self) -> Result<(), DefinitionProblem> {
        let is_word = |word: &String| (1..=WORD_BYTES_MAX).contains(&word.len()) && !word.contains('\0');
        let few = |count: usize| count <= WORDS_MAX;
        let wrong = |field, problem: &str, hint| Err(DefinitionProblem { field, problem: problem.to_owned(), hint });
        if !is_word(&self.command) {
            return wrong(
                "command",
                "is empty or too long",
                "give the program that speaks ACP on its standard input and output",
            );
        }
        if !few(self.args.len()) || !self.args.iter().all(|word| word.len() <= WORD_BYTES_MAX && !word.contains('\0')) {
            return wrong(
                "args",
                "are too many, or one is too long",
                "put long values into a file that the agent reads",
            );
        }
        if !few(self.env_pass.len()) || !self.env_pass.iter().all(|name| is_variable(name)) {
            let hint = "give names of variables of the daemon's environment, such as MY_API_KEY, without their values";
            return wrong("envPass", "contains an invalid variable name", hint);
        }
        let is_path = |file: &String| is_word(file) && file.strip_prefix('-').unwrap_or(file).starts_with('/');
        if !few(self.env_file.len()) || !self.env_file.iter().all(is_path) {
            let hint = "give absolute paths of files with NAME=value lines; put - before the path of an optional file";
            return wrong("envFile", "contains a path that is not absolute", hint);
        }
        let is_reference = |(name, file): (&String, &String)| is_variable(name) && is_credential(file);
        if !few(self.credentials.len()) || !self.credentials.iter().all(is_reference) {
            let hint = "write {\"VARIABLE\": \"credential\"} with the name from LoadCredential=, never the value";
            return wrong("credentials", "contains an invalid credential name", hint);
        }
        Ok(())
    }
}

/// One printable line.
fn check_line(field: &'static str, text: &str, min: usize, max: usize) -> Result<(), DefinitionProblem> {
    if (min..=max).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let problem = format!("must have {min} to {max} printable characters");
    Err(DefinitionProblem { field, problem, hint: "put longer text into the system prompt" })
}

/// The name of a mode or a model. Whether there is one is for the agent to say.
pub fn check_choice(field: &'static str, name: &str) -> Result<(), DefinitionProblem> {
    if (1..=CHOICE_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let problem = format!("must have 1 to {CHOICE_CHARS_MAX} printable characters");
    Err(DefinitionProblem { field, problem, hint: "`acpd agents check NAME --json` lists the agent's choices" })
}

pub fn check_system_prompt(field: &'static str, text: &str) -> Result<(), DefinitionProblem> {
    if text.trim().is_empty() || text.len() > SYSTEM_PROMPT_BYTES_MAX || text.contains('\0') {
        let problem = format!("must have 1 to {SYSTEM_PROMPT_BYTES_MAX} bytes of text");
        let hint = "leave it out if it is empty; put longer text into a file of the workspace";
        return Err(DefinitionProblem { field, problem, hint });
    }
    Ok(())
}

/// Whether an agent may be called so.
pub fn is_slug(text: &str) -> bool {
    text.len() <= SLUG_LENGTH_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
}

/// A file's name, and no path.
pub fn is_credential(name: &str) -> bool {
    (1..=CREDENTIAL_LENGTH_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.chars().all(|c| c.is_ascii_graphic() && c != '/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::PermissionMode;
    use crate::model::mcp::{ProfileServer, Transport};

    fn definition(program: Program) -> Definition {
        Definition::new("Mine", program)
    }

    fn made(definition: Definition) -> MadeProfile {
        let now = Timestamp::now();
        MadeProfile {
            id: AgentId::new(),
            slug: "mine".to_owned(),
            owner_uid: None,
            definition,
            status: Status::Active,
            created_at: now,
            updated_at: now,
            archived_at: None,
        }
    }

    fn base() -> AgentProfile {
        let transport = Transport::Stdio { command: "mcp".to_owned(), args: Vec::new() };
        let server = || ProfileServer { transport: transport.clone(), values: BTreeMap::new() };
        AgentProfile {
            command: "agent".to_owned(),
            env: [("KEY".to_owned(), "hunter2-hunter2".into())].into(),
            mode: Some("plan".to_owned()),
            model: Some("small".to_owned()),
            mcp_servers: ["a", "b"].map(|name| (name.to_owned(), server())).into(),
            permissions: Policy::of(PermissionMode::Edit),
            ..AgentProfile::new("base")
        }
    }

    #[test]
    fn a_profile_has_less_than_its_base_and_its_values() {
        let own = Definition {
            model: Some("large".to_owned()),
            mcp_servers: Some(vec![ChosenServer::Named("b".to_owned()), ChosenServer::Named("gone".to_owned())]),
            permissions: Some(Policy::of(PermissionMode::Ask)),
            ..definition(Program::Base("base".to_owned()))
        };
        let agents = [("base".to_owned(), base())].into();
        let general = Policy::of(PermissionMode::Ask);
        let profile = made(own).resolve(&agents, &general).unwrap();
        assert_eq!((profile.slug.as_str(), profile.command.as_str(), profile.source), ("mine", "agent", Source::Api));
        assert_eq!((profile.mode.as_deref(), profile.model.as_deref()), (Some("plan"), Some("large")));
        assert_eq!(profile.mcp_servers.keys().collect::<Vec<_>>(), ["b"]);
        let modes = (profile.permissions.mode, profile.base_permissions.as_ref().map(|base| base.mode));
        assert_eq!(modes, (PermissionMode::Ask, Some(PermissionMode::Edit)));
        let frozen = profile.freeze();
        assert_eq!(frozen.configured(&agents).map(|base| base.slug.as_str()), Some("base"));
        assert!(!serde_json::to_string(&frozen).unwrap().contains("hunter2"));
        let gone = made(definition(Program::Base("gone".to_owned()))).resolve(&agents, &general);
        assert_eq!(gone.unwrap_err(), "gone");
    }

    #[test]
    fn acpds_tools_are_the_bases_to_give_and_its_own_to_leave_out() {
        let named = |name: &str| Some(vec![ChosenServer::Named(name.to_owned())]);
        for (base_has, acpd_tools, mcp_servers, expected) in [
            (true, None, None, true),
            (true, None, Some(Vec::new()), false),
            (true, None, named("b"), false),
            (true, None, named("acpd"), true),
            (true, Some(true), named("b"), true),
            (true, Some(false), None, false),
            (false, None, named("acpd"), false),
            (false, Some(true), None, false),
        ] {
            let own = Definition { mcp_servers, acpd_tools, ..definition(Program::Base("base".to_owned())) };
            let agents = [("base".to_owned(), AgentProfile { acpd_tools: base_has, ..base() })].into();
            let profile = made(own.clone()).resolve(&agents, &Policy::of(PermissionMode::Ask)).unwrap();
            assert_eq!(profile.acpd_tools, expected, "{base_has} {own:?}");
        }
        for (acpd_tools, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
            let own = Definition { acpd_tools, ..definition(Program::Own(OwnProgram::default())) };
            let profile = made(own).resolve(&BTreeMap::new(), &Policy::of(PermissionMode::Ask)).unwrap();
            assert_eq!(profile.acpd_tools, expected);
        }
    }

    #[test]
    fn a_command_of_its_own_takes_nothing_from_a_namesake() {
        let own = OwnProgram { command: "/opt/x".to_owned(), ..OwnProgram::default() };
        let profile = made(definition(Program::Own(own))).resolve(&BTreeMap::new(), &Policy::of(PermissionMode::Deny));
        let profile = profile.unwrap();
        assert_eq!((profile.command.as_str(), profile.permissions.mode), ("/opt/x", PermissionMode::Deny));
        let agents = [("mine".to_owned(), AgentProfile { slug: "mine".to_owned(), ..base() })].into();
        assert!(profile.freeze().configured(&agents).is_none());
    }

    #[test]
    fn what_is_wrong_is_told_by_its_field_and_without_what_may_be_a_key() {
        let own = |program: OwnProgram| {
            let program = OwnProgram { command: "x".to_owned(), ..program };
            definition(Program::Own(program)).check().unwrap_err()
        };
        let base = || definition(Program::Base("base".to_owned()));
        let long = "x".repeat(SYSTEM_PROMPT_BYTES_MAX + 1);
        let problems = [
            Definition { name: String::new(), ..base() }.check().unwrap_err(),
            Definition { name: "a\nb".to_owned(), ..base() }.check().unwrap_err(),
            Definition { description: "x".repeat(DESCRIPTION_CHARS_MAX + 1), ..base() }.check().unwrap_err(),
            Definition { system_prompt: Some(long), ..base() }.check().unwrap_err(),
            Definition { system_prompt: Some(" \n".to_owned()), ..base() }.check().unwrap_err(),
            Definition { model: Some(String::new()), ..base() }.check().unwrap_err(),
            Definition { mode: Some("a\u{1b}".to_owned()), ..base() }.check().unwrap_err(),
            Definition { max_tokens: Some(0), ..base() }.check().unwrap_err(),
            definition(Program::Own(OwnProgram::default())).check().unwrap_err(),
            own(OwnProgram { args: vec![String::new(); WORDS_MAX + 1], ..OwnProgram::default() }),
            own(OwnProgram { env_pass: vec!["KEY=hunter2".to_owned()], ..OwnProgram::default() }),
            own(OwnProgram { env_file: vec!["hunter2".to_owned()], ..OwnProgram::default() }),
            own(OwnProgram {
                credentials: [("KEY".to_owned(), "hunter2/".to_owned())].into(),
                ..OwnProgram::default()
            }),
        ];
        let fields: Vec<&str> = problems.iter().map(|problem| problem.field).collect();
        let named = ["name", "name", "description", "systemPrompt", "systemPrompt", "model", "mode", "maxTokens"];
        assert_eq!(fields, [named.as_slice(), &["command", "args", "envPass", "envFile", "credentials"]].concat());
        assert!(!format!("{problems:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn a_temperature_is_within_its_bounds(number in proptest::num::f64::ANY) {
            let temperature = serde_json::from_value::<Temperature>(serde_json::json!(number)).ok();
            prop_assert_eq!(temperature, Temperature::new(number));
            prop_assert_eq!(temperature.is_some(), (0.0..=TEMPERATURE_MAX).contains(&number));
        }

        #[test]
        fn a_slug_needs_no_escape_in_a_path(text in "\\PC{0,80}") {
            let is_safe = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            prop_assert!(!is_slug(&text) || (is_safe && !text.is_empty() && text.len() <= SLUG_LENGTH_MAX));
        }
    }
}
