//! How the daemon is: whether it lives, whether it is ready for work, and what is wrong.
//!
//! Alive is whoever answers. That is asked for apart (`?probe=live`), and touches nothing: a supervisor that restarts what
//! does not live must not restart a daemon because its disk is full. Ready is a daemon that takes on new work and keeps it.

use std::time::Duration;

use axum::http::{StatusCode, Uri};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::error::{Ailment, ApiError};
use super::wire::{Health, HealthProblem, Severity, StoreReport};
use crate::model::Sight;
use crate::store::{Catalogue, Check, StoreHealth, Unit};

/// How long a trial write may take. A busy writer takes milliseconds, and a disk that takes longer than this serves nobody.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3);

const PATH: &str = "/v1/health";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HealthQuery {
    /// Only whether it lives (`live`), or whether it takes on work, too.
    #[serde(default)]
    #[param(inline, default = "ready")]
    pub probe: Probe,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// Whether the daemon lives.
    Live,
    /// Whether it takes on work, and what is wrong.
    #[default]
    Ready,
}

/// Whether a request asks how the daemon is. That is answered for as long as anything is.
pub fn is_asked(uri: &Uri) -> bool {
    uri.path() == PATH
}

/// Whether a request asks for nothing but a sign of life. That has no rate either, since it costs nothing.
pub fn is_sign_of_life(uri: &Uri) -> bool {
    is_asked(uri) && uri.query() == Some("probe=live")
}

pub async fn examined(api: &Api, probe: Probe) -> (StatusCode, Health) {
    match probe {
        Probe::Live => (StatusCode::OK, Health { live: Some(true), ..Health::of("ok") }),
        Probe::Ready => readiness(api).await,
    }
}

async fn readiness(api: &Api) -> (StatusCode, Health) {
    let is_stopping = api.registry.is_stopping();
    let trial = if is_stopping { Ok(()) } else { trial_write(api).await };
    let store = api.registry.hub().store().health();
    let report = StoreReport::from(&store);
    let mut problems = warnings(api, &store);
    // What keeps new work out comes first.
    let stopping = is_stopping.then_some(Ailment::Stopping);
    let shortage = store.shortage.map(Ailment::ShortOfSpace);
    let damage = match store.check {
        Check::Damaged { problem } => Some(Ailment::Damaged { problem }),
        Check::Clean | Check::Running | Check::Ok | Check::Failed { .. } => None,
    };
    // What follows from too little space is not told a second time.
    let trial = trial.err().filter(|_| shortage.is_none());
    let ailments = [stopping, shortage, trial, damage];
    let errors: Vec<_> = ailments.into_iter().flatten().map(|ailment| ApiError::Unhealthy(ailment).told()).collect();
    problems.splice(0..0, errors.iter().map(|(_, error)| HealthProblem::from(error)));
    let is_ready = errors.is_empty();
    let (code, error) = match errors.into_iter().next() {
        Some((code, error)) => (code, Some(error)),
        None => (StatusCode::OK, None),
    };
    let status = if is_ready { "ok" } else { "degraded" };
    let (live, ready, problems) = (Some(true), Some(is_ready), Some(problems));
    (code, Health { live, ready, problems, store: Some(report), error, ..Health::of(status) })
}

/// A write that changes nothing goes the whole way through the writer. While there is too little space, even that would be
/// too much.
async fn trial_write(api: &Api) -> Result<(), Ailment> {
    let hub = api.registry.hub();
    if hub.store().space().check().is_err() {
        return Ok(());
    }
    match tokio::time::timeout(TRIAL_TIMEOUT, hub.append(Unit::catalogue(Catalogue::Heartbeat))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Ailment::Unwritable(error)),
        Err(_) => Err(Ailment::Stalled { waited: TRIAL_TIMEOUT }),
    }
}

/// What somebody may want to know, though the daemon does its work.
fn warnings(api: &Api, store: &StoreHealth) -> Vec<HealthProblem> {
    let shared = api.registry.shared();
    let (config, origin) = shared.config.get_with_origin();
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String, hint: &str| {
        let (code, hint) = (code.to_owned(), hint.to_owned());
        warnings.push(HealthProblem { severity: Severity::Warning, code, message, hint });
    };
    if let Check::Failed { problem } = &store.check {
        let hint = "the next start checks it again; `acpd backup` makes a copy and checks that";
        warn("store_unchecked", format!("the database could not be checked after an unclean end: {problem}"), hint);
    }
    let max = config.limits.processes;
    if api.registry.process_count(Sight::All) >= max {
        let hint = "an idle one makes room by itself; else wait for a turn to end, or raise limits.processes";
        warn("process_limit", format!("all {max} places for agent processes are taken"), hint);
    }
    let max = config.control.connections;
    if usize::try_from(shared.metrics.connections()).unwrap_or(0) >= max {
        let hint = "further ones wait; close some, or raise control.connections";
        warn("connection_limit", format!("all {max} connections are taken"), hint);
    }
    if let Some(error) = &origin.error {
        let hint = "correct the configuration and have acpd read it again (kill -HUP); the old one is in force";
        warn("config_not_reloaded", format!("the configuration could not be reloaded: {error}"), hint);
    }
    warnings
}
