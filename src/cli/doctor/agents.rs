//! Which agents there are, and whether they work. The default one is tried, because that is whom people talk to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Patient, Running, Trials, environment};
use crate::agent::find_agent;
use crate::cli::command::agents::{checked, finding};
use crate::cli::findings::{Finding, Status};
use crate::config::Config;
use crate::control::wire::{Agent, AgentList, CheckAgent};
use crate::model::error::chain;

/// How long one agent may take. A person waits for it.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// An agent as far as both the daemon and we can know it.
struct Known {
    slug: String,
    name: String,
    path: Option<String>,
    install_hint: String,
    is_default: bool,
}

pub async fn look(patient: &Patient<'_>, trials: Trials) -> Vec<Finding> {
    let known = match &patient.running {
        Ok(running) => match running.daemon.get::<AgentList>("/v1/agents?limit=1000").await {
            Ok(list) => list.agents.into_iter().map(of_daemon).collect(),
            Err(error) => return vec![Finding::problem("list", chain(&error), error.hint())],
        },
        Err(_) => match &patient.config {
            Ok(config) => from_here(config),
            Err(_) => return vec![Finding::note("list", "unknown until the configuration is corrected", "")],
        },
    };
    let is_tried = |agent: &&Known| match trials {
        Trials::All => agent.path.is_some(),
        Trials::Default => agent.path.is_some() && agent.is_default,
        Trials::None => false,
    };
    let tried: Vec<String> = match &patient.running {
        Ok(_) => known.iter().filter(is_tried).map(|agent| agent.slug.clone()).collect(),
        Err(_) => Vec::new(),
    };
    let mut seen = match &patient.running {
        Ok(running) => trial(patient, running, &tried, &known).await,
        Err(_) => BTreeMap::new(),
    };
    let mut found = Vec::new();
    // The default comes first, then what is there.
    let (default, others): (Vec<&Known>, Vec<&Known>) = known.iter().partition(|agent| agent.is_default);
    for agent in default.into_iter().chain(others) {
        found.extend(seen.remove(&agent.slug).or_else(|| untried(patient, agent, &known)));
    }
    found.extend(missing(&known));
    found
}

fn of_daemon(agent: Agent) -> Known {
    let path = agent.path.or_else(|| agent.installed.then_some(agent.command));
    let (slug, name, install_hint) = (agent.slug, agent.name, agent.install_hint);
    Known { slug, name, path, install_hint, is_default: agent.default }
}

/// As a daemon that is started from here would find them.
fn from_here(config: &Config) -> Vec<Known> {
    let environment = environment();
    let agents = config.agents.values();
    let known = agents.map(|profile| Known {
        slug: profile.slug.clone(),
        name: profile.name.clone(),
        path: find_agent(&profile.command, &environment).ok().map(|path| path.display().to_string()),
        install_hint: profile.how_to_install(),
        is_default: config.sessions.agent == profile.slug,
    });
    known.collect()
}

/// What a trial says. Only the default agent's failure is a problem: whoever has the others installed may not use them.
async fn trial(
    patient: &Patient<'_>,
    running: &Running,
    names: &[String],
    known: &[Known],
) -> BTreeMap<String, Finding> {
    let request = CheckAgent { session: true, timeout_seconds: Some(TRIAL_TIMEOUT.as_secs()) };
    let checks = checked(&running.daemon, patient.context, names, &request).await;
    let is_default = |name: &str| known.iter().any(|agent| agent.is_default && agent.slug == name);
    let told = names.iter().zip(checks).map(|(name, check)| {
        let failure = if is_default(name) { Status::Problem } else { Status::Warning };
        let finding = match check {
            Ok(check) => finding(&check, failure),
            // All slots are taken: that says nothing of the agent.
            Err(error) if error.is_overload() => Finding::note(name, format!("not checked: {error}"), error.hint()),
            Err(error) => Finding::new(failure, name, chain(&error), error.hint()),
        };
        (name.clone(), finding)
    });
    told.collect()
}

fn untried(patient: &Patient<'_>, agent: &Known, known: &[Known]) -> Option<Finding> {
    let Some(path) = &agent.path else {
        return agent.is_default.then(|| no_default(patient, agent, known));
    };
    let place = if path.starts_with("/proc/") { "built in" } else { path };
    Some(Finding::ok(&agent.slug, format!("{}, {place}", agent.name)))
}

fn no_default(patient: &Patient<'_>, agent: &Known, known: &[Known]) -> Finding {
    let message = format!("{} is the default agent, but is not installed", agent.name);
    // A guest cannot change what the daemon reads.
    let other = known.iter().find(|other| other.path.is_some() && other.slug != "demo" && !patient.is_guest());
    let instead = other.map(|other| format!("; or make {0} the default: `acpd agents add {0} --default`", other.slug));
    Finding::warning(&agent.slug, message, format!("{}{}", agent.install_hint, instead.unwrap_or_default()))
}

fn missing(known: &[Known]) -> Option<Finding> {
    let missing = known.iter().filter(|agent| agent.path.is_none() && !agent.is_default);
    let names: Vec<&str> = missing.map(|agent| agent.slug.as_str()).collect();
    let hint = "`acpd agents show NAME` shows how to install an agent";
    (!names.is_empty()).then(|| Finding::note("not installed", names.join(", "), hint))
}
