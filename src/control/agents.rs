//! Agents: the profiles of the configuration, those that are made here, and trials of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, LIMIT_MAX, NoQuery, OptionalJson, Query, Text, page};
use super::profiles::changed;
use super::wire::{Agent, AgentCheck, AgentList, CheckAgent, CreateAgent, PatchAgent};
use crate::agent::unset_variables;
use crate::model::AgentProfile;
use crate::model::profile::{Definition, MadeProfile, Program, SLUG_HINT, Status, is_slug};
use crate::registry::{Found, RegistryError};
use crate::store::StoreError;

/// A page ends early when it is this large.
const PAGE_BYTES_MAX: usize = 8 << 20;

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Include archived agents.
    #[serde(default)]
    include_archived: bool,
    /// Include the agents of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// List agents.
///
/// Agents from the configuration come first, then agents made over the API, each sorted by slug.
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "listAgents",
    tag = "agents",
    params(ListQuery),
    responses((status = 200, description = "A page of agents; large profiles make the page shorter.", body = AgentList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<AgentList>, ApiError> {
    let (limit, offset) = page(query.limit.or(Some(LIMIT_MAX)), query.offset)?;
    let (config, store) = (api.registry.shared().config(), api.registry.hub().store());
    let registered = store.registered_agents().await?;
    let (first, count) = (usize::try_from(offset).unwrap_or(0), usize::try_from(limit).unwrap_or(0));
    let configured: Vec<&AgentProfile> = config.agents.values().skip(first).take(count).collect();
    let configured_total = i64::try_from(config.agents.len()).unwrap_or(i64::MAX);
    let left = limit.saturating_sub(i64::try_from(configured.len()).unwrap_or(limit));
    let passed = offset.saturating_sub(configured_total).max(0);
    let (made, made_total) = store.profiles(caller.listing(query.all), query.include_archived, left, passed).await?;
    let mut agents: Vec<Agent> = shown(&api, &caller, configured).await;
    for agent in &mut agents {
        agent.register(registered.get(&agent.slug));
    }
    agents.extend(shown_made(&api, &caller, of_page(&api, &made)).await);
    Ok(Json(AgentList { agents, total: configured_total + made_total, limit, offset }))
}

/// The first of them, as many as are not too large together, and never none when there are any. Each has what its base has, a
/// system prompt too.
fn of_page<'a>(api: &Api, made: &'a [MadeProfile]) -> &'a [MadeProfile] {
    let weight = |made: &MadeProfile| {
        let profile = api.registry.resolved(made).map_or_else(|_| made.alone().freeze(), |profile| profile.freeze());
        serde_json::to_string(&profile).map_or(0, |text| text.len())
    };
    let mut bytes = 0;
    let has_room = |made: &&MadeProfile| {
        let has_room = bytes < PAGE_BYTES_MAX;
        bytes += weight(made);
        has_room
    };
    let count = made.iter().take_while(has_room).count();
    made.get(..count).unwrap_or(made)
}

/// Show an agent.
///
/// The values of its environment variables are not shown.
#[utoipa::path(
    get,
    path = "/v1/agents/{slug}",
    operation_id = "getAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The agent's slug or id."),
    ),
    responses((status = 200, description = "The agent.", body = Agent)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    _: NoQuery,
    Text(slug): Text,
) -> Result<Json<Agent>, ApiError> {
    let (agents, profile) = match api.registry.agent(&slug, caller.sight()).await.map_err(not_found)? {
        Found::Configured(profile, known) => {
            let mut agents = shown(&api, &caller, vec![&profile]).await;
            for agent in &mut agents {
                agent.register(Some(&known));
            }
            (agents, Some(*profile))
        }
        Found::Made(made) => {
            let profile = api.registry.resolved(&made).ok();
            (shown_made(&api, &caller, &[*made]).await, profile)
        }
    };
    let mut agent = agents.into_iter().next().ok_or(ApiError::NoSuchAgent(slug))?;
    if let Some(profile) = profile.filter(|_| !caller.is_guest()) {
        let looked = tokio::task::spawn_blocking(move || unset_variables(&profile, &api.registry.shared().environment));
        agent.env_unset = looked.await.unwrap_or_default();
    }
    Ok(Json(agent))
}

/// Create an agent.
///
/// The agent narrows an agent from the configuration (its base), or runs a command of its own.
#[utoipa::path(
    post,
    path = "/v1/agents",
    operation_id = "createAgent",
    tag = "agents",
    request_body = CreateAgent,
    responses((status = 201, description = "The new agent.", body = Agent)),
)]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<CreateAgent>,
) -> Result<(StatusCode, Json<Agent>), ApiError> {
    let (slug, change) = request.into_change();
    if !is_slug(&slug) {
        return Err(ApiError::misunderstood("slug", "is not a valid agent name", SLUG_HINT));
    }
    let base = api.registry.shared().config().sessions.agent.clone();
    let definition = changed(&api, &caller, Definition::new(&slug, Program::Base(base)), change)?;
    let made = api.registry.make_profile(slug, definition, caller.owner(), &caller.peer).await?;
    Ok((StatusCode::CREATED, Json(one_made(&api, &caller, made).await?)))
}

