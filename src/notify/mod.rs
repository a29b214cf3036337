//! Notifications: commands that the configuration names, run when a turn ends, an agent asks or a session fails.
//!
//! ```text
//! hub's log ──▶ facts ──▶ queue (bounded, users take turns) ──▶ commands, a few at once, each below a shim
//! ```
//!
//! Invariants:
//! 1. It only reads what is committed, in a task of its own: no session waits for a notification, or fails by one.
//! 2. When more is to be told than commands can tell, the oldest is dropped, counted and logged.
//! 3. A command that takes too long is killed, and nothing that it has started outlives it, or the daemon.
//! 4. Without a configured command it does not follow the log.

mod facts;
mod queue;
mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::facts::Facts;
use self::queue::{Job, Queue};
use crate::config::Changes;
use crate::hub::{Logged, Subscription};
use crate::metrics::NotificationOutcome;
use crate::session::Shared;
use crate::store::{EventScope, StoreError, StoredEvent};

/// How long commands may go on when the daemon stops. Others are stopping meanwhile.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait before a log that could not be read is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// The one task that follows the log for notifications.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<Shared>,
    changes: Changes,
    stop: CancellationToken,
    /// While there is anything to run.
    log: Option<Subscription>,
    /// Not before this is it read again.
    not_before: Option<Instant>,
    queue: Queue,
    running: JoinSet<NotificationOutcome>,
    /// Whose each of them is.
    owners: HashMap<task::Id, Option<u32>>,
    /// That the queue is full was logged, and it has not been empty since.
    has_told_full: bool,
}

impl Notifier {
    /// Follows the log from here on: what the recovery of a killed daemon's sessions finds is told, too.
    pub async fn new(shared: Arc<Shared>) -> Self {
        let changes = shared.config.changes();
        let mut notifier = Self {
            shared,
            changes,
            stop: CancellationToken::new(),
            log: None,
            not_before: None,
            queue: Queue::default(),
            running: JoinSet::new(),
            owners: HashMap::new(),
            has_told_full: false,
        };
        notifier.follow().await;
        notifier
    }

    /// What tells it to stop.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Until it is told to stop, and all that it has started is gone.
    pub async fn run(mut self) {
        loop {
            self.start_waiting();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.changes.next() => self.follow().await,
                Some(ended) = self.running.join_next_with_id() => self.note_end(ended),
                page = next_page(&mut self.log, self.not_before) => self.take(page).await,
            }
        }
        let dropped = self.queue.clear();
        for _ in 0..dropped {
            self.shared.metrics.notified(NotificationOutcome::Dropped);
        }
        let all_ended = async {
            while let Some(ended) = self.running.join_next_with_id().await {
                self.note_end(ended);
            }
        };
        if tokio::time::timeout(GRACE, all_ended).await.is_err() {
            tracing::warn!(
                running = self.running.len(),
                dropped,
                "acpd is stopping; killed running notification commands"
            );
        }
        // Whoever drops an errand kills it.
        self.running.shutdown().await;
    }

    /// Begins to follow the log, or stops it, as the configuration has it now.
    async fn follow(&mut self) {
        if self.shared.config().notifications.commands.is_empty() {
            self.log = None;
            return;
        }
        if self.log.is_some() {
            return;
        }
        match self.shared.hub.store().last_cursor().await {
            Ok(cursor) => self.log = Some(self.shared.hub.subscribe(EventScope::All, cursor)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    "cannot read the end of the event log; notifications are off until the next \
                    reload"
                );
            }
        }
    }

    async fn take(&mut self, page: Result<Option<Vec<Arc<Logged>>>, StoreError>) {
        self.not_before = None;
        match page {
            Ok(Some(events)) => {
                for event in events {
                    if self.stop.is_cancelled() {
                        return;
                    }
                    self.tell(&event.event).await;
                }
            }
            // Nothing will follow.
            Ok(None) => self.log = None,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot read the event log for notifications"
                );
                self.not_before = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Queues what there is to run for an event.
    async fn tell(&mut self, event: &StoredEvent) {
        let Some(occasion) = facts::occasion(&event.kind) else { return };
        let config = self.shared.config();
        let settings = &config.notifications;
        if !settings.commands.values().any(|notification| notification.on.contains(&occasion)) {
            return;
        }
        let facts = match Facts::gather(self.shared.hub.store(), occasion, event).await {
            Ok(Some(facts)) => Arc::new(facts),
            Ok(None) => return,
            Err(error) => {
                let (session, error) = (event.session, &error as &dyn std::error::Error);
                return tracing::error!(%session, error, "cannot read the details for a notification");
            }
        };
        for notification in settings.commands.values().filter(|notification| facts.concern(notification)) {
            let job = Job { notification: Arc::clone(notification), facts: Arc::clone(&facts) };
            if self.queue.push(job, settings.queue).is_some() {
                self.shared.metrics.notified(NotificationOutcome::Dropped);
                if !std::mem::replace(&mut self.has_told_full, true) {
                    let hint = "check whether a command hangs, or raise notifications.concurrent";
                    tracing::warn!(queue = settings.queue, hint, "too many notifications wait; dropped the oldest");
                }
            }
            // Nothing waits while there is room.
            self.start_waiting();
        }
    }

    fn note_end(&mut self, ended: Result<(task::Id, NotificationOutcome), task::JoinError>) {
        let (id, outcome) = ended.unwrap_or_else(|error| {
            tracing::error!(%error, "internal error: the task of a notification failed");
            (error.id(), NotificationOutcome::Failed)
        });
        self.owners.remove(&id);
        self.shared.metrics.notified(outcome);
    }

    fn start_waiting(&mut self) {
        let config = self.shared.config();
        while self.running.len() < config.notifications.concurrent {
            let running: Vec<Option<u32>> = self.owners.values().copied().collect();
            let Some(job) = self.queue.next(&running) else { break };
            let owner = job.facts.owner;
            let command = run::run(Arc::clone(&self.shared), job, config.notifications.timeout, self.stop.clone());
            self.owners.insert(self.running.spawn(command).id(), owner);
        }
        if self.queue.is_empty() {
            self.has_told_full = false;
        }
    }
}

/// The next events, when the log is followed and its time has come. Safe to cancel.
async fn next_page(
    log: &mut Option<Subscription>,
    not_before: Option<Instant>,
) -> Result<Option<Vec<Arc<Logged>>>, StoreError> {
    if let Some(time) = not_before {
        tokio::time::sleep_until(time).await;
    }
    match log {
        Some(log) => log.next().await,
        None => std::future::pending().await,
    }
}
