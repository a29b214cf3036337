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
use super::failure::{self, SignIn};
use super::handshake::{Handshake, Step};
use super::link::{Connected, Link, Phase};
use super::servers::Spawned;
use super::start::Start;
use super::workspace::{Entered, StartingPlace};
use crate::acp::{Requests, RpcError, incoming, outgoing, usage};
use crate::agent::{Beneath, Exit, Process};
use crate::metrics::StopStep;
use crate::model::error::chain;
use crate::model::event::ExitReason;
use crate::model::session::ProcessIdentity;
use crate::model::{AgentProfile, ErrorCode, EventBody, LastError, TurnError};
use crate::store::Op;

impl SessionActor {
    /// Gets a process for the work that waits: now, after a rest, or not at all while the agent does nothing but crash.
    pub(super) fn seek_process(&mut self) {
        let config = self.shared.config();
        match self.crashes.rest_until(&config.processes).filter(|until| *until > Instant::now()) {
            Some(until) if self.crashes.is_loop(&config.processes) => {
                let rest = (until - Instant::now()).as_secs() + 1;
                let message = format!(
                    "the agent crashed {} times in a row, so acpd did not start it for this turn; a prompt in {rest} \
                        s starts it again; the session's lastError says what failed",
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
            Ok(Spawned { process, servers, tools }) => {
                self.requests = Requests::default();
                self.spending.begin_process();
                self.services.begin(beneath);
                self.transcript.set_bounds(&self.shared.config().limits);
                let phase = Phase::Starting(Box::new(Handshake::new(servers)));
                let is_read_only = self.permissions.forbids_writes();
                self.link = Link::Up(Connected { tools, ..Connected::new(process, slot, phase, is_read_only) });
                self.begin_handshake();
            }
            Err(error) => {
                let error =
                    TurnError::new(ErrorCode::AgentExited, format!("cannot start the agent: {}", chain(&error)));
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
            conversation: self.context.restorable(),
        }
    }

    /// What of the daemon's environment there is to choose from.
    pub(super) fn inherited_environment(&self) -> Cow<'_, BTreeMap<String, String>> {
        self.start().inherited_environment()
    }

    /// The agent runs: who it is goes into the record, for a daemon that comes after this one.
    pub(super) fn on_started(&mut self, identity: Box<ProcessIdentity>, account: Option<String>) {
        tracing::info!(pid = identity.agent.pid, shim = identity.shim.pid, "the agent's process is running");
        if let Link::Up(connected) = &mut self.link {
            connected.pid = identity.agent.pid.try_into().ok();
        }
        self.account = account;
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
                let told = self.profile.adapter.quirks().session_lost;
                let is_told = |error: &RpcError| told.is_some_and(|told| error.message.contains(told));
                let known = self.link.agent_session();
                let is_lost = outcome
                    .as_ref()
                    .is_err_and(|error| known.is_some_and(|known| error.loses(known) || is_told(error)));
                let outcome =
                    outcome.map_err(|error| failure::refused(method, &error, &self.sign_in())).and_then(|result| {
                        incoming::stop_reason(result).map_err(|error| failure::unreadable(method, &error))
                    });
                match outcome {
                    Err(error) if is_lost => self.on_session_lost(turn, error),
                    outcome => self.on_prompt_answer(turn, outcome),
                }
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
        // One that waits for a server of ours has not lost the conversation.
        let may_wait = self.link.handshake().is_some_and(|handshake| !handshake.servers.is_empty());
        if step.is_restoring() && !may_wait {
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
        tracing::warn!(code = error.code.as_str(), message = error.message, "the agent failed");
        // Nobody has crashed when nobody is signed in, and whoever signs in need not wait.
        if error.code != ErrorCode::AuthRequired {
            self.crashes.note(Instant::now());
        }
        let reason = match error.code {
            ErrorCode::AuthRequired => ExitReason::Auth,
            ErrorCode::Timeout => ExitReason::Timeout,
            _ => ExitReason::Crash,
        };
        self.set_last_error(&error);
        self.fail_current_turn(error);
        self.stop_process(reason);
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
        self.withdraw_all("stopped the agent's process");
        let Link::Up(connected) = &mut self.link else { return };
        connected.process.stop();
        self.terminals.end();
        connected.slot.leave();
        connected.phase = Phase::Stopping { reason, was_restoring };
    }

    pub(super) fn on_exited(&mut self, exit: Exit) {
        self.withdraw_all("the agent's process ended unexpectedly");
        let Link::Up(connected) = std::mem::replace(&mut self.link, Link::Stopped) else { return };
        let Connected { pid, mut slot, phase, tools, .. } = connected;
        // Before the next process has its own.
        drop(tools);
        let (reason, during) = match &phase {
            Phase::Stopping { reason, .. } => (*reason, None),
            Phase::Starting(handshake) => (ExitReason::Crash, Some(handshake.step.name())),
            Phase::Ready { .. } if self.running.is_some() => (ExitReason::Crash, Some("the turn")),
            Phase::Ready { .. } => (ExitReason::Crash, Some("the pause between turns")),
        };
        if self.use_older_arguments(&phase, &exit) {
            self.record(Op::ClearProcess);
            self.record_exit(pid, reason, Some(exit), None);
            slot.stay();
            return self.start_process(slot);
        }
        let error = during.map(|during| failure::exited(&self.shared.config(), during, &exit));
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

    /// Whether the agent is an older release that ended because of an argument. It is started again with what it knows.
    fn use_older_arguments(&mut self, phase: &Phase, exit: &Exit) -> bool {
        let is_initializing = matches!(phase, Phase::Starting(handshake) if handshake.step == Step::Initialize);
        if !is_initializing || !self.takes_work() {
            return false;
        }
        let older = self.profile.adapter.older_arguments(&self.profile.args, &exit.stderr);
        if let Some(arguments) = &older {
            tracing::info!(?arguments, "the agent is an older release; starting it with the older arguments");
            self.profile.args.clone_from(arguments);
        }
        older.is_some()
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

    /// What is known of how the agent signs in, and what its profile says about that today.
    pub(super) fn sign_in(&self) -> SignIn {
        let config = self.shared.config();
        let profile = self.profile.configured(&config.agents);
        let advice = profile
            .map_or_else(|| AgentProfile::new(&self.profile.slug).how_to_sign_in(), AgentProfile::how_to_sign_in);
        SignIn { account: self.account.clone(), advice }
    }

    pub(super) fn with_stderr(&self, error: TurnError) -> TurnError {
        failure::with_stderr(error, &self.link.process().map(Process::stderr_tail).unwrap_or_default())
    }
}