/// Change an agent that was made over the API.
///
/// Existing sessions keep the settings that they were created with.
#[utoipa::path(
    patch,
    path = "/v1/agents/{slug}",
    operation_id = "changeAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The agent's slug or id."),
    ),
    request_body = PatchAgent,
    responses((status = 200, description = "The agent after the change.", body = Agent)),
)]
pub async fn change(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Text(slug): Text,
    Json(request): Json<PatchAgent>,
) -> Result<Json<Agent>, ApiError> {
    let edit = |made: &MadeProfile| {
        let status = request.status.unwrap_or(made.status);
        Ok((changed(&api, &caller, made.definition.clone(), request)?, status))
    };
    let made = api.registry.change_profile(&slug, caller.sight(), &caller.peer, edit).await;
    Ok(Json(one_made(&api, &caller, made.map_err(named)?).await?))
}

/// Archive an agent that was made over the API.
///
/// It takes no new sessions. Its existing sessions continue.
#[utoipa::path(
    delete,
    path = "/v1/agents/{slug}",
    operation_id = "archiveAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The agent's slug or id."),
    ),
    responses((status = 200, description = "The archived agent.", body = Agent)),
)]
pub async fn archive(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Text(slug): Text,
) -> Result<Json<Agent>, ApiError> {
    let edit = |made: &MadeProfile| Ok((made.definition.clone(), Status::Archived));
    let made = api.registry.change_profile(&slug, caller.sight(), &caller.peer, edit).await;
    Ok(Json(one_made(&api, &caller, made.map_err(named)?).await?))
}

/// A name in a path that nobody has.
fn not_found(error: RegistryError) -> ApiError {
    match error {
        RegistryError::UnknownAgent(slug) => ApiError::NoSuchAgent(slug),
        error => error.into(),
    }
}

fn named(error: ApiError) -> ApiError {
    match error {
        ApiError::Registry(error) => not_found(error),
        error => error,
    }
}

/// Profiles as they are for whoever asks. For somebody whom the user database does not tell of now, nothing is installed.
async fn shown(api: &Api, caller: &Caller, profiles: Vec<&AgentProfile>) -> Vec<Agent> {
    let commands = profiles.iter().map(|profile| profile.command.clone()).collect();
    let found = api.registry.find_commands(commands, caller.owner()).await.unwrap_or_default();
    let found = found.into_iter().map(Result::ok).chain(std::iter::repeat(None));
    let config = api.registry.shared().config();
    let agent = |(profile, path): (&AgentProfile, Option<PathBuf>)| {
        let path = path.map(|path| path.display().to_string());
        let agent = Agent::new(profile, caller.owner(), path, config.sessions.agent == profile.slug);
        Agent { fs_scope: agent.fs_scope.within(config.sandbox.allow_full), ..agent }
    };
    profiles.into_iter().zip(found).map(agent).collect()
}

/// Those of the API. One whose base is gone is shown without what it would have of that.
async fn shown_made(api: &Api, caller: &Caller, made: &[MadeProfile]) -> Vec<Agent> {
    let config = api.registry.shared().config();
    let resolved: Vec<Option<AgentProfile>> = made.iter().map(|made| api.registry.resolved(made).ok()).collect();
    let whole: Vec<AgentProfile> =
        resolved.iter().zip(made).map(|(profile, made)| profile.clone().unwrap_or_else(|| made.alone())).collect();
    let agents = shown(api, caller, whole.iter().collect()).await.into_iter().zip(made).zip(resolved);
    let agent = |((agent, made), resolved): ((Agent, &MadeProfile), Option<AgentProfile>)| {
        let shadowed = config.agents.contains_key(&made.slug);
        Agent { default: false, ..agent.made(made, shadowed, resolved.is_none()) }
    };
    agents.map(agent).collect()
}

async fn one_made(api: &Api, caller: &Caller, made: MadeProfile) -> Result<Agent, ApiError> {
    let slug = made.slug.clone();
    let agents = shown_made(api, caller, &[made]).await;
    agents.into_iter().next().ok_or(ApiError::NoSuchAgent(slug))
}

/// Check an agent: start it, complete the ACP handshake and stop it.
///
/// The response comes when all processes of the agent have ended. A failure of the agent is part of the response, not
/// an error of the request.
#[utoipa::path(
    post,
    path = "/v1/agents/{slug}/check",
    operation_id = "checkAgent",
    tag = "agents",
    params(
        ("slug" = String, Path, description = "The agent's slug or id."),
    ),
    request_body = Option<CheckAgent>,
    responses((status = 200, description = "The result of the check.", body = AgentCheck)),
)]
pub async fn check(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Text(slug): Text,
    OptionalJson(request): OptionalJson<CheckAgent>,
) -> Result<Json<Box<RawValue>>, ApiError> {
    let timeout = match request.timeout_seconds {
        Some(seconds @ 1..=CheckAgent::SECONDS_MAX) => Some(Duration::from_secs(seconds)),
        Some(_) => {
            return Err(ApiError::invalid("timeoutSeconds", format!("must be from 1 to {}", CheckAgent::SECONDS_MAX)));
        }
        None => None,
    };
    let began = Instant::now();
    let (owner, sight) = (caller.owner(), caller.sight());
    let tried = api.registry.try_agent(&slug, owner, sight, request.session, timeout).await;
    let (profile, trial) = tried.map_err(not_found)?;
    let check = AgentCheck::new(&profile, trial, began.elapsed());
    let damaged = |error: serde_json::Error| StoreError::Damaged { what: error.to_string() };
    let told = to_raw_value(&check).map_err(damaged)?;
    // It is all in the agent's words, which may have its key in them.
    let redacted = api.registry.hub().secrets(owner).redactor().and_then(|redactor| redactor.json(&told));
    Ok(Json(redacted.unwrap_or(told)))
}
