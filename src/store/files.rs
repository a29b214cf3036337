//! The store's files: the database and its copies.

use std::io;
use std::path::{Path, PathBuf};

use super::StoreError;
use crate::private;

pub fn private_directory(path: &Path) -> Result<(), StoreError> {
    private::directory(path).map_err(|source| StoreError::Files { path: path.to_owned(), source })
}

/// SQLite takes an empty file for a new database, and gives the write-ahead log the same mode.
pub fn private_file(path: &Path) -> Result<(), StoreError> {
    private::file(path).map(drop).map_err(|source| StoreError::Files { path: path.to_owned(), source })
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
