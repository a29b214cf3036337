//! What people and tools ask of a session.

use super::actor::{After, Closing, SessionActor, answer};
use super::link::Link;
use super::turns::QueuedTurn;
use super::{Accepted, Admission, Edit, Halt, NewPrompt, Refusal, Reply, Request};
use crate::agent::OwnerSecrets;
use crate::model::event::ExitReason;
use crate::model::status::Denied;
use crate::model::{By, Content, ErrorCode, MessageId, Role, SessionStatus, Trigger, TurnError, TurnId, TurnStatus};
use crate::store::{Made, NewMessage, Op, SessionChange};

/// Characters of the first prompt that become the title of a session without one.
const TITLE_CHARS_MAX: usize = 60;

impl SessionActor {
    pub(super) fn on_request(&mut self, request: Request) {
        if self.halted != Halt::No {
            return refuse(request, || Refusal::ShuttingDown);
        }
        if self.is_purged {
            return refuse(request, || Refusal::Purged);
        }
        match request {
            Request::Prompt { prompt, admission, reply } => self.on_prompt(*prompt, admission, reply),
            Request::SystemMessage { message, reply } => self.on_system_message(message, reply),
            Request::Cancel { turn, queued, by, reply } => self.on_cancel(turn, queued, &by, reply),
            Request::Change { edit, reply } => self.on_change(*edit, reply),
            Request::Answer { permission, answer, by, reply } => {
                self.on_permission_answer(permission, answer, by, reply);
            }
            Request::Revoke { rule, by, reply } => self.on_revoke(rule, by, reply),
            Request::Resume { by, reply } => self.on_resume(by, reply),
            Request::Close { reason, purge, by, reply } => self.on_close(reason, purge, &by, reply),
            Request::Expire { seen, reply } => self.on_expire(seen, reply),
            Request::Start { admission } => {
                if self.takes_work() && matches!(self.link, Link::Stopped) && !self.must_rest() {
                    match admission {
                        Admission::Slot(slot) => self.start_process(slot),
                        Admission::Promised => self.wait_for_slot(),
                        Admission::None => {}
                    }
                }
            }
            Request::Evict { reply } => {
                let idle = self.has_idle_process();
                if idle {
                    self.stop_process(ExitReason::Evicted);
                }
                answer(reply, idle);
            }
            Request::Glance { reply } => answer(reply, self.glance()),
        }
    }

