//! The vocabulary: ids, times, statuses with their one transition table, turns, messages, events,
//! the context of sessions, retention, agent profiles, usage, choices, checkpoints, records.
//!
//! Nothing here does I/O or knows of tokio. The JSON of messages and events is defined here, once, because it is the
//! record itself: the store keeps that text and the control interface hands it out byte for byte. The shapes around it
//! (rows, requests, answers, ACP frames) belong to their own layers.

/// The words of a closed list, as JSON and the database have them.
macro_rules! words {
    ($name:ident, $what:literal: $($variant:ident = $word:literal),* $(,)?) => {
        impl $name {
            #[allow(dead_code, reason = "not every list is gone through")]
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!(concat!("{:?} is not ", $what), text)),
                }
            }
        }
    };
}

pub mod adapter;
pub mod agent;
pub mod block;
pub mod checkpoint;
pub mod choices;
pub mod context;
pub mod error;
pub mod event;
pub mod export;
pub mod id;
pub mod mcp;
pub mod message;
pub mod mistake;
pub mod object;
pub mod peer;
pub mod permission;
pub mod profile;
pub mod record;
pub mod retention;
pub mod sandbox;
pub mod secret;
pub mod session;
pub mod status;
pub mod time;
pub mod turn;
pub mod usage;

pub use adapter::Adapter;
pub use agent::AgentProfile;
pub use block::{Blob, BlobHash, BlockKind, PromptAbilities};
pub use checkpoint::Checkpoint;
pub use choices::{Announced, Choice, Chosen, Known, option_of};
pub use context::{ContextChange, ContextProblem, SessionContext};
pub use event::EventBody;
pub use id::{
    AgentId, CheckpointId, EntityId, MessageId, ObservationId, PermissionId, RuleId, SessionId, TurnId, WorkspaceId,
};
pub use message::{Content, Role};
pub use peer::{By, Peer, Sight};
pub use permission::PermissionMode;
pub use permission::policy::Policy;
pub use retention::{Retention, Verdict};
pub use sandbox::{FsScope, Sandbox, SandboxLevel};
pub use secret::Secret;
pub use session::{ContextRestored, LastError, ProcessState, SessionLimits};
pub use status::{SessionStatus, Trigger};
pub use time::Timestamp;
pub use turn::{ErrorCode, TurnError, TurnStatus};
pub use usage::{Amount, Meter, OnExceed, Usage};
