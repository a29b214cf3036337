//! Who asks: the process at the other end of a connection, as the kernel tells it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub uid: u32,
    /// None when the peer is in a namespace that the daemon does not see into.
    pub pid: Option<i32>,
    /// The short name of its program, when it was still there to be asked.
    pub program: Option<String>,
}

/// How far somebody sees. Who owns something is a user, or nobody, which is the daemon's own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    #[default]
    All,
    Own(Option<u32>),
}

impl Sight {
    pub fn has(self, owner: Option<u32>) -> bool {
        match self {
            Self::All => true,
            Self::Own(user) => user == owner,
        }
    }
}
