//! MCP servers: what a profile gives its agent, what a session has of that, and what it may bring of its own.
//!
//! A server is where it is (a program to start, or a URL) and the values that go with it (variables of its environment, or
//! headers). Of a profile's servers the record has no values: those come from today's configuration, as `env` does. A session's
//! own servers are kept with theirs, which are therefore no secrets, but may refer to some as `${NAME}`.

pub mod address;
pub mod reference;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::secret::{self, Secret};

/// What acpd's own server is called, which gives a session's agent tools for the record.
pub const TOOLS: &str = "acpd";
/// What makes this program that server.
pub const TOOLS_ARGUMENT: &str = "mcp";
/// The most that one session has.
pub const SERVERS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 64;
const ARGS_MAX: usize = 64;
const VALUES_MAX: usize = 64;
const KEY_BYTES_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 4096;
const URL_BYTES_MAX: usize = 2048;
/// All servers together: they are on the session's row, and go with every list of sessions.
const ALL_BYTES_MAX: usize = 64 << 10;
const SCHEME_BYTES_MAX: usize = 10;

/// How to reach an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schema(as = McpTransport)]
pub enum Transport {
    /// A server that the agent starts.
    Stdio {
        command: String,
        args: Vec<String>,
    },
    Http {
        url: String,
    },
    Sse {
        url: String,
    },
}

/// One as it is written, before it is known which kind it is.
#[derive(Debug)]
pub struct Written<V> {
    pub command: Option<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, V>,
    pub kind: Option<String>,
    pub url: Option<String>,
    pub headers: BTreeMap<String, V>,
}

impl<V> Written<V> {
    pub const HINT: &str = "give command, args and env, or url, type (\"http\" or \"sse\") and headers";

    /// Where it is, and the values that go with it; nothing, when what is written does not go together.
    pub fn sorted(self) -> Option<(Transport, BTreeMap<String, V>)> {
        let Self { command, args, env, kind, url, headers } = self;
        let is_local = args.is_empty() && env.is_empty();
        match (command, url, kind.as_deref()) {
            (Some(command), None, None | Some("stdio")) if headers.is_empty() => {
                Some((Transport::Stdio { command, args }, env))
            }
            (None, Some(url), None | Some("http")) if is_local => Some((Transport::Http { url }, headers)),
            (None, Some(url), Some("sse")) if is_local => Some((Transport::Sse { url }, headers)),
            _ => None,
        }
    }
}

/// One as the configuration gives it; its name is the key that it stands under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileServer {
    pub transport: Transport,
    /// Variables or headers.
    pub values: BTreeMap<String, Secret>,
}

/// The part of a profile's server that a session keeps for its whole life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FrozenMcpServer)]
pub struct FrozenServer {
    pub name: String,
    #[serde(flatten)]
    pub transport: Transport,
    /// The names of its variables or headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value_names: Vec<String>,
}

impl FrozenServer {
    /// acpd's own. Where its program and its socket are is known when a process starts.
    pub fn tools() -> Self {
        let transport = Transport::Stdio { command: TOOLS.to_owned(), args: vec![TOOLS_ARGUMENT.to_owned()] };
        Self { name: TOOLS.to_owned(), transport, value_names: Vec::new() }
    }

    /// Whether it is acpd's own, in a profile that has that or not: else it is one that happens to be called so.
    pub fn is_tools(&self, has_tools: bool) -> bool {
        has_tools && self.name == TOOLS
    }
}

/// One that a session brought along. Its values are stored as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnServer {
    pub name: String,
    #[serde(flatten)]
    pub transport: Transport,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// One that a session chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ChosenServer {
    /// The profile's of this name.
    Named(String),
    Own(OwnServer),
}

/// One with all that an agent needs of it, for the moment in which it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyServer {
    pub name: String,
    pub transport: Transport,
    /// Variables or headers.
    pub values: Vec<(String, Secret)>,
}

