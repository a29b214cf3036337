//! What the service manager is told (`sd_notify`): that the daemon is ready, reloads, stops, lives, and how it is.
//!
//! Without a manager (`NOTIFY_SOCKET`) nothing is sent, and nobody has to ask for that.

use std::time::Duration;

use sd_notify::NotifyState;

/// Beside the time that a step of stopping may take, for the way to the manager and back.
const MARGIN: Duration = Duration::from_secs(5);

/// The socket answers. Told again when a reload is over.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again.
pub fn reloading() {
    // When it began: with it a manager tells this reload from the one before.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the clock; the service manager does not learn of the reload"),
    }
}

pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("Suspending the sessions and stopping their agents")]);
}

/// What is being done may take this long, whatever the manager's own patience is.
pub fn wait_for(patience: Duration) {
    let patience = u32::try_from((patience + MARGIN).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(patience)]);
}

/// The line that `systemctl status` shows.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// The daemon does its work.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Whether there is a manager that listens.
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// How long the manager waits for a sign of life, if it does.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn tell(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::warn!(%error, "cannot reach the service manager");
    }
}
