//! The MCP servers that an agent is given when its process starts: where they are as the session has kept it, and their
//! values as they are today.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::command::fill;
use crate::model::agent::FrozenProfile;
use crate::model::mcp::{
    self, ChosenServer, FrozenServer, OwnServer, ReadyServer, SessionServer, Transport, reference,
};
use crate::model::{AgentProfile, Secret};

/// Those of one process, and what people should know of them.
#[derive(Debug, Default)]
pub struct ReadyServers {
    pub servers: Vec<ReadyServer>,
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the MCP server {server:?} uses ${{{name}}} in {key}, but the agent's environment has no {name}; add it with env, \
        env_file, credentials or env_pass of the profile {agent:?}"
)]
pub struct UnsetReference {
    agent: String,
    server: String,
    key: String,
    name: String,
}

/// What the start of one process has for its servers.
pub struct Surroundings<'a> {
    /// The agent's own.
    pub environment: &'a BTreeMap<String, String>,
    /// Placeholders, and what they stand for.
    pub places: [(&'static str, String); 3],
    /// acpd's own server, where there is a socket for it.
    pub tools: Option<Transport>,
}

/// Puts the servers of a session together. `find` gives the file that a command stands for.
pub fn gather(
    frozen: &FrozenProfile,
    chosen: Option<&[ChosenServer]>,
    current: Option<&AgentProfile>,
    surroundings: &Surroundings<'_>,
    find: impl Fn(&str) -> Option<PathBuf>,
) -> Result<ReadyServers, UnsetReference> {
    let mut ready = ReadyServers::default();
    let (mut gone, mut withdrawn) = (Vec::new(), Vec::new());
    for server in mcp::of_session(&frozen.mcp_servers, chosen) {
        let (name, transport, values) = match server {
            SessionServer::Profile(server) if server.is_tools(frozen.acpd_tools) => {
                let ready_tools = |transport| ReadyServer { name: server.name.clone(), transport, values: Vec::new() };
                ready.servers.extend(surroundings.tools.clone().map(ready_tools));
                continue;
            }
            SessionServer::Profile(server) => {
                let Some(values) = todays_values(server, current) else {
                    gone.push(server.name.as_str());
                    continue;
                };
                (&server.name, &server.transport, values)
            }
            SessionServer::Own(server) if !current.is_none_or(|profile| is_allowed(profile, server)) => {
                withdrawn.push(server.name.as_str());
                continue;
            }
            SessionServer::Own(server) => {
                let values = server.values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                (&server.name, &server.transport, values)
            }
        };
        let (transport, warning) = surroundings.settled(name, transport, &find);
        ready.warnings.extend(warning);
        let values = values.into_iter().map(|(key, value)| {
            let unset = |missing| UnsetReference {
                agent: frozen.slug.clone(),
                server: name.clone(),
                key: format!("{}.{key}", transport.values_field()),
                name: missing,
            };
            surroundings.resolved(&transport, value).map_err(unset).map(|value| (key.to_owned(), Secret::from(value)))
        });
        let values = values.collect::<Result<_, _>>()?;
        ready.servers.push(ReadyServer { name: name.clone(), transport, values });
    }
    if !gone.is_empty() {
        ready.warnings.push(format!(
            "omitted {}: the profile {:?} no longer defines it, or gives its values to another address",
            servers(&gone),
            frozen.slug
        ));
    }
    if !withdrawn.is_empty() {
        ready.warnings.push(format!(
            "omitted {}: the profile {:?} no longer allows sessions to add such servers",
            servers(&withdrawn),
            frozen.slug
        ));
    }
    Ok(ready)
}

/// Whether a session is to have acpd's own server. Like all of the profile's it can be left out when a session is made; and one
/// that the profile has no more is not given.
pub fn has_tools(frozen: &FrozenProfile, chosen: Option<&[ChosenServer]>, current: Option<&AgentProfile>) -> bool {
    let servers = mcp::of_session(&frozen.mcp_servers, chosen);
    let is_tools =
        |server: &SessionServer<'_>| matches!(server, SessionServer::Profile(one) if one.is_tools(frozen.acpd_tools));
    current.is_none_or(|profile| profile.acpd_tools) && servers.iter().any(is_tools)
}

/// What an agent is told of acpd's own server: this program, and its socket.
pub fn tools(program: &Path, socket: &Path) -> Transport {
    let socket = socket.to_string_lossy().into_owned();
    let args = vec![mcp::TOOLS_ARGUMENT.to_owned(), "--socket".to_owned(), socket];
    Transport::Stdio { command: program.to_string_lossy().into_owned(), args }
}

/// Whether a session of this profile may bring this server.
fn is_allowed(profile: &AgentProfile, server: &OwnServer) -> bool {
    profile.mcp_servers_allowed && (profile.mcp_private_urls || server.private_host().is_none())
}

/// In words.
pub fn servers(names: &[&str]) -> String {
    match names {
        [name] => format!("the MCP server {name}"),
        names => format!("the MCP servers {}", names.join(", ")),
    }
}

/// The values that today's profile has for the server; nothing when it has the server no more, or another one under its name:
/// what was written for one place is not sent to another. A server without values needs nobody's.
fn todays_values<'a>(server: &FrozenServer, current: Option<&'a AgentProfile>) -> Option<Vec<(&'a str, &'a str)>> {
    if server.value_names.is_empty() {
        return Some(Vec::new());
    }
    let today = current?.mcp_servers.get(&server.name)?;
    if today.transport != server.transport {
        return None;
    }
    let values = today.values.iter().filter(|(key, _)| server.value_names.contains(key));
    Some(values.map(|(key, value)| (key.as_str(), value.reveal())).collect())
}

