//! A session's MCP servers: which it has, what people are told of them, and who of them may be keeping the agent waiting.

use std::path::PathBuf;

use super::actor::SessionActor;
use super::handshake::Handshake;
use crate::agent::mcp;
use crate::agent::tools::ToolsSocket;
use crate::agent::{Command, CommandError, NoProgram, OpenWorkspace, Process, SpawnError};
use crate::model::mcp::{ChosenServer, ReadyServer, TOOLS, Transport};

const NOTICE: &str = "mcp_servers";

#[derive(Debug)]
pub struct Servers {
    /// Nothing: all of the profile's.
    chosen: Option<Vec<ChosenServer>>,
    /// What people were told last, so that they are not told again with every process.
    told: [Option<String>; 2],
}

/// What was started.
pub struct Spawned {
    pub process: Process,
    pub servers: Vec<ReadyServer>,
    /// Kept for as long as the process.
    pub tools: Option<ToolsSocket>,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug)]
enum Matter {
    Gathering,
    Abilities,
}

impl Servers {
    pub fn new(chosen: Option<Vec<ChosenServer>>) -> Self {
        Self { chosen, told: [None, None] }
    }
}

impl SessionActor {
    /// Starts the process. Its MCP servers are put together first, and what is wrong with them is told before the agent runs.
    pub(super) fn spawn(
        &mut self,
        program: Result<PathBuf, NoProgram>,
        workspace: OpenWorkspace,
    ) -> Result<Spawned, SpawnError> {
        let mut command = self.start().command(program.map_err(CommandError::from)?, &self.profile, workspace)?;
        let (socket, tools, mut warnings) = self.open_tools(&command);
        if let Some(socket) = &socket {
            command = command.showing(socket.path());
        }
        let ready = self.start().servers(&command, &self.profile, self.servers.chosen.as_deref(), tools)?;
        warnings.extend(ready.warnings);
        self.tell_of_servers(Matter::Gathering, &warnings.join("; "));
        let (bounds, secrets) = (self.shared.bounds(), self.shared.hub.secrets(self.owner_uid));
        let process = Process::spawn(&command, bounds, secrets, &self.shared.host)?;
        Ok(Spawned { process, servers: ready.servers, tools: socket })
    }

    /// acpd's own tools, where the session has them. An agent that cannot have them works without.
    fn open_tools(&self, command: &Command) -> (Option<ToolsSocket>, Option<Transport>, Vec<String>) {
        let config = self.shared.config();
        let current = self.profile.configured(&config.agents);
        if !mcp::has_tools(&self.profile, self.servers.chosen.as_deref(), current) {
            return (None, None, Vec::new());
        }
        match self.start().tools(command) {
            Ok((socket, transport)) => (Some(socket), Some(transport), Vec::new()),
            Err(why) => (None, None, vec![format!("omitted {}: {why}", mcp::servers(&[TOOLS]))]),
        }
    }

    /// What the agent says it cannot reach it is not given.
    pub(super) fn leave_out_servers(&mut self) {
        let Some(handshake) = self.link.handshake_mut() else { return };
        let left_out = left_out(handshake);
        self.tell_of_servers(Matter::Abilities, &left_out);
    }

    fn tell_of_servers(&mut self, matter: Matter, text: &str) {
        let told = &mut self.servers.told[matter as usize];
        if told.as_deref().unwrap_or_default() == text {
            return;
        }
        *told = Some(text.to_owned());
        if !text.is_empty() {
            tracing::warn!(text, "problems with the MCP servers of a session");
            self.notice(None, NOTICE, text);
        }
    }
}

/// Takes out what the agent does not reach, and tells what that was.
fn left_out(handshake: &mut Handshake) -> String {
    let (abilities, servers) = (handshake.abilities().mcp, std::mem::take(&mut handshake.servers));
    let (kept, left_out) = reachable(servers, |server| abilities.reach(&server.transport));
    handshake.servers = kept;
    left_out
}

/// Those that the agent reaches, and what is told of the others.
pub fn reachable(servers: Vec<ReadyServer>, reaches: impl Fn(&ReadyServer) -> bool) -> (Vec<ReadyServer>, String) {
    let (kept, others): (Vec<_>, Vec<_>) = servers.into_iter().partition(reaches);
    let shown: Vec<String> =
        others.iter().map(|server| format!("{} ({})", server.name, server.transport.kind())).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let told = match shown.as_slice() {
        [] => String::new(),
        shown => format!("omitted {}: the agent does not announce support for such servers", mcp::servers(shown)),
    };
    (kept, told)
}

/// What an agent may be waiting for that does not answer a request for a conversation.
pub fn suspicion(servers: &[ReadyServer]) -> String {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    match names.as_slice() {
        [] => "it may be starting MCP servers from its own settings".to_owned(),
        [name] => format!("it may be waiting for the MCP server {name}"),
        names => format!("it may be waiting for one of the MCP servers {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, transport: Transport) -> ReadyServer {
        ReadyServer { name: name.to_owned(), transport, values: vec![] }
    }

    #[test]
    fn whoever_may_be_waited_for_is_named() {
        let stdio = |name| server(name, Transport::Stdio { command: "x".to_owned(), args: vec![] });
        assert!(suspicion(&[]).contains("its own settings"));
        assert!(suspicion(&[stdio("a")]).ends_with("the MCP server a"));
        assert!(suspicion(&[stdio("a"), stdio("b"), stdio("c")]).ends_with("one of the MCP servers a, b, c"));
    }

    #[test]
    fn what_an_agent_does_not_reach_is_left_out_and_named() {
        let url = || "https://a.example".to_owned();
        let servers = vec![server("a", Transport::Http { url: url() }), server("b", Transport::Sse { url: url() })];
        let (kept, told) = reachable(servers.clone(), |server| server.name == "a");
        assert_eq!(kept.len(), 1);
        assert!(told.starts_with("omitted the MCP server b (sse):"), "{told}");
        assert_eq!(reachable(servers, |_| true).1, "");
    }
}
