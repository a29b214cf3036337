//! The one writer: gathers whatever units are waiting, commits them in one transaction, then tells.
//!
//! ```text
//! append ──▶ queue ──▶ gather ──▶ BEGIN · apply · COMMIT ──▶ publish ──▶ acknowledge
//!            bounded   never waits to fill a batch; FULL unless it holds deltas only
//! ```
//!
//! It has two connections and uses one at a time: how durable a commit is belongs to the connection, and to change that for
//! every answer of an agent would cost more than the second one does.
//!
//! A batch that fails through one of its units is tried again unit by unit, so that it fails alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::apply::{Applied, Apply, Sequences};
use super::maintenance::{Goal, Maintenance, Orders, Upkeep};
use super::reserve::Space;
use super::{Committed, StoreError, StoredEvent, Unit};
use crate::config;
use crate::model::SessionId;

/// How far a session's log reaches after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub session: SessionId,
    pub sequence: i64,
    /// The newest id over all sessions.
    pub cursor: i64,
    /// The session was deleted: its log ends here.
    pub purged: bool,
}

/// What a commit brought, for whoever follows a log.
pub struct News {
    pub heads: Vec<Head>,
    /// In the order of their ids.
    pub events: Vec<StoredEvent>,
}

type Publish = Box<dyn Fn(News) + Send>;
type Acknowledgement = oneshot::Sender<Result<Committed, StoreError>>;

struct Waiting {
    unit: Unit,
    acknowledgement: Acknowledgement,
}

enum Request {
    Append(Waiting),
    /// The last one: what is queued before it is committed, what comes after it is refused.
    Close,
}

/// The writing side.
#[derive(Debug)]
pub struct Writer {
    queue: mpsc::Sender<Request>,
    orders: Orders,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(
        connections: Connections,
        cursor: i64,
        settings: &config::Store,
        space: Arc<Space>,
        publish: impl Fn(News) + Send + 'static,
    ) -> Self {
        let (queue, requests) = mpsc::channel(settings.queue);
        let (maintenance, orders) = Maintenance::new(settings);
        let task = WriterTask {
            connections,
            requests,
            rows_max: settings.batch_rows,
            bytes_max: settings.batch_bytes.0,
            sequences: Sequences::new(cursor),
            space,
            publish: Box::new(publish),
            maintenance,
        };
        #[expect(clippy::disallowed_methods, reason = "the writer owns this task and joins it in close")]
        let task = tokio::spawn(task.run());
        Self { queue, orders, task: Mutex::new(Some(task)) }
    }

    /// Waits for a place in the queue, then for the commit.
    pub async fn append(&self, unit: Unit) -> Result<Committed, StoreError> {
        let (acknowledgement, committed) = oneshot::channel();
        self.queue.send(Request::Append(Waiting { unit, acknowledgement })).await.map_err(|_| StoreError::Closed)?;
        committed.await.map_err(|_| StoreError::Closed)?
    }

    /// Has the store's upkeep done up to a goal, or until `patience` is over.
    pub async fn upkeep(&self, goal: Goal, patience: Duration) -> Result<Upkeep, StoreError> {
        self.orders.place(goal, patience).await
    }

    /// Commits what is queued, then closes the connection. Nothing can be appended afterwards.
    pub async fn close(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(task) = task else { return };
        // A queue that is closed already means that the task has ended, which the join below tells.
        drop(self.queue.send(Request::Close).await);
        if let Err(error) = task.await {
            tracing::error!(%error, "the writer did not end well");
        }
    }
}

/// The connections that write.
pub struct Connections {
    /// Commits wait for the disk (`synchronous=FULL`).
    pub durable: SqliteConnection,
    /// Commits survive the daemon but perhaps not a power cut (`NORMAL`), for what comes again.
    pub quick: SqliteConnection,
}

struct WriterTask {
    connections: Connections,
    requests: mpsc::Receiver<Request>,
    rows_max: usize,
    bytes_max: usize,
    sequences: Sequences,
    space: Arc<Space>,
    publish: Publish,
    maintenance: Maintenance,
}

impl WriterTask {
    async fn run(mut self) {
        let mut open = true;
        while open && let Some(Request::Append(first)) = self.next_request().await {
            let batch = self.gather(first, &mut open);
            self.commit_and_tell(batch).await;
            self.maintenance.after_commit();
        }
        let Connections { durable, quick } = self.connections;
        for connection in [quick, durable] {
            if let Err(error) = connection.close().await {
                tracing::error!(%error, "cannot close the database");
            }
        }
    }

