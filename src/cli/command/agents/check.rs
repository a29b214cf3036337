//! `acpd agents check`: starts agents, shakes hands with them, and tells how that went.

use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::cli::connection::Daemon;
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::findings::{self, Finding, Status};
use crate::cli::text::{clean_json, columns, cut_end, cut_start, one_line};
use crate::cli::{sign_in, span, suggest};
use crate::control::wire::{Agent, AgentCheck, AgentList, CheckAgent, CheckProblem, Info};
use crate::model::adapter::Asks;
use crate::model::error::chain;

/// Agents that are tried at once: each works as hard as it can, and the daemon takes four.
const CHECKS_MAX: usize = 3;
const TIMEOUT: Duration = Duration::from_mins(1);
/// How long the daemon may take beyond the time that the agent has: it stops it by the ladder.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// What is shown of what went wrong: how it begins, and how what the agent wrote ends.
const MESSAGE_COLUMNS_MAX: usize = 500;
const MESSAGE_BEGINNING_COLUMNS: usize = 200;
const NAME_COLUMNS_MAX: usize = 80;

/// Start agents and check that they work
///
/// Each agent is started as for a session, in an empty directory, and stopped again. Without names, the default agent is
/// checked. The exit code is 1 if a named agent does not work.
#[derive(Args, Debug)]
pub struct Check {
    /// Names of agents
    #[arg(id = "agent", value_name = "NAME")]
    names: Vec<String>,
    /// Check all installed agents
    #[arg(long, conflicts_with = "agent")]
    all: bool,
    /// Create no session in the agent; then the check cannot tell whether you are signed in
    #[arg(long)]
    no_session: bool,
    /// Timeout for each agent, such as 90s, at most 10m [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let is_allowed = |timeout: &Duration| (1..=CheckAgent::SECONDS_MAX).contains(&timeout.as_secs());
    span::timeout(text).ok().filter(is_allowed).ok_or_else(|| "is not a duration from 1s to 10m".to_owned())
}

impl Check {
    /// One agent, with the defaults.
    pub fn of(name: String) -> Self {
        Self { names: vec![name], all: false, no_session: false, timeout: None }
    }

    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let list: AgentList = daemon.get("/v1/agents?limit=1000").await?;
        let names = if self.names.is_empty() { of_itself(&list.agents, self.all) } else { self.names };
        let request =
            CheckAgent { session: !self.no_session, timeout_seconds: Some(self.timeout.unwrap_or(TIMEOUT).as_secs()) };
        let checks = checked(&daemon, context, &names, &request).await;
        let refusal = checks.iter().find_map(|check| check.as_ref().err()).map(Exit::of);
        let told = names.iter().zip(checks);
        let told = told.map(|(name, check)| check.unwrap_or_else(|error| refused(name, &list.agents, &error)));
        let checks: Vec<AgentCheck> = told.collect();
        if context.output.json {
            let json = serde_json::to_string(&checks).unwrap_or_default();
            context.output.print(&clean_json(&json))?;
        } else {
            let findings: Vec<Finding> = checks.iter().map(|check| finding(check, Status::Problem)).collect();
            context.output.print(&findings::render(&findings, context.output))?;
        }
        let is_failure = checks.iter().any(|check| !check.ok) && !self.all;
        Ok(refusal.unwrap_or(if is_failure { Exit::Error } else { Exit::Ok }))
    }
}

fn of_itself(agents: &[Agent], all: bool) -> Vec<String> {
    let agents = agents.iter().filter(|agent| if all { agent.installed } else { agent.default });
    agents.map(|agent| agent.slug.clone()).collect()
}

/// One that was not tried has its line among the others.
fn refused(name: &str, known: &[Agent], error: &ClientError) -> AgentCheck {
    let found = known.iter().any(|agent| agent.slug == name && agent.installed);
    let code = match error {
        ClientError::Api { body, .. } => body.error.clone(),
        _ => "unreachable".to_owned(),
    };
    let hint = if error.is_api("agent_not_found") {
        suggest::hint(name, known.iter().map(|agent| agent.slug.as_str()), error.hint())
    } else {
        error.hint().to_owned()
    };
    let problem = CheckProblem { code, message: chain(error), hint };
    AgentCheck::refused(name, found, problem)
}

