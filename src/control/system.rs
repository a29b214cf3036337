//! How the daemon is: health and info.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;

use super::Api;
use super::error::ApiError;
use super::extract::Json;
use super::wire::{Health, Info, ProcessCount};
use crate::model::Timestamp;
use crate::store::{Catalogue, Unit};

/// Alive, and the store can be written: a trial write goes the whole way through the writer.
pub async fn health(State(api): State<Arc<Api>>) -> Result<Json<Health>, ApiError> {
    api.registry.hub().append(Unit::catalogue(Catalogue::Heartbeat)).await.map_err(ApiError::Unhealthy)?;
    Ok(Json(Health { status: "ok".to_owned() }))
}

pub async fn info(State(api): State<Arc<Api>>) -> Result<Json<Info>, ApiError> {
    let counts = api.registry.hub().store().count_by_status().await?;
    let (config, origin) = api.registry.shared().config.get_with_origin();
    let uptime_millis = Timestamp::now().as_millis() - api.started_at.as_millis();
    let limits = [
        ("processes", json!(config.limits.processes)),
        ("queue", json!(config.sessions.queue)),
        ("turnCap", json!(config.sessions.turn_cap)),
        ("toolCallCap", json!(config.sessions.tool_call_cap)),
        ("connections", json!(config.control.connections)),
        ("requestsPerSecond", json!(config.control.requests_per_second)),
        ("promptsPerMinute", json!(config.control.prompts_per_minute)),
        ("bodyBytes", json!(config.control.body_max.0)),
        ("promptBytes", json!(config.limits.prompt_max.0)),
        ("lineBytes", json!(config.limits.line_max.0)),
        ("payloadBytes", json!(config.limits.payload_max.0)),
    ];
    Ok(Json(Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: api.started_at,
        uptime_seconds: u64::try_from(uptime_millis / 1000).unwrap_or(0),
        state_dir: api.state_dir.display().to_string(),
        socket: api.socket.display().to_string(),
        sessions: counts.into_iter().map(|(status, count)| (status.to_owned(), count)).collect(),
        processes: ProcessCount { running: api.registry.process_count(), max: config.limits.processes },
        limits: limits.map(|(name, value)| (name.to_owned(), value)).into(),
        config: Some(origin.as_ref().into()),
    }))
}
