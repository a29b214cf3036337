//! The process's life as the session sees it: slot, spawn, faults, exit, and the rest after crashes.
//!
//! A process that ends by itself, that cannot be started or that is of no use has crashed. The turn that needed it fails;
//! the next one starts another process, after a rest when that happens again and again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Slot;
use super::actor::{Purpose, SessionActor};
use super::handshake::Handshake;
use super::link::{Connected, Link, Phase};
use super::start::Start;
use super::workspace::{Entered, StartingPlace};
use crate::acp::{Requests, RpcError, incoming, outgoing, usage};
use crate::agent::{Beneath, Cause, Exit, Process};
use crate::config::Config;
use crate::metrics::StopStep;
use crate::model::error::chain;
use crate::model::event::ExitReason;
use crate::model::session::ProcessIdentity;
use crate::model::{ErrorCode, EventBody, LastError, TurnError};
use crate::store::Op;

impl SessionActor {
    /// Gets a process for the work that waits: now, after a rest, or not at all while the agent does nothing but crash.
    pub(super) fn seek_process(&mut self) {
        let config = self.shared.config();
        match self.crashes.rest_until(&config.processes).filter(|until| *until > Instant::now()) {
            Some(until) if self.crashes.is_loop(&config.processes) => {
                let rest = (until - Instant::now()).as_secs() + 1;
                let message = format!(
                    "the agent crashed {} times in a row, so it was not started for this; acpd tries again with a prompt \
                     in {rest} s; see the session's lastError for what went wrong",
                    self.crashes.count()
                );
                while !self.queue.is_empty() {
                    self.fail_current_turn(TurnError::new(ErrorCode::AgentExited, message.clone()));
                }
            }
            Some(until) => self.link = Link::Resting(until),
            None => self.wait_for_slot(),
        }
    }

    pub(super) fn wait_for_slot(&mut self) {
        self.link = Link::Waiting(Box::pin(Arc::clone(&self.shared.slots).take_for_work_of(self.owner_uid)));
    }

    /// Whether no process is started now, even with a slot for it.
    pub(super) fn must_rest(&self) -> bool {
        self.crashes.rest_until(&self.shared.config().processes).is_some_and(|until| until > Instant::now())
    }

    pub(super) fn on_slot(&mut self, slot: Slot) {
        self.link = Link::Stopped;
        if self.takes_work() {
            self.start_process(slot);
        }
    }

    /// Begins to start a process: with a look at who the owner is, the workspace and the program.
    pub(super) fn start_process(&mut self, slot: Slot) {
        self.link = Link::Entering { slot, entry: self.enter_workspace() };
    }

    pub(super) fn on_entered(&mut self, entered: Entered) {
        let Link::Entering { slot, .. } = std::mem::replace(&mut self.link, Link::Stopped) else { return };
        match entered {
            Ok(place) if self.takes_work() => self.start_in(place, slot),
            Ok(_) => {}
            Err(error) => self.on_bad_workspace(&error),
        }
    }

    fn start_in(&mut self, place: StartingPlace, slot: Slot) {
        let StartingPlace { persona, workspace: opened, program } = place;
        self.persona = persona;
        self.take_up_workspace(opened.identity);
        let workspace = self.workspace.display().to_string();
        let agent = self.profile.slug.clone();
        tracing::info!(agent, workspace, "starting the agent");
        self.shared.metrics.process_started(&agent);
        self.record(Op::Event { turn: None, body: EventBody::ProcessStarting { agent, workspace } });
        let beneath = Beneath::of(&opened);
        match self.spawn(program, opened) {
            Ok((process, servers)) => {
                self.requests = Requests::default();
                self.spending.begin_process();
                self.services.begin(beneath);
                self.transcript.set_bounds(&self.shared.config().limits);
                let phase = Phase::Starting(Box::new(Handshake::new(servers)));
                self.link = Link::Up(Connected::new(process, slot, phase, self.permissions.forbids_writes()));
                self.begin_handshake();
            }
            Err(error) => {
                let error =
                    TurnError::new(ErrorCode::AgentExited, format!("the agent did not start: {}", chain(&error)));
                self.link = Link::Stopped;
                self.crashes.note(Instant::now());
                self.record_exit(None, ExitReason::Crash, None, Some(&error));
                self.fail_current_turn(error);
            }
        }
    }

