//! Retention by hand: a sweep now, or what one would do.

use std::sync::Arc;

use axum::extract::State;

use super::Api;
use super::error::ApiError;
use super::extract::{Json, OptionalJson};
use super::wire::{CollectGarbage, GarbageReport};

/// A sweep like the daily one: it marks, and deletes only what was marked a day before.
pub async fn collect(
    State(api): State<Arc<Api>>,
    OptionalJson(request): OptionalJson<CollectGarbage>,
) -> Result<Json<GarbageReport>, ApiError> {
    let sweep = api.registry.sweep(request.dry_run).await?;
    Ok(Json(GarbageReport::new(sweep, request.dry_run)))
}
