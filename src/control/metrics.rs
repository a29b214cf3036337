//! `GET /metrics`, and what is counted of every request.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use super::Api;
use super::caller::Caller;
use super::error::{ApiError, RefusedWith};
use super::exchange::within_budget;
use super::extract::NoQuery;
use crate::metrics::{Format, MethodLabel, Metrics, Now, RouteMetrics};
use crate::model::Sight;

/// The route of what has none.
const NO_ROUTE: &str = "none";

/// Export metrics for Prometheus.
///
/// The metrics cover the sessions of all users, so members of `control.group` cannot read them.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "daemon",
    params(("Accept" = Option<String>, Header, description = "`application/openmetrics-text` selects the OpenMetrics format.")),
    responses((
        status = 200,
        description = "Metrics in Prometheus text format, or OpenMetrics.",
        content((String = "text/plain"), (String = "application/openmetrics-text"))
    )),
)]
pub async fn scrape(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.host_only()?;
    let format = Format::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let now = look(&api).await?;
    let text = api.registry.shared().metrics.scraped(&now, format).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

async fn look(api: &Api) -> Result<Now, ApiError> {
    let (registry, hub) = (&api.registry, api.registry.hub());
    let (store, config) = (hub.store(), registry.shared().config());
    let sessions = store.count_by_status(Sight::All).await?.into_iter().collect();
    let tally = store.tally().await?;
    let (database_bytes, journal_bytes) = store.sizes();
    Ok(Now {
        version: env!("CARGO_PKG_VERSION"),
        started_at: api.started_at,
        processes: registry.process_states().map(|(state, count)| (state.as_str(), count)).into(),
        process_slots: config.limits.processes,
        sessions,
        turns_queued: tally.turns_queued,
        turns_running: tally.turns_running,
        permissions_open: tally.permissions_open,
        writer_queue: hub.queued_units(),
        subscribers: hub.subscribers(),
        database_bytes,
        journal_bytes,
        connections: api.seats.count(),
        connections_max: config.control.connections,
        security: registry.shared().security.counts().collect(),
        load: api.load.counts().collect(),
    })
}

/// What is counted of each route, for the one layer that all requests go through.
#[derive(Debug)]
pub struct Routes {
    api: Arc<Api>,
    by_path: HashMap<String, RouteMetrics>,
    none: RouteMetrics,
}

impl Routes {
    pub fn new(api: Arc<Api>, paths: impl Iterator<Item = String>) -> Arc<Self> {
        let metrics: &Metrics = &api.registry.shared().metrics;
        let none = metrics.route(NO_ROUTE);
        let by_path = paths.map(|path| (path.clone(), metrics.route(&path))).collect();
        Arc::new(Self { api, by_path, none })
    }
}

/// Counts a request by the template of its route, and what it was refused with.
pub async fn observe(State(routes): State<Arc<Routes>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = path.and_then(|path| routes.by_path.get(path)).unwrap_or(&routes.none);
    let method = MethodLabel::from(request.method().as_str());
    let uid = request.extensions().get::<Caller>().map_or(u32::MAX, |caller| caller.peer.uid);
    let response = within_budget(next.run(request).await, &routes.api.answers, uid);
    route.answered(method, response.status().as_u16(), began.elapsed());
    if let Some(RefusedWith(code)) = response.extensions().get() {
        routes.api.registry.shared().metrics.refused(code);
    }
    response
}
