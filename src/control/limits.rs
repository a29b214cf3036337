//! How often one may ask: requests per user, prompts per session, and what a session's agent asks by its tools.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::caller::Caller;
use super::error::ApiError;
use crate::config;
use crate::model::SessionId;

/// Keys from which on those that have not been seen lately are forgotten.
const KEYS_MIN: usize = 1024;

#[derive(Debug)]
pub struct RateLimits {
    requests: Limiter<u32>,
    /// Of agents, each at the rate of a user, so that none uses up what its user has.
    tools: Limiter<SessionId>,
    prompts: Limiter<SessionId>,
}

impl RateLimits {
    pub fn new(settings: &config::Control) -> Self {
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self {
            requests: Limiter::new(Quota::per_second(at_least_one(settings.requests_per_second))),
            tools: Limiter::new(Quota::per_second(at_least_one(settings.requests_per_second))),
            prompts: Limiter::new(Quota::per_minute(at_least_one(settings.prompts_per_minute))),
        }
    }

    /// Lets a request of this user pass, or says how long to wait. Root and the daemon's own user have no other rate: a loop
    /// of theirs that runs away is stopped like any other.
    pub fn request(&self, caller: &Caller) -> Result<(), ApiError> {
        let too_often = |wait| ApiError::TooOften { what: "requests", setting: "control.requests_per_second", wait };
        let checked = match caller.agent_of() {
            Some(session) => self.tools.check(&session),
            None => self.requests.check(&caller.peer.uid),
        };
        checked.map_err(too_often)
    }

    pub fn prompt(&self, session: SessionId) -> Result<(), ApiError> {
        let what = "prompts to this session";
        let too_often = |wait| ApiError::TooOften { what, setting: "control.prompts_per_minute", wait };
        self.prompts.check(&session).map_err(too_often)
    }
}

/// A rate for each key. Keys whose rate is whole again are forgotten, so there are never more than twice as many as there
/// were in use at once; and whether there are too many is looked at so seldom that it costs nothing.
#[derive(Debug)]
struct Limiter<K: Hash + Eq + Clone> {
    rates: DefaultKeyedRateLimiter<K>,
    /// How many there are when they are looked through.
    keys_max: AtomicUsize,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    fn new(quota: Quota) -> Self {
        Self { rates: RateLimiter::keyed(quota), keys_max: AtomicUsize::new(KEYS_MIN) }
    }

    fn check(&self, key: &K) -> Result<(), Duration> {
        if self.rates.len() > self.keys_max.load(Ordering::Relaxed) {
            self.rates.retain_recent();
            self.keys_max.store((2 * self.rates.len()).max(KEYS_MIN), Ordering::Relaxed);
        }
        self.rates.check_key(key).map_err(|wait| wait.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::caller::Standing;
    use crate::model::Peer;

    #[test]
    fn whoever_waits_as_told_may_ask_again_and_others_are_not_concerned() {
        let limiter = Limiter::new(Quota::per_minute(NonZeroU32::new(2).unwrap()));
        assert!(limiter.check(&1).is_ok() && limiter.check(&1).is_ok());
        let wait = limiter.check(&1).unwrap_err();
        assert!((Duration::from_secs(29)..=Duration::from_secs(30)).contains(&wait), "{wait:?}");
        assert!(limiter.check(&2).is_ok());
    }

    #[test]
    fn what_an_agent_asks_is_not_counted_as_its_users() {
        let settings = config::Control { requests_per_second: 1, ..config::Config::default().control };
        let limits = RateLimits::new(&settings);
        let peer = std::sync::Arc::new(Peer { uid: 1000, pid: None, program: None });
        let caller = |standing| Caller::new(std::sync::Arc::clone(&peer), standing);
        let agent = || caller(Standing::Agent { session: SessionId::new(), owner: None });
        let (first, second) = (agent(), agent());
        assert!(limits.request(&first).is_ok() && limits.request(&first).is_err());
        assert!(limits.request(&second).is_ok(), "nor as another session's");
        assert!(limits.request(&caller(Standing::Own)).is_ok());
    }

    #[test]
    fn keys_that_are_not_used_any_more_are_forgotten() {
        // At this rate a key is forgotten after a microsecond.
        let limiter = Limiter::new(Quota::per_second(NonZeroU32::new(1_000_000).unwrap()));
        for key in 0..10 * KEYS_MIN {
            assert!(limiter.check(&key).is_ok());
        }
        assert!(limiter.rates.len() <= 2 * KEYS_MIN, "{} keys", limiter.rates.len());
    }
}
