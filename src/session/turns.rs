//! Turns: from the queue to the agent, and every way in which one ends.

use serde_json::Value;
use tokio::time::Instant;

use super::actor::{After, Purpose, SessionActor};
use super::link::Link;
use crate::acp::outgoing;
use crate::model::event::ExitReason;
use crate::model::{Content, ErrorCode, TurnError, TurnId, TurnStatus};
use crate::store::Op;

/// A turn that was accepted and waits.
#[derive(Debug)]
pub struct QueuedTurn {
    pub id: TurnId,
    pub prompt: Content,
}

/// The turn that runs.
#[derive(Debug)]
pub struct Running {
    pub turn: TurnId,
    prompt: Content,
    pub stage: Stage,
    cancel: Option<Cancel>,
}

/// Somebody wants it to end. That intent wins, whatever the agent answers.
#[derive(Debug)]
struct Cancel {
    /// When the process is killed, if the agent has not answered by then. Nobody can reset it.
    kill_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its start is on its way to the disk; the agent knows nothing of it yet.
    Committing,
    /// The agent has the prompt.
    Prompted,
}

impl Running {
    pub fn kill_at(&self) -> Option<Instant> {
        self.cancel.as_ref().map(|cancel| cancel.kill_at)
    }
}

impl SessionActor {
    pub(super) fn start_next_turn(&mut self) {
        let Some(QueuedTurn { id: turn, prompt }) = self.queue.pop_front() else {
            return;
        };
        // What the agent said since the last turn belongs to none.
        self.close_transcript(false);
        let mark = self.outbox.mark();
        self.record(Op::StartTurn { turn });
        self.outbox.then(mark, After::Begin(turn));
        self.running = Some(Running { turn, prompt, stage: Stage::Committing, cancel: None });
    }

    /// The start is committed: now, and only now, the agent gets the prompt.
    pub(super) fn begin_turn(&mut self, turn: TurnId) {
        let Some(running) = self.running.as_mut().filter(|running| running.turn == turn) else {
            return;
        };
        if running.cancel.is_some() {
            return self.finish_running(TurnStatus::Cancelled, None, None);
        }
        let Link::Ready { agent_session, .. } = &self.link else {
            let error = TurnError::new(ErrorCode::AgentExited, "the agent went away before it got the prompt");
            return self.finish_running(TurnStatus::Failed, None, Some(error));
        };
        running.stage = Stage::Prompted;
        // A turn may take hours: no deadline, only the end of the process.
        let id = self.requests.begin(Purpose::Prompt(turn), None);
        let line = outgoing::prompt(id, agent_session, &blocks_of(&running.prompt));
        tracing::debug!(%turn, "prompting the agent");
        self.send(line);
    }

    /// The agent's answer to a prompt.
    pub(super) fn on_prompt_answer(&mut self, turn: TurnId, outcome: Result<String, TurnError>) {
        let Some(running) = self.running.as_ref().filter(|running| running.turn == turn) else {
            return;
        };
        let cancelled = running.cancel.is_some();
        match outcome {
            _ if cancelled => self.finish_running(TurnStatus::Cancelled, outcome.ok(), None),
            Ok(reason) => self.finish_running(TurnStatus::Completed, Some(reason), None),
            Err(error) => self.finish_running(TurnStatus::Failed, None, Some(error)),
        }
    }

    /// Ends the running turn. What it said so far is kept; a failure says so in a message.
    pub(super) fn finish_running(&mut self, status: TurnStatus, stop_reason: Option<String>, error: Option<TurnError>) {
        let Some(Running { turn, .. }) = self.running.take() else {
            return;
        };
        self.close_transcript(status != TurnStatus::Completed);
        self.finish(turn, status, stop_reason, error);
    }

    /// The process is no use any more: the turn that needed it fails, whether it runs or waits for it.
    pub(super) fn fail_current_turn(&mut self, error: TurnError) {
        if let Some(running) = &self.running {
            if running.cancel.is_some() {
                self.finish_running(TurnStatus::Cancelled, None, None);
            } else {
                self.finish_running(TurnStatus::Failed, None, Some(error));
            }
        } else {
            self.close_transcript(true);
            if let Some(QueuedTurn { id: turn, .. }) = self.queue.pop_front() {
                self.finish(turn, TurnStatus::Failed, None, Some(error));
            }
        }
    }

    pub(super) fn interrupt_running(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.cancel.is_some()) {
            return self.finish_running(TurnStatus::Cancelled, None, None);
        }
        let error = TurnError::new(ErrorCode::Interrupted, "the daemon stopped while the turn was running");
        self.finish_running(TurnStatus::Interrupted, None, Some(error));
    }

    pub(super) fn cancel_queued(&mut self, turn: TurnId) {
        self.queue.retain(|queued| queued.id != turn);
        self.finish(turn, TurnStatus::Cancelled, None, None);
    }

    fn finish(&mut self, turn: TurnId, status: TurnStatus, stop_reason: Option<String>, error: Option<TurnError>) {
        tracing::info!(%turn, %status, stop_reason, error = error.as_ref().map(|error| error.code.as_str()), "a turn ended");
        if let Some(error) = &error {
            self.notice(Some(turn), error.code.as_str(), error.message.clone());
        }
        self.record(Op::FinishTurn { turn, status, stop_reason, error });
    }

    /// Notes the intent; the agent is told once that is committed.
    pub(super) fn request_cancel(&mut self, turn: TurnId) {
        self.record(Op::RequestCancel { turn });
        let kill_at = Instant::now() + self.shared.config.processes.cancel_grace;
        if let Some(running) = &mut self.running {
            running.cancel.get_or_insert(Cancel { kill_at });
        }
    }

    pub(super) fn send_cancel(&mut self, turn: TurnId) {
        let prompted =
            self.running.as_ref().is_some_and(|running| running.turn == turn && running.stage == Stage::Prompted);
        if prompted && let Some(agent_session) = self.link.agent_session() {
            let line = outgoing::cancel(agent_session);
            self.send(line);
        }
    }

    /// The grace of a cancelled turn is over: the agent goes, and the turn with it.
    pub(super) fn enforce_cancel(&mut self, now: Instant) {
        let overdue = self.running.as_ref().and_then(Running::kill_at).is_some_and(|kill_at| kill_at <= now);
        if !overdue {
            return;
        }
        tracing::warn!("the agent did not answer a cancelled prompt in time; killing it");
        self.finish_running(TurnStatus::Cancelled, None, None);
        self.stop_process(ExitReason::Timeout);
        if let Some(process) = self.link.process() {
            process.kill();
        }
    }

    pub(super) fn close_transcript(&mut self, partial: bool) {
        let outbox = &mut self.outbox;
        self.transcript.close(partial, &mut |op| outbox.push(op));
    }
}

/// A prompt as ACP content blocks.
fn blocks_of(prompt: &Content) -> Vec<Value> {
    match prompt {
        Content::Text { text, .. } => vec![serde_json::json!({ "type": "text", "text": text })],
        Content::Blocks { blocks } => blocks.clone(),
        // Nothing else is ever accepted as a prompt.
        _ => Vec::new(),
    }
}
