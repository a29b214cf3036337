//! How the daemon is: health and info.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, Query};
use super::health::{self, HealthQuery};
use super::info;
use super::wire::{Health, Info, ProcessCount};
use crate::model::Timestamp;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InfoQuery {
    /// Counts everybody's, to those who may see them.
    #[serde(default)]
    all: bool,
}

/// Tells whether the daemon lives, whether it is ready for work, and what is wrong.
#[utoipa::path(
    get,
    path = "/v1/health",
    operation_id = "getHealth",
    tag = "daemon",
    params(HealthQuery),
    responses((status = 200, description = "The daemon is well.", body = Health)),
)]
pub async fn health(State(api): State<Arc<Api>>, Query(query): Query<HealthQuery>) -> (StatusCode, Json<Health>) {
    let (code, health) = health::examined(&api, query.probe).await;
    (code, Json(health))
}

/// Tells what runs: version, counts, limits, configuration.
#[utoipa::path(
    get,
    path = "/v1/info",
    operation_id = "getInfo",
    tag = "daemon",
    params(InfoQuery),
    responses((status = 200, description = "What runs.", body = Info)),
)]
pub async fn info(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<InfoQuery>,
) -> Result<Json<Info>, ApiError> {
    let sight = caller.listing(query.all);
    let counts = api.registry.hub().store().count_by_status(sight).await?;
    let (config, origin) = api.registry.shared().config.get_with_origin();
    let uptime_millis = Timestamp::now().as_millis() - api.started_at.as_millis();
    let limits = [
        ("processes", json!(config.limits.processes)),
        ("queue", json!(config.sessions.queue)),
        ("turnCap", json!(config.sessions.turn_cap)),
        ("toolCallCap", json!(config.sessions.tool_call_cap)),
        ("connections", json!(config.control.connections)),
        ("connectionsPerUser", json!(config.control.connections_per_user)),
        ("streamsPerUser", json!(config.control.streams_per_user)),
        ("requestsPerSecond", json!(config.control.requests_per_second)),
        ("promptsPerMinute", json!(config.control.prompts_per_minute)),
        ("bodyBytes", json!(config.control.body_max.0)),
        ("promptBytes", json!(config.limits.prompt_max.0)),
        ("mediaBytes", json!(config.limits.media_max.0)),
        ("lineBytes", json!(config.limits.line_max.0)),
        ("payloadBytes", json!(config.limits.payload_max.0)),
    ];
    let info = Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: api.started_at,
        uptime_seconds: u64::try_from(uptime_millis / 1000).unwrap_or(0),
        state_dir: Some(api.state_dir.display().to_string()),
        socket: api.socket.display().to_string(),
        sessions: counts.into_iter().map(|(status, count)| (status.to_owned(), count)).collect(),
        processes: ProcessCount { running: api.registry.process_count(sight), max: config.limits.processes },
        limits: limits.into_iter().chain(info::limits(&config)).map(|(name, value)| (name.to_owned(), value)).collect(),
        kernel: Some(info::kernel(&api)),
        versions: Some(info::versions()),
        rlimits: Some(info::resource_limits(&api)),
        config: Some(origin.as_ref().into()),
        store: Some((&api.registry.hub().store().health()).into()),
        load_events: api.load.counts().map(|(name, count)| (name.to_owned(), count)).collect(),
        security_events: api
            .registry
            .shared()
            .security
            .counts()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
    };
    Ok(Json(if caller.is_guest() { without_inside(info) } else { info }))
}

/// As it is told to a guest: without what is the host's business.
fn without_inside(info: Info) -> Info {
    Info { state_dir: None, config: None, store: None, security_events: BTreeMap::new(), ..info }
}
