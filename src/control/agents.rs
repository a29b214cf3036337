//! Agents: the configured profiles, and trials of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use serde_json::value::{RawValue, to_raw_value};

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, LIMIT_MAX, NoQuery, OptionalJson, PageQuery, Query, Text, page};
use super::wire::{Agent, AgentCheck, AgentList, CheckAgent};
use crate::model::AgentProfile;
use crate::registry::RegistryError;
use crate::store::StoreError;

/// Lists the configured agents.
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "listAgents",
    tag = "agents",
    params(
        ("limit" = Option<i64>, Query, description = "How many at the most.", minimum = 1, maximum = 1000),
        ("offset" = Option<i64>, Query, description = "How many are passed over.", minimum = 0),
    ),
    responses((status = 200, description = "A page of them.", body = AgentList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Json<AgentList>, ApiError> {
    let (limit, offset) = page(query.limit.or(Some(LIMIT_MAX)), query.offset)?;
    let profiles = &api.registry.shared().config().agents;
    let (first, count) = (usize::try_from(offset).unwrap_or(0), usize::try_from(limit).unwrap_or(0));
    let agents = shown(&api, &caller, profiles.values().skip(first).take(count).collect()).await;
    let total = i64::try_from(profiles.len()).unwrap_or(i64::MAX);
    Ok(Json(AgentList { agents, total, limit, offset }))
}

/// Shows an agent, without values of its environment.
#[utoipa::path(
    get,
    path = "/v1/agents/{slug}",
    operation_id = "getAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The name of its section in the configuration."),
    ),
    responses((status = 200, description = "The agent.", body = Agent)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    _: NoQuery,
    Text(slug): Text,
) -> Result<Json<Agent>, ApiError> {
    let profiles = &api.registry.shared().config().agents;
    let agents = shown(&api, &caller, profiles.get(&slug).into_iter().collect()).await;
    agents.into_iter().next().map(Json).ok_or(ApiError::NoSuchAgent(slug))
}

/// Profiles as they are for whoever asks. For somebody whom the user database does not tell of now, nothing is installed.
async fn shown(api: &Api, caller: &Caller, profiles: Vec<&AgentProfile>) -> Vec<Agent> {
    let commands = profiles.iter().map(|profile| profile.command.clone()).collect();
    let found = api.registry.find_commands(commands, caller.owner()).await.unwrap_or_default();
    let found = found.into_iter().chain(std::iter::repeat(None));
    let default = &api.registry.shared().config().sessions.agent;
    let agent = |(profile, path): (&AgentProfile, Option<PathBuf>)| {
        Agent::new(profile, path.map(|path| path.display().to_string()), *default == profile.slug)
    };
    profiles.into_iter().zip(found).map(agent).collect()
}

/// The longest that somebody may want a check to take.
const CHECK_SECONDS_MAX: u64 = 600;

/// Starts the agent and shakes hands with it, as a session would, and stops it again.
///
/// Answers when nothing of it is left. What goes wrong with the agent is told in the answer, and is no error of the request.
#[utoipa::path(
    post,
    path = "/v1/agents/{slug}/check",
    operation_id = "checkAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The name of its section in the configuration."),
    ),
    request_body = Option<CheckAgent>,
    responses((status = 200, description = "What was seen.", body = AgentCheck)),
)]
pub async fn check(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Text(slug): Text,
    OptionalJson(request): OptionalJson<CheckAgent>,
) -> Result<Json<Box<RawValue>>, ApiError> {
    let timeout = match request.timeout_seconds {
        Some(seconds @ 1..=CHECK_SECONDS_MAX) => Some(Duration::from_secs(seconds)),
        Some(_) => return Err(ApiError::invalid("timeoutSeconds", format!("is not within 1 and {CHECK_SECONDS_MAX}"))),
        None => None,
    };
    let began = Instant::now();
    let tried = api.registry.try_agent(&slug, caller.owner(), request.session, timeout).await;
    let (profile, trial) = tried.map_err(|error| match error {
        RegistryError::UnknownAgent(slug) => ApiError::NoSuchAgent(slug),
        error => error.into(),
    })?;
    let check = AgentCheck::new(&profile, trial, began.elapsed());
    let damaged = |error: serde_json::Error| StoreError::Damaged { what: error.to_string() };
    let told = to_raw_value(&check).map_err(damaged)?;
    // It is all in the agent's words, which may have its key in them.
    let redacted = api.registry.hub().secrets().redactor().and_then(|redactor| redactor.json(&told));
    Ok(Json(redacted.unwrap_or(told)))
}
