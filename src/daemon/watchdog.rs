//! The sign of life that the service manager waits for (`WatchdogSec=`).
//!
//! It is given by the loop that does the work: a task of the runtime sees the registry's locks and the writer move, and only then
//! tells. Whatever is stuck for good, the sign stops, and the manager starts another daemon, which loses nothing that was
//! acknowledged. A store that refuses to write is not stuck, and no reason to begin anew.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::manager;
use crate::registry::Registry;

/// Signs that are given in the time in which one is waited for.
const SIGNS: u32 = 3;

/// Gives the sign until the store is closed.
pub async fn watch(registry: Arc<Registry>) {
    let Some(patience) = manager::watchdog() else { return };
    while registry.beat().await.is_ok() {
        manager::alive();
        sleep_until(Instant::now() + patience / SIGNS).await;
    }
}
