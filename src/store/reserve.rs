//! The room that the store has, and a reserve for when there is none.
//!
//! ```text
//!          less than half of what is wanted is free,
//!          or a commit met a full disk: the reserve is let go
//! enough ─────────────────────────────────────────────────────▶ short: new work is refused, what runs is recorded
//!        ◀─────────────────────────────────────────────────────
//!          `store.free_min` is there again: the reserve is made again
//! ```
//!
//! This is the one place that knows whether the store is short of space. Nobody polls while there is enough: it is looked
//! at when new work is asked for, and when a commit fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, FallocateFlags};
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::Fault;
use super::{StoreError, StoreOptions, files};

/// How often it is looked whether there is space again, while there is not.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// What the kernel counts the blocks of a file in.
const BLOCK_BYTES: u64 = 512;
/// What is written at a time where space cannot be reserved otherwise.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    is_short: bool,
    /// The last commit went well.
    is_writable: bool,
}

#[derive(Debug)]
pub struct Space {
    directory: PathBuf,
    /// What must be there, with the reserve, for the store to be opened and for new work after a shortage.
    free_min: u64,
    reserve: Reserve,
    state: watch::Sender<State>,
}

/// Looks whether the store can be opened at all: its directory is ours and writable, and there is room. To be asked
/// before anything is written, because opening a database on a disk that is full can end a process by SIGBUS.
pub fn preflight(options: &StoreOptions) -> Result<(), StoreError> {
    Space::new(options).preflight()
}

impl Space {
    pub fn new(options: &StoreOptions) -> Self {
        let directory = options.database.parent().unwrap_or(Path::new("/")).to_owned();
        let bytes = options.settings.reserve.map_or(0, |size| size.0 as u64);
        Self {
            free_min: options.settings.free_min.0 as u64,
            reserve: Reserve { path: directory.join("reserve"), bytes, changing: Mutex::new(()) },
            directory,
            state: watch::Sender::new(State { is_short: false, is_writable: true }),
        }
    }

    pub fn preflight(&self) -> Result<(), StoreError> {
        files::private_directory(&self.directory)?;
        rustix::fs::access(&self.directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| StoreError::Files { path: self.directory.clone(), source: error.into() })?;
        if self.available() < self.free_min {
            return Err(self.shortage(None));
        }
        Ok(())
    }

    /// Makes the reserve at start. Without it the store is short of space from the beginning.
    pub fn start(&self) {
        if let Err(error) = self.reserve.make() {
            self.fall_short(&format!("cannot create the reserve: {error}"));
        }
    }

    /// Whether new work may be taken on: refused while the store is short of space.
    pub fn check(&self) -> Result<(), StoreError> {
        let free = self.free();
        if !self.is_short() && free < self.low() {
            self.fall_short("other files fill the disk");
        }
        if self.is_short() { Err(self.shortage(None)) } else { Ok(()) }
    }

    pub fn is_short(&self) -> bool {
        self.state.borrow().is_short
    }

    /// Whether the last commit went well.
    pub fn is_writable(&self) -> bool {
        self.state.borrow().is_writable
    }

    /// Lets the reserve go when that may help against the error: whoever failed should try once more then.
    pub fn makes_room_for(&self, error: &StoreError) -> bool {
        let is_want_of_space = self.is_want_of_space(error);
        if is_want_of_space {
            self.fall_short("the disk was full during a commit");
        }
        is_want_of_space && self.reserve.release()
    }

