//! Modes, models and options: what the agent announces is recorded, and what somebody chooses is asked of it.
//!
//! A change goes to the agent first, one choice after the other, and is recorded when the agent has agreed to all of
//! them. Without a process it is checked against what was announced last, and recorded. Every new process is asked for
//! what was chosen before its first prompt; one that refuses is told of in a notice, and the session goes on.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::actor::{Purpose, SessionActor, answer};
use super::{Edit, Refusal, Reply};
use crate::acp::{RpcError, choices, outgoing};
use crate::model::{Announced, Choice, Chosen, Known};
use crate::store::{ChoicesChange, Op};

pub struct Choices {
    known: Known,
    mode: Option<String>,
    model: Option<String>,
    chosen: Chosen,
    /// What is being asked of the agent, each with the choice that it has to answer now.
    open: Vec<Asking>,
    next_ticket: u64,
}

/// Choices that belong together.
struct Asking {
    ticket: u64,
    now: Choice,
    later: VecDeque<Choice>,
    origin: Origin,
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

impl Choices {
    pub fn new(mode: Option<String>, model: Option<String>, chosen: Chosen, announced: &Announced) -> Self {
        Self { known: known(announced), mode, model, chosen, open: Vec::new(), next_ticket: 0 }
    }

    /// Whether nothing is being asked of the agent.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether a new process has yet to take on what was chosen. No prompt goes out before.
    pub fn is_starting(&self) -> bool {
        self.open.iter().any(|asking| matches!(asking.origin, Origin::Start))
    }

    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Which there are, from what the record kept of an announcement.
fn known(announced: &Announced) -> Known {
    let Announced { modes, models, commands: _, config_options } = announced;
    let fields = [("modes", modes), ("models", models), ("configOptions", config_options)];
    let fields = fields.iter().filter_map(|(name, raw)| Some(((*name).to_owned(), raw.as_ref()?)));
    let fields: std::collections::BTreeMap<_, _> = fields.collect();
    match serde_json::value::to_raw_value(&fields) {
        Ok(raw) => choices::news(&raw, usize::MAX).known,
        Err(_) => Known::default(),
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
        let mode = news.mode.filter(|mode| choices.mode.as_ref() != Some(mode));
        let model = news.model.filter(|model| choices.model.as_ref() != Some(model));
        let change = ChoicesChange {
            announced: news.announced,
            mode,
            model,
            chosen: None,
            config_options: news.config_options,
            commands: news.commands,
        };
        self.record_choices(change);
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
        let choices = edit.choices.each();
        if self.link.is_ready() {
            return self.ask(choices.into(), Origin::Request { edit: Box::new(edit), reply });
        }
        let known = &self.choices.known;
        if let Some(choice) = choices.into_iter().find(|choice| !known.allows(choice)) {
            let known = known.instead_of(&choice).unwrap_or_default();
            return answer(reply, Err(Refusal::UnknownChoice { choice: Box::new(choice), known }));
        }
        self.commit_edit(edit, reply);
    }

    /// It is agreed.
    pub(super) fn record_chosen(&mut self, choices: &Chosen) {
        if choices.is_empty() {
            return;
        }
        let config_options = Some(choices.config_options.clone()).filter(|options| !options.is_empty());
        self.record_choices(ChoicesChange {
            mode: choices.mode.clone(),
            model: choices.model.clone(),
            chosen: Some(self.choices.chosen.changed_by(choices)),
            config_options,
            ..ChoicesChange::default()
        });
    }

    /// A new process is asked for what was chosen before.
    pub(super) fn apply_choices(&mut self) {
        self.ask(self.choices.chosen.each().into(), Origin::Start);
    }

    /// Asks the agent for the next of these. When there is none left, it has agreed to all.
    fn ask(&mut self, mut choices: VecDeque<Choice>, origin: Origin) {
        let Some(now) = choices.pop_front() else {
            if let Origin::Request { edit, reply } = origin {
                self.commit_edit(*edit, reply);
            }
            return;
        };
        let Some(agent_session) = self.link.agent_session().map(str::to_owned) else {
            return refuse(
                origin,
                Refusal::AgentRefused { choice: Box::new(now), message: GONE.to_owned(), known: Vec::new() },
            );
        };
        let ticket = self.choices.next_ticket;
        self.choices.next_ticket += 1;
        let timeout = self.shared.config().processes.session_timeout;
        let id = self.requests.begin(Purpose::Choice(ticket), Some(timeout));
        let line = outgoing::choose(id, &agent_session, &now);
        self.choices.open.push(Asking { ticket, now, later: choices, origin });
        self.send(line);
    }

    /// The agent's answer to a choice.
    pub(super) fn on_choice_answer(&mut self, ticket: u64, outcome: Result<&RawValue, RpcError>) {
        let Some(Asking { now, later, origin, .. }) = self.take_asking(ticket) else { return };
        match outcome {
            Ok(result) => {
                // The answer to an option has all options as they are then.
                self.on_announced(result);
                if matches!(origin, Origin::Start) {
                    self.note_applied(&now);
                }
                self.ask(later, origin);
            }
            Err(error) => {
                let message = format!("{} (code {})", error.message, error.code);
                let known = self.choices.known.instead_of(&now).unwrap_or_default();
                self.on_choice_failed(later, origin, Refusal::AgentRefused { choice: Box::new(now), message, known });
            }
        }
    }

    /// The agent did not answer a choice in time. It may be busy with something else, so it stays.
    pub(super) fn on_choice_overdue(&mut self, ticket: u64) {
        let Some(Asking { now, later, origin, .. }) = self.take_asking(ticket) else { return };
        self.on_choice_failed(later, origin, Refusal::AgentSilent { choice: Box::new(now) });
    }

    /// The process is gone, and will not answer any more.
    pub(super) fn end_choices(&mut self) {
        for Asking { now, origin, .. } in std::mem::take(&mut self.choices.open) {
            refuse(
                origin,
                Refusal::AgentRefused { choice: Box::new(now), message: GONE.to_owned(), known: Vec::new() },
            );
        }
    }

    fn on_choice_failed(&mut self, later: VecDeque<Choice>, origin: Origin, refusal: Refusal) {
        match origin {
            Origin::Start => {
                let text = format!("{refusal}; the session goes on without it");
                self.notice(None, "choice_refused", text);
                self.ask(later, Origin::Start);
            }
            request @ Origin::Request { .. } => refuse(request, refusal),
        }
    }

    /// What a new process agreed to is what is current.
    fn note_applied(&mut self, choice: &Choice) {
        let (mode, model) = match choice {
            Choice::Mode(mode) => (Some(mode.clone()), None),
            Choice::Model(model) => (None, Some(model.clone())),
            Choice::Option(..) => (None, None),
        };
        let mode = mode.filter(|mode| self.choices.mode.as_ref() != Some(mode));
        let model = model.filter(|model| self.choices.model.as_ref() != Some(model));
        self.record_choices(ChoicesChange { mode, model, ..ChoicesChange::default() });
    }

    fn take_asking(&mut self, ticket: u64) -> Option<Asking> {
        let index = self.choices.open.iter().position(|asking| asking.ticket == ticket)?;
        Some(self.choices.open.swap_remove(index))
    }
}

const GONE: &str = "it went away before it answered";

fn refuse(origin: Origin, refusal: Refusal) {
    match origin {
        Origin::Start => {}
        Origin::Request { reply, .. } => answer(reply, Err(refusal)),
    }
}
