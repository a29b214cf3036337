//! The actor: one task that owns one session.
//!
//! Invariants, asserted after every input:
//! 1. A turn runs only on a process that is ready or on its way out, or while its start is being committed.
//! 2. A session that is not active has no running turn.
//! 3. The actor ends only when nothing is under way: no process, no running turn, nothing uncommitted, nobody waiting.
//!
//! Order matters in two places. `running` is committed before the prompt is written to the agent, so that no turn runs
//! twice. And whatever the actor answers or sends in consequence of a change goes out after the change is committed
//! ([`After`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::link::{Link, LinkInput};
use super::outbox::{Outbox, Outcome};
use super::transcript::Transcript;
use super::turns::{QueuedTurn, Running, Stage};
use super::{Accepted, Halt, Live, MAILBOX_MAX, Refusal, Reply, Request, SessionHandle, Shared};
use crate::acp::{Requests, incoming};
use crate::agent::Output;
use crate::lane::LaneWatch;
use crate::model::agent::FrozenProfile;
use crate::model::event::ExitReason;
use crate::model::session::Session;
use crate::model::{ErrorCode, PermissionMode, ProcessState, SessionStatus, Timestamp, TurnError, TurnId, TurnStatus};
use crate::store::{Op, OpenTurn, StoreError};

/// Everything that can happen to a session.
enum Input {
    Halt(Halt),
    Committed(Outcome<After>),
    Request(Request),
    Link(LinkInput),
    Deadline,
    /// Another session waits for a slot, and this one has a process with nothing to do.
    SlotWanted,
}

/// What is done once a change is committed.
pub(super) enum After {
    Accept {
        reply: Reply<Accepted>,
        position: usize,
    },
    /// Write the prompt to the agent.
    Begin(TurnId),
    /// Tell the agent, then whoever asked.
    Cancel {
        reply: Reply<Vec<TurnId>>,
        running: Option<TurnId>,
        turns: Vec<TurnId>,
    },
    Send(Bytes),
    /// It is done: a change, a resume, the end of a closing.
    Answer(Vec<Reply<()>>),
}

/// What our open requests to the agent are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Initialize,
    NewSession,
    Prompt(TurnId),
}

/// The session is being archived or deleted: what is left to do when its process is gone.
pub(super) struct Closing {
    pub replies: Vec<Reply<()>>,
    pub purge: bool,
}

pub struct SessionActor {
    pub(super) shared: Arc<Shared>,
    pub(super) profile: FrozenProfile,
    pub(super) permissions: PermissionMode,
    pub(super) workspace: PathBuf,
    pub(super) status: SessionStatus,
    /// The first prompt gives a session without a title its title.
    pub(super) untitled: bool,

    mailbox: mpsc::Receiver<Request>,
    halt: LaneWatch<Halt>,
    pub(super) halted: Halt,
    live: watch::Sender<Live>,

    pub(super) link: Link,
    pub(super) requests: Requests<Purpose>,
    pub(super) initialized: Option<incoming::Initialized>,
    pub(super) running: Option<Running>,
    pub(super) queue: VecDeque<QueuedTurn>,
    pub(super) transcript: Transcript,
    pub(super) outbox: Outbox<After>,
    pub(super) closing: Option<Closing>,
}

/// Makes the actor of a stored session, with the turns that are queued already, and the handle to reach it.
pub fn actor(
    session: Session,
    open_turns: Vec<OpenTurn>,
    shared: Arc<Shared>,
    halt: LaneWatch<Halt>,
) -> (SessionActor, SessionHandle) {
    let (mailbox_sender, mailbox) = mpsc::channel(MAILBOX_MAX);
    let (live, live_receiver) = watch::channel(Live::STOPPED);
    let queue = open_turns
        .into_iter()
        .filter(|turn| turn.status == TurnStatus::Queued)
        .map(|turn| QueuedTurn { id: turn.id, prompt: turn.prompt })
        .collect();
    let actor = SessionActor {
        profile: session.profile,
        permissions: session.permissions,
        workspace: PathBuf::from(session.workspace),
        status: session.status,
        untitled: session.title.is_empty(),
        mailbox,
        halt,
        halted: Halt::No,
        live,
        link: Link::Stopped,
        requests: Requests::default(),
        initialized: None,
        running: None,
        queue,
        transcript: Transcript::new(shared.config.limits.payload_max.0),
        outbox: Outbox::new(session.id, shared.hub.clone()),
        closing: None,
        shared,
    };
    (actor, SessionHandle { mailbox: mailbox_sender, live: live_receiver })
}

impl SessionActor {
    /// Runs until there is nothing to do; then it may be called again, with everything as it was left. When the record
    /// does not take a change, memory and record part: that is the end of this actor, and the record is what counts.
    pub async fn run(&mut self) -> Result<(), Arc<StoreError>> {
        self.settle();
        while !self.is_done() {
            let input = self.next_input().await;
            self.handle(input)?;
            self.settle();
            self.assert_invariants();
        }
        Ok(())
    }

    /// Whether a request came in after [`Self::run`] returned.
    pub fn has_mail(&self) -> bool {
        !self.mailbox.is_empty()
    }

    async fn next_input(&mut self) -> Input {
        let deadline = self.next_deadline();
        let has_room = !self.outbox.is_full();
        let is_idle = self.has_idle_process();
        tokio::select! {
            biased;
            halt = self.halt.above(self.halted) => Input::Halt(halt),
            outcome = self.outbox.committed() => Input::Committed(outcome),
            Some(request) = self.mailbox.recv() => Input::Request(request),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Input::Deadline,
            input = self.link.next(has_room) => Input::Link(input),
            () = self.shared.slots.wanted(), if is_idle => Input::SlotWanted,
        }
    }

