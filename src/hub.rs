//! The hub: append through the store, then tell subscribers how far the log reaches.
//!
//! Nobody sees an event before its row is committed: what is published is a number, with the events that it covers kept at
//! hand for a while ([`tail`]). Replay, live tail, reconnect and a slow client are one piece of code
//! ([`Subscription::next`]): read after my cursor, from the tail where it reaches back that far and from the store where it
//! does not; hand out, wait. A slow subscriber holds a cursor and the page that it has not taken yet; it holds nobody up.

mod redaction;
mod tail;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch::{self, Receiver};

use crate::agent::{OwnerSecrets, Secrets};
use crate::metrics::Metrics;
use crate::model::{SessionId, Sight};
use crate::store::{
    Appended, Audience, Committed, EventScope, Goal, Head, Store, StoreError, StoreOptions, StoredEvent, Unit, Upkeep,
    Writer,
};
use tail::{Budget, Tail};

pub use tail::Logged;

/// Events handed out at a time.
const PAGE_EVENTS: usize = 512;
/// A page ends early when it would be larger than this. That, twice, is what a reader that does not read costs; or one event
/// that is larger.
const PAGE_BYTES: usize = 128 << 10;
/// Watched sessions from which on those that nobody watches any more are forgotten.
const WATCHED_MAX: usize = 1024;

/// How long a search waits for messages to be indexed. That is a moment, but for a store that had no index before.
const INDEX_PATIENCE: Duration = Duration::from_secs(5);

/// The reach of a log before the first commit that anybody watched.
const UNKNOWN: i64 = 0;

/// How far a log is known to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    cursor: i64,
    /// Nothing will follow.
    ended: bool,
}

/// Where subscribers wait, and what they read.
#[derive(Debug)]
struct Watchers {
    books: Mutex<Books>,
    all: watch::Sender<Reach>,
}

#[derive(Debug)]
struct Books {
    /// A session has an entry only while somebody watches it.
    sessions: HashMap<SessionId, Watched>,
    /// The sessions of one user together, likewise; only their own events wake their readers.
    owners: HashMap<Option<u32>, Watched>,
    /// Filled only while somebody watches all sessions.
    all: Tail,
    budget: Budget,
}

#[derive(Debug)]
struct Watched {
    reach: watch::Sender<Reach>,
    tail: Tail,
    /// The cursor of the newest event in this log.
    newest: i64,
}

impl Watched {
    fn new(scope: EventScope, ended: bool) -> Self {
        Self { reach: watch::Sender::new(Reach { cursor: UNKNOWN, ended }), tail: Tail::new(scope), newest: UNKNOWN }
    }

    /// Follows one of them, and forgets those that have no readers when there are many.
    fn subscribe<K: Eq + Hash>(all: &mut HashMap<K, Self>, key: K, scope: EventScope, ended: bool) -> Receiver<Reach> {
        if all.len() >= WATCHED_MAX {
            all.retain(|_, watched| watched.reach.receiver_count() > 0);
        }
        all.entry(key).or_insert_with(|| Self::new(scope, ended)).reach.subscribe()
    }

    fn keep(&mut self, event: &Arc<Logged>, budget: &mut Budget) {
        budget.push(&mut self.tail, event);
        self.newest = event.event.id;
    }

    /// Wakes readers if there are new events. Whether there are any readers.
    fn tell(&self) -> bool {
        self.reach.send_if_modified(|reach| {
            let further = reach.cursor < self.newest;
            reach.cursor = reach.cursor.max(self.newest);
            further
        });
        self.reach.receiver_count() > 0
    }
}

#[derive(Clone, Debug)]
pub struct Hub {
    store: Store,
    writer: Arc<Writer>,
    watchers: Arc<Watchers>,
    secrets: Arc<Secrets>,
}

