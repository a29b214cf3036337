//! What the Gemini adapter puts into a session's own home: the user's `~/.gemini`, as far as the agent reads it.
//!
//! Confined, Gemini CLI cannot write to `~/.gemini`, and hangs without a word when it cannot write there. So it gets its own
//! (`GEMINI_CLI_HOME`). Files that it may want to write (settings, a login that it renews) are copied when the user's are newer;
//! whatever else there is (extensions, commands) is linked, and so can be read. Done by the shim, as the session's user.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A larger file is linked: it is nothing that is written in passing.
const COPIED_BYTES_MAX: u64 = 1 << 20;
/// Entries that are looked at; nobody has so many.
const ENTRIES_MAX: usize = 1000;
/// What is each home's own: the conversations, and what was seen in them.
const NOT_SHARED: [&str; 2] = ["tmp", "history"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    pub from: PathBuf,
    pub to: PathBuf,
}

impl Seed {
    /// A user who has nothing there yet gets an empty one.
    pub fn sow(&self) -> io::Result<()> {
        fs::create_dir_all(&self.to)?;
        let entries = match fs::read_dir(&self.from) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries.take(ENTRIES_MAX) {
            let (name, source) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            if NOT_SHARED.iter().any(|own| name == *own) {
                continue;
            }
            let (Ok(metadata), target) = (fs::metadata(&source), self.to.join(name)) else { continue };
            let known = fs::symlink_metadata(&target).ok();
            if !metadata.is_file() || metadata.len() > COPIED_BYTES_MAX {
                if known.is_none() {
                    symlink(&source, &target)?;
                }
                continue;
            }
            let is_older = match known {
                Some(known) if known.is_file() => known.modified()? < metadata.modified()?,
                // The file was large once, or the agent has put something else there.
                Some(_) => false,
                None => true,
            };
            if is_older {
                fs::copy(&source, &target)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn files_are_copied_when_newer_and_the_rest_is_linked() {
        let base = tempfile::tempdir().unwrap();
        let seed = Seed { from: base.path().join("user"), to: base.path().join("own/.gemini") };
        seed.sow().unwrap();
        assert!(seed.to.is_dir(), "a user without one gets an empty one");

        fs::create_dir_all(seed.from.join("extensions/x")).unwrap();
        fs::create_dir_all(seed.from.join("tmp/chats")).unwrap();
        fs::write(seed.from.join("settings.json"), "1").unwrap();
        seed.sow().unwrap();
        assert_eq!(fs::read_to_string(seed.to.join("settings.json")).unwrap(), "1");
        assert!(seed.to.join("extensions").is_symlink() && seed.to.join("extensions/x").is_dir());
        assert!(!seed.to.join("tmp").exists(), "conversations are each home's own");

        fs::write(seed.to.join("settings.json"), "the agent's").unwrap();
        seed.sow().unwrap();
        assert_eq!(fs::read_to_string(seed.to.join("settings.json")).unwrap(), "the agent's");
        fs::write(seed.from.join("settings.json"), "2").unwrap();
        let later = SystemTime::now() + Duration::from_mins(1);
        fs::File::open(seed.from.join("settings.json")).unwrap().set_modified(later).unwrap();
        seed.sow().unwrap();
        assert_eq!(fs::read_to_string(seed.to.join("settings.json")).unwrap(), "2");
    }
}
