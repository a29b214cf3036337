//! What the agent sends on its own: updates, and requests that it makes of us.

use serde_json::value::RawValue;

use super::action;
use super::actor::SessionActor;
use super::consent::Deed;
use super::failure;
use super::grants;
use super::link::Link;
use super::transcript::Aside;
use crate::acp::incoming::PermissionRequest;
use crate::acp::update::{self, ToolCall, UpdateParams};
use crate::acp::{Chunk, Chunks, Envelope, Line, RpcError, incoming, outgoing};
use crate::model::permission::Action;
use crate::model::{EventBody, TurnId};
use crate::store::Op;

/// Characters of a line that is shown in the log when it is not understood.
const NOISE_SHOWN_CHARS: usize = 200;

impl SessionActor {
    /// What the agent wrote since the last time.
    pub(super) fn on_lines(&mut self, lines: &[Line]) {
        let mut is_alive = false;
        let mut chunks = Chunks::default();
        for line in lines {
            is_alive |= self.on_line(line, &mut chunks);
            // At once: the answer to the prompt may be the next line.
            self.running.iter_mut().for_each(|running| running.is_heard |= is_alive);
        }
        if is_alive {
            self.note_life();
        }
    }

    /// Whether the agent says or asks something by it.
    fn on_line<'a>(&mut self, line: &'a Line, chunks: &mut Chunks<'a>) -> bool {
        let text = match line {
            Line::Text(bytes) => std::str::from_utf8(bytes).map_err(|_| ("is not UTF-8", bytes.len())),
            Line::TooLong { bytes } => Err(("is too long (limits.line_max, limits.long_lines)", *bytes)),
        };
        let text = match text {
            Ok(text) => text,
            Err((problem, bytes)) => {
                self.shared.security.skipped(format_args!("the agent wrote a line of {bytes} bytes that {problem}"));
                return false;
            }
        };
        if chunks.read(text).is_some_and(|chunk| self.on_chunk(&chunk)) {
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
                // Whoever asked for something may be told why the agent refuses it, and not by way of the record.
                let redacted = |mut error: RpcError| {
                    self.shared.hub.secrets(self.owner_uid).redact(&mut error.message);
                    error
                };
                self.on_answer(id, outcome.map_err(redacted));
                false
            }
            Envelope::Noise if self.profile.adapter.is_login_prompt(text) => {
                self.on_login_prompt();
                false
            }
            Envelope::Noise => {
                if tracing::enabled!(tracing::Level::DEBUG) {
                    // Before it is cut: half a secret is not recognized any more.
                    let mut text = text.to_owned();
                    self.shared.hub.secrets(self.owner_uid).redact(&mut text);
                    let shown: String = text.chars().take(NOISE_SHOWN_CHARS).collect();
                    tracing::debug!(line = shown, "the agent wrote a line that is not a valid message; skipped it");
                }
                false
            }
        }
    }

    /// Takes a piece of text in, unless it is another session's.
    fn on_chunk(&mut self, chunk: &Chunk<'_>) -> bool {
        if self.is_foreign(&chunk.session_id) {
            return false;
        }
        // What is no mode of the agent's is text, whatever it begins with.
        let told = self.profile.adapter.mode_told(&chunk.text).filter(|_| !chunk.is_thought);
        if let Some(mode) = told.filter(|mode| self.choices.has_mode(mode)) {
            let told = serde_json::json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
            if let Ok(told) = serde_json::value::to_raw_value(&told) {
                self.on_announced(&told);
            }
        } else if !self.is_repeated(&chunk.session_id, || true) {
            let (turn, outbox) = (self.running_turn(), &mut self.outbox);
            self.transcript.chunk(turn, chunk, &mut |op| outbox.push(op));
        }
        true
    }

    /// What is said to the agent now it takes for the code that it waits for.
    fn on_login_prompt(&mut self) {
        if let Link::Up(connected) = &mut self.link {
            connected.process.hush();
            connected.process.kill();
        }
        self.fault(failure::auth_required(failure::LOGIN_PROMPT, &self.sign_in()));
    }

    /// Before the session is known its updates are kept all the same; another session's are kept as they are.
    pub(super) fn is_foreign(&self, agent_session: &str) -> bool {
        self.link.agent_session().is_some_and(|own| own != agent_session)
    }

    fn on_notification(&mut self, method: &str, params: Option<&RawValue>) {
        if method == "$/cancel_request" {
            if let Some(request) = params.and_then(incoming::cancelled_request) {
                self.withdraw_request(&request);
            }
            return;
        }
        if method != "session/update" {
            return tracing::debug!(method, "a notification that acpd does not know; ignored");
        }
        let turn = self.running_turn();
        let Some(params) = params else { return };
        let Ok(update) = serde_json::from_str::<UpdateParams<'_>>(params.get()) else {
            return self.shared.security.skipped("the agent wrote an update without a session id or content");
        };
        if self.is_repeated(&update.session_id, || update::is_conversation(update.update)) {
            return;
        }
        self.end_replay(update.update);
        if self.is_foreign(&update.session_id) {
            return self
                .record(Op::Event { turn, body: EventBody::AgentUpdate { update: self.transcript.capped(params) } });
        }
        self.explain_refusals(update.update);
        let outbox = &mut self.outbox;
        match self.transcript.update(turn, update.update, &mut |op| outbox.push(op)) {
            None => {}
            Some(Aside::Usage(told)) => self.on_usage(turn, told),
            Some(Aside::Choices) => self.on_announced(update.update),
        }
    }

    fn on_agent_request(&mut self, id: &RawValue, method: &str, params: Option<&RawValue>) {
        match (method, params) {
            ("session/request_permission", Some(params)) => return self.on_permission_request(id, params),
            ("elicitation/create", Some(params)) => return self.on_elicitation(id, params),
            _ => {}
        }
        if self.on_client_request(id, method, params.unwrap_or(RawValue::NULL)) {
            return;
        }
        tracing::debug!(method, "a request that acpd does not serve");
        self.send(outgoing::failure(id, RpcError::METHOD_NOT_FOUND, format!("acpd does not support {method}")));
    }

    fn on_permission_request(&mut self, id: &RawValue, params: &RawValue) {
        let request = match incoming::permission_request(params) {
            Ok(request) => request,
            Err(error) => return self.send(outgoing::failure(id, RpcError::INVALID_PARAMS, error)),
        };
        let PermissionRequest { tool_call: call, options } = request;
        let call = call.completed_by(self.profile.adapter);
        let before = self.transcript.open_call(&call.id);
        let action = action::of(&call, before, self.profile.adapter);
        let question = self.transcript.capped(params);
        let tool_call_id = call.id.clone();
        let called = |call: &ToolCall| call.name.clone().or_else(|| call.title.clone());
        let tool = called(&call).or_else(|| called(before?));
        let title = call.title.clone().or_else(|| before?.title.clone()).or_else(|| tool.clone());
        let title = title.or_else(|| call.texts().next().map(str::to_owned)).unwrap_or_else(|| tool_call_id.clone());
        // An input that is too long to be shown is replaced by a text. Without the tool's name, no "always" covers such a call.
        let is_replaced = self.profile.adapter.quirks().tools_named_in_ids && call.texts().next().is_some();
        let tool = tool.filter(|_| call.raw_input.is_some() || !is_replaced);
        let shown = grants::texts_shown(&call, before);
        let (turn, outbox) = (self.running_turn(), &mut self.outbox);
        self.transcript.permission_asked(turn, call, &mut |op| outbox.push(op));
        let id = id.to_owned();
        self.seek_consent(&action, question, Deed::Agents { id, tool_call_id, title, tool, options, shown });
    }

    fn on_elicitation(&mut self, id: &RawValue, params: &RawValue) {
        match incoming::elicitation_message(params) {
            Ok(message) => {
                let question = self.transcript.capped(params);
                self.seek_consent(&Action::default(), question, Deed::Elicitation { id: id.to_owned(), message });
            }
            Err(error) => self.send(outgoing::failure(id, RpcError::INVALID_PARAMS, error)),
        }
    }

    pub(super) fn running_turn(&self) -> Option<TurnId> {
        self.running.as_ref().map(|running| running.turn)
    }
}
