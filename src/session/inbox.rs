//! The inbox: questions of the agent's that wait for a person.
//!
//! A question waits for as long as it takes, whoever comes and goes, and keeps the process. It ends once: by an answer, by
//! the time that questions have (`permissions.timeout`), or because nobody waits for the answer any more. The first of
//! these takes it out of the inbox; what follows from it, the word to the agent included, happens after its commit.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::action;
use super::actor::{After, SessionActor, answer};
use super::consent::{Deed, Told};
use super::{Refusal, Reply};
use crate::model::permission::question::{
    Decider, Decision, OptionKind, Outcome, PermissionKind, PermissionOption, Resolution,
};
use crate::model::permission::standing::{STANDING_MAX, StandingRule, Subject};
use crate::model::permission::{Action, Located, Verdict};
use crate::model::{By, Peer, PermissionId, RuleId, Timestamp, TurnId};
use crate::store::{Op, Resolved};

/// Questions of one session that wait at once. More are rejected, and that is recorded.
pub const OPEN_MAX: usize = 32;
/// Bytes that they hold together, the texts of files above all. One alone may hold more, as far as `limits.file_max` goes.
const HELD_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(super) struct Inbox {
    open: BTreeMap<PermissionId, Open>,
}

/// A question, and what hangs on its answer.
pub(super) struct Open {
    pub turn: Option<TurnId>,
    pub kind: PermissionKind,
    pub tool_call_id: Option<String>,
    pub title: String,
    pub options: Vec<PermissionOption>,
    pub located: Located,
    pub deed: Deed,
    pub expires_at: Option<Instant>,
    /// The number of the process that asks. Another one is told nothing of it.
    pub process: u64,
}

/// What somebody answers.
#[derive(Debug)]
pub enum PermissionAnswer {
    /// One of the agent's own options.
    Option(String),
    Decision {
        decision: Decision,
        always: bool,
    },
    /// What an agent wanted to know. None: the question is dismissed.
    Elicitation {
        decision: Option<Decision>,
        content: Option<Map<String, Value>>,
    },
}

/// An answer that makes sense for its question.
pub(super) struct Decided {
    /// None: the question is dismissed.
    pub decision: Option<Decision>,
    pub option: Option<String>,
    pub always: bool,
    pub content: Option<Map<String, Value>>,
    pub by: Decider,
}

impl Decided {
    /// By something that chooses no option.
    pub fn new(decision: Option<Decision>, options: &[PermissionOption], by: Decider) -> Self {
        let option = decision.and_then(|decision| once(options, decision)).map(|option| option.option_id.clone());
        Self { decision, option, always: false, content: None, by }
    }
}

/// Agents are told "once": "always" is a rule of ours.
pub(super) fn once(options: &[PermissionOption], decision: Decision) -> Option<&PermissionOption> {
    options.iter().find(|option| option.kind == OptionKind::new(decision, false))
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether one more may wait; else, which limit that is.
    pub fn has_room(&self, deed: &Deed) -> Result<(), String> {
        if self.open.len() >= OPEN_MAX {
            return Err(format!("{OPEN_MAX} permission requests are already open"));
        }
        let held: usize = self.open.values().map(|open| open.deed.bytes()).sum();
        if held > 0 && held + deed.bytes() > HELD_BYTES_MAX {
            return Err(format!(
                "the open permission requests already hold {held} bytes; the maximum is {HELD_BYTES_MAX}"
            ));
        }
        Ok(())
    }

    pub fn add(&mut self, id: PermissionId, question: Open) {
        self.open.insert(id, question);
    }

    pub fn next_expiry(&self) -> Option<Instant> {
        self.open.values().filter_map(|open| open.expires_at).min()
    }

    fn ids(&self, is_meant: impl Fn(&Open) -> bool) -> Vec<PermissionId> {
        self.open.iter().filter(|(_, open)| is_meant(open)).map(|(id, _)| *id).collect()
    }
}

