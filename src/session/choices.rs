//! Modes, models and options: what the agent announces is recorded, and what somebody chooses is asked of it.
//!
//! A change goes to the agent first, one choice after the other, and is recorded when the agent has agreed to all of
//! them. When it does not, it is asked for what it had before, so that agent and record stay together; what it keeps all
//! the same is recorded and told. Without a process a change is checked against what was announced last, and recorded.
//! Every new process is asked for what was chosen before its first prompt; one that refuses is told of in a notice, and
//! the session goes on.
//!
//! Invariant: changes are asked in the order in which they came, and only the front of the queue has a request in flight,
//! so that the change which came last is the one that the agent and the record end with.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use serde_json::value::RawValue;

use super::actor::{After, Purpose, SessionActor, answer};
use super::{Edit, MAILBOX_MAX, Refusal, Reply, check_modes, listed};
use crate::acp::{RpcError, choices, outgoing};
use crate::model::{Adapter, Announced, By, Choice, Chosen, Known};
use crate::store::{ChoicesChange, Op};

/// Changes that wait for the agent. As many as the mailbox has room for, because they come from there.
const QUEUE_MAX: usize = MAILBOX_MAX;

/// Requests that were given up, and that the agent may still answer. The oldest are forgotten.
const LATE_MAX: usize = 16;

pub struct Choices {
    known: Known,
    mode: Option<String>,
    model: Option<String>,
    /// The options' current values.
    options: BTreeMap<String, Value>,
    chosen: Chosen,
    queue: VecDeque<Asking>,
    /// What was asked and not answered in time, by the id of the request.
    late: BTreeMap<u64, Choice>,
    /// How often this process was asked to leave a mode.
    returns: u32,
    /// The mode that the session had before this process announced its own.
    settled: Option<String>,
}

/// Choices that belong together.
struct Asking {
    origin: Origin,
    now: Option<InFlight>,
    later: VecDeque<Choice>,
    agreed: Vec<Agreed>,
    /// Why it is not carried out. From then on the agent is asked for what it had before.
    failure: Option<Refusal>,
    /// What the agent did not take back.
    kept: Vec<Choice>,
}

/// Who wants it.
enum Origin {
    /// A new process is asked for what was chosen before.
    Start,
    Request {
        edit: Box<Edit>,
        reply: Reply<()>,
    },
}

/// What the agent has to answer now.
struct InFlight {
    request: u64,
    choice: Choice,
    /// What it has until it agrees, when that is known.
    before: Option<Choice>,
}

struct Agreed {
    choice: Choice,
    before: Option<Choice>,
}

/// Why the agent has not agreed.
enum No {
    Refused(RpcError),
    Silent,
}

impl Choices {
    pub fn new(mode: Option<String>, model: Option<String>, chosen: Chosen, announced: &Announced) -> Self {
        let (known, options) = remembered(announced);
        let (queue, late, settled) = (VecDeque::new(), BTreeMap::new(), mode.clone());
        Self { known, mode, model, options, chosen, queue, late, returns: 0, settled }
    }

    /// Whether the agent has announced a mode of this name.
    pub fn has_mode(&self, mode: &str) -> bool {
        self.known.modes.iter().flatten().any(|known| known == mode)
    }

