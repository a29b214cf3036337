//! Retention at work: sweeps delete what the policy ([`crate::model::retention`]) says may go, and one is made every day.
//!
//! A sweep pages through the sessions that are not active. What is expired for the first time is marked; what was marked
//! a day ago is deleted by its own actor, which looks again, so that nobody loses a session that they have just resumed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Registry, RegistryError};
use crate::model::retention::{self, MARK_AGE_MIN};
use crate::model::session::Session;
use crate::model::{Retention, SessionId, SessionStatus, Timestamp, Verdict};
use crate::session::{Halt, Refusal, Request};
use crate::store::{Candidate, Catalogue, StoreError, Unit};

/// The daily sweeps are at least this far apart, across restarts too.
const SWEEP_INTERVAL: Duration = Duration::from_hours(24);
/// A daemon that has just started sweeps nothing: people come back first, or see that their clock is wrong.
const PAUSE_AFTER_START: Duration = Duration::from_mins(10);
/// How often to see whether a sweep is due. A machine that sleeps does not count that time, but its clock does.
const LOOK_INTERVAL: Duration = Duration::from_hours(1);
/// Sessions that a sweep holds at a time, and marks in one transaction.
const PAGE: i64 = 100;
/// Sessions that one list of a sweep names; more are only counted.
const NAMED_MAX: usize = 1000;

/// What a sweep did, or with a dry run would have done.
#[derive(Debug, Default)]
pub struct Sweep {
    pub deleted: Swept,
    /// Found expired for the first time.
    pub marked: Swept,
    /// Expired, and not to be deleted yet.
    pub waiting: Swept,
    /// Not expired any more.
    pub unmarked: Swept,
}

/// Sessions that a sweep did the same with: the first of them by name, and how many there are.
#[derive(Debug, Default)]
pub struct Swept {
    pub sessions: Vec<SweptSession>,
    pub total: usize,
}

#[derive(Debug)]
pub struct SweptSession {
    pub id: SessionId,
    pub title: String,
    pub status: SessionStatus,
    pub expires_at: Option<Timestamp>,
    /// From when on a sweep may delete it.
    pub deletable_at: Option<Timestamp>,
    /// Turns that keep it, for as long as they wait.
    pub queued_turns: i64,
}

impl Swept {
    fn add(&mut self, session: SweptSession) {
        self.total += 1;
        if self.sessions.len() < NAMED_MAX {
            self.sessions.push(session);
        }
    }
}

impl Registry {
    /// When a session's retention is over, by the configuration of now. None: never.
    pub fn expires_at(&self, session: &Session) -> Option<Timestamp> {
        let Session { status, status_changed_at, supports_resume, keep, .. } = *session;
        self.retention().expires_at(status, status_changed_at, supports_resume).filter(|_| !keep)
    }

    pub(super) fn retention(&self) -> Retention {
        let sessions = &self.shared().config().sessions;
        Retention {
            suspended: sessions.retention_suspended,
            resumable: sessions.retention_resumable,
            error: sessions.retention_error,
            archived: sessions.retention_archived,
        }
    }