    /// What a process of this session is started with.
    pub(super) fn start(&self) -> Start<'_> {
        Start {
            shared: &self.shared,
            session: self.id,
            persona: &self.persona,
            workspace: &self.workspace,
            scope: self.links.scope(),
            is_read_only: self.permissions.forbids_writes(),
            env_names: &self.profile.env_names,
        }
    }

    /// What of the daemon's environment there is to choose from.
    pub(super) fn inherited_environment(&self) -> Cow<'_, BTreeMap<String, String>> {
        self.start().inherited_environment()
    }

    /// The agent runs: who it is goes into the record, for a daemon that comes after this one.
    pub(super) fn on_started(&mut self, identity: Box<ProcessIdentity>) {
        tracing::info!(pid = identity.agent.pid, shim = identity.shim.pid, "the agent's process runs");
        if let Link::Up(connected) = &mut self.link {
            connected.pid = identity.agent.pid.try_into().ok();
        }
        self.record(Op::SetProcess(identity));
    }

    /// An answer to one of our requests.
    pub(super) fn on_answer(&mut self, id: u64, outcome: Result<&RawValue, RpcError>) {
        match self.requests.answered(id) {
            None => self.on_late_answer(id, outcome.ok()),
            Some(Purpose::Handshake) => self.on_handshake_answer(outcome),
            Some(Purpose::Choice) => self.on_choice_answer(outcome),
            Some(Purpose::Prompt(turn)) => {
                if let Some(tokens) = outcome.as_ref().ok().and_then(|result| usage::of_answer(result)) {
                    self.on_tokens(turn, tokens);
                }
                let method = "session/prompt";
                let outcome = outcome
                    .map_err(|error| rpc_failure(method, &error))
                    .and_then(|result| incoming::stop_reason(result).map_err(|error| unreadable(method, &error)));
                self.on_prompt_answer(turn, outcome);
            }
        }
    }

    /// Writes a line to the agent. One that takes none is at fault.
    pub(super) fn send(&mut self, line: bytes::Bytes) {
        let Some(process) = self.link.process() else { return };
        if let Err(error) = process.send(line) {
            self.fault(TurnError::new(ErrorCode::Timeout, error.to_string()));
        }
    }

    /// A request was not answered in time. Prompts have no deadline, so it is a choice or the handshake's.
    pub(super) fn on_overdue(&mut self, now: Instant) {
        match self.requests.overdue(now.into_std()) {
            Some(Purpose::Choice) => return self.on_choice_overdue(),
            Some(Purpose::Handshake | Purpose::Prompt(_)) => {}
            None => return,
        }
        let Some(step) = self.link.handshake().map(|handshake| handshake.step) else { return };
        let mut message = format!("the agent did not answer {} in time ({})", step.name(), step.setting());
        message.push_str(&self.suspicion());
        let error = self.with_stderr(TurnError::new(ErrorCode::Timeout, message));
        if step.is_restoring() {
            self.set_last_error(&error);
            self.stop_restoring();
            self.stop_process(ExitReason::Timeout);
        } else {
            self.fault(error);
        }
    }

    /// The process is alive and of no use: the turn fails now, the process goes.
    pub(super) fn fault(&mut self, error: TurnError) {
        match self.link.phase() {
            Some(Phase::Starting(_) | Phase::Ready { .. }) => {}
            // It is going already, and whoever sent it has settled the turn.
            Some(Phase::Stopping { .. }) | None => return,
        }
        tracing::warn!(code = error.code.as_str(), message = error.message, "the agent is at fault");
        self.crashes.note(Instant::now());
        self.set_last_error(&error);
        self.fail_current_turn(error);
        self.stop_process(ExitReason::Crash);
    }

    /// Lets the process go, down the ladder, or the wait for one. A prompt that is open is cancelled first; it will not be
    /// answered any more.
    pub(super) fn stop_process(&mut self, reason: ExitReason) {
        let is_busy = std::mem::take(&mut self.requests).any(|purpose| matches!(purpose, Purpose::Prompt(_)));
        let connected = match &mut self.link {
            Link::Up(connected) => connected,
            Link::Stopped => return,
            Link::Waiting(_) | Link::Resting(_) | Link::Entering { .. } => return self.link = Link::Stopped,
        };
        let was_restoring = match &connected.phase {
            Phase::Stopping { .. } => return,
            Phase::Starting(handshake) => handshake.was_restoring,
            Phase::Ready { agent_session, .. } => {
                if is_busy {
                    // One that takes nothing in any more is told by the rungs that follow.
                    connected.process.send(outgoing::cancel(agent_session)).ok();
                    self.shared.metrics.stop_step(StopStep::Cancel);
                }
                false
            }
        };
        // The last words to the agent; what is withdrawn is recorded beside them.
        self.withdraw_all("the agent's process was stopped");
        let Link::Up(connected) = &mut self.link else { return };
        connected.process.stop();
        self.terminals.end();
        connected.slot.leave();
        connected.phase = Phase::Stopping { reason, was_restoring };
    }

    pub(super) fn on_exited(&mut self, exit: Exit) {
        self.withdraw_all("the agent's process went away");
        let Link::Up(connected) = std::mem::replace(&mut self.link, Link::Stopped) else { return };
        let Connected { pid, mut slot, phase, .. } = connected;
        let (reason, during) = match &phase {
            Phase::Stopping { reason, .. } => (*reason, None),
            Phase::Starting(handshake) => (ExitReason::Crash, Some(handshake.step.name())),
            Phase::Ready { .. } if self.running.is_some() => (ExitReason::Crash, Some("the turn")),
            Phase::Ready { .. } => (ExitReason::Crash, Some("the pause between turns")),
        };
        let error = during.map(|during| exit_error(&self.shared.config(), during, &exit));
        self.requests = Requests::default();
        self.end_choices();
        self.services.end();
        self.terminals.end();
        self.record(Op::ClearProcess);
        self.record_exit(pid, reason, Some(exit), error.as_ref());
        match (phase, error) {
            (Phase::Starting(handshake), Some(_)) if handshake.step.is_restoring() => self.stop_restoring(),
            // A turn that waits for something else has lost nothing yet: it gets the next process.
            (Phase::Ready { .. }, Some(_)) if self.running.is_none() => {
                self.crashes.note(Instant::now());
                self.close_transcript(true);
            }
            (_, Some(error)) => {
                self.crashes.note(Instant::now());
                self.fail_current_turn(error);
            }
            (_, None) => self.close_transcript(true),
        }
        // The slot serves the next turn of this session, unless it was promised to another one.
        if self.wants_process() && reason != ExitReason::Evicted && !self.must_rest() {
            slot.stay();
            self.start_process(slot);
        }
    }

    pub(super) fn record_exit(
        &mut self,
        pid: Option<u32>,
        reason: ExitReason,
        exit: Option<Exit>,
        error: Option<&TurnError>,
    ) {
        if let Some(error) = error {
            self.set_last_error(error);
        }
        let (code, signal, stderr) =
            exit.map_or((None, None, String::new()), |exit| (exit.code, exit.signal, exit.stderr));
        let error = error.map(|error| error.message.clone());
        self.shared.metrics.process_exited(reason);
        let body = EventBody::ProcessExited { pid, reason, code, signal, stderr, error };
        self.record(Op::Event { turn: None, body });
    }

    pub(super) fn set_last_error(&mut self, error: &TurnError) {
        self.record(Op::SetLastError(LastError::new(error)));
    }

    pub(super) fn with_stderr(&self, mut error: TurnError) -> TurnError {
        let tail = self.link.process().map(Process::stderr_tail).unwrap_or_default();
        if !tail.is_empty() {
            error.message = format!("{}; its standard error ends with: {tail}", error.message);
        }
        error
    }
}

