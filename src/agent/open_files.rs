//! How many files may be open. The daemon takes as many as it may have, because every client, process and connection to the
//! database is one; agents get the limit back that the daemon was started with, because programs with `select` in them
//! misbehave under a higher one.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that the daemon was started with, once it has raised its own.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Raises the limit as far as it may be raised. When it cannot be, it stays, and there is less room.
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, ..before };
    if let Some(count) = before.current.filter(|_| raised != before)
        && setrlimit(Resource::Nofile, raised).is_ok()
    {
        // It is raised once; what it was before that stays known.
        AT_START.get_or_init(|| count);
    }
}

/// How many files may be open now. Nothing: any number.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// What agents get, when it is not what the daemon has.
pub(super) fn at_start() -> Option<u64> {
    AT_START.get().copied()
}

/// Sets this process's limit, and leaves how far it may be raised.
pub(super) fn set(count: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit })?)
}
