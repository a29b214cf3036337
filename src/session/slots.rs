//! Slots: the right to have a process. There are as many as `limits.processes`.
//!
//! A request takes a free one, or is refused when nobody makes room. Work that was accepted earlier waits for one, in
//! order. Whoever waits is owed one process that goes; those on their way out are counted, so that no second one goes.
//!
//! The limit may change while there are processes. More slots serve whoever waits. Fewer kill nobody: what there is too
//! many of is in excess, and goes as slots come back, before anybody is served.
//!
//! 1. What is free and what is held are together the limit and the excess.
//! 2. Nothing is free while somebody waits, or while there is an excess.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::shares::{Share, Shares};

#[derive(Debug)]
pub struct Slots {
    /// How they are shared among users.
    pub shares: Arc<Shares>,
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Debug)]
struct State {
    limit: usize,
    free: usize,
    /// Slots above the limit, since it was lowered. Those that come back next are not given out again.
    excess: usize,
    /// Who waits first is served first.
    waiting: VecDeque<oneshot::Sender<Slot>>,
    /// Slots whose process is on its way out.
    leaving: usize,
}

impl State {
    fn is_wanted(&mut self) -> bool {
        self.waiting.retain(|waiting| !waiting.is_closed());
        // The excess alone drives nobody out; but nobody is served before it is gone.
        !self.waiting.is_empty() && self.waiting.len() + self.excess > self.leaving
    }
}

impl Slots {
    pub fn new(count: usize) -> Arc<Self> {
        let state = State { limit: count, free: count, excess: 0, waiting: VecDeque::new(), leaving: 0 };
        Arc::new(Self { shares: Arc::default(), state: Mutex::new(state), wanted: Notify::new() })
    }

    /// Changes the limit. Growing serves whoever waits; shrinking takes what is free, and the rest as it comes back.
    pub fn resize(self: &Arc<Self>, count: usize) {
        let served = {
            let mut state = self.lock();
            let (grown, shrunk) = (count.saturating_sub(state.limit), state.limit.saturating_sub(count));
            state.limit = count;
            let forgiven = grown.min(state.excess);
            let taken = shrunk.min(state.free);
            state.excess = state.excess - forgiven + (shrunk - taken);
            state.free -= taken;
            let added = grown - forgiven;
            let serving = added.min(state.waiting.len());
            state.free += added - serving;
            state.waiting.drain(..serving).collect::<Vec<_>>()
        };
        for next in served {
            self.serve(next);
        }
        // Whoever waits needs more to go than before.
        self.wanted.notify_one();
    }

    /// How many processes there are too many, since the limit was lowered.
    pub fn excess(&self) -> usize {
        self.lock().excess
    }

    fn serve(self: &Arc<Self>, next: oneshot::Sender<Slot>) {
        // Who gave up gives it back, and so on to the next.
        drop(next.send(Slot { slots: Arc::clone(self), is_leaving: false, share: None }));
    }

