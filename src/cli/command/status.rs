//! `acpd status`: whether a daemon runs, and how it is. It never starts one.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::facts::Facts;
use crate::cli::processes::Processes;
use crate::cli::style::Paint;
use crate::cli::text::{age, clean_json, duration, size, thousands};
use crate::control::wire::{ConfigOrigin, Health, HealthProblem, Info, Kernel, ProcessCount, StoreReport};
use crate::model::Timestamp;

/// Show daemon status
///
/// Exits with code 3 if no daemon runs. Never starts one.
#[derive(Args, Debug)]
pub struct Status {}

impl Status {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let hint = "`acpd run \"…\"` starts a daemon; `acpd serve` runs it in this terminal";
        let daemon = context.running_daemon_or(hint).await?;
        let info: Box<RawValue> = daemon.report("/v1/info").await?;
        let (health, ailment) = match daemon.report::<Health>("/v1/health").await {
            Ok(health) => (health, None),
            // A daemon that is not well still tells how it is.
            Err(ClientError::Api { status, body, retry_after }) => {
                let health = Health { error: Some(*body.clone()), ..Health::of("degraded") };
                (health, Some(ClientError::Api { status, body, retry_after }))
            }
            Err(error) => return Err(error),
        };
        if context.output.json {
            let health = serde_json::to_string(&health).unwrap_or_default();
            let both = format!(r#"{{"health":{health},"info":{}}}"#, info.get());
            context.output.print(&clean_json(&both))?;
        } else {
            let processes = Processes::ask(&daemon, false).await?;
            let facts = facts(&health, &read(&info)?, &processes);
            context.output.print(&facts.render(context.output.width(), context.output.style))?;
        }
        ailment.map_or(Ok(Exit::Ok), Err)
    }
}

fn facts(health: &Health, info: &Info, processes: &Processes) -> Facts {
    let mut facts = Facts::default();
    let health_paint = if health.status == "ok" { Paint::Green } else { Paint::Red };
    facts.painted("health", &health.status, health_paint);
    for problem in health.problems.iter().flatten() {
        facts.painted("warning", &problem_fact(problem), Paint::Yellow);
    }
    // Only when there is something to say.
    if let Some(store) = info.store.as_ref().filter(|store| store.check != "clean" || store.problem.is_some()) {
        facts.tell("store", &store_fact(store));
    }
    let memory = processes.daemon.as_ref().and_then(|daemon| daemon.rss_bytes);
    let memory = memory.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
    facts.tell("version", &info.version);
    facts.tell("process", &format!("pid {}, up {}{memory}", info.pid, duration(info.started_at, Timestamp::now())));
    facts.group();
    let counts = info.sessions.iter().filter(|(_, count)| **count > 0);
    let counts = counts.map(|(status, count)| format!("{} {status}", thousands(count.unsigned_abs())));
    let counts = counts.collect::<Vec<_>>().join(", ");
    facts.tell("sessions", if counts.is_empty() { "none" } else { &counts });
    let ProcessCount { running, max, checks } = info.processes;
    let checks = if checks > 0 { format!(", checks: {checks}") } else { String::new() };
    facts.tell("agents", &format!("{running} running, at most {max}{checks}"));
    facts.group();
    facts.tell("socket", &info.socket);
    // A guest is not told.
    facts.maybe("state", info.state_dir.clone());
    let is_told = health.problems.iter().flatten().any(|problem| problem.code == "config_not_reloaded");
    for (name, value) in info.config.iter().flat_map(|config| config_facts(config, is_told)) {
        facts.tell(name, &value);
    }
    facts.maybe("kernel", info.kernel.as_ref().map(kernel_fact));
    facts
}

/// A guest is told the code alone.
fn problem_fact(problem: &HealthProblem) -> String {
    let HealthProblem { code, message, hint, .. } = problem;
    if message.is_empty() { code.clone() } else { format!("{message}; {hint}") }
}

/// What holds agents here, which differs from machine to machine.
fn kernel_fact(kernel: &Kernel) -> String {
    let landlock = match (kernel.landlock.mode.as_str(), kernel.landlock.abi) {
        ("off", _) => "Landlock disabled".to_owned(),
        (_, None) => "no Landlock".to_owned(),
        (_, Some(abi)) if abi < kernel.landlock.abi_wanted => {
            format!("Landlock {abi} (of {})", kernel.landlock.abi_wanted)
        }
        (_, Some(abi)) => format!("Landlock {abi}"),
    };
    let cgroup = match (kernel.cgroup.in_use, kernel.cgroup.controllers.as_slice()) {
        (true, []) => "one cgroup per agent, without limits".to_owned(),
        (true, controllers) => format!("one cgroup per agent ({})", controllers.join(", ")),
        (false, _) => "no cgroups for agents".to_owned(),
    };
    let openat2 = if kernel.openat2 { "" } else { ", no openat2: agents cannot use acpd's file methods" };
    format!("{}, {landlock}, {cgroup}{openat2}", kernel.release)
}

fn store_fact(store: &StoreReport) -> String {
    let checked = match store.check.as_str() {
        "clean" => "closed cleanly last time",
        "running" => "not closed cleanly last time, check is running",
        "ok" => "not closed cleanly last time, check passed",
        "failed" => "not closed cleanly last time, check could not run",
        _ => "damaged",
    };
    match &store.problem {
        None => checked.to_owned(),
        Some(problem) => format!("{checked}; {problem}"),
    }
}

/// Where the configuration comes from; and what a reload could not do, only when there is something that no warning tells.
fn config_facts(config: &ConfigOrigin, is_told: bool) -> Vec<(&'static str, String)> {
    let file = config.file.as_deref().unwrap_or("no file");
    let mut facts = vec![("config", format!("{file}, loaded {} ago", age(config.loaded_at, Timestamp::now())))];
    if !config.needs_restart.is_empty() {
        facts.push(("needs restart", config.needs_restart.join(", ")));
    }
    if let Some(error) = config.error.as_ref().filter(|_| !is_told) {
        facts.push(("reload failed", error.clone()));
    }
    facts
}
