//! The actor: one task that owns one session.
//!
//! Invariants. The first two are asserted after every input, the third is [`SessionActor::is_done`].
//!
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

use super::choices::Choices;
use super::consent::{Deed, Told};
use super::context::{self, Context, Owed};
use super::crashes::Crashes;
use super::grants::Grant;
use super::handshake::Handshake;
use super::inbox::Inbox;
use super::link::{Connected, Link, LinkInput, Phase};
use super::links::Links;
use super::outbox::{Outbox, Outcome};
use super::prompt::{Media, MediaReader};
use super::servers::Servers;
use super::services::{Done, Services};
use super::spending::Spending;
use super::terminals::Terminals;
use super::transcript::Transcript;
use super::turns::{QueuedTurn, Running, Stage};
use super::{Accepted, Halt, Live, MAILBOX_MAX, Refusal, Reply, Request, SessionHandle, Shared};
use crate::acp::Requests;
use crate::agent::{Output, Persona, TerminalTold};
use crate::config::{Changes, Config};
use crate::lane::LaneWatch;
use crate::model::agent::FrozenProfile;
use crate::model::event::ExitReason;
use crate::model::permission::policy::Authority;
use crate::model::permission::standing::StandingRule;
use crate::model::session::{DirectoryIdentity, Session};
use crate::model::{
    Announced, ErrorCode, Meter, ProcessState, PromptAbilities, SessionId, SessionLimits, SessionStatus, Timestamp,
    TurnError, TurnId, TurnStatus,
};
use crate::store::{Op, OpenTurn, StoreError, WaitingMessage};

/// Everything that can happen to a session.
enum Input {
    Halt(Halt),
    Committed(Outcome<After>),
    Request(Request),
    Link(LinkInput),
    Deadline,
    /// The conversation so far, as a text for the agent.
    History(context::HistoryRead),
    /// The data that the prompt of this turn needs.
    Media(TurnId, Result<Media, StoreError>),
    /// Another configuration is in force: deadlines may have moved.
    Reloaded,
    /// A job for the agent is done.
    Job(Done),
    Terminal(String, TerminalTold),
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
    /// Carry the deed out, or refuse it; then tell whoever answered.
    Answered {
        /// Whose question it was.
        process: u64,
        deed: Box<Deed>,
        told: Told,
        /// Who decided.
        by: String,
        reply: Option<Reply<()>>,
    },
    /// Answer a request of the agent's, if it is the same process.
    Reply {
        process: u64,
        line: Bytes,
    },
    /// Read the conversation so far, for the agent.
    ReadHistory,
    /// What there was to write for the halt is written.
    Settled,
    /// It is done: a change, a resume, the end of a closing.
    Answer(Vec<Reply<()>>),
    /// The session is gone from the record; whoever waits for that is told.
    Purged,
    /// It is not done, and what there is to see of that is written.
    Refuse {
        reply: Reply<()>,
        refusal: Box<Refusal>,
    },
    RefusePrompt {
        reply: Reply<Accepted>,
        refusal: Box<Refusal>,
    },
}

/// What our open requests to the agent are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The step of the handshake that is under way.
    Handshake,
    Prompt(TurnId),
    /// Something that somebody chose.
    Choice,
}

