//! From a process to a conversation.
//!
//! ```text
//! initialize ──▶ [authenticate] ──▶ session/resume ──refused──▶ session/load ──refused──▶ session/new ──▶ ready
//!                                        │ native                  │ native                    └ fresh; the transcript is owed
//!                                        ▼                         ▼
//!                                      ready                 the end of the replay ──▶ ready
//! ```
//!
//! The first rung that the agent says it has is tried, then the next; one that hangs or kills the agent is not tried again
//! while the actor lives. So every session goes on, on any agent. What an agent repeats of the conversation while it takes it up again is
//! known already, and is not recorded a second time. Each step has its deadline and is raced against the process's exit.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Purpose, SessionActor};
use super::context::Owed;
use super::failure;
use super::link::{Connected, Link, Phase};
use crate::acp::incoming::Abilities;
use crate::acp::update;
use crate::acp::{PROTOCOL_VERSION, RpcError, incoming, outgoing};
use crate::model::mcp::ReadyServer;
use crate::model::{ContextRestored, ErrorCode, EventBody, TurnError};
use crate::store::Op;

/// How far the handshake is, and what was learned in it.
#[derive(Debug)]
pub struct Handshake {
    pub step: Step,
    initialized: Option<incoming::Initialized>,
    /// Whether the agent was asked to restore the conversation. Then it may repeat it, even after it refused.
    pub was_restoring: bool,
    /// Updates that repeated what is known.
    repeated: usize,
    began: Instant,
    /// MCP servers that the conversation is to have.
    pub servers: Vec<ReadyServer>,
    /// When the step began, and when people are told that it takes long, if they are to be.
    pub asked_at: Instant,
    pub notice_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Initialize,
    Authenticate,
    Resume,
    Load,
    /// The agent has answered the load, and repeats the conversation until then at most.
    Replay {
        until: Instant,
    },
    New,
}

impl Step {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Authenticate => "authenticate",
            Self::Resume => "session/resume",
            Self::Load => "session/load",
            Self::Replay { .. } => "the replay of the conversation",
            Self::New => "session/new",
        }
    }

    /// The key that bounds it.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Initialize => "processes.initialize_timeout",
            Self::Authenticate | Self::Resume | Self::Load | Self::New => "processes.session_timeout",
            Self::Replay { .. } => "processes.replay_timeout",
        }
    }

    /// Whether the agent is taking up the conversation again by itself.
    pub const fn is_restoring(self) -> bool {
        match self {
            Self::Resume | Self::Load | Self::Replay { .. } => true,
            Self::Initialize | Self::Authenticate | Self::New => false,
        }
    }
}

impl Handshake {
    pub fn new(servers: Vec<ReadyServer>) -> Self {
        let began = Instant::now();
        Self {
            step: Step::Initialize,
            initialized: None,
            was_restoring: false,
            repeated: 0,
            began,
            servers,
            asked_at: began,
            notice_at: None,
        }
    }

    pub fn abilities(&self) -> Abilities {
        self.initialized.as_ref().map(|initialized| initialized.abilities).unwrap_or_default()
    }

    /// When the wait for the end of a replay is over.
    pub fn replay_until(&self) -> Option<Instant> {
        match self.step {
            Step::Replay { until } => Some(until),
            Step::Initialize | Step::Authenticate | Step::Resume | Step::Load | Step::New => None,
        }
    }
}

impl SessionActor {
    pub(super) fn begin_handshake(&mut self) {
        let timeout = self.shared.config().processes.initialize_timeout;
        let id = self.requests.begin(Purpose::Handshake, Some(timeout));
        let (files, terminals) = (self.profile.client_files, !self.profile.terminal_commands.is_empty());
        self.send(outgoing::initialize(id, files, terminals));
    }

