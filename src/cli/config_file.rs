//! The configuration file, changed for a person: what they wrote there stays as they wrote it, and nothing gets into it that
//! the daemon would not take.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::context::Context;
use super::error::ClientError;
use crate::config::Config;
use crate::control::wire::Info;

const PRIVATE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
/// What a file is called until it is whole.
const UNFINISHED: &str = "acpd-unfinished";

pub struct ConfigFile {
    path: PathBuf,
    /// As it was read; nothing, when there was none.
    before: Option<String>,
    /// Comments of a file that has nothing else. They stay above what comes.
    preamble: String,
    document: DocumentMut,
}

impl ConfigFile {
    /// The file that is named; else the one that the daemon reads which is running; else where one is looked for.
    pub async fn open(context: &Context) -> Result<Self, ClientError> {
        let path = match context.named_config() {
            Some(path) => Some(path.to_owned()),
            None => daemons_file(context).await.or_else(|| context.paths().config_place.clone()),
        };
        let path = path.ok_or_else(|| {
            ClientError::local("cannot tell where the configuration file is", "set HOME, or give --config")
        })?;
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(ClientError::io(format!("read {}", path.display()), error)),
        };
        let document = before.as_deref().unwrap_or_default().parse::<DocumentMut>().map_err(|error| {
            let message = format!("{} is not TOML: {}", path.display(), error.message());
            ClientError::local(message, "`acpd doctor` tells where; nothing was changed")
        })?;
        let (preamble, document) = if document.is_empty() {
            (before.clone().unwrap_or_default(), DocumentMut::new())
        } else {
            (String::new(), document)
        };
        Ok(Self { path, before, preamble, document })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn text(&self) -> String {
        let text = self.document.to_string();
        match self.preamble.trim_end() {
            // What stood first may be gone.
            "" => text.trim_start_matches('\n').to_owned(),
            preamble => format!("{preamble}\n\n{}", text.trim_start_matches('\n')),
        }
    }

    /// The sections of agents, made when there are none.
    pub fn agents(&mut self) -> Result<&mut dyn TableLike, ClientError> {
        self.section("agents")
    }

    pub fn set(&mut self, section: &str, key: &str, item: Item) -> Result<(), ClientError> {
        let section = self.section(section)?;
        match section.get_mut(key) {
            // What stands around it is the person's.
            Some(known) => {
                let decor = known.as_value().map(|known| known.decor().clone());
                *known = item;
                if let (Some(decor), Some(value)) = (decor, known.as_value_mut()) {
                    *value.decor_mut() = decor;
                }
            }
            None => drop(section.insert(key, item)),
        }
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
            let message = format!("{name} in {} is not a section", path.display());
            ClientError::local(message, format!("write it as a section: [{name}]"))
        })
    }

    /// Reads it as the daemon would. What the environment adds is the daemon's own affair.
    pub fn check(&self) -> Result<(), ClientError> {
        let name = self.path.display().to_string();
        Config::read(&self.text(), &name, &BTreeMap::new())
            .map(drop)
            .map_err(|error| ClientError::local(error.to_string(), "nothing was changed; put that right first"))
    }

    /// Puts it in the place of the old one, whole or not at all. A link stays one, and what it leads to is replaced.
    pub fn write(&self) -> Result<(), ClientError> {
        let text = self.text();
        if self.before.as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        let real = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        replace(&real, &text).map_err(|error| ClientError::io(format!("write {}", real.display()), error))
    }
}

async fn daemons_file(context: &Context) -> Option<PathBuf> {
    let daemon = context.running_daemon().await.ok()?;
    let info: Info = daemon.get("/v1/info").await.ok()?;
    info.config?.file.map(PathBuf::from)
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(directory)?;
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
