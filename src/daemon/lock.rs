//! One daemon a state directory: two would each believe to own the sessions in it.

use std::fs::File;
use std::path::Path;

use anyhow::Context;

use crate::private;

/// Makes the directory and locks it for as long as the file is open.
pub fn state_directory(directory: &Path) -> anyhow::Result<File> {
    private::directory(directory).with_context(|| format!("cannot use the state directory {}", directory.display()))?;
    let path = directory.join("acpd.lock");
    let lock = private::lock(&path).with_context(|| format!("cannot lock {}", path.display()))?;
    lock.with_context(|| format!("another acpd uses the state directory {}; stop it first", directory.display()))
}
