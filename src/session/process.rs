//! The process's life as the session sees it: slot, spawn, handshake, faults, exit.
//!
//! `initialize` → `session/new`, each with its deadline and raced against the process's exit. An error names the phase
//! and carries the tail of standard error.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Slot;
use super::actor::{Purpose, SessionActor};
use super::link::{Connected, Link};
use crate::acp::{PROTOCOL_VERSION, Requests, RpcError, incoming, outgoing};
use crate::agent::{Command, Exit, Process, SpawnError, WorkspaceError, resolve_workspace};
use crate::model::error::chain;
use crate::model::event::ExitReason;
use crate::model::{ContextRestored, ErrorCode, EventBody, LastError, Timestamp, Trigger, TurnError};
use crate::store::Op;

impl Purpose {
    fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::NewSession => "session/new",
            Self::Prompt(_) => "session/prompt",
        }
    }
}

impl SessionActor {
    pub(super) fn wait_for_slot(&mut self) {
        self.link = Link::Waiting(Box::pin(Arc::clone(&self.shared.slots).take_for_work()));
    }

    pub(super) fn on_slot(&mut self, slot: Slot) {
        self.link = Link::Stopped;
        if self.takes_work() {
            self.start_process(slot);
        }
    }

    pub(super) fn start_process(&mut self, slot: Slot) {
        if let Err(error) = resolve_workspace(&self.workspace, &self.shared.roots) {
            return self.on_bad_workspace(&error);
        }
        let workspace = self.workspace.display().to_string();
        let agent = self.profile.slug.clone();
        tracing::info!(agent, workspace, "starting the agent");
        self.record(Op::Event { turn: None, body: EventBody::ProcessStarting { agent, workspace } });
        let current = self.shared.config.agents.get(&self.profile.slug);
        let spawned = Command::new(&self.profile, current, &self.workspace, &self.shared.environment)
            .map_err(SpawnError::from)
            .and_then(|command| Process::spawn(&command, self.shared.bounds, &self.shared.process_tasks));
        match spawned {
            Ok(process) => {
                self.initialized = None;
                self.requests = Requests::default();
                let timeout = self.shared.config.processes.initialize_timeout;
                let id = self.requests.begin(Purpose::Initialize, Some(timeout));
                self.link = Link::Starting(Connected { process, slot });
                self.send(outgoing::initialize(id));
            }
            Err(error) => {
                let error =
                    TurnError::new(ErrorCode::AgentExited, format!("the agent did not start: {}", chain(&error)));
                self.link = Link::Stopped;
                self.record_exit(None, ExitReason::Crash, None, Some(&error));
                self.fail_current_turn(error);
            }
        }
    }

    /// A workspace that is not there now may come back. One that now leads out of its root must not be worked in.
    fn on_bad_workspace(&mut self, error: &WorkspaceError) {
        self.link = Link::Stopped;
        let told = TurnError::new(ErrorCode::AgentExited, format!("the agent did not start: {}", chain(error)));
        self.record_exit(None, ExitReason::Crash, None, Some(&told));
        self.fail_current_turn(told);
        if matches!(error, WorkspaceError::OutsideRoots { .. }) {
            self.cancel_everything();
            // A fact: the table does not deny it.
            self.change_status(Trigger::Fatal, "fatal").ok();
        }
    }

    /// An answer to one of our requests.
    pub(super) fn on_answer(&mut self, id: u64, outcome: Result<&RawValue, RpcError>) {
        let Some(purpose) = self.requests.answered(id) else {
            tracing::debug!(id, "the agent answered a request that nobody made, or too late");
            return;
        };
        match (purpose, outcome) {
            (Purpose::Prompt(turn), outcome) => {
                let outcome = outcome
                    .map_err(|error| self.rpc_failure(purpose, &error))
                    .and_then(|result| incoming::stop_reason(result).map_err(|error| unreadable(purpose, &error)));
                self.on_prompt_answer(turn, outcome);
            }
            (Purpose::Initialize | Purpose::NewSession, Err(error)) => {
                let error = self.rpc_failure(purpose, &error);
                self.fault(error);
            }
            (Purpose::Initialize, Ok(result)) => self.on_initialized(result),
            (Purpose::NewSession, Ok(result)) => self.on_new_session(result),
        }
    }

