//! Advice for an agent that is not signed in although this shell has a key for it.

use crate::control::wire::Agent;

use super::command::agents::path;
use super::connection::Daemon;
use super::context::Context;

/// What to do when this shell has variables that the agent's profile passes on, and the daemon was started without them.
pub async fn advice(context: &Context, daemon: &Daemon, agent: &str) -> Option<String> {
    let agent: Agent = daemon.get(&path(agent)).await.ok()?;
    let is_here = |name: &&String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let names: Vec<&str> = agent.env_unset.iter().filter(is_here).map(String::as_str).collect();
    let them = if names.len() == 1 { "it" } else { "them" };
    let restart = if context.hands_over_variables() { "run `acpd stop` and try again, or " } else { "" };
    let slug = agent.base.unwrap_or(agent.slug);
    let key = format!("store a key with `acpd agents key {slug} --variable {}`", names.first()?);
    let names = names.join(" and ");
    Some(format!("this shell has {names}, but the daemon was started without {them}: {restart}{key}"))
}
