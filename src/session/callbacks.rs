//! What the agent sends on its own: updates, and requests that it makes of us.

use serde_json::value::RawValue;

use super::actor::{After, SessionActor};
use super::transcript::Aside;
use crate::acp::update::{self, UpdateParams};
use crate::acp::{Chunk, Envelope, Line, RpcError, incoming, outgoing};
use crate::model::{EventBody, PermissionMode, TurnId};
use crate::store::Op;

/// Characters of a line that is shown in the log when it is not understood.
const NOISE_SHOWN_CHARS: usize = 200;

impl SessionActor {
    /// What the agent wrote since the last time.
    pub(super) fn on_lines(&mut self, lines: &[Line]) {
        let mut is_alive = false;
        for line in lines {
            is_alive |= self.on_line(line);
        }
        if is_alive {
            self.note_life();
        }
    }

    /// Whether the agent says or asks something by it.
    fn on_line(&mut self, line: &Line) -> bool {
        let text = match line {
            Line::Text(bytes) => std::str::from_utf8(bytes).map_err(|_| ("is not UTF-8", bytes.len())),
            Line::TooLong { bytes } => Err(("is too long (limits.line_max, limits.long_lines)", *bytes)),
        };
        let text = match text {
            Ok(text) => text,
            Err((problem, bytes)) => {
                tracing::warn!(bytes, "the agent wrote a line that {problem}; skipped");
                return false;
            }
        };
        if Chunk::read(text).is_some_and(|chunk| self.on_chunk(&chunk)) {
            return true;
        }
        match Envelope::parse(text) {
            Envelope::Notification { method, params } => {
                self.on_notification(&method, params);
                true
            }
            Envelope::Request { id, method, params } => {
                self.on_agent_request(id, &method, params);
                true
            }
            Envelope::Answer { id, outcome } => {
                self.on_answer(id, outcome);
                false
            }
            Envelope::Noise => {
                let shown: String = text.chars().take(NOISE_SHOWN_CHARS).collect();
                tracing::debug!(line = shown, "the agent wrote a line that is no message; skipped");
                false
            }
        }
    }

    /// Takes a piece of text in, unless it is another session's.
    fn on_chunk(&mut self, chunk: &Chunk<'_>) -> bool {
        if self.is_foreign(&chunk.session_id) {
            return false;
        }
        if !self.is_repeated(&chunk.session_id, || true) {
            let (turn, outbox) = (self.running_turn(), &mut self.outbox);
            self.transcript.chunk(turn, chunk, &mut |op| outbox.push(op));
        }
        true
    }

    /// Before the session is known its updates are kept all the same; another session's are kept as they are.
    fn is_foreign(&self, agent_session: &str) -> bool {
        self.link.agent_session().is_some_and(|own| own != agent_session)
    }

    fn on_notification(&mut self, method: &str, params: Option<&RawValue>) {
        if method != "session/update" {
            return tracing::debug!(method, "a notification that acpd does not know; ignored");
        }
        let turn = self.running_turn();
        let Some(params) = params else { return };
        let Ok(update) = serde_json::from_str::<UpdateParams<'_>>(params.get()) else {
            return tracing::warn!("an update without a session id or content; skipped");
        };
        if self.is_repeated(&update.session_id, || update::is_conversation(update.update)) {
            return;
        }
        self.end_replay(update.update);
        if self.is_foreign(&update.session_id) {
            return self
                .record(Op::Event { turn, body: EventBody::AgentUpdate { update: self.transcript.capped(params) } });
        }
        let outbox = &mut self.outbox;
        match self.transcript.update(turn, update.update, &mut |op| outbox.push(op)) {
            None => {}
            Some(Aside::Usage(told)) => self.on_usage(turn, told),
            Some(Aside::Choices) => self.on_announced(update.update),
        }
    }

    fn on_agent_request(&mut self, id: &RawValue, method: &str, params: Option<&RawValue>) {
        if method == "session/request_permission"
            && let Some(params) = params
        {
            return self.on_permission_request(id, params);
        }
        tracing::debug!(method, "a request that acpd does not serve");
        self.send(outgoing::failure(id, RpcError::METHOD_NOT_FOUND, format!("acpd does not serve {method}")));
    }

    /// Answered by the policy alone. The decision is recorded before it is sent.
    fn on_permission_request(&mut self, id: &RawValue, params: &RawValue) {
        let request = match incoming::permission_request(params) {
            Ok(request) => request,
            Err(error) => return self.send(outgoing::failure(id, RpcError::INVALID_PARAMS, error)),
        };
        let turn = self.running_turn();
        let tool_call_id = request.tool_call.id.clone();
        let what = request.tool_call.title.clone().unwrap_or_else(|| tool_call_id.clone());
        let (allowed, option) = match self.permissions {
            PermissionMode::Allow => (true, request.allow_once),
            PermissionMode::Ask | PermissionMode::Deny => (false, request.reject_once),
        };
        let mark = self.outbox.mark();
        let outbox = &mut self.outbox;
        self.transcript.permission_asked(turn, request.tool_call, &mut |op| outbox.push(op));
        let body = EventBody::PermissionRequested {
            tool_call_id: tool_call_id.clone(),
            request: self.transcript.capped(params),
        };
        self.record(Op::Event { turn, body });
        let body = EventBody::PermissionResolved {
            tool_call_id: tool_call_id.clone(),
            outcome: if option.is_some() { "selected" } else { "cancelled" },
            option_id: option.clone(),
            decided_by: format!("policy {}", self.permissions.as_str()),
        };
        self.record(Op::Event { turn, body });
        if !allowed {
            let outbox = &mut self.outbox;
            let reason = "rejected by the permission policy";
            self.transcript.permission_rejected(&tool_call_id, reason, &mut |op| outbox.push(op));
            self.explain_rejection(turn, &what);
        }
        self.outbox.then(mark, After::Send(outgoing::permission(id, option.as_deref())));
    }

    fn explain_rejection(&mut self, turn: Option<TurnId>, what: &str) {
        let why = match self.permissions {
            PermissionMode::Ask => {
                "the policy is ask, and there is nobody to ask yet; permissions = \"allow\" in the agent's profile lets it pass"
            }
            PermissionMode::Deny | PermissionMode::Allow => "the session's policy does not allow it",
        };
        self.notice(turn, "permission_rejected", format!("{what}: {why}"));
    }

    fn running_turn(&self) -> Option<TurnId> {
        self.running.as_ref().map(|running| running.turn)
    }
}
