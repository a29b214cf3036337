//! What can be written: units of operations, committed whole or not at all.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Claim, Made, NewObservation, Resolved};
use crate::model::agent::FrozenProfile;
use crate::model::checkpoint::Origin;
use crate::model::event::ImportedFrom;
use crate::model::mcp::ChosenServer;
use crate::model::permission::question::Permission;
use crate::model::permission::standing::StandingRule;
use crate::model::profile::MadeProfile;
use crate::model::session::{DirectoryIdentity, ProcessIdentity};
use crate::model::{
    AgentProfile, Announced, Blob, By, CheckpointId, Chosen, Content, ContextRestored, EventBody, LastError, MessageId,
    Meter, Policy, PromptAbilities, Role, RuleId, Sandbox, SessionContext, SessionId, SessionLimits, SessionStatus,
    Timestamp, TurnError, TurnId, TurnStatus, Usage, WorkspaceId,
};

/// Changes that belong together: first the catalogue's, then the sessions' in order.
#[derive(Debug, Default)]
pub struct Unit {
    pub catalogue: Vec<Catalogue>,
    pub ops: Vec<(SessionId, Op)>,
}

/// What sessions refer to.
#[derive(Debug)]
pub enum Catalogue {
    AddWorkspace {
        id: WorkspaceId,
        path: String,
        /// Whose it is, when that is not the daemon's own user.
        owner: Option<u32>,
        identity: DirectoryIdentity,
    },
    /// Refused by the database while a session is in it.
    RemoveWorkspace { id: WorkspaceId },
    /// The profiles that are configured now; the others of the configuration become archived.
    SetAgents(Vec<AgentProfile>),
    /// One of the API. Changes nothing when its slug is another's already.
    AddProfile(Box<MadeProfile>),
    /// What it is now, as a whole.
    ChangeProfile(Box<MadeProfile>),
    /// Every session of one status gets another one.
    SetStatusOfAll { from: SessionStatus, to: SessionStatus, reason: &'static str },
    /// Nothing is left of the processes that earlier daemons started.
    ClearProcesses,
    /// A sweep found the session's retention over, or with none, not over any more. It counts only when the session is
    /// still in the status that the sweep saw it in.
    MarkExpired { session: SessionId, status_changed_at: Timestamp, seen_at: Option<Timestamp> },
    /// Retention was looked after.
    Swept { at: Timestamp },
    /// Nobody waits for the open questions any more: those of one session, or all that there are.
    CancelPermissions { session: Option<SessionId>, reason: &'static str },
    /// Somebody says something of a session. What was said before is not said again.
    Observe(Box<NewObservation>),
    /// A write that changes nothing for anybody, to see whether one can be made.
    Heartbeat,
}

/// The closed set of changes. Each writes its row and the event that tells of it.
#[derive(Debug)]
pub enum Op {
    CreateSession(Box<NewSession>),
    /// A session that was elsewhere, with all that happened in it.
    Import(Box<Imported>),
    SetStatus {
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
        by: By,
    },
    ChangeSession(SessionChange),
    /// How the running process came by its conversation. Told by `process.ready`.
    SetAgentSession {
        agent_session_id: String,
        context_restored: ContextRestored,
        supports_resume: bool,
    },
    /// The agent is given the transcript with its next prompt.
    SetContextRestored(ContextRestored),
    /// Who the session's process is, so that a later daemon can clear what this one might leave.
    SetProcess(Box<ProcessIdentity>),
    /// The process is gone, and nothing is left of it.
    ClearProcess,
    SetLastError(LastError),
    QueueTurn {
        turn: TurnId,
        position: usize,
        by: By,
    },
    StartTurn {
        turn: TurnId,
    },
    /// The intent to cancel, kept so that it wins over whatever the agent answers. The turn's end tells whose it was.
    RequestCancel {
        turn: TurnId,
        by: By,
    },
    FinishTurn {
        turn: TurnId,
        status: TurnStatus,
        stop_reason: Option<String>,
        error: Option<TurnError>,
        usage: Option<Usage>,
        /// None: now.
        at: Option<Timestamp>,
    },
    /// What was used so far. Told by the event that brings it.
    SetUsage(Box<UsageChange>),
    /// Why turns are held back, or that they are not any more.
    SetPaused(Option<&'static str>),
    /// What the agent announces, and what was chosen.
    SetChoices(Box<ChoicesChange>),
    Message(NewMessage),
    Event {
        turn: Option<TurnId>,
        body: EventBody,
    },
    /// Media that the session's events name, kept for as long as this message of it.
    KeepMedia {
        message: MessageId,
        blobs: Vec<Blob>,
    },
    /// What the agent takes in a prompt, for when no process runs that could tell.
    SetPromptAbilities(PromptAbilities),
    /// The message, which is recorded beside this, goes to the agent before the next prompt.
    KeepForPrompt(MessageId),
    /// The agent has these messages, which waited for a prompt.
    ForgetWaiting(Vec<MessageId>),
    /// What a turn's prompt names in place of the session's context.
    SetTurnContext {
        turn: TurnId,
        context: Box<SessionContext>,
    },
    /// Whether the agent has yet to be shown what the session's context names.
    OweLinks(bool),
    /// Whether the agent has yet to be given its profile's system prompt.
    OweInstructions(bool),
    /// What holds the process that runs now.
    SetSandbox(Box<Sandbox>),
    /// A request's key, with what comes of it. To be put before the operations that carry it out, but after the session's
    /// creation: it keeps how far the log reached before them.
    Remember(Box<(Claim, Made)>),
    /// A question of the agent's, open from here on.
    AskPermission(Box<Permission>),
    /// The answer to an open question.
    ResolvePermission(Box<Resolved>),
    AddRule(Box<StandingRule>),
    RemoveRule {
        rule: RuleId,
        by: By,
    },
    /// The session's workspace is another directory than it was, or is known for the first time.
    SetWorkspaceIdentity(DirectoryIdentity),
    /// The checkpoint that the session is made from.
    SetOrigin(Box<Origin>),
    /// Refused by the store when the session has one of that name, or as many as it may, or is over.
    AddCheckpoint(Box<NewCheckpoint>),
    /// Deletes the session with all that it has.
    Purge,
}

#[derive(Debug)]
pub struct NewSession {
    pub workspace_id: WorkspaceId,
    pub workspace: String,
    pub profile: FrozenProfile,
    /// Nothing: all of its profile's.
    pub mcp_servers: Option<Vec<ChosenServer>>,
    pub permissions: Policy,
    pub title: String,
    pub tags: Vec<String>,
    pub limits: SessionLimits,
    pub chosen: Chosen,
    pub context: SessionContext,
    /// The user that the agent runs as, when that is not the daemon's own.
    pub owner_uid: Option<u32>,
    pub by: By,
}

/// A session as it was elsewhere, and as it goes on here.
#[derive(Debug)]
pub struct Imported {
    pub new: NewSession,
    pub from: ImportedFrom,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_active_at: Timestamp,
    /// What happened in it, each with its time, in order. They are the past: nobody counts them.
    pub steps: Vec<(Timestamp, Op)>,
    /// Records of it that tools submitted there.
    pub observations: Vec<NewObservation>,
}

#[derive(Debug, Default)]
pub struct SessionChange {
    pub title: Option<String>,
    pub tags: Option<Vec<String>>,
    pub limits: Option<SessionLimits>,
    /// As a whole.
    pub context: Option<SessionContext>,
    /// As a whole.
    pub permissions: Option<Policy>,
    pub keep: Option<bool>,
    pub by: By,
}

#[derive(Clone, Debug)]
pub struct NewCheckpoint {
    pub id: CheckpointId,
    pub name: String,
    pub state: Box<RawValue>,
    pub by: By,
}

impl Imported {
    fn weight(&self) -> usize {
        let observations = self.observations.iter().map(|new| 2 * new.content.get().len()).sum::<usize>();
        observations + self.steps.iter().map(|(_, step)| step.weight()).sum::<usize>()
    }
}

impl SessionChange {
    pub fn is_empty(&self) -> bool {
        !self.changes_more_than_keep() && self.keep.is_none()
    }

    pub fn changes_more_than_keep(&self) -> bool {
        let Self { title, tags, limits, context, permissions, keep: _, by: _ } = self;
        let is_described = title.is_some() || tags.is_some() || context.is_some();
        is_described || limits.is_some() || permissions.is_some()
    }
}

#[derive(Debug)]
pub struct UsageChange {
    /// The session's sums.
    pub meter: Meter,
    /// Those of the turn in which it was used.
    pub turn: Option<(TurnId, Usage)>,
}

/// What is absent stays as it is.
#[derive(Clone, Debug, Default)]
pub struct ChoicesChange {
    pub announced: Announced,
    pub mode: Option<String>,
    pub model: Option<String>,
    pub chosen: Option<Chosen>,
    /// For whoever follows: the options' current values, and the names of the commands.
    pub config_options: Option<BTreeMap<String, Value>>,
    pub commands: Option<Vec<String>>,
    /// Whoever chose it; nobody, when the agent tells of it by itself.
    pub by: By,
}

#[derive(Debug)]
pub struct NewMessage {
    pub id: MessageId,
    pub turn: Option<TurnId>,
    pub role: Role,
    /// The JSON of a [`Content`], made once: it is what is stored, told and weighed.
    pub content: Box<RawValue>,
    pub tool_call_id: Option<String>,
    /// The agent's model, for what the agent says.
    pub model: Option<String>,
    /// Whoever added it by hand.
    pub by: By,
    /// The data that its blocks name.
    pub blobs: Vec<Blob>,
}

impl NewMessage {
    pub fn new(id: MessageId, turn: Option<TurnId>, role: Role, content: &Content) -> Self {
        // Texts, numbers and values always have a JSON form.
        let content = serde_json::value::to_raw_value(content).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { id, turn, role, content, tool_call_id: None, model: None, by: None, blobs: Vec::new() }
    }

    pub fn of_tool_call(mut self, tool_call_id: String) -> Self {
        self.tool_call_id = Some(tool_call_id);
        self
    }

    pub fn by_model(mut self, model: Option<String>) -> Self {
        self.model = model;
        self
    }

    pub fn added_by(mut self, by: By) -> Self {
        self.by = by;
        self
    }

    pub fn with_blobs(mut self, blobs: Vec<Blob>) -> Self {
        self.blobs = blobs;
        self
    }

    fn weight(&self) -> usize {
        self.content.get().len() + self.blobs.iter().map(|blob| blob.data.len()).sum::<usize>()
    }
}

impl ChoicesChange {
    fn weight(&self) -> usize {
        let Announced { modes, models, commands, config_options } = &self.announced;
        [modes, models, commands, config_options].into_iter().flatten().map(|raw| raw.get().len()).sum()
    }
}

/// The acknowledgement of a unit.
#[derive(Debug, Default)]
pub struct Committed {
    /// For each operation, how far its session's log reached before it: the cursor to follow from.
    pub before: Vec<i64>,
}

impl Unit {
    pub fn one(session: SessionId, op: Op) -> Self {
        Self { catalogue: Vec::new(), ops: vec![(session, op)] }
    }

    pub fn catalogue(change: Catalogue) -> Self {
        Self { catalogue: vec![change], ops: Vec::new() }
    }

    /// Whether nothing in it was promised to anybody, so that it need not wait for the disk.
    pub fn is_delta_only(&self) -> bool {
        self.catalogue.is_empty()
            && self.ops.iter().all(|(_, op)| matches!(op, Op::Event { body, .. } if body.is_delta()))
    }

    /// Whether it only tells what was said and done.
    pub fn is_output_only(&self) -> bool {
        self.catalogue.is_empty() && self.ops.iter().all(|(_, op)| op.is_output())
    }

    pub fn starts_a_turn(&self) -> bool {
        self.ops.iter().any(|(_, op)| matches!(op, Op::StartTurn { .. }))
    }

    /// About how much it weighs, for the bounds of a batch.
    pub fn weight(&self) -> usize {
        let observed = self.catalogue.iter().map(|change| match change {
            // The content, and the snapshot that it becomes part of.
            Catalogue::Observe(new) => 2 * new.content.get().len(),
            _ => 0,
        });
        self.ops.iter().map(|(_, op)| op.weight()).chain(observed).sum()
    }
}

impl Op {
    /// Whether it only tells what was said and done, and changes nothing that others rely on.
    pub const fn is_output(&self) -> bool {
        matches!(self, Self::Message(_) | Self::Event { .. } | Self::KeepMedia { .. })
    }

    /// About how many bytes it holds on to.
    pub fn weight(&self) -> usize {
        const ROW_BYTES: usize = 256;
        let payload = match self {
            Self::Event { body, .. } => match body {
                EventBody::MessageDelta { text, .. } => text.len(),
                EventBody::ToolStarted { update, .. }
                | EventBody::ToolUpdated { update, .. }
                | EventBody::ToolCompleted { update, .. }
                | EventBody::PlanUpdated { update }
                | EventBody::UsageUpdated { update }
                | EventBody::AgentUpdate { update } => update.get().len(),
                EventBody::TerminalCreated { command, env, .. } => {
                    let variables = env.iter().flat_map(|(name, value)| [name, value]);
                    command.iter().chain(variables).map(String::len).sum()
                }
                EventBody::TerminalRefused { command, .. } => command.iter().map(String::len).sum(),
                _ => 0,
            },
            Self::Message(message) => message.weight(),
            Self::KeepMedia { blobs, .. } => blobs.iter().map(|blob| blob.data.len()).sum(),
            Self::Import(imported) => imported.weight(),
            Self::SetChoices(change) => change.weight(),
            Self::AddCheckpoint(new) => new.state.get().len(),
            // In its row, and in the event that tells of it.
            Self::AskPermission(asked) => 2 * asked.request.get().len(),
            _ => 0,
        };
        ROW_BYTES + payload
    }
}
