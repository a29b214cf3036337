//! The configuration in force. A reload replaces it as a whole; whoever reads it holds one version until the end of what
//! they are doing.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Config, Difference, reload};
use crate::model::Timestamp;

#[derive(Debug)]
pub struct Current(watch::Sender<Loaded>);

/// Tells when another configuration is in force.
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<Loaded>);

#[derive(Debug)]
struct Loaded {
    config: Arc<Config>,
    origin: Arc<Origin>,
}

/// Where the configuration in force comes from, and what a reload could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file it was read from, when there was one.
    pub file: Option<PathBuf>,
    pub loaded_at: Timestamp,
    /// Keys whose new values hold after a restart only.
    pub needs_restart: Vec<&'static str>,
    /// Why the last reload changed nothing, if it did not.
    pub error: Option<String>,
}

impl Current {
    pub fn new(config: Config, file: Option<PathBuf>) -> Self {
        let origin = Arc::new(Origin::new(file, Vec::new()));
        Self(watch::Sender::new(Loaded { config: Arc::new(config), origin }))
    }

    pub fn get(&self) -> Arc<Config> {
        self.get_with_origin().0
    }

    /// Both of one and the same load.
    pub fn get_with_origin(&self) -> (Arc<Config>, Arc<Origin>) {
        let loaded = self.0.borrow();
        (Arc::clone(&loaded.config), Arc::clone(&loaded.origin))
    }

    /// Puts a new configuration in force, but for what is built in at start. Returns the keys that differ.
    pub fn replace(&self, new: Config, file: Option<PathBuf>) -> Difference {
        let mut difference = Difference::default();
        self.0.send_modify(|loaded| {
            let config;
            (config, difference) = reload::merge(&loaded.config, new);
            let origin = Origin::new(file, difference.needs_restart.clone());
            *loaded = Loaded { config: Arc::new(config), origin: Arc::new(origin) };
        });
        difference
    }

    /// A reload changed nothing; this is why.
    pub fn keep(&self, error: String) {
        self.0.send_modify(|loaded| Arc::make_mut(&mut loaded.origin).error = Some(error));
    }

    /// For whoever has to look again when it changes.
    pub fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }
}

impl Changes {
    /// Whether there was a reload that nobody has looked at.
    pub fn is_pending(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    pub fn mark_seen(&mut self) {
        self.0.mark_unchanged();
    }

    /// Resolves after a reload, once for any number of them; never, when there can be none any more. Safe to cancel.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Origin {
    fn new(file: Option<PathBuf>, needs_restart: Vec<&'static str>) -> Self {
        Self { file, loaded_at: Timestamp::now(), needs_restart, error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reload_is_remembered_until_one_succeeds() {
        let file = Some(PathBuf::from("/etc/acpd/config.toml"));
        let current = Current::new(Config::default(), file.clone());
        let (config, before) = current.get_with_origin();
        current.keep("it is not TOML".to_owned());
        let (kept, after) = current.get_with_origin();
        assert!(Arc::ptr_eq(&config, &kept));
        assert_eq!(*after, Origin { error: Some("it is not TOML".to_owned()), ..(*before).clone() });

        let mut new = Config::default();
        new.limits.processes = 9;
        new.log.files = 1;
        assert_eq!(current.replace(new, None).needs_restart, ["log.files"]);
        let (config, origin) = current.get_with_origin();
        assert_eq!((config.limits.processes, config.log.files), (9, Config::default().log.files));
        assert_eq!((&origin.file, &origin.error, &*origin.needs_restart), (&None, &None, &["log.files"][..]));
        assert!(current.replace(Config::default(), file).needs_restart.is_empty(), "what was taken back needs nothing");
    }
}
