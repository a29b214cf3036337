//! Reloading the configuration of the running daemon after a change of its file.

use std::path::Path;

use serde_json::json;

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::output::Output;
use super::text::clean_json;
use crate::control::wire::{Info, Reload};
use crate::model::error::chain;

/// What became of it.
#[derive(Debug)]
pub enum Reloaded {
    Done(Reload),
    NoDaemon,
    /// The running daemon belongs to another user, or reads another file.
    NotOurs(String),
    Failed {
        why: String,
        hint: String,
    },
}

impl Reloaded {
    /// What the daemon answered, if it reloaded.
    pub fn reload(&self) -> Option<&Reload> {
        match self {
            Self::Done(reload) => Some(reload),
            Self::NoDaemon | Self::NotOurs(_) | Self::Failed { .. } => None,
        }
    }

    /// What a program is told of an agent that was changed in this file.
    pub fn tell_program(&self, output: Output, agent: &str, file: &Path) -> Result<(), ClientError> {
        let told = json!({ "agent": agent, "file": file, "reloaded": self.reload().is_some() });
        output.print(&clean_json(&told.to_string()))
    }

    pub fn tell(&self, output: Output) {
        match self {
            Self::Done(reload) => {
                output.note("the daemon has reloaded its configuration");
                tell_restart(output, reload);
            }
            Self::NoDaemon => output.note("no daemon is running; the next one reads the new configuration"),
            Self::NotOurs(why) => output.note(&format!("the running daemon does not use this change: {why}")),
            Self::Failed { why, hint } => {
                output.note(&format!("the daemon has not reloaded its configuration: {why}"));
                output.hint(hint);
            }
        }
    }
}

/// Names the keys whose new values are not in force yet.
pub fn tell_restart(output: Output, reload: &Reload) {
    if !reload.needs_restart.is_empty() {
        output.note(&format!("these keys take effect after a restart: {}", reload.needs_restart.join(", ")));
        output.hint(
            "`acpd stop` stops the daemon, and the next command starts it; for a service use `systemctl restart acpd`, with \
             --user for a service of your own",
        );
    }
}

/// Reloads the running daemon, if there is one.
pub async fn after_change(context: &Context, file: &Path) -> Reloaded {
    let Ok(daemon) = context.running_daemon().await else { return Reloaded::NoDaemon };
    match ask(&daemon).await {
        Ok(Reload { file: Some(theirs), .. }) if !is_same(Path::new(&theirs), file) => {
            Reloaded::NotOurs(format!("it reads {theirs}"))
        }
        Ok(reload) => Reloaded::Done(reload),
        Err(error) if error.is_api("root_only") => {
            Reloaded::NotOurs("it belongs to another user, and has its own configuration".to_owned())
        }
        Err(error) => Reloaded::Failed { why: chain(&error), hint: error.hint().to_owned() },
    }
}

pub async fn ask(daemon: &Daemon) -> Result<Reload, ClientError> {
    // A daemon that is stuck is noticed here, within seconds.
    let _: Info = daemon.report("/v1/info").await?;
    daemon.post("/v1/reload", &json!({})).await
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}
