//! Sessions: one actor each, reached through a [`SessionHandle`].
//!
//! The actor ([`actor`]) is the one task that owns a session's status, process, turns and transcript. It takes one
//! closed `enum Input` from one `select!` and awaits nothing slow in its handlers: a commit's acknowledgement, an
//! agent's line and a free slot are inputs like any other.

mod action;
mod actor;
mod callbacks;
mod choices;
mod confinement;
mod consent;
mod context;
mod crashes;
mod failure;
mod files;
mod glance;
mod grants;
mod handshake;
mod history;
mod inbox;
mod instructions;
mod link;
mod links;
mod modes;
mod outbox;
mod process;
mod prompt;
mod refusals;
mod requests;
mod servers;
mod services;
mod shares;
mod slots;
mod spending;
mod start;
mod terminals;
mod transcript;
mod trial;
mod turns;
mod waiting;
mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::Mode;
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::confine::Places;
use crate::agent::tools::OpenedTools;
use crate::agent::{Bounds, Grounds, Host, Persona, WorkspaceError};
use crate::config::{self, Config};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::model::permission::question::PermissionOption;
use crate::model::status::Denied;
use crate::model::{
    Blob, By, Choice, Chosen, Content, ContextChange, ContextProblem, MessageId, Peer, PermissionId, ProcessState,
    RuleId, SessionStatus, Timestamp, TurnId,
};
use crate::security::Security;
use crate::store::{Claim, SessionChange, StoreError};

pub use actor::{SessionActor, actor};
pub use choices::known;
pub use glance::{Glance, ToolNow};
pub use inbox::{OPEN_MAX, PermissionAnswer};
pub use modes::{asks, check_modes};
pub use prompt::WAITING_MAX;
pub use slots::{Slot, Slots};
pub use trial::{Trial, TrialError, TrialWish, try_agent};

/// Requests that wait for one session. More are shed.
pub const MAILBOX_MAX: usize = 64;

/// What every actor has from the daemon.
#[derive(Debug)]
pub struct Shared {
    pub hub: Hub,
    pub config: config::Current,
    /// The home of the daemon's user.
    pub home: PathBuf,
    /// The daemon's own environment, from which agents get what is allowed.
    pub environment: BTreeMap<String, String>,
    /// The umask that agents get, which is the one the daemon was started with.
    pub umask: Mode,
    pub slots: Arc<Slots>,
    pub host: Host,
    pub security: Security,
    pub metrics: Arc<Metrics>,
    /// What no agent is to write to.
    pub places: Places,
    /// Where the sockets of agents' tools go to be served.
    pub tools: mpsc::Sender<OpenedTools>,
}

impl Shared {
    pub fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// Where workspaces of whoever this is must lie.
    pub fn grounds(&self, persona: &Persona) -> Grounds {
        let roots = persona.home(&self.home).map(|home| self.config().workspace_roots(home)).unwrap_or_default();
        let hidden = persona.home(&self.home).map(|home| self.places.hidden(&self.config().sandbox, home));
        Grounds { roots, reserved: self.places.reserved(), hidden: hidden.unwrap_or_default() }
    }

    /// The bounds of a process that is started now.
    pub fn bounds(&self) -> Bounds {
        Bounds::new(&self.config(), self.umask)
    }
}

/// What can be asked of a session.
#[derive(Debug)]
pub enum Request {
    Prompt {
        prompt: Box<NewPrompt>,
        admission: Admission,
        reply: Reply<Accepted>,
    },
    /// A system message, which waits for the next prompt.
    SystemMessage {
        message: SystemMessage,
        reply: Reply<()>,
    },
    Cancel {
        turn: Option<TurnId>,
        queued: bool,
        by: By,
        reply: Reply<Vec<TurnId>>,
    },
    Change {
        edit: Box<Edit>,
        reply: Reply<()>,
    },
    Resume {
        by: By,
        reply: Reply<()>,
    },
    /// Archives; with `purge`, deletes for good.
    Close {
        reason: Option<String>,
        purge: bool,
        by: By,
        reply: Reply<()>,
    },
    /// Deletes the session, because its time in the status that it was seen in is over. One that went on is kept.
    Expire {
        seen: SessionStatus,
        reply: Reply<()>,
    },
    /// Answers a question of the agent's.
    Answer {
        permission: PermissionId,
        answer: PermissionAnswer,
        by: Peer,
        reply: Reply<()>,
    },
    /// Takes back what somebody has answered for good.
    Revoke {
        rule: RuleId,
        by: By,
        reply: Reply<()>,
    },
    /// Starts the process without a prompt, so that the first one finds it warm.
    Start {
        admission: Admission,
    },
    /// Makes room for another session's process. An actor with work refuses.
    Evict {
        reply: oneshot::Sender<bool>,
    },
    /// Tells what it does now.
    Glance {
        reply: oneshot::Sender<Glance>,
    },
}

/// What a request that may need a process brings for it.
#[derive(Debug)]
pub enum Admission {
    /// Nothing: it is for a process that is there, or on its way.
    None,
    Slot(Slot),
    /// Somebody lets a process go for it; the slot comes when that is gone.
    Promised,
}

pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