    /// Waits for the next request, and looks after the store meanwhile.
    async fn next_request(&mut self) -> Option<Request> {
        loop {
            if !self.maintenance.goes_first() {
                tokio::select! {
                    biased;
                    request = self.requests.recv() => return request,
                    () = self.maintenance.is_due() => {}
                }
            }
            // What is lost of it to a power cut is done again.
            self.maintenance.step(&mut self.connections.quick).await;
        }
    }

    /// What is there already, up to the bounds. A lone unit may be larger than they are.
    fn gather(&mut self, first: Waiting, open: &mut bool) -> Vec<Waiting> {
        let mut rows = first.unit.ops.len();
        let mut bytes = first.unit.weight();
        let mut batch = vec![first];
        while rows < self.rows_max && bytes < self.bytes_max {
            match self.requests.try_recv() {
                Ok(Request::Append(next)) => {
                    rows += next.unit.ops.len();
                    bytes += next.unit.weight();
                    batch.push(next);
                }
                Ok(Request::Close) => {
                    *open = false;
                    break;
                }
                Err(_) => break,
            }
        }
        batch
    }

    async fn commit_and_tell(&mut self, batch: Vec<Waiting>) {
        let (units, acknowledgements): (Vec<Unit>, Vec<Acknowledgement>) =
            batch.into_iter().map(|waiting| (waiting.unit, waiting.acknowledgement)).unzip();
        let outcome = match self.commit(&units).await {
            // The reserve is let go for exactly this.
            Err(error) if self.space.makes_room_for(&error) => self.commit(&units).await,
            outcome => outcome,
        };
        match self.space.judged(outcome) {
            Ok((news, committed)) => self.tell(news, acknowledgements, committed),
            // One of them is at fault: each for itself, so that it fails alone.
            Err(error) if error.is_of_a_unit() && units.len() > 1 => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a batch failed; committing one by one");
                for (unit, acknowledgement) in units.into_iter().zip(acknowledgements) {
                    Box::pin(self.commit_and_tell(vec![Waiting { unit, acknowledgement }])).await;
                }
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, units = units.len(), "nothing was committed");
                let error = Arc::new(error);
                for acknowledgement in acknowledgements {
                    // Whoever waited may be gone; there is nobody else to tell.
                    drop(acknowledgement.send(Err(StoreError::NotCommitted(Arc::clone(&error)))));
                }
            }
        }
    }

    fn tell(&self, news: News, acknowledgements: Vec<Acknowledgement>, committed: Vec<Committed>) {
        (self.publish)(news);
        for (acknowledgement, committed) in acknowledgements.into_iter().zip(committed) {
            drop(acknowledgement.send(Ok(committed)));
        }
    }

    /// One transaction. It is begun and ended by hand: when a commit fails for want of space, SQLite rolls back by
    /// itself, and a guard that counts transactions would count this one for ever.
    async fn commit(&mut self, units: &[Unit]) -> Result<(News, Vec<Committed>), StoreError> {
        // Deltas come again in their message, so a batch of nothing else may be lost to a power cut; all others may not.
        let connection = if units.iter().all(Unit::is_delta_only) {
            &mut self.connections.quick
        } else {
            &mut self.connections.durable
        };
        match apply(&self.sequences, connection, units).await {
            Ok((applied, committed)) => {
                let Applied { heads, events, sequences } = applied;
                // Only now: a transaction that was rolled back must not leave a gap in the sequences.
                self.sequences.absorb(sequences);
                Ok((News { heads, events }, committed))
            }
            Err(error) => {
                // There may be nothing left to roll back, and that is all that can be wrong with it.
                drop(connection.execute("ROLLBACK").await);
                Err(error)
            }
        }
    }
}

async fn apply(
    known: &Sequences,
    connection: &mut SqliteConnection,
    units: &[Unit],
) -> Result<(Applied, Vec<Committed>), StoreError> {
    let mut apply = Apply::new(known);
    let mut committed = Vec::with_capacity(units.len());
    for unit in units {
        committed.push(apply.unit(connection, unit).await?);
    }
    Ok((apply.commit(connection).await?, committed))
}
