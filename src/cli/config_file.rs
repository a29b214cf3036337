//! The configuration file, changed for a person: what they wrote there stays as they wrote it, and nothing gets into it that
//! the daemon would not take.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use toml_edit::{DocumentMut, Item, RawString, Table, TableLike};

use super::context::Context;
use super::error::ClientError;
use crate::config::Config;
use crate::control::wire::Info;

const PRIVATE: u32 = 0o600;
const OTHERS: u32 = 0o077;
/// Behind every section that was read.
const LAST: isize = isize::MAX;
const PRIVATE_DIRECTORY: u32 = 0o700;
/// What a file is called until it is whole.
const UNFINISHED: &str = "acpd-unfinished";
/// Whoever changes the file has it for some milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Links that are followed, which is as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// What is to be done with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Nobody else changes it meanwhile.
    Change,
    /// Its text is replaced as a whole, and need not be TOML now. It is not locked: that may take a person a while.
    Replace,
}

pub struct ConfigFile {
    path: PathBuf,
    /// Where it is when links are followed; it may not be there yet.
    real: PathBuf,
    /// Its directory, locked.
    lock: Option<File>,
    /// As it was read; nothing, when there was none.
    before: Option<String>,
    /// Comments of a file that has nothing else. They stay above what comes.
    preamble: String,
    document: DocumentMut,
}

impl ConfigFile {
    /// The file that is named; else the one that the daemon reads which is running; else where one is looked for.
    pub async fn open(context: &Context, access: Access) -> Result<Self, ClientError> {
        let path = match context.named_config() {
            Some(path) => Some(path.to_owned()),
            None => daemons_file(context).await.or_else(|| context.paths().config_place.clone()),
        };
        let path =
            path.ok_or_else(|| ClientError::local("cannot find the configuration file", "set HOME, or give --config"))?;
        let real = followed(&path);
        let lock = match access {
            Access::Read | Access::Replace => None,
            Access::Change => locked(&real).await?,
        };
        let before = read(&real)?;
        let (preamble, document) = match parsed(&path, before.as_deref().unwrap_or_default()) {
            Err(_) if access == Access::Replace => Default::default(),
            parsed => parsed?,
        };
        Ok(Self { path, real, lock, before, preamble, document })
    }

    /// The text as it was read, if the file was there.
    pub fn original(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// A private file beside it with this text, for an editor.
    pub fn copy(&self, text: &str) -> Result<PathBuf, ClientError> {
        let copy = directory_of(&self.real).join(format!("config.edit-{}.toml", std::process::id()));
        let written = make(directory_of(&copy)).and_then(|()| write_whole(&copy, text, None));
        written.map_err(|error| ClientError::io(format!("write {}", copy.display()), error))?;
        Ok(copy)
    }

    pub fn replace(&mut self, text: &str) -> Result<(), ClientError> {
        (self.preamble, self.document) = parsed(&self.path, text)?;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn text(&self) -> String {
        let text = self.document.to_string();
        let text = match self.preamble.trim_end() {
            // What stood first may be gone.
            "" => text.trim_start_matches('\n').to_owned(),
            preamble => format!("{preamble}\n\n{}", text.trim_start_matches('\n')),
        };
        // Lines end as they did: what is new has ends of its own.
        let text = text.replace("\r\n", "\n");
        if self.before.as_deref().is_some_and(ends_lines_with_return) { text.replace('\n', "\r\n") } else { text }
    }

    /// Whether others than its user can read it.
    pub fn is_open_to_others(&self) -> bool {
        std::fs::metadata(&self.real).is_ok_and(|metadata| metadata.mode() & OTHERS != 0)
    }

    /// Puts a new agent's section behind everything that is there, comments at the end included.
    pub fn add_agent(&mut self, name: &str, mut section: Table) -> Result<(), ClientError> {
        self.agents()?;
        if self.document.get("agents").is_some_and(Item::is_table) {
            self.move_behind_all(&mut section);
        }
        self.agents()?.insert(name, Item::Table(section));
        Ok(())
    }

    /// Comments at the end of the file belong to what stands above them.
    fn move_behind_all(&mut self, section: &mut Table) {
        let comments = self.document.trailing().as_str().unwrap_or_default().trim_end().to_owned();
        if !comments.is_empty() {
            section.decor_mut().set_prefix(format!("{comments}\n\n"));
            section.set_position(Some(LAST));
            self.document.set_trailing(RawString::default());
        }
    }

    /// The sections of agents, made when there are none.
    pub fn agents(&mut self) -> Result<&mut dyn TableLike, ClientError> {
        self.section("agents")
    }

    /// Sets a key of a section, which may be one of another section: `agents.mine`.
    pub fn set(&mut self, section: &str, key: &str, item: Item) -> Result<(), ClientError> {
        let (first, rest) = section.split_once('.').map_or((section, None), |(first, rest)| (first, Some(rest)));
        if !self.document.contains_key(first) {
            let mut table = Table::new();
            table.set_implicit(rest.is_some());
            self.move_behind_all(&mut table);
            self.document.insert(first, Item::Table(table));
        }
        let mut table = self.section(first)?;
        for name in rest.into_iter().flat_map(|rest| rest.split('.')) {
            let inner = table.entry(name).or_insert_with(|| Item::Table(Table::new()));
            table = inner.as_table_like_mut().ok_or_else(|| {
                ClientError::local(
                    format!("{name} in [{section}] is not a section"),
                    "`acpd config edit` opens the file",
                )
            })?;
        }
        put(table, key, item);
        Ok(())
    }

    fn section(&mut self, name: &str) -> Result<&mut dyn TableLike, ClientError> {
        let path = &self.path;
        let new = || {
            let mut table = Table::new();
            // Only what is in it is written, not its own head.
            table.set_implicit(true);
            Item::Table(table)
        };
        self.document.entry(name).or_insert_with(new).as_table_like_mut().ok_or_else(|| {
            let message = format!("{name} in {} is not a table", path.display());
            ClientError::local(message, format!("write it as a table: [{name}]"))
        })
    }

    /// Reads it as the daemon would. What the environment adds is the daemon's own affair.
    pub fn check(&self) -> Result<(), ClientError> {
        self.check_text(&self.text())
    }

    pub fn check_text(&self, text: &str) -> Result<(), ClientError> {
        let name = self.path.display().to_string();
        Config::read(text, &name, &BTreeMap::new()).map(drop).map_err(|error| {
            ClientError::local(error.to_string(), "nothing was changed; correct the configuration first")
        })
    }

    /// Puts it in the place of the old one, whole or not at all. A link stays one, and what it leads to is replaced.
    ///
    /// An editor knows nothing of our lock, so what was read is compared with what is there now.
    pub fn write(&mut self) -> Result<(), ClientError> {
        let text = self.text();
        if read(&self.real)? != self.before {
            let message = format!("{} was changed by another program; nothing was written", self.path.display());
            return Err(ClientError::local(message, "read the file and run the command again"));
        }
        if self.before.as_deref() != Some(text.as_str()) {
            let operation = || format!("write {}", self.real.display());
            replace(&self.real, &text).map_err(|error| ClientError::io(operation(), error))?;
        }
        self.before = Some(text);
        self.lock = None;
        Ok(())
    }
}

/// Sets a value of a section. What stands around one that is there is the person's, and stays.
pub fn put(section: &mut dyn TableLike, key: &str, item: Item) {
    match section.get_mut(key) {
        Some(known) => {
            let decor = known.as_value().map(|known| known.decor().clone());
            *known = item;
            if let (Some(decor), Some(value)) = (decor, known.as_value_mut()) {
                *value.decor_mut() = decor;
            }
        }
        None => drop(section.insert(key, item)),
    }
}

/// A text as comments alone, or as a document.
fn parsed(path: &Path, text: &str) -> Result<(String, DocumentMut), ClientError> {
    let document = text.parse::<DocumentMut>().map_err(|error| {
        let message = format!("{} is not valid TOML: {}", path.display(), error.message());
        ClientError::local(message, "`acpd doctor` shows the place; nothing was changed")
    })?;
    Ok(if document.is_empty() { (text.to_owned(), DocumentMut::new()) } else { (String::new(), document) })
}

fn read(path: &Path) -> Result<Option<String>, ClientError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ClientError::io(format!("read {}", path.display()), error)),
    }
}

