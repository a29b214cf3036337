//! Timelines: what became of something, over all sessions that had to do with it.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, Query, page};
use super::wire::records::Timeline;
use crate::model::Timestamp;
use crate::store::TimelineFilter;

/// Moments when the request does not say.
const LIMIT_DEFAULT: i64 = 200;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TimelineQuery {
    /// The id of an outcome's entity, a session's id or `session_id`, or an `entity_id`.
    #[param(min_length = 1)]
    #[serde(alias = "entity_id")]
    entity: String,
    /// Only entries from this time on, or from the beginning of this day (2026-01-31, in UTC).
    #[serde(alias = "start_date")]
    from: Option<String>,
    /// Only entries up to and including this time, or this day.
    #[serde(alias = "end_date")]
    to: Option<String>,
    /// Include the sessions of all users. Only root can do this; for other users it has no effect.
    #[serde(default)]
    all: bool,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 1000, default = 200)]
    limit: Option<i64>,
    /// Number of items to skip.
    #[param(minimum = 0, default = 0)]
    offset: Option<i64>,
}

/// Show an entity's history across sessions.
///
/// The timeline covers every session with this name, or with an outcome for this id: its start, checkpoints, outcomes
/// and end. An unknown entity has an empty timeline.
#[utoipa::path(
    get,
    path = "/v1/timeline",
    operation_id = "getTimeline",
    tag = "records",
    params(TimelineQuery),
    responses((status = 200, description = "A page of timeline entries.", body = Timeline)),
)]
pub async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<TimelineQuery>,
) -> Result<Json<Timeline>, ApiError> {
    let (limit, offset) = page(query.limit.or(Some(LIMIT_DEFAULT)), query.offset)?;
    if query.entity.is_empty() {
        return Err(ApiError::invalid("entity", "must not be empty"));
    }
    let sight = caller.listing(query.all);
    let (from, to) = (time("from", query.from, "00:00:00")?, time("to", query.to, "23:59:59.999")?);
    let filter = TimelineFilter { sight, entity: query.entity.clone(), from, to };
    let (items, total) = api.registry.hub().store().timeline(&filter, limit, offset).await?;
    let items = items.into_iter().map(Into::into).collect();
    Ok(Json(Timeline { entity: query.entity, items, total, limit, offset }))
}

/// A time; for a day, this clock time of it in UTC.
fn time(field: &str, text: Option<String>, clock: &str) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let time = text.parse().or_else(|_| format!("{text}T{clock}Z").parse());
    time.map(Some).map_err(|_| ApiError::invalid(field, "must be a day (2026-01-31) or a time (2026-01-31T12:00:00Z)"))
}
