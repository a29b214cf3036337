//! From a stream of updates to messages and events: pure, so that it can be tested without a process.
//!
//! Text is an event as it comes and a message when it is whole, which is when something else follows or the turn ends.
//! A tool call is one `tool_call` and one `tool_result` message, also for agents that send nothing but changes.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::acp::content;
use crate::acp::update::{self, ToolCall};
use crate::acp::usage::Told;
use crate::acp::{Chunk, Update, is_shallow};
use crate::agent::{OwnerSecrets, RedactedStream};
use crate::config;
use crate::model::event::DeltaKind;
use crate::model::message::PlanStep;
use crate::model::{Adapter, Blob, Content, EventBody, MessageId, Role, TurnId};
use crate::store::{NewMessage, Op};

/// Tool calls that are open at once; the oldest beyond that is closed as it stands.
const OPEN_TOOLS_MAX: usize = 256;
/// Tool calls of a turn that are remembered after their end.
const ENDED_TOOLS_MAX: usize = 4096;
/// Files of a tool call that its message names.
const LOCATIONS_MAX: usize = 64;

/// What an update says of the session beside the conversation.
pub enum Aside {
    Usage(Told),
    /// What can be chosen, or is chosen now.
    Choices,
}

/// Text that is not whole yet.
#[derive(Debug)]
struct OpenText {
    id: MessageId,
    turn: Option<TurnId>,
    kind: DeltaKind,
    text: String,
    model: Option<String>,
}

/// Text that is not known to be free of secrets yet, and whose it is.
#[derive(Debug)]
struct Unclear {
    turn: Option<TurnId>,
    kind: DeltaKind,
    stream: RedactedStream,
}

#[derive(Debug)]
pub struct Transcript {
    adapter: Adapter,
    secrets: OwnerSecrets,
    payload_bytes_max: usize,
    media_bytes_max: usize,
    text: Option<OpenText>,
    /// The end of the text, when that may be the beginning of a secret.
    unclear: Option<Unclear>,
    plan: Option<(Option<TurnId>, Vec<PlanStep>)>,
    tools: HashMap<String, OpenTool>,
    tools_begun: u64,
    /// Calls of this turn that have had their result, with the message of their beginning. What is still said of them makes
    /// no second result.
    ended: HashMap<String, MessageId>,
    /// The agent's model, for what it says.
    model: Option<String>,
}

#[derive(Debug)]
struct OpenTool {
    order: u64,
    /// The message that tells of its beginning, by whose id it is known when that was.
    message: MessageId,
    turn: Option<TurnId>,
    /// All that was said of it so far, put together.
    call: ToolCall,
}

impl Transcript {
    /// `secrets` are kept out of the text, also when they come in pieces.
    pub fn new(limits: &config::Limits, secrets: OwnerSecrets, adapter: Adapter) -> Self {
        Self {
            adapter,
            secrets,
            payload_bytes_max: limits.payload_max.0,
            media_bytes_max: limits.media_max.0,
            text: None,
            unclear: None,
            plan: None,
            tools: HashMap::new(),
            tools_begun: 0,
            ended: HashMap::new(),
            model: None,
        }
    }

    /// The model that says what follows.
    pub fn set_model(&mut self, model: Option<&str>) {
        self.model = model.map(str::to_owned);
    }

    /// How much of one update is kept from now on.
    pub fn set_bounds(&mut self, limits: &config::Limits) {
        self.payload_bytes_max = limits.payload_max.0;
        self.media_bytes_max = limits.media_max.0;
    }

    /// How many tool calls have begun, over all turns.
    pub fn tool_calls(&self) -> u64 {
        self.tools_begun
    }