    fn on_prompt(&mut self, prompt: NewPrompt, admission: Admission, reply: Reply<Accepted>) {
        if self.status != SessionStatus::Active {
            return answer(reply, Err(Refusal::NotActive(self.status)));
        }
        let NewPrompt { turn, message, content, blobs, context, by, claim } = prompt;
        if let Some(refusal) = self.unsupported(&content) {
            return answer(reply, Err(refusal));
        }
        let (content, context) = match self.in_context(content, context) {
            Ok(prepared) => prepared,
            Err(problem) => return answer(reply, Err(Refusal::Context(problem))),
        };
        let waiting = self.queue.len();
        if waiting >= self.shared.config().sessions.queue {
            return answer(reply, Err(Refusal::QueueFull { waiting }));
        }
        let cap = self.turn_cap();
        let is_over_cap = self.turns_counted >= u64::from(cap);
        // Work that rests, that waits for a higher limit, or that fails at once, needs no slot.
        let needs_slot = !is_over_cap && !self.must_rest() && !self.is_over_cost();
        if needs_slot && matches!((&admission, &self.link), (Admission::None, Link::Stopped)) {
            return answer(reply, Err(Refusal::NeedsSlot));
        }
        let mark = self.outbox.mark();
        if let Err(refusal) = self.look_at_workspace() {
            let refusal = Box::new(refusal);
            return self.outbox.then(mark, After::RefusePrompt { reply, refusal });
        }
        let position = waiting + usize::from(self.running.is_some());
        if let Some(claim) = claim {
            self.record(Op::Remember(Box::new((claim, Made { turn: Some(turn), message: Some(message), position }))));
        }
        self.record(Op::QueueTurn { turn, position, by: by.clone() });
        if let Some(context) = context.clone().map(Box::new) {
            self.record(Op::SetTurnContext { turn, context });
        }
        // A prompt without text gives no title.
        let title = self
            .untitled
            .then(|| title_of(&content, &self.shared.hub.secrets(self.owner_uid)))
            .filter(|title| !title.is_empty());
        if title.is_some() {
            self.untitled = false;
            self.record(Op::ChangeSession(SessionChange { title, by, ..SessionChange::default() }));
        }
        self.record(Op::Message(NewMessage::new(message, Some(turn), Role::User, &content).with_blobs(blobs)));
        self.outbox.then(mark, After::Accept { reply, position });
        if is_over_cap {
            let message = format!(
                "the session has reached its limit of {cap} turns; create a new session, or raise its limits.turnCap \
                    (PATCH) or sessions.turn_cap"
            );
            return self.finish(turn, TurnStatus::Failed, None, Some(TurnError::new(ErrorCode::TurnLimit, message)));
        }
        self.turns_counted += 1;
        self.queue.push_back(QueuedTurn { id: turn, prompt: content, context, was_refused: false });
        // A slot that is not needed goes back: the process may have come up meanwhile.
        if let Admission::Slot(slot) = admission
            && matches!(self.link, Link::Stopped | Link::Waiting(_))
            && needs_slot
        {
            self.start_process(slot);
        }
    }

    /// The session's own, or the general one; 0 means that it has none of its own.
    fn turn_cap(&self) -> u32 {
        self.limits.turn_cap.filter(|cap| *cap > 0).unwrap_or_else(|| self.shared.config().sessions.turn_cap)
    }

    /// Without a turn's id: the running one, or the one that waits for its process.
    fn on_cancel(&mut self, turn: Option<TurnId>, queued: bool, by: &By, reply: Reply<Vec<TurnId>>) {
        let running = self.running.as_ref().map(|running| running.turn);
        let first = running.or_else(|| self.queue.front().map(|queued| queued.id));
        let mut turns: Vec<TurnId> = match turn {
            Some(turn) if running == Some(turn) || self.queue.iter().any(|queued| queued.id == turn) => vec![turn],
            Some(turn) => return answer(reply, Err(Refusal::StaleTurn(turn))),
            None => first.into_iter().collect(),
        };
        if queued {
            turns.extend(self.queue.iter().map(|queued| queued.id));
            turns.sort_unstable();
            turns.dedup();
        }
        if turns.is_empty() {
            return answer(reply, Err(Refusal::NoTurn));
        }
        let mark = self.outbox.mark();
        for turn in turns.iter().copied().filter(|turn| Some(*turn) != running) {
            self.cancel_queued(turn, by);
        }
        // Nothing waits any more, so nobody need make room.
        if self.queue.is_empty() && matches!(self.link, Link::Waiting(_) | Link::Resting(_)) {
            self.link = Link::Stopped;
        }
        let running = running.filter(|running| turns.contains(running));
        if let Some(turn) = running {
            self.request_cancel(turn, by);
        }
        self.outbox.then(mark, After::Cancel { reply, running, turns });
        // As the protocol has it: the agent hears of the cancel, and then gets its questions back.
        if let Some(turn) = running {
            self.withdraw_of_turn(turn, "the turn was cancelled");
        }
    }

