//! The hub: append through the store, then tell subscribers how far the log reaches.
//!
//! Nobody sees an event before its row is committed: what is published is a number, not an event. Replay, live tail,
//! reconnect and a slow client are one piece of code ([`Subscription::next`]): read after my cursor, hand out, wait.
//! A slow subscriber holds a cursor and the page that it has not taken yet; it holds nobody up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::model::SessionId;
use crate::store::{Committed, EventScope, Head, Store, StoreError, StoreOptions, StoredEvent, Unit, Writer};

/// Events handed out at a time.
const PAGE_EVENTS: i64 = 512;
/// Watched sessions from which on those that nobody watches any more are forgotten.
const WATCHED_MAX: usize = 1024;

/// The reach of a log before the first commit that anybody watched.
const UNKNOWN: i64 = 0;

/// How far a log is known to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    cursor: i64,
    /// Nothing will follow.
    ended: bool,
}

/// Where subscribers wait. A session has an entry only while somebody watches it.
#[derive(Debug, Default)]
struct Reaches {
    sessions: Mutex<HashMap<SessionId, watch::Sender<Reach>>>,
    all: watch::Sender<Reach>,
}

#[derive(Clone, Debug)]
pub struct Hub {
    store: Store,
    writer: Arc<Writer>,
    reaches: Arc<Reaches>,
}

impl Hub {
    pub async fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        let reaches = Arc::new(Reaches::default());
        let published = Arc::clone(&reaches);
        let (store, writer) = Store::open(options, move |heads| published.publish(heads)).await?;
        Ok(Self { store, writer: Arc::new(writer), reaches })
    }

    /// The record, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Resolves when the unit is committed and its events can be seen.
    pub async fn append(&self, unit: Unit) -> Result<Committed, StoreError> {
        self.writer.append(unit).await
    }

    /// Follows a log from after `cursor`.
    pub fn subscribe(&self, scope: EventScope, cursor: i64) -> Subscription {
        let reach = match scope {
            EventScope::All => self.reaches.all.subscribe(),
            EventScope::Session(session) => self.reaches.watch(session),
        };
        Subscription { store: self.store.clone(), scope, cursor, reach }
    }

    /// Lets every stream end with the last event. To be called when nobody appends any more.
    pub async fn end_streams(&self) {
        // An empty unit waits for everything before it, which is then committed, or never will be.
        if let Err(error) = self.writer.append(Unit::default()).await {
            tracing::error!(error = &error as &dyn std::error::Error, "the end of the log could not be written");
        }
        self.reaches.end();
    }

    /// Closes the store: the readers first, so that the writer leaves one file without a write-ahead log.
    pub async fn close(&self) {
        self.store.close().await;
        self.writer.close().await;
    }
}

impl Reaches {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<Reach>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, session: SessionId) -> watch::Receiver<Reach> {
        let mut sessions = self.lock();
        if sessions.len() >= WATCHED_MAX {
            sessions.retain(|_, reach| reach.receiver_count() > 0);
        }
        // Whoever comes when the streams have ended gets what there is, and the end.
        let ended = self.all.borrow().ended;
        sessions.entry(session).or_insert_with(|| watch::Sender::new(Reach { cursor: UNKNOWN, ended })).subscribe()
    }

    fn publish(&self, heads: &[Head]) {
        let mut sessions = self.lock();
        for head in heads {
            let Some(reach) = sessions.get(&head.session) else {
                continue;
            };
            reach.send_modify(|reach| *reach = Reach { cursor: head.sequence, ended: head.purged });
            if head.purged || reach.receiver_count() == 0 {
                sessions.remove(&head.session);
            }
        }
        drop(sessions);
        if let Some(cursor) = heads.iter().map(|head| head.cursor).max() {
            self.all.send_if_modified(|reach| {
                let further = reach.cursor < cursor;
                reach.cursor = reach.cursor.max(cursor);
                further
            });
        }
    }

    fn end(&self) {
        let sessions = self.lock();
        self.all.send_modify(|reach| reach.ended = true);
        for reach in sessions.values() {
            reach.send_modify(|reach| reach.ended = true);
        }
    }
}

/// One reader of a log.
#[derive(Debug)]
pub struct Subscription {
    store: Store,
    scope: EventScope,
    cursor: i64,
    reach: watch::Receiver<Reach>,
}

impl Subscription {
    /// The next events, without a gap, or `None` when nothing will follow. Waits when there are none yet.
    pub async fn next(&mut self) -> Result<Option<Vec<StoredEvent>>, StoreError> {
        loop {
            // The reach is taken before the read: whatever is committed during the read is seen as a change after it.
            let Reach { cursor: reach, ended } = *self.reach.borrow_and_update();
            if reach == UNKNOWN || reach > self.cursor {
                let events = self.page().await?;
                if !events.is_empty() {
                    return Ok(Some(events));
                }
            }
            if ended || self.reach.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Goes back to the beginning of the log.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// The next events that are there now; none at the tail.
    pub async fn page(&mut self) -> Result<Vec<StoredEvent>, StoreError> {
        let events = self.store.events(self.scope, self.cursor, PAGE_EVENTS).await?;
        if let Some(last) = events.last() {
            self.cursor = match self.scope {
                EventScope::Session(_) => last.sequence,
                EventScope::All => last.id,
            };
        }
        Ok(events)
    }
}