impl Surroundings<'_> {
    /// With the placeholders filled in. The protocol wants the whole path of a program; one that is not found is told of,
    /// and left to the agent.
    fn settled(
        &self,
        name: &str,
        transport: &Transport,
        find: impl Fn(&str) -> Option<PathBuf>,
    ) -> (Transport, Option<String>) {
        let Transport::Stdio { command, args } = transport else { return (transport.clone(), None) };
        let args = args.iter().map(|argument| fill(argument, &self.places)).collect();
        let found = find(command).and_then(|program| program.into_os_string().into_string().ok());
        let warning = found.is_none().then(|| {
            let told = format!("the command {command:?} of the MCP server {name}");
            if command.contains('/') && !command.starts_with('/') {
                format!("{told} is a relative path, which depends on the workspace; give an absolute path")
            } else {
                format!("{told} was not found on the session's PATH")
            }
        });
        (Transport::Stdio { command: found.unwrap_or_else(|| command.clone()), args }, warning)
    }

    /// A value with its references replaced. Placeholders are of variables only: a header has no use for a path.
    fn resolved(&self, transport: &Transport, value: &str) -> Result<String, String> {
        let fill = |text: &str| match transport {
            Transport::Stdio { .. } => fill(text, &self.places),
            Transport::Http { .. } | Transport::Sse { .. } => text.to_owned(),
        };
        reference::resolve(value, fill, |name| self.environment.get(name).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::mcp::ProfileServer;

    fn profile() -> AgentProfile {
        let stdio = Transport::Stdio {
            command: "mcp".to_owned(),
            args: vec!["{workspace}/x".to_owned(), "{home}:{tmp}".to_owned(), "${KEY}".to_owned()],
        };
        let values = [("TOKEN", "${KEY}"), ("USERS", "${home}"), ("WHERE", "{tmp}/x")]
            .map(|(key, value)| (key.to_owned(), value.into()));
        let headers = BTreeMap::from([("Authorization".to_owned(), Secret::from("Bearer ${KEY}"))]);
        let url = "https://a.example/{tmp}".to_owned();
        AgentProfile {
            mcp_servers: BTreeMap::from([
                ("a".to_owned(), ProfileServer { transport: stdio, values: values.into() }),
                ("b".to_owned(), ProfileServer { transport: Transport::Http { url }, values: headers }),
                (
                    "c".to_owned(),
                    ProfileServer {
                        transport: Transport::Sse { url: "https://c.example".to_owned() },
                        values: BTreeMap::new(),
                    },
                ),
            ]),
            ..AgentProfile::new("x")
        }
    }

    fn gathered(
        frozen: &FrozenProfile,
        chosen: Option<&[ChosenServer]>,
        current: Option<&AgentProfile>,
    ) -> Result<ReadyServers, String> {
        let environment = [("KEY", "k-{tmp}-${KEY}"), ("home", "of the user")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let places = [("{workspace}", "/w".to_owned()), ("{home}", "/h".to_owned()), ("{tmp}", "/t".to_owned())];
        let tools = Some(tools(Path::new("/bin/acpd"), Path::new("/s/tools.sock")));
        let surroundings = Surroundings { environment: &environment, places, tools };
        let find = |command: &str| (command == "mcp").then(|| PathBuf::from("/usr/bin/mcp"));
        gather(frozen, chosen, current, &surroundings, find).map_err(|error| error.to_string())
    }

    fn names(ready: &ReadyServers) -> Vec<&str> {
        ready.servers.iter().map(|server| server.name.as_str()).collect()
    }

    #[test]
    fn places_and_values_are_filled_in_once() {
        let profile = profile();
        let ready = gathered(&profile.freeze(), None, Some(&profile)).unwrap();
        assert_eq!(names(&ready), ["a", "b", "c"]);
        assert!(ready.warnings.is_empty(), "{:?}", ready.warnings);
        let args = ["/w/x", "/h:/t", "${KEY}"].map(str::to_owned).into();
        assert_eq!(ready.servers[0].transport, Transport::Stdio { command: "/usr/bin/mcp".to_owned(), args });
        let values: Vec<&str> = ready.servers[0].values.iter().map(|(_, value)| value.reveal()).collect();
        assert_eq!(
            values,
            ["k-{tmp}-${KEY}", "of the user", "/t/x"],
            "what a reference stands for is not looked at again"
        );
        assert_eq!(ready.servers[1].values[0].1.reveal(), "Bearer k-{tmp}-${KEY}");
        assert_eq!(ready.servers[1].transport, Transport::Http { url: "https://a.example/{tmp}".to_owned() });
        assert!(!format!("{ready:?}").contains("k-{tmp}"), "nobody sees a value by accident");
    }

    #[test]
    fn values_are_those_of_today_and_of_the_same_place() {
        let before = profile();
        let frozen = before.freeze();
        let mut today = profile();
        today.mcp_servers.get_mut("a").unwrap().values = BTreeMap::from([
            ("TOKEN".to_owned(), Secret::from("new")),
            ("ADDED".to_owned(), Secret::from("not frozen")),
        ]);
        today.mcp_servers.get_mut("b").unwrap().transport = Transport::Http { url: "https://other.example".to_owned() };
        let ready = gathered(&frozen, None, Some(&today)).unwrap();
        assert_eq!(names(&ready), ["a", "c"]);
        assert_eq!(ready.servers[0].values, [("TOKEN".to_owned(), Secret::from("new"))]);
        assert!(ready.warnings[0].starts_with("omitted the MCP server b:"), "{:?}", ready.warnings);

        let orphan = gathered(&frozen, None, None).unwrap();
        assert_eq!(names(&orphan), ["c"], "one without values needs no profile");
        assert!(orphan.warnings[0].starts_with("omitted the MCP servers a, b:"), "{:?}", orphan.warnings);
    }

    #[test]
    fn a_reference_that_is_not_set_is_told_by_server_key_and_name() {
        let own = OwnServer {
            name: "mine".to_owned(),
            transport: Transport::Stdio { command: "no-such".to_owned(), args: vec![] },
            values: BTreeMap::from([("TOKEN".to_owned(), "${OTHER}".to_owned())]),
        };
        let frozen = profile().freeze();
        let told = gathered(&frozen, Some(&[ChosenServer::Own(own.clone())]), None).unwrap_err();
        assert!(["\"mine\"", "${OTHER}", "env.TOKEN", "env_file"].iter().all(|part| told.contains(part)), "{told}");
        let own = OwnServer { values: BTreeMap::new(), ..own };
        let ready = gathered(&frozen, Some(&[ChosenServer::Own(own)]), None).unwrap();
        assert_eq!(names(&ready), ["mine"], "what is not found is given to the agent all the same");
        assert!(ready.warnings[0].contains("\"no-such\" of the MCP server mine"), "{:?}", ready.warnings);
    }

    #[test]
    fn acpds_own_server_is_there_unless_it_is_left_out_or_the_profile_has_it_no_more() {
        let with = AgentProfile { acpd_tools: true, ..profile() };
        let frozen = with.freeze();
        let ready = gathered(&frozen, None, Some(&with)).unwrap();
        assert_eq!(names(&ready), ["a", "b", "c", "acpd"]);
        let args = ["mcp", "--socket", "/s/tools.sock"].map(str::to_owned).into();
        assert_eq!(ready.servers[3].transport, Transport::Stdio { command: "/bin/acpd".to_owned(), args });
        let named = |name: &str| [ChosenServer::Named(name.to_owned())];
        for (chosen, current, expected) in [
            (None, Some(&with), true),
            (Some(named("acpd")), Some(&with), true),
            (Some(named("c")), Some(&with), false),
            (None, Some(&profile()), false),
            (None, None, true),
        ] {
            let chosen = chosen.as_ref().map(<[_; 1]>::as_slice);
            assert_eq!(has_tools(&frozen, chosen, current), expected, "{chosen:?}");
        }
        assert!(!has_tools(&profile().freeze(), None, Some(&with)), "a session keeps what it was made with");
    }

    #[test]
    fn what_a_profile_does_not_allow_any_more_is_left_out() {
        let url = |host: &str| Transport::Http { url: format!("https://{host}/") };
        let own = |name: &str, host: &str| {
            ChosenServer::Own(OwnServer { name: name.to_owned(), transport: url(host), values: BTreeMap::new() })
        };
        let (chosen, frozen) = ([own("out", "a.example"), own("in", "localhost")], profile().freeze());
        let today =
            |mcp_servers_allowed, mcp_private_urls| AgentProfile { mcp_servers_allowed, mcp_private_urls, ..profile() };
        for (profile, expected) in [
            (Some(today(true, true)), vec!["out", "in"]),
            (Some(today(true, false)), vec!["out"]),
            (Some(today(false, true)), vec![]),
            (None, vec!["out", "in"]),
        ] {
            let ready = gathered(&frozen, Some(&chosen), profile.as_ref()).unwrap();
            assert_eq!(names(&ready), expected);
            assert_eq!(ready.warnings.is_empty(), expected.len() == 2, "{:?}", ready.warnings);
        }
    }
}