impl Hub {
    /// What is appended is redacted with the `secrets` of its owner.
    pub async fn open(
        options: &StoreOptions,
        secrets: Arc<Secrets>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StoreError> {
        let watchers = Arc::new(Watchers::new(options.settings.tail_max.0));
        let published = Arc::clone(&watchers);
        let (store, writer) = Store::open(options, published, metrics).await?;
        Ok(Self { store, writer: Arc::new(writer), watchers, secrets })
    }

    /// The record, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The secrets that text of this owner's is searched for.
    pub fn secrets(&self, owner: Option<u32>) -> OwnerSecrets {
        self.secrets.of(owner)
    }

    /// Redacts the unit, which belongs to one owner. Resolves when it is committed and its events can be seen.
    pub async fn append(&self, owner: Option<u32>, mut unit: Unit) -> Result<Committed, StoreError> {
        if let Some(redactor) = self.secrets.of(owner).redactor() {
            redaction::redact(&redactor, &mut unit);
        }
        self.append_own(unit).await
    }

    /// The same for units that need no redaction: their text is acpd's own, or was redacted when it was recorded.
    pub async fn append_own(&self, unit: Unit) -> Result<Committed, StoreError> {
        self.writer.append(unit).await
    }

    /// Resolves when the writer has come round once.
    pub async fn beat(&self) -> Result<(), StoreError> {
        self.writer.beat().await
    }

    /// How far the log over all sessions is known to reach.
    pub fn reach(&self) -> i64 {
        self.watchers.all.borrow().cursor
    }

    /// Does now what the store does by itself when it is idle, for as long as `patience` lasts.
    pub async fn upkeep(&self, patience: Duration) -> Result<Upkeep, StoreError> {
        self.writer.upkeep(Goal::Everything, patience).await
    }

    /// Has every message indexed that is committed now, and tells how many of those in sight are not when that takes too long.
    pub async fn index_messages(&self, sight: Sight) -> Result<i64, StoreError> {
        let Some(through) = self.store.unindexed_through().await? else { return Ok(0) };
        match self.writer.upkeep(Goal::Index { through }, INDEX_PATIENCE).await {
            Ok(upkeep) if upkeep.is_complete => Ok(0),
            Err(StoreError::Closed) => Err(StoreError::Closed),
            // A store that cannot be written can be searched all the same.
            Ok(_) | Err(_) => self.store.unindexed_messages(sight).await,
        }
    }

    /// Follows a log from after `cursor`.
    pub fn subscribe(&self, scope: EventScope, cursor: i64) -> Subscription {
        let reach = self.watchers.watch(scope);
        let (store, watchers) = (self.store.clone(), Arc::clone(&self.watchers));
        Subscription { store, watchers, scope, cursor, reach, told: None, compacted: None }
    }

    /// Lets every stream end with the last event. To be called when nobody appends any more.
    pub async fn end_streams(&self) {
        // An empty unit waits for everything before it, which is then committed, or never will be.
        if let Err(error) = self.writer.append(Unit::default()).await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot commit the last events before the stop");
        }
        self.watchers.end();
    }

    /// How many units wait for the writer.
    pub fn queued_units(&self) -> usize {
        self.writer.queued()
    }

    /// How many follow a log.
    pub fn subscribers(&self) -> usize {
        self.watchers.each(&self.watchers.lock()).map(watch::Sender::receiver_count).sum()
    }

    /// Resolves when nothing can be recorded any more although nobody has closed the store. There is no way on from there.
    pub async fn lost(&self) {
        self.writer.lost().await;
    }

    /// Closes the store: the readers first, so that the writer leaves one file without a write-ahead log.
    pub async fn close(&self) {
        self.store.close().await;
        self.writer.close().await;
        self.store.note_clean_close();
    }
}

impl Watchers {
    fn new(tail_bytes_max: usize) -> Self {
        let (all, budget) = (Tail::new(EventScope::All), Budget::new(tail_bytes_max));
        let books = Books { sessions: HashMap::new(), owners: HashMap::new(), all, budget };
        Self { books: Mutex::new(books), all: watch::Sender::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, scope: EventScope) -> Receiver<Reach> {
        let (mut books, ended) = (self.lock(), self.all.borrow().ended);
        match scope {
            EventScope::All => self.all.subscribe(),
            // After the end of the streams, a reader gets the stored events and then the end.
            EventScope::Session(session) => Watched::subscribe(&mut books.sessions, session, scope, ended),
            EventScope::Owner(owner) => Watched::subscribe(&mut books.owners, owner, scope, ended),
        }
    }

    /// What follows the cursor, as far as it is in memory.
    fn after(&self, scope: EventScope, cursor: i64) -> Option<Vec<Arc<Logged>>> {
        let books = self.lock();
        let tail = match scope {
            EventScope::Session(session) => &books.sessions.get(&session)?.tail,
            EventScope::Owner(owner) => &books.owners.get(&owner)?.tail,
            EventScope::All => &books.all,
        };
        tail.after(cursor, PAGE_EVENTS, PAGE_BYTES)
    }

    /// Wherever somebody may wait: all is told to, and counted by, this alone, so that no kind of log is left out.
    fn each<'a>(&'a self, books: &'a Books) -> impl Iterator<Item = &'a watch::Sender<Reach>> {
        let Books { sessions, owners, all: _, budget: _ } = books;
        sessions.values().chain(owners.values()).map(|watched| &watched.reach).chain([&self.all])
    }

    fn end(&self) {
        for reach in self.each(&self.lock()) {
            reach.send_modify(|reach| reach.ended = true);
        }
    }
}

/// Keeps the events for those who follow, then tells them how far the log reaches.
impl Audience for Arc<Watchers> {
    fn keep(&self, events: Vec<Appended>) {
        self.lock().keep(events, self.all.receiver_count() > 0);
    }

