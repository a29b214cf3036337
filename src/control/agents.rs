//! Agents: the configured profiles.

use std::sync::Arc;

use axum::extract::State;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, LIMIT_MAX, NoQuery, PageQuery, Query, Text, page};
use super::wire::{Agent, AgentList};
use crate::model::AgentProfile;

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
    let installed = api.registry.are_installed(commands, caller.owner()).await.unwrap_or_default();
    let installed = installed.into_iter().chain(std::iter::repeat(false));
    let default = &api.registry.shared().config().sessions.agent;
    let agent =
        |(profile, is_installed): (&AgentProfile, bool)| Agent::new(profile, is_installed, *default == profile.slug);
    profiles.into_iter().zip(installed).map(agent).collect()
}
