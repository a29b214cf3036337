//! How the daemon is: whether it lives, whether it is ready for work, and what is wrong.
//!
//! Alive is whoever answers. That is asked for apart (`?probe=live`), and touches nothing: a supervisor that restarts what
//! does not live must not restart a daemon because its disk is full. Ready is a daemon that takes on new work and keeps it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::caller::Caller;
use super::error::{Ailment, ApiError};
use super::extract::{Json, Query};
use super::wire::{Health, HealthProblem, Severity, StoreReport};
use crate::model::Sight;
use crate::store::{Catalogue, Check, StoreError, StoreHealth, Unit};

/// How long a trial write may take. A busy writer takes milliseconds, and a disk that takes longer than this serves nobody.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// For how long the outcome of a trial is good enough for guests, who are many and must not keep the writer busy.
const TRIAL_AGE_MAX: Duration = Duration::from_secs(5);

const PATH: &str = "/v1/health";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HealthQuery {
    /// `live`: check only that the daemon responds. `ready`: also check that it accepts work.
    #[serde(default)]
    #[param(inline, default = "ready")]
    pub probe: Probe,
}

/// The kind of health check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// Check that the daemon responds.
    Live,
    /// Check that the daemon accepts work, and list its problems.
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

/// How the last trial write ended, for those who may not have one of their own.
#[derive(Debug, Default)]
pub struct Trials {
    last: Mutex<Option<(Instant, Trial)>>,
    /// Guests who find the last one too old wait for one new one together.
    turn: tokio::sync::Mutex<()>,
}

type Trial = Result<(), Ailing>;

#[derive(Clone, Debug)]
enum Ailing {
    Unwritable(Arc<StoreError>),
    Stalled,
}

impl From<Ailing> for Ailment {
    fn from(ailing: Ailing) -> Self {
        match ailing {
            Ailing::Unwritable(error) => Self::Unwritable(error),
            Ailing::Stalled => Self::Stalled { waited: TRIAL_TIMEOUT },
        }
    }
}

impl Trials {
    fn known(&self) -> Option<Trial> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < TRIAL_AGE_MAX).map(|(_, trial)| trial.clone())
    }

    async fn own(&self, api: &Api) -> Trial {
        let trial = trial_write(api).await;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), trial.clone()));
        trial
    }

    async fn shared(&self, api: &Api) -> Trial {
        let _turn = self.turn.lock().await;
        match self.known() {
            Some(trial) => trial,
            None => self.own(api).await,
        }
    }
}

/// Check the daemon's health: whether it responds, whether it accepts work, and its problems.
///
/// Members of `control.group` see only the codes of the problems.
#[utoipa::path(
    get,
    path = "/v1/health",
    operation_id = "getHealth",
    tag = "daemon",
    params(HealthQuery),
    responses((status = 200, description = "The daemon is healthy.", body = Health)),
)]
pub async fn health(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<HealthQuery>,
) -> (StatusCode, Json<Health>) {
    let (code, health) = match query.probe {
        Probe::Live => (StatusCode::OK, Health { live: Some(true), ..Health::of("ok") }),
        Probe::Ready => readiness(&api, caller.is_guest()).await,
    };
    (code, Json(if caller.is_guest() { health.without_inside() } else { health }))
}

async fn readiness(api: &Api, is_guest: bool) -> (StatusCode, Health) {
    let is_stopping = api.registry.is_stopping();
    let trial = match (is_stopping, is_guest) {
        (true, _) => Ok(()),
        (false, true) => api.trials.shared(api).await,
        (false, false) => api.trials.own(api).await,
    };
    let store = api.registry.hub().store().health();
    let mut report = StoreReport::from(&store);
    // The last commit went well before whatever keeps the trial from it.
    report.writable &= trial.is_ok();
    let mut problems = warnings(api, &store);
    // What keeps new work out comes first.
    let stopping = is_stopping.then_some(Ailment::Stopping);
    let shortage = store.shortage.map(Ailment::ShortOfSpace);
    let damage = match store.check {
        Check::Damaged { problem } => Some(Ailment::Damaged { problem }),
        Check::Clean | Check::Running | Check::Ok | Check::Failed { .. } => None,
    };
    // What follows from too little space is not told a second time.
    let trial = trial.err().filter(|_| shortage.is_none()).map(Ailment::from);
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
async fn trial_write(api: &Api) -> Trial {
    let hub = api.registry.hub();
    if hub.store().space().check().is_err() {
        return Ok(());
    }
    match tokio::time::timeout(TRIAL_TIMEOUT, hub.append_own(Unit::catalogue(Catalogue::Heartbeat))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Ailing::Unwritable(Arc::new(error))),
        Err(_) => Err(Ailing::Stalled),
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
        let hint = "run `acpd backup`, which copies and checks the database; the next start of acpd checks it again";
        warn(
            "store_unchecked",
            format!("cannot check the database after acpd did not shut down cleanly: {problem}"),
            hint,
        );
    }
    let max = config.limits.processes;
    if api.registry.process_count(Sight::All) >= max {
        let hint = "acpd stops an idle process when it needs room; if all are busy, wait for a turn or an agent check to end, \
                or raise limits.processes";
        warn("process_limit", format!("the limit of {max} agent processes is reached"), hint);
    }
    let max = config.control.connections;
    if api.seats.count() >= max {
        let hint = "close unused connections, or raise control.connections; a new connection replaces an idle one, or \
            gets status 503";
        warn("connection_limit", format!("the limit of {max} connections is reached"), hint);
    }
    if let Some(why) = shared.host.features.memory_unbounded(&config.limits) {
        let hint = "run acpd from systemd with Delegate=yes and cgroup v2's memory controller, or set the limit to 0";
        warn("memory_unbounded", why.to_owned(), hint);
    }
    if let Some(error) = &origin.error {
        let hint = "correct the configuration and run `acpd reload`; the previous configuration stays in force";
        warn("config_not_reloaded", format!("cannot reload the configuration: {error}"), hint);
    }
    warnings
}
