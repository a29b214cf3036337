//! What happened in a session that comes from elsewhere, told as the operations that would have recorded it here.
//!
//! A document has turns and messages; the log has them in one order. A turn is queued before its first message, starts
//! before the first one that is not the user's, and ends after its last. So every number, count and cursor comes out as it
//! does for a session that was here all the time.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::acp::{content, is_shallow};
use crate::config::Limits;
use crate::model::checkpoint::{CHECKPOINTS_MAX, check_name};
use crate::model::export::{ExportedBlob, ExportedCheckpoint};
use crate::model::message::Message;
use crate::model::turn::Turn;
use crate::model::{
    Blob, BlobHash, CheckpointId, Content, ErrorCode, EventBody, MessageId, Role, SessionId, Timestamp, TurnError,
    TurnId, TurnStatus,
};
use crate::session::WAITING_MAX;
use crate::store::{NewCheckpoint, NewMessage, Op};

/// A text has as many bytes again when all of it has to be escaped.
const ESCAPED: usize = 2;
/// What a message's JSON has around its text.
const FRAME_BYTES: usize = 64 << 10;
/// Names that agents give: of tool calls, of models.
const NAME_BYTES_MAX: usize = 4096;
const CUT_OFF: &str = "the turn was still open when its session was exported";

/// A part of a document that makes no sense here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Misfit {
    pub field: String,
    pub problem: String,
}

