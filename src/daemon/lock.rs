//! One daemon a state directory: two would each believe to own the sessions in it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::config::Paths;
use crate::private;

/// How long a daemon that a client started waits for one that is just stopping: an ordinary stop, with some to spare.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

/// The state directory, locked for as long as this lives.
#[derive(Debug)]
pub struct StateLock(File);

impl StateLock {
    pub fn take(paths: &Paths) -> anyhow::Result<Self> {
        let directory = paths.state_dir.display();
        try_take(paths)?.with_context(|| format!("another acpd uses the state directory {directory}; stop it first"))
    }

    pub async fn take_patiently(paths: &Paths) -> anyhow::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(lock) = try_take(paths)? {
                return Ok(lock);
            }
            tokio::time::sleep_until(Instant::now() + PAUSE).await;
        }
        Self::take(paths)
    }

    /// Tells clients that look for the daemon of this directory where it is.
    pub fn tell(&self, socket: &Path) -> std::io::Result<()> {
        self.0.set_len(0)?;
        (&self.0).write_all(socket.as_os_str().as_encoded_bytes())
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // What is told ends with who told it; when even that fails, clients find nobody there.
        drop(self.0.set_len(0));
    }
}

fn try_take(paths: &Paths) -> anyhow::Result<Option<StateLock>> {
    let directory = paths.state_dir.display();
    private::directory(&paths.state_dir).with_context(|| format!("cannot use the state directory {directory}"))?;
    let path = paths.lock();
    let lock = private::lock(&path).with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(lock.map(StateLock))
}