    fn handle(&mut self, input: Input) -> Result<(), Arc<StoreError>> {
        match input {
            Input::Halt(halt) => self.on_halt(halt),
            Input::Committed(outcome) => self.on_committed(outcome)?,
            Input::Request(request) => self.on_request(request),
            Input::Link(LinkInput::Slot(slot)) => self.on_slot(slot),
            Input::Link(LinkInput::Output(output)) => match output {
                Output::Line { line, permit } => {
                    self.on_line(&line);
                    drop(permit);
                }
                Output::NotReading { message } => self.fault(TurnError::new(ErrorCode::Timeout, message)),
                Output::Exited(exit) => self.on_exited(exit),
            },
            Input::Deadline => self.on_deadline(),
            Input::SlotWanted => {
                if let Link::Ready { connected, .. } = &mut self.link
                    && connected.slot.leave_if_wanted()
                {
                    self.stop_process(ExitReason::Evicted);
                }
            }
        }
        Ok(())
    }

    /// Does what follows from the state as it is now: the next turn, a process for it, the end of a closing.
    fn settle(&mut self) {
        if self.takes_work() && self.running.is_none() && !self.queue.is_empty() {
            match &self.link {
                Link::Ready { .. } => self.start_next_turn(),
                Link::Stopped => self.wait_for_slot(),
                Link::Waiting(_) | Link::Starting(_) | Link::Stopping { .. } => {}
            }
        }
        self.finish_closing();
        self.outbox.flush();
        self.publish();
    }

    pub(super) fn takes_work(&self) -> bool {
        self.status == SessionStatus::Active && self.halted == Halt::No && self.closing.is_none()
    }

    pub(super) fn has_idle_process(&self) -> bool {
        matches!(self.link, Link::Ready { .. }) && self.running.is_none() && self.queue.is_empty()
    }

    fn is_done(&self) -> bool {
        matches!(self.link, Link::Stopped)
            && self.running.is_none()
            && self.outbox.is_idle()
            && self.closing.is_none()
            && self.mailbox.is_empty()
            && (self.queue.is_empty() || !self.takes_work())
    }

    fn assert_invariants(&self) {
        if let Some(running) = &self.running {
            assert!(self.status == SessionStatus::Active, "a session that is not active has no running turn");
            assert!(
                running.stage == Stage::Committing || matches!(self.link, Link::Ready { .. } | Link::Stopping { .. }),
                "a turn runs only on a process that is ready or on its way out"
            );
        }
    }

    fn publish(&mut self) {
        let process_state = match &self.link {
            Link::Stopped | Link::Waiting(_) => ProcessState::Stopped,
            Link::Starting(_) => ProcessState::Starting,
            Link::Ready { .. } if self.running.is_some() => ProcessState::Busy,
            Link::Ready { .. } => ProcessState::Ready,
            Link::Stopping { .. } => ProcessState::Stopping,
        };
        let pid = self.link.process().map(crate::agent::Process::pid);
        self.live.send_if_modified(|live| {
            let changed = (live.process_state, live.pid) != (process_state, pid);
            if changed {
                *live = Live { process_state, pid, busy_until: Timestamp::now() };
            }
            changed
        });
    }

    /// Records something; it is committed with whatever else this input brings.
    pub(super) fn record(&mut self, op: Op) {
        self.outbox.push(op);
    }

    fn on_committed(&mut self, outcome: Outcome<After>) -> Result<(), Arc<StoreError>> {
        let Outcome { result, then } = outcome;
        match result {
            Ok(committed) => {
                for (mark, after) in then {
                    let cursor = committed.before.get(mark).copied().unwrap_or(0);
                    self.after_commit(after, cursor);
                }
                Ok(())
            }
            Err(error) => {
                let error = Arc::new(error);
                for (_, after) in then {
                    after_failure(after, &error);
                }
                Err(error)
            }
        }
    }

    fn after_commit(&mut self, after: After, cursor: i64) {
        match after {
            After::Accept { reply, position } => answer(reply, Ok(Accepted { position, after: cursor })),
            After::Begin(turn) => self.begin_turn(turn),
            After::Cancel { reply, running, turns } => {
                if let Some(turn) = running {
                    self.send_cancel(turn);
                }
                answer(reply, Ok(turns));
            }
            After::Send(line) => self.send(line),
            After::Answer(replies) => {
                for reply in replies {
                    answer(reply, Ok(()));
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let request = self.requests.next_deadline().map(Instant::from_std);
        let cancel = self.running.as_ref().and_then(Running::kill_at);
        request.into_iter().chain(cancel).min()
    }
}

/// Nothing that was not committed has happened, and whoever asked for it is told so.
fn after_failure(after: After, error: &Arc<StoreError>) {
    let refusal = || Refusal::Store(Arc::clone(error));
    match after {
        After::Accept { reply, .. } => answer(reply, Err(refusal())),
        After::Cancel { reply, .. } => answer(reply, Err(refusal())),
        After::Answer(replies) => {
            for reply in replies {
                answer(reply, Err(refusal()));
            }
        }
        After::Begin(_) | After::Send(_) => {}
    }
}

/// Whoever asked may have gone away; what was asked has happened all the same.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
