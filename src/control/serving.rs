//! How a connection is served, at whichever socket it came in: HTTP/1.1, one request after the other, within bounds.

use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Api;
use super::caller::Caller;
use super::connections::Seat;
use super::exchange::{Answered, Asked, unfailing};
use super::guarded::{Deadlines, Guarded};
use super::load::Load;
use super::router::RefusedPeer;
use crate::config;

/// What hyper holds of a request or an answer in its buffers, and how large a request's head may be. Its number of fields
/// hyper bounds by itself, at a hundred.
const BUFFER_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 32 << 10;

#[derive(Debug)]
pub struct Serving {
    router: axum::Router,
    deadlines: Deadlines,
    load: Arc<Load>,
    /// All that are being served.
    pub connections: TaskTracker,
}

impl Serving {
    pub fn new(router: axum::Router, settings: &config::Control, api: &Api) -> Self {
        let (deadlines, load) = (Deadlines::from(settings), Arc::clone(&api.load));
        Self { router, deadlines, load, connections: TaskTracker::new() }
    }

    /// Resolves when the last connection has ended. There are to be no more.
    pub async fn ended(&self) {
        self.connections.close();
        self.connections.wait().await;
    }

    /// Serves a connection until it ends, or, when all is to stop, until the request that it is in is answered.
    pub fn serve(
        &self,
        stream: UnixStream,
        seat: Seat,
        caller: Caller,
        refused: Option<RefusedPeer>,
        stop: CancellationToken,
    ) {
        let seat = Arc::new(seat);
        let progress = Arc::clone(seat.progress());
        let load = Arc::clone(&self.load);
        let stream = Guarded::new(stream, Arc::clone(&progress), load, self.deadlines);
        let service = TowerToHyperService::new(self.router.clone());
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let seat = Arc::clone(&seat);
            let mut request = request.map(|body| Asked::new(body, Arc::clone(&seat)));
            request.extensions_mut().insert(caller.clone());
            request.extensions_mut().insert(Arc::clone(seat.progress()));
            refused.map(|refused| request.extensions_mut().insert(refused));
            let answer = service.call(request);
            async move {
                let response = unfailing(answer.await);
                Ok::<_, io::Error>(Answered::response(response, &seat))
            }
        });
        // The deadline for heads is the stream's: hyper's own would be the same for a head and for a pause.
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        self.connections.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let outcome = tokio::select! {
                biased;
                outcome = connection.as_mut() => outcome,
                () = stop.cancelled() => {
                    if progress.phase().can_make_room() {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended early");
            }
        });
    }
}