impl Misfit {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// What a document tells of a session.
#[derive(Debug)]
pub struct Past {
    /// Its id here.
    pub session: SessionId,
    pub turns: Vec<Turn>,
    pub messages: Vec<Message>,
    pub blobs: Vec<ExportedBlob>,
    pub checkpoints: Vec<ExportedCheckpoint>,
}

/// The steps, and what is worth knowing of them.
#[derive(Debug, Default)]
pub struct Story {
    pub steps: Vec<(Timestamp, Op)>,
    /// Turns that were not over.
    pub interrupted: usize,
    /// Media that messages name and the document does not have.
    pub missing: usize,
}

/// Tells the story of a session. `name` gives each message its id here.
pub fn tell(past: Past, limits: &Limits, name: impl Fn(&Message) -> MessageId) -> Result<Story, Misfit> {
    let Past { session, turns, messages, blobs, checkpoints } = past;
    let media = media(&blobs, limits.media_max.0)?;
    let places = turns.iter().enumerate().map(|(index, turn)| (turn.id, index)).collect();
    let lasts = messages.iter().enumerate().filter_map(|(index, message)| Some((message.turn_id?, index))).collect();
    let has_turns = !turns.is_empty();
    let turns = turns.into_iter().map(|turn| Told { turn, is_started: false }).collect();
    let mut waiting = Vec::new();
    let mut teller = Teller { turns, places, lasts, media, queued: 0, open: 0, story: Story::default() };
    for (index, message) in messages.into_iter().enumerate() {
        let id = name(&message);
        let checked = checked(message, limits).map_err(|(field, problem)| {
            let field = format!("messages[{index}].{field}");
            Misfit { field, problem }
        })?;
        if let (false, Role::System, Content::Text { text, .. }) = (has_turns, checked.message.role, &checked.content) {
            waiting.push((checked.message.created_at, id, text.len()));
        }
        teller.message(index, id, checked);
    }
    teller.story.steps.extend(kept(waiting, limits.prompt_max.0));
    teller.queue_through(teller.turns.len());
    for (at, checkpoint) in checked_checkpoints(session, checkpoints, limits)? {
        let steps = &mut teller.story.steps;
        let place = steps.iter().position(|(step, _)| *step > at).unwrap_or(steps.len());
        steps.insert(place, (at, Op::AddCheckpoint(Box::new(checkpoint))));
    }
    Ok(teller.story)
}

/// Without a turn there is no conversation to replay: what the agent was to be told with its first prompt, such as the
/// checkpoint that the session goes on from, waits for that here as it did there. The newest of it, where it is too much.
fn kept(waiting: Vec<(Timestamp, MessageId, usize)>, bytes_max: usize) -> Vec<(Timestamp, Op)> {
    let mut left = bytes_max;
    let newest = waiting.into_iter().rev().take(WAITING_MAX).map_while(|(at, message, bytes)| {
        left = left.checked_sub(bytes)?;
        Some((at, Op::KeepForPrompt(message)))
    });
    newest.collect()
}

fn checked_checkpoints(
    session: SessionId,
    checkpoints: Vec<ExportedCheckpoint>,
    limits: &Limits,
) -> Result<Vec<(Timestamp, NewCheckpoint)>, Misfit> {
    if checkpoints.len() as u64 > CHECKPOINTS_MAX.unsigned_abs() {
        return Err(Misfit::new("checkpoints", format!("are {}; the maximum is {CHECKPOINTS_MAX}", checkpoints.len())));
    }
    let bytes_max = limits.checkpoint_max.0.min(limits.prompt_max.0);
    let mut names = HashSet::new();
    let check = |(index, checkpoint): (usize, ExportedCheckpoint)| {
        let ExportedCheckpoint { name, state, created_at } = checkpoint;
        let wrong = |field: &str, problem: String| Misfit::new(format!("checkpoints[{index}].{field}"), problem);
        check_name(&name).map_err(|problem| wrong("name", problem))?;
        if !names.insert(name.clone()) {
            return Err(wrong("name", "appears twice".to_owned()));
        }
        let state = to_raw_value(&state).map_err(|error| wrong("state", error.to_string()))?;
        let bytes = state.get().len();
        if bytes > bytes_max {
            let problem = format!("has {bytes} bytes; the maximum is {bytes_max} (limits.checkpoint_max)");
            return Err(wrong("state", problem));
        }
        if !is_shallow(state.get()) {
            return Err(wrong("state", "is nested too deeply".to_owned()));
        }
        let id = CheckpointId::derived(created_at, &[&session.to_string(), &name]);
        Ok((created_at, NewCheckpoint { id, name, state, by: None }))
    };
    checkpoints.into_iter().enumerate().map(check).collect()
}

struct Told {
    turn: Turn,
    is_started: bool,
}

struct Teller {
    turns: Vec<Told>,
    places: HashMap<TurnId, usize>,
    /// The last message of each turn.
    lasts: HashMap<TurnId, usize>,
    media: HashMap<BlobHash, Blob>,
    /// Turns before this one are queued already.
    queued: usize,
    /// Of those, the ones that are not over.
    open: usize,
    story: Story,
}

/// A message whose content is understood.
struct Checked {
    message: Message,
    content: Content,
    blobs: Vec<Blob>,
}

impl Teller {
    fn message(&mut self, index: usize, id: MessageId, checked: Checked) {
        let Checked { message, content, mut blobs } = checked;
        let place = message.turn_id.and_then(|turn| self.places.get(&turn).copied());
        if let Some(place) = place {
            self.queue_through(place + 1);
            if message.role != Role::User {
                self.start(place);
            }
        }
        for hash in named_media(&content) {
            match self.media.get(&hash) {
                Some(blob) => blobs.push(blob.clone()),
                None if blobs.iter().any(|blob| blob.hash == hash) => {}
                None => self.story.missing += 1,
            }
        }
        let event = tool_event(&content, message.tool_call_id.as_deref());
        let turn = message.turn_id;
        let mut new = NewMessage::new(id, turn, message.role, &content).by_model(message.model).with_blobs(blobs);
        new.tool_call_id = message.tool_call_id;
        let (at, is_result) = (message.created_at, message.role == Role::ToolResult);
        let message = (at, Op::Message(new));
        let event = event.map(|body| (at, Op::Event { turn, body }));
        // A call is recorded when it begins, and its result when it is over.
        match (is_result, event) {
            (true, Some(event)) => self.story.steps.extend([event, message]),
            (false, Some(event)) => self.story.steps.extend([message, event]),
            (_, None) => self.story.steps.push(message),
        }
        if let Some(place) = place.filter(|_| turn.is_some_and(|turn| self.lasts.get(&turn) == Some(&index))) {
            self.finish(place, at);
        }
    }

    /// Queues all turns before this place. One without a message is over at once.
    fn queue_through(&mut self, end: usize) {
        while self.queued < end {
            let place = self.queued;
            self.queued += 1;
            let (turn, at) = (self.turns[place].turn.id, self.turns[place].turn.queued_at);
            self.push(at, Op::QueueTurn { turn, position: self.open, by: None });
            self.open += 1;
            if !self.lasts.contains_key(&turn) {
                self.finish(place, at);
            }
        }
    }

    fn start(&mut self, place: usize) {
        let Told { turn, is_started } = &mut self.turns[place];
        if !std::mem::replace(is_started, true) {
            let (turn, at) = (turn.id, turn.started_at.unwrap_or(turn.queued_at));
            self.push(at, Op::StartTurn { turn });
        }
    }

