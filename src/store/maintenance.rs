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
use std::time::Duration;

use sqlx::{Executor, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::vacuum::Checkpoint;
use super::{StoreError, compaction, search, vacuum};
use crate::config;

/// A writer that is always busy makes a step this often.
const SHARE_INTERVAL: Duration = Duration::from_secs(10);
/// When a step fails, and when readers keep the write-ahead log, it is tried again after this.
const PAUSE: Duration = Duration::from_secs(30);
/// Orders that wait for a place.
const ORDERS_MAX: usize = 64;

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

/// Where orders are placed.
#[derive(Clone, Debug)]
pub(super) struct Orders(mpsc::Sender<Order>);

impl Orders {
    /// Resolves when the goal is reached, or after `patience` with what was done until then.
    pub async fn place(&self, goal: Goal, patience: Duration) -> Result<Upkeep, StoreError> {
        let (reply, done) = oneshot::channel();
        let order = Order { goal, until: Instant::now() + patience, done: Upkeep::default(), reply };
        self.0.send(order).await.map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
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
    orders: mpsc::Receiver<Order>,
    working_on: Vec<Order>,
    /// When the next step is made, if no unit comes before. None: nothing is due.
    next_at: Option<Instant>,
    /// Since when something has been due without a step.
    waiting_since: Option<Instant>,
    /// Whether a batch was committed since the last step.
    is_batch_between: bool,
}

impl Maintenance {
    pub fn new(settings: &config::Store) -> (Self, Orders) {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        let maintenance = Self {
            delay: settings.maintenance_delay,
            replay_turns: settings.replay_turns,
            journal_bytes_max: u64::try_from(settings.journal_max.0).unwrap_or(u64::MAX),
            busy_timeout: settings.busy_timeout,
            journal: None,
            orders,
            working_on: Vec::new(),
            // An earlier daemon may have left something to do.
            next_at: Some(Instant::now() + settings.maintenance_delay),
            waiting_since: Some(Instant::now()),
            is_batch_between: false,
        };
        (maintenance, Orders(sender))
    }

    /// A batch was committed: something may be due, once it is quiet.
    pub fn after_commit(&mut self) {
        let now = Instant::now();
        self.next_at = Some(now + self.delay);
        self.waiting_since.get_or_insert(now);
        self.is_batch_between = true;
    }

    /// Whether a step comes before the units that may be waiting.
    pub fn goes_first(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            self.working_on.push(order);
        }
        let has_order = self.is_batch_between && !self.working_on.is_empty();
        has_order || self.waiting_since.is_some_and(|since| since.elapsed() >= SHARE_INTERVAL)
    }

    /// Resolves when a step is to be made. Safe to be dropped while it waits.
    pub async fn is_due(&mut self) {
        if !self.working_on.is_empty() {
            return;
        }
        let next_at = self.next_at;
        let quiet = async {
            match next_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(order) = self.orders.recv() => self.working_on.push(order),
            () = quiet => {}
        }
    }

    /// Makes one step.
    pub async fn step(&mut self, connection: &mut SqliteConnection) {
        let now = Instant::now();
        self.is_batch_between = false;
        match self.work(connection).await {
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
                    "the store's upkeep failed; trying again later"
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

    async fn work(&mut self, connection: &mut SqliteConnection) -> Result<Step, StoreError> {
        let journal = if let Some(journal) = &self.journal {
            journal.clone()
        } else {
            compaction::begin(connection, self.replay_turns).await?;
            self.journal.insert(vacuum::files(connection).await?.1).clone()
        };
        if let Some(batch) = search::next_batch(connection).await? {
            begin(connection).await?;
            let outcome = search::index(connection, &batch).await;
            end(connection, outcome).await?;
            return Ok(Step::Indexed { messages: batch.messages, through: batch.through });
        }
        if let Some(window) = compaction::next_window(connection, self.replay_turns).await? {
            begin(connection).await?;
            let outcome = compaction::remove(connection, &window).await;
            return Ok(Step::Compacted { deltas: end(connection, outcome).await? });
        }
        let wants_all = self.working_on.iter().any(|order| order.goal == Goal::Everything);
        if vacuum::give_back(connection, wants_all).await? {
            return Ok(Step::Freed);
        }
        let bytes_max = if wants_all { 0 } else { self.journal_bytes_max };
        match vacuum::checkpoint(connection, &journal, bytes_max, self.busy_timeout).await? {
            Checkpoint::Busy => Ok(Step::Later),
            Checkpoint::Done | Checkpoint::NotDue => Ok(Step::Nothing),
        }
    }
}

async fn begin(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    connection.execute("BEGIN IMMEDIATE").await.map(drop).map_err(StoreError::database("to begin a transaction"))
}

/// Commits what went well and takes back what did not. By hand, as the writer does it, and for its reason.
async fn end<T>(connection: &mut SqliteConnection, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
    let outcome = match outcome {
        Ok(value) => {
            let committed = connection.execute("COMMIT").await;
            committed.map(|_| value).map_err(StoreError::database("to commit a transaction"))
        }
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        drop(connection.execute("ROLLBACK").await);
    }
    outcome
}
