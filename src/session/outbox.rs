//! The outbox: what the actor wants recorded, and what it does once that is committed.
//!
//! At most one unit is under way to the writer. While it is, further operations gather: adjacent text deltas of one message
//! merge, and so do changes of one tool call that nobody has seen yet. So a session that floods writes larger units
//! instead of more of them, and because a unit of mere output is bounded, its share of a batch stays fair. For the same reason
//! output that follows output rests for a moment before it is sent; what comes after a silence, and what anybody waits for,
//! does not. When too much has gathered, the actor stops reading from its agent: output is held back, never shed.

use std::pin::Pin;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::hub::Hub;
use crate::model::{EventBody, SessionId, TurnId};
use crate::store::{Committed, Op, StoreError, Unit};

/// Gathered bytes from which on the agent is held back.
const GATHERED_BYTES_MAX: usize = 512 << 10;
/// Bytes of output in one unit.
const UNIT_BYTES_MAX: usize = 128 << 10;
/// A delta grows no larger than this by merging.
const DELTA_BYTES_MAX: usize = 32 << 10;
/// How long output gathers after a unit of output was sent. A unit is a transaction, and wakes the writer, the actor and
/// everybody who follows: an agent that floods would make thousands of them, for a few dozen words each.
const OUTPUT_REST: Duration = Duration::from_millis(1);

type Commit = Pin<Box<dyn Future<Output = Result<Committed, StoreError>> + Send>>;

/// Something to do after the commit of the operations before it.
struct Then<A> {
    /// The number of its own first operation.
    mark: usize,
    /// How many operations must be committed before it.
    end: usize,
    action: A,
}

/// A unit that was committed, or was not.
pub struct Outcome<A> {
    pub result: Result<Committed, StoreError>,
    /// What is to be done now, each with the number of its first operation in the unit.
    pub then: Vec<(usize, A)>,
}

/// `A` is what the actor does after a commit.
pub struct Outbox<A> {
    session: SessionId,
    owner: Option<u32>,
    hub: Hub,
    gathered: Vec<Op>,
    gathered_bytes: usize,
    then: Vec<Then<A>>,
    under_way: Option<(Commit, Vec<(usize, A)>)>,
    /// Until when output gathers, when the last unit was nothing else.
    rests_until: Option<Instant>,
}

impl<A> Outbox<A> {
    pub fn new(session: SessionId, owner: Option<u32>, hub: Hub) -> Self {
        Self {
            session,
            owner,
            hub,
            gathered: Vec::new(),
            gathered_bytes: 0,
            then: Vec::new(),
            under_way: None,
            rests_until: None,
        }
    }

    pub fn push(&mut self, op: Op) {
        let Some(op) = self.merged(op) else { return };
        self.gathered_bytes += op.weight();
        self.gathered.push(op);
    }

    /// Merges the operation into one that waits, or gives it back.
    fn merged(&mut self, op: Op) -> Option<Op> {
        match &op {
            Op::Event { turn, body: EventBody::MessageDelta { message_id, text, .. } } => {
                if let Some(Op::Event {
                    turn: last_turn,
                    body: EventBody::MessageDelta { message_id: last_id, text: last, .. },
                }) = self.gathered.last_mut()
                    && (&*last_turn, &*last_id) == (turn, message_id)
                    && last.len() + text.len() <= DELTA_BYTES_MAX
                {
                    last.push_str(text);
                    self.gathered_bytes += text.len();
                    return None;
                }
            }
            Op::Event { turn, body: EventBody::ToolUpdated { tool_call_id, update } } => {
                if let Some(pending) = self.pending_tool_update(*turn, tool_call_id)
                    && let Some(both) = overlaid(pending, update)
                {
                    let (before, after) = (pending.get().len(), both.get().len());
                    *pending = both;
                    self.gathered_bytes = self.gathered_bytes + after - before;
                    return None;
                }
            }
            _ => {}
        }
        Some(op)
    }

    /// The change of a tool call that waits, when nothing but such changes came after it.
    fn pending_tool_update(&mut self, turn: Option<TurnId>, id: &str) -> Option<&mut Box<RawValue>> {
        self.gathered
            .iter_mut()
            .rev()
            .map_while(|op| match op {
                Op::Event { turn, body: EventBody::ToolUpdated { tool_call_id, update } } => {
                    Some((*turn, &*tool_call_id, update))
                }
                _ => None,
            })
            .find(|(of_turn, tool_call_id, _)| *of_turn == turn && *tool_call_id == id)
            .map(|(_, _, update)| update)
    }