/// The session is being archived or deleted: what is left to do when its process is gone.
pub(super) struct Closing {
    pub replies: Vec<Reply<()>>,
    pub purge: bool,
    /// The purge is on its way to the record. Whoever asks for it from now on waits for the same one.
    pub is_purging: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct SessionActor {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    pub(super) owner_uid: Option<u32>,
    /// As whom files are looked at: the owner, as the user database had them when the last process was started.
    pub(super) persona: Persona,
    pub(super) profile: Box<FrozenProfile>,
    pub(super) servers: Servers,
    pub(super) permissions: Authority,
    pub(super) inbox: Inbox,
    pub(super) workspace: PathBuf,
    /// Which directory that was when a process last started there.
    pub(super) workspace_identity: Option<DirectoryIdentity>,
    pub(super) status: SessionStatus,
    /// The first prompt gives a session without a title its title.
    pub(super) untitled: bool,
    /// Retention leaves it alone.
    pub(super) keep: bool,
    pub(super) limits: SessionLimits,
    /// Turns that count against the cap.
    pub(super) turns_counted: u64,
    pub(super) spending: Spending,
    pub(super) choices: Choices,

    mailbox: mpsc::Receiver<Request>,
    halt: LaneWatch<Halt>,
    pub(super) halted: Halt,
    is_settled: bool,
    reloads: Changes,
    live: watch::Sender<Live>,

    pub(super) link: Link,
    /// What is known of how the agent signs in, for when that fails.
    pub(super) account: Option<String>,
    pub(super) requests: Requests<Purpose>,
    pub(super) crashes: Crashes,
    /// When the process last had something to do.
    active_at: Instant,
    pub(super) context: Context,
    pub(super) links: Links,
    pub(super) running: Option<Running>,
    pub(super) queue: VecDeque<QueuedTurn>,
    /// What the agent takes in a prompt, once it has said so.
    pub(super) prompt_abilities: Option<PromptAbilities>,
    pub(super) media: MediaReader,
    /// System messages for the next prompt.
    pub(super) waiting: Vec<WaitingMessage>,
    pub(super) transcript: Transcript,
    pub(super) services: Services,
    pub(super) grants: Vec<Grant>,
    pub(super) terminals: Terminals,
    pub(super) outbox: Outbox<After>,
    pub(super) closing: Option<Closing>,
    /// The record has nothing of the session any more, so nothing can be added to it.
    pub(super) is_purged: bool,
}

/// Makes the actor of a stored session, with the turns that are queued and the messages that wait for a prompt already,
/// and the handle to reach it.
pub fn actor(
    session: Session,
    open_turns: Vec<OpenTurn>,
    waiting: Vec<WaitingMessage>,
    standing: Vec<StandingRule>,
    announced: &Announced,
    shared: Arc<Shared>,
    halt: LaneWatch<Halt>,
) -> (SessionActor, SessionHandle) {
    let (mailbox_sender, mailbox) = mpsc::channel(MAILBOX_MAX);
    let (live, live_receiver) = watch::channel(Live::STOPPED);
    let queue: VecDeque<QueuedTurn> = open_turns
        .into_iter()
        .filter(|turn| turn.status == TurnStatus::Queued)
        .map(|turn| QueuedTurn { id: turn.id, prompt: turn.prompt, context: turn.context, was_refused: false })
        .collect();
    let (owner, context) = (session.owner_uid, Context::new(&session, queue.len()));
    let meter = Meter { usage: session.usage.unwrap_or_default(), basis: session.usage_basis.unwrap_or_default() };
    let choices = Choices::new(session.mode, session.model, session.chosen, announced);
    let secrets = shared.hub.secrets(session.owner_uid);
    let mut transcript = Transcript::new(&shared.config().limits, secrets, session.profile.adapter);
    transcript.set_model(choices.model());
    let actor = SessionActor {
        id: session.id,
        owner_uid: session.owner_uid,
        persona: Persona::to_be_asked_for(session.owner_uid),
        permissions: session.profile.authority(session.permissions, standing),
        profile: Box::new(session.profile),
        servers: Servers::new(session.mcp_servers),
        inbox: Inbox::default(),
        workspace: PathBuf::from(session.workspace),
        workspace_identity: session.workspace_identity,
        status: session.status,
        untitled: session.title.is_empty(),
        keep: session.keep,
        limits: session.limits,
        turns_counted: session.turns_counted.unsigned_abs(),
        spending: Spending::new(meter, session.paused.is_some()),
        choices,
        mailbox,
        halt,
        halted: Halt::No,
        is_settled: false,
        reloads: shared.config.changes(),
        live,
        link: Link::Stopped,
        account: None,
        requests: Requests::default(),
        crashes: Crashes::default(),
        active_at: Instant::now(),
        context,
        links: Links::new(session.context, session.links_owed),
        running: None,
        queue,
        prompt_abilities: session.prompt_abilities,
        media: MediaReader::default(),
        waiting,
        transcript,
        services: Services::default(),
        grants: Vec::new(),
        terminals: Terminals::default(),
        outbox: Outbox::new(session.id, session.owner_uid, shared.hub.clone()),
        closing: None,
        is_purged: false,
        shared,
    };
    (actor, SessionHandle { mailbox: mailbox_sender, live: live_receiver, owner })
}

impl SessionActor {
    /// Runs until there is nothing to do; then it may be called again, with everything as it was left. When the record
    /// does not take a change, memory and record part: that is the end of this actor, and the record is what counts.
    pub async fn run(&mut self) -> Result<(), Arc<StoreError>> {
        // What follows is settled by the configuration as it is now.
        self.reloads.mark_seen();
        self.settle();
        while !self.is_done() {
            let input = self.next_input().await;
            self.handle(input)?;
            self.settle();
            self.assert_invariants();
        }
        Ok(())
    }