    /// Takes an update in; what is to be recorded goes to `record`, and what it says beside the conversation is returned.
    pub fn update(&mut self, turn: Option<TurnId>, raw: &RawValue, record: &mut impl FnMut(Op)) -> Option<Aside> {
        match Update::read(raw) {
            Update::AgentText { text } => self.text(turn, DeltaKind::Text, &text, record),
            Update::AgentThought { text } => self.text(turn, DeltaKind::Thought, &text, record),
            Update::AgentBlock(block) => {
                self.close_text(false, record);
                record(self.block(turn, block, raw));
            }
            Update::ToolCall(call) => {
                self.close_text(false, record);
                self.tool(turn, call.completed_by(self.adapter), raw, record);
            }
            Update::Plan(steps) => {
                self.close_text(false, record);
                self.plan = Some((turn, steps));
                record(Op::Event { turn, body: EventBody::PlanUpdated { update: self.capped(raw) } });
            }
            Update::Usage(told) => {
                record(Op::Event { turn, body: EventBody::UsageUpdated { update: self.capped(raw) } });
                return Some(Aside::Usage(told));
            }
            Update::Choices => {
                record(Op::Event { turn, body: EventBody::AgentUpdate { update: self.capped(raw) } });
                return Some(Aside::Choices);
            }
            Update::Other => record(Op::Event { turn, body: EventBody::AgentUpdate { update: self.capped(raw) } }),
        }
        None
    }

    /// Takes a piece of text in.
    pub fn chunk(&mut self, turn: Option<TurnId>, chunk: &Chunk<'_>, record: &mut impl FnMut(Op)) {
        let kind = if chunk.is_thought { DeltaKind::Thought } else { DeltaKind::Text };
        self.text(turn, kind, &chunk.text, record);
    }

    /// Notes a tool call that was told of only by a permission request.
    pub fn permission_asked(&mut self, turn: Option<TurnId>, call: ToolCall, record: &mut impl FnMut(Op)) {
        self.close_text(false, record);
        let (id, (call, blobs)) = (call.id.clone(), self.capped_call(call));
        self.open_tool(turn, call, record);
        self.keep_media(&id, blobs, record);
    }

    /// A call that has begun and has not ended.
    pub fn open_call(&self, tool_call_id: &str) -> Option<&ToolCall> {
        self.tools.get(tool_call_id).map(|tool| &tool.call)
    }

    /// The call that began last of those that have not ended, and the message that tells of its beginning.
    pub fn newest_call(&self) -> Option<(MessageId, &ToolCall)> {
        let newest = self.tools.values().max_by_key(|tool| tool.order);
        newest.map(|tool| (tool.message, &tool.call))
    }

    /// A tool call that was rejected: agents say nothing more of it.
    pub fn permission_rejected(&mut self, tool_call_id: &str, reason: &str, record: &mut impl FnMut(Op)) {
        self.end_tool(tool_call_id, "failed", Some(reason.to_owned()), record);
    }

    /// The turn is over, or the process is. `partial`: it was cut off.
    pub fn close(&mut self, partial: bool, record: &mut impl FnMut(Op)) {
        self.close_text(partial, record);
        if let Some((turn, steps)) = self.plan.take() {
            record(Op::Message(NewMessage::new(MessageId::new(), turn, Role::System, &Content::Plan { steps })));
        }
        self.ended.clear();
        let mut tools: Vec<OpenTool> = std::mem::take(&mut self.tools).into_values().collect();
        tools.sort_by_key(|tool| tool.order);
        for tool in tools {
            let status = tool.call.status.clone().unwrap_or_else(|| "pending".to_owned());
            // What the agent still says of the call, before the next turn begins, makes no second one.
            self.ended.insert(tool.call.id.clone(), tool.message);
            record(tool.result(&status, Some("the turn ended before the tool call".to_owned())));
        }
    }