/// What is wrong with a server, and where in it.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerProblem {
    /// Empty for the name.
    pub field: String,
    pub problem: String,
    pub hint: String,
}

/// A session's server, of whichever origin.
#[derive(Clone, Copy, Debug)]
pub enum SessionServer<'a> {
    Profile(&'a FrozenServer),
    Own(&'a OwnServer),
}

/// Which servers a session has: those that it chose, or all of its profile's.
pub fn of_session<'a>(profile: &'a [FrozenServer], chosen: Option<&'a [ChosenServer]>) -> Vec<SessionServer<'a>> {
    let named = |name: &str| profile.iter().find(|server| server.name == name).map(SessionServer::Profile);
    match chosen {
        None => profile.iter().map(SessionServer::Profile).collect(),
        Some(chosen) => chosen
            .iter()
            .filter_map(|server| match server {
                ChosenServer::Named(name) => named(name),
                ChosenServer::Own(own) => Some(SessionServer::Own(own)),
            })
            .collect(),
    }
}

impl Transport {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Stdio { command, args } => {
                command.len() + args.iter().map(|argument| argument.len() + 1).sum::<usize>()
            }
            Self::Http { url } | Self::Sse { url } => url.len(),
        }
    }

    /// Where its values are written, in a profile and in a request.
    pub const fn values_field(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "env",
            Self::Http { .. } | Self::Sse { .. } => "headers",
        }
    }
}

impl ProfileServer {
    /// How much it takes.
    pub fn weight(&self) -> usize {
        let values = self.values.iter().map(|(key, value)| key.len() + value.reveal().len());
        self.transport.weight() + values.sum::<usize>()
    }

    pub fn freeze(&self, name: &str) -> FrozenServer {
        let value_names = self.values.keys().cloned().collect();
        FrozenServer { name: name.to_owned(), transport: self.transport.clone(), value_names }
    }

    pub fn check(&self, name: &str) -> Result<(), ServerProblem> {
        check(name, &self.transport, self.values.iter().map(|(key, value)| (key.as_str(), value.reveal())))
    }
}

impl OwnServer {
    /// How much it takes.
    pub fn weight(&self) -> usize {
        self.transport.weight() + self.values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }

    /// Where it is, when that is on this machine or its network.
    pub fn private_host(&self) -> Option<String> {
        match &self.transport {
            Transport::Http { url } | Transport::Sse { url } => address::private_host(url),
            Transport::Stdio { .. } => None,
        }
    }

    /// Beside what holds for every server: nothing in it may be a secret, because it is stored and shown.
    pub fn check(&self) -> Result<(), ServerProblem> {
        check(&self.name, &self.transport, self.values.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        for (key, value) in &self.values {
            // What is malformed was refused already.
            if let Some(suspicion) = secret::suspicion(key, value)
                && !only_refers(value)
            {
                let field = format!("{}.{key}", self.transport.values_field());
                let hint = "write ${NAME} instead: acpd replaces it by the variable NAME of the agent's environment";
                return Err(problem(field, format!("{suspicion}, and would be stored as plain text"), hint));
            }
        }
        if let Transport::Http { url } | Transport::Sse { url } = &self.transport
            && let Some(key) = address::query_names(url).into_iter().find(|key| secret::is_secret_name(key))
        {
            let told =
                format!("has the parameter {key:?}, which has the name of a secret and would be stored as plain text");
            return Err(problem("url", told, "send it as a header, with ${NAME} instead of the value"));
        }
        Ok(())
    }
}

/// Two servers of one name could not be told apart. With each name goes how much the server takes.
pub fn check_all<'a>(servers: impl Iterator<Item = (&'a str, usize)>) -> Result<(), String> {
    let (mut seen, mut bytes) = (BTreeSet::new(), 0);
    for (name, weight) in servers {
        if !seen.insert(name) {
            return Err(format!("{name:?} appears twice"));
        }
        bytes += name.len() + weight;
    }
    if seen.len() > SERVERS_MAX {
        return Err(format!("must be at most {SERVERS_MAX}"));
    }
    if bytes > ALL_BYTES_MAX { Err(format!("have more than {ALL_BYTES_MAX} bytes together")) } else { Ok(()) }
}