    fn on_initialized(&mut self, result: &RawValue) {
        let initialized = match incoming::initialized(result) {
            Ok(initialized) => initialized,
            Err(error) => return self.fault(unreadable(Purpose::Initialize, &error)),
        };
        if initialized.protocol_version != PROTOCOL_VERSION {
            let message = format!(
                "the agent speaks ACP version {}, acpd speaks version {PROTOCOL_VERSION}",
                initialized.protocol_version
            );
            return self.fault(TurnError::new(ErrorCode::Protocol, message));
        }
        self.initialized = Some(initialized);
        let timeout = self.shared.config.processes.session_timeout;
        let id = self.requests.begin(Purpose::NewSession, Some(timeout));
        let line = outgoing::new_session(id, &self.workspace.display().to_string());
        self.send(line);
    }

    fn on_new_session(&mut self, result: &RawValue) {
        let agent_session = match incoming::session_id(result) {
            Ok(agent_session) => agent_session,
            Err(error) => return self.fault(unreadable(Purpose::NewSession, &error)),
        };
        let connected = match std::mem::replace(&mut self.link, Link::Stopped) {
            Link::Starting(connected) => connected,
            // An answer that comes while the process is already going changes nothing.
            other => return self.link = other,
        };
        let pid = connected.process.pid();
        let context_restored = ContextRestored::Fresh;
        let initialized = self.initialized.take();
        self.record(Op::SetAgentSession { agent_session_id: agent_session.clone(), context_restored });
        let body = EventBody::ProcessReady {
            pid,
            agent_session_id: agent_session.clone(),
            protocol_version: PROTOCOL_VERSION,
            agent_info: initialized.and_then(|initialized| initialized.agent_info),
            context_restored,
        };
        self.record(Op::Event { turn: None, body });
        tracing::info!(pid, "the agent is ready");
        self.link = Link::Ready { connected, agent_session };
    }

    /// Writes a line to the agent. One that takes none is at fault.
    pub(super) fn send(&mut self, line: bytes::Bytes) {
        let Some(process) = self.link.process() else { return };
        if let Err(error) = process.send(line) {
            self.fault(TurnError::new(ErrorCode::Timeout, error.to_string()));
        }
    }

    pub(super) fn on_deadline(&mut self) {
        let now = Instant::now();
        if let Some(purpose) = self.requests.overdue(now.into_std()) {
            let message = format!("the agent did not answer {} in time", purpose.method());
            let error = self.with_stderr(TurnError::new(ErrorCode::Timeout, message));
            self.fault(error);
        }
        self.enforce_cancel(now);
    }

    /// The process is alive and of no use: the turn fails now, the process goes.
    pub(super) fn fault(&mut self, error: TurnError) {
        match &self.link {
            Link::Starting(_) | Link::Ready { .. } => {}
            // It is going already, and whoever sent it has settled the turn.
            Link::Stopped | Link::Waiting(_) | Link::Stopping { .. } => return,
        }
        tracing::warn!(code = error.code.as_str(), message = error.message, "the agent is at fault");
        self.set_last_error(&error);
        self.fail_current_turn(error);
        self.stop_process(ExitReason::Crash);
    }

    /// Starts down the ladder. Requests that are open will not be answered any more.
    pub(super) fn stop_process(&mut self, reason: ExitReason) {
        self.requests = Requests::default();
        self.link = match std::mem::replace(&mut self.link, Link::Stopped) {
            Link::Starting(mut connected) | Link::Ready { mut connected, .. } => {
                connected.process.stop();
                connected.slot.leave();
                Link::Stopping { connected, reason }
            }
            other @ (Link::Stopped | Link::Waiting(_) | Link::Stopping { .. }) => other,
        };
    }

