//! MCP servers in requests and answers. Values go in and never come out.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::mcp::{
    ChosenServer, FrozenServer, OwnServer, ServerProblem, SessionServer, Transport, Written, check_all, of_session,
};

/// The name of a server from the profile, or a full definition if the profile allows it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum McpChoice {
    Named(String),
    Defined(McpDefinition),
}

/// A server that the agent starts (`command`, `args`, `env`) or calls (`url`, `type`, `headers`). acpd stores the
/// definition as it is. `${NAME}` in a value stands for a variable of the agent's environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpDefinition {
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<McpKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpKind {
    Stdio,
    Http,
    Sse,
}

impl McpKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

/// Where the server is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpSource {
    Profile,
    Session,
}

/// An MCP server without its values.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServer {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: McpKind,
    pub source: McpSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names of environment variables, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Names of headers, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
}

impl McpServer {
    /// All that a session has.
    pub fn of_session(profile: &[FrozenServer], chosen: Option<&[ChosenServer]>) -> Vec<Self> {
        let shown = |server| match server {
            SessionServer::Profile(server) => Self::of_profile(server),
            SessionServer::Own(OwnServer { name, transport, values }) => {
                Self::new(name, transport, values.keys().cloned().collect(), McpSource::Session)
            }
        };
        of_session(profile, chosen).into_iter().map(shown).collect()
    }

    pub fn of_profile(server: &FrozenServer) -> Self {
        Self::new(&server.name, &server.transport, server.value_names.clone(), McpSource::Profile)
    }

    fn new(name: &str, transport: &Transport, names: Vec<String>, source: McpSource) -> Self {
        let (kind, command, args, url) = match transport {
            Transport::Stdio { command, args } => (McpKind::Stdio, Some(command.clone()), args.clone(), None),
            Transport::Http { url } => (McpKind::Http, None, Vec::new(), Some(url.clone())),
            Transport::Sse { url } => (McpKind::Sse, None, Vec::new(), Some(url.clone())),
        };
        let (env, headers) = if kind == McpKind::Stdio { (names, Vec::new()) } else { (Vec::new(), names) };
        Self { name: name.to_owned(), kind, source, command, args, url, env, headers }
    }
}

/// What a request chose, in the words of the record; or what is wrong with it, by its field.
pub fn chosen(choices: Vec<McpChoice>) -> Result<Vec<ChosenServer>, ServerProblem> {
    let chosen = choices.into_iter().enumerate().map(|(index, choice)| match choice {
        McpChoice::Named(name) => Ok(ChosenServer::Named(name)),
        McpChoice::Defined(definition) => {
            let own = definition.into_own().and_then(|own| own.check().map(|()| own));
            own.map(ChosenServer::Own).map_err(|problem| ServerProblem {
                field: match problem.field.as_str() {
                    "" => format!("mcpServers[{index}].name"),
                    field => format!("mcpServers[{index}].{field}"),
                },
                ..problem
            })
        }
    });
    let chosen: Vec<ChosenServer> = chosen.collect::<Result<_, _>>()?;
    let servers = chosen.iter().map(|server| match server {
        ChosenServer::Named(name) => (name.as_str(), 0),
        ChosenServer::Own(own) => (own.name.as_str(), own.weight()),
    });
    check_all(servers).map_err(|problem| ServerProblem {
        field: "mcpServers".to_owned(),
        problem,
        hint: "give each server only once, and keep within the maximum number of servers".to_owned(),
    })?;
    Ok(chosen)
}

impl McpDefinition {
    fn into_own(self) -> Result<OwnServer, ServerProblem> {
        let Self { name, command, args, env, kind, url, headers } = self;
        let kind = kind.map(|kind| kind.name().to_owned());
        let sorted = Written { command, args, env, kind, url, headers }.sorted();
        let (transport, values) = sorted.ok_or_else(|| ServerProblem {
            field: "command".to_owned(),
            problem: "is missing, or does not fit the other fields".to_owned(),
            hint: Written::<String>::HINT.to_owned(),
        })?;
        Ok(OwnServer { name, transport, values })
    }
}

impl<'de> Deserialize<'de> for McpChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = McpChoice;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a server, or a JSON object that defines one")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<McpChoice, E> {
        Ok(McpChoice::Named(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<McpChoice, A::Error> {
        McpDefinition::deserialize(MapAccessDeserializer::new(map)).map(McpChoice::Defined)
    }
}
