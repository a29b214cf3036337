//! Which handler has which route, and what every request goes through.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::value::RawValue;
use tracing::Instrument;
use utoipa::openapi::path::HttpMethod;
use uuid::Uuid;

use super::caller::Caller;
use super::error::ApiError;
use super::{
    Api, agents, backup, blobs, checkpoints, events, export, gc, health, import, info, messages, metrics, openapi,
    permissions, processes, records, reload, search, sessions, timeline, turns, workspaces,
};
use crate::agent::OwnerSecrets;
use crate::session::Refusal;

/// Marks the requests of a connection that are all refused.
#[derive(Clone, Copy, Debug)]
pub enum RefusedPeer {
    /// An agent's, at the control socket.
    Agent,
    /// Anybody's but its agent's, at the socket of a session's tools.
    NotItsAgent,
}

/// All handlers that are served, for a macro that does something with each. Path and method are with the handlers, in their
/// description, so that nothing is served that is not described.
macro_rules! with_every_route {
    ($does:ident) => {
        $does![
            health::health,
            info::info,
            processes::list,
            metrics::scrape,
            openapi::show,
            workspaces::list,
            workspaces::register,
            workspaces::show,
            workspaces::remove,
            agents::list,
            agents::create,
            agents::show,
            agents::change,
            agents::archive,
            agents::check,
            sessions::list,
            sessions::create,
            sessions::show,
            sessions::change,
            sessions::remove,
            sessions::resume,
            sessions::archive,
            sessions::messages,
            export::show,
            messages::add,
            messages::add_of_agent,
            turns::prompt,
            turns::cancel,
            turns::list,
            turns::show,
            events::of_session,
            events::of_all,
            permissions::of_all,
            permissions::show,
            permissions::answer,
            permissions::of_session,
            permissions::answer_in_session,
            permissions::rules,
            permissions::revoke,
            checkpoints::create,
            checkpoints::of_session,
            checkpoints::show,
            checkpoints::restore,
            checkpoints::of_all,
            records::of_session,
            records::submit,
            records::list,
            records::show,
            timeline::show,
            search::search,
            blobs::show,
            reload::reload,
            gc::collect,
            backup::create,
            import::create,
        ]
    };
}
#[cfg(test)]
pub(super) use with_every_route;

macro_rules! served {
    ($($module:ident::$handler:ident),* $(,)?) => {
        pastey::paste! {
            // On the heap: all of them together are large.
            vec![$(route::<$module::[<__path_ $handler>]>(|method| on(method, $module::$handler))),*]
        }
    };
}

macro_rules! paths_of {
    ($($module:ident::$handler:ident),* $(,)?) => {
        pastey::paste! { [$(<$module::[<__path_ $handler>] as utoipa::Path>::path()),*] }
    };
}

pub fn router(api: Arc<Api>) -> Router {
    guarded(served_at(with_every_route!(served)), api)
}

/// What the agent of a session gets to: the same handlers, and few of them.
pub fn tools(api: Arc<Api>) -> Router {
    let narrowed = middleware::from_fn_with_state(Arc::clone(&api), own_session_only);
    let routes = served![
        sessions::show,
        checkpoints::create,
        checkpoints::show,
        checkpoints::of_all,
        records::submit,
        records::list,
        timeline::show,
    ];
    guarded(served_at(routes).route_layer(narrowed), api)
}

/// An agent reads what its owner sees, and changes its own session only. Which one a body names is its reader's to look at.
async fn own_session_only(
    caller: Caller,
    path: RawPathParams,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let named = path.iter().find(|(name, _)| *name == "id");
    if let Some((_, session)) = named.filter(|_| !request.method().is_safe()) {
        caller.writes(session)?;
    }
    Ok(next.run(request).await)
}

fn served_at(routes: Vec<(String, MethodRouter<Arc<Api>>)>) -> Router<Arc<Api>> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(&path, methods))
}

/// What every request goes through.
fn guarded(router: Router<Arc<Api>>, api: Arc<Api>) -> Router {
    router
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&api), admit))
        .layer(middleware::from_fn_with_state(metrics::Routes::new(Arc::clone(&api), paths()), metrics::observe))
        .with_state(api)
}

/// The paths that are served, with names in braces for what varies.
pub fn paths() -> impl Iterator<Item = String> {
    with_every_route!(paths_of).into_iter()
}

/// A route as its handler describes it. Its schemas are not asked for: they are many, and for tests alone.
fn route<D: utoipa::Path>(serve: impl Fn(MethodFilter) -> MethodRouter<Arc<Api>>) -> (String, MethodRouter<Arc<Api>>) {
    let routes = D::methods().into_iter().map(|method| serve(filter(&method)));
    (D::path(), routes.fold(MethodRouter::new(), MethodRouter::merge))
}

const fn filter(method: &HttpMethod) -> MethodFilter {
    match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Options => MethodFilter::OPTIONS,
        HttpMethod::Head => MethodFilter::HEAD,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Trace => MethodFilter::TRACE,
    }
}

/// Every request has a span that says who asks, and its user's share of the rate.
async fn admit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    let peer = caller.as_ref().map(|caller| &caller.peer);
    // What is in it is put together only when somebody logs it.
    let span = tracing::info_span!(
        "request",
        id = %Uuid::now_v7(),
        method = %request.method(),
        path = request.uri().path(),
        uid = peer.map(|peer| peer.uid),
        pid = peer.and_then(|peer| peer.pid),
        program = peer.and_then(|peer| peer.program.as_deref()),
    );
    async move {
        match request.extensions().get::<RefusedPeer>() {
            Some(RefusedPeer::Agent) => return Err(ApiError::AgentsNotServed),
            Some(RefusedPeer::NotItsAgent) => return Err(ApiError::NotItsAgent),
            None => {}
        }
        if api.registry.is_stopping() && !health::is_asked(request.uri()) {
            return Err(ApiError::Registry(Refusal::ShuttingDown.into()));
        }
        let secrets = caller.as_ref().map(|caller| api.registry.hub().secrets(caller.owner()));
        if let Some(caller) = caller.filter(|_| !health::is_sign_of_life(request.uri())) {
            api.limits.request(&caller)?;
        }
        let response = without_secrets(secrets, next.run(request).await).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        Ok(response)
    }
    .instrument(span)
    .await
}

/// Redacts a refusal with the secrets of the caller's agents: it may repeat the words of an agent. Everything else that is
/// answered comes from the store, and was redacted when it was recorded.
async fn without_secrets(secrets: Option<OwnerSecrets>, response: Response) -> Response {
    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
    let redactor = secrets.filter(|_| is_refusal).and_then(|secrets| secrets.redactor());
    let Some(redactor) = redactor else { return response };
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
