//! What the agent sends on its own: updates, and requests that it makes of us.

use serde_json::Value;
use serde_json::value::RawValue;

use super::actor::SessionActor;
use super::consent::Deed;
use super::transcript::Aside;
use crate::acp::update::{self, ToolCall, UpdateParams};
use crate::acp::{Chunk, Envelope, Line, RpcError, incoming, outgoing};
use crate::model::permission::{Action, CommandText, ToolKind};
use crate::model::{EventBody, TurnId};
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

    fn on_permission_request(&mut self, id: &RawValue, params: &RawValue) {
        let request = match incoming::permission_request(params) {
            Ok(request) => request,
            Err(error) => return self.send(outgoing::failure(id, RpcError::INVALID_PARAMS, error)),
        };
        let kind = request.tool_call.kind.as_deref().map_or_else(ToolKind::default, ToolKind::from_protocol);
        let action = Action { kind, paths: Vec::new(), command: command_of(&request.tool_call) };
        let question = self.transcript.capped(params);
        self.seek_consent(&action, question, Deed::Agents { id: id.to_owned(), request });
    }

    pub(super) fn running_turn(&self) -> Option<TurnId> {
        self.running.as_ref().map(|running| running.turn)
    }
}

/// What a tool call runs, where its arguments say so in the way that most agents have.
fn command_of(call: &ToolCall) -> Option<CommandText> {
    match call.raw_input.as_ref()?.get("command")? {
        Value::String(text) => Some(CommandText::Shell(text.clone())),
        Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<_>>().map(CommandText::Arguments)
        }
        _ => None,
    }
}