    pub fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.lock();
        state.free = state.free.checked_sub(1)?;
        Some(Slot { slots: Arc::clone(self), is_leaving: false, share: None })
    }

    /// Waits in line with work that was accepted, or for a slot that was promised.
    pub async fn take_for_work(self: Arc<Self>) -> Slot {
        let served = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Slot { slots: Arc::clone(&self), is_leaving: false, share: None };
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

    /// The same for a session of this owner's. It counts from now on.
    pub async fn take_for_work_of(self: Arc<Self>, owner: Option<u32>) -> Slot {
        let share = owner.map(|owner| self.shares.take(owner));
        self.take_for_work().await.with(share)
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
    /// What it is of its user's share; it goes with the slot.
    share: Option<Share>,
}

impl Slot {
    /// The slot as one of a user's share.
    pub fn with(mut self, share: Option<Share>) -> Self {
        self.share = share;
        self
    }

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
            if state.is_wanted() {
                // With an excess one who waits needs more than one to go.
                self.slots.wanted.notify_one();
            }
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
            if state.excess > 0 {
                state.excess -= 1;
                return;
            }
            let next = state.waiting.pop_front();
            state.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            self.slots.serve(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

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

    /// Takes what is free, and tells how much that was.
    fn free(slots: &Arc<Slots>) -> usize {
        std::iter::from_fn(|| slots.try_take()).collect::<Vec<_>>().len()
    }

    #[test]
    fn more_slots_serve_who_waits_and_the_rest_is_free() {
        let slots = Slots::new(1);
        let _held = slots.try_take().unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(Arc::clone(&slots).take_for_work())).collect();
        for work in &mut waiting {
            assert!(work.as_mut().now_or_never().is_none());
        }
        drop(waiting.remove(0));
        slots.resize(2);
        let first = waiting[0].as_mut().now_or_never().expect("who gave up is passed over");
        assert!(waiting[1].as_mut().now_or_never().is_none());
        slots.resize(5);
        let second = waiting[1].as_mut().now_or_never().expect("it is served");
        assert_eq!(free(&slots), 2);
        drop((first, second));
        assert_eq!(free(&slots), 4);
    }

    #[test]
    fn fewer_slots_take_what_is_free_and_then_what_comes_back() {
        let slots = Slots::new(4);
        let mut held: Vec<_> = (0..3).map(|_| slots.try_take().unwrap()).collect();
        slots.resize(1);
        assert_eq!((slots.excess(), free(&slots)), (2, 0));
        let mut work = Box::pin(Arc::clone(&slots).take_for_work());
        assert!(work.as_mut().now_or_never().is_none());
        held.pop();
        held.pop();
        assert_eq!(slots.excess(), 0);
        assert!(work.as_mut().now_or_never().is_none(), "the limit is reached, not undercut");
        held.pop();
        let taken = work.as_mut().now_or_never().expect("it is served");
        assert_eq!(free(&slots), 0);
        drop(taken);
        assert_eq!(free(&slots), 1);
        slots.resize(3);
        assert_eq!(free(&slots), 3);
    }

    #[test]
    fn growth_takes_an_excess_back_before_it_serves_anybody() {
        let slots = Slots::new(3);
        let mut held: Vec<_> = (0..3).map(|_| slots.try_take().unwrap()).collect();
        slots.resize(1);
        let mut work = Box::pin(Arc::clone(&slots).take_for_work());
        assert!(work.as_mut().now_or_never().is_none());
        slots.resize(2);
        assert_eq!(slots.excess(), 1);
        slots.resize(3);
        assert!(work.as_mut().now_or_never().is_none(), "three are there");
        held.pop();
        assert!(work.as_mut().now_or_never().is_some());
    }

    #[test]
    fn an_excess_alone_drives_nobody_out_but_who_waits_is_owed_it_too() {
        let slots = Slots::new(3);
        let mut held: Vec<_> = (0..3).map(|_| slots.try_take().unwrap()).collect();
        slots.resize(2);
        assert!(slots.wanted().now_or_never().is_none());
        assert!(!held[0].leave_if_wanted());
        let mut idle: Vec<_> = (0..3).map(|_| Box::pin(slots.wanted())).collect();
        let mut asleep = || {
            idle.retain_mut(|idle| idle.as_mut().now_or_never().is_none());
            idle.len()
        };
        assert_eq!(asleep(), 3);
        let mut work = Box::pin(Arc::clone(&slots).take_for_work());
        assert!(work.as_mut().now_or_never().is_none());
        assert_eq!(asleep(), 2);
        assert!(held[0].leave_if_wanted());
        assert_eq!(asleep(), 1, "one is to go for the excess and one for who waits");
        assert!(held[1].leave_if_wanted());
        assert_eq!(asleep(), 1);
        assert!(!held[2].leave_if_wanted());
        held.remove(0);
        assert!(work.as_mut().now_or_never().is_none());
        held.remove(0);
        assert!(work.as_mut().now_or_never().is_some());
    }

    proptest! {
        /// Whatever happens in whatever order, what is held settles at the limit, and no slot is lost or made up.
        #[test]
        fn the_books_balance(steps in proptest::collection::vec((0_usize..4, 1_usize..6), 0..60)) {
            let slots = Slots::new(3);
            let mut held = Vec::new();
            let mut waiting = Vec::new();
            for (step, number) in steps {
                match step {
                    0 => held.extend(slots.try_take()),
                    1 => waiting.push(Box::pin(Arc::clone(&slots).take_for_work())),
                    2 if !held.is_empty() => drop(held.swap_remove(number % held.len())),
                    2 => {}
                    _ => slots.resize(number),
                }
                waiting.retain_mut(|work| match work.as_mut().now_or_never() {
                    Some(slot) => { held.push(slot); false }
                    None => true,
                });
                let state = slots.lock();
                prop_assert_eq!(state.free + held.len(), state.limit + state.excess);
                prop_assert!(state.free == 0 || (waiting.is_empty() && state.excess == 0));
            }
        }
    }
}
