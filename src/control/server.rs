//! Accepts and serves connections, within bounds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Api;
use super::connections::Connections;
use super::load::LoadEvent;
use super::peer;
use super::refuse;
use super::room::REFUSALS_MAX;
use super::router;
use super::serving::Serving;
use super::socket::ControlSocket;
use crate::config;

/// How long accepting rests when there are no descriptors left; without it the loop would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How often that is logged, while it lasts.
const TROUBLE_INTERVAL: Duration = Duration::from_secs(10);
/// What keeps connections from being accepted, for whoever goes on trying.
#[derive(Debug)]
pub struct Trouble {
    quiet_until: Instant,
}

impl Trouble {
    pub fn new() -> Self {
        Self { quiet_until: Instant::now() }
    }

    /// Tells of it now and then, and rests.
    pub async fn rest(&mut self, error: &io::Error) {
        let now = Instant::now();
        if now >= self.quiet_until {
            self.quiet_until = now + TROUBLE_INTERVAL;
            tracing::error!(%error, "cannot accept connections; still trying");
        }
        tokio::time::sleep_until(now + ACCEPT_REST).await;
    }
}

#[derive(Debug)]
pub struct Server {
    socket: ControlSocket,
    serving: Serving,
    settings: config::Control,
    api: Arc<Api>,
    seats: Arc<Connections>,
    /// For those who are told that there is no seat.
    refusals: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Server {
    pub fn new(socket: ControlSocket, api: Arc<Api>, settings: config::Control) -> Self {
        let serving = Serving::new(router::router(Arc::clone(&api)), &settings, &api);
        let seats = Arc::clone(&api.seats);
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        Self { socket, serving, settings, api, seats, refusals, stop: CancellationToken::new() }
    }

    /// Told to stop, it accepts nobody any more, and the socket's file goes. Connections finish the request they are in, if
    /// it is whole.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until it is stopped and the last connection has ended.
    pub async fn run(self) {
        let mut trouble = Trouble::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                accepted = self.socket.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => trouble.rest(&error).await,
            }
        }
        // Whoever comes now finds no socket, and does not wait for one that nobody serves; whoever has come is told. Where a
        // manager goes on listening, they wait for the next daemon.
        let Self { socket: ControlSocket { file, listener, lock }, serving, .. } = self;
        if let Some(file) = file {
            drop(file);
            while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
                refuse::at_once(&stream);
            }
        }
        drop(listener);
        serving.ended().await;
        drop(lock);
    }

    fn admit(&self, stream: UnixStream) {
        let shared = self.api.registry.shared();
        let (caller, refused) = match peer::admit(&stream, self.settings.group.as_ref(), &shared.security, &shared.host)
        {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "refused a connection: cannot read the peer's credentials"),
        };
        let uid = caller.peer.uid;
        let is_privileged = uid == 0 || uid == rustix::process::geteuid().as_raw();
        match self.seats.admit(uid, is_privileged) {
            Some(seat) => self.serving.serve(stream, seat, caller, refused, self.stop.clone()),
            None => self.refuse(stream, uid),
        }
    }

    /// Nobody is left to wait in silence, and accepting never waits: others may have seats left.
    fn refuse(&self, stream: UnixStream, uid: u32) {
        self.api.load.count(LoadEvent::Refused);
        tracing::debug!(uid, "a connection finds no place");
        match Arc::clone(&self.refusals).try_acquire_owned() {
            Ok(permit) => drop(self.serving.connections.spawn(async move {
                refuse::patiently(stream).await;
                drop(permit);
            })),
            Err(_) => refuse::at_once(&stream),
        }
    }
}
