//! The outbox: what the actor wants recorded, and what it does once that is committed.
//!
//! At most one unit is under way to the writer. While it is, further operations gather, and adjacent text deltas of one
//! message merge; so a session that floods writes larger units instead of more of them, and its share of a batch stays
//! fair. When too much has gathered, the actor stops reading from its agent: output is held back, never shed.

use std::pin::Pin;

use crate::hub::Hub;
use crate::model::{EventBody, SessionId};
use crate::store::{Committed, Op, StoreError, Unit};

/// Gathered bytes from which on the agent is held back.
const GATHERED_BYTES_MAX: usize = 1 << 20;
/// A delta grows no larger than this by merging.
const DELTA_BYTES_MAX: usize = 64 << 10;

type Commit = Pin<Box<dyn Future<Output = Result<Committed, StoreError>> + Send>>;

/// Something to do after the commit of the operations before it. The number is that of its first operation.
type Then<A> = (usize, A);

/// A unit that was committed, or was not.
pub struct Outcome<A> {
    pub result: Result<Committed, StoreError>,
    pub then: Vec<Then<A>>,
}

/// `A` is what the actor does after a commit.
pub struct Outbox<A> {
    session: SessionId,
    hub: Hub,
    gathered: Vec<Op>,
    gathered_bytes: usize,
    then: Vec<Then<A>>,
    under_way: Option<(Commit, Vec<Then<A>>)>,
}

impl<A> Outbox<A> {
    pub fn new(session: SessionId, hub: Hub) -> Self {
        Self { session, hub, gathered: Vec::new(), gathered_bytes: 0, then: Vec::new(), under_way: None }
    }

    pub fn push(&mut self, op: Op) {
        if let Op::Event { turn, body: EventBody::MessageDelta { message_id, text, .. } } = &op
            && let Some(Op::Event {
                turn: last_turn,
                body: EventBody::MessageDelta { message_id: last_id, text: last, .. },
            }) = self.gathered.last_mut()
            && (&*last_turn, &*last_id) == (turn, message_id)
            && last.len() + text.len() <= DELTA_BYTES_MAX
        {
            last.push_str(text);
            self.gathered_bytes += text.len();
            return;
        }
        self.gathered_bytes += op.weight();
        self.gathered.push(op);
    }

    /// The number of the next operation that is pushed.
    pub fn mark(&self) -> usize {
        self.gathered.len()
    }

    /// Does `action` after everything that was pushed so far is committed. `mark` is where its own operations begin.
    pub fn then(&mut self, mark: usize, action: A) {
        self.then.push((mark, action));
    }

    pub fn is_full(&self) -> bool {
        self.gathered_bytes >= GATHERED_BYTES_MAX
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.gathered.is_empty() && self.then.is_empty()
    }

    /// Sends what has gathered on its way, when nothing else is.
    pub fn flush(&mut self) {
        if self.under_way.is_some() || (self.gathered.is_empty() && self.then.is_empty()) {
            return;
        }
        let session = self.session;
        let ops: Vec<(SessionId, Op)> = self.gathered.drain(..).map(|op| (session, op)).collect();
        self.gathered_bytes = 0;
        let hub = self.hub.clone();
        let unit = Unit { catalogue: Vec::new(), ops };
        let commit: Commit =
            Box::pin(
                async move { if unit.ops.is_empty() { Ok(Committed::default()) } else { hub.append(unit).await } },
            );
        self.under_way = Some((commit, std::mem::take(&mut self.then)));
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
