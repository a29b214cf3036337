//! Retention: how long sessions are kept, and what a sweep does with one. Policy alone: it knows neither clock nor record.
//!
//! ```text
//!                          not expired    expired
//! no mark, or a stale one  leave, unmark  mark
//! a mark that counts       -              wait; delete when the mark is a day old and no turn waits
//! ```
//!
//! Invariants:
//! 1. An active session never expires.
//! 2. Deleted is only what was expired at two sweeps at least [`MARK_AGE_MIN`] apart. The first one leaves a mark.
//! 3. A mark counts only when it lies between the expiry and now. One from before was for another stay in the status, one
//!    from the future was made by a clock that was wrong. Neither brings a deletion nearer: counting begins anew.
//! 4. A session that a user keeps never expires: it has no expiry.
//! 5. Turns that wait were promised to somebody: they keep their session.

use std::time::Duration;

use super::status::SessionStatus;
use super::time::Timestamp;

/// How old a mark is at least when its session is deleted.
pub const MARK_AGE_MIN: Duration = Duration::from_hours(24);

/// How long sessions are kept, by status. None: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub suspended: Option<Duration>,
    /// Suspended, and the agent can take the conversation up again.
    pub resumable: Option<Duration>,
    pub error: Option<Duration>,
    pub archived: Option<Duration>,
}

/// What a sweep does with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not expired, and nobody says so.
    Leave,
    /// It is expired: this is the first sweep that sees it.
    Mark,
    /// It is not expired any more.
    Unmark,
    /// It was marked, and may not be deleted yet.
    Wait,
    Delete,
}

impl Retention {
    /// When a session's time is over, counted from when it entered its status. None: never.
    pub fn expires_at(
        &self,
        status: SessionStatus,
        status_changed_at: Timestamp,
        supports_resume: bool,
    ) -> Option<Timestamp> {
        let kept = match status {
            SessionStatus::Active => None,
            SessionStatus::Suspended if supports_resume => self.resumable,
            SessionStatus::Suspended => self.suspended,
            SessionStatus::Archived => self.archived,
            SessionStatus::Error => self.error,
        };
        status_changed_at.after(kept?)
    }
}

