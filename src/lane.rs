//! The lane for stopping: a level that only ever rises, apart from all queues, so that nothing can be ahead of it and no
//! repeated request can reset it.

use tokio::sync::watch;

/// Whoever may ask for more.
#[derive(Debug)]
pub struct Lane<T>(watch::Sender<T>);

/// Whoever has to act on it.
#[derive(Debug)]
pub struct LaneWatch<T>(watch::Receiver<T>);

impl<T: Copy + PartialOrd> Lane<T> {
    pub fn new(level: T) -> Self {
        Self(watch::Sender::new(level))
    }

    /// Asks for this level. Asking for what is granted already, or for less, changes nothing.
    pub fn raise(&self, to: T) {
        self.0.send_if_modified(|level| {
            let raised = *level < to;
            if raised {
                *level = to;
            }
            raised
        });
    }

    pub fn level(&self) -> T {
        *self.0.borrow()
    }

    pub fn watch(&self) -> LaneWatch<T> {
        LaneWatch(self.0.subscribe())
    }
}

impl<T: Copy + PartialOrd> LaneWatch<T> {
    /// Resolves when more is asked for than was granted so far; never, when nobody can ask any more. Safe to cancel.
    pub async fn above(&mut self, granted: T) -> T {
        let raised = self.0.wait_for(|level| *level > granted).await.map(|level| *level);
        match raised {
            Ok(level) => level,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_level_only_rises_and_outlives_whoever_raised_it() {
        let lane = Lane::new(0);
        let mut watch = lane.watch();
        assert_eq!(watch.above(0).now_or_never(), None);
        lane.raise(2);
        lane.raise(1);
        assert_eq!(lane.level(), 2);
        drop(lane);
        assert_eq!(watch.above(0).now_or_never(), Some(2), "what was asked for last is still to be done");
        assert_eq!(watch.above(2).now_or_never(), None);
    }
}
