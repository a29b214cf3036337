//! Advice for an agent that is not signed in although this shell has a key for it.

use crate::control::wire::Agent;

use super::command::agents::path;
use super::connection::Daemon;

/// What to do when this shell has variables that the agent's profile passes on, and the daemon was started without them.
pub async fn advice(daemon: &Daemon, agent: &str) -> Option<String> {
    let agent: Agent = daemon.get(&path(agent)).await.ok()?;
    let is_here = |name: &&String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let names: Vec<&str> = agent.env_unset.iter().filter(is_here).map(String::as_str).collect();
    let them = if names.len() == 1 { "it" } else { "them" };
    (!names.is_empty()).then(|| {
        format!(
            "this shell has {}, but the daemon was started without {them}: run `acpd stop` and try again, or store a key with \
             `acpd agents key {}`",
            names.join(" and "),
            agent.base.unwrap_or(agent.slug)
        )
    })
}
