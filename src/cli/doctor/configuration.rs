//! Whether the configuration can be read, and whether the daemon has read it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::Patient;
use crate::agent::{DEFAULT_PATH, find_program};
use crate::cli::findings::Finding;
use crate::cli::text::age;
use crate::config::{Config, Notification};
use crate::control::wire::ConfigOrigin;
use crate::model::Timestamp;

/// A file is not newer for the time in which it was written and read.
const SLACK: Duration = Duration::from_secs(1);

pub fn look(patient: &Patient<'_>) -> Vec<Finding> {
    if patient.is_guest() {
        return vec![Finding::note("file", "the daemon belongs to another user and has its own configuration", "")];
    }
    let mut found = vec![];
    match (&patient.config, patient.config_file.as_deref()) {
        (Ok(_), Some(file)) if file.exists() => found.push(Finding::ok("file", file.display().to_string())),
        (Ok(_), Some(file)) => {
            let message = format!("{} does not exist, so the defaults apply", file.display());
            found.push(Finding::ok("file", message));
        }
        (Ok(_), None) => found.push(Finding::ok("file", "no configuration file, so the defaults apply")),
        (Err(error), _) => {
            let problem = |problem: &crate::config::Problem| {
                Finding::problem("key", format!("{} {}", problem.key, problem.message), &problem.hint)
            };
            let name = patient.config_file.as_ref().map(|file| file.display().to_string());
            let message = format!("{} has errors", name.as_deref().unwrap_or(&error.source_name));
            let hint = "correct the errors below; `acpd config --default` explains every key";
            found.push(Finding::problem("file", message, hint));
            found.extend(error.problems.iter().map(problem));
        }
    }
    found.extend(patient.config.iter().flat_map(notifications));
    if let Some(origin) = patient.info().and_then(|info| info.config.as_ref()) {
        found.extend(in_force(patient, origin));
    }
    found
}

/// Whether the commands of notifications are there, as far as that is seen from here.
fn notifications(config: &Config) -> Vec<Finding> {
    let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    let look = |notification: &Arc<Notification>| {
        let (check, command) = (format!("notification {}", notification.name), &notification.command);
        let hint = "install it, or set its command to the absolute path of a program";
        match find_program(command, &path) {
            Some(_) => Finding::ok(check, command),
            None => Finding::warning(check, format!("{command:?} was not found on PATH"), hint),
        }
    };
    config.notifications.commands.values().map(look).collect()
}

/// What of the file holds in the daemon.
fn in_force(patient: &Patient<'_>, origin: &ConfigOrigin) -> Vec<Finding> {
    let mut found = Vec::new();
    let hint = "correct the file, then run `acpd reload`";
    if origin.error.is_some() {
        found.push(Finding::problem("reload", "the last reload failed and changed nothing", hint));
    }
    if !origin.needs_restart.is_empty() {
        let keys = origin.needs_restart.join(", ");
        let message = format!("changed keys that take effect after a restart: {keys}");
        found.push(Finding::warning("restart", message, "run `acpd stop`; the next command starts the daemon again"));
    }
    if origin.error.is_none() && is_newer(patient, origin.loaded_at) {
        let ago = age(origin.loaded_at, Timestamp::now());
        let message = format!("the file was changed after the daemon loaded it {ago} ago");
        found.push(Finding::warning("reload", message, "run `acpd reload`"));
    }
    found
}

fn is_newer(patient: &Patient<'_>, loaded_at: Timestamp) -> bool {
    let modified = || {
        let modified = patient.config_file.as_ref()?.metadata().ok()?.modified().ok()?;
        modified.duration_since(UNIX_EPOCH).ok()
    };
    let loaded = Duration::from_millis(u64::try_from(loaded_at.as_millis()).unwrap_or(0));
    modified().is_some_and(|modified| modified > loaded + SLACK)
}
