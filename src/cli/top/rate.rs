//! How many events there were in each second of the last minute.

use std::collections::VecDeque;

/// Seconds that are remembered.
pub const SECONDS: usize = 60;

/// Counts by second, the newest last. The last one is still being counted.
#[derive(Debug, Default)]
pub struct Rate {
    counts: VecDeque<u64>,
    /// The second that the last count is of.
    second: u64,
}

impl Rate {
    /// So many events in this second, which is none before the last one.
    pub fn add(&mut self, events: u64, second: u64) {
        self.advance(second);
        if let Some(last) = self.counts.back_mut() {
            *last += events;
        }
    }

    /// Time goes on, also when nothing happens.
    pub fn advance(&mut self, second: u64) {
        if self.counts.is_empty() {
            self.second = second;
            self.counts.push_back(0);
        }
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(usize::MAX);
        for _ in 0..passed.min(SECONDS + 1) {
            self.counts.push_back(0);
        }
        self.second = self.second.max(second);
        while self.counts.len() > SECONDS + 1 {
            self.counts.pop_front();
        }
    }

    /// The seconds that are over, the newest last.
    pub fn whole_seconds(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
        self.counts.iter().copied().take(self.counts.len().saturating_sub(1))
    }

    /// Of the last second that is over.
    pub fn last(&self) -> u64 {
        self.whole_seconds().next_back().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_pass_and_are_forgotten() {
        let mut rate = Rate::default();
        rate.add(3, 100);
        assert_eq!((rate.last(), rate.whole_seconds().len()), (0, 0), "the second is not over");
        rate.add(2, 100);
        rate.add(1, 101);
        assert_eq!(rate.last(), 5);
        rate.advance(104);
        assert_eq!(rate.whole_seconds().collect::<Vec<_>>(), [5, 1, 0, 0]);
        rate.advance(1_000_000);
        assert_eq!((rate.whole_seconds().len(), rate.whole_seconds().sum::<u64>()), (SECONDS, 0));
    }
}
