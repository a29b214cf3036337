//! `acpd status`: whether a daemon runs, and how it is. It never starts one.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{age, clean_json, duration, one_line};
use crate::control::wire::{ConfigOrigin, Health, Info};
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
        let health: Box<RawValue> = daemon.get("/v1/health").await?;
        if context.output.json {
            let both = format!(r#"{{"health":{},"info":{}}}"#, health.get(), info.get());
            context.output.print(&clean_json(&both))?;
        } else {
            context.output.print(&facts(&read(&health)?, &read(&info)?, context))?;
        }
        Ok(Exit::Ok)
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
        ("state", info.state_dir.clone()),
        ("sessions", if counts.is_empty() { "none".to_owned() } else { counts }),
        ("processes", format!("{} of {}", info.processes.running, info.processes.max)),
    ];
    if let Some(config) = &info.config {
        facts.extend(config_facts(config));
    }
    let lines = facts.iter().map(|(name, value)| format!("{} {}", style.dim(&format!("{name:<13}")), one_line(value)));
    lines.collect::<Vec<_>>().join("\n")
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