impl Open {
    /// What an answer means for this question.
    fn decided(&self, answer: PermissionAnswer, by: Peer) -> Result<Decided, Refusal> {
        let by = Decider::Person(by);
        let refused = |field, problem: &str| Refusal::UnfitAnswer { field, problem: problem.to_owned() };
        let is_elicitation = self.kind == PermissionKind::Elicitation;
        let (decision, always, chosen) = match answer {
            PermissionAnswer::Elicitation { decision, content } if is_elicitation => {
                return Ok(Decided { decision, option: None, always: false, content, by });
            }
            PermissionAnswer::Decision { decision: Decision::Reject, always: false } if is_elicitation => {
                return Ok(Decided::new(Some(Decision::Reject), &[], by));
            }
            PermissionAnswer::Elicitation { .. } => {
                return Err(refused("action", "is only for elicitations; give optionId or decision"));
            }
            PermissionAnswer::Option(_) | PermissionAnswer::Decision { .. } if is_elicitation => {
                return Err(refused("action", "is missing: answer an elicitation with accept, decline or cancel"));
            }
            PermissionAnswer::Option(id) => {
                let Some(chosen) = self.options.iter().find(|option| option.option_id == id) else {
                    return Err(Refusal::UnknownOption { option: id, options: self.options.clone() });
                };
                (chosen.kind.decision(), chosen.kind.is_always(), Some(chosen))
            }
            PermissionAnswer::Decision { decision, always } => (decision, always, None),
        };
        let of_kind = |kind| self.options.iter().find(|option| option.kind == kind);
        let told = chosen
            .filter(|chosen| !chosen.kind.is_always())
            .or_else(|| once(&self.options, decision))
            // An agent that offers nothing else is told "always" by whoever means that.
            .or_else(|| of_kind(OptionKind::new(decision, true)).filter(|_| always));
        if decision == Decision::Allow && told.is_none() {
            return Err(refused(
                "decision",
                "cannot be \"allow\" without \"always\": the agent offers no one-time permission",
            ));
        }
        let option = told.map(|option| option.option_id.clone());
        Ok(Decided { decision: Some(decision), option, always, content: None, by })
    }
}

impl SessionActor {
    /// An action with its paths looked up, with the rights of the owner. Without these rights all paths are outside.
    pub(super) fn located(&self, action: &Action, tool: Option<String>) -> Located {
        let workspace = &self.workspace;
        let looked = self.persona.run(|| action::located(action, workspace, true));
        Located { tool, ..looked.unwrap_or_else(|_| action::located(action, workspace, false)) }
    }

    /// Somebody answers a question. The first answer is the one that counts.
    pub(super) fn on_permission_answer(
        &mut self,
        id: PermissionId,
        given: PermissionAnswer,
        by: Peer,
        reply: Reply<()>,
    ) {
        let Some(open) = self.inbox.open.get(&id) else {
            // Whoever asked is told who was first, so that is recorded before.
            let refusal = Box::new(Refusal::PermissionClosed(id));
            return self.outbox.then(self.outbox.mark(), After::Refuse { reply, refusal });
        };
        match open.decided(given, by) {
            Ok(decided) => self.resolve(id, decided, Some(reply)),
            Err(refusal) => answer(reply, Err(refusal)),
        }
    }

    /// Takes a question out of the inbox with its answer, and does what follows once that is committed.
    fn resolve(&mut self, id: PermissionId, decided: Decided, reply: Option<Reply<()>>) {
        if let Some(open) = self.inbox.open.remove(&id) {
            self.settle_question(id, open, decided, reply);
        }
    }

    pub(super) fn settle_question(&mut self, id: PermissionId, open: Open, decided: Decided, reply: Option<Reply<()>>) {
        let mark = self.outbox.mark();
        let Decided { decision, option, always, content, by } = decided;
        let always = always && self.make_standing(&open.located, decision, &by);
        let is_told = option.is_some() || !open.deed.is_the_agents();
        let outcome = if decision.is_some() && is_told { Outcome::Selected } else { Outcome::Cancelled };
        let told = match decision {
            Some(Decision::Allow) => Told::Allowed { option: option.clone(), content },
            Some(Decision::Reject) => Told::Rejected { option: option.clone() },
            None => Told::Cancelled,
        };
        let is_by_person = matches!(by, Decider::Person(_));
        let resolution = Resolution { outcome, decision, option_id: option, always, by, at: Timestamp::now() };
        let decided_by = resolution.by.to_string();
        let Open { turn, tool_call_id, title, located, deed, process, .. } = open;
        let resolved = Resolved { id, turn, tool_call_id: tool_call_id.clone(), resolution };
        self.record(Op::ResolvePermission(Box::new(resolved)));
        if decision == Some(Decision::Reject) && deed.is_the_agents() {
            if let Some(call) = &tool_call_id {
                let (outbox, reason) = (&mut self.outbox, format!("rejected ({decided_by})"));
                self.transcript.permission_rejected(call, &reason, &mut |op| outbox.push(op));
            }
            self.notice(turn, "permission_rejected", format!("{title}: rejected ({decided_by})"));
        }
        // What a policy allows it allows again, as long as it is the same policy.
        if let (Some(Decision::Allow), Some(tool_call_id), true) = (decision, tool_call_id, is_by_person) {
            self.grant(id, tool_call_id, located, &deed);
        }
        // The agent has its answer now, and its silence counts from here.
        self.restart_silence();
        self.outbox.then(mark, After::Answered { process, deed: Box::new(deed), told, by: decided_by, reply });
    }

