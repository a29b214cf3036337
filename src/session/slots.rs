//! Slots: the right to have a process. There are as many as `limits.processes`.
//!
//! A request takes a free one, or is refused when nobody makes room. Work that was accepted earlier waits for one, in
//! order, and makes itself known: a session whose process has nothing to do then lets it go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// One slot. Dropping it gives it back.
pub type Slot = OwnedSemaphorePermit;

#[derive(Debug)]
pub struct Slots {
    /// Fair: who waits first is served first.
    free: Arc<Semaphore>,
    /// How many sessions wait with work that was accepted.
    waiting: AtomicUsize,
    wanted: Notify,
}

impl Slots {
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(count)), waiting: AtomicUsize::new(0), wanted: Notify::new() })
    }

    pub fn try_take(&self) -> Option<Slot> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Waits in line with work that was accepted, and lets those know who could make room.
    pub async fn take_for_work(self: Arc<Self>) -> Option<Slot> {
        let _waiting = Waiting::begin(&self);
        self.wanted.notify_one();
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Resolves when somebody waits. To be awaited by whoever has a process and nothing to do: the one that does so
    /// longest is asked first. Safe to cancel.
    pub async fn wanted(&self) {
        while self.waiting.load(Ordering::Relaxed) == 0 {
            self.wanted.notified().await;
        }
    }
}

/// Counts somebody who waits, for as long as they do.
struct Waiting<'a>(&'a Slots);

impl<'a> Waiting<'a> {
    fn begin(slots: &'a Slots) -> Self {
        slots.waiting.fetch_add(1, Ordering::Relaxed);
        Self(slots)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn who_waits_with_work_is_heard_and_who_gives_up_is_not() {
        let slots = Slots::new(1);
        let held = slots.try_take().unwrap();
        assert!(slots.try_take().is_none());
        assert!(slots.wanted().now_or_never().is_none(), "nobody waits");
        let mut work = Box::pin(Arc::clone(&slots).take_for_work());
        assert!(work.as_mut().now_or_never().is_none());
        assert!(slots.wanted().now_or_never().is_some());
        drop(held);
        assert!(work.as_mut().now_or_never().flatten().is_some());
        drop(work);
        assert!(slots.wanted().now_or_never().is_none(), "served");
    }
}
