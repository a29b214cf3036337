//! Ctrl-C, as something that can be waited for.

use futures_util::StreamExt;
use signal_hook::consts::SIGINT;
use signal_hook_tokio::Signals;

use super::error::ClientError;

/// From when it exists, Ctrl-C ends nothing by itself any more; whoever made it must listen to it.
pub struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    pub fn listen() -> Result<Self, ClientError> {
        let signals = Signals::new([SIGINT]).map_err(|source| ClientError::io("listen to Ctrl-C", source))?;
        Ok(Self { signals })
    }

    /// The next Ctrl-C. Safe to be dropped while it waits.
    pub async fn next(&mut self) {
        if self.signals.next().await.is_none() {
            // Nothing ends the signals but their handle, which nobody has.
            std::future::pending::<()>().await;
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
