//! Serves agents their tools: one private socket a process (`agent/tools.rs`), at which the agent of that session gets to a few
//! routes of the control interface, as its owner sees them.

use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::Connections;
use super::server::Trouble;
use super::serving::Serving;
use super::{Api, peer, refuse, router};
use crate::agent::tools::OpenedTools;

/// What one agent has at once. Its server for the tools has half of them at the most.
const CONNECTIONS_MAX: usize = 4;

#[derive(Debug)]
pub struct ToolsServer {
    opened: mpsc::Receiver<OpenedTools>,
    attendant: Arc<Attendant>,
    stop: CancellationToken,
}

/// What serves all of them.
#[derive(Debug)]
struct Attendant {
    api: Arc<Api>,
    serving: Serving,
}

impl ToolsServer {
    pub fn new(opened: mpsc::Receiver<OpenedTools>, api: Arc<Api>, stop: CancellationToken) -> Self {
        let config = api.registry.shared().config();
        let serving = Serving::new(router::tools(Arc::clone(&api)), &config.control, &api);
        Self { opened, attendant: Arc::new(Attendant { api, serving }), stop }
    }

    /// Serves until it is stopped and the last connection has ended.
    pub async fn run(mut self) {
        let sockets = TaskTracker::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                opened = self.opened.recv() => match opened {
                    Some(tools) => drop(sockets.spawn(Arc::clone(&self.attendant).attend(tools, self.stop.clone()))),
                    None => break,
                },
            }
        }
        sockets.close();
        sockets.wait().await;
        self.attendant.serving.ended().await;
    }
}

impl Attendant {
    /// Serves one socket until its process is gone.
    async fn attend(self: Arc<Self>, tools: OpenedTools, stop: CancellationToken) {
        let seats = Connections::new(CONNECTIONS_MAX, CONNECTIONS_MAX);
        let mut trouble = Trouble::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = tools.closed.cancelled() => return,
                () = stop.cancelled() => break,
                accepted = tools.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream, &tools, &seats),
                Err(error) => trouble.rest(&error).await,
            }
        }
        // The daemon stops before the process is gone: its connections end all the same.
        tools.closed.cancel();
    }

    fn admit(&self, stream: UnixStream, tools: &OpenedTools, seats: &Arc<Connections>) {
        let shared = self.api.registry.shared();
        let (caller, refused) = match peer::admit_agent(&stream, tools, &shared.security, &shared.host) {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(error) => {
                return tracing::warn!(%error, "refused a connection to a session's tools: cannot read the peer's credentials");
            }
        };
        match seats.admit(caller.peer.uid, true) {
            Some(seat) => self.serving.serve(stream, seat, caller, refused, tools.closed.clone()),
            None => refuse::at_once(&stream),
        }
    }
}
