//! Cleaning up by hand: a sweep and the store's upkeep now, or what they would do.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, OptionalJson};
use super::wire::{CollectGarbage, GarbageReport, HomesReport, UpkeepReport};
use crate::model::{ProcessState, SessionId, Sight};

/// How long a request waits for the store's upkeep; what is left is done later.
const UPKEEP_PATIENCE: Duration = Duration::from_secs(20);

/// Mark and delete expired sessions, and maintain the store.
///
/// Like the daily run, this marks newly expired sessions, and deletes only sessions that were marked at least 24 hours
/// ago. Then it maintains the store.
#[utoipa::path(
    post,
    path = "/v1/gc",
    operation_id = "collectGarbage",
    tag = "daemon",
    request_body = Option<CollectGarbage>,
    responses((status = 200, description = "The result; with a dry run, the changes that a collection would make.", body = GarbageReport)),
)]
pub async fn collect(
    State(api): State<Arc<Api>>,
    caller: Caller,
    OptionalJson(request): OptionalJson<CollectGarbage>,
) -> Result<Json<GarbageReport>, ApiError> {
    caller.host_only()?;
    let bytes_before = api.registry.hub().store().bytes_on_disk();
    let sweep = api.registry.sweep(request.dry_run).await?;
    let store = if request.dry_run { forecast(&api, bytes_before).await? } else { upkeep(&api, bytes_before).await? };
    let homes = homes(&api, request.homes && !request.dry_run).await;
    Ok(Json(GarbageReport::new(sweep, store, homes, request.dry_run)))
}

/// What isolated agents of sessions without a process have changed in their homes.
async fn homes(api: &Api, discard: bool) -> Option<HomesReport> {
    let registry = Arc::clone(&api.registry);
    let examined = tokio::task::spawn_blocking(move || {
        let directories = &registry.shared().host.directories;
        let is_stopped = |id: &SessionId| registry.live(*id).process_state == ProcessState::Stopped;
        let sessions: Vec<SessionId> = directories.sessions().into_iter().filter(is_stopped).collect();
        let bytes = directories.homes_size(&sessions);
        if discard {
            directories.discard_homes(&sessions);
        }
        HomesReport { bytes, discarded: discard }
    });
    // It does not panic, and a daemon that stops has nothing to report.
    examined.await.ok()
}

async fn upkeep(api: &Api, bytes_before: u64) -> Result<UpkeepReport, ApiError> {
    let hub = api.registry.hub();
    let done = hub.upkeep(UPKEEP_PATIENCE).await?;
    Ok(UpkeepReport {
        bytes_before,
        bytes_after: Some(hub.store().bytes_on_disk()),
        deltas_removed: done.deltas_removed,
        messages_indexed: done.messages_indexed,
        complete: done.is_complete,
    })
}

/// What there is to do, of the sessions that are there now.
async fn forecast(api: &Api, bytes_before: u64) -> Result<UpkeepReport, ApiError> {
    let store = api.registry.hub().store();
    let replay_turns = api.registry.shared().config().store.replay_turns;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let deltas_removed = count(store.removable_deltas(replay_turns).await?);
    let messages_indexed = count(store.unindexed_messages(Sight::All).await?);
    let complete = deltas_removed == 0 && messages_indexed == 0;
    Ok(UpkeepReport { bytes_before, bytes_after: None, deltas_removed, messages_indexed, complete })
}