/// Tries these agents, a few at once, and tells of each in their order. Somebody who looks sees which ones are waited for.
///
/// No more are tried at once than there are places free, and one that finds none all the same is tried again when another
/// has ended: they are not to take the places from each other.
pub async fn checked(
    daemon: &Daemon,
    context: &Context,
    names: &[String],
    request: &CheckAgent,
) -> Vec<Result<AgentCheck, ClientError>> {
    let patience = Duration::from_secs(request.timeout_seconds.unwrap_or_default()) + STOP_PATIENCE;
    let output = context.output;
    let shows = output.stderr_is_terminal && !output.json && !names.is_empty();
    if shows {
        output.show(&output.note_style.dim(&format!("checking {}…", names.join(", "))));
    }
    let attempt = async |index: usize, path: String| {
        let check = daemon.post_patiently(&path, request, patience).await;
        (index, path, check)
    };
    let mut room = if names.len() > 1 { free_places(daemon).await } else { 1 };
    let paths = names.iter().map(|name| format!("{}/check", super::path(name)));
    let mut waiting: VecDeque<(usize, String)> = paths.enumerate().collect();
    let mut running = FuturesUnordered::new();
    let mut checks = Vec::new();
    loop {
        while running.len() < room
            && let Some((index, path)) = waiting.pop_front()
        {
            running.push(attempt(index, path));
        }
        match running.next().await {
            None => break,
            Some((index, path, Err(error))) if error.is_overload() && !running.is_empty() => {
                waiting.push_front((index, path));
                room = running.len();
            }
            Some((index, _, check)) => checks.push((index, check)),
        }
    }
    if shows {
        output.show(output.note_style.line_erased());
    }
    checks.sort_by_key(|(index, _)| *index);
    for (_, check) in &mut checks {
        if let Ok(AgentCheck { slug, error: Some(error), .. }) = check
            && error.code == "auth_required"
            && let Some(advice) = sign_in::advice(context, daemon, slug).await
        {
            error.hint = advice;
        }
    }
    checks.into_iter().map(|(_, check)| check).collect()
}

async fn free_places(daemon: &Daemon) -> usize {
    let info = daemon.get::<Info>("/v1/info").await;
    let free = info.map_or(1, |info| info.processes.max.saturating_sub(info.processes.running));
    free.clamp(1, CHECKS_MAX)
}

/// What a check says, in a line. `failure` is how bad it is when the agent does not work.
pub fn finding(check: &AgentCheck, failure: Status) -> Finding {
    let who = [check.title.as_deref().or(check.name.as_deref()), check.version.as_deref()];
    let who = who.into_iter().flatten().map(|part| cut_end(&one_line(part), NAME_COLUMNS_MAX));
    let who = who.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some(error) = &check.error {
        let message = match (error.code.as_str(), who.is_empty()) {
            ("auth_required", false) => format!("{who} works, but you are not signed in"),
            ("auth_required", true) => "you are not signed in".to_owned(),
            _ => bounded(&one_line(&error.message)),
        };
        return Finding::new(failure, &check.slug, message, one_line(&error.hint));
    }
    let seconds = |millis: u64| format!("{}.{:02} s", millis / 1000, millis % 1000 / 10);
    let mut facts: Vec<String> = Vec::new();
    facts.extend((!who.is_empty()).then_some(who));
    facts.extend(check.initialize_ms.map(|millis| format!("answers in {}", seconds(millis))));
    // The built-in agent needs no sign-in.
    let is_built_in = check.path.as_deref().is_some_and(|path| path.starts_with("/proc/"));
    let is_unknown = check.signed_in.is_none() && !is_built_in;
    facts.extend((check.signed_in == Some(true)).then(|| "signed in".to_owned()));
    facts.extend(is_unknown.then(|| "sign-in: unknown".to_owned()));
    facts.extend(check.asks.and_then(Asks::warning).map(str::to_owned));
    facts.extend(abilities(check));
    let counted = |count: usize, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    facts.extend(counted(check.modes.len(), "mode"));
    facts.extend(counted(check.models.len(), "model"));
    let facts = facts.join(", ");
    match check.warnings.is_empty() {
        true if is_unknown => {
            let hint = format!("`acpd run --agent {} hello` shows whether it is signed in", check.slug);
            return Finding::note(&check.slug, facts, hint);
        }
        true => return Finding::ok(&check.slug, facts),
        false => {}
    }
    let warnings = bounded(&one_line(&check.warnings.join("; ")));
    let hint = format!("correct agents.{}.mcp_servers in the configuration", check.slug);
    Finding::warning(&check.slug, format!("{facts}; {warnings}"), hint)
}

fn bounded(line: &str) -> String {
    if columns(line) <= MESSAGE_COLUMNS_MAX {
        return line.to_owned();
    }
    let end = MESSAGE_COLUMNS_MAX - MESSAGE_BEGINNING_COLUMNS;
    format!("{} {}", cut_end(line, MESSAGE_BEGINNING_COLUMNS), cut_start(line, end))
}

/// What acpd can make use of.
fn abilities(check: &AgentCheck) -> Option<String> {
    let capabilities = check.capabilities.as_ref()?;
    let can = |pointer: &str| capabilities.pointer(pointer).is_some_and(|value| *value != false && !value.is_null());
    let all = [
        ("resumes", "/sessionCapabilities/resume"),
        ("loads", "/loadSession"),
        ("images", "/promptCapabilities/image"),
    ];
    let able: Vec<&str> = all.into_iter().filter(|(_, pointer)| can(pointer)).map(|(name, _)| name).collect();
    (!able.is_empty()).then(|| able.join(", "))
}
