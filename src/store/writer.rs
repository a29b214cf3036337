//! The one writer: a thread that gathers whatever units are waiting, commits them in one transaction, then tells.
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

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::apply::{Applied, Apply, Sequences};
use super::connection::Connection;
use super::count;
use super::maintenance::{Goal, Maintenance, Order, Upkeep};
use super::reserve::Space;
use super::{Committed, StoreError, StoredEvent, Unit, vacuum};
use crate::config;
use crate::metrics::{Commit, Metrics};
use crate::model::SessionId;

/// How long a commit is waited for awake. A quick disk takes less, and whoever goes to sleep for so short a time is woken a
/// tenth of it too late: twice in every turn.
const AWAKE_MAX: Duration = Duration::from_millis(1);

/// How often a thread that does not come round is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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

/// An event that was committed, and whose session's it is, when that is not the daemon's own user's.
#[derive(Clone, Debug)]
pub struct Appended {
    pub owner: Option<u32>,
    pub event: StoredEvent,
}

/// What a commit brought.
struct News {
    heads: Vec<Head>,
    /// In the order of their ids.
    events: Vec<Appended>,
}

/// Who is told of a commit.
pub trait Audience: Send {
    /// Takes what is new, so that whoever asks finds it.
    fn keep(&self, events: Vec<Appended>);
    /// Wakes whoever waits for it.
    fn tell(&self, heads: &[Head]);
}

type Acknowledgement = oneshot::Sender<Result<Committed, StoreError>>;

struct Waiting {
    unit: Unit,
    acknowledgement: Acknowledgement,
    /// In the queue, which is bounded.
    place: OwnedSemaphorePermit,
}

enum Request {
    Append(Waiting),
    Upkeep(Order),
    /// Somebody wants to see that the thread comes round.
    Beat(oneshot::Sender<()>),
    /// The last one: what is queued before it is committed, what comes after it is refused.
    Close,
}

/// The writing side.
#[derive(Debug)]
pub struct Writer {
    requests: mpsc::Sender<Request>,
    places: Arc<Semaphore>,
    places_max: usize,
    /// Cancelled when the thread has ended, however that was.
    ended: CancellationToken,
    is_closing: AtomicBool,
    /// Grows for as long as a statement does something, a long one too.
    work: Arc<AtomicU64>,
    /// Whether there is a processor for the writer while somebody waits for it awake.
    may_stay_awake: bool,
    /// Whether the last commit was so quick that it is worth while.
    is_quick: AtomicBool,
}

impl Writer {
    pub(super) fn start(
        connections: Connections,
        cursor: i64,
        settings: &config::Store,
        space: Arc<Space>,
        audience: impl Audience + 'static,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let work = Arc::new(AtomicU64::new(0));
        for connection in [&connections.durable, &connections.quick] {
            connection.count_work(&work).map_err(io::Error::other)?;
        }
        let (sender, requests) = mpsc::channel();
        let ended = CancellationToken::new();
        let end = ended.clone().drop_guard();
        let thread = WriterThread {
            connections,
            requests,
            rows_max: settings.batch_rows,
            bytes_max: settings.batch_bytes.0,
            sequences: Sequences::new(cursor),
            space,
            audience: Box::new(audience),
            maintenance: Maintenance::new(settings),
            metrics,
        };
        let run = move || {
            // Dropped by a panic, too.
            let _end = end;
            thread.run();
        };
        std::thread::Builder::new().name("writer".to_owned()).spawn(run)?;
        let places = Arc::new(Semaphore::new(settings.queue));
        let may_stay_awake = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        Ok(Self {
            requests: sender,
            places,
            places_max: settings.queue,
            ended,
            is_closing: AtomicBool::new(false),
            work,
            may_stay_awake,
            is_quick: AtomicBool::new(may_stay_awake),
        })
    }

