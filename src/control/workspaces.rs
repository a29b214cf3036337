//! Workspaces: registered directories.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Json, NoQuery, Query, page};
use super::wire::{RegisterWorkspace, Workspace, WorkspaceList};
use crate::model::WorkspaceId;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Include the workspaces of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// List registered workspaces.
#[utoipa::path(
    get,
    path = "/v1/workspaces",
    operation_id = "listWorkspaces",
    tag = "workspaces",
    params(ListQuery),
    responses((status = 200, description = "A page of workspaces.", body = WorkspaceList)),
)]
pub async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<WorkspaceList>, ApiError> {
    let (limit, offset) = page(query.limit, query.offset)?;
    let (workspaces, total) = api.registry.hub().store().workspaces(caller.listing(query.all), limit, offset).await?;
    let workspaces = workspaces.into_iter().map(Workspace::from).collect();
    Ok(Json(WorkspaceList { workspaces, total, limit, offset }))
}

/// Register a directory as a workspace, by its real path.
#[utoipa::path(
    post,
    path = "/v1/workspaces",
    operation_id = "registerWorkspace",
    tag = "workspaces",
    request_body = RegisterWorkspace,
    responses((status = 201, description = "The registered workspace.", body = Workspace)),
)]
pub async fn register(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<RegisterWorkspace>,
) -> Result<(StatusCode, Json<Workspace>), ApiError> {
    let (path, owner) = (Path::new(&request.path), caller.owner());
    let workspace = api.registry.register_workspace(path, owner, Some(&caller.peer)).await?;
    Ok((StatusCode::CREATED, Json(workspace.into())))
}

/// Show a workspace.
#[utoipa::path(
    get,
    path = "/v1/workspaces/{id}",
    operation_id = "getWorkspace",
    tag = "workspaces",
    params(("id" = WorkspaceId, Path, description = "The workspace's id.")),
    responses((status = 200, description = "The workspace.", body = Workspace)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<Workspace>, ApiError> {
    Ok(Json(api.registry.workspace(id, caller.sight()).await?.into()))
}

/// Remove a workspace that no session uses.
#[utoipa::path(
    delete,
    path = "/v1/workspaces/{id}",
    operation_id = "removeWorkspace",
    tag = "workspaces",
    params(("id" = WorkspaceId, Path, description = "The workspace's id.")),
    responses((status = 200, description = "The removed workspace.", body = Workspace)),
)]
pub async fn remove(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<Workspace>, ApiError> {
    Ok(Json(api.registry.remove_workspace(id, caller.sight(), Some(&caller.peer)).await?.into()))
}
