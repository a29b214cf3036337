//! The control interface: HTTP/1.1 over the Unix socket.
//!
//! [`socket`] binds it, [`server`] accepts and serves connections within bounds, [`router`] says which handler has which
//! route; one file a resource; [`extract`] reads requests, [`error`] makes every refusal one shape with one total
//! match, [`wire`] has the JSON, and [`openapi`] describes it all. Handlers ask the registry or the record and own no state.

#![allow(unused_qualifications, reason = "utoipa's macros qualify what is in scope")]

mod agents;
mod backup;
mod blobs;
mod caller;
mod checkpoints;
mod choices;
mod connections;
mod content;
mod error;
mod events;
mod exchange;
mod export;
mod extract;
#[cfg(test)]
mod fuzz;
mod gc;
mod guarded;
mod health;
mod idempotency;
mod import;
mod info;
mod limits;
mod load;
mod memory;
mod messages;
mod metrics;
mod misreading;
mod openapi;
mod peer;
mod permissions;
mod processes;
mod profiles;
mod progress;
mod records;
mod refuse;
mod reload;
mod room;
mod router;
mod search;
mod server;
mod serving;
mod sessions;
mod socket;
mod streams;
mod timeline;
mod tools;
mod turns;
pub mod wire;
mod workspaces;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc::Sender;

use crate::model::Timestamp;
use crate::registry::Registry;

pub use reload::{RELOADS_MAX, ReloadError, ReloadRequest};
pub use room::fit_connections;
pub use server::Server;
pub use socket::{ControlSocket, Door};
pub use tools::ToolsServer;

/// What every handler has.
#[derive(Debug)]
pub struct Api {
    pub registry: Arc<Registry>,
    pub limits: limits::RateLimits,
    /// Who follows what.
    pub streams: Arc<streams::Streams>,
    /// Who has how many connections.
    pub seats: Arc<connections::Connections>,
    /// Memory for bodies that are being read, for imports until they are done, and for answers that are not taken yet.
    pub bodies: memory::Budget,
    pub imports: memory::Budget,
    pub answers: memory::Budget,
    /// What was refused so that the rest could be served.
    pub load: Arc<load::Load>,
    pub trials: health::Trials,
    /// The idempotency keys of requests that are being carried out.
    pub keys: idempotency::Keys,
    pub started_at: Timestamp,
    pub state_dir: PathBuf,
    pub socket: PathBuf,
    /// Where requests to reload the configuration go.
    pub reloads: Sender<ReloadRequest>,
}

impl Api {
    pub fn new(
        registry: Arc<Registry>,
        state_dir: PathBuf,
        socket: PathBuf,
        reloads: Sender<ReloadRequest>,
    ) -> Arc<Self> {
        let config = registry.shared().config();
        let settings = &config.control;
        let load: Arc<load::Load> = Arc::default();
        let budget =
            |max: usize, one: usize| memory::Budget::new(max, settings.part_of_user(max).max(one), Arc::clone(&load));
        Arc::new(Self {
            limits: limits::RateLimits::new(settings),
            streams: streams::Streams::new(settings.streams_per_user),
            seats: connections::Connections::new(settings.connections, settings.share_of_user()),
            bodies: budget(settings.bodies_max.0, settings.body_max.0),
            imports: budget(settings.import_max.0, settings.import_max.0),
            answers: budget(settings.answers_max.0, 0),
            load,
            trials: health::Trials::default(),
            keys: idempotency::Keys::default(),
            started_at: Timestamp::now(),
            registry,
            state_dir,
            socket,
            reloads,
        })
    }
}