    /// Waits for a place in the queue, then for the commit.
    pub async fn append(&self, unit: Unit) -> Result<Committed, StoreError> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (acknowledgement, committed) = oneshot::channel();
        let is_output = unit.is_output_only();
        let began = Instant::now();
        let waiting = Waiting { unit, acknowledgement, place };
        self.requests.send(Request::Append(waiting)).map_err(|_| StoreError::Closed)?;
        // Output comes by the thousand, and nobody waits for its acknowledgement.
        if is_output {
            return committed.await.map_err(|_| StoreError::Closed)?;
        }
        while self.is_quick.load(Ordering::Relaxed) && committed.is_empty() && began.elapsed() < AWAKE_MAX {
            // Everybody else is served meanwhile.
            tokio::task::yield_now().await;
        }
        let outcome = committed.await.map_err(|_| StoreError::Closed)?;
        self.is_quick.store(self.may_stay_awake && began.elapsed() < AWAKE_MAX, Ordering::Relaxed);
        outcome
    }

    /// How many units wait.
    pub fn queued(&self) -> usize {
        self.places_max.saturating_sub(self.places.available_permits())
    }

    /// Has the store's upkeep done up to a goal, or until `patience` is over.
    pub async fn upkeep(&self, goal: Goal, patience: Duration) -> Result<Upkeep, StoreError> {
        let (order, done) = Order::new(goal, patience);
        self.requests.send(Request::Upkeep(order)).map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
    }

    /// Resolves when the thread has come round, or is seen to be in the middle of something long, such as the deletion of a
    /// large session.
    pub async fn beat(&self) -> Result<(), StoreError> {
        let (sign, mut seen) = oneshot::channel();
        let before = self.work.load(Ordering::Relaxed);
        self.requests.send(Request::Beat(sign)).map_err(|_| StoreError::Closed)?;
        loop {
            match tokio::time::timeout(LOOK_AGAIN, &mut seen).await {
                Ok(seen) => return seen.map_err(|_| StoreError::Closed),
                Err(_) if self.work.load(Ordering::Relaxed) != before => return Ok(()),
                Err(_) => {}
            }
        }
    }

    /// Commits what is queued, then closes the connections. Nothing can be appended afterwards.
    pub async fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        // A thread that is gone already needs no telling.
        self.requests.send(Request::Close).ok();
        self.ended.cancelled().await;
    }

    /// Resolves when the thread has ended without being told to: it has panicked, and nothing can be written any more.
    pub async fn lost(&self) {
        self.ended.cancelled().await;
        if self.is_closing.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

/// The connections that write.
#[derive(Debug)]
pub struct Connections {
    pub durable: Connection,
    /// For what comes again when it is lost.
    pub quick: Connection,
}

struct WriterThread {
    connections: Connections,
    requests: mpsc::Receiver<Request>,
    rows_max: usize,
    bytes_max: usize,
    sequences: Sequences,
    space: Arc<Space>,
    audience: Box<dyn Audience>,
    maintenance: Maintenance,
    metrics: Arc<Metrics>,
}

impl WriterThread {
    fn run(mut self) {
        let mut open = true;
        while open && let Some(first) = self.next_unit() {
            let batch = self.gather(first, &mut open);
            // Somebody talks, and more follows soon: it would wait for the whole log to be written back.
            let pages_max = if batch.iter().all(|waiting| waiting.unit.is_output_only()) {
                vacuum::JOURNAL_PAGES_MAX_OF_OUTPUT
            } else {
                vacuum::JOURNAL_PAGES_MAX
            };
            self.commit_and_tell(batch);
            self.write_back(pages_max);
            self.maintenance.after_commit();
        }
        let Connections { durable, quick } = self.connections;
        quick.close();
        durable.close();
    }

    /// Waits for the next unit, and looks after the store meanwhile. None is the end.
    fn next_unit(&mut self) -> Option<Waiting> {
        loop {
            if !self.maintenance.goes_first() {
                let request = match self.maintenance.patience() {
                    None => self.requests.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                    Some(patience) => self.requests.recv_timeout(patience),
                };
                match request {
                    Ok(Request::Append(waiting)) => return Some(waiting),
                    Ok(Request::Upkeep(order)) => self.maintenance.take(order),
                    Ok(Request::Beat(sign)) => {
                        come_round(sign);
                        continue;
                    }
                    Ok(Request::Close) | Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
            }
            // What is lost of it to a power cut is done again.
            self.maintenance.step(&self.connections.quick);
            self.write_back(vacuum::JOURNAL_PAGES_MAX);
        }
    }

    /// What cannot be written back now is tried again after the next commit; it is safe where it is.
    fn write_back(&self, pages_max: i64) {
        if let Err(error) = vacuum::write_back(&self.connections.quick, pages_max) {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot truncate the write-ahead log");
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
                Ok(Request::Upkeep(order)) => self.maintenance.take(order),
                Ok(Request::Beat(sign)) => come_round(sign),
                Ok(Request::Close) => {
                    *open = false;
                    break;
                }
                Err(_) => break,
            }
        }
        batch
    }

    fn commit_and_tell(&mut self, batch: Vec<Waiting>) {
        let (units, acknowledgements): (Vec<Unit>, Vec<Acknowledgement>) = batch
            .into_iter()
            .map(|Waiting { unit, acknowledgement, place }| {
                drop(place);
                (unit, acknowledgement)
            })
            .unzip();
        self.commit_units(units, acknowledgements);
    }

    fn commit_units(&mut self, units: Vec<Unit>, acknowledgements: Vec<Acknowledgement>) {
        let outcome = match self.commit(&units) {
            // The reserve is let go for exactly this.
            Err(error) if self.space.makes_room_for(&error) => self.commit(&units),
            outcome => outcome,
        };
        match self.space.judged(outcome) {
            Ok((news, committed)) => {
                let starts_a_turn = units.iter().any(Unit::starts_a_turn);
                self.tell(news, acknowledgements.into_iter().zip(committed), starts_a_turn);
            }
            // One of them is at fault: each for itself, so that it fails alone.
            Err(error) if error.is_of_a_unit() && units.len() > 1 => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a batch failed; committing its units one by one"
                );
                for (unit, acknowledgement) in units.into_iter().zip(acknowledgements) {
                    self.commit_units(vec![unit], vec![acknowledgement]);
                }
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, units = units.len(), "cannot commit");
                let error = Arc::new(error);
                for acknowledgement in acknowledgements {
                    // Whoever waited may be gone; there is nobody else to tell.
                    drop(acknowledgement.send(Err(StoreError::NotCommitted(Arc::clone(&error)))));
                }
            }
        }
    }

    /// What is committed can be seen before anybody hears of it. An agent that waits for its prompt then goes before those
    /// who look on; when none does, they come first.
    fn tell(
        &self,
        news: News,
        acknowledgements: impl Iterator<Item = (Acknowledgement, Committed)>,
        starts_a_turn: bool,
    ) {
        let News { heads, events } = news;
        self.audience.keep(events);
        if !starts_a_turn {
            self.audience.tell(&heads);
        }
        for (acknowledgement, committed) in acknowledgements {
            drop(acknowledgement.send(Ok(committed)));
        }
        if starts_a_turn {
            self.audience.tell(&heads);
        }
    }

    /// One transaction.
    fn commit(&mut self, units: &[Unit]) -> Result<(News, Vec<Committed>), StoreError> {
        // Deltas come again in their message, so a batch of nothing else may be lost to a power cut; all others may not.
        let is_durable = !units.iter().all(Unit::is_delta_only);
        let connection = if is_durable { &self.connections.durable } else { &self.connections.quick };
        let began = Instant::now();
        match apply(&self.sequences, connection, units) {
            Ok((applied, committed)) => {
                let Applied { heads, events, sequences, withdrawn } = applied;
                let rows = units.iter().map(|unit| unit.ops.len()).sum();
                let (units_committed, took) = (units.len(), began.elapsed());
                self.metrics.committed(Commit { is_durable, units: units_committed, rows, events: events.len(), took });
                count::count(&self.metrics, units);
                self.metrics.permissions_withdrawn(withdrawn);
                // Only now: a transaction that was rolled back must not leave a gap in the sequences.
                self.sequences.absorb(sequences);
                Ok((News { heads, events }, committed))
            }
            Err(error) => {
                connection.roll_back();
                self.metrics.commit_failed();
                Err(error)
            }
        }
    }
}

/// Whoever wanted to see it may be gone.
fn come_round(sign: oneshot::Sender<()>) {
    sign.send(()).ok();
}

fn apply(known: &Sequences, connection: &Connection, units: &[Unit]) -> Result<(Applied, Vec<Committed>), StoreError> {
    let mut apply = Apply::begin(connection, known)?;
    let committed = units.iter().map(|unit| apply.unit(unit)).collect::<Result<_, _>>()?;
    Ok((apply.commit()?, committed))
}