    /// Takes text in as far as it is clear that no secret begins at its end.
    fn text(&mut self, turn: Option<TurnId>, kind: DeltaKind, text: &str, record: &mut impl FnMut(Op)) {
        let open = self.text.as_ref().map(|open| (open.turn, open.kind));
        let unclear = self.unclear.as_ref().map(|unclear| (unclear.turn, unclear.kind));
        if open.or(unclear).is_some_and(|of| of != (turn, kind)) {
            self.close_text(false, record);
        }
        match self.secrets.redactor() {
            None => self.clear_text(turn, kind, text, record),
            Some(redactor) => {
                let new = || Unclear { turn, kind, stream: RedactedStream::default() };
                let clear = self.unclear.get_or_insert_with(new).stream.push_text(&redactor, text);
                self.clear_text(turn, kind, &clear, record);
            }
        }
    }

    /// Text that would make its message too large begins another one.
    fn clear_text(&mut self, turn: Option<TurnId>, kind: DeltaKind, mut text: &str, record: &mut impl FnMut(Op)) {
        while !text.is_empty() {
            let room = self
                .text
                .as_ref()
                .map_or(0, |open| text.floor_char_boundary(self.payload_bytes_max.saturating_sub(open.text.len())));
            if room == 0 {
                self.end_message(false, record);
            }
            // A character is taken even when it is larger than all the room there is.
            let whole =
                text.floor_char_boundary(self.payload_bytes_max).max(text.chars().next().map_or(0, char::len_utf8));
            let (piece, rest) = text.split_at(if room == 0 { whole } else { room });
            let open = self.text.get_or_insert_with(|| OpenText {
                id: MessageId::new(),
                turn,
                kind,
                text: String::new(),
                model: self.model.clone(),
            });
            open.text.push_str(piece);
            let body = EventBody::MessageDelta { message_id: open.id, role: Role::Agent, kind, text: piece.to_owned() };
            record(Op::Event { turn, body });
            text = rest;
        }
    }

    /// Something else follows, or nothing.
    fn close_text(&mut self, partial: bool, record: &mut impl FnMut(Op)) {
        if let Some(Unclear { turn, kind, mut stream }) = self.unclear.take() {
            let rest = stream.end_text(self.secrets.redactor().as_deref());
            self.clear_text(turn, kind, &rest, record);
        }
        self.end_message(partial, record);
    }

    fn end_message(&mut self, partial: bool, record: &mut impl FnMut(Op)) {
        let Some(OpenText { id, turn, kind, text, model }) = self.text.take() else {
            return;
        };
        let content = match kind {
            DeltaKind::Text => Content::Text { text, partial },
            DeltaKind::Thought => Content::Thought { text, partial },
        };
        record(Op::Message(NewMessage::new(id, turn, Role::Agent, &content).by_model(model)));
    }

    /// A message of one block, whose data is kept beside it. What is too large, or is no data, stays an update.
    fn block(&self, turn: Option<TurnId>, mut block: Value, raw: &RawValue) -> Op {
        let blob = content::detach(&mut block, self.media_bytes_max);
        let is_kept = |block: &Value| block.to_string().len() <= self.payload_bytes_max;
        match blob {
            Ok(blob) if is_kept(&block) => {
                let content = Content::Blocks { blocks: vec![block] };
                let message = NewMessage::new(MessageId::new(), turn, Role::Agent, &content);
                Op::Message(message.with_blobs(blob.into_iter().collect()))
            }
            Ok(_) | Err(_) => Op::Event { turn, body: EventBody::AgentUpdate { update: self.capped(raw) } },
        }
    }

    fn tool(&mut self, turn: Option<TurnId>, call: ToolCall, raw: &RawValue, record: &mut impl FnMut(Op)) {
        let (call, blobs) = self.capped_call(call);
        let is_new = !self.tools.contains_key(&call.id) && !self.ended.contains_key(&call.id);
        let (id, is_final) = (call.id.clone(), call.is_final());
        let update = if blobs.is_empty() { self.capped(raw) } else { self.without_media(raw) };
        let event = |tool_call_id: String, update: Box<RawValue>, status: Option<String>| match status {
            Some(status) => EventBody::ToolCompleted { tool_call_id, status, update },
            None if is_new => EventBody::ToolStarted { tool_call_id, update },
            None => EventBody::ToolUpdated { tool_call_id, update },
        };
        let status = is_final.then(|| call.status.clone().unwrap_or_default());
        if is_new {
            self.open_tool(turn, call, record);
        } else if let Some(tool) = self.tools.get_mut(&id) {
            tool.merge(call);
        }
        // Before the event, so that a client that sees the event can fetch what it names.
        self.keep_media(&id, blobs, record);
        record(Op::Event { turn, body: event(id.clone(), update, status.clone()) });
        if let Some(status) = status {
            self.end_tool(&id, &status, None, record);
        }
    }