fn ends_lines_with_return(text: &str) -> bool {
    let (all, with_return) = (text.matches('\n').count(), text.matches("\r\n").count());
    with_return * 2 > all
}

/// Where links lead, also when there is nothing yet at their end.
pub fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |directory| directory.join(&target));
    }
    path.canonicalize().unwrap_or(path)
}

/// Locks the directory: the file itself is replaced, and a lock on it would be on the old one.
async fn locked(file: &Path) -> Result<Option<File>, ClientError> {
    let directory = directory_of(file);
    let operation = || format!("create {}", directory.display());
    make(directory).map_err(|error| ClientError::io(operation(), error))?;
    // Where it cannot be locked, there is still the comparison before it is written.
    let Ok(handle) = File::open(directory) else { return Ok(None) };
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(Some(handle)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                sleep_until(Instant::now() + LOCK_PAUSE).await;
            }
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process has locked {}; nothing was written", directory.display());
                return Err(ClientError::local(
                    message,
                    "another acpd command is changing the configuration; end it and try again",
                ));
            }
        }
    }
}

fn make(directory: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(directory)
}

/// A name without a directory is in the one where we are.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

async fn daemons_file(context: &Context) -> Option<PathBuf> {
    let daemon = context.running_daemon().await.ok()?;
    let info: Info = daemon.report("/v1/info").await.ok()?;
    info.config?.file.map(PathBuf::from)
}

/// Writes the file as a whole or not at all.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = directory_of(path);
    make(directory)?;
    let known = std::fs::metadata(path).ok();
    let unfinished = directory.join(format!(".{UNFINISHED}-{}", std::process::id()));
    let written = write_whole(&unfinished, text, known.as_ref()).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // It is of no use, and may not be there.
        std::fs::remove_file(&unfinished).ok();
    }
    written?;
    File::open(directory)?.sync_all()
}

/// With the owner and the mode that the file had before; a new one is for nobody else.
fn write_whole(path: &Path, text: &str, known: Option<&std::fs::Metadata>) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(PRIVATE).open(path)?;
    if let Some(known) = known {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
            fchown(&file, Some(known.uid()), Some(known.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(known.mode() & 0o7777))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_wrote_meanwhile_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(&path, "# an editor's\n").unwrap();
        let before = Some("# as it was read\n".to_owned());
        let (real, preamble, document) = (path.clone(), String::new(), DocumentMut::new());
        let mut file = ConfigFile { path: path.clone(), real, lock: None, before, preamble, document };
        let error = file.write().unwrap_err();
        assert!(error.to_string().ends_with("was changed by another program; nothing was written"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# an editor's\n");
    }
}