    /// The number of the next operation that is pushed.
    pub fn mark(&self) -> usize {
        self.gathered.len()
    }

    /// Does `action` after everything that was pushed so far is committed. `mark` is where its own operations begin.
    pub fn then(&mut self, mark: usize, action: A) {
        self.then.push(Then { mark, end: self.gathered.len(), action });
    }

    pub fn is_full(&self) -> bool {
        self.gathered_bytes >= GATHERED_BYTES_MAX
    }

    /// Whether mere output has gathered, which nobody waits for, and less than goes into one unit.
    pub fn has_room_for_output(&self) -> bool {
        self.then.is_empty() && self.gathered_bytes < UNIT_BYTES_MAX && self.gathered.iter().all(Op::is_output)
    }

    /// Until when what has gathered waits for more of its kind. None while a unit is under way, whose end comes first.
    pub fn rests_until(&self) -> Option<Instant> {
        let may_rest = self.under_way.is_none() && !self.gathered.is_empty() && self.has_room_for_output();
        self.rests_until.filter(|_| may_rest)
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.gathered.is_empty() && self.then.is_empty()
    }

    /// What was to be done after operations that will not be committed any more.
    pub fn abandon(&mut self) -> Vec<A> {
        std::mem::take(&mut self.then).into_iter().map(|then| then.action).collect()
    }

    /// Sends what has gathered on its way, when nothing else is.
    pub fn flush(&mut self) {
        if self.under_way.is_some() || (self.gathered.is_empty() && self.then.is_empty()) {
            return;
        }
        let count = self.unit_length();
        let (session, owner, hub) = (self.session, self.owner, self.hub.clone());
        let ops: Vec<(SessionId, Op)> = self.gathered.drain(..count).map(|op| (session, op)).collect();
        let unit = Unit { catalogue: Vec::new(), ops };
        self.gathered_bytes = self.gathered_bytes.saturating_sub(unit.weight());
        let is_output = !unit.ops.is_empty() && unit.ops.iter().all(|(_, op)| op.is_output());
        self.rests_until = is_output.then(|| Instant::now() + OUTPUT_REST);
        let mut now = Vec::new();
        for then in std::mem::take(&mut self.then) {
            if then.end <= count {
                now.push((then.mark, then.action));
            } else {
                self.then.push(Then { mark: then.mark - count, end: then.end - count, ..then });
            }
        }
        let commit: Commit = Box::pin(async move {
            if unit.ops.is_empty() { Ok(Committed::default()) } else { hub.append(owner, unit).await }
        });
        self.under_way = Some((commit, now));
    }

    /// How many operations go together. Mere output may be parted; what changes a turn, a status or anything else goes with
    /// all that there is, because it belongs together.
    fn unit_length(&self) -> usize {
        let mut bytes = 0;
        for (index, op) in self.gathered.iter().enumerate() {
            if !op.is_output() {
                break;
            }
            bytes += op.weight();
            if bytes > UNIT_BYTES_MAX && index > 0 {
                let parts_an_action = self.then.iter().any(|then| (then.mark + 1..then.end).contains(&index));
                return if parts_an_action { self.gathered.len() } else { index };
            }
        }
        self.gathered.len()
    }

    /// Resolves when the unit under way is committed; never, when there is none. Safe to cancel.
    pub async fn committed(&mut self) -> Outcome<A> {
        let Some((commit, _)) = &mut self.under_way else {
            return std::future::pending().await;
        };
        let result = commit.as_mut().await;
        let then = self.under_way.take().map(|(_, then)| then).unwrap_or_default();
        Outcome { result, then }
    }
}

/// One change of a tool call after another: what the later one says holds, what it leaves out is as before.
fn overlaid(before: &RawValue, after: &RawValue) -> Option<Box<RawValue>> {
    let mut both: Map<String, Value> = serde_json::from_str(before.get()).ok()?;
    let after: Map<String, Value> = serde_json::from_str(after.get()).ok()?;
    both.extend(after);
    to_raw_value(&both).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_change_of_a_tool_call_holds_and_keeps_what_it_leaves_out() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        let both = overlaid(
            &raw(r#"{"toolCallId":"c","title":"a","content":[1,2]}"#),
            &raw(r#"{"toolCallId":"c","status":"in_progress","content":[3]}"#),
        );
        assert_eq!(both.unwrap().get(), r#"{"toolCallId":"c","title":"a","content":[3],"status":"in_progress"}"#);
        assert!(overlaid(&raw("[]"), &raw("{}")).is_none(), "what is no object is left alone");
    }
}
