//! What the session has used, and what becomes of its turns when that has cost too much.
//!
//! The limit is looked at when a turn would start, before anything is sent or started for it. Turns that wait for a
//! higher limit need no process and no actor: the record says why they wait.

use super::actor::SessionActor;
use super::link::Link;
use super::turns::QueuedTurn;
use crate::acp::usage::Told;
use crate::model::usage::{Growth, Tokens};
use crate::model::{Amount, ErrorCode, Meter, OnExceed, TurnError, TurnId, TurnStatus, Usage};
use crate::store::{Op, UsageChange};

pub struct Spending {
    meter: Meter,
    /// The process has told nothing of its cost yet.
    is_untold: bool,
    /// Of the turn that runs.
    turn: Option<(TurnId, Usage)>,
    /// Turns are held back, and the record says so.
    is_paused: bool,
}

impl Spending {
    pub fn new(meter: Meter, is_paused: bool) -> Self {
        Self { meter, is_untold: true, turn: None, is_paused }
    }

    /// Another process starts.
    pub fn begin_process(&mut self) {
        self.is_untold = true;
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// What a turn that ends has used, as far as that is known.
    pub fn take(&mut self, turn: TurnId) -> Option<Usage> {
        let (_, usage) = self.turn.take_if(|(of, _)| *of == turn)?;
        Some(usage).filter(|usage| !usage.is_empty())
    }

    fn of_turn(&mut self, turn: TurnId) -> &mut Usage {
        let (of, usage) = self.turn.get_or_insert_with(|| (turn, Usage::default()));
        if *of != turn {
            (*of, *usage) = (turn, Usage::default());
        }
        usage
    }
}

impl SessionActor {
    /// The agent tells how full its context is and what its session has cost. What it says before its session is there
    /// may be of another one, so its cost counts only from then on.
    pub(super) fn on_usage(&mut self, turn: Option<TurnId>, told: Told) {
        let before = self.spending.meter.clone();
        let Told { context, cost } = told;
        self.spending.meter.usage.context = context.or(self.spending.meter.usage.context);
        if let Some(cost) = cost.filter(|_| self.link.handshake().is_none()) {
            let currency = cost.currency.clone();
            let is_first = std::mem::take(&mut self.spending.is_untold);
            match self.spending.meter.tell_cost(cost, is_first) {
                Growth::By(growth) => {
                    if let Some(turn) = turn {
                        self.spending.of_turn(turn).add_cost(growth);
                    }
                }
                Growth::OtherCurrency { sum } => {
                    let text = format!("the agent reports costs in {currency} too; acpd sums up only those in {sum}");
                    self.notice(turn, "other_currency", text);
                }
                Growth::Nothing => {}
            }
        }
        if self.spending.meter != before {
            self.record_usage(turn);
        }
    }

    /// The tokens that a turn's answer tells. They are committed with the end of the turn.
    pub(super) fn on_tokens(&mut self, turn: TurnId, tokens: Tokens) {
        if self.running.as_ref().is_some_and(|running| running.turn == turn) {
            self.spending.meter.usage.add_tokens(tokens);
            self.spending.of_turn(turn).add_tokens(tokens);
            self.record_usage(Some(turn));
        }
    }

    /// The agent begins from nothing, and so does what it tells of its cost.
    pub(super) fn begin_new_account(&mut self) {
        if self.spending.meter.start_anew() {
            self.record_usage(None);
        }
    }

    fn record_usage(&mut self, turn: Option<TurnId>) {
        let turn = turn.map(|turn| (turn, self.spending.of_turn(turn).clone()));
        let turn = turn.filter(|(_, usage)| !usage.is_empty());
        self.record(Op::SetUsage(Box::new(UsageChange { meter: self.spending.meter.clone(), turn })));
    }

    /// The session's own limit, or the general one, when its cost has reached it.
    fn exceeded(&self) -> Option<Amount> {
        // A turn that has started goes on.
        if self.queue.front().is_some_and(|turn| turn.was_refused) {
            return None;
        }
        let cost = self.spending.meter.cost();
        let own = self.limits.cost_limit.filter(|limit| !limit.is_zero());
        own.or_else(|| self.shared.config().sessions.cost_limit).filter(|limit| cost >= *limit)
    }

    pub(super) fn is_over_cost(&self) -> bool {
        self.exceeded().is_some()
    }

    /// Looks at the cost before a turn starts: whether the turns that wait may go on. Beyond the limit they fail now, or
    /// wait without a process.
    pub(super) fn check_cost(&mut self) {
        // Nearly always nothing waits, and the limit is not looked up for that.
        if self.queue.is_empty() && !self.spending.is_paused {
            return;
        }
        let is_due = self.takes_work() && self.running.is_none() && !self.queue.is_empty();
        let exceeded = self.exceeded().filter(|_| is_due);
        let on_exceed = self.limits.on_exceed.unwrap_or_else(|| self.shared.config().sessions.cost_on_exceed);
        if let Some(limit) = exceeded {
            // Nothing waits for a process any more.
            if matches!(self.link, Link::Waiting(_) | Link::Resting(_)) {
                self.link = Link::Stopped;
            }
            match on_exceed {
                OnExceed::Fail => self.fail_for_cost(limit),
                OnExceed::Pause => return self.pause(limit),
            }
        }
        // Turns of a session that takes no work now are still held back, if they were.
        let may_go_on = self.queue.is_empty() || (is_due && exceeded.is_none());
        if self.spending.is_paused && may_go_on {
            self.spending.is_paused = false;
            self.record(Op::SetPaused(None));
        }
    }

    fn fail_for_cost(&mut self, limit: Amount) {
        let message = format!(
            "{}; create a new session, or raise its limits.costLimit (PATCH) or sessions.cost_limit",
            self.cost_reached(limit)
        );
        while let Some(QueuedTurn { id: turn, .. }) = self.queue.pop_front() {
            // Nothing was asked of the agent, so it is no turn that counts.
            self.turns_counted = self.turns_counted.saturating_sub(1);
            self.finish(turn, TurnStatus::Failed, None, Some(TurnError::new(ErrorCode::CostLimit, message.clone())));
        }
    }

    fn pause(&mut self, limit: Amount) {
        if self.spending.is_paused {
            return;
        }
        self.spending.is_paused = true;
        let code = ErrorCode::CostLimit.as_str();
        self.record(Op::SetPaused(Some(code)));
        let text = format!(
            "{}, so its turns wait; to continue, raise its limits.costLimit (PATCH) or sessions.cost_limit, or cancel \
                the turns",
            self.cost_reached(limit)
        );
        let first = self.queue.front().map(|queued| queued.id);
        self.notice(first, code, text);
    }

    fn cost_reached(&self, limit: Amount) -> String {
        let cost = self.spending.meter.usage.cost.as_ref();
        let currency = cost.map(|cost| cost.currency.as_str()).unwrap_or_default();
        format!("the session has cost {} {currency}; its limit is {limit}", self.spending.meter.cost())
    }
}
