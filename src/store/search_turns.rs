//! Whose search is next. One runs at a time, and of each user no more than one waits for that: the others of theirs wait behind
//! it, so that however many searches somebody has, those of others are next in line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Searches of one user that run or wait.
pub const SEARCHES_PER_USER_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct SearchTurns {
    /// Had by the one that runs. Who waits for it gets it in the order of asking.
    running: Arc<Semaphore>,
    /// Only users who have a search.
    users: Mutex<HashMap<u32, User>>,
}

#[derive(Debug)]
struct User {
    searches: usize,
    /// Had by the one of theirs that runs or is next.
    first: Arc<Semaphore>,
}

/// A search that waits. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Place {
    turns: Arc<SearchTurns>,
    user: u32,
    first: Arc<Semaphore>,
}

/// A search that runs, for as long as this is kept. What it holds is given back in this order.
#[derive(Debug)]
pub(super) struct SearchTurn {
    _running: Option<OwnedSemaphorePermit>,
    _first: Option<OwnedSemaphorePermit>,
    _place: Place,
}

impl SearchTurns {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { running: Arc::new(Semaphore::new(1)), users: Mutex::default() })
    }

    /// Nothing, when the user has as many searches already as one may have.
    pub fn line_up(self: &Arc<Self>, user: u32) -> Option<Place> {
        let mut users = self.lock();
        let new = || User { searches: 0, first: Arc::new(Semaphore::new(1)) };
        let of_user = users.entry(user).or_insert_with(new);
        if of_user.searches >= SEARCHES_PER_USER_MAX {
            return None;
        }
        of_user.searches += 1;
        Some(Place { turns: Arc::clone(self), user, first: Arc::clone(&of_user.first) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub async fn turn(self) -> SearchTurn {
        // Neither is ever closed.
        let first = Arc::clone(&self.first).acquire_owned().await.ok();
        let running = Arc::clone(&self.turns.running).acquire_owned().await.ok();
        SearchTurn { _running: running, _first: first, _place: self }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.turns.lock();
        if let Some(of_user) = users.get_mut(&self.user) {
            of_user.searches -= 1;
            if of_user.searches == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn another_users_search_is_next_and_nobody_has_more_than_the_bound() {
        let turns = SearchTurns::new();
        let running = turns.line_up(1).unwrap().turn().await;
        let mut waiting: Vec<_> =
            (1..SEARCHES_PER_USER_MAX).map(|_| Box::pin(turns.line_up(1).unwrap().turn())).collect();
        assert!(turns.line_up(1).is_none());
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let mut other = Box::pin(turns.line_up(2).unwrap().turn());
        assert!((&mut other).now_or_never().is_none());
        drop(running);
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()), "it is not their turn");
        let other = (&mut other).now_or_never().expect("the other one is next");
        drop(other);
        assert!((&mut waiting[0]).now_or_never().is_some(), "and then they are");
        drop(waiting);
        assert!(turns.lock().is_empty());
    }
}
