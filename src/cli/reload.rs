//! Having the daemon read its configuration again, and seeing whether it did.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::output::Output;
use super::text::clean_json;
use crate::control::wire::{ConfigOrigin, Info};
use crate::model::error::chain;

/// A reload takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// What became of it.
#[derive(Debug)]
pub enum Reloaded {
    Done,
    NoDaemon,
    /// It is not ours to signal, or reads another file.
    NotOurs(String),
    /// The daemon does not take it.
    Refused(String),
    Late(u32),
    /// It does not even tell how it is.
    Silent {
        why: String,
        hint: String,
    },
}

impl Reloaded {
    /// What a program is told of an agent that was changed in this file.
    pub fn tell_program(&self, output: Output, agent: &str, file: &Path) -> Result<(), ClientError> {
        let told = json!({ "agent": agent, "file": file, "reloaded": matches!(self, Self::Done) });
        output.print(&clean_json(&told.to_string()))
    }

    pub fn tell(&self, output: Output) {
        match self {
            Self::Done => output.note("the daemon has reloaded its configuration"),
            Self::NoDaemon => output.note("no daemon is running; the next one reads the new configuration"),
            Self::NotOurs(why) => output.note(&format!("the running daemon was not reloaded: {why}")),
            Self::Refused(why) => output.note(&format!("the daemon keeps its old configuration: {why}")),
            Self::Silent { why, hint } => {
                output.note(&format!("the daemon has not reloaded its configuration: {why}"));
                output.note(&format!("hint: {hint}"));
            }
            Self::Late(pid) => {
                output.note(&format!("the daemon (pid {pid}) has not reloaded its configuration yet; see its log"));
            }
        }
    }
}

/// Tells the daemon that the file has changed, and waits until it has taken that in.
pub async fn after_change(context: &Context, file: &Path) -> Reloaded {
    let Ok(daemon) = context.running_daemon().await else { return Reloaded::NoDaemon };
    let (pid, before) = match asked(&daemon).await {
        Ok((pid, Some(before))) => (pid, before),
        Ok((_, None)) => {
            return Reloaded::NotOurs("it belongs to another user and has its own configuration".to_owned());
        }
        Err(error) => return Reloaded::Silent { why: chain(&error), hint: error.hint().to_owned() },
    };
    if let Some(theirs) = before.file.as_deref().filter(|theirs| !is_same(Path::new(theirs), file)) {
        return Reloaded::NotOurs(format!("it reads {theirs}"));
    }
    let signalled = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, Signal::HUP));
    if !matches!(signalled, Some(Ok(()))) {
        return Reloaded::NotOurs(format!(
            "pid {pid} belongs to another user, who can reload it with `kill -HUP {pid}`"
        ));
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok((_, Some(now))) = asked(&daemon).await {
            match now.error {
                Some(error) if before.error.as_ref() != Some(&error) => return Reloaded::Refused(error),
                _ if now.loaded_at != before.loaded_at => return Reloaded::Done,
                _ => {}
            }
        }
        sleep_until(Instant::now() + PAUSE).await;
    }
    Reloaded::Late(pid)
}

/// Who it is, and where its configuration is from: another user's daemon does not tell that.
async fn asked(daemon: &Daemon) -> Result<(u32, Option<ConfigOrigin>), ClientError> {
    let info: Info = daemon.report("/v1/info").await?;
    Ok((info.pid, info.config))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}