    /// Makes a rule of an answer that is to hold for good. There is none where the same again cannot be told.
    fn make_standing(&mut self, located: &Located, decision: Option<Decision>, by: &Decider) -> bool {
        let (Some(decision), Decider::Person(peer)) = (decision, by) else { return false };
        let (rules, allows) = (&self.permissions.standing, decision == Decision::Allow);
        let Some(subject) = Subject::of(located) else { return false };
        // The same may have been asked twice before the first answer came.
        if rules.iter().any(|rule| rule.allows == allows && rule.subject == subject) {
            return true;
        }
        if rules.len() >= STANDING_MAX {
            return false;
        }
        let rule =
            StandingRule { id: RuleId::new(), allows, subject, made_by: peer.clone(), made_at: Timestamp::now() };
        self.permissions.standing.push(rule.clone());
        self.record(Op::AddRule(Box::new(rule)));
        true
    }

    pub(super) fn on_revoke(&mut self, rule: RuleId, by: By, reply: Reply<()>) {
        let rules = &mut self.permissions.standing;
        let before = rules.len();
        rules.retain(|standing| standing.id != rule);
        if rules.len() == before {
            return answer(reply, Err(Refusal::NoSuchRule(rule)));
        }
        let mark = self.outbox.mark();
        self.record(Op::RemoveRule { rule, by });
        self.outbox.then(mark, After::Answer(vec![reply]));
    }

    /// The time of some questions is over: they are rejected.
    pub(super) fn expire_questions(&mut self, now: Instant) {
        for id in self.inbox.ids(|open| open.expires_at.is_some_and(|expires_at| expires_at <= now)) {
            let options = self.inbox.open.get(&id).map(|open| open.options.clone()).unwrap_or_default();
            self.resolve(id, Decided::new(Some(Decision::Reject), &options, Decider::Timeout), None);
        }
    }

    /// Another policy holds: what it denies nobody can allow any more, and what was allowed under the old one is asked
    /// again.
    pub(super) fn on_other_policy(&mut self) {
        self.grants.clear();
        for id in self.inbox.ids(|_| true) {
            let Some(open) = self.inbox.open.get(&id) else { continue };
            let Verdict::Deny { by } = self.judged(&open.located, &open.deed) else { continue };
            let decided = Decided::new(Some(Decision::Reject), &open.options, Decider::Policy { rule: by });
            self.resolve(id, decided, None);
        }
    }

    /// Nobody waits for the answers to these any more. The agent is told so once that is committed.
    pub(super) fn withdraw_of_turn(&mut self, turn: TurnId, reason: &str) {
        self.withdraw(|open| open.turn == Some(turn), reason);
    }

    /// A question that comes when its turn, or its process, is told to end already.
    pub(super) fn withdraw_if_ending(&mut self, id: PermissionId) {
        if self.is_winding_down() {
            let by = Decider::Cancelled { reason: "it arrived while the turn was being cancelled".to_owned() };
            self.resolve(id, Decided::new(None, &[], by), None);
        }
    }

    /// The process is about to go. It is told at once, because it will not hear of the commit any more.
    pub(super) fn withdraw_all(&mut self, reason: &str) {
        for id in self.inbox.ids(|_| true) {
            let Some(open) = self.inbox.open.remove(&id) else { continue };
            if let Some(process) = self.link.process() {
                // One that takes nothing in any more is told by what follows.
                process.send(open.deed.cancelled()).ok();
            }
            let by = Decider::Cancelled { reason: reason.to_owned() };
            // Of no process that could still be told.
            self.settle_question(id, Open { process: 0, ..open }, Decided::new(None, &[], by), None);
        }
    }

    /// The agent itself takes a question back.
    pub(super) fn withdraw_request(&mut self, request: &RawValue) {
        self.withdraw(|open| open.deed.request() == request.get(), "the agent withdrew the permission request");
        self.cancel_waits(request);
    }

    fn withdraw(&mut self, is_meant: impl Fn(&Open) -> bool, reason: &str) {
        for id in self.inbox.ids(is_meant) {
            let by = Decider::Cancelled { reason: reason.to_owned() };
            self.resolve(id, Decided::new(None, &[], by), None);
        }
    }
}
