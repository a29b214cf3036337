//! What the writer does while nobody wants it to write: messages are indexed, the log is compacted, space is given back.
//!
//! ```text
//! commit ──▶ due ──(no unit for `store.maintenance_delay`)──▶ step ──▶ step ──▶ … ──▶ nothing is due: no timer at all
//!                    a unit that waits goes before the next step, but for 2 and 3
//! ```
//!
//! 1. A step is small (some milliseconds) and one transaction of its own.
//! 2. When units always wait, a step is made every [`SHARE_INTERVAL`] all the same.
//! 3. An order (a search that wants everything indexed, `acpd gc`) is worked on at once, its steps and the batches in
//!    turn, until its goal or its deadline is reached.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::connection::Connection;
use super::vacuum::Checkpoint;
use super::{StoreError, compaction, search, vacuum};
use crate::config;

/// A writer that is always busy makes a step this often.
const SHARE_INTERVAL: Duration = Duration::from_secs(10);
/// When a step fails, and when readers keep the write-ahead log, it is tried again after this.
const PAUSE: Duration = Duration::from_secs(30);

/// What an order wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every message up to this row is in the index.
    Index { through: i64 },
    /// Nothing is due any more, and no free page is kept.
    Everything,
}

/// What was done for an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    pub messages_indexed: u64,
    pub deltas_removed: u64,
    /// The goal was reached before the deadline.
    pub is_complete: bool,
}

#[derive(Debug)]
pub(super) struct Order {
    goal: Goal,
    until: Instant,
    done: Upkeep,
    reply: oneshot::Sender<Result<Upkeep, StoreError>>,
}

impl Order {
    /// An order, and what resolves when its goal is reached, or after `patience` with what was done until then.
    pub fn new(goal: Goal, patience: Duration) -> (Self, oneshot::Receiver<Result<Upkeep, StoreError>>) {
        let (reply, done) = oneshot::channel();
        (Self { goal, until: Instant::now() + patience, done: Upkeep::default(), reply }, done)
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Indexed {
        messages: u64,
        through: i64,
    },
    Compacted {
        deltas: u64,
    },
    Freed,
    /// Nothing can be done now, but something is left to do.
    Later,
    Nothing,
}

pub(super) struct Maintenance {
    delay: Duration,
    replay_turns: Option<u32>,
    journal_bytes_max: u64,
    busy_timeout: Duration,
    /// Known from the first step on.
    journal: Option<PathBuf>,
    working_on: Vec<Order>,
    /// When the next step is made, if no unit comes before. None: nothing is due.
    next_at: Option<Instant>,
    /// Since when something has been due without a step.
    waiting_since: Option<Instant>,
    /// Whether a batch was committed since the last step.
    is_batch_between: bool,
}

impl Maintenance {
    pub fn new(settings: &config::Store) -> Self {
        Self {
            delay: settings.maintenance_delay,
            replay_turns: settings.replay_turns,
            journal_bytes_max: u64::try_from(settings.journal_max.0).unwrap_or(u64::MAX),
            busy_timeout: settings.busy_timeout,
            journal: None,
            working_on: Vec::new(),
            // An earlier daemon may have left something to do.
            next_at: Some(Instant::now() + settings.maintenance_delay),
            waiting_since: Some(Instant::now()),
            is_batch_between: false,
        }
    }

    pub fn take(&mut self, order: Order) {
        self.working_on.push(order);
    }

    /// A batch was committed: something may be due, once it is quiet.
    pub fn after_commit(&mut self) {
        let now = Instant::now();
        self.next_at = Some(now + self.delay);
        self.waiting_since.get_or_insert(now);
        self.is_batch_between = true;
    }

    /// Whether a step comes before the units that may be waiting.
    pub fn goes_first(&self) -> bool {
        let has_order = self.is_batch_between && !self.working_on.is_empty();
        has_order || self.waiting_since.is_some_and(|since| since.elapsed() >= SHARE_INTERVAL)
    }

    /// How long a unit may be waited for before the next step; without end when nothing is due.
    pub fn patience(&self) -> Option<Duration> {
        if !self.working_on.is_empty() {
            return Some(Duration::ZERO);
        }
        self.next_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Makes one step.
    pub fn step(&mut self, connection: &Connection) {
        let now = Instant::now();
        self.is_batch_between = false;
        match self.work(connection) {
            Ok(step) => {
                let (next_at, is_due) = match step {
                    Step::Indexed { .. } | Step::Compacted { .. } | Step::Freed => (Some(now), true),
                    Step::Later => (Some(now + PAUSE), false),
                    Step::Nothing => (None, false),
                };
                self.next_at = next_at;
                self.waiting_since = is_due.then(Instant::now);
                self.settle(step);
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the store's maintenance failed; trying again later"
                );
                self.next_at = Some(now + PAUSE);
                self.waiting_since = None;
                let error = Arc::new(error);
                for order in self.working_on.drain(..) {
                    drop(order.reply.send(Err(StoreError::NotCommitted(Arc::clone(&error)))));
                }
            }
        }
    }

    /// Tells the orders whose goal is reached, or whose time is over.
    fn settle(&mut self, step: Step) {
        let now = Instant::now();
        let mut open = Vec::new();
        for mut order in self.working_on.drain(..) {
            match step {
                Step::Indexed { messages, .. } => order.done.messages_indexed += messages,
                Step::Compacted { deltas } => order.done.deltas_removed += deltas,
                Step::Freed | Step::Later | Step::Nothing => {}
            }
            order.done.is_complete = match (order.goal, step) {
                (Goal::Index { through: goal }, Step::Indexed { through, .. }) => through >= goal,
                // Indexing comes first: whatever else a step did, there was nothing to index.
                (Goal::Index { .. }, _) => true,
                (Goal::Everything, step) => matches!(step, Step::Later | Step::Nothing),
            };
            if order.done.is_complete || now >= order.until {
                // Whoever asked may be gone.
                drop(order.reply.send(Ok(order.done)));
            } else if !order.reply.is_closed() {
                open.push(order);
            }
        }
        self.working_on = open;
    }

    fn work(&mut self, connection: &Connection) -> Result<Step, StoreError> {
        let journal = if let Some(journal) = &self.journal {
            journal.clone()
        } else {
            compaction::begin(connection, self.replay_turns)?;
            self.journal.insert(vacuum::journal(connection)?).clone()
        };
        if let Some(batch) = search::next_batch(connection)? {
            in_transaction(connection, || search::index(connection, &batch))?;
            return Ok(Step::Indexed { messages: batch.messages, through: batch.through });
        }
        if let Some(window) = compaction::next_window(connection, self.replay_turns)? {
            let deltas = in_transaction(connection, || compaction::remove(connection, &window))?;
            return Ok(Step::Compacted { deltas });
        }
        let wants_all = self.working_on.iter().any(|order| order.goal == Goal::Everything);
        if vacuum::give_back(connection, wants_all)? {
            return Ok(Step::Freed);
        }
        let bytes_max = if wants_all { 0 } else { self.journal_bytes_max };
        match vacuum::checkpoint(connection, &journal, bytes_max, self.busy_timeout)? {
            Checkpoint::Busy => Ok(Step::Later),
            Checkpoint::Done | Checkpoint::NotDue => Ok(Step::Nothing),
        }
    }
}

/// Commits what went well and takes back what did not.
fn in_transaction<T>(connection: &Connection, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    connection.begin()?;
    let outcome = work().and_then(|value| connection.commit().map(|()| value));
    if outcome.is_err() {
        connection.roll_back();
    }
    outcome
}
