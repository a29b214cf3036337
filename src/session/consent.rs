//! Whether an agent may do what it is about to do: the policy judges, and what is allowed is done.
//!
//! Whatever needs consent comes here as a [`Deed`], with what is known of it as an [`Action`]. A deed is carried out or
//! refused once, after the decision is committed.

use serde_json::value::RawValue;

use super::actor::{After, SessionActor};
use crate::acp::incoming::PermissionRequest;
use crate::acp::outgoing;
use crate::model::permission::{Action, Verdict};
use crate::model::{EventBody, TurnId};
use crate::store::Op;

/// What waits for consent.
pub(super) enum Deed {
    /// The agent does it itself, and asks first: it is told what was decided.
    Agents { id: Box<RawValue>, request: PermissionRequest },
}

impl SessionActor {
    /// Has a deed judged, and does what follows. `question` is what a person is shown.
    pub(super) fn seek_consent(&mut self, action: &Action, question: Box<RawValue>, deed: Deed) {
        let turn = self.running_turn();
        match self.permissions.judge(action) {
            Verdict::Allow { by } => self.carry_out(turn, question, deed, true, &format!("policy {by}")),
            Verdict::Deny { by } => self.carry_out(turn, question, deed, false, &format!("policy {by}")),
            // There is nobody to ask yet.
            Verdict::Ask => self.carry_out(turn, question, deed, false, "policy ask"),
        }
    }

    fn carry_out(&mut self, turn: Option<TurnId>, question: Box<RawValue>, deed: Deed, allowed: bool, by: &str) {
        let Deed::Agents { id, request } = deed;
        let tool_call_id = request.tool_call.id.clone();
        let what = request.tool_call.title.clone().unwrap_or_else(|| tool_call_id.clone());
        let option = if allowed { request.allow_once } else { request.reject_once };
        let mark = self.outbox.mark();
        let outbox = &mut self.outbox;
        self.transcript.permission_asked(turn, request.tool_call, &mut |op| outbox.push(op));
        let body = EventBody::PermissionRequested { tool_call_id: tool_call_id.clone(), request: question };
        self.record(Op::Event { turn, body });
        let body = EventBody::PermissionResolved {
            tool_call_id: tool_call_id.clone(),
            outcome: if option.is_some() { "selected" } else { "cancelled" },
            option_id: option.clone(),
            decided_by: by.to_owned(),
        };
        self.record(Op::Event { turn, body });
        if !allowed {
            let outbox = &mut self.outbox;
            let reason = "rejected by the permission policy";
            self.transcript.permission_rejected(&tool_call_id, reason, &mut |op| outbox.push(op));
            self.notice(turn, "permission_rejected", format!("{what}: the session's policy does not allow it ({by})"));
        }
        self.outbox.then(mark, After::Send(outgoing::permission(&id, option.as_deref())));
    }
}