    /// Archived and in error, a session can only be read, kept from retention or deleted.
    fn on_change(&mut self, edit: Edit, reply: Reply<()>) {
        let is_keep_alone = edit.choices.is_empty() && edit.context.is_none() && !edit.change.changes_more_than_keep();
        match self.status {
            SessionStatus::Active | SessionStatus::Suspended => {}
            SessionStatus::Archived | SessionStatus::Error if is_keep_alone => {}
            SessionStatus::Archived | SessionStatus::Error => {
                return answer(reply, Err(Refusal::NotActive(self.status)));
            }
        }
        if let Err(problem) = self.checked_context(edit.context.as_ref()) {
            return answer(reply, Err(Refusal::Context(problem)));
        }
        if edit.choices.is_empty() {
            self.commit_edit(edit, reply);
        } else {
            self.on_choices(edit, reply);
        }
    }

    /// Records all that the edit changes, and answers then.
    pub(super) fn commit_edit(&mut self, edit: Edit, reply: Reply<()>) {
        let Edit { mut change, context, choices } = edit;
        let mark = self.outbox.mark();
        change.context = match context.map(|context| self.change_context(context)).transpose() {
            Ok(context) => context,
            // Another change came first while the agent was asked.
            Err(problem) => return answer(reply, Err(Refusal::Context(problem))),
        };
        let is_other_policy = change.permissions.is_some();
        let by = change.by.clone();
        self.record_change(change);
        self.record_chosen(&choices, by);
        self.outbox.then(mark, After::Answer(vec![reply]));
        if is_other_policy {
            self.on_other_policy();
            self.leave_wider_mode(false);
        }
    }

    fn record_change(&mut self, mut change: SessionChange) {
        if change.is_empty() {
            return;
        }
        self.untitled &= change.title.is_none();
        self.keep = change.keep.unwrap_or(self.keep);
        if let Some(limits) = &mut change.limits {
            self.limits = self.limits.changed_by(*limits);
            *limits = self.limits;
        }
        if let Some(policy) = &change.permissions {
            self.permissions.session = policy.clone();
        }
        self.record(Op::ChangeSession(change));
    }

    fn on_resume(&mut self, by: By, reply: Reply<()>) {
        let mark = self.outbox.mark();
        match self.change_status(Trigger::Resume, "resume", by) {
            Err(denied) => answer(reply, Err(Refusal::Denied(denied))),
            Ok(false) => answer(reply, Ok(())),
            Ok(true) => self.outbox.then(mark, After::Answer(vec![reply])),
        }
    }

    /// What the table says becomes of the status; whether it changed.
    pub(super) fn change_status(&mut self, trigger: Trigger, reason: &'static str, by: By) -> Result<bool, Denied> {
        let from = self.status;
        let to = from.on(trigger)?;
        if to != from {
            self.status = to;
            self.record(Op::SetStatus { from, to, reason, by });
        }
        Ok(to != from)
    }

    /// One transaction: partial text kept, open turns cancelled, status set. The answer comes after the process is gone.
    fn on_close(&mut self, reason: Option<String>, purge: bool, by: &By, reply: Reply<()>) {
        // A second purge would find nothing to delete, and nothing can be recorded after the first.
        if let Some(closing) = self.closing.as_mut().filter(|closing| closing.is_purging) {
            return closing.replies.push(reply);
        }
        // What is in error cannot be archived, but it can be deleted.
        if let Err(denied) = self.status.on(Trigger::Archive)
            && !purge
        {
            return answer(reply, Err(Refusal::Denied(denied)));
        }
        self.withdraw_all("the session was closed");
        self.cancel_everything(by);
        if let Ok(true) = self.change_status(Trigger::Archive, "archive", by.clone())
            && let Some(reason) = reason
        {
            self.notice(None, "deleted", reason);
        }
        self.stop_process(ExitReason::Archive);
        let closing = self.closing.get_or_insert_with(|| Closing { replies: Vec::new(), purge, is_purging: false });
        closing.purge |= purge;
        closing.replies.push(reply);
    }

