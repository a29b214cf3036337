//! Workspaces: registered directories.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Id, Json, PageQuery, Query, page};
use super::wire::{RegisterWorkspace, Workspace, WorkspaceList};
use crate::model::WorkspaceId;

pub async fn list(
    State(api): State<Arc<Api>>,
    Query(query): Query<PageQuery>,
) -> Result<Json<WorkspaceList>, ApiError> {
    let (limit, offset) = page(query.limit, query.offset)?;
    let (workspaces, total) = api.registry.hub().store().workspaces(limit, offset).await?;
    let workspaces = workspaces.into_iter().map(Workspace::from).collect();
    Ok(Json(WorkspaceList { workspaces, total, limit, offset }))
}

pub async fn register(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<RegisterWorkspace>,
) -> Result<(StatusCode, Json<Workspace>), ApiError> {
    let (path, owner) = (Path::new(&request.path), caller.owner());
    let workspace = api.registry.register_workspace(path, owner, Some(&caller.peer)).await?;
    Ok((StatusCode::CREATED, Json(workspace.into())))
}

pub async fn show(State(api): State<Arc<Api>>, Id(id): Id<WorkspaceId>) -> Result<Json<Workspace>, ApiError> {
    let workspace = api.registry.hub().store().workspace(id).await?;
    let workspace = workspace.ok_or_else(|| ApiError::NoSuchWorkspace(id.to_string()))?;
    Ok(Json(workspace.into()))
}

pub async fn remove(State(api): State<Arc<Api>>, Id(id): Id<WorkspaceId>) -> Result<Json<Workspace>, ApiError> {
    Ok(Json(api.registry.remove_workspace(id).await?.into()))
}