    pub(super) fn on_exited(&mut self, exit: Exit) {
        let link = std::mem::replace(&mut self.link, Link::Stopped);
        let (mut connected, reason, phase) = match link {
            Link::Stopping { connected, reason } => (connected, reason, None),
            Link::Starting(connected) => {
                let phase = if self.initialized.is_none() { Purpose::Initialize } else { Purpose::NewSession };
                (connected, ExitReason::Crash, Some(phase.method()))
            }
            Link::Ready { connected, .. } => {
                let phase = if self.running.is_some() { "the turn" } else { "the pause between turns" };
                (connected, ExitReason::Crash, Some(phase))
            }
            Link::Stopped | Link::Waiting(_) => return,
        };
        let pid = connected.process.pid();
        let error = phase.map(|phase| exit_error(phase, &exit));
        self.requests = Requests::default();
        self.record_exit(Some(pid), reason, Some(exit), error.as_ref());
        match error {
            Some(error) => self.fail_current_turn(error),
            None => self.close_transcript(true),
        }
        // The slot serves the next turn of this session, unless it was promised to another one.
        if self.takes_work() && !self.queue.is_empty() && reason != ExitReason::Evicted {
            connected.slot.stay();
            self.start_process(connected.slot);
        }
    }

    fn record_exit(&mut self, pid: Option<u32>, reason: ExitReason, exit: Option<Exit>, error: Option<&TurnError>) {
        if let Some(error) = error {
            self.set_last_error(error);
        }
        let (code, signal, stderr) =
            exit.map_or((None, None, String::new()), |exit| (exit.code, exit.signal, exit.stderr));
        let error = error.map(|error| error.message.clone());
        let body = EventBody::ProcessExited { pid, reason, code, signal, stderr, error };
        self.record(Op::Event { turn: None, body });
    }

    fn set_last_error(&mut self, error: &TurnError) {
        let last =
            LastError { code: error.code.as_str().to_owned(), message: error.message.clone(), at: Timestamp::now() };
        self.record(Op::SetLastError(last));
    }

    fn rpc_failure(&self, purpose: Purpose, error: &RpcError) -> TurnError {
        let code = match error.code {
            RpcError::AUTH_REQUIRED => ErrorCode::AuthRequired,
            RpcError::TOO_MANY_REQUESTS => ErrorCode::RateLimited,
            _ => ErrorCode::Protocol,
        };
        let mut message = format!("the agent refused {}: {} (code {})", purpose.method(), error.message, error.code);
        if code == ErrorCode::AuthRequired {
            message.push_str("; sign in with the agent's own program, or give it a key in its profile's env");
        }
        if matches!(purpose, Purpose::Prompt(_)) {
            return TurnError::new(code, message);
        }
        self.with_stderr(TurnError::new(code, message))
    }

    fn with_stderr(&self, mut error: TurnError) -> TurnError {
        let tail = self.link.process().map(Process::stderr_tail).unwrap_or_default();
        if !tail.is_empty() {
            error.message = format!("{}; its standard error ends with: {tail}", error.message);
        }
        error
    }
}

fn unreadable(purpose: Purpose, error: &str) -> TurnError {
    let message = format!("the agent's answer to {} cannot be understood: {error}", purpose.method());
    TurnError::new(ErrorCode::Protocol, message)
}

fn exit_error(phase: &str, exit: &Exit) -> TurnError {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "without a status".to_owned(),
    };
    let mut message = format!("the agent exited {how} during {phase}");
    if !exit.stderr.is_empty() {
        message = format!("{message}; its standard error ends with: {}", exit.stderr);
    }
    TurnError::new(ErrorCode::AgentExited, message)
}
