//! SIGHUP: the configuration is read again, as at start. It is taken on as a whole or not at all, but for the keys that
//! are built in at start.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::Notify;

use super::manager;
use crate::agent::{self, Host, Secrets};
use crate::config::{Config, Overrides, Paths, Problem};
use crate::control;
use crate::registry::{Registry, RegistryError};

#[derive(Debug)]
pub struct Reloader {
    registry: Arc<Registry>,
    /// What the flags said: they hold for as long as the daemon runs.
    overrides: Overrides,
    asked: Notify,
}

impl Reloader {
    pub fn new(registry: Arc<Registry>, overrides: Overrides) -> Self {
        Self { registry, overrides, asked: Notify::new() }
    }

    /// Asks for a reload. All who ask while one is under way get another one together.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Reloads whenever it is asked to. Dropping it ends a reload at once: the record of the agents may be ahead of the
    /// configuration then, which the next start puts right.
    pub async fn run(&self) -> Result<Infallible, RegistryError> {
        loop {
            self.asked.notified().await;
            manager::reloading();
            self.reload().await;
            manager::ready();
        }
    }

    /// The configuration comes last: whoever sees the new one finds everything else done.
    async fn reload(&self) {
        let shared = self.registry.shared();
        // The file may have appeared since. One that has vanished is a mistake, or in the middle of being replaced.
        let file = Paths::config_file(&self.overrides, &shared.environment);
        if let (None, Some(gone)) = (&file, &shared.config.get_with_origin().1.file) {
            return self.keep(format!("{} no longer exists; to run without it, restart acpd", gone.display()));
        }
        let mut config = match Config::load(file.as_deref(), &shared.environment) {
            Ok(config) => config,
            Err(error) => {
                for Problem { key, message, hint } in &error.problems {
                    tracing::error!(key, hint, "the configuration has a problem: {message}");
                }
                return self.keep(error.in_one_line());
            }
        };
        match control::fit_connections(&mut config) {
            Ok(None) => {}
            Ok(Some(fewer)) => tracing::warn!("{fewer}"),
            Err(error) => return self.keep(error.to_string()),
        }
        learn_secrets(shared.hub.secrets(), &config, &shared.environment);
        // A session refers to its agent's record, so the record is there before anybody can ask for the agent.
        if let Err(error) = self.registry.record_agents(&config).await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot store the configured agents");
            return self.keep(format!("cannot store the configured agents: {error}"));
        }
        shared.slots.resize(config.limits.processes);
        tell_unbounded(&shared.host, &config);
        let needs_restart = shared.config.replace(config, file.clone());
        let file = file.map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        tracing::info!(file, "reloaded the configuration");
        // Turns that waited for a higher limit have no actor that would hear of it.
        if let Err(error) = self.registry.take_up_queued_turns().await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot continue with queued turns");
        }
        for key in needs_restart {
            tracing::warn!(key, "a changed key takes effect after a restart; its previous value stays in force");
        }
    }

    fn keep(&self, error: String) {
        tracing::error!("cannot reload the configuration; the previous one stays in force");
        self.registry.shared().config.keep(error);
    }
}

/// A bound that does not hold here is told of, so that nobody relies on it.
pub fn tell_unbounded(host: &Host, config: &Config) {
    if let Some(why) = host.features.memory_unbounded(&config.limits) {
        tracing::warn!("{why}");
    }
}

/// What the profiles give to agents is kept out of the record and the log from here on. What cannot be read yet is learned
/// when a process starts with it.
pub fn learn_secrets(secrets: &Secrets, config: &Config, environment: &BTreeMap<String, String>) {
    secrets.learn(config.agents.values().flat_map(|profile| agent::known_secrets(profile, environment)).collect());
}
