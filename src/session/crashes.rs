//! Crashes in a row, and how long a session rests after them: pure, so that it can be tested without a clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Processes;

/// From which crash on the next start waits. One crash is an accident.
const PATIENCE: u32 = 2;

#[derive(Debug, Default)]
pub struct Crashes {
    count: u32,
    last: Option<Instant>,
}

impl Crashes {
    pub fn note(&mut self, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// A turn has ended as it should, or the last crash is long ago.
    pub fn forgive(&mut self) {
        *self = Self::default();
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Until when no process is started.
    pub fn rest_until(&self, bounds: &Processes) -> Option<Instant> {
        let doublings = self.count.checked_sub(PATIENCE.min(bounds.crash_limit))?;
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let rest = bounds.backoff_min.checked_mul(factor).unwrap_or(Duration::MAX);
        self.last.map(|last| last + rest.min(bounds.backoff_max))
    }

    /// Whether turns fail at once instead of waiting for the next start.
    pub fn is_loop(&self, bounds: &Processes) -> bool {
        self.count >= bounds.crash_limit
    }

    /// Until when the crashes count.
    pub fn remembered_until(&self, bounds: &Processes) -> Option<Instant> {
        Some(self.rest_until(bounds).or(self.last)? + bounds.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_rest_doubles_up_to_its_bound() {
        let bounds = Config::default().processes;
        let mut crashes = Crashes::default();
        let now = Instant::now();
        let mut rests = Vec::new();
        for _ in 0..40 {
            crashes.note(now);
            rests.push(crashes.rest_until(&bounds).map(|until| (until - now).as_secs()));
        }
        assert_eq!(rests[..6], [None, Some(1), Some(2), Some(4), Some(8), Some(16)]);
        assert_eq!(rests[39], Some(60), "it does not grow beyond the bound, and does not overflow");
        assert!(crashes.is_loop(&bounds));
        let strict = Processes { crash_limit: 1, ..bounds.clone() };
        let mut first = Crashes::default();
        first.note(now);
        assert!(first.is_loop(&strict) && first.rest_until(&strict).is_some(), "a limit of one holds for the first");
        crashes.forgive();
        assert_eq!((crashes.rest_until(&bounds), crashes.is_loop(&bounds)), (None, false));
        assert_eq!(crashes.remembered_until(&bounds), None);
    }
}
