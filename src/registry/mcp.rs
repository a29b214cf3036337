//! Which MCP servers a session may have: those of its profile, and others where the profile allows that.

use crate::model::AgentProfile;
use crate::model::mcp::{ChosenServer, OwnServer, TOOLS};

#[derive(Debug, thiserror::Error)]
pub enum McpRefusal {
    #[error("the agent {agent:?} has no MCP server {name:?}")]
    Unknown { agent: String, index: usize, name: String, known: Vec<String> },
    #[error("the agent {agent:?} does not allow sessions to add MCP servers such as {name:?}")]
    NotAllowed { agent: String, name: String },
    #[error("the MCP server {name:?} is at {host}, which is on this machine or its local network")]
    PrivateUrl { agent: String, name: String, host: String },
    #[error("the agent {agent:?} does not give acpd's own tools to its sessions")]
    NoTools { agent: String },
    #[error("{TOOLS:?} is the name of acpd's own MCP server, which the agent {agent:?} uses")]
    Reserved { agent: String, index: usize },
}

/// What a session has that asks for these; nothing: all of its profile's. What a profile of the API brings along is a session's
/// own as well, and is subject to what its base allows today.
pub fn chosen(
    profile: &AgentProfile,
    asked: Option<Vec<ChosenServer>>,
) -> Result<Option<Vec<ChosenServer>>, McpRefusal> {
    let Some(asked) = asked else {
        let own: Vec<ChosenServer> = profile.own_servers.iter().cloned().map(ChosenServer::Own).collect();
        if profile.base.is_some() {
            check(profile, &own)?;
        }
        let tools = profile.acpd_tools.then(|| TOOLS.to_owned());
        let named = profile.mcp_servers.keys().cloned().chain(tools).map(ChosenServer::Named);
        return Ok((!own.is_empty()).then(|| named.chain(own).collect()));
    };
    check(profile, &asked)?;
    let taken = asked.into_iter().map(|server| match server {
        ChosenServer::Named(name) => {
            brought(profile, &name).cloned().map_or(ChosenServer::Named(name), ChosenServer::Own)
        }
        own @ ChosenServer::Own(_) => own,
    });
    Ok(Some(taken.collect()))
}

fn brought<'a>(profile: &'a AgentProfile, name: &str) -> Option<&'a OwnServer> {
    profile.own_servers.iter().find(|own| own.name == name)
}

/// The profile's own servers are its admin's word, wherever they are.
pub fn check(profile: &AgentProfile, chosen: &[ChosenServer]) -> Result<(), McpRefusal> {
    chosen.iter().enumerate().try_for_each(|(index, server)| match server {
        ChosenServer::Named(name) if profile.mcp_servers.contains_key(name) => Ok(()),
        ChosenServer::Named(name) if profile.acpd_tools && name == TOOLS => Ok(()),
        ChosenServer::Named(name) => match brought(profile, name) {
            // One with a command of its own was written by whoever could write the configuration.
            Some(own) if profile.base.is_some() => check_own(profile, own),
            Some(_) => Ok(()),
            None => {
                let own = profile.own_servers.iter().map(|own| own.name.clone());
                let known = profile.freeze().mcp_servers.into_iter().map(|server| server.name).chain(own).collect();
                Err(McpRefusal::Unknown { agent: profile.section().to_owned(), index, name: name.clone(), known })
            }
        },
        ChosenServer::Own(own) if profile.acpd_tools && own.name == TOOLS => {
            Err(McpRefusal::Reserved { agent: profile.slug.clone(), index })
        }
        ChosenServer::Own(own) => check_own(profile, own),
    })
}

fn check_own(profile: &AgentProfile, own: &OwnServer) -> Result<(), McpRefusal> {
    let (agent, name) = (profile.section().to_owned(), own.name.clone());
    if !profile.mcp_servers_allowed {
        return Err(McpRefusal::NotAllowed { agent, name });
    }
    match own.private_host() {
        Some(host) if !profile.mcp_private_urls => Err(McpRefusal::PrivateUrl { agent, name, host }),
        Some(_) | None => Ok(()),
    }
}