    fn tell(&self, heads: &[Head]) {
        let mut books = self.lock();
        for head in heads {
            let Some(Watched { reach, .. }) = books.sessions.get(&head.session) else {
                continue;
            };
            reach.send_modify(|reach| *reach = Reach { cursor: head.sequence, ended: head.purged });
            if head.purged || reach.receiver_count() == 0 {
                books.sessions.remove(&head.session);
            }
        }
        books.owners.retain(|_, watched| watched.tell());
        drop(books);
        if let Some(cursor) = heads.iter().map(|head| head.cursor).max() {
            self.all.send_if_modified(|reach| {
                let further = reach.cursor < cursor;
                reach.cursor = reach.cursor.max(cursor);
                further
            });
        }
    }
}

impl Books {
    fn keep(&mut self, events: Vec<Appended>, is_all_watched: bool) {
        let Self { sessions, owners, all, budget } = self;
        if !is_all_watched {
            // Nobody would see what is missing from here on.
            *all = Tail::new(EventScope::All);
        }
        for Appended { owner, event } in events {
            let watched = sessions.get_mut(&event.session);
            let of_owner = owners.get_mut(&owner);
            if watched.is_none() && of_owner.is_none() && !is_all_watched {
                continue;
            }
            let event = Logged::new(event);
            for watched in [watched, of_owner].into_iter().flatten() {
                watched.keep(&event, budget);
            }
            if is_all_watched {
                budget.push(all, &event);
            }
        }
        budget.enforce(|scope, cursor| {
            let tail = match scope {
                EventScope::All => Some(&mut *all),
                EventScope::Owner(owner) => owners.get_mut(&owner).map(|watched| &mut watched.tail),
                EventScope::Session(session) => sessions.get_mut(&session).map(|watched| &mut watched.tail),
            };
            if let Some(tail) = tail {
                tail.forget(cursor);
            }
        });
    }
}

/// One reader of a log.
#[derive(Debug)]
pub struct Subscription {
    store: Store,
    watchers: Arc<Watchers>,
    scope: EventScope,
    cursor: i64,
    reach: Receiver<Reach>,
    /// Up to where the reader knows that deltas may be missing; none before the first page.
    told: Option<i64>,
    compacted: Option<Compacted>,
}

/// What a reader must know before its next page: deltas of finished messages are missing in the log after its cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub cursor: i64,
    /// From here on nothing is missing.
    pub complete_from: i64,
}

impl Subscription {
    /// The next events, without a gap, or `None` when nothing will follow. Waits when there are none yet.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Logged>>>, StoreError> {
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
    pub async fn page(&mut self) -> Result<Vec<Arc<Logged>>, StoreError> {
        let events = match self.watchers.after(self.scope, self.cursor) {
            Some(events) => events,
            None => self.stored_page().await?,
        };
        if let Some(last) = events.last() {
            self.cursor = last.cursor(self.scope);
        }
        Ok(events)
    }

    async fn stored_page(&mut self) -> Result<Vec<Arc<Logged>>, StoreError> {
        let after = self.cursor;
        let events = match self.scope {
            EventScope::Owner(owner) => self.stored_events_of(owner).await?,
            EventScope::Session(_) | EventScope::All => {
                self.store.events(self.scope, self.cursor, PAGE_EVENTS, PAGE_BYTES).await?
            }
        };
        let page: Vec<Arc<Logged>> = events.into_iter().map(Logged::new).collect();
        self.note_compaction(&page, after).await?;
        Ok(page)
    }

    /// Passes over what is not theirs, a bounded piece at a time, up to the next events or the end of the log.
    async fn stored_events_of(&mut self, owner: Option<u32>) -> Result<Vec<StoredEvent>, StoreError> {
        loop {
            let (events, through) = self.store.events_of_owner(owner, self.cursor, PAGE_EVENTS, PAGE_BYTES).await?;
            if !events.is_empty() || through == self.cursor {
                return Ok(events);
            }
            self.cursor = through;
        }
    }

    /// What has to be told before the page that was read last.
    pub fn take_compacted(&mut self) -> Option<Compacted> {
        self.compacted.take()
    }

    /// A page that skips something is never handed out without a word. The mark is read after the page: it only rises, so
    /// it covers every hole that the page has.
    async fn note_compaction(&mut self, page: &[Arc<Logged>], after: i64) -> Result<(), StoreError> {
        let gap = self.last_gap(page);
        if page.is_empty() || (self.told.is_some() && gap.is_none()) {
            return Ok(());
        }
        let mark = self.store.compacted_through(self.scope).await?;
        // The holes of a session that was deleted meanwhile have no mark any more. Over all sessions, deletion itself
        // leaves holes that nobody has to be told of.
        let through = match self.scope {
            EventScope::Session(_) => mark.max(gap.unwrap_or(0)),
            EventScope::Owner(_) | EventScope::All => mark,
        };
        if through > after && self.told.is_none_or(|told| told < through) {
            self.compacted = Some(Compacted { cursor: after, complete_from: through + 1 });
        }
        self.told = Some(through.max(self.told.unwrap_or(0)));
        Ok(())
    }

    /// The last number after the cursor that the page skips.
    fn last_gap(&self, page: &[Arc<Logged>]) -> Option<i64> {
        let numbers = page.iter().map(|event| event.cursor(self.scope));
        let before = std::iter::once(self.cursor).chain(numbers.clone());
        before.zip(numbers).filter(|(before, number)| *number != before + 1).map(|(_, number)| number - 1).last()
    }
}
