//! Which handler has which route, and what every request goes through.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde_json::value::RawValue;
use tracing::Instrument;
use uuid::Uuid;

use super::caller::Caller;
use super::error::ApiError;
use super::{
    Api, agents, backup, blobs, events, gc, messages, permissions, search, sessions, system, turns, workspaces,
};
use crate::session::Refusal;

/// Marks the requests of an agent, which are all refused.
#[derive(Clone, Copy, Debug)]
pub struct RefusedPeer;

pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/v1/health", get(system::health))
        .route("/v1/info", get(system::info))
        .route("/v1/workspaces", get(workspaces::list).post(workspaces::register))
        .route("/v1/workspaces/{id}", get(workspaces::show).delete(workspaces::remove))
        .route("/v1/agents", get(agents::list))
        .route("/v1/agents/{slug}", get(agents::show))
        .route("/v1/sessions", get(sessions::list).post(sessions::create))
        .route("/v1/sessions/{id}", get(sessions::show).patch(sessions::change).delete(sessions::remove))
        .route("/v1/sessions/{id}/resume", post(sessions::resume))
        .route("/v1/sessions/{id}/archive", post(sessions::archive))
        .route("/v1/sessions/{id}/messages", get(sessions::messages).post(messages::add))
        .route("/v1/sessions/{id}/prompt", post(turns::prompt))
        .route("/v1/sessions/{id}/cancel", post(turns::cancel))
        .route("/v1/sessions/{id}/turns", get(turns::list))
        .route("/v1/sessions/{id}/turns/{turn}", get(turns::show))
        .route("/v1/sessions/{id}/events", get(events::of_session))
        .route("/v1/events", get(events::of_all))
        .route("/v1/permissions", get(permissions::of_all))
        .route("/v1/permissions/{id}", get(permissions::show).post(permissions::answer))
        .route("/v1/sessions/{id}/permissions", get(permissions::of_session))
        .route("/v1/sessions/{id}/permissions/{permission}", post(permissions::answer_in_session))
        .route("/v1/sessions/{id}/rules", get(permissions::rules))
        .route("/v1/sessions/{id}/rules/{rule}", delete(permissions::revoke))
        .route("/v1/search", get(search::search))
        .route("/v1/blobs/{sha256}", get(blobs::show))
        .route("/v1/gc", post(gc::collect))
        .route("/v1/backup", post(backup::create))
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&api), admit))
        .with_state(api)
}

/// Every request has a span that says who asks, and its user's share of the rate.
async fn admit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let peer = request.extensions().get::<Caller>().map(|caller| Arc::clone(&caller.peer));
    let (uid, pid) = (peer.as_ref().map(|peer| peer.uid), peer.as_ref().and_then(|peer| peer.pid));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let span = tracing::info_span!("request", id = %Uuid::now_v7(), %method, path, uid, pid);
    async move {
        if request.extensions().get::<RefusedPeer>().is_some() {
            return Err(ApiError::AgentsNotServed);
        }
        if api.registry.is_stopping() {
            return Err(ApiError::Registry(Refusal::ShuttingDown.into()));
        }
        if let Some(uid) = uid {
            api.limits.request(uid)?;
        }
        let response = without_secrets(&api, next.run(request).await).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        Ok(response)
    }
    .instrument(span)
    .await
}

/// What is refused is refused in the words of whoever asked or was asked, and an agent's may have its key in them. All else
/// that is answered comes from the record, which has none.
async fn without_secrets(api: &Api, response: Response) -> Response {
    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
    let Some(redactor) = api.registry.hub().secrets().redactor().filter(|_| is_refusal) else { return response };
    let (mut parts, body) = response.into_parts();
    // It is in memory already.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let redacted = serde_json::from_slice::<&RawValue>(&bytes).ok().and_then(|json| redactor.json(json));
    let Some(redacted) = redacted else { return Response::from_parts(parts, bytes.into()) };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, redacted.get().to_owned().into())
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::NoRoute { path: uri.path().to_owned() }
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::MethodNotAllowed { method: method.to_string(), path: uri.path().to_owned() }
}
