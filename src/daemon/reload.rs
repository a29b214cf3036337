//! Reloading the configuration, on SIGHUP or on request. It is replaced as a whole or not at all, but for the keys that
//! are built in at start.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc::Receiver;

use super::manager;
use crate::agent::{self, Host, OwnerSecrets};
use crate::config::{Config, ConfigError, Difference, Overrides, Paths, Problem};
use crate::control::wire::Reload;
use crate::control::{self, ReloadError, ReloadRequest};
use crate::registry::{Registry, RegistryError};

#[derive(Debug)]
pub struct Reloader {
    registry: Arc<Registry>,
    /// What the flags said: they hold for as long as the daemon runs.
    overrides: Overrides,
    requests: Receiver<ReloadRequest>,
}

impl Reloader {
    pub fn new(registry: Arc<Registry>, overrides: Overrides, requests: Receiver<ReloadRequest>) -> Self {
        Self { registry, overrides, requests }
    }

    /// Reloads on every request. Dropping it ends a reload at once: the stored agents may be newer than the configuration
    /// then, which the next start puts right.
    pub async fn run(mut self) -> Result<Infallible, RegistryError> {
        loop {
            let Some(request) = self.requests.recv().await else { std::future::pending().await };
            manager::reloading();
            let outcome = self.reload().await;
            manager::ready();
            if let Err(error) = &outcome {
                self.keep(error);
            }
            if let Some(answer) = request {
                // A client that has gone does not need the answer.
                let _ = answer.send(outcome);
            }
        }
    }

    /// The configuration is replaced last: once the new one is visible, everything else is done.
    async fn reload(&self) -> Result<Reload, ReloadError> {
        let shared = self.registry.shared();
        // The file may have appeared since. One that has vanished is a mistake, or in the middle of being replaced.
        let file = Paths::config_file(&self.overrides, &shared.environment);
        if let (None, Some(gone)) = (&file, &shared.config.get_with_origin().1.file) {
            return Err(invalid(gone.clone(), "no longer exists", "restore it; to run without it, restart acpd"));
        }
        let mut config = Config::load(file.as_deref(), &shared.environment).map_err(ReloadError::Invalid)?;
        match control::fit_connections(&mut config) {
            Ok(None) => {}
            Ok(Some(fewer)) => tracing::warn!("{fewer}"),
            Err(error) => {
                return Err(invalid("control.connections", &error.to_string(), "raise the limit of open files"));
            }
        }
        learn_secrets(&shared.hub.secrets(None), &config, &shared.environment);
        // A session refers to its agent's record, so the record is there before anybody can ask for the agent.
        self.registry.record_agents(&config).await.map_err(ReloadError::Store)?;
        shared.slots.resize(config.limits.processes);
        tell_unbounded(&shared.host, &config);
        let Difference { changed, needs_restart } = shared.config.replace(config, file.clone());
        let file = file.map(|file| file.display().to_string());
        tracing::info!(file = file.as_deref().unwrap_or("none"), "reloaded the configuration");
        // Turns that waited for a higher limit have no actor that would hear of it.
        if let Err(error) = self.registry.take_up_queued_turns().await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot continue with queued turns");
        }
        for key in &needs_restart {
            tracing::warn!(key, "a changed key takes effect after a restart; its previous value stays in force");
        }
        let needs_restart = needs_restart.into_iter().map(str::to_owned).collect();
        Ok(Reload { file, changed, needs_restart })
    }

    /// Nothing has changed; the reason is logged, and kept until a reload succeeds.
    fn keep(&self, error: &ReloadError) {
        let error = match error {
            ReloadError::Invalid(error) => {
                for Problem { key, message, hint } in &error.problems {
                    tracing::error!(key, hint, "the configuration has a problem: {message}");
                }
                error.in_one_line()
            }
            ReloadError::Store(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "cannot store the configured agents");
                format!("cannot store the configured agents: {error}")
            }
        };
        tracing::error!("cannot reload the configuration; the previous one stays in force");
        self.registry.shared().config.keep(error);
    }
}

/// A configuration with a mistake that the reader does not see.
fn invalid(key: impl Into<PathBuf>, message: &str, hint: &str) -> ReloadError {
    let key = key.into().display().to_string();
    let problem = Problem { key: key.clone(), message: message.to_owned(), hint: hint.to_owned() };
    ReloadError::Invalid(ConfigError { source_name: key, problems: vec![problem] })
}

/// A bound that does not hold here is told of, so that nobody relies on it.
pub fn tell_unbounded(host: &Host, config: &Config) {
    if let Some(why) = host.features.memory_unbounded(&config.limits) {
        tracing::warn!("{why}");
    }
}

/// Redacts the secrets of all profiles from here on, in the log and for the daemon's own user, who can read them. For other
/// owners, and with what cannot be read yet, acpd does so when a process starts with it.
pub fn learn_secrets(secrets: &OwnerSecrets, config: &Config, environment: &BTreeMap<String, String>) {
    secrets.learn(config.agents.values().flat_map(|profile| agent::known_secrets(profile, environment)).collect());
}
