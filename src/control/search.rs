//! Full-text search over messages.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use super::Api;
use super::error::ApiError;
use super::extract::{Json, Query, page};
use super::wire::search::SearchResults;
use crate::model::message::Role;
use crate::model::{SessionId, Timestamp, WorkspaceId};
use crate::store::{SearchFilter, SearchQuery};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchRequest {
    q: String,
    workspace_id: Option<WorkspaceId>,
    agent: Option<String>,
    session: Option<SessionId>,
    role: Option<Role>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: Option<i64>,
    offset: Option<i64>,
}

pub async fn search(
    State(api): State<Arc<Api>>,
    Query(request): Query<SearchRequest>,
) -> Result<Json<SearchResults>, ApiError> {
    let (limit, offset) = page(request.limit, request.offset)?;
    let query = SearchQuery::parse(&request.q).map_err(ApiError::SearchQuery)?;
    let filter = SearchFilter {
        workspace: request.workspace_id,
        agent: request.agent,
        session: request.session,
        role: request.role,
        since: request.since,
        until: request.until,
    };
    let hub = api.registry.hub();
    let pending = hub.index_messages().await?;
    let bound = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let (hits, total) =
        hub.store().search(&query, &filter, bound(limit), bound(offset)).await.map_err(ApiError::Search)?;
    let results = hits.into_iter().map(Into::into).collect();
    Ok(Json(SearchResults { results, total, limit, offset, pending }))
}
