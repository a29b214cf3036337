//! The link to the agent's process: whether there is one, and what it is doing.
//!
//! ```text
//! Stopped ──▶ Waiting (for a slot) ──▶ Entering ──▶ Up: Starting (handshake) ──▶ Ready ──▶ Stopping ──▶ Stopped
//!    │  ▲└────────────────────────────────▲              └────────────────────────────▲
//!    ▼  │
//!   Resting (after crashes)
//! ```
//!
//! Starting and Ready go to Stopped when the process ends by itself, or to Entering when work waits and the slot stays.
//! Entering goes to Stopped when there is nothing to start, or nothing to start it in. Waiting and Resting go to Stopped when
//! nothing waits any more.

use std::pin::Pin;

use tokio::time::{Instant, sleep_until};

use super::Slot;
use super::handshake::Handshake;
use super::workspace::{Entered, Entry};
use crate::acp::incoming::Abilities;
use crate::agent::tools::ToolsSocket;
use crate::agent::{Exit, Output, Process};
use crate::model::SandboxLevel;
use crate::model::event::ExitReason;

type SlotFuture = Pin<Box<dyn Future<Output = Slot> + Send>>;

pub enum Link {
    Stopped,
    /// The agent crashed again and again: work waits until then.
    Resting(Instant),
    /// Work was accepted earlier and waits its turn for a process.
    Waiting(SlotFuture),
    /// What a process is started with is looked up on a thread, which may take its time.
    Entering {
        slot: Slot,
        entry: Entry,
    },
    Up(Connected),
}

/// A process with the right to have it.
pub struct Connected {
    pub process: Process,
    pub slot: Slot,
    /// The agent's process id, once its shim has told.
    pub pid: Option<u32>,
    pub phase: Phase,
    /// What holds the process, once it has told.
    pub sandbox: SandboxLevel,
    /// Whether it was started as one that must not write to the workspace.
    pub is_read_only: bool,
    /// Whether people were told why its tools may not write somewhere.
    pub has_explained: bool,
    /// The socket of acpd's own tools, which goes with the process.
    pub tools: Option<ToolsSocket>,
}

pub enum Phase {
    Starting(Box<Handshake>),
    Ready {
        agent_session: String,
        abilities: Abilities,
    },
    Stopping {
        reason: ExitReason,
        /// It was restoring the conversation, and may still repeat it.
        was_restoring: bool,
    },
}

/// What the link brings.
pub enum LinkInput {
    Rested,
    Slot(Slot),
    Entered(Entered),
    Output(Output),
}

impl Connected {
    /// A process that was started just now.
    pub fn new(process: Process, slot: Slot, phase: Phase, is_read_only: bool) -> Self {
        let sandbox = SandboxLevel::None;
        Self { process, slot, pid: None, phase, sandbox, is_read_only, has_explained: false, tools: None }
    }
}

impl Link {
    /// The next input. Lines are not taken while the actor has no room for them. Safe to cancel.
    pub async fn next(&mut self, has_room: bool) -> LinkInput {
        match self {
            Self::Resting(until) => {
                sleep_until(*until).await;
                LinkInput::Rested
            }
            Self::Waiting(slot) => LinkInput::Slot(slot.as_mut().await),
            Self::Entering { entry, .. } => LinkInput::Entered(entry.next().await),
            // `Exited` is the last output, and it makes the link `Stopped`; without it the supervisor itself failed.
            Self::Up(connected) if has_room => {
                LinkInput::Output(connected.process.next().await.unwrap_or(Output::Exited(Exit::LOST)))
            }
            Self::Stopped | Self::Up(_) => std::future::pending().await,
        }
    }

    /// Whether the process has said something that nobody has taken yet.
    pub fn has_output(&self) -> bool {
        self.process().is_some_and(Process::has_output)
    }

    pub fn connected(&self) -> Option<&Connected> {
        match self {
            Self::Up(connected) => Some(connected),
            Self::Stopped | Self::Resting(_) | Self::Waiting(_) | Self::Entering { .. } => None,
        }
    }

    pub fn phase(&self) -> Option<&Phase> {
        self.connected().map(|connected| &connected.phase)
    }

    pub fn process(&self) -> Option<&Process> {
        self.connected().map(|connected| &connected.process)
    }

    pub fn handshake(&self) -> Option<&Handshake> {
        match self.phase() {
            Some(Phase::Starting(handshake)) => Some(handshake),
            Some(Phase::Ready { .. } | Phase::Stopping { .. }) | None => None,
        }
    }

    pub fn handshake_mut(&mut self) -> Option<&mut Handshake> {
        match self {
            Self::Up(Connected { phase: Phase::Starting(handshake), .. }) => Some(handshake),
            Self::Stopped | Self::Resting(_) | Self::Waiting(_) | Self::Entering { .. } | Self::Up(_) => None,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.agent_session().is_some()
    }

    pub fn agent_session(&self) -> Option<&str> {
        match self.phase() {
            Some(Phase::Ready { agent_session, .. }) => Some(agent_session),
            Some(Phase::Starting(_) | Phase::Stopping { .. }) | None => None,
        }
    }
}
