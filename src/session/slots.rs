//! Slots: the right to have a process. There are as many as `limits.processes`.
//!
//! A request takes a free one, or is refused when nobody makes room. Work that was accepted earlier waits for one, in
//! order. Whoever waits is owed one process that goes; those on their way out are counted, so that no second one goes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

#[derive(Debug)]
pub struct Slots {
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Who waits first is served first.
    waiting: VecDeque<oneshot::Sender<Slot>>,
    /// Slots whose process is on its way out.
    leaving: usize,
}

impl State {
    fn is_wanted(&mut self) -> bool {
        self.waiting.retain(|waiting| !waiting.is_closed());
        self.waiting.len() > self.leaving
    }
}

impl Slots {
    pub fn new(count: usize) -> Arc<Self> {
        let state = State { free: count, waiting: VecDeque::new(), leaving: 0 };
        Arc::new(Self { state: Mutex::new(state), wanted: Notify::new() })
    }

    pub fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.lock();
        state.free = state.free.checked_sub(1)?;
        Some(Slot { slots: Arc::clone(self), is_leaving: false })
    }

    /// Waits in line with work that was accepted, or for a slot that was promised.
    pub async fn take_for_work(self: Arc<Self>) -> Slot {
        let served = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Slot { slots: Arc::clone(&self), is_leaving: false };
            }
            let (waiting, served) = oneshot::channel();
            state.waiting.push_back(waiting);
            served
        };
        self.wanted.notify_one();
        match served.await {
            Ok(slot) => slot,
            // Who waits is dropped from the line only with the line itself.
            Err(_) => std::future::pending().await,
        }
    }

    /// Resolves when somebody waits for whom nobody leaves yet. To be awaited by whoever has a process and nothing to do:
    /// the one that does so longest is asked first. Safe to cancel.
    pub async fn wanted(&self) {
        while !self.lock().is_wanted() {
            self.wanted.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One slot. Dropping it gives it to who waits first.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    is_leaving: bool,
}

impl Slot {
    /// The process is on its way out.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.slots.lock().leaving += 1;
        }
    }

    /// The same, if somebody waits for whom nobody leaves yet.
    pub fn leave_if_wanted(&mut self) -> bool {
        let mut state = self.slots.lock();
        let leaves = !self.is_leaving && state.is_wanted();
        if leaves {
            state.leaving += 1;
            self.is_leaving = true;
        }
        leaves
    }

    /// It serves its own session again.
    pub fn stay(&mut self) {
        if std::mem::replace(&mut self.is_leaving, false) {
            self.slots.lock().leaving -= 1;
            self.slots.wanted.notify_one();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut state = self.slots.lock();
            state.leaving -= usize::from(self.is_leaving);
            let next = state.waiting.pop_front();
            state.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // Who gave up gives it back, and so on to the next.
            drop(next.send(Self { slots: Arc::clone(&self.slots), is_leaving: false }));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_who_waits_is_owed_one_process_that_goes() {
        let slots = Slots::new(2);
        let (mut first, mut second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        assert!(slots.try_take().is_none());
        assert!(slots.wanted().now_or_never().is_none(), "nobody waits");
        let mut work = Box::pin(Arc::clone(&slots).take_for_work());
        assert!(work.as_mut().now_or_never().is_none());
        assert!(slots.wanted().now_or_never().is_some());
        assert!(first.leave_if_wanted());
        assert!(!second.leave_if_wanted(), "one is on its way out already");
        drop(first);
        let taken = work.as_mut().now_or_never().expect("it is served");
        drop((taken, second));
        assert!(slots.try_take().is_some() && slots.try_take().is_some(), "none is lost");
    }

    #[test]
    fn who_gave_up_is_passed_over_and_who_came_first_is_served_first() {
        let slots = Slots::new(1);
        let mut held = slots.try_take().unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(Arc::clone(&slots).take_for_work())).collect();
        for work in &mut waiting {
            assert!(work.as_mut().now_or_never().is_none());
        }
        drop(waiting.remove(0));
        held.leave();
        held.stay();
        drop(held);
        assert!(waiting[1].as_mut().now_or_never().is_none());
        assert!(waiting[0].as_mut().now_or_never().is_some());
    }
}
