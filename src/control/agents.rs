//! Agents: the configured profiles.

use std::sync::Arc;

use axum::extract::State;

use super::Api;
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
pub async fn list(State(api): State<Arc<Api>>, Query(query): Query<PageQuery>) -> Result<Json<AgentList>, ApiError> {
    let (limit, offset) = page(query.limit.or(Some(LIMIT_MAX)), query.offset)?;
    let profiles = &api.registry.shared().config().agents;
    let (first, count) = (usize::try_from(offset).unwrap_or(0), usize::try_from(limit).unwrap_or(0));
    let agents = profiles.values().skip(first).take(count).map(|profile| agent(&api, profile)).collect();
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
pub async fn show(State(api): State<Arc<Api>>, _: NoQuery, Text(slug): Text) -> Result<Json<Agent>, ApiError> {
    let profiles = &api.registry.shared().config().agents;
    match profiles.get(&slug) {
        Some(profile) => Ok(Json(agent(&api, profile))),
        None => Err(ApiError::NoSuchAgent(slug)),
    }
}

fn agent(api: &Api, profile: &AgentProfile) -> Agent {
    let default = api.registry.shared().config().sessions.agent == profile.slug;
    Agent::new(profile, api.registry.is_installed(profile), default)
}
