//! A lock that one at a time passes, and of which it can be seen whether anybody still does.

use tokio::sync::{Mutex, MutexGuard, Notify};

#[derive(Debug, Default)]
pub struct Turnstile {
    lock: Mutex<()>,
    moved: Notify,
}

impl Turnstile {
    /// Waits in line, and keeps others out for as long as the guard lives.
    pub async fn pass(&self) -> MutexGuard<'_, ()> {
        let guard = self.lock.lock().await;
        self.moved.notify_waiters();
        guard
    }

    /// Resolves when it is free, or when somebody's turn has come: however long the line is, it moves.
    pub async fn moves(&self) {
        let moved = self.moved.notified();
        tokio::select! {
            guard = self.lock.lock() => drop(guard),
            () = moved => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_line_that_moves_is_told_from_one_that_is_stuck() {
        let turnstile = Turnstile::default();
        assert!(turnstile.moves().now_or_never().is_some(), "it is free");
        let first = turnstile.pass().await;
        let mut second = Box::pin(turnstile.pass());
        assert!(second.as_mut().now_or_never().is_none());
        let mut moves = Box::pin(turnstile.moves());
        assert!(moves.as_mut().now_or_never().is_none(), "whoever is in it stays");
        drop(first);
        let second = second.await;
        assert!(moves.now_or_never().is_some(), "the next one's turn has come");
        assert!(turnstile.moves().now_or_never().is_none(), "and stays");
        drop(second);
    }
}
