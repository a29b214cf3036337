//! What runs now, and what it uses. `/proc` is read once for all, off the threads of the runtime, and nothing is kept.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, Query};
use super::wire::{DaemonProcess, ProcessList, RunningProcess};
use crate::agent::{Census, Figures};
use crate::model::{SessionId, Timestamp};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProcessesQuery {
    /// Include the processes of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
}

/// List running agent processes.
#[utoipa::path(
    get,
    path = "/v1/processes",
    operation_id = "listProcesses",
    tag = "daemon",
    params(ProcessesQuery),
    responses((status = 200, description = "The running processes.", body = ProcessList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ProcessesQuery>,
) -> Result<Json<ProcessList>, ApiError> {
    let glances = api.registry.glances(caller.listing(query.all)).await;
    let shims: Vec<Vec<i32>> = glances
        .iter()
        .map(|(_, _, glance)| glance.as_ref().map(|glance| glance.shims.clone()).unwrap_or_default())
        .collect();
    let looked = tokio::task::spawn_blocking(move || {
        let census = Census::take();
        (census.own(), shims.iter().map(|shims| census.below(shims)).collect::<Vec<Figures>>())
    });
    // It does not panic; and when the daemon is going, there is nothing to tell.
    let (own, figures) = looked.await.unwrap_or_default();
    let at = Timestamp::now();

    let ids: Vec<SessionId> = glances.iter().map(|(session, _, _)| *session).collect();
    let mut sessions: HashMap<_, _> = match ids.as_slice() {
        [] => HashMap::new(),
        ids => {
            let rows = api.registry.hub().store().sessions_of(ids).await?;
            rows.into_iter().map(|session| (session.id, session)).collect()
        }
    };
    let rows = glances.iter().zip(figures).filter_map(|((id, live, glance), figures)| {
        // One that was deleted meanwhile is not there any more.
        Some(RunningProcess::new(sessions.remove(id)?, *live, glance.as_ref(), figures))
    });
    let is_told = !caller.is_guest();
    let daemon = DaemonProcess {
        pid: std::process::id(),
        started_at: api.started_at,
        rss_bytes: is_told.then_some(own.resident_bytes),
        cpu_millis: is_told.then(|| own.cpu_millis()),
    };
    Ok(Json(ProcessList { processes: rows.collect(), daemon, at }))
}
