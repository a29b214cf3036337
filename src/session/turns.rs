//! Turns: from the queue to the agent, and every way in which one ends.

use std::time::Duration;

use tokio::time::Instant;

use super::actor::{After, SessionActor};
use super::context::{Due, Owed};
use super::prompt::Parts;
use crate::acp::outgoing;
use crate::metrics::StopStep;
use crate::model::event::ExitReason;
use crate::model::{By, Content, ContextRestored, ErrorCode, MessageId, SessionContext, TurnError, TurnId, TurnStatus};
use crate::store::Op;

/// A turn that was accepted and waits.
#[derive(Debug)]
pub struct QueuedTurn {
    pub id: TurnId,
    pub prompt: Content,
    /// What its prompt names in place of the session's context.
    pub context: Option<SessionContext>,
    /// The agent refused it because it had lost its session. In the store it runs, so a daemon that is killed ends it.
    pub was_refused: bool,
}

/// The turn that runs.
#[derive(Debug)]
pub struct Running {
    pub turn: TurnId,
    pub parts: Parts,
    pub stage: Stage,
    /// Whether the agent has sent anything since it got the prompt.
    pub is_heard: bool,
    was_refused: bool,
    verdict: Option<Verdict>,
    /// When the agent last said anything.
    pub heard_at: Instant,
    /// Whether people were told that it has said nothing since.
    pub is_silence_told: bool,
    pub began: Instant,
    /// Tool calls that there were before this turn.
    tool_calls_before: u64,
}

/// It is decided how the turn ends. That wins, whatever the agent answers.
#[derive(Debug)]
struct Verdict {
    ending: Ending,
    /// When the process is killed, if the agent has not answered by then. Nobody can reset it.
    kill_at: Instant,
}

#[derive(Debug)]
pub enum Ending {
    /// Somebody wants it to end.
    Cancelled,
    /// It is over one of its bounds.
    Failed { error: TurnError, reason: ExitReason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its start is on its way to the disk, or its media from there; the agent knows nothing of it yet.
    Committing,
    /// The agent has the prompt.
    Prompted,
}

impl Running {
    /// How it ends, if that is decided.
    pub fn take_ending(&mut self) -> Option<Ending> {
        self.verdict.take().map(|verdict| verdict.ending)
    }

    /// Whether it is decided how it ends.
    pub fn is_ending(&self) -> bool {
        self.verdict.is_some()
    }

    /// A silence begins here.
    fn heard_now(&mut self) {
        self.heard_at = Instant::now();
        self.is_silence_told = false;
    }

    /// When something must be done about it: the kill after a verdict, or the end of patience with a silent agent.
    pub fn deadline(&self, silence: Option<Duration>) -> Option<Instant> {
        match &self.verdict {
            Some(verdict) => Some(verdict.kill_at),
            None => silence.filter(|_| self.stage == Stage::Prompted).map(|silence| self.heard_at + silence),
        }
    }
}

impl SessionActor {
    /// Starts the turn that waits first, when the agent has, or is about to be given, the conversation so far.
    pub(super) fn start_next_turn(&mut self) {
        if self.fail_unsupported() {
            return;
        }
        let transcript = match self.context.due() {
            Due::Go(transcript) => transcript,
            // The end of the turn before is in it once that is committed.
            Due::Ask => return self.outbox.then(self.outbox.mark(), After::ReadHistory),
            Due::Wait => return,
        };
        let Some(QueuedTurn { id: turn, prompt, context, was_refused }) = self.queue.pop_front() else {
            return;
        };
        // What the agent said since the last turn belongs to none.
        self.close_transcript(false);
        let mark = self.outbox.mark();
        if transcript.is_some() {
            self.record(Op::SetContextRestored(ContextRestored::Replayed));
        }
        if !was_refused {
            self.record(Op::StartTurn { turn });
        }
        self.outbox.then(mark, After::Begin(turn));
        self.context.has_history = true;
        let now = Instant::now();
        self.running = Some(Running {
            turn,
            parts: Parts { transcript, system: self.waiting.clone(), context, prompt },
            stage: Stage::Committing,
            is_heard: false,
            was_refused,
            verdict: None,
            heard_at: now,
            is_silence_told: false,
            began: now,
            tool_calls_before: self.transcript.tool_calls(),
        });
    }

    /// The agent's answer to a prompt.
    pub(super) fn on_prompt_answer(&mut self, turn: TurnId, outcome: Result<String, TurnError>) {
        let Some(running) = self.running.as_mut().filter(|running| running.turn == turn) else {
            return;
        };
        let (verdict, shown) = (running.verdict.take(), running.parts.system_ids());
        // An agent may drop a turn that was cancelled or refused, and what came with it, from its memory.
        if outcome.as_ref().is_ok_and(|reason| !matches!(reason.as_str(), "cancelled" | "refusal")) {
            self.settle_debts(shown);
        }
        let is_unknown = outcome.as_ref().is_err_and(|error| error.code == ErrorCode::AuthRequired);
        match (verdict, outcome) {
            (Some(verdict), outcome) => self.execute(verdict.ending, outcome.ok()),
            (None, Ok(reason)) => self.finish_running(TurnStatus::Completed, Some(reason), None),
            (None, Err(error)) => self.finish_running(TurnStatus::Failed, None, Some(error)),
        }
        if is_unknown {
            // Another key, or another login, is read by the next process only.
            self.stop_process(ExitReason::Auth);
        } else if let Some(process) = self.link.process() {
            process.give_login_back();
        }
    }