/// What becomes of a session that expires then, that a sweep marked then, and that has turns waiting or not.
pub fn verdict(
    expires_at: Option<Timestamp>,
    marked_at: Option<Timestamp>,
    has_queued_turns: bool,
    now: Timestamp,
) -> Verdict {
    let Some(expired_at) = expires_at.filter(|expires_at| *expires_at <= now) else {
        return if marked_at.is_some() { Verdict::Unmark } else { Verdict::Leave };
    };
    let Some(marked_at) = marked_at.filter(|marked_at| (expired_at..=now).contains(marked_at)) else {
        return Verdict::Mark;
    };
    if has_queued_turns || now.since(marked_at) < MARK_AGE_MIN { Verdict::Wait } else { Verdict::Delete }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 24 * 60 * 60 * 1000;
    const CONTRACT: Retention = Retention {
        suspended: Some(Duration::from_hours(7 * 24)),
        resumable: Some(Duration::from_hours(30 * 24)),
        error: Some(Duration::from_hours(24)),
        archived: None,
    };
    const FOR_EVER: Retention = Retention { suspended: None, resumable: None, error: None, archived: None };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn each_status_is_kept_as_long_as_the_contract_says() {
        for (status, supports_resume, days) in [
            (SessionStatus::Active, false, None),
            (SessionStatus::Active, true, None),
            (SessionStatus::Suspended, false, Some(7)),
            (SessionStatus::Suspended, true, Some(30)),
            (SessionStatus::Error, false, Some(1)),
            (SessionStatus::Error, true, Some(1)),
            (SessionStatus::Archived, false, None),
            (SessionStatus::Archived, true, None),
        ] {
            let expires_at = CONTRACT.expires_at(status, at(5), supports_resume);
            assert_eq!(expires_at, days.map(|days| at(5 + days * DAY)), "{status}, {supports_resume}");
            assert_eq!(FOR_EVER.expires_at(status, at(5), supports_resume), None, "0 keeps");
        }
    }

    #[test]
    fn a_time_that_no_calendar_has_is_never() {
        let long = Retention { suspended: Some(Duration::MAX), error: Some(Duration::from_hours(1 << 30)), ..CONTRACT };
        assert_eq!(long.expires_at(SessionStatus::Suspended, at(0), false), None);
        assert_eq!(long.expires_at(SessionStatus::Error, at(0), false), None);
        assert_eq!(CONTRACT.expires_at(SessionStatus::Error, at(i64::MAX), false), None, "a damaged row");
    }

    #[test]
    fn a_session_is_marked_waits_and_is_deleted() {
        let now = at(10 * DAY);
        let verdict = |expires_at: Option<i64>, marked_at: Option<i64>, has_queued_turns| {
            verdict(expires_at.map(at), marked_at.map(at), has_queued_turns, now)
        };
        let (over, later) = (Some(8 * DAY), Some(10 * DAY + 1));
        for has_queued_turns in [false, true] {
            assert_eq!(verdict(None, None, has_queued_turns), Verdict::Leave);
            assert_eq!(verdict(later, None, has_queued_turns), Verdict::Leave);
            assert_eq!(verdict(None, Some(9 * DAY), has_queued_turns), Verdict::Unmark, "resumed, or kept for ever");
            assert_eq!(verdict(later, Some(9 * DAY), has_queued_turns), Verdict::Unmark, "the retention was raised");
            assert_eq!(verdict(over, None, has_queued_turns), Verdict::Mark);
            assert_eq!(verdict(Some(10 * DAY), None, has_queued_turns), Verdict::Mark, "to the millisecond");
            assert_eq!(verdict(over, Some(8 * DAY - 1), has_queued_turns), Verdict::Mark, "of another stay");
            assert_eq!(verdict(over, Some(10 * DAY + 1), has_queued_turns), Verdict::Mark, "of another clock");
            assert_eq!(verdict(over, Some(9 * DAY + 1), has_queued_turns), Verdict::Wait, "not a whole day yet");
        }
        assert_eq!(verdict(over, Some(9 * DAY), false), Verdict::Delete);
        assert_eq!(verdict(over, Some(8 * DAY), false), Verdict::Delete);
        assert_eq!(verdict(over, Some(9 * DAY), true), Verdict::Wait, "turns that wait keep their session");
    }

    /// What happens to a session between sweeps.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A sweep, when the clock has moved by this much, which may be backwards.
        Sweep { by: i64, has_queued_turns: bool },
        /// The session's expiry becomes another one, from now.
        Expiry(Option<i64>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let sweep =
            (-3 * DAY..5 * DAY, any::<bool>()).prop_map(|(by, has_queued_turns)| Step::Sweep { by, has_queued_turns });
        let expiry = prop::option::of(-2 * DAY..2 * DAY).prop_map(Step::Expiry);
        prop::collection::vec(prop_oneof![4 => sweep, 1 => expiry], 1..60)
    }

    proptest! {
        #[test]
        fn whatever_the_clock_does_only_what_was_expired_at_two_sweeps_a_day_apart_is_deleted(steps in steps()) {
            let (mut now, mut expires_at, mut marked_at) = (100 * DAY, Some(100 * DAY), None);
            // The times of the sweeps that found it expired, since it last was not.
            let mut seen: Vec<i64> = Vec::new();
            for step in steps {
                let (by, has_queued_turns) = match step {
                    Step::Sweep { by, has_queued_turns } => (by, has_queued_turns),
                    Step::Expiry(from_now) => {
                        expires_at = from_now.map(|from_now| now + from_now);
                        continue;
                    }
                };
                now += by;
                let is_expired = expires_at.is_some_and(|expires_at| expires_at <= now);
                match verdict(expires_at.map(at), marked_at.map(at), has_queued_turns, at(now)) {
                    Verdict::Leave => prop_assert!(!is_expired && marked_at.is_none()),
                    Verdict::Unmark => {
                        prop_assert!(!is_expired && marked_at.is_some());
                        marked_at = None;
                    }
                    Verdict::Mark => {
                        prop_assert!(is_expired);
                        marked_at = Some(now);
                    }
                    Verdict::Wait => prop_assert!(is_expired && marked_at.is_some()),
                    Verdict::Delete => {
                        prop_assert!(is_expired && !has_queued_turns);
                        prop_assert!(seen.iter().any(|seen| *seen + DAY <= now && Some(*seen) >= expires_at));
                        break;
                    }
                }
                if is_expired { seen.push(now) } else { seen.clear() }
            }
        }
    }
}