    /// The agent's answer to the step that is under way. One that comes while the process is already going changes nothing.
    pub(super) fn on_handshake_answer(&mut self, outcome: Result<&RawValue, RpcError>) {
        let Some(step) = self.link.handshake().map(|handshake| handshake.step) else { return };
        match (step, outcome) {
            (Step::Initialize, Ok(result)) => self.on_initialized(result),
            (Step::Authenticate, Ok(_)) => self.begin_step(None),
            (Step::New, Ok(result)) => match incoming::session_id(result) {
                Ok(agent_session) => {
                    self.on_announced(result);
                    self.become_ready(ContextRestored::Fresh, agent_session);
                }
                Err(error) => self.fault(failure::unreadable(step.name(), &error)),
            },
            (Step::Resume, Ok(result)) => {
                self.on_announced(result);
                self.become_ready_again();
            }
            (Step::Load, Ok(result)) => {
                self.on_announced(result);
                if !self.profile.adapter.quirks().replays_after_answer {
                    return self.on_replayed();
                }
                let until = Instant::now() + self.shared.config().processes.replay_timeout;
                self.set_step(Step::Replay { until });
            }
            (Step::Initialize | Step::Authenticate | Step::New, Err(error)) => {
                let error = self.with_stderr(failure::refused(step.name(), &error, &self.sign_in()));
                self.fault(error);
            }
            (Step::Resume | Step::Load, Err(error)) => {
                let (code, message) = (error.code, error.message);
                tracing::warn!(code, message, step = step.name(), "the agent cannot restore the conversation");
                self.begin_step(Some(step));
            }
            // Nothing is asked of the agent meanwhile.
            (Step::Replay { .. }, _) => {}
        }
    }

    fn on_initialized(&mut self, result: &RawValue) {
        let initialized = match incoming::initialized(result) {
            Ok(initialized) => initialized,
            Err(error) => return self.fault(failure::unreadable(Step::Initialize.name(), &error)),
        };
        if initialized.protocol_version != PROTOCOL_VERSION {
            let message = format!(
                "the agent speaks ACP version {}; acpd needs version {PROTOCOL_VERSION}",
                initialized.protocol_version
            );
            return self.fault(TurnError::new(ErrorCode::Protocol, message));
        }
        if let Some(handshake) = self.link.handshake_mut() {
            handshake.initialized = Some(initialized);
        }
        self.leave_out_servers();
        match self.profile.auth_method.clone() {
            Some(method) => {
                let timeout = self.shared.config().processes.session_timeout;
                let id = self.requests.begin(Purpose::Handshake, Some(timeout));
                self.set_step(Step::Authenticate);
                self.send(outgoing::authenticate(id, &method));
            }
            None => self.begin_step(None),
        }
    }

    /// The next rung after the one that was refused.
    fn begin_step(&mut self, refused: Option<Step>) {
        let abilities = self.link.handshake().map(Handshake::abilities).unwrap_or_default();
        let timeout = self.shared.config().processes.session_timeout;
        let workspace = self.workspace.display().to_string();
        let known = self.context.restorable().map(str::to_owned);
        let servers = self.link.handshake().map(|handshake| handshake.servers.as_slice()).unwrap_or_default();
        let id = self.requests.begin(Purpose::Handshake, Some(timeout));
        let takes_it = self.profile.adapter.quirks().takes_system_prompt;
        let system_prompt = self.profile.system_prompt.as_deref().filter(|_| takes_it);
        let surroundings = outgoing::Surroundings { workspace: &workspace, servers, system_prompt };
        let (step, line) = match (known, refused) {
            (Some(known), None) if abilities.resume => {
                (Step::Resume, outgoing::resume_session(id, &known, surroundings))
            }
            (Some(known), None | Some(Step::Resume)) if abilities.load => {
                (Step::Load, outgoing::load_session(id, &known, surroundings))
            }
            _ => (Step::New, outgoing::new_session(id, surroundings)),
        };
        self.set_step(step);
        self.send(line);
    }

    fn set_step(&mut self, step: Step) {
        let notice_at = self.notice_of(step);
        if let Some(handshake) = self.link.handshake_mut() {
            handshake.step = step;
            (handshake.asked_at, handshake.notice_at) = (Instant::now(), notice_at);
            handshake.was_restoring |= step.is_restoring();
        }
    }