pub fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Whether all of a value is references, with no more than a scheme beside them.
pub fn only_refers(value: &str) -> bool {
    let refers = reference::names(value).is_some_and(|names| !names.is_empty());
    refers && is_scheme(reference::literals(value).collect::<String>().trim())
}

/// What stands before a secret and is none: `Bearer`, `token`, or nothing.
fn is_scheme(text: &str) -> bool {
    text.len() <= SCHEME_BYTES_MAX && text.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '=' | ':'))
}

fn problem(field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> ServerProblem {
    ServerProblem { field: field.into(), problem: problem.into(), hint: hint.into() }
}

fn check<'a>(
    name: &str,
    transport: &Transport,
    values: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), ServerProblem> {
    if !is_name(name) {
        let hint = format!("use 1 to {NAME_CHARS_MAX} letters, digits, '_' and '-'");
        return Err(problem("", "is not a valid name for an MCP server", hint));
    }
    match transport {
        Transport::Stdio { command, args } => check_command(command, args)?,
        Transport::Http { url } | Transport::Sse { url } => {
            if url.len() > URL_BYTES_MAX {
                return Err(problem("url", format!("is longer than {URL_BYTES_MAX} bytes"), "give a shorter URL"));
            }
            address::check(url).map_err(|(told, hint)| problem("url", told, hint))?;
        }
    }
    let (field, is_stdio) = (transport.values_field(), matches!(transport, Transport::Stdio { .. }));
    let mut seen = BTreeSet::new();
    for (count, (key, value)) in values.enumerate() {
        if count >= VALUES_MAX {
            return Err(problem(field, format!("has more than {VALUES_MAX} entries"), "remove some entries"));
        }
        // A name that is none may be a key in the wrong place, and is not told back.
        let is_key = if is_stdio { reference::is_variable(key) } else { is_header(key) };
        if !is_key || key.len() > KEY_BYTES_MAX {
            let hint = "write { NAME = \"value\" } with a valid name of a variable or a header";
            return Err(problem(field, "has an invalid name", hint));
        }
        if !is_stdio && !seen.insert(key.to_ascii_lowercase()) {
            return Err(problem(
                format!("{field}.{key}"),
                "appears twice, in upper and lower case",
                "remove one of them",
            ));
        }
        let is_text = |c: char| if is_stdio { c != '\0' } else { !c.is_control() };
        if value.len() > TEXT_BYTES_MAX || !value.chars().all(is_text) {
            let hint = format!("give a string of at most {TEXT_BYTES_MAX} bytes without control characters");
            return Err(problem(format!("{field}.{key}"), "is too long, or has a character that is not allowed", hint));
        }
        if reference::names(value).is_none() {
            let hint = "write ${NAME} with the name of a variable of the agent's environment";
            return Err(problem(format!("{field}.{key}"), "has a ${ that does not start a ${NAME}", hint));
        }
    }
    Ok(())
}

fn check_command(command: &str, args: &[String]) -> Result<(), ServerProblem> {
    let is_text = |text: &str| text.len() <= TEXT_BYTES_MAX && !text.contains('\0');
    if command.trim().is_empty() || !is_text(command) || command.chars().any(char::is_control) || command.contains("${")
    {
        let hint = "give the program that speaks MCP on its standard input and output";
        return Err(problem("command", "is missing or not valid", hint));
    }
    if args.len() > ARGS_MAX || !args.iter().all(|argument| is_text(argument)) {
        let told = format!("are more than {ARGS_MAX}, or one is longer than {TEXT_BYTES_MAX} bytes or has a zero byte");
        return Err(problem("args", told, "put longer values into a file"));
    }
    Ok(())
}

/// What RFC 9110 calls a token.
fn is_header(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

#[cfg(test)]
mod tests;