    /// Notes how a commit ended. What failed for want of space says so, with how much there is.
    pub fn judged<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let is_writable = match &outcome {
            Ok(_) => true,
            // The unit was at fault, and the store is not the worse for it.
            Err(error) if error.is_of_a_unit() => return outcome,
            Err(_) => false,
        };
        self.state.send_if_modified(|state| std::mem::replace(&mut state.is_writable, is_writable) != is_writable);
        outcome.map_err(|error| if self.is_want_of_space(&error) { self.shortage(Some(error)) } else { error })
    }

    /// Looks for space while there is too little of it, and sleeps else. Never ends.
    pub async fn keep(&self) {
        let mut state = self.state.subscribe();
        loop {
            // The sender is ours, so this can only end by a shortage.
            drop(state.wait_for(|state| state.is_short).await);
            tokio::time::sleep_until(Instant::now() + LOOK_INTERVAL).await;
            self.recover();
        }
    }

    fn recover(&self) {
        if self.available() < self.free_min {
            return;
        }
        match self.reserve.make() {
            Ok(()) => {
                self.state.send_modify(|state| *state = State { is_short: false, is_writable: true });
                tracing::info!(free = self.free(), "enough disk space again; accepting new work");
            }
            // A quota, for one, that the file system does not tell.
            Err(error) => tracing::debug!(%error, "the reserve cannot be made yet"),
        }
    }

    fn fall_short(&self, why: &str) {
        let is_new = self.state.send_if_modified(|state| !std::mem::replace(&mut state.is_short, true));
        if is_new {
            let directory = self.directory.display();
            tracing::error!(%directory, free = self.free(), why, "too little disk space; refusing new work");
        }
    }

    fn is_want_of_space(&self, error: &StoreError) -> bool {
        match error.fault() {
            Fault::Full => true,
            Fault::Disk => self.free() < self.low(),
            Fault::Locked | Fault::Damaged | Fault::Forbidden | Fault::Other => false,
        }
    }

    fn shortage(&self, source: Option<StoreError>) -> StoreError {
        if let Some(error @ StoreError::ShortOfSpace { .. }) = source {
            return error;
        }
        let (free, wanted) = (self.free(), self.free_min.saturating_sub(self.reserve.held()));
        StoreError::ShortOfSpace { directory: self.directory.clone(), free, wanted, source: source.map(Box::new) }
    }

    /// Below this, with the reserve untouched, nothing new is begun: half of what ends a shortage.
    pub fn low(&self) -> u64 {
        self.free_min.saturating_sub(self.reserve.bytes) / 2
    }

    fn available(&self) -> u64 {
        self.free().saturating_add(self.reserve.held())
    }

    fn free(&self) -> u64 {
        free_bytes(&self.directory)
    }
}

/// What the daemon's user may still write there. A file system that does not tell has no end.
pub fn free_bytes(directory: &Path) -> u64 {
    match rustix::fs::statvfs(directory) {
        Ok(system) if system.f_blocks > 0 => system.f_bavail.saturating_mul(system.f_frsize),
        _ => u64::MAX,
    }
}

/// A file that is there to be let go.
#[derive(Debug)]
struct Reserve {
    path: PathBuf,
    /// 0: there is none.
    bytes: u64,
    /// Held while the file is changed.
    changing: Mutex<()>,
}

impl Reserve {
    /// How much of it really is on the disk.
    fn held(&self) -> u64 {
        let blocks = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.blocks());
        blocks.saturating_mul(BLOCK_BYTES).min(self.bytes)
    }

    fn make(&self) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bytes == 0 {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let length = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        if length == self.bytes && self.held() == self.bytes {
            return Ok(());
        }
        let file = crate::private::file(&self.path)?;
        file.set_len(0)?;
        let made = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Err(Errno::OPNOTSUPP) => fill(&file, self.bytes),
            made => made.map_err(io::Error::from),
        };
        // Half a reserve only takes away what little there is.
        made.inspect_err(|_| drop(file.set_len(0)))
    }

    /// Whether there was anything to let go.
    fn release(&self) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.held() == 0 {
            return false;
        }
        // Some file systems give the blocks away again only when the change is on the disk.
        let released = OpenOptions::new().write(true).truncate(true).open(&self.path).and_then(|file| file.sync_all());
        match released {
            Ok(()) => tracing::warn!(bytes = self.bytes, "released the reserve so that running work can be stored"),
            Err(error) => tracing::error!(%error, reserve = %self.path.display(), "cannot release the reserve"),
        }
        self.held() == 0
    }
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        file.write_all(&chunk[..part])?;
        left -= part as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_really_there_until_it_is_let_go_and_can_be_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reserve");
        let reserve = Reserve { path: path.clone(), bytes: 1 << 20, changing: Mutex::new(()) };
        assert!(!reserve.release(), "there is nothing yet");
        for _ in 0..2 {
            reserve.make().unwrap();
            reserve.make().unwrap();
            assert_eq!((reserve.held(), path.metadata().unwrap().len()), (1 << 20, 1 << 20));
            assert!(reserve.release());
            assert_eq!(reserve.held(), 0);
            assert!(!reserve.release());
        }
        // One that only claims its size keeps nothing free.
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(reserve.held(), 0);
        reserve.make().unwrap();
        assert_eq!(reserve.held(), 1 << 20);
        fill(&File::create(&path).unwrap(), 1 << 20).unwrap();
        assert_eq!(reserve.held(), 1 << 20);
        Reserve { bytes: 0, ..reserve }.make().unwrap();
        assert!(!path.exists(), "who wants none gets the space back");
    }
}