    fn end_tool(&mut self, id: &str, status: &str, error: Option<String>, record: &mut impl FnMut(Op)) {
        let Some(tool) = self.tools.remove(id) else { return };
        if self.ended.len() < ENDED_TOOLS_MAX {
            self.ended.insert(id.to_owned(), tool.message);
        }
        record(tool.result(status, error));
    }

    /// What is kept of a call until it ends is bounded like what is recorded of it. Its media, which has a bound of its
    /// own, is taken out first.
    fn capped_call(&self, mut call: ToolCall) -> (ToolCall, Vec<Blob>) {
        let mut blobs = Vec::new();
        call.raw_input = call.raw_input.map(|value| self.capped_value(value));
        for value in [&mut call.raw_output, &mut call.content] {
            let mut media = Vec::new();
            *value = value.take().map(|mut value| {
                self.detach_all(&mut value, &mut media);
                self.capped_value(value)
            });
            // A marker in the place of a value names no data.
            blobs.extend(media.into_iter().filter(|_| value.as_ref().is_some_and(|value| value["truncated"] != true)));
        }
        (call, blobs)
    }

    /// Takes out all media within the bound, wherever it is in a tool's result. What is no data stays as it is.
    fn detach_all(&self, value: &mut Value, blobs: &mut Vec<Blob>) {
        if let Ok(Some(blob)) = content::detach(value, self.media_bytes_max) {
            return blobs.push(blob);
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.detach_all(item, blobs)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.detach_all(field, blobs)),
            _ => {}
        }
    }

    /// The agent's own JSON of a tool call, with references in the place of its media.
    fn without_media(&self, raw: &RawValue) -> Box<RawValue> {
        let Ok(mut update) = serde_json::from_str::<Value>(raw.get()) else { return self.capped(raw) };
        for name in ["content", "rawOutput"] {
            update.get_mut(name).into_iter().for_each(|value| self.detach_all(value, &mut Vec::new()));
        }
        serde_json::value::to_raw_value(&update).map_or_else(|_| self.capped(raw), |update| self.capped(&update))
    }

    /// Keeps the media of a call, which the message of its beginning refers to.
    fn keep_media(&self, id: &str, blobs: Vec<Blob>, record: &mut impl FnMut(Op)) {
        let message = self.tools.get(id).map(|tool| tool.message).or_else(|| self.ended.get(id).copied());
        if let Some(message) = message.filter(|_| !blobs.is_empty()) {
            record(Op::KeepMedia { message, blobs });
        }
    }

    fn open_tool(&mut self, turn: Option<TurnId>, call: ToolCall, record: &mut impl FnMut(Op)) {
        if self.tools.contains_key(&call.id) || self.ended.contains_key(&call.id) {
            return;
        }
        if self.tools.len() >= OPEN_TOOLS_MAX
            && let Some(oldest) = self.tools.iter().min_by_key(|(_, tool)| tool.order).map(|(id, _)| id.clone())
            && let Some(tool) = self.tools.remove(&oldest)
        {
            record(tool.result("pending", Some("too many tool calls are open at once".to_owned())));
        }
        let id = call.id.clone();
        let name = call.name.clone().or_else(|| call.title.clone()).unwrap_or_default();
        let content = Content::ToolCall {
            id: id.clone(),
            title: call.title.clone().filter(|title| *title != name),
            name,
            kind: call.kind.clone().unwrap_or_else(|| "other".to_owned()),
            arguments: call.raw_input.clone().unwrap_or(Value::Null),
            locations: call.locations.iter().flatten().take(LOCATIONS_MAX).cloned().collect(),
        };
        let message = MessageId::new();
        record(Op::Message(NewMessage::new(message, turn, Role::ToolCall, &content).of_tool_call(id.clone())));
        self.tools_begun += 1;
        self.tools.insert(id, OpenTool { order: self.tools_begun, message, turn, call });
    }

    /// The agent's own JSON, unless it is too large to keep, or nested too deep; then a marker of its kind in its place.
    pub fn capped(&self, raw: &RawValue) -> Box<RawValue> {
        if raw.get().len() <= self.payload_bytes_max && is_shallow(raw.get()) {
            return raw.to_owned();
        }
        let kind = update::kind_of(raw).unwrap_or_default();
        let marker = serde_json::json!({ "sessionUpdate": kind, "truncated": true, "bytes": raw.get().len() });
        serde_json::value::to_raw_value(&marker).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    fn capped_value(&self, value: Value) -> Value {
        let text = serde_json::to_string(&value).unwrap_or_default();
        let is_kept = text.len() <= self.payload_bytes_max && is_shallow(&text);
        if is_kept { value } else { serde_json::json!({ "truncated": true, "bytes": text.len() }) }
    }
}

