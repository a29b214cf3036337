//! Shares: of the slots for processes, how many one other user than the daemon's has at the most, so that no member of a group
//! takes them all. The daemon's own user has no bound but the slots themselves.
//!
//! A request that finds the share used up is refused, unless a process of that same user makes room. Work that was accepted
//! earlier counts as well, from when it waits, but is never refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub struct Shares {
    /// Only users who have some.
    held: Mutex<HashMap<u32, usize>>,
}

/// One process of a user's. Dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    user: u32,
}

impl Shares {
    /// Nothing, when the user has as many already.
    pub fn try_take(self: &Arc<Self>, user: u32, max: usize) -> Option<Share> {
        let mut held = self.lock();
        let count = held.entry(user).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Share { shares: Arc::clone(self), user })
    }

    /// For what was accepted already.
    pub fn take(self: &Arc<Self>, user: u32) -> Share {
        *self.lock().entry(user).or_default() += 1;
        Share { shares: Arc::clone(self), user }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        if let Some(count) = held.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_no_more_than_the_share_and_what_is_given_back_can_be_had_again() {
        let shares = Arc::new(Shares::default());
        let first = shares.try_take(1, 2).unwrap();
        let second = shares.take(1);
        assert!(shares.try_take(1, 2).is_none());
        let accepted = shares.take(1);
        assert!(shares.try_take(2, 1).is_some(), "another user's share is another one");
        drop((first, accepted));
        let again = shares.try_take(1, 2).unwrap();
        drop((second, again));
        assert!(shares.lock().is_empty());
    }
}
