//! The newest events of a log, in memory, for those who follow it closely.
//!
//! Every tail is the end of its log without a gap: what is after its floor is in it. All tails together are bounded; the
//! oldest event in any of them goes first, and whoever has not read it yet reads it from the store.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::store::{EventScope, StoredEvent};

/// Bytes that an event is reckoned to cost beside its data.
const EVENT_BYTES: usize = 256;

/// A committed event, shared by all who follow its log.
#[derive(Debug)]
pub struct Logged {
    pub event: StoredEvent,
    /// What goes over the wire, made by whoever needs it first.
    frame: OnceLock<Bytes>,
}

impl Logged {
    pub fn new(event: StoredEvent) -> Arc<Self> {
        Arc::new(Self { event, frame: OnceLock::new() })
    }

    pub fn frame(&self, make: impl FnOnce(&StoredEvent) -> Bytes) -> &Bytes {
        self.frame.get_or_init(|| make(&self.event))
    }

    /// Where it is in the log that is followed.
    pub fn cursor(&self, scope: EventScope) -> i64 {
        match scope {
            EventScope::Session(_) => self.event.sequence,
            EventScope::Owner(_) | EventScope::All => self.event.id,
        }
    }

    fn weight(&self) -> usize {
        // The data are in the event and, once somebody follows, in the frame.
        EVENT_BYTES + 2 * self.event.data.get().len()
    }
}

/// The end of one log.
#[derive(Debug)]
pub struct Tail {
    scope: EventScope,
    /// Everything after this is here, once there is anything.
    floor: i64,
    events: VecDeque<Arc<Logged>>,
}

impl Tail {
    pub fn new(scope: EventScope) -> Self {
        Self { scope, floor: 0, events: VecDeque::new() }
    }

    fn push(&mut self, event: Arc<Logged>) {
        // One that was filled before goes on from where it was emptied.
        if self.events.is_empty() && self.floor == 0 {
            self.floor = event.cursor(self.scope) - 1;
        }
        self.events.push_back(event);
    }

    /// Lets go of what is at or before the cursor.
    pub fn forget(&mut self, cursor: i64) {
        while self.events.front().is_some_and(|event| event.cursor(self.scope) <= cursor) {
            self.events.pop_front();
            self.floor = cursor;
        }
    }

    /// What follows the cursor, up to the bounds but never nothing; or that the tail does not reach back that far.
    pub fn after(&self, cursor: i64, events_max: usize, bytes_max: usize) -> Option<Vec<Arc<Logged>>> {
        if cursor < self.floor {
            return None;
        }
        let start = self.events.partition_point(|event| event.cursor(self.scope) <= cursor);
        let mut bytes = 0;
        let page: Vec<Arc<Logged>> = self
            .events
            .range(start..)
            .take(events_max)
            .take_while(|event| {
                let is_first = bytes == 0;
                bytes += event.event.data.get().len();
                is_first || bytes <= bytes_max
            })
            .cloned()
            .collect();
        (!page.is_empty()).then_some(page)
    }
}

/// What all tails together hold, oldest first.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    bytes: usize,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    scope: EventScope,
    cursor: i64,
    bytes: usize,
}

impl Budget {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, held: VecDeque::new() }
    }

    pub fn push(&mut self, tail: &mut Tail, event: &Arc<Logged>) {
        let (scope, cursor, bytes) = (tail.scope, event.cursor(tail.scope), event.weight());
        tail.push(Arc::clone(event));
        self.bytes += bytes;
        self.held.push_back(Held { scope, cursor, bytes });
    }

    /// Has the oldest events taken out of their tails until the rest is within the budget. A tail that is gone has let go
    /// of its events already, and they are only struck off the books.
    pub fn enforce(&mut self, mut forget: impl FnMut(EventScope, i64)) {
        while self.bytes > self.bytes_max
            && let Some(Held { scope, cursor, bytes }) = self.held.pop_front()
        {
            self.bytes -= bytes;
            forget(scope, cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::model::{SessionId, Timestamp};

    const BYTES_MAX: usize = 10 * EVENT_BYTES;

    fn event(session: SessionId, sequence: i64) -> Arc<Logged> {
        Logged::new(StoredEvent {
            id: sequence * 10,
            session,
            sequence,
            turn: None,
            kind: "turn.started".into(),
            data: RawValue::from_string("{}".to_owned()).unwrap(),
            message: None,
            created_at: Timestamp::from_millis(0),
        })
    }

    fn sequences(page: Option<Vec<Arc<Logged>>>) -> Option<Vec<i64>> {
        page.map(|page| page.iter().map(|event| event.event.sequence).collect())
    }

    #[test]
    fn a_tail_has_all_that_follows_its_floor_and_tells_when_it_does_not() {
        let session = SessionId::new();
        let (mut tail, mut budget) = (Tail::new(EventScope::Session(session)), Budget::new(BYTES_MAX));
        assert_eq!(sequences(tail.after(0, 10, 1000)), None, "nothing is known of the log yet");
        for sequence in 5..=7 {
            budget.push(&mut tail, &event(session, sequence));
        }
        assert_eq!(sequences(tail.after(3, 10, 1000)), None, "4 is not here");
        assert_eq!(sequences(tail.after(4, 10, 1000)), Some(vec![5, 6, 7]));
        assert_eq!(sequences(tail.after(4, 2, 1000)), Some(vec![5, 6]));
        assert_eq!(sequences(tail.after(4, 10, 5)), Some(vec![5, 6]), "each has 2 bytes");
        assert_eq!(sequences(tail.after(4, 10, 1)), Some(vec![5]), "never nothing when there is something");
        assert_eq!(sequences(tail.after(7, 10, 1000)), None);
    }

    #[test]
    fn the_oldest_go_first_whosever_they_are_and_the_budget_holds() {
        let (first, second) = (SessionId::new(), SessionId::new());
        let mut tails = [Tail::new(EventScope::Session(first)), Tail::new(EventScope::Session(second))];
        let mut budget = Budget::new(BYTES_MAX);
        for sequence in 1..=20 {
            for (tail, session) in tails.iter_mut().zip([first, second]) {
                budget.push(tail, &event(session, sequence));
            }
            budget.enforce(|scope, cursor| {
                tails.iter_mut().filter(|tail| tail.scope == scope).for_each(|tail| tail.forget(cursor));
            });
            assert!(budget.bytes <= BYTES_MAX);
        }
        let held: usize = tails.iter().map(|tail| tail.events.len()).sum();
        assert_eq!(held, budget.held.len());
        assert!(held >= 8, "{held}");
        for tail in &tails {
            assert_eq!(sequences(tail.after(19, 10, 1000)), Some(vec![20]), "the newest are here");
            assert_eq!(sequences(tail.after(1, 10, 1000)), None, "the oldest are not");
        }
    }
}