impl OpenTool {
    /// What is absent in a change is as before; collections are replaced.
    fn merge(&mut self, change: ToolCall) {
        let ToolCall { id: _, name, title, kind, status, raw_input, raw_output, content, locations } = change;
        let call = &mut self.call;
        call.name = name.or(call.name.take());
        call.title = title.or(call.title.take());
        call.kind = kind.or(call.kind.take());
        call.status = status.or(call.status.take());
        call.raw_input = raw_input.or(call.raw_input.take());
        call.raw_output = raw_output.or(call.raw_output.take());
        call.locations = locations.or(call.locations.take());
        call.content = content.or(call.content.take());
    }

    fn result(self, status: &str, error: Option<String>) -> Op {
        let error = error.or_else(|| (status == "failed").then(|| self.call.failure()));
        let ToolCall { id, content, raw_output, .. } = self.call;
        let shown = content.filter(|content| content.as_array().is_none_or(|items| !items.is_empty()));
        let (result, raw_output) = match shown {
            Some(shown) => (shown, raw_output.filter(|raw| raw.is_object() || raw.is_array())),
            None => (raw_output.unwrap_or(Value::Null), None),
        };
        let content = Content::ToolResult { status: status.to_owned(), result, raw_output, error };
        let message = NewMessage::new(MessageId::new(), self.turn, Role::ToolResult, &content);
        Op::Message(message.of_tool_call(id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::Secrets;
    use crate::config::{ByteSize, Config};

    const PAYLOAD_MAX: usize = 280;
    const MEDIA_MAX: usize = 300;

    /// Runs updates through a transcript and shows what is recorded, a line each.
    fn record(updates: &[Value], partial: bool) -> String {
        let mut limits = Config::default().limits;
        (limits.payload_max, limits.media_max) = (ByteSize(PAYLOAD_MAX), ByteSize(MEDIA_MAX));
        let mut transcript = Transcript::new(&limits, Arc::<Secrets>::default().of(None), Adapter::Generic);
        let mut lines = Vec::new();
        let mut record = |op: Op| lines.push(show(&op));
        for update in updates {
            let raw = serde_json::value::to_raw_value(update).unwrap();
            transcript.update(None, &raw, &mut record);
        }
        transcript.close(partial, &mut record);
        lines.join("\n")
    }

    fn show(op: &Op) -> String {
        match op {
            Op::Message(message) => {
                format!("message {} {}", message.role, serde_json::to_string(&message.content).unwrap())
            }
            Op::Event { body: EventBody::MessageDelta { kind, text, .. }, .. } => format!("delta {kind:?} {text}"),
            Op::Event { body, .. } => format!("event {} {}", body.kind(), serde_json::to_string(body).unwrap()),
            Op::KeepMedia { blobs, .. } => format!("media {}", blobs.len()),
            other => panic!("a transcript records messages, media and events only, not {other:?}"),
        }
    }

    fn text(text: &str) -> Value {
        serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
    }

    #[test]
    fn text_becomes_a_message_when_something_else_follows() {
        let updates = [
            serde_json::json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
            text("Hello "),
            text("world"),
            serde_json::json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "a.txt", "kind": "read",
                "status": "in_progress", "rawInput": {"path": "a.txt"}}),
            serde_json::json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
                "content": [{"type": "content", "content": {"type": "text", "text": "line"}}]}),
            text("done"),
            serde_json::json!({"sessionUpdate": "plan",
                "entries": [{"content": "look", "priority": "high", "status": "completed"}]}),
            serde_json::json!({"sessionUpdate": "brand_new", "x": 1}),
        ];
        insta::assert_snapshot!(record(&updates, false));
    }

    #[test]
    fn a_turn_that_is_cut_off_keeps_what_there_was() {
        let updates = [
            serde_json::json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "rm x", "kind": "execute",
                "status": "in_progress"}),
            text("half an ans"),
        ];
        insta::assert_snapshot!(record(&updates, true));
    }

    fn image(bytes: usize) -> Value {
        let data = content::encoded(&vec![7; bytes]);
        serde_json::json!({"type": "image", "mimeType": "image/png", "data": data})
    }

    #[test]
    fn media_is_a_message_that_names_its_data() {
        let chunk = |content: Value| serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": content});
        let link = serde_json::json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"});
        let updates = [
            text("look:"),
            chunk(image(MEDIA_MAX)),
            chunk(link),
            chunk(image(MEDIA_MAX + 1)),
            chunk(serde_json::json!({"type": "image", "mimeType": "image/png", "data": "?"})),
            serde_json::json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "shot", "kind": "read",
                "status": "completed", "content": [{"type": "content", "content": image(3)}]}),
        ];
        insta::assert_snapshot!(record(&updates, false));
    }

    #[test]
    fn a_tools_media_has_the_bound_of_media_and_is_kept_with_each_change_that_has_some() {
        let call = |id: &str, status: &str, bytes: usize| {
            serde_json::json!({"sessionUpdate": "tool_call", "toolCallId": id, "status": status,
                "rawOutput": {"of": [image(bytes)]}})
        };
        let recorded = |updates: &[Value], beginning: &str| -> Vec<bool> {
            let recorded = record(updates, false);
            let lines = recorded.lines().filter(|line| line.starts_with(beginning));
            lines.map(|line| !line.contains("truncated") && !line.contains(&content::encoded(&[7; 9]))).collect()
        };
        let updates = [call("a", "completed", MEDIA_MAX), call("b", "completed", MEDIA_MAX + 1)];
        assert_eq!(recorded(&updates, "message tool_result"), [true, false]);
        let updates =
            [call("a", "pending", 10), call("a", "pending", 11), call("a", "failed", 12), call("a", "failed", 13)];
        assert_eq!(recorded(&updates, "event tool."), [true; 4], "also of a call that has ended");
        assert_eq!(recorded(&updates, "media 1"), [true; 4]);
    }

    #[test]
    fn what_is_too_large_is_marked_and_text_is_split() {
        let large = "x".repeat(PAYLOAD_MAX);
        let updates = [
            serde_json::json!({"sessionUpdate": "brand_new", "payload": large}),
            text(&"a".repeat(PAYLOAD_MAX - 1)),
            text("bb"),
        ];
        let recorded = record(&updates, false);
        assert!(recorded.contains(r#""sessionUpdate":"brand_new","truncated":true"#), "{recorded}");
        assert_eq!(recorded.matches("message agent").count(), 2, "{recorded}");
    }
}
