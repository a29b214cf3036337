//! A copy of the whole record, while it is in use.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::Json;
use super::wire::{BackUp, Backup};

/// Back up the store to a new file.
///
/// The response comes when the file is complete. If the client disconnects before that, acpd cancels the backup.
#[utoipa::path(
    post,
    path = "/v1/backup",
    operation_id = "createBackup",
    tag = "daemon",
    request_body = BackUp,
    responses((status = 201, description = "The finished backup.", body = Backup)),
)]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<BackUp>,
) -> Result<(StatusCode, Json<Backup>), ApiError> {
    caller.host_only()?;
    let made = api.registry.hub().store().back_up(Path::new(&request.path)).await.map_err(ApiError::Backup)?;
    Ok((StatusCode::CREATED, Json(made.into())))
}
