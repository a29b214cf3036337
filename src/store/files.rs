//! The store's files: the database and its copies.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::StoreError;
use super::backup::PARTIAL;
use crate::private;

/// Where SQLite locks a database file, <https://www.sqlite.org/fileformat2.html#the_lock_byte_page>.
const LOCKS_START: u64 = 0x4000_0000;

pub fn private_directory(path: &Path) -> Result<(), StoreError> {
    private::directory(path).map_err(|source| StoreError::Files { path: path.to_owned(), source })
}

/// SQLite takes an empty file for a new database, and gives the write-ahead log the same mode.
pub fn private_file(path: &Path) -> Result<(), StoreError> {
    private::file(path).map(drop).map_err(|source| StoreError::Files { path: path.to_owned(), source })
}

/// The process that has locked the database, if the kernel names it. To open the file would release the daemon's own lock.
pub fn lock_holder(database: &Path) -> Option<String> {
    let inode = format!(":{}", std::fs::metadata(database).ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(4);
        let (pid, file, first) = (words.next()?, words.next()?, words.next()?.parse::<u64>().ok()?);
        (file.ends_with(&inode) && first >= LOCKS_START).then_some(pid)
    })?;
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({:?})", program.trim_end()))
}

/// Deletes what is left of copies that were not finished: those without their name yet, and, with its journal, one that
/// an earlier version of this program gave its name first.
pub fn remove_unfinished_backups(directory: &Path) -> Result<(), StoreError> {
    let remove = || -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let copy = name.strip_suffix("-journal").unwrap_or(&name);
            let is_partial = copy.starts_with('.') && copy.ends_with(PARTIAL);
            let is_ours =
                copy.contains("-schema-") && Path::new(copy).extension().is_some_and(|extension| extension == "db");
            let is_journal = copy.len() < name.len();
            if is_partial || (is_ours && (is_journal || entry.metadata()?.len() == 0)) {
                // The journal goes last, because it is what tells that the copy is not whole.
                for path in [directory.join(copy), entry.path()] {
                    match std::fs::remove_file(path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        Ok(()) | Err(_) => {}
                    }
                }
                tracing::warn!(file = %name, "removed an incomplete backup");
            }
        }
        Ok(())
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Files { path: directory.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Deletes all but the newest `keep` backups. Their names begin with the time, so that they sort by age.
pub fn prune_backups(directory: &Path, keep: usize) -> Result<(), StoreError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let mut backups: Vec<PathBuf> =
            std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        backups.retain(|path| path.extension().is_some_and(|extension| extension == "db"));
        backups.sort();
        Ok(backups)
    };
    let failed = |source| StoreError::Files { path: directory.to_owned(), source };
    let backups = list().map_err(failed)?;
    for old in backups.iter().rev().skip(keep) {
        std::fs::remove_file(old).map_err(failed)?;
    }
    Ok(())
}