    /// The agent does not know its session any more, so its process is replaced. A turn of which the agent has sent nothing
    /// has not begun: it runs once more, in the next process, which restores the conversation.
    pub(super) fn on_session_lost(&mut self, turn: TurnId, error: TurnError) {
        let may_repeat = |running: &mut Running| {
            running.turn == turn && running.verdict.is_none() && !running.is_heard && !running.was_refused
        };
        let Some(Running { parts, .. }) = self.running.take_if(may_repeat) else {
            // What it restored for this turn it has lost again, so it gets the transcript next.
            self.context.may_restore &= self.running.as_ref().is_none_or(|running| !running.was_refused);
            let hint = "the agent has lost its session; send the prompt again: acpd restarts the agent for it";
            return self.fault(error.with_hint(hint));
        };
        tracing::warn!(%turn, message = error.message, "the agent has lost its session; restarting it for the turn");
        let Parts { prompt, context, .. } = parts;
        self.queue.push_front(QueuedTurn { id: turn, prompt, context, was_refused: true });
        self.crashes.note(Instant::now());
        self.set_last_error(&error);
        self.stop_process(ExitReason::Crash);
    }

    /// The agent has what was owed to it: the system prompt, the transcript, the links of the context, the system messages that waited.
    fn settle_debts(&mut self, shown: Vec<MessageId>) {
        self.context.owed = Owed::Nothing;
        let paid = self.links.were_shown().into_iter().chain(self.context.instructions.were_shown());
        paid.for_each(|op| self.record(op));
        self.forget_waiting(shown);
        self.crashes.forgive();
    }

    /// Ends the running turn as it was decided. The agent's own word is kept beside it.
    pub(super) fn execute(&mut self, ending: Ending, stop_reason: Option<String>) {
        match ending {
            Ending::Cancelled => self.finish_running(TurnStatus::Cancelled, stop_reason, None),
            Ending::Failed { error, .. } => self.finish_running(TurnStatus::Failed, stop_reason, Some(error)),
        }
    }

    /// Ends the running turn. What it said so far is kept; a failure says so in a message.
    pub(super) fn finish_running(&mut self, status: TurnStatus, stop_reason: Option<String>, error: Option<TurnError>) {
        let Some(Running { turn, began, .. }) = self.running.take() else {
            return;
        };
        self.shared.metrics.turn_took(began.elapsed());
        self.touch();
        self.withdraw_of_turn(turn, "the turn ended");
        self.close_transcript(status != TurnStatus::Completed);
        self.finish(turn, status, stop_reason, error);
    }

    /// The process is no use any more: the turn that needed it fails, whether it runs or waits for it.
    pub(super) fn fail_current_turn(&mut self, error: TurnError) {
        if let Some(running) = &mut self.running {
            match running.verdict.take() {
                Some(verdict) => self.execute(verdict.ending, None),
                None => self.finish_running(TurnStatus::Failed, None, Some(error)),
            }
        } else {
            self.close_transcript(true);
            if let Some(QueuedTurn { id: turn, .. }) = self.queue.pop_front() {
                self.finish(turn, TurnStatus::Failed, None, Some(error));
            }
        }
    }

    pub(super) fn interrupt_started(&mut self) {
        if let Some(verdict) = self.running.as_mut().and_then(|running| running.verdict.take()) {
            return self.execute(verdict.ending, None);
        }
        let error = TurnError::new(ErrorCode::Interrupted, "the daemon stopped while the turn was running");
        if let Some(QueuedTurn { id, .. }) = self.queue.pop_front_if(|turn| turn.was_refused) {
            return self.finish(id, TurnStatus::Interrupted, None, Some(error));
        }
        self.finish_running(TurnStatus::Interrupted, None, Some(error));
    }

    pub(super) fn cancel_queued(&mut self, turn: TurnId, by: &By) {
        self.note_canceller(turn, by);
        self.queue.retain(|queued| queued.id != turn);
        self.finish(turn, TurnStatus::Cancelled, None, None);
    }

    pub(super) fn finish(
        &mut self,
        turn: TurnId,
        status: TurnStatus,
        stop_reason: Option<String>,
        error: Option<TurnError>,
    ) {
        let error = error.map(|error| self.start().explained(error, &self.profile));
        // What went well is not told of in the log: it would be on the way of every turn.
        if let Some(error) = &error {
            tracing::info!(%turn, %status, code = error.code.as_str(), "a turn failed");
        }
        if let Some(error) = &error {
            self.notice(Some(turn), error.code.as_str(), error.message.clone());
        }
        let usage = self.spending.take(turn);
        self.record(Op::FinishTurn { turn, status, stop_reason, error, usage, at: None });
    }

