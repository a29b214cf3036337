//! The doctor: what is looked at, group by group. Nothing here changes anything, and what cannot be looked at is said to be so.
//!
//! A daemon that runs tells what it knows of itself; the rest, and all of it when none runs, is looked at from here.

mod agents;
mod configuration;
mod daemon;
mod files;
mod kernel;
mod store;
mod systemd;
mod terminal;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::connection::Daemon;
use super::context::Context;
use super::error::ClientError;
use super::findings::Finding;
use crate::config::{Config, ConfigError};
use crate::control::wire::{Health, Info};

/// Which agents are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trials {
    Default,
    All,
    None,
}

/// The daemon that answers.
pub struct Running {
    pub daemon: Daemon,
    pub info: Info,
    pub health: Result<Health, ClientError>,
}

/// What all checks look at.
pub struct Patient<'a> {
    pub context: &'a Context,
    pub running: Result<Running, ClientError>,
    /// The one the daemon works in; else the one that it would.
    pub state_dir: PathBuf,
    /// The configuration file, whether it is there or not.
    pub config_file: Option<PathBuf>,
    /// As it is in that file now.
    pub config: Result<Config, ConfigError>,
}

/// Looks at everything.
pub async fn examine(context: &Context, trials: Trials) -> Vec<Finding> {
    let running = find_daemon(context).await;
    let patient = Patient::new(context, running);
    let mut findings = Vec::new();
    let mut add = |group: &'static str, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| finding.within(group)));
    };
    add("daemon", daemon::look(&patient));
    add("files", files::look(&patient));
    add("configuration", configuration::look(&patient));
    add("store", store::look(&patient));
    add("kernel", kernel::look(&patient));
    add("agents", agents::look(&patient, trials).await);
    add("systemd", systemd::look(&patient).await);
    add("terminal", terminal::look(context.output));
    findings
}

async fn find_daemon(context: &Context) -> Result<Running, ClientError> {
    let daemon = context.running_daemon().await?;
    let info = daemon.report("/v1/info").await?;
    let health = daemon.report("/v1/health").await;
    Ok(Running { daemon, info, health })
}

impl<'a> Patient<'a> {
    fn new(context: &'a Context, running: Result<Running, ClientError>) -> Self {
        let info = running.as_ref().ok().map(|running| &running.info);
        let state_dir = info.and_then(|info| info.state_dir.as_ref()).map(PathBuf::from);
        // A daemon that reads none yet would find one at the usual place.
        let daemons = info.and_then(|info| info.config.as_ref()).and_then(|config| config.file.as_ref());
        let named = context.named_config().map(PathBuf::from);
        let config_file = named.or_else(|| daemons.map(PathBuf::from)).or_else(|| context.paths().config_place.clone());
        // What a daemon has in its environment only that one knows, and it has told what is wrong with that.
        let environment = if info.is_some() { BTreeMap::new() } else { environment() };
        let is_named = context.named_config().is_some();
        let readable = config_file.as_deref().filter(|file| is_named || file.exists());
        let config = Config::load(readable, &environment);
        let state_dir = state_dir.unwrap_or_else(|| context.paths().state_dir.clone());
        Self { context, running, state_dir, config_file, config }
    }

    pub fn info(&self) -> Option<&Info> {
        self.running.as_ref().ok().map(|running| &running.info)
    }

    /// Whether the daemon is another's, who tells of its inside only those whose it is.
    pub fn is_guest(&self) -> bool {
        self.info().is_some_and(|info| info.state_dir.is_none())
    }
}

fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}
