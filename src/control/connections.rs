//! Who has how many connections. There is a bound for all, a share for each user, and a part that is kept for root and the
//! daemon's own user.
//!
//! Invariants:
//! 1. A connection counts from when it is admitted until its seat is dropped, or until it has to make room.
//! 2. When there is no room, a *newcomer* makes some, one that has not yet sent a whole request, the oldest first; without
//!    one, whichever has been idle longest after its last request. So whoever holds connections open and says nothing, or
//!    says it one byte at a time, shuts nobody out, and a connection that is being served is never closed for another.
//! 3. A user's connection makes room for one of the same user; and, when all places are taken, for one of a user who has
//!    fewer, if nobody has more than its user. So nobody who has many keeps out those who have few.
//! 4. Those that have made room and are not gone yet are bounded too: they still are open files.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::progress::Progress;
use crate::config::KEPT_DIVISOR;

/// Connections that have made room and are not gone yet.
const LEAVING_MAX: usize = 64;

#[derive(Debug)]
pub struct Connections {
    max: usize,
    per_user: usize,
    /// What users may have together whom nothing is kept for.
    others: usize,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    total: usize,
    leaving: usize,
    /// Those who have any.
    users: HashMap<u32, User>,
    /// The number of the next connection: they are as old as their numbers are small.
    next: u64,
}

#[derive(Debug, Default)]
struct User {
    /// All that count, by their numbers.
    connections: BTreeMap<u64, Arc<Progress>>,
    /// A part of all is kept for this one.
    is_privileged: bool,
}

impl User {
    /// Which of them makes room, if one can. It is looked for only when there is no room.
    fn dispensable(&self) -> Option<u64> {
        let newcomer = self.connections.iter().find(|(_, progress)| progress.is_newcomer());
        let idle = || {
            let idle = self.connections.iter().filter_map(|(number, progress)| Some((progress.idle_since()?, number)));
            idle.min().map(|(_, number)| number)
        };
        newcomer.map(|(number, _)| number).or_else(idle).copied()
    }
}

/// A place among the connections, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    connections: Arc<Connections>,
    uid: u32,
    number: u64,
    progress: Arc<Progress>,
}

/// What users may have together whom nothing is kept for, out of all.
fn shared(max: usize) -> usize {
    max - max / KEPT_DIVISOR
}

impl Connections {
    pub fn new(max: usize, per_user: usize) -> Arc<Self> {
        let max = max.max(1);
        let others = shared(max);
        Arc::new(Self { max, per_user: per_user.clamp(1, others), others, books: Mutex::default() })
    }

    /// A seat for a connection of this user, if need be that of another one; or nothing.
    pub fn admit(self: &Arc<Self>, uid: u32, is_privileged: bool) -> Option<Seat> {
        let mut guard = self.books();
        let books = &mut *guard;
        let max = if is_privileged { self.max } else { self.others };
        let own = books.users.get(&uid).map_or(0, |user| user.connections.len());
        if own < self.per_user && books.total < max {
            books.total += 1;
        } else {
            let richest = if own < self.per_user { books.richest(own, is_privileged) } else { None };
            if !richest.is_some_and(|richest| books.make_room(richest)) && !books.make_room(uid) {
                return None;
            }
        }
        let number = books.next;
        books.next += 1;
        let progress = Arc::new(Progress::default());
        let user = books.users.entry(uid).or_default();
        user.is_privileged = is_privileged;
        user.connections.insert(number, Arc::clone(&progress));
        Some(Seat { connections: Arc::clone(self), uid, number, progress })
    }

