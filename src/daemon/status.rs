//! The line that `systemctl status` shows: how many sessions there are, and what their agents do.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::manager;
use crate::model::{ProcessState, SessionStatus, Sight};
use crate::registry::Registry;
use crate::store::StoreError;

/// How old the line may be.
const INTERVAL: Duration = Duration::from_secs(5);

/// Keeps the line up to date, for whoever reads it. Nothing is counted while nothing is recorded.
pub async fn keep_up(registry: &Registry) -> Infallible {
    if !manager::is_there() {
        return std::future::pending().await;
    }
    let mut told = None;
    loop {
        // What the line depends on.
        let now = (registry.hub().reach(), is_misconfigured(registry));
        if told != Some(now) {
            match line(registry).await {
                Ok(line) => manager::status(&line),
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "cannot count the sessions"),
            }
            told = Some(now);
        }
        sleep_until(Instant::now() + INTERVAL).await;
    }
}

async fn line(registry: &Registry) -> Result<String, StoreError> {
    let counts = registry.hub().store().count_by_status(Sight::All).await?;
    let count = |status: SessionStatus| counts.get(status.as_str()).copied().unwrap_or(0);
    let processes = registry.process_states();
    let running: u64 = processes.iter().map(|(_, count)| count).sum();
    let busy = processes.iter().find(|(state, _)| *state == ProcessState::Busy).map_or(0, |(_, count)| *count);
    let mut line = format!(
        "Sessions: {} active, {} suspended; agents: {running} running, {busy} busy",
        count(SessionStatus::Active),
        count(SessionStatus::Suspended),
    );
    if is_misconfigured(registry) {
        line.push_str("; the last reload failed, and the previous configuration stays in force");
    }
    Ok(line)
}

/// Whether the last reload was not taken on.
fn is_misconfigured(registry: &Registry) -> bool {
    registry.shared().config.get_with_origin().1.error.is_some()
}
