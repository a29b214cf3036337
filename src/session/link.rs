//! The link to the agent's process: whether there is one, and what it is doing.
//!
//! ```text
//! Stopped ──▶ Waiting (for a slot) ──▶ Starting (handshake) ──▶ Ready ──▶ Stopping ──▶ Stopped
//!    └───────────────────────────────────▲    └────────────────────────────▲
//! ```

use std::pin::Pin;

use super::Slot;
use crate::agent::{Output, Process};
use crate::model::event::ExitReason;

type SlotFuture = Pin<Box<dyn Future<Output = Slot> + Send>>;

pub enum Link {
    Stopped,
    /// Work was accepted earlier and waits its turn for a process.
    Waiting(SlotFuture),
    Starting(Connected),
    Ready {
        connected: Connected,
        agent_session: String,
    },
    Stopping {
        connected: Connected,
        reason: ExitReason,
    },
}

/// A process with the right to have it.
pub struct Connected {
    pub process: Process,
    pub slot: Slot,
}

/// What the link brings.
pub enum LinkInput {
    Slot(Slot),
    Output(Output),
}

impl Link {
    /// The next input. Lines are not taken while the actor has no room for them. Safe to cancel.
    pub async fn next(&mut self, has_room: bool) -> LinkInput {
        match self {
            Self::Waiting(slot) => LinkInput::Slot(slot.as_mut().await),
            Self::Stopped => std::future::pending().await,
            Self::Starting(connected) | Self::Ready { connected, .. } | Self::Stopping { connected, .. } => {
                if !has_room {
                    return std::future::pending().await;
                }
                match connected.process.next().await {
                    Some(output) => LinkInput::Output(output),
                    // `Exited` is the last output, and it makes the link `Stopped`.
                    None => std::future::pending().await,
                }
            }
        }
    }

    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Stopped | Self::Waiting(_) => None,
            Self::Starting(connected) | Self::Ready { connected, .. } | Self::Stopping { connected, .. } => {
                Some(&connected.process)
            }
        }
    }

    pub fn agent_session(&self) -> Option<&str> {
        match self {
            Self::Ready { agent_session, .. } => Some(agent_session),
            Self::Stopped | Self::Waiting(_) | Self::Starting(_) | Self::Stopping { .. } => None,
        }
    }
}
