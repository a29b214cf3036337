//! What the terminal wants of a program that has changed how it behaves: to stop and to go on, to end, to look at its size.

use futures_util::StreamExt;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook_tokio::Signals;

use super::super::error::ClientError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// Ctrl-Z.
    Stopped,
    Continued,
    Resized,
    /// By this signal.
    Ended(i32),
}

/// From when it exists, these signals do nothing by themselves any more; whoever made it must listen to it.
pub struct TerminalSignals {
    signals: Signals,
}

impl TerminalSignals {
    pub fn listen() -> Result<Self, ClientError> {
        let signals = Signals::new([SIGTSTP, SIGCONT, SIGWINCH, SIGTERM, SIGHUP, SIGQUIT])
            .map_err(|source| ClientError::io("listen to the terminal", source))?;
        Ok(Self { signals })
    }

    /// The next one. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> TerminalSignal {
        match self.signals.next().await {
            Some(SIGTSTP) => TerminalSignal::Stopped,
            Some(SIGCONT) => TerminalSignal::Continued,
            Some(SIGWINCH) => TerminalSignal::Resized,
            Some(signal) => TerminalSignal::Ended(signal),
            // Nothing ends the signals but their handle, which nobody has.
            None => std::future::pending().await,
        }
    }
}

/// Does what the signal would have done. It comes back when the program goes on.
pub fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Does what the signal would have done.
pub fn end(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