    /// Nobody is asked whether a session may be deleted whose time is over, so what was seen is looked at again here,
    /// where no resume can come between.
    fn on_expire(&mut self, seen: SessionStatus, reply: Reply<()>) {
        let is_at_rest = self.queue.is_empty() && self.running.is_none() && self.closing.is_none();
        if self.status != seen || !is_at_rest || self.keep {
            return answer(reply, Err(Refusal::NotExpired));
        }
        self.on_close(None, true, &None, reply);
    }

    /// When the process is gone, nothing follows but the purge; when all is committed, everybody who waits is answered.
    pub(super) fn finish_closing(&mut self) {
        // What was begun for the agent ends first, and is recorded.
        if !matches!(self.link, Link::Stopped) || !self.services.is_idle() || !self.terminals.is_empty() {
            return;
        }
        let mark = self.outbox.mark();
        match &mut self.closing {
            None | Some(Closing { is_purging: true, .. }) => {}
            Some(closing) if closing.purge => {
                // It stays until the commit, so that later ones can join.
                closing.is_purging = true;
                self.record(Op::Purge);
                self.outbox.then(mark, After::Purged);
            }
            Some(closing) => {
                let replies = std::mem::take(&mut closing.replies);
                self.closing = None;
                self.outbox.then(mark, After::Answer(replies));
            }
        }
    }

    pub(super) fn cancel_everything(&mut self, by: &By) {
        if let Some(turn) = self.running.as_ref().map(|running| running.turn) {
            self.note_canceller(turn, by);
            self.finish_running(TurnStatus::Cancelled, None, None);
        }
        let queued: Vec<TurnId> = self.queue.iter().map(|queued| queued.id).collect();
        for turn in queued {
            self.cancel_queued(turn, by);
        }
    }

    /// The daemon stops: keep what there is, and let the process go.
    pub(super) fn on_halt(&mut self, halt: Halt) {
        self.halted = halt;
        self.withdraw_all("the daemon is stopping");
        self.interrupt_started();
        self.stop_process(ExitReason::Shutdown);
        self.outbox.then(self.outbox.mark(), After::Settled);
        if halt == Halt::Kill
            && let Some(process) = self.link.process()
        {
            process.kill();
        }
    }

    /// A message of acpd's own.
    pub(super) fn notice(&mut self, turn: Option<TurnId>, code: &str, text: impl Into<String>) {
        let content = Content::notice(code, text);
        self.record(Op::Message(NewMessage::new(MessageId::new(), turn, Role::System, &content)));
    }
}

/// Answers a request that is not carried out.
fn refuse(request: Request, refusal: impl Fn() -> Refusal) {
    match request {
        Request::Prompt { reply, .. } => answer(reply, Err(refusal())),
        Request::Cancel { reply, .. } => answer(reply, Err(refusal())),
        Request::SystemMessage { reply, .. }
        | Request::Change { reply, .. }
        | Request::Answer { reply, .. }
        | Request::Revoke { reply, .. }
        | Request::Resume { reply, .. }
        | Request::Close { reply, .. }
        | Request::Expire { reply, .. } => answer(reply, Err(refusal())),
        // Whoever wants to know what it does learns that it cannot tell.
        Request::Start { .. } | Request::Glance { .. } => {}
        Request::Evict { reply } => answer(reply, false),
    }
}

/// The beginning of the first line.
fn title_of(content: &Content, secrets: &OwnerSecrets) -> String {
    let text = match content {
        Content::Text { text, .. } => text.as_str(),
        Content::Blocks { blocks } => {
            blocks.iter().find_map(|block| block.get("text").and_then(|text| text.as_str())).unwrap_or("")
        }
        _ => "",
    };
    // Before it is cut: half a secret is not recognized any more.
    let mut text = text.to_owned();
    secrets.redact(&mut text);
    let line = text.trim().lines().next().unwrap_or("").trim();
    let mut title: String = line.chars().filter(|character| !character.is_control()).take(TITLE_CHARS_MAX).collect();
    if line.chars().count() > TITLE_CHARS_MAX {
        title.push('…');
    }
    title
}