    /// Whether a request came in after [`Self::run`] returned, or a configuration with which turns may go on.
    pub fn has_mail(&self) -> bool {
        !self.mailbox.is_empty() || (self.spending.is_paused() && self.reloads.is_pending())
    }

    async fn next_input(&mut self) -> Input {
        let deadline = self.next_deadline();
        let has_room = !self.outbox.is_full() && self.services.has_room();
        let is_idle = self.has_idle_process();
        tokio::select! {
            biased;
            halt = self.halt.above(self.halted) => Input::Halt(halt),
            outcome = self.outbox.committed() => Input::Committed(outcome),
            Some(request) = self.mailbox.recv() => Input::Request(request),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Input::Deadline,
            history = self.context.read() => Input::History(history),
            (turn, media) = self.media.read() => Input::Media(turn, media),
            () = self.reloads.next() => Input::Reloaded,
            done = self.services.next() => Input::Job(done),
            (id, told) = self.terminals.next() => Input::Terminal(id, told),
            input = self.link.next(has_room) => Input::Link(input),
            () = self.shared.slots.wanted(), if is_idle => Input::SlotWanted,
        }
    }

    fn handle(&mut self, input: Input) -> Result<(), Arc<StoreError>> {
        match input {
            Input::Halt(halt) => self.on_halt(halt),
            Input::Committed(outcome) => self.on_committed(outcome)?,
            Input::Request(request) => self.on_request(request),
            Input::Reloaded => {
                // The rest may be another one now.
                if matches!(self.link, Link::Resting(_)) {
                    self.link = Link::Stopped;
                }
            }
            // What cannot be read is as bad as what cannot be written: the turn waits for the next actor.
            Input::History(history) => self.context.owed = Owed::Read(history?),
            Input::Media(turn, media) => self.on_media(turn, media)?,
            Input::Job(done) => self.on_job_done(done),
            Input::Terminal(id, told) => self.on_terminal_told(&id, told),
            Input::Link(LinkInput::Rested) => self.link = Link::Stopped,
            Input::Link(LinkInput::Slot(slot)) => self.on_slot(slot),
            Input::Link(LinkInput::Entered(entered)) => self.on_entered(entered),
            Input::Link(LinkInput::Output(output)) => match output {
                Output::Started { identity, sandbox, account } => {
                    self.on_started(identity, account);
                    self.on_confined(*sandbox);
                }
                Output::Lines { lines, shares } => {
                    self.on_lines(&lines);
                    drop(shares);
                }
                Output::NotReading { message } => self.fault(TurnError::new(ErrorCode::Timeout, message)),
                Output::Exited(exit) => self.on_exited(exit),
            },
            Input::Deadline => self.on_deadline(),
            Input::SlotWanted => {
                if let Link::Up(connected) = &mut self.link
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
        self.check_cost();
        self.stop_if_too_free();
        if self.wants_process() && self.running.is_none() {
            match &self.link {
                Link::Stopped => self.seek_process(),
                Link::Up(Connected { phase: Phase::Ready { .. }, .. }) if self.choices.is_starting() => {}
                Link::Up(Connected { phase: Phase::Ready { .. }, .. }) => self.start_next_turn(),
                Link::Resting(_) | Link::Waiting(_) | Link::Entering { .. } | Link::Up(_) => {}
            }
        }
        self.finish_closing();
        // What the agent has said by now goes into the same unit: it is there, and handled next. In a flood, so does what it
        // says in the next moment.
        let is_resting = self.outbox.rests_until().is_some_and(|until| Instant::now() < until);
        let has_more = self.link.has_output() && self.outbox.has_room_for_output();
        if !is_resting && !has_more {
            self.outbox.flush();
        }
        self.publish();
    }

    pub(super) fn takes_work(&self) -> bool {
        self.status == SessionStatus::Active && self.halted == Halt::No && self.closing.is_none()
    }

    /// Whether turns wait that may start.
    pub(super) fn wants_process(&self) -> bool {
        self.takes_work() && !self.queue.is_empty() && !self.is_over_cost()
    }

    pub(super) fn has_idle_process(&self) -> bool {
        let has_work = self.running.is_some() || !(self.queue.is_empty() || self.spending.is_paused());
        self.link.is_ready() && !has_work && self.choices.is_quiet() && !self.is_serving()
    }

    fn is_done(&self) -> bool {
        matches!(self.link, Link::Stopped)
            && self.running.is_none()
            && self.outbox.is_idle()
            && self.services.is_idle()
            && self.terminals.is_empty()
            && self.closing.is_none()
            && self.mailbox.is_empty()
            && (self.queue.is_empty() || !self.takes_work() || self.spending.is_paused())
            // Whoever forgot its crashes could not count them.
            && (self.crashes.count() == 0 || !self.takes_work())
    }

    /// The process has, or had just now, something to do.
    pub(super) fn touch(&mut self) {
        self.active_at = Instant::now();
    }

    fn assert_invariants(&self) {
        if let Some(running) = &self.running {
            assert!(self.status == SessionStatus::Active, "a session that is not active has no running turn");
            assert!(
                running.stage == Stage::Committing || (self.link.phase().is_some() && self.link.handshake().is_none()),
                "a turn runs only on a process that is ready or on its way out"
            );
        }
    }

    fn publish(&mut self) {
        let process_state = match self.link.phase() {
            None if matches!(self.link, Link::Entering { .. }) => ProcessState::Starting,
            None => ProcessState::Stopped,
            Some(Phase::Starting(_)) => ProcessState::Starting,
            Some(Phase::Ready { .. }) if self.running.is_some() => ProcessState::Busy,
            Some(Phase::Ready { .. }) => ProcessState::Ready,
            Some(Phase::Stopping { .. }) => ProcessState::Stopping,
        };
        let pid = self.link.connected().and_then(|connected| connected.pid);
        let is_settled = self.is_settled;
        self.live.send_if_modified(|live| {
            let changed = (live.process_state, live.pid, live.is_settled) != (process_state, pid, is_settled);
            if changed {
                *live = Live { process_state, pid, busy_until: Timestamp::now(), is_settled };
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
                // What was to follow will not happen either, and nobody who waits for it is left without a word.
                let error = Arc::new(error);
                for after in then.into_iter().map(|(_, after)| after).chain(self.outbox.abandon()) {
                    after_failure(after, &error);
                }
                self.answer_closers(|| Err(Refusal::Store(Arc::clone(&error))));
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
            After::Answered { process, deed, told, by, reply } => {
                // Another process has requests of its own under the same numbers.
                if process == self.services.process() {
                    self.carry_out(*deed, told, &by);
                }
                if let Some(reply) = reply {
                    answer(reply, Ok(()));
                }
            }
            After::Reply { process, line } => self.send_reply(process, line),
            After::Settled => self.is_settled = true,
            After::ReadHistory => {
                let bytes_max = self.shared.config().sessions.transcript_max.0;
                self.context.begin_reading(&self.shared.hub, self.id, bytes_max);
            }
            After::Answer(replies) => {
                self.remove_directories_of_the_archived();
                for reply in replies {
                    answer(reply, Ok(()));
                }
            }
            After::Refuse { reply, refusal } => answer(reply, Err(*refusal)),
            After::RefusePrompt { reply, refusal } => answer(reply, Err(*refusal)),
            After::Purged => {
                self.is_purged = true;
                drop(self.shared.host.directories.remove(self.id));
                self.answer_closers(|| Ok(()));
            }
        }
    }

    /// Ends the closing, and tells everybody who waits for it how.
    fn answer_closers(&mut self, outcome: impl Fn() -> Result<(), Refusal>) {
        for reply in self.closing.take().into_iter().flat_map(|closing| closing.replies) {
            answer(reply, outcome());
        }
    }

    /// The next time at which something happens because nothing else did.
    fn next_deadline(&self) -> Option<Instant> {
        let config = self.shared.config();
        let request = self.requests.next_deadline().map(Instant::from_std);
        let replay = self.link.handshake().and_then(Handshake::replay_until);
        let turn = self.running.as_ref().and_then(|running| running.deadline(self.silence_timeout()));
        let crashes = self.forgiveness(&config);
        let question = self.inbox.next_expiry();
        // What the agent has said by now is handled first, also when the rest is over; a deadline would go before it for ever.
        let output = self.outbox.rests_until().filter(|_| !self.link.has_output());
        let idle = self.idle_deadline(&config);
        let notice = self.next_notice();
        [request, replay, turn, crashes, question, output, idle, notice].into_iter().flatten().min()
    }

    /// When the crashes are forgotten; not while another one may be under way.
    fn forgiveness(&self, config: &Config) -> Option<Instant> {
        let is_quiet = (matches!(self.link, Link::Stopped) || self.link.is_ready()) && self.running.is_none();
        self.crashes.remembered_until(&config.processes).filter(|_| is_quiet)
    }

    fn idle_deadline(&self, config: &Config) -> Option<Instant> {
        let timeout = config.sessions.idle_timeout.filter(|_| self.has_idle_process())?;
        Some(self.active_at + timeout)
    }

    fn on_deadline(&mut self) {
        let (now, config) = (Instant::now(), self.shared.config());
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        self.on_overdue(now);
        if is_over(self.link.handshake().and_then(Handshake::replay_until)) {
            tracing::warn!("the agent did not report the end of the conversation's replay; continuing");
            self.on_replayed();
        }
        self.expire_questions(now);
        self.tell_waits(now);
        self.enforce_turn(now, self.silence_timeout());
        if is_over(self.forgiveness(&config)) {
            self.crashes.forgive();
        }
        if is_over(self.idle_deadline(&config)) {
            tracing::info!("the agent was idle; stopping its process");
            self.stop_process(ExitReason::Idle);
        }
    }

    /// The actor has failed. Its process goes, and the slot is free when that is gone.
    pub fn abandon(mut self) {
        let Link::Up(Connected { mut process, slot, .. }) = std::mem::replace(&mut self.link, Link::Stopped) else {
            return;
        };
        process.kill();
        self.shared.host.tasks.spawn(async move {
            while process.next().await.is_some() {}
            drop(slot);
        });
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
        After::Refuse { reply, refusal } => answer(reply, Err(*refusal)),
        After::RefusePrompt { reply, refusal } => answer(reply, Err(*refusal)),
        After::Answered { reply: Some(reply), .. } => answer(reply, Err(refusal())),
        After::Answered { reply: None, .. }
        | After::Reply { .. }
        | After::Begin(_)
        | After::ReadHistory
        | After::Settled
        | After::Purged => {}
    }
}

/// Whoever asked may have gone away; what was asked has happened all the same.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
