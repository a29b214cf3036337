//! Who asks: the process at the other end of a connection, as the kernel tells it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub uid: u32,
    /// None when the peer is in a namespace that the daemon does not see into.
    pub pid: Option<i32>,
    /// The short name of its program, when it was still there to be asked.
    pub program: Option<String>,
}