    /// The agent says that it has loaded the conversation. One that has repeated nothing of it has loaded nothing,
    /// whatever it says.
    pub(super) fn on_replayed(&mut self) {
        if self.link.handshake().is_some_and(|handshake| handshake.repeated == 0) {
            tracing::warn!("the agent loaded the conversation but repeated none of it; starting a new one");
            return self.begin_step(Some(Step::Load));
        }
        self.become_ready_again();
    }

    /// The agent has its conversation again, under the name that it had.
    fn become_ready_again(&mut self) {
        if let Some(agent_session) = self.context.agent_session.clone() {
            self.become_ready(ContextRestored::Native, agent_session);
        }
    }

    fn become_ready(&mut self, context_restored: ContextRestored, agent_session: String) {
        let Link::Up(Connected { phase, pid, sandbox, .. }) = &mut self.link else { return };
        let Phase::Starting(handshake) = phase else { return };
        let (abilities, repeated) = (handshake.abilities(), handshake.repeated);
        let agent_info = handshake.initialized.take().and_then(|initialized| initialized.agent_info);
        self.shared.metrics.handshake_took(handshake.began.elapsed());
        let (pid, sandbox) = (pid.unwrap_or(0), *sandbox);
        *phase = Phase::Ready { agent_session: agent_session.clone(), abilities };

        // What an earlier process was owed and did not take in is not in the conversation that this one restored.
        let is_fresh = context_restored == ContextRestored::Fresh;
        let is_owed = (is_fresh && self.context.has_history) || !matches!(self.context.owed, Owed::Nothing);
        self.context.owed = if is_owed { Owed::NotRead } else { Owed::Nothing };
        if is_fresh {
            let owed = self.links.owe().into_iter().chain(self.context.instructions.owe());
            owed.for_each(|op| self.outbox.push(op));
        }
        let before = self.context.agent_session.replace(agent_session.clone());
        self.context.abandoned = before.filter(|before| *before != agent_session);
        self.learn_abilities(abilities.prompt);
        self.record(Op::SetAgentSession {
            agent_session_id: agent_session.clone(),
            context_restored,
            supports_resume: abilities.resume || abilities.load,
        });
        let body = EventBody::ProcessReady {
            pid,
            agent_session_id: agent_session,
            protocol_version: PROTOCOL_VERSION,
            agent_info,
            context_restored,
            sandbox,
        };
        self.record(Op::Event { turn: None, body });
        tracing::info!(pid, context = context_restored.as_str(), repeated, "the agent is ready");
        if context_restored == ContextRestored::Fresh {
            self.begin_new_account();
        }
        self.apply_choices();
        self.touch();
    }

    /// Whether an update only repeats what is known: while the agent restores the conversation, on its way out of that,
    /// and under the name of a conversation that it has lost.
    pub(super) fn is_repeated(&mut self, agent_session: &str, is_conversation: impl FnOnce() -> bool) -> bool {
        let may_repeat = match self.link.phase() {
            Some(Phase::Starting(handshake)) if handshake.step.is_restoring() => true,
            Some(Phase::Starting(handshake)) => {
                handshake.was_restoring && self.context.agent_session.as_deref() == Some(agent_session)
            }
            Some(Phase::Ready { .. }) => self.context.abandoned.as_deref() == Some(agent_session),
            Some(Phase::Stopping { was_restoring, .. }) => *was_restoring,
            None => false,
        };
        let is_repeated = may_repeat && is_conversation();
        if let Some(handshake) = self.link.handshake_mut().filter(|_| is_repeated) {
            handshake.repeated += 1;
        }
        is_repeated
    }

    /// The commands that an agent announces after a load are the end of its replay, for those that say so.
    pub(super) fn end_replay(&mut self, raw: &RawValue) {
        let is_replaying = self.link.handshake().is_some_and(|handshake| handshake.replay_until().is_some());
        if is_replaying && update::kind_of(raw).is_some_and(|kind| kind == update::COMMANDS) {
            self.on_replayed();
        }
    }

    /// The agent hangs or dies of taking up the conversation. It is not asked to again: the next process starts anew and
    /// gets the transcript, and the turn that waits is not lost for it.
    pub(super) fn stop_restoring(&mut self) {
        tracing::warn!("the agent exits while it restores the conversation; sending it the transcript instead");
        self.context.may_restore = false;
    }
}