    /// Ends a turn, at its own time or at `last`.
    fn finish(&mut self, place: usize, last: Timestamp) {
        let turn = self.turns[place].turn.clone();
        let (status, error) = if turn.status.is_final() {
            (turn.status, turn.error)
        } else {
            self.story.interrupted += 1;
            (TurnStatus::Interrupted, Some(TurnError::new(ErrorCode::Interrupted, CUT_OFF)))
        };
        // Only some ends need no beginning.
        if turn.started_at.is_some() || !TurnStatus::Queued.may_become(status) {
            self.start(place);
        }
        let (stop_reason, usage) = (turn.stop_reason, turn.usage);
        let at = turn.finished_at.unwrap_or(last);
        self.push(at, Op::FinishTurn { turn: turn.id, status, stop_reason, error, usage, at: None });
        self.open -= 1;
    }

    fn push(&mut self, at: Timestamp, op: Op) {
        self.story.steps.push((at, op));
    }
}

/// The document's media by its hash, which was compared when the document was read.
fn media(blobs: &[ExportedBlob], bytes_max: usize) -> Result<HashMap<BlobHash, Blob>, Misfit> {
    let mut media = HashMap::new();
    for (index, exported) in blobs.iter().enumerate() {
        let misfit = |problem: String| Misfit::new(format!("blobs[{index}].data"), problem);
        let blob = exported.blob().map_err(misfit)?;
        if blob.data.len() > bytes_max {
            let problem = format!("has {} bytes; the maximum is {bytes_max} (limits.media_max)", blob.data.len());
            return Err(misfit(problem));
        }
        media.insert(blob.hash, blob);
    }
    Ok(media)
}

fn checked(message: Message, limits: &Limits) -> Result<Checked, (String, String)> {
    let (bytes, largest) = (message.content.get().len(), limits.prompt_max.0.max(limits.payload_max.0));
    let bytes_max = largest.saturating_mul(ESCAPED).saturating_add(FRAME_BYTES);
    if bytes > bytes_max {
        let problem = format!("has {bytes} bytes; the maximum is {bytes_max} (limits.prompt_max, limits.payload_max)");
        return Err(("content".to_owned(), problem));
    }
    for (field, name) in [("toolCallId", &message.tool_call_id), ("model", &message.model)] {
        if name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err((field.to_owned(), format!("is longer than {NAME_BYTES_MAX} bytes")));
        }
    }
    let mut content: Content = serde_json::from_str(message.content.get())
        .map_err(|error| ("content".to_owned(), format!("is not valid message content: {error}")))?;
    let mut blobs = Vec::new();
    if let Content::Blocks { blocks } = &mut content {
        for (index, block) in blocks.iter_mut().enumerate() {
            let wrong = |problem: String| (format!("content.blocks[{index}]"), problem);
            content::kind(block).ok_or_else(|| wrong("is not a known kind of content block".to_owned()))?;
            blobs.extend(content::detach(block, limits.media_max.0).map_err(wrong)?);
        }
    }
    Ok(Checked { message, content, blobs })
}