/// What is told of an agent that ended when it should not have.
pub(super) fn exit_error(config: &Config, phase: &str, exit: &Exit) -> TurnError {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "without a status".to_owned(),
    };
    let mut message = match &exit.cause {
        Cause::Ended => format!("the agent exited {how} during {phase}"),
        Cause::NotStarted(why) => format!("the agent did not start: {why}"),
        Cause::ShimLost => format!(
            "the agent's shim was killed during {phase}, and the agent with it; by hand, or by the kernel for want of \
             memory: see the system's log"
        ),
        Cause::OutOfMemory => {
            let limit = config.limits.memory_max;
            let limit = limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!(
                "the agent was killed during {phase}, because it used more memory than its limit{limit} \
                 (limits.memory_max)"
            )
        }
    };
    if !exit.stderr.is_empty() {
        message = format!("{message}; its standard error ends with: {}", exit.stderr);
    }
    TurnError::new(ErrorCode::AgentExited, message)
}

pub(super) fn unreadable(method: &str, error: &str) -> TurnError {
    let message = format!("the agent's answer to {method} cannot be understood: {error}");
    TurnError::new(ErrorCode::Protocol, message)
}

pub(super) fn rpc_failure(method: &str, error: &RpcError) -> TurnError {
    let code = match error.code {
        RpcError::AUTH_REQUIRED => ErrorCode::AuthRequired,
        RpcError::TOO_MANY_REQUESTS => ErrorCode::RateLimited,
        _ => ErrorCode::Protocol,
    };
    let mut message = format!("the agent refused {method}: {} (code {})", error.message, error.code);
    if code == ErrorCode::AuthRequired {
        message.push_str("; sign in with the agent's own program, or give it a key in its profile's env");
    }
    TurnError::new(code, message)
}
