//! Full-text search over messages.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, Query, page};
use super::wire::search::SearchResults;
use crate::model::message::Role;
use crate::model::{SessionId, Sight, Timestamp, WorkspaceId};
use crate::store::{SearchFilter, SearchQuery};

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchRequest {
    /// The query: words, "phrases", prefixes* and AND, OR, NOT, NEAR.
    q: String,
    /// Only messages in this workspace.
    #[param(value_type = Option<WorkspaceId>)]
    workspace_id: Option<WorkspaceId>,
    /// Only messages of sessions with this agent.
    agent: Option<String>,
    /// Only messages of this session.
    #[param(value_type = Option<SessionId>)]
    session: Option<SessionId>,
    /// Only messages with this role.
    #[param(value_type = Option<Role>)]
    role: Option<Role>,
    /// Only messages from this time on.
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only messages before this time.
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
    /// Include the messages of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// Search the text of messages.
#[utoipa::path(
    get,
    path = "/v1/search",
    operation_id = "searchMessages",
    tag = "messages",
    params(SearchRequest),
    responses((status = 200, description = "A page of matching messages, best match first; for members of \
        control.group, newest first.", body = SearchResults)),
)]
pub async fn search(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(request): Query<SearchRequest>,
) -> Result<Json<SearchResults>, ApiError> {
    let (limit, offset) = page(request.limit, request.offset)?;
    let query = SearchQuery::parse(&request.q).map_err(ApiError::SearchQuery)?;
    let filter = SearchFilter {
        sight: caller.listing(request.all),
        is_ranked: caller.sight() == Sight::All,
        workspace: request.workspace_id,
        agent: request.agent,
        session: request.session,
        role: request.role,
        since: request.since,
        until: request.until,
    };
    let hub = api.registry.hub();
    let pending = hub.index_messages(filter.sight).await?;
    let bound = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let searching = hub.store().search(caller.peer.uid, &query, &filter, bound(limit), bound(offset));
    let (hits, total) = searching.await.map_err(ApiError::Search)?;
    let results = hits.into_iter().map(Into::into).collect();
    Ok(Json(SearchResults { results, total, limit, offset, pending }))
}