/// The media that a content names, in its blocks or deep in what a tool gave back.
fn named_media(content: &Content) -> BTreeSet<BlobHash> {
    fn collect(value: &Value, found: &mut BTreeSet<BlobHash>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => {
                let hash = fields.get("sha256").filter(|_| fields.contains_key("size")).and_then(Value::as_str);
                found.extend(hash.and_then(|hash| hash.parse::<BlobHash>().ok()));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    match content {
        Content::Blocks { blocks } => blocks.iter().for_each(|block| collect(block, &mut found)),
        Content::ToolResult { result, .. } => collect(result, &mut found),
        Content::Text { .. }
        | Content::Thought { .. }
        | Content::Plan { .. }
        | Content::ToolCall { .. }
        | Content::Notice { .. } => {}
    }
    found
}

/// Whoever follows a session hears of its tools by events. What went in and came out is in the messages.
fn tool_event(content: &Content, call: Option<&str>) -> Option<EventBody> {
    match content {
        Content::ToolCall { id, name, kind, .. } => {
            let update = json!({ "sessionUpdate": "tool_call", "toolCallId": id, "title": name, "kind": kind });
            Some(EventBody::ToolStarted { tool_call_id: id.clone(), update: to_raw_value(&update).ok()? })
        }
        Content::ToolResult { status, .. } => {
            let tool_call_id = call?.to_owned();
            let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, "status": status });
            Some(EventBody::ToolCompleted { tool_call_id, status: status.clone(), update: to_raw_value(&update).ok()? })
        }
        Content::Text { .. }
        | Content::Thought { .. }
        | Content::Blocks { .. }
        | Content::Plan { .. }
        | Content::Notice { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    fn turn(id: TurnId, status: TurnStatus, started: bool) -> Turn {
        let at = Timestamp::from_millis(1000);
        Turn {
            id,
            session_id: SessionId::new(),
            status,
            stop_reason: None,
            error: None,
            usage: None,
            queued_at: at,
            started_at: started.then_some(at),
            finished_at: None,
        }
    }

    fn message(turn_id: Option<TurnId>, role: Role) -> Message {
        Message {
            id: MessageId::new(),
            session_id: SessionId::new(),
            sequence: 1,
            turn_id,
            role,
            content: to_raw_value(&Content::text("x")).unwrap(),
            tool_call_id: None,
            model: None,
            by: None,
            created_at: Timestamp::from_millis(2000),
        }
    }

    fn told(turns: Vec<Turn>, messages: Vec<Message>) -> Story {
        let (session, blobs, checkpoints) = (SessionId::new(), Vec::new(), Vec::new());
        let past = Past { session, turns, messages, blobs, checkpoints };
        tell(past, &Config::default().limits, |message| message.id).unwrap()
    }

    /// The steps, each with the number of its turn.
    fn words(story: &Story, ids: &[TurnId]) -> Vec<String> {
        let number = |id: &TurnId| ids.iter().position(|known| known == id).unwrap();
        let word = |(_, op): &(Timestamp, Op)| match op {
            Op::QueueTurn { turn, position, .. } => format!("queue {} at {position}", number(turn)),
            Op::StartTurn { turn } => format!("start {}", number(turn)),
            Op::FinishTurn { turn, status, .. } => format!("{status} {}", number(turn)),
            Op::Message(new) => new.role.to_string(),
            other => panic!("{other:?}"),
        };
        story.steps.iter().map(word).collect()
    }

    #[test]
    fn a_prompt_that_waited_is_told_where_it_came() {
        let ids = [TurnId::new(), TurnId::new(), TurnId::new()];
        let turns = vec![
            turn(ids[0], TurnStatus::Completed, true),
            turn(ids[1], TurnStatus::Cancelled, false),
            turn(ids[2], TurnStatus::Queued, false),
        ];
        let messages = vec![
            message(None, Role::System),
            message(Some(ids[0]), Role::User),
            message(Some(ids[1]), Role::User),
            message(Some(ids[0]), Role::Agent),
        ];
        let story = told(turns, messages);
        let expected = [
            "system",
            "queue 0 at 0",
            "user",
            "queue 1 at 1",
            "user",
            "cancelled 1",
            "start 0",
            "agent",
            "completed 0",
            "queue 2 at 0",
            "start 2",
            "interrupted 2",
        ];
        assert_eq!(words(&story, &ids), expected);
        assert_eq!((story.interrupted, story.missing), (1, 0));
    }

    proptest! {
        /// Whatever the order, every turn is queued, started and finished once, in this order, and no change is one that its
        /// status does not allow.
        #[test]
        fn every_turn_goes_forward_once(
            statuses in proptest::collection::vec((0_usize..6, any::<bool>()), 0..6),
            of in proptest::collection::vec((0_usize..8, any::<bool>()), 0..24),
        ) {
            const ALL: [TurnStatus; 6] = [TurnStatus::Queued, TurnStatus::Running, TurnStatus::Completed,
                TurnStatus::Failed, TurnStatus::Cancelled, TurnStatus::Interrupted];
            let ids: Vec<TurnId> = statuses.iter().map(|_| TurnId::new()).collect();
            let turns = statuses.iter().zip(&ids).map(|((status, started), id)| turn(*id, ALL[*status], *started));
            let role = |is_user| if is_user { Role::User } else { Role::Agent };
            let messages: Vec<Message> =
                of.iter().map(|(place, is_user)| message(ids.get(*place).copied(), role(*is_user))).collect();
            let count = messages.len();
            let story = told(turns.collect(), messages);
            let mut now: HashMap<TurnId, TurnStatus> = HashMap::new();
            let mut said = 0;
            for (_, op) in &story.steps {
                match op {
                    Op::QueueTurn { turn, .. } => prop_assert!(now.insert(*turn, TurnStatus::Queued).is_none()),
                    Op::StartTurn { turn } => {
                        prop_assert_eq!(now.insert(*turn, TurnStatus::Running), Some(TurnStatus::Queued));
                    }
                    Op::FinishTurn { turn, status, .. } => {
                        let before = now.insert(*turn, *status).unwrap();
                        prop_assert!(before.may_become(*status), "{before} {status}");
                    }
                    Op::Message(_) => said += 1,
                    other => panic!("{other:?}"),
                }
            }
            prop_assert_eq!(said, count);
            prop_assert!(now.len() == ids.len() && now.values().all(|status| status.is_final()));
        }
    }
}