#[derive(Clone, Debug)]
pub struct NewPrompt {
    pub turn: TurnId,
    pub message: MessageId,
    pub content: Content,
    /// The data that the content names. It goes to the record, and is not kept in memory for the turn.
    pub blobs: Vec<Blob>,
    /// What holds for this prompt in place of the session's context.
    pub context: Option<ContextChange>,
    pub by: By,
    /// Its key, committed with it.
    pub claim: Option<Claim>,
}

/// A message for the agent that begins no turn.
#[derive(Debug)]
pub struct SystemMessage {
    pub id: MessageId,
    pub text: String,
    pub by: By,
    /// Its key, committed with it.
    pub claim: Option<Claim>,
}

/// What somebody wants changed of a session, all of it or nothing.
#[derive(Debug)]
pub struct Edit {
    pub change: SessionChange,
    pub context: Option<ContextChange>,
    /// What is chosen of the agent's modes, models and options.
    pub choices: Chosen,
}

#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub position: usize,
    pub after: i64,
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("the session is {0}")]
    NotActive(SessionStatus),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("the limit of {waiting} waiting turns is reached")]
    QueueFull { waiting: usize },
    #[error("{waiting} system messages already wait for the next prompt, which is the limit")]
    WaitingFull { waiting: usize },
    #[error("content[{index}] has the type {kind}, which the agent {agent:?} does not accept; it accepts {takes}")]
    UnsupportedContent { index: usize, kind: &'static str, agent: String, takes: String },
    /// Not told to anybody outside: whoever admits requests finds a slot and asks again.
    #[error("the session has no process, and the request has no slot for one")]
    NeedsSlot,
    #[error("the session has no turn to cancel")]
    NoTurn,
    #[error("the turn {0} has ended, or belongs to another session")]
    StaleTurn(TurnId),
    /// Not told to anybody outside: the sweep goes on to the next one.
    #[error("the session is no longer expired")]
    NotExpired,
    #[error("the agent does not offer {choice}")]
    UnknownChoice { choice: Box<Choice>, known: Vec<String> },
    #[error("the agent refused {choice}: {message}")]
    AgentRefused { choice: Box<Choice>, message: String, known: Vec<String> },
    #[error("the agent did not answer in time (processes.session_timeout) whether it accepts {choice}")]
    AgentSilent { choice: Box<Choice> },
    #[error("the agent refused {choice}: it exited before it answered")]
    AgentGone { choice: Box<Choice> },
    /// The agent had agreed to a part of a change already, and does not go back.
    #[error("{refusal}; the agent did not restore the previous settings: it now has {}", listed(.kept))]
    Kept { refusal: Box<Refusal>, kept: Vec<Choice> },
    #[error("{choice} allows more than the session's policy ({policy})")]
    WiderMode { choice: Box<Choice>, agent: String, policy: &'static str },
    /// Somebody or something else was first.
    #[error("the permission request {0} is no longer open")]
    PermissionClosed(PermissionId),
    #[error("the permission request has no option {option:?}")]
    UnknownOption { option: String, options: Vec<PermissionOption> },
    #[error("{field}: {problem}")]
    UnfitAnswer { field: &'static str, problem: String },
    #[error("the session has no rule {0}")]
    NoSuchRule(RuleId),
    /// The workspace is not there now, or not where it may be.
    #[error(transparent)]
    Workspace(WorkspaceError),
    #[error(transparent)]
    Context(ContextProblem),
    #[error("the session was deleted")]
    Purged,
    #[error("too many requests wait for this session")]
    Overloaded,
    #[error("the daemon is stopping")]
    ShuttingDown,
    #[error("cannot write to the store")]
    Store(#[source] Arc<StoreError>),
}

fn listed(choices: &[Choice]) -> String {
    let choices: Vec<String> = choices.iter().map(Choice::to_string).collect();
    choices.join(", ")
}

/// What can be seen of a session from outside without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    pub process_state: ProcessState,
    pub pid: Option<u32>,
    /// When the process last had something to do.
    pub busy_until: Timestamp,
    /// The daemon stops, and what the session had to write for that is committed.
    pub is_settled: bool,
}

impl Live {
    pub const STOPPED: Self = Self {
        process_state: ProcessState::Stopped,
        pid: None,
        busy_until: Timestamp::from_millis(0),
        is_settled: false,
    };
}

/// How a session is told that the daemon stops. A lane of its own, polled before everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Halt {
    No,
    /// Keep what there is and go down the ladder.
    Suspend,
    /// Straight to its end.
    Kill,
}

/// How everybody but its actor reaches a session.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    mailbox: mpsc::Sender<Request>,
    live: watch::Receiver<Live>,
    owner: Option<u32>,
}

impl SessionHandle {
    /// Queues a request; never waits.
    pub fn send(&self, request: Request) -> Result<(), Refusal> {
        self.mailbox.try_send(request).map_err(|_| Refusal::Overloaded)
    }

    /// Whose session it is. Nothing: the daemon's own user's.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    pub fn live(&self) -> Live {
        *self.live.borrow()
    }

    /// Resolves when a session that was told to halt has committed what it had to write, or is gone.
    pub async fn settled(mut self) {
        // An actor that is gone has nothing more to write.
        self.live.wait_for(|live| live.is_settled).await.ok();
    }
}
