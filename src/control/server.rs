//! Accepts and serves connections, within bounds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Api;
use super::caller::Caller;
use super::connections::{Connections, Seat};
use super::exchange::{Answered, Asked, unfailing};
use super::guarded::{Deadlines, Guarded};
use super::load::LoadEvent;
use super::peer::{self, Admitted};
use super::refuse;
use super::room::REFUSALS_MAX;
use super::router::{self, RefusedPeer};
use super::socket::ControlSocket;
use crate::config;

/// How long accepting rests when there are no descriptors left; without it the loop would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How often that is logged, while it lasts.
const TROUBLE_INTERVAL: Duration = Duration::from_secs(10);
/// What hyper holds of a request or an answer in its buffers, and how large a request's head may be. Its number of fields
/// hyper bounds by itself, at a hundred.
const BUFFER_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 32 << 10;

#[derive(Debug)]
pub struct Server {
    socket: ControlSocket,
    router: axum::Router,
    settings: config::Control,
    api: Arc<Api>,
    seats: Arc<Connections>,
    /// For those who are told that there is no seat.
    refusals: Arc<Semaphore>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    pub fn new(socket: ControlSocket, api: Arc<Api>, settings: config::Control) -> Self {
        let router = router::router(Arc::clone(&api));
        let seats = Arc::clone(&api.seats);
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let (connections, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { socket, router, settings, api, seats, refusals, connections, stop }
    }

    /// Told to stop, it accepts nobody any more, and the socket's file goes. Connections finish the request they are in, if
    /// it is whole.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until it is stopped and the last connection has ended.
    pub async fn run(self) {
        let mut quiet_until = Instant::now();
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                accepted = self.socket.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    let now = Instant::now();
                    if now >= quiet_until {
                        quiet_until = now + TROUBLE_INTERVAL;
                        tracing::error!(%error, "cannot accept connections; trying again and again");
                    }
                    tokio::time::sleep_until(now + ACCEPT_REST).await;
                }
            }
        }
        // Whoever comes now finds no socket, and does not wait for one that nobody serves; whoever has come is told. Where a
        // manager goes on listening, they wait for the next daemon.
        let Self { socket: ControlSocket { file, listener, lock }, connections, .. } = self;
        if let Some(file) = file {
            drop(file);
            while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
                refuse::at_once(&stream);
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
        drop(lock);
    }

    fn admit(&self, stream: UnixStream) {
        let shared = self.api.registry.shared();
        let (caller, refused) = match peer::admit(&stream, self.settings.group.as_ref(), &shared.security, &shared.host)
        {
            Ok(Admitted::Served(peer, standing)) => (Caller::new(Arc::new(peer), standing), None),
            Ok(Admitted::Agents(peer, standing)) => (Caller::new(Arc::new(peer), standing), Some(RefusedPeer)),
            Ok(Admitted::No) => return,
            Err(error) => return tracing::warn!(%error, "cannot tell who connects; refused"),
        };
        let uid = caller.peer.uid;
        let is_privileged = uid == 0 || uid == rustix::process::geteuid().as_raw();
        match self.seats.admit(uid, is_privileged) {
            Some(seat) => self.serve(stream, seat, caller, refused),
            None => self.refuse(stream, uid),
        }
    }

    /// Nobody is left to wait in silence, and accepting never waits: others may have seats left.
    fn refuse(&self, stream: UnixStream, uid: u32) {
        self.api.load.count(LoadEvent::Refused);
        tracing::debug!(uid, "a connection finds no place");
        match Arc::clone(&self.refusals).try_acquire_owned() {
            Ok(permit) => drop(self.connections.spawn(async move {
                refuse::patiently(stream).await;
                drop(permit);
            })),
            Err(_) => refuse::at_once(&stream),
        }
    }

    fn serve(&self, stream: UnixStream, seat: Seat, caller: Caller, refused: Option<RefusedPeer>) {
        let seat = Arc::new(seat);
        let progress = Arc::clone(seat.progress());
        let load = Arc::clone(&self.api.load);
        let stream = Guarded::new(stream, Arc::clone(&progress), load, Deadlines::from(&self.settings));
        let service = TowerToHyperService::new(self.router.clone());
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let seat = Arc::clone(&seat);
            let mut request = request.map(|body| Asked::new(body, Arc::clone(&seat)));
            request.extensions_mut().insert(caller.clone());
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
        let stop = self.stop.clone();
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
