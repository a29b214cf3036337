//! Ctrl-C, as something that can be waited for.

use std::time::Duration;

use futures_util::StreamExt;
use signal_hook::consts::SIGINT;
use signal_hook_tokio::Signals;
use tokio::time::{Instant, sleep_until};

use super::error::ClientError;

/// From when it exists, Ctrl-C ends nothing by itself any more; whoever made it must listen to it.
pub struct Interrupts {
    signals: Signals,
    /// When the person does not want to wait any longer.
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    Key,
    Timeout,
}

impl Interrupts {
    pub fn listen() -> Result<Self, ClientError> {
        let signals = Signals::new([SIGINT]).map_err(|source| ClientError::io("listen to Ctrl-C", source))?;
        Ok(Self { signals, deadline: None })
    }

    /// The next Ctrl-C. Safe to be dropped while it waits.
    pub async fn next(&mut self) {
        if self.signals.next().await.is_none() {
            // Nothing ends the signals but their handle, which nobody has.
            std::future::pending::<()>().await;
        }
    }

    /// Interrupts once more after this time.
    pub fn after(&mut self, timeout: Option<Duration>) {
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
    }

    /// The next Ctrl-C, or the end of the time. Safe to be dropped while it waits.
    pub async fn interruption(&mut self) -> Interruption {
        let Some(deadline) = self.deadline else {
            self.next().await;
            return Interruption::Key;
        };
        tokio::select! {
            () = self.next() => Interruption::Key,
            () = sleep_until(deadline) => {
                self.deadline = None;
                Interruption::Timeout
            }
        }
    }

    /// Does the work unless Ctrl-C comes first.
    pub async fn unless<T>(&mut self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        tokio::select! {
            done = work => done,
            () = self.next() => Err(ClientError::Left),
        }
    }
}
