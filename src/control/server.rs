//! Accepts and serves connections, within bounds.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Api;
use super::caller::Caller;
use super::peer::{self, Admitted};
use super::router::{self, RefusedPeer};
use super::socket::ControlSocket;
use crate::config;

/// How long accepting rests when there are no descriptors left; without it the loop would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Server {
    socket: ControlSocket,
    router: axum::Router,
    settings: config::Control,
    api: Arc<Api>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    pub fn new(socket: ControlSocket, api: Arc<Api>, settings: config::Control) -> Self {
        let router = router::router(Arc::clone(&api));
        Self { socket, router, settings, api, connections: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// Told to stop, it accepts nobody any more; connections finish the request they are in.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until it is stopped and the last connection has ended. The socket's file is gone then.
    pub async fn run(self) {
        let slots = Arc::new(Semaphore::new(self.settings.connections));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                break;
            };
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                accepted = self.socket.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.serve(stream, slot),
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection");
                    tokio::time::sleep_until(Instant::now() + ACCEPT_REST).await;
                }
            }
        }
        self.connections.close();
        self.connections.wait().await;
    }

    fn serve(&self, stream: UnixStream, slot: OwnedSemaphorePermit) {
        let shared = self.api.registry.shared();
        let (caller, refused) = match peer::admit(&stream, self.settings.group.as_ref(), &shared.security, &shared.host)
        {
            Ok(Admitted::Served(peer, standing)) => (Caller::new(Arc::new(peer), standing), None),
            Ok(Admitted::Agents(peer, standing)) => (Caller::new(Arc::new(peer), standing), Some(RefusedPeer)),
            Ok(Admitted::No) => return,
            Err(error) => return tracing::warn!(%error, "cannot tell who connects; refused"),
        };
        let service = TowerToHyperService::new(self.router.clone());
        let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(caller.clone());
            refused.map(|refused| request.extensions_mut().insert(refused));
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.header_timeout)
            .serve_connection(TokioIo::new(stream), service);
        let stop = self.stop.clone();
        self.connections.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let outcome = tokio::select! {
                biased;
                outcome = connection.as_mut() => outcome,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(slot);
        });
    }
}
