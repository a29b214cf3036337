//! The wire: ACP as JSON-RPC 2.0, one object a line.
//!
//! Framing ([`codec`]), routing on a borrowed envelope ([`envelope`]), request correlation with deadlines
//! ([`requests`]), the lines we write ([`outgoing`]) and what we understand of those we read ([`update`],
//! [`incoming`], [`client`], [`content`], [`usage`], [`choices`], and [`chunk`] for most of it). Nothing here knows of processes, and
//! nothing an agent sends is an error of ours: what cannot be understood is kept as it is.

pub mod choices;
mod chunk;
pub mod client;
pub mod codec;
pub mod content;
mod depth;
pub mod envelope;
#[cfg(test)]
pub mod fuzz;
pub mod incoming;
pub mod introduction;
pub mod outgoing;
pub mod requests;
pub mod update;
pub mod usage;

pub use chunk::{Chunk, Chunks};
pub use codec::{BUFFER_BYTES, Line, LineCodec, LongLines};
pub use depth::is_shallow;
pub use envelope::{Envelope, RpcError};
pub use requests::Requests;
pub use update::Update;

/// The protocol version that we speak.
pub const PROTOCOL_VERSION: u16 = 1;
