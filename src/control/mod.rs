//! The control interface: HTTP/1.1 over the Unix socket.
//!
//! [`socket`] binds it, [`server`] accepts and serves connections within bounds, [`router`] says which handler has which
//! route; one file a resource; [`extract`] reads requests, [`error`] makes every refusal one shape with one total
//! match, and [`wire`] has the JSON. Handlers ask the registry or the record and own no state.

mod agents;
mod backup;
mod blobs;
mod caller;
mod choices;
mod content;
mod error;
mod events;
mod extract;
mod gc;
mod idempotency;
mod limits;
mod messages;
mod peer;
mod permissions;
mod router;
mod search;
mod server;
mod sessions;
mod socket;
mod system;
mod turns;
pub mod wire;
mod workspaces;

use std::path::PathBuf;
use std::sync::Arc;

use crate::model::Timestamp;
use crate::registry::Registry;

pub use server::Server;
pub use socket::{ControlSocket, Door};

/// What every handler has.
#[derive(Debug)]
pub struct Api {
    pub registry: Arc<Registry>,
    pub limits: limits::RateLimits,
    /// The idempotency keys of requests that are being carried out.
    pub keys: idempotency::Keys,
    pub started_at: Timestamp,
    pub state_dir: PathBuf,
    pub socket: PathBuf,
}

impl Api {
    pub fn new(registry: Arc<Registry>, state_dir: PathBuf, socket: PathBuf) -> Arc<Self> {
        let limits = limits::RateLimits::new(&registry.shared().config().control);
        let keys = idempotency::Keys::default();
        Arc::new(Self { registry, limits, keys, started_at: Timestamp::now(), state_dir, socket })
    }
}