    /// Notes who ends the turn, when it is somebody: its end tells.
    pub(super) fn note_canceller(&mut self, turn: TurnId, by: &By) {
        if by.is_some() {
            self.record(Op::RequestCancel { turn, by: by.clone() });
        }
    }

    /// Notes the intent; the agent is told once that is committed.
    pub(super) fn request_cancel(&mut self, turn: TurnId, by: &By) {
        self.record(Op::RequestCancel { turn, by: by.clone() });
        self.decide(Ending::Cancelled);
    }

    /// The first verdict stands, and so does its clock; but a turn that somebody cancelled is cancelled.
    fn decide(&mut self, ending: Ending) {
        let kill_at = Instant::now() + self.shared.config().processes.cancel_grace;
        let Some(running) = &mut self.running else { return };
        match &mut running.verdict {
            None => running.verdict = Some(Verdict { ending, kill_at }),
            Some(verdict) if matches!(ending, Ending::Cancelled) => verdict.ending = ending,
            Some(_) => {}
        }
    }

    pub(super) fn send_cancel(&mut self, turn: TurnId) {
        self.cancel_services();
        let prompted =
            self.running.as_ref().is_some_and(|running| running.turn == turn && running.stage == Stage::Prompted);
        if prompted && let Some(agent_session) = self.link.agent_session() {
            let line = outgoing::cancel(agent_session);
            self.shared.metrics.stop_step(StopStep::Cancel);
            self.send(line);
        }
    }

    /// The agent said something: it is not silent, and may have begun a tool call too many.
    pub(super) fn note_life(&mut self) {
        self.touch();
        let Some(running) = &mut self.running else { return };
        running.heard_now();
        let calls = self.transcript.tool_calls() - running.tool_calls_before;
        // Nearly all that is said is text, and the cap is not looked up for that.
        if calls > 0
            && let Some(cap) = self.tool_call_cap()
            && calls > u64::from(cap)
        {
            let message = format!(
                "the turn started more than {cap} tool calls; raise sessions.tool_call_cap, or the session's \
                    limits.toolCallCap"
            );
            self.fail_turn(ErrorCode::TurnLimit, message, ExitReason::Limit);
        }
    }

    /// What the agent waited for has come: its silence counts from here.
    pub(super) fn restart_silence(&mut self) {
        if let Some(running) = &mut self.running {
            running.heard_now();
        }
    }

    /// How long the agent may be silent. The clock stands still while it is acpd that has to answer.
    pub(super) fn silence_timeout(&self) -> Option<Duration> {
        self.shared.config().sessions.turn_silence_timeout.filter(|_| !self.owes_answer())
    }

    fn tool_call_cap(&self) -> Option<u32> {
        let own = self.limits.tool_call_cap.filter(|cap| *cap > 0);
        own.or(self.shared.config().sessions.tool_call_cap)
    }

    /// The turn is over one of its bounds: the agent is told to end it, and killed when it does not.
    fn fail_turn(&mut self, code: ErrorCode, message: String, reason: ExitReason) {
        let Some(running) = self.running.as_ref().filter(|running| running.verdict.is_none()) else { return };
        let turn = running.turn;
        tracing::warn!(%turn, message, "a turn exceeded its limits; cancelling it");
        self.decide(Ending::Failed { error: TurnError::new(code, message), reason });
        self.send_cancel(turn);
        self.withdraw_of_turn(turn, "the turn was cancelled");
    }

    /// Silence that lasts too long is a verdict; a verdict that the agent does not answer in time is carried out.
    pub(super) fn enforce_turn(&mut self, now: Instant, silence: Option<Duration>) {
        let Some(running) = &mut self.running else { return };
        if running.deadline(silence).is_none_or(|deadline| deadline > now) {
            return;
        }
        let Some(Verdict { ending, .. }) = running.verdict.take() else {
            let message = format!(
                "the agent sent nothing for {:?} during the turn (sessions.turn_silence_timeout)",
                silence.unwrap_or_default()
            );
            return self.fail_turn(ErrorCode::Timeout, message, ExitReason::Timeout);
        };
        tracing::warn!("the agent did not end a turn in time; killing the agent");
        let reason = match &ending {
            Ending::Cancelled => ExitReason::Timeout,
            Ending::Failed { reason, .. } => *reason,
        };
        self.execute(ending, None);
        self.stop_process(reason);
        if let Some(process) = self.link.process() {
            process.kill();
        }
    }

    pub(super) fn close_transcript(&mut self, partial: bool) {
        // Agents may use the ids of their calls again, for something else.
        self.grants.clear();
        let outbox = &mut self.outbox;
        self.transcript.close(partial, &mut |op| outbox.push(op));
    }
}