    /// Makes one sweep over all sessions. A dry run changes nothing.
    pub async fn sweep(self: &Arc<Self>, dry_run: bool) -> Result<Sweep, RegistryError> {
        // One time for the whole sweep: what expires while it runs is the next one's.
        let now = Timestamp::now();
        let retention = self.retention();
        let mut sweep = Sweep::default();
        let mut after = None;
        loop {
            if self.is_stopping() {
                return Err(Refusal::ShuttingDown.into());
            }
            let page = self.hub().store().retention_candidates(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            self.sweep_page(page, &retention, now, dry_run, &mut sweep).await?;
        }
        if !dry_run {
            self.hub().append_own(Unit::catalogue(Catalogue::Swept { at: now })).await?;
        }
        let Sweep { deleted, marked, waiting, unmarked } = &sweep;
        let (deleted, marked, waiting, unmarked) = (deleted.total, marked.total, waiting.total, unmarked.total);
        tracing::info!(dry_run, deleted, marked, waiting, unmarked, "searched for expired sessions");
        if deleted > 0 && !dry_run {
            self.log_session_counts().await;
        }
        Ok(sweep)
    }

    async fn sweep_page(
        self: &Arc<Self>,
        page: Vec<Candidate>,
        retention: &Retention,
        now: Timestamp,
        dry_run: bool,
        sweep: &mut Sweep,
    ) -> Result<(), RegistryError> {
        let mut marks = Unit::default();
        for candidate in page {
            let Candidate { id, status, status_changed_at, queued_turns, .. } = candidate;
            let expires_at = retention.expires_at(status, status_changed_at, candidate.supports_resume);
            let expires_at = expires_at.filter(|_| !candidate.keep);
            let verdict = retention::verdict(expires_at, candidate.expired_seen_at, queued_turns > 0, now);
            let marked_at = match verdict {
                Verdict::Leave => continue,
                Verdict::Unmark => None,
                Verdict::Mark => Some(now),
                Verdict::Wait | Verdict::Delete => candidate.expired_seen_at,
            };
            let deletable_at = marked_at.and_then(|marked_at| marked_at.after(MARK_AGE_MIN));
            let swept = SweptSession { id, title: candidate.title, status, expires_at, deletable_at, queued_turns };
            match verdict {
                Verdict::Leave => {}
                Verdict::Wait => sweep.waiting.add(swept),
                Verdict::Delete if dry_run => sweep.deleted.add(swept),
                Verdict::Delete => match self.expire(id, status).await? {
                    Expiry::Deleted => sweep.deleted.add(swept),
                    Expiry::Busy => sweep.waiting.add(swept),
                    Expiry::Kept => {}
                },
                Verdict::Mark | Verdict::Unmark => {
                    marks.catalogue.push(Catalogue::MarkExpired { session: id, status_changed_at, seen_at: marked_at });
                    let list = if verdict == Verdict::Mark { &mut sweep.marked } else { &mut sweep.unmarked };
                    list.add(swept);
                }
            }
        }
        if !dry_run && !marks.catalogue.is_empty() {
            self.hub().append_own(marks).await?;
        }
        Ok(())
    }

    /// Has a session deleted by its actor, which keeps one that was resumed or prompted meanwhile.
    async fn expire(self: &Arc<Self>, session: SessionId, seen: SessionStatus) -> Result<Expiry, RegistryError> {
        match self.ask(session, |reply| Request::Expire { seen, reply }).await {
            Ok(()) => {
                tracing::info!(%session, status = %seen, "deleted an expired session");
                Ok(Expiry::Deleted)
            }
            Err(RegistryError::Refused(Refusal::NotExpired) | RegistryError::NotFound(_)) => Ok(Expiry::Kept),
            // One session in trouble does not keep the others.
            Err(
                error @ (RegistryError::Refused(Refusal::Overloaded)
                | RegistryError::ActorFailed
                | RegistryError::InError { .. }
                | RegistryError::Store(StoreError::Damaged { .. })),
            ) => {
                tracing::warn!(%session, error = &error as &dyn std::error::Error, "cannot delete an expired session now");
                Ok(Expiry::Busy)
            }
            Err(error) => Err(error),
        }
    }

    /// Sweeps once a day until the daemon stops.
    pub async fn sweep_daily(self: Arc<Self>) {
        let mut halt = self.halt.watch();
        // A sweep that is cut off has done a part of it, and the next one does the rest.
        tokio::select! {
            biased;
            _ = halt.above(Halt::No) => {}
            () = self.sweep_for_ever() => {}
        }
    }

    async fn sweep_for_ever(self: &Arc<Self>) {
        let mut pause = PAUSE_AFTER_START;
        loop {
            sleep_until(Instant::now() + pause).await;
            pause = self.sweep_when_due().await.unwrap_or_else(|error| {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot delete expired sessions");
                LOOK_INTERVAL
            });
            pause = pause.min(LOOK_INTERVAL);
        }
    }

    /// Sweeps when the last sweep is long enough ago, and tells how long to wait for the next one.
    async fn sweep_when_due(self: &Arc<Self>) -> Result<Duration, RegistryError> {
        let now = Timestamp::now();
        match due(self.hub().store().last_sweep().await?, now) {
            Due::Now => {
                self.sweep(false).await?;
                Ok(SWEEP_INTERVAL)
            }
            Due::In(wait) => Ok(wait),
            Due::ClockSetBack => {
                tracing::warn!(%now, "the last search for expired sessions has a time in the future; the next one is \
                    in a day");
                self.hub().append_own(Unit::catalogue(Catalogue::Swept { at: now })).await?;
                Ok(SWEEP_INTERVAL)
            }
        }
    }
}

/// What became of a session that was to be deleted.
enum Expiry {
    Deleted,
    /// It went on, or somebody else has deleted it.
    Kept,
    Busy,
}

/// When the next daily sweep is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Now,
    In(Duration),
    /// The time of the last one tells nothing: a day is counted from now.
    ClockSetBack,
}

fn due(last: Option<Timestamp>, now: Timestamp) -> Due {
    let Some(last) = last else { return Due::Now };
    if last > now {
        return Due::ClockSetBack;
    }
    match SWEEP_INTERVAL.saturating_sub(now.since(last)) {
        Duration::ZERO => Due::Now,
        wait => Due::In(wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_due_a_day_after_the_last_one_whatever_the_clock_did() {
        let at = |hours: i64| Timestamp::from_millis(hours * 60 * 60 * 1000);
        assert_eq!(due(None, at(5)), Due::Now, "the first one of all");
        assert_eq!(due(Some(at(0)), at(0)), Due::In(SWEEP_INTERVAL));
        assert_eq!(due(Some(at(0)), at(23)), Due::In(Duration::from_hours(1)));
        assert_eq!(due(Some(at(0)), at(24)), Due::Now);
        assert_eq!(due(Some(at(0)), at(1000)), Due::Now);
        assert_eq!(due(Some(at(1)), at(0)), Due::ClockSetBack, "neither now nor in years");
    }

    #[test]
    fn the_lists_of_a_sweep_are_bounded_and_its_counts_are_not() {
        let mut swept = Swept::default();
        for _ in 0..NAMED_MAX + 5 {
            swept.add(SweptSession {
                id: SessionId::new(),
                title: String::new(),
                status: SessionStatus::Error,
                expires_at: None,
                deletable_at: None,
                queued_turns: 0,
            });
        }
        assert_eq!((swept.sessions.len(), swept.total), (NAMED_MAX, NAMED_MAX + 5));
    }
}
