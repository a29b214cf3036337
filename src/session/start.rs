//! What a process is started with: its command line, its environment, the user it runs as, and what holds it. One way for
//! all, so that an agent that is only tried meets exactly what it would meet in a session.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Shared;
use crate::agent::confine::Wish;
use crate::agent::mcp::{self, ReadyServers, Surroundings};
use crate::agent::tools::ToolsSocket;
use crate::agent::{self, Command, CommandError, OpenWorkspace, Persona, SpawnError};
use crate::config::{HomePaths, SELF_COMMAND};
use crate::model::agent::FrozenProfile;
use crate::model::mcp::{ChosenServer, Transport, of_session};
use crate::model::{Adapter, FsScope, SessionId};

pub struct Start<'a> {
    pub shared: &'a Shared,
    pub session: SessionId,
    /// The owner, as the user database has them.
    pub persona: &'a Persona,
    pub workspace: &'a Path,
    pub scope: FsScope,
    pub is_read_only: bool,
    /// The names of the profile's own part of the environment.
    pub env_names: &'a [String],
    /// The agent's name for the conversation that it is to be asked to restore.
    pub conversation: Option<&'a str>,
}

impl<'a> Start<'a> {
    /// The agent's command, whole.
    pub fn command(
        &self,
        program: PathBuf,
        profile: &FrozenProfile,
        workspace: OpenWorkspace,
    ) -> Result<Command, SpawnError> {
        let (config, environment) = (self.shared.config(), self.inherited_environment());
        let current = profile.configured(&config.agents);
        let mut command = Command::new(self.session, program, profile, current, workspace, &environment)?;
        if let Some(variable) = profile.adapter.quirks().ask_variable
            && !command.environment.contains_key(variable)
        {
            let asks = self.persona.run(|| agent::opencode_permissions(&command.environment, self.workspace));
            command.environment.insert(variable.to_owned(), asks.unwrap_or_default());
        }
        let command = match self.persona.account() {
            Some(account) => command.owned_by(account),
            None => command,
        };
        self.confined(command, profile, profile.adapter)
    }

    /// The MCP servers of the conversation that this command's agent is to have.
    pub fn servers(
        &self,
        command: &Command,
        profile: &FrozenProfile,
        chosen: Option<&[ChosenServer]>,
        tools: Option<Transport>,
    ) -> Result<ReadyServers, SpawnError> {
        if of_session(&profile.mcp_servers, chosen).is_empty() {
            return Ok(ReadyServers::default());
        }
        let directories = &self.shared.host.directories;
        let own = directories.make(self.session, command.owner.as_ref()).map_err(SpawnError::Directories)?;
        let [home, tmp] = own.places();
        let places = [(agent::WORKSPACE, self.workspace.to_string_lossy().into_owned()), home, tmp];
        let surroundings = Surroundings { environment: &command.environment, places, tools };
        let path = command.environment.get("PATH").map(String::as_str).unwrap_or_default();
        // As the owner, who may run more than others, or less.
        let find = |program: &str| {
            // What stands for acpd itself stands for the agent there.
            let found = (program != SELF_COMMAND).then(|| self.persona.run(|| agent::find_program(program, path)).ok());
            found.flatten().flatten()
        };
        let config = self.shared.config();
        let current = profile.configured(&config.agents);
        Ok(mcp::gather(profile, chosen, current, &surroundings, find).map_err(CommandError::from)?)
    }

    /// Opens the socket of acpd's own tools for this command's agent, and tells what the agent is to start for them.
    pub fn tools(&self, command: &Command) -> Result<(ToolsSocket, Transport), String> {
        // As the owner, who has to be able to start it.
        let program = self.persona.run(agent::own_path).ok().flatten();
        let program = program.ok_or("the session's owner cannot execute acpd's program file")?;
        let directories = &self.shared.host.directories;
        let opened = directories
            .make(self.session, command.owner.as_ref())
            .and_then(|own| ToolsSocket::open(&own, self.session, command.owner.as_ref(), &self.shared.tools));
        let socket = opened.map_err(|error| format!("cannot create their socket: {error}"))?;
        let transport = mcp::tools(&program, socket.path());
        Ok((socket, transport))
    }

    /// What of the daemon's environment there is to choose from. Another user's agents get nothing of root's own.
    pub fn inherited_environment(&self) -> Cow<'a, BTreeMap<String, String>> {
        let daemons = &self.shared.environment;
        self.persona.account().map_or(Cow::Borrowed(daemons), |account| Cow::Owned(account.environment(daemons)))
    }

    /// A command with the session's own directories, confined as the scope demands. What an agent keeps in its home is not for
    /// what it runs in terminals, which have the generic adapter.
    pub fn confined(&self, command: Command, profile: &FrozenProfile, adapter: Adapter) -> Result<Command, SpawnError> {
        let directories = &self.shared.host.directories;
        let own = directories.make(self.session, command.owner.as_ref()).map_err(SpawnError::Directories)?;
        let command = command.with_directories(&own, self.env_names);
        let (config, home) = (self.shared.config(), self.home_of(&command));
        let current = profile.configured(&config.agents);
        let shown = current.map(|current| HomePaths::new(&current.sandbox_show));
        let wish = Wish {
            scope: self.scope,
            workspace: self.workspace,
            is_read_only: self.is_read_only,
            sandbox: &config.sandbox,
            extra: &config.workspace.extra,
            shown: &shown.unwrap_or_default(),
            home: &home,
            path: command.environment.get("PATH").map(String::as_str).unwrap_or_default(),
            places: &self.shared.places,
            own: &own,
        };
        if wish.scope_in_force() != wish.scope {
            tracing::warn!("sandbox.allow_full no longer allows the session's scope; reducing it to project");
        }
        let command = match wish.confinement()? {
            Some(confinement) => command.confined(confinement, &own),
            None => command,
        };
        let home_copy = current.map(|current| current.home_copy.as_slice()).unwrap_or_default();
        Ok(command.at_home(&own, adapter, home_copy, self.conversation.map(str::to_owned)))
    }

    /// The home of the user that the command runs as. That of another user is what the user database says, whatever the
    /// profile has put in its place: what is hidden there is hidden.
    fn home_of(&self, command: &Command) -> PathBuf {
        if let Some(account) = self.persona.account() {
            return account.home.clone();
        }
        command.environment.get("HOME").map_or_else(|| self.shared.home.clone(), PathBuf::from)
    }
}