    /// Whether nothing is being asked of the agent.
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a new process has yet to take on what was chosen. No prompt goes out before.
    pub fn is_starting(&self) -> bool {
        self.queue.iter().any(|asking| matches!(asking.origin, Origin::Start))
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    pub fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    /// The modes to go back to, the best first: what was chosen, then what the adapter prefers, then what there is.
    pub fn modes_instead(&self, adapter: Adapter) -> impl Iterator<Item = String> {
        let preferred = adapter.quirks().modes.iter().flat_map(|(_, modes)| *modes).map(|mode| (*mode).to_owned());
        let preferred = preferred.filter(|mode| self.has_mode(mode));
        self.chosen.mode.iter().cloned().chain(preferred).chain(self.known.modes.iter().flatten().cloned())
    }

    /// Whether the session was in this mode before.
    pub fn settle_in(&mut self, mode: &str) -> bool {
        self.settled.replace(mode.to_owned()).is_some_and(|before| before == mode)
    }

    /// Whether the agent is being asked for a mode already.
    pub fn is_asking_for_mode(&self) -> bool {
        let is_mode = |choice: &Choice| matches!(choice, Choice::Mode(_));
        self.queue.iter().any(|asking| {
            asking.later.iter().any(is_mode) || asking.now.as_ref().is_some_and(|now| is_mode(&now.choice))
        })
    }

    pub fn count_return(&mut self) -> u32 {
        self.returns += 1;
        self.returns
    }

    /// What the agent has in place of this one, as far as is known.
    fn current(&self, choice: &Choice) -> Option<Choice> {
        match choice {
            Choice::Mode(_) => self.mode.clone().map(Choice::Mode),
            Choice::Model(_) => self.model.clone().map(Choice::Model),
            Choice::Option(id, _) => self.options.get(id).map(|value| Choice::Option(id.clone(), value.clone())),
        }
    }

    /// The first of these that there is not. A new model may bring options of its own, so those that come with one are
    /// left to the agent.
    fn unknown(&self, chosen: &Chosen) -> Option<Choice> {
        let is_open = |choice: &Choice| chosen.model.is_some() && matches!(choice, Choice::Option(..));
        chosen.each().into_iter().find(|choice| !self.known.allows(choice) && !is_open(choice))
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_MAX
    }

    fn add(&mut self, choices: Vec<Choice>, origin: Origin) {
        let (later, agreed, kept) = (choices.into(), Vec::new(), Vec::new());
        self.queue.push_back(Asking { origin, now: None, later, agreed, failure: None, kept });
    }
}

impl Asking {
    /// What the agent is asked next, and what it has until it agrees: forward, or back after a failure.
    fn next(&mut self, current: impl Fn(&Choice) -> Option<Choice>) -> Option<Agreed> {
        if self.failure.is_none() {
            let choice = self.later.pop_front()?;
            let before = current(&choice);
            return Some(Agreed { choice, before });
        }
        while let Some(Agreed { choice, before }) = self.agreed.pop() {
            match before {
                Some(before) if before == choice => {}
                Some(before) => return Some(Agreed { choice: before, before: Some(choice) }),
                None => self.kept.push(choice),
            }
        }
        None
    }
}

/// Which there are, from what the record kept of an announcement.
pub fn known(announced: &Announced) -> Known {
    remembered(announced).0
}

/// Which there are and the options' values, from what the record kept of an announcement.
fn remembered(announced: &Announced) -> (Known, BTreeMap<String, Value>) {
    let Announced { modes, models, commands: _, config_options } = announced;
    let fields = [("modes", modes), ("models", models), ("configOptions", config_options)];
    let fields = fields.iter().filter_map(|(name, raw)| Some(((*name).to_owned(), raw.as_ref()?)));
    let fields: BTreeMap<_, _> = fields.collect();
    match serde_json::value::to_raw_value(&fields) {
        Ok(raw) => {
            let news = choices::news(&raw, usize::MAX);
            (news.known, news.config_options.unwrap_or_default())
        }
        Err(_) => (Known::default(), BTreeMap::new()),
    }
}

impl SessionActor {
    /// An answer or an update tells what can be chosen, or what is chosen now.
    pub(super) fn on_announced(&mut self, raw: &RawValue) {
        let news = choices::news(raw, self.shared.config().limits.payload_max.0);
        let choices = &mut self.choices;
        let Known { modes, models, config_options } = news.known;
        choices.known.modes = modes.or(choices.known.modes.take());
        choices.known.models = models.or(choices.known.models.take());
        choices.known.config_options = config_options.or(choices.known.config_options.take());
        choices.options = news.config_options.clone().unwrap_or_else(|| std::mem::take(&mut choices.options));
        let mode = news.mode.filter(|mode| choices.mode.as_ref() != Some(mode));
        let is_other_mode = mode.is_some();
        let model = news.model.filter(|model| choices.model.as_ref() != Some(model));
        let change = ChoicesChange {
            announced: news.announced,
            mode,
            model,
            chosen: None,
            config_options: news.config_options,
            commands: news.commands,
            by: None,
        };
        self.record_choices(change);
        if is_other_mode {
            self.leave_wider_mode(false);
        }
    }

    fn record_choices(&mut self, change: ChoicesChange) {
        let ChoicesChange { announced, mode, model, chosen, .. } = &change;
        let Announced { modes, models, commands, config_options } = announced;
        let is_announced = modes.is_some() || models.is_some() || commands.is_some() || config_options.is_some();
        if !is_announced && mode.is_none() && model.is_none() && chosen.is_none() {
            return;
        }
        self.choices.mode = mode.clone().or(self.choices.mode.take());
        self.choices.model = model.clone().or(self.choices.model.take());
        if let Some(chosen) = chosen {
            self.choices.chosen = chosen.clone();
        }
        self.transcript.set_model(self.choices.model());
        self.record(Op::SetChoices(Box::new(change)));
    }