    /// How many there are, without those that had to make room.
    pub fn count(&self) -> usize {
        self.books().total
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Who has most, if that is still more than whoever has so many would have with one more. Nothing is taken from those
    /// whom a part is kept for to be given to others.
    fn richest(&self, own: usize, is_privileged: bool) -> Option<u32> {
        let users = self.users.iter().filter(|(_, user)| is_privileged || !user.is_privileged);
        let (richest, user) = users.max_by_key(|(_, user)| user.connections.len())?;
        (user.connections.len() > own + 1).then_some(*richest)
    }

    /// Has one of the user's connections make room, if one can. Its place is the new one's from then on.
    fn make_room(&mut self, uid: u32) -> bool {
        if self.leaving >= LEAVING_MAX {
            return false;
        }
        let Some(user) = self.users.get_mut(&uid) else { return false };
        let Some(dispensable) = user.dispensable().and_then(|number| user.connections.remove(&number)) else {
            return false;
        };
        dispensable.make_room();
        self.leaving += 1;
        true
    }

    fn forget_if_gone(&mut self, uid: u32) {
        if self.users.get(&uid).is_some_and(|user| user.connections.is_empty()) {
            self.users.remove(&uid);
        }
    }
}

impl Seat {
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut books = self.connections.books();
        let user = books.users.get_mut(&self.uid);
        // One that made room for another connection was removed then.
        match user.and_then(|user| user.connections.remove(&self.number)) {
            Some(_) => books.total -= 1,
            None => books.leaving -= 1,
        }
        books.forget_if_gone(self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::progress::Phase;

    const ANN: u32 = 1000;
    const BOB: u32 = 1001;

    fn counts(connections: &Connections) -> (usize, usize, usize) {
        let books = connections.books();
        (books.total, books.leaving, books.users.len())
    }

    #[test]
    fn nobody_has_more_than_their_share_and_what_is_kept_is_kept() {
        let connections = Connections::new(16, 8);
        let settled = |uid, is_privileged| {
            let seat = connections.admit(uid, is_privileged)?;
            seat.progress.settle();
            Some(seat)
        };
        let mut ann: Vec<Seat> = (0..8).map(|_| settled(ANN, false).unwrap()).collect();
        assert!(settled(ANN, false).is_none(), "the share is spent");
        let bob: Vec<Seat> = (0..6).map(|_| settled(BOB, false).unwrap()).collect();
        assert!(settled(BOB, false).is_none(), "the rest is kept");
        let root: Vec<Seat> = (0..2).map(|_| settled(0, true).unwrap()).collect();
        assert!(settled(0, true).is_none(), "everything is taken");
        ann.pop();
        assert!(settled(BOB, false).is_none(), "what is kept stays kept");
        assert!(settled(0, true).is_some());
        drop((ann, bob, root));
        assert_eq!(counts(&connections), (0, 0, 0));
    }

    #[test]
    fn newcomers_make_room_first_then_whoever_is_idle_and_nobody_who_is_served() {
        let connections = Connections::new(8, 3);
        let admit = || connections.admit(ANN, true);
        let (served, idle, silent) = (admit().unwrap(), admit().unwrap(), admit().unwrap());
        for seat in [&served, &idle] {
            seat.progress.settle();
            seat.progress.enter(Phase::Work);
        }
        idle.progress.pause();
        let next = admit().unwrap();
        next.progress.settle();
        next.progress.pause();
        assert!(silent.progress.has_to_go() && !idle.progress.has_to_go() && !next.progress.has_to_go());
        let last = admit().unwrap();
        assert!(idle.progress.has_to_go() && !next.progress.has_to_go(), "the one idle longest");
        last.progress.settle();
        last.progress.enter(Phase::Work);
        next.progress.enter(Phase::Work);
        assert_eq!(counts(&connections), (3, 2, 1));
        let other = connections.admit(BOB, true).unwrap();
        assert!(admit().is_none() && !served.progress.has_to_go());
        drop((served, idle, silent, next, last, other));
        assert_eq!(counts(&connections), (0, 0, 0));
    }

    #[test]
    fn whoever_has_most_makes_room_for_whoever_has_few() {
        let connections = Connections::new(8, 7);
        let mut ann: Vec<Seat> = (0..7).map(|_| connections.admit(ANN, false).unwrap()).collect();
        let bob: Vec<Seat> = (0..3).map(|_| connections.admit(BOB, false).unwrap()).collect();
        assert_eq!(ann.iter().filter(|seat| seat.progress.has_to_go()).count(), 3);
        ann.retain(|seat| !seat.progress.has_to_go());
        let more = connections.admit(BOB, false).unwrap();
        assert!(bob[0].progress.has_to_go(), "there is no use in changing places");
        for seat in ann.iter().chain(&bob).chain([&more]) {
            seat.progress.settle();
            seat.progress.enter(Phase::Work);
        }
        assert!(connections.admit(BOB + 1, false).is_none(), "nobody who is served makes room");
        drop((ann, bob, more));
        assert_eq!(counts(&connections), (0, 0, 0));
    }

    #[test]
    fn those_that_leave_are_bounded() {
        let connections = Connections::new(8, 1);
        let seats: Vec<Seat> = (0..=LEAVING_MAX).map(|_| connections.admit(ANN, true).unwrap()).collect();
        assert!(connections.admit(ANN, true).is_none());
        drop(seats);
        assert_eq!(counts(&connections), (0, 0, 0));
    }
}
