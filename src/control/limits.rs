//! How often one may ask: requests per user, prompts per session.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::error::ApiError;
use crate::config;
use crate::model::SessionId;

/// Keys from which on those that have not been seen lately are forgotten.
const KEYS_MAX: usize = 1024;

#[derive(Debug)]
pub struct RateLimits {
    requests: DefaultKeyedRateLimiter<u32>,
    prompts: DefaultKeyedRateLimiter<SessionId>,
}

impl RateLimits {
    pub fn new(settings: &config::Control) -> Self {
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self {
            requests: RateLimiter::keyed(Quota::per_second(at_least_one(settings.requests_per_second))),
            prompts: RateLimiter::keyed(Quota::per_minute(at_least_one(settings.prompts_per_minute))),
        }
    }

    /// Lets a request of this user pass, or says how long to wait.
    pub fn request(&self, uid: u32) -> Result<(), ApiError> {
        let too_often = |wait| ApiError::TooOften { what: "requests", setting: "control.requests_per_second", wait };
        check(&self.requests, &uid).map_err(too_often)
    }

    pub fn prompt(&self, session: SessionId) -> Result<(), ApiError> {
        let what = "prompts to this session";
        let too_often = |wait| ApiError::TooOften { what, setting: "control.prompts_per_minute", wait };
        check(&self.prompts, &session).map_err(too_often)
    }
}

fn check<K: std::hash::Hash + Eq + Clone>(limiter: &DefaultKeyedRateLimiter<K>, key: &K) -> Result<(), Duration> {
    if limiter.len() > KEYS_MAX {
        limiter.retain_recent();
    }
    limiter.check_key(key).map_err(|wait| wait.wait_time_from(DefaultClock::default().now()))
}
