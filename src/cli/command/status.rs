//! `acpd status`: whether a daemon runs, and how it is. It never starts one.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{age, clean_json, duration, one_line};
use crate::control::wire::{ConfigOrigin, Health, HealthProblem, Info, Kernel, StoreReport};
use crate::model::Timestamp;

/// Tell whether a daemon runs, and how it is
///
/// Exits with 3 when none runs, and never starts one.
#[derive(Args, Debug)]
pub struct Status {}

impl Status {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.running_daemon().await.map_err(|error| match error {
            ClientError::Unreachable { source, socket }
                if matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) =>
            {
                ClientError::NotStarted {
                    message: format!("no daemon runs at {}", socket.display()),
                    hint: "`acpd run \"…\"` starts one when it needs one; `acpd serve` runs it in this terminal"
                        .to_owned(),
                }
            }
            other => other,
        })?;
        let info: Box<RawValue> = daemon.get("/v1/info").await?;
        let (health, ailment) = match daemon.get::<Health>("/v1/health").await {
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
            context.output.print(&facts(&health, &read(&info)?, context))?;
        }
        ailment.map_or(Ok(Exit::Ok), Err)
    }
}

fn facts(health: &Health, info: &Info, context: &Context) -> String {
    let style = context.output.style;
    let counts = info.sessions.iter().map(|(status, count)| format!("{count} {status}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let mut facts = vec![
        ("health", health.status.clone()),
        ("version", info.version.clone()),
        ("pid", info.pid.to_string()),
        ("running for", duration(info.started_at, Timestamp::now())),
        ("socket", info.socket.clone()),
        ("sessions", if counts.is_empty() { "none".to_owned() } else { counts }),
        ("processes", format!("{} of {}", info.processes.running, info.processes.max)),
    ];
    // A guest is not told.
    if let Some(directory) = &info.state_dir {
        facts.insert(5, ("state", directory.clone()));
    }
    facts.extend(info.kernel.as_ref().map(|kernel| ("kernel", kernel_fact(kernel))));
    let problems = health.problems.iter().flatten();
    facts.extend(problems.map(|problem| ("warning", problem_fact(problem))));
    // Only when there is something to say.
    if let Some(store) = info.store.as_ref().filter(|store| store.check != "clean" || store.problem.is_some()) {
        facts.push(("store", store_fact(store)));
    }
    if let Some(config) = &info.config {
        facts.extend(config_facts(config));
    }
    let lines = facts.iter().map(|(name, value)| format!("{} {}", style.dim(&format!("{name:<13}")), one_line(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A guest is told the code alone.
fn problem_fact(problem: &HealthProblem) -> String {
    let HealthProblem { code, message, hint, .. } = problem;
    if message.is_empty() { code.clone() } else { format!("{message}; {hint}") }
}

/// What holds agents here, which differs from machine to machine.
fn kernel_fact(kernel: &Kernel) -> String {
    let landlock = match (kernel.landlock.mode.as_str(), kernel.landlock.abi) {
        ("off", _) => "Landlock switched off".to_owned(),
        (_, None) => "no Landlock".to_owned(),
        (_, Some(abi)) if abi < kernel.landlock.abi_wanted => {
            format!("Landlock {abi} (of {})", kernel.landlock.abi_wanted)
        }
        (_, Some(abi)) => format!("Landlock {abi}"),
    };
    let cgroup = match (kernel.cgroup.in_use, kernel.cgroup.controllers.as_slice()) {
        (true, []) => "a cgroup for each agent, without limits".to_owned(),
        (true, controllers) => format!("a cgroup for each agent ({})", controllers.join(", ")),
        (false, _) => "no cgroups for agents".to_owned(),
    };
    let openat2 = if kernel.openat2 { "" } else { ", no openat2: agents get no files of acpd" };
    format!("{}, {landlock}, {cgroup}{openat2}", kernel.release)
}

fn store_fact(store: &StoreReport) -> String {
    let checked = match store.check.as_str() {
        "clean" => "closed cleanly the last time",
        "running" => "being checked after an unclean end",
        "ok" => "checked after an unclean end, and sound",
        "failed" => "not closed cleanly the last time, and could not be checked",
        _ => "damaged",
    };
    match &store.problem {
        None => checked.to_owned(),
        Some(problem) => format!("{checked}; {problem}"),
    }
}

/// Where the configuration comes from; and what a reload could not do, only when there is something.
fn config_facts(config: &ConfigOrigin) -> Vec<(&'static str, String)> {
    let file = config.file.as_deref().unwrap_or("no file");
    let mut facts = vec![("config", format!("{file}, loaded {} ago", age(config.loaded_at, Timestamp::now())))];
    if !config.needs_restart.is_empty() {
        facts.push(("needs restart", config.needs_restart.join(", ")));
    }
    if let Some(error) = &config.error {
        facts.push(("reload failed", error.clone()));
    }
    facts
}