    /// Somebody chooses: the agent is asked when there is one, and the record is changed when it has agreed.
    pub(super) fn on_choices(&mut self, edit: Edit, reply: Reply<()>) {
        if let Some(choice) = self.choices.unknown(&edit.choices) {
            let known = self.choices.known.instead_of(&choice).unwrap_or_default();
            return answer(reply, Err(Refusal::UnknownChoice { choice: Box::new(choice), known }));
        }
        let policy = edit.change.permissions.as_ref().unwrap_or(&self.permissions.session);
        if let Err(refusal) = check_modes(&self.profile, policy, &edit.choices) {
            return answer(reply, Err(refusal));
        }
        if !self.link.is_ready() {
            return self.commit_edit(edit, reply);
        }
        if self.choices.is_full() {
            return answer(reply, Err(Refusal::Overloaded));
        }
        self.choices.add(edit.choices.each(), Origin::Request { edit: Box::new(edit), reply });
        self.ask_on();
    }

    /// It is agreed.
    pub(super) fn record_chosen(&mut self, choices: &Chosen, by: By) {
        if choices.is_empty() {
            return;
        }
        self.choices.options.extend(choices.config_options.clone());
        let config_options = Some(choices.config_options.clone()).filter(|options| !options.is_empty());
        self.record_choices(ChoicesChange {
            mode: choices.mode.clone(),
            model: choices.model.clone(),
            chosen: Some(self.choices.chosen.changed_by(choices)),
            config_options,
            by,
            ..ChoicesChange::default()
        });
    }

    /// A new process is asked for what was chosen before. It comes first: nothing is asked of a process that is not ready.
    pub(super) fn apply_choices(&mut self) {
        // What was chosen under a wider policy is not asked for any more.
        let numbers = self.profile.numbers(&self.choices.known).into_iter().filter_map(|(_, choice)| choice);
        // What somebody chose for the session goes before what its profile says.
        let is_left = |choice: &Choice| !matches!(choice, Choice::Option(id, _) if self.choices.chosen.config_options.contains_key(id));
        let chosen = self.choices.chosen.each().into_iter().chain(numbers.filter(is_left));
        let chosen = chosen.filter(|choice| !self.is_too_wide(choice)).collect();
        self.choices.returns = 0;
        self.choices.add(chosen, Origin::Start);
        self.ask_on();
        self.leave_wider_mode(true);
    }

    /// Asks the agent for something that nobody chose now. No prompt goes out before it has answered.
    pub(super) fn ask_for(&mut self, choice: Choice) {
        self.choices.add(vec![choice], Origin::Start);
        self.ask_on();
    }

    /// Asks the agent for what is next, unless it has something to answer already.
    fn ask_on(&mut self) {
        // A process that goes takes no more: what waits is refused when it is gone.
        while let Some(agent_session) = self.link.agent_session().map(str::to_owned) {
            let Some(mut asking) = self.choices.queue.pop_front() else { return };
            if asking.now.is_some() {
                return self.choices.queue.push_front(asking);
            }
            let Some(Agreed { choice, before }) = asking.next(|choice| self.choices.current(choice)) else {
                self.end_asking(asking);
                continue;
            };
            let timeout = self.shared.config().processes.session_timeout;
            let request = self.requests.begin(Purpose::Choice, Some(timeout));
            let line = outgoing::choose(request, &agent_session, &choice);
            asking.now = Some(InFlight { request, choice, before });
            self.choices.queue.push_front(asking);
            return self.send(line);
        }
    }

    /// The agent has answered everything: all is recorded, or nothing but what it keeps.
    fn end_asking(&mut self, mut asking: Asking) {
        let Origin::Request { edit, reply } = asking.origin else { return };
        let Some(refusal) = asking.failure else {
            match self.checked_context(edit.context.as_ref()) {
                Ok(()) => self.commit_edit(*edit, reply),
                // Another change came first while the agent was asked, so it has to go back.
                Err(problem) => {
                    asking.failure = Some(Refusal::Context(problem));
                    asking.origin = Origin::Request { edit, reply };
                    self.choices.queue.push_front(asking);
                }
            }
            return;
        };
        let mark = self.outbox.mark();
        let kept = asking.kept;
        for choice in &kept {
            self.note_current(choice);
        }
        let refusal = if kept.is_empty() {
            refusal
        } else {
            let text = format!(
                "a change failed, and the agent did not restore the previous settings: it now has {}",
                listed(&kept)
            );
            self.notice(None, "choice_kept", text);
            Refusal::Kept { refusal: Box::new(refusal), kept }
        };
        self.outbox.then(mark, After::Refuse { reply, refusal: Box::new(refusal) });
    }

