//! Reloading the configuration. The daemon does it: a request waits in the same channel as a SIGHUP.

use std::sync::Arc;

use axum::extract::State;
use tokio::sync::oneshot;

use super::Api;
use super::caller::Caller;
use super::error::ApiError;
use super::extract::{Json, OptionalJson};
use super::sessions::Nothing;
use super::wire::Reload;
use crate::config::ConfigError;
use crate::session::Refusal;
use crate::store::StoreError;

/// Reloads that wait for the one that runs.
pub const RELOADS_MAX: usize = 16;

/// One reload; a SIGHUP does not wait for the outcome.
pub type ReloadRequest = Option<oneshot::Sender<Result<Reload, ReloadError>>>;

/// Why the configuration was not reloaded.
#[derive(Debug)]
pub enum ReloadError {
    Invalid(ConfigError),
    Store(StoreError),
}

/// Reload the configuration.
///
/// Reads the configuration file again, as SIGHUP does. An invalid file changes nothing.
#[utoipa::path(
    post,
    path = "/v1/reload",
    operation_id = "reloadConfig",
    tag = "daemon",
    request_body = Option<Nothing>,
    responses((status = 200, description = "What has changed, and what needs a restart.", body = Reload)),
)]
pub async fn reload(
    State(api): State<Arc<Api>>,
    caller: Caller,
    OptionalJson(Nothing {}): OptionalJson<Nothing>,
) -> Result<Json<Reload>, ApiError> {
    caller.host_only()?;
    let (answer, outcome) = oneshot::channel();
    if api.reloads.try_send(Some(answer)).is_err() {
        return Err(ApiError::Overloaded { what: "another reload" });
    }
    let outcome = outcome.await.map_err(|_| ApiError::Registry(Refusal::ShuttingDown.into()))?;
    Ok(Json(outcome?))
}

impl From<ReloadError> for ApiError {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Invalid(error) => Self::ConfigInvalid(error),
            ReloadError::Store(error) => error.into(),
        }
    }
}