    /// The agent's answer to a choice.
    pub(super) fn on_choice_answer(&mut self, outcome: Result<&RawValue, RpcError>) {
        let Some((mut asking, now)) = self.take_asking() else { return };
        match outcome {
            Ok(result) => {
                // The answer to an option has all options as they are then.
                self.on_announced(result);
                // An older request for the same has no say any more.
                self.choices.late.retain(|_, late| late.field() != now.choice.field());
                match (&asking.origin, &asking.failure) {
                    (Origin::Request { .. }, None) => {
                        asking.agreed.push(Agreed { choice: now.choice, before: now.before });
                    }
                    (Origin::Request { .. }, Some(_)) | (Origin::Start, _) => self.note_current(&now.choice),
                }
            }
            Err(error) => self.on_choice_failed(&mut asking, now, No::Refused(error)),
        }
        self.choices.queue.push_front(asking);
        self.ask_on();
    }

    /// The agent did not answer a choice in time. It may be busy with something else, so it stays.
    pub(super) fn on_choice_overdue(&mut self) {
        let Some((mut asking, now)) = self.take_asking() else { return };
        self.choices.late.insert(now.request, now.choice.clone());
        if self.choices.late.len() > LATE_MAX {
            self.choices.late.pop_first();
        }
        self.on_choice_failed(&mut asking, now, No::Silent);
        self.choices.queue.push_front(asking);
        self.ask_on();
    }

    /// An answer to a request that is not open: a choice that was given up may have been taken after all.
    pub(super) fn on_late_answer(&mut self, id: u64, result: Option<&RawValue>) {
        let Some(choice) = self.choices.late.remove(&id) else {
            return tracing::debug!(id, "ignored a response of the agent: no request waits for it");
        };
        if let Some(result) = result {
            self.on_announced(result);
            self.note_current(&choice);
            self.notice(
                None,
                "choice_late",
                format!("the agent has applied {choice} late, after acpd stopped waiting for it"),
            );
        }
    }

    /// The process is gone, and will not answer any more. The next one is asked for what is in the record.
    pub(super) fn end_choices(&mut self) {
        self.choices.late.clear();
        for mut asking in std::mem::take(&mut self.choices.queue) {
            let mark = self.outbox.mark();
            // The agent may have told of what it had agreed to, and that went with it.
            for before in asking.agreed.into_iter().rev().filter_map(|agreed| agreed.before) {
                self.note_current(&before);
            }
            let Origin::Request { reply, .. } = asking.origin else { continue };
            let next = asking.now.map(|now| now.choice).or_else(|| asking.later.pop_front());
            let gone = |choice| Refusal::AgentGone { choice };
            let refusal = match asking.failure {
                Some(Refusal::AgentSilent { choice }) => Some(gone(choice)),
                Some(failure) => Some(failure),
                None => next.map(|choice| gone(Box::new(choice))),
            };
            if let Some(refusal) = refusal {
                self.outbox.then(mark, After::Refuse { reply, refusal: Box::new(refusal) });
            }
        }
    }

    fn on_choice_failed(&mut self, asking: &mut Asking, now: InFlight, no: No) {
        let InFlight { choice, before, .. } = now;
        if asking.failure.is_some() {
            asking.kept.extend(before);
            // One that is silent is not asked for the rest, each with a deadline of its own.
            if matches!(no, No::Silent) {
                asking.kept.extend(asking.agreed.drain(..).rev().map(|agreed| agreed.choice));
            }
            return;
        }
        let known = self.choices.known.instead_of(&choice).unwrap_or_default();
        let choice = Box::new(choice);
        let refusal = match no {
            No::Refused(error) => {
                let message = format!("{} (code {})", error.message, error.code);
                Refusal::AgentRefused { choice, message, known }
            }
            No::Silent => Refusal::AgentSilent { choice },
        };
        match asking.origin {
            Origin::Start => {
                self.notice(None, "choice_refused", format!("{refusal}; the session continues without it"));
            }
            Origin::Request { .. } => asking.failure = Some(refusal),
        }
    }

    /// What the agent has agreed to, or keeps, is what is current.
    fn note_current(&mut self, choice: &Choice) {
        let (mode, model) = match choice {
            Choice::Mode(mode) => (Some(mode.clone()), None),
            Choice::Model(model) => (None, Some(model.clone())),
            Choice::Option(id, value) => {
                self.choices.options.insert(id.clone(), value.clone());
                (None, None)
            }
        };
        let mode = mode.filter(|mode| self.choices.mode.as_ref() != Some(mode));
        let model = model.filter(|model| self.choices.model.as_ref() != Some(model));
        self.record_choices(ChoicesChange { mode, model, ..ChoicesChange::default() });
    }

    /// The front of the queue, with what the agent has answered or left unanswered.
    fn take_asking(&mut self) -> Option<(Asking, InFlight)> {
        let mut asking = self.choices.queue.pop_front_if(|asking| asking.now.is_some())?;
        let now = asking.now.take()?;
        Some((asking, now))
    }
}
