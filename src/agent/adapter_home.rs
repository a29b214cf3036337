//! What adapters need on the disk before a confined agent starts, in the session's own home.
//!
//! Confined, agents cannot write to the user's home, where they keep their settings and conversations: Gemini CLI hangs without
//! a word, Codex and Qwen Code end. So each gets a place of its own, which a variable tells it. Files that it may want to write
//! (settings, a login that it renews) are copied when the user's are newer; directories (extensions, commands) are linked, and
//! so can be read. Of Gemini's everything is taken over but its conversations; of the others what is named here, because
//! beside their settings they keep databases that cannot be shared.
//!
//! The shim does it, as the session's user and not confined, in a directory where the agent has been before and may have
//! left anything. So nothing is followed there: directories are entered by descriptor, files are made anew under a name
//! of their own and then renamed. What cannot be had is left out with a word, because the agent may do without it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::confine::{Confinement, SessionDirectories};
use crate::model::Adapter;

/// Says where Gemini CLI has its own directory, in place of the home.
const GEMINI_HOME: &str = "GEMINI_CLI_HOME";
const GEMINI: &str = ".gemini";

/// Says where the directory itself is, what it is called in the home, and what of it is taken over.
const CLAUDE: (&str, &str, &[&str]) = (
    "CLAUDE_CONFIG_DIR",
    ".claude",
    &[".credentials.json", "CLAUDE.md", "agents", "commands", "output-styles", "plugins", "settings.json", "skills"],
);
const CODEX: (&str, &str, &[&str]) =
    ("CODEX_HOME", ".codex", &["AGENTS.md", "auth.json", "config.toml", "prompts", "rules", "skills"]);
const QWEN: (&str, &str, &[&str]) =
    ("QWEN_HOME", ".qwen", &[".env", "QWEN.md", "agents", "commands", "oauth_creds.json", "settings.json", "skills"]);
/// What Claude Code keeps beside its directory, and within it where that has a place of its own.
const CLAUDE_FILE: &str = ".claude.json";

/// `OpenCode` has the four directories that XDG has: the variable, where it is in the home otherwise, and what is taken over.
const OPENCODE: [(&str, &str, &[&str]); 4] = [
    ("XDG_DATA_HOME", ".local/share", &["auth.json", "mcp-auth.json"]),
    (
        "XDG_CONFIG_HOME",
        ".config",
        &["AGENTS.md", "agent", "agents", "command", "commands", "opencode.json", "opencode.jsonc", "skills"],
    ),
    ("XDG_STATE_HOME", ".local/state", &["model.json"]),
    ("XDG_CACHE_HOME", ".cache", &[]),
];
const OPENCODE_NAME: &str = "opencode";

/// A larger file is linked: it is nothing that is written in passing.
const COPIED_BYTES_MAX: u64 = 1 << 20;
/// Entries that are looked at; nobody has so many.
const ENTRIES_MAX: usize = 1000;
/// What is told of what was left out: it must go into a pipe that nobody reads yet.
const WARNINGS_MAX: usize = 10;
/// What is each home's own: the conversations, and what was seen in them.
const NOT_SHARED: [&str; 2] = ["tmp", "history"];
/// What a copy is called until it is whole.
const UNFINISHED: &str = ".acpd-unfinished";

/// What is put into the session's home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterHome {
    /// The session's home.
    home: PathBuf,
    parts: Vec<Part>,
    /// What the agent is not to see: no copy of it, either, whatever link leads there.
    hidden: Vec<PathBuf>,
}

/// One directory of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// The user's own.
    from: PathBuf,
    /// What it is called below the session's home.
    to: PathBuf,
    /// What of it is taken over. Nothing: all but conversations.
    only: Option<Vec<String>>,
    /// Files that are elsewhere, and belong there too.
    also: Vec<PathBuf>,
}

impl AdapterHome {
    /// What an adapter needs, and its place told in the agent's environment.
    pub fn new(
        adapter: Adapter,
        own: &SessionDirectories,
        confinement: &Confinement,
        environment: &mut BTreeMap<String, String>,
    ) -> Option<Self> {
        let users = environment.get("HOME").map(PathBuf::from);
        let mut told = |variable: &str, place: &Path| {
            let before = environment.insert(variable.to_owned(), place.to_string_lossy().into_owned());
            before.map(PathBuf::from)
        };
        let mut directory = |(variable, name, only): (&str, &str, &[&str])| {
            let from = told(variable, &own.home.join(name)).or_else(|| Some(users.as_ref()?.join(name)))?;
            Some(Part { from, to: PathBuf::from(name), only: Some(owned(only)), also: Vec::new() })
        };
        let parts = match adapter {
            Adapter::Generic => return None,
            Adapter::Gemini => {
                let users = told(GEMINI_HOME, &own.home).or_else(|| users.clone())?;
                vec![Part { from: users.join(GEMINI), to: PathBuf::from(GEMINI), only: None, also: Vec::new() }]
            }
            Adapter::Claude => {
                let also = users.iter().map(|home| home.join(CLAUDE_FILE)).collect();
                vec![Part { also, ..directory(CLAUDE)? }]
            }
            Adapter::Codex => vec![directory(CODEX)?],
            Adapter::Qwen => vec![directory(QWEN)?],
            Adapter::Opencode => {
                let part = |(variable, name, only): (&str, &str, &[&str])| {
                    let base = told(variable, &own.home.join(name)).or_else(|| Some(users.as_ref()?.join(name)))?;
                    let (from, to) = (base.join(OPENCODE_NAME), Path::new(name).join(OPENCODE_NAME));
                    Some(Part { from, to, only: Some(owned(only)), also: Vec::new() })
                };
                OPENCODE.into_iter().map(part).collect::<Option<Vec<Part>>>()?
            }
        };
        let hidden = confinement.bubblewrap.iter().flat_map(|wrap| wrap.hidden.clone()).collect();
        Some(Self { home: own.home.clone(), parts, hidden })
    }

    /// Puts it there, and tells what had to be left out. A user who has nothing yet gets an empty one.
    pub fn furnish(&self) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        for part in &self.parts {
            let made = self.enter(&part.to);
            let directory =
                made.map_err(|error| format!("cannot make {}: {error}", self.home.join(&part.to).display()))?;
            self.furnish_part(part, &directory, &mut |path: &Path, error: &io::Error| {
                if warnings.len() < WARNINGS_MAX {
                    warnings.push(format!("{} is left out of the session's home: {error}", path.display()));
                }
            });
        }
        Ok(warnings)
    }

    fn furnish_part(&self, part: &Part, directory: &OwnedFd, left_out: &mut impl FnMut(&Path, &io::Error)) {
        let mut found: Vec<PathBuf> = part.also.clone();
        match (&part.only, fs::read_dir(&part.from)) {
            (Some(names), _) => found.extend(names.iter().map(|name| part.from.join(name))),
            (None, Ok(entries)) => {
                for entry in entries.take(ENTRIES_MAX) {
                    match entry {
                        Ok(entry) => found.push(entry.path()),
                        Err(error) => left_out(&part.from, &error),
                    }
                }
            }
            (None, Err(error)) if error.kind() == ErrorKind::NotFound => {}
            (None, Err(error)) => left_out(&part.from, &error),
        }
        for path in found {
            let Some(name) = path.file_name() else { continue };
            self.take_over(&path, directory, name).unwrap_or_else(|error| left_out(&path, &error));
        }
    }

    /// The directory, and nothing that a link leads to. Of the way to the session's home nothing is the agent's.
    fn enter(&self, to: &Path) -> io::Result<OwnedFd> {
        let home = openat(CWD, &self.home, DIRECTORY, Mode::empty())?;
        to.iter().try_fold(home, |parent, name| enter(&parent, name))
    }

    /// Copies or links one entry, if that is not there already.
    fn take_over(&self, source: &Path, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        if NOT_SHARED.iter().chain(&[UNFINISHED]).any(|own| name == *own) {
            return Ok(());
        }
        // A link of the user's own may lead nowhere.
        let real = match source.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let metadata = fs::symlink_metadata(&real)?;
        let is_hidden = self.hidden.iter().any(|hidden| real.starts_with(hidden));
        let known = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        if !metadata.is_file() || metadata.len() > COPIED_BYTES_MAX || is_hidden {
            return match known {
                Some(_) => Ok(()),
                None => Ok(symlinkat(source, directory, name)?),
            };
        }
        let is_older = match known {
            Some(known) if FileType::from_raw_mode(known.st_mode).is_file() => {
                let modified = (known.st_mtime, i64::try_from(known.st_mtime_nsec).unwrap_or(i64::MAX));
                modified < (metadata.mtime(), metadata.mtime_nsec())
            }
            // The file was large once, or the agent has put something else there.
            Some(_) => false,
            None => true,
        };
        if is_older { copy(&real, &metadata, directory, name) } else { Ok(()) }
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory in another, made when it is not there.
fn enter(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let make = || match mkdirat(parent, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    };
    make()?;
    match openat(parent, name, DIRECTORY, Mode::empty()) {
        // The agent has put something else in its place, and has no use for it.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            unlinkat(parent, name, AtFlags::empty())?;
            make()?;
            Ok(openat(parent, name, DIRECTORY, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Whatever the mode of the user's file is, the copy is the agent's to write. The source is a real path: where the agent
/// works in the user's home, a link that it puts there meanwhile is not followed.
fn copy(source: &Path, metadata: &Metadata, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut bytes = Vec::new();
    open_real(source)?.take(COPIED_BYTES_MAX).read_to_end(&mut bytes)?;
    match unlinkat(directory, UNFINISHED, AtFlags::empty()) {
        Err(Errno::NOENT) => {}
        removed => removed?,
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let executable = Mode::from_raw_mode(metadata.mode()) & Mode::XUSR;
    let copy = openat(directory, UNFINISHED, flags, Mode::RUSR | Mode::WUSR | executable)?;
    File::from(copy).write_all(&bytes)?;
    Ok(renameat(directory, UNFINISHED, directory, name)?)
}

fn open_real(path: &Path) -> io::Result<File> {
    // Not blocking: it may have become a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
        // A kernel that is too old for this.
        Err(Errno::NOSYS) => Ok(File::from(openat(CWD, path, flags, Mode::empty())?)),
        opened => Ok(File::from(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// The user's directory, and the session's, which the agent can write to.
    fn gemini(base: &Path) -> (AdapterHome, PathBuf) {
        let home = base.join("own");
        fs::create_dir_all(&home).unwrap();
        let to = home.join(GEMINI);
        let part = Part { from: base.join("user"), to: PathBuf::from(GEMINI), only: None, also: Vec::new() };
        (AdapterHome { home, parts: vec![part], hidden: Vec::new() }, to)
    }

    fn make_newer(path: &Path) {
        File::open(path).unwrap().set_modified(SystemTime::now() + Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn files_are_copied_when_newer_and_the_rest_is_linked() {
        let base = tempfile::tempdir().unwrap();
        let (adapter, to) = gemini(base.path());
        adapter.furnish().unwrap();
        assert!(to.is_dir(), "a user without one gets an empty one");

        fs::create_dir_all(adapter.parts[0].from.join("extensions/x")).unwrap();
        fs::create_dir_all(adapter.parts[0].from.join("tmp/chats")).unwrap();
        fs::write(adapter.parts[0].from.join("settings.json"), "1").unwrap();
        assert!(adapter.furnish().unwrap().is_empty());
        assert_eq!(fs::read_to_string(to.join("settings.json")).unwrap(), "1");
        assert!(to.join("extensions").is_symlink() && to.join("extensions/x").is_dir());
        assert!(!to.join("tmp").exists(), "conversations are each home's own");

        fs::write(to.join("settings.json"), "the agent's").unwrap();
        adapter.furnish().unwrap();
        assert_eq!(fs::read_to_string(to.join("settings.json")).unwrap(), "the agent's");
        fs::write(adapter.parts[0].from.join("settings.json"), "2").unwrap();
        make_newer(&adapter.parts[0].from.join("settings.json"));
        adapter.furnish().unwrap();
        assert_eq!(fs::read_to_string(to.join("settings.json")).unwrap(), "2");
    }

    #[test]
    fn nothing_that_the_agent_leaves_is_followed() {
        let base = tempfile::tempdir().unwrap();
        let (adapter, to) = gemini(base.path());
        let outside = base.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(&adapter.parts[0].from).unwrap();
        fs::write(outside.join("settings.json"), "theirs").unwrap();
        fs::write(adapter.parts[0].from.join("settings.json"), "the user's").unwrap();
        make_newer(&adapter.parts[0].from.join("settings.json"));

        symlink(&outside, &to).unwrap();
        adapter.furnish().unwrap();
        assert!(to.is_dir() && !to.is_symlink(), "the link made room for a directory");
        for name in ["settings.json", UNFINISHED] {
            fs::remove_file(to.join("settings.json")).ok();
            symlink(outside.join("settings.json"), to.join(name)).unwrap();
            adapter.furnish().unwrap();
        }
        assert_eq!(fs::read_to_string(outside.join("settings.json")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(to.join("settings.json")).unwrap(), "the user's");
    }

    #[test]
    fn what_is_hidden_from_the_agent_is_not_copied_for_it() {
        let base = tempfile::tempdir().unwrap();
        let (mut adapter, to) = gemini(base.path());
        let secrets = base.path().canonicalize().unwrap().join("secrets");
        for directory in [&secrets, &adapter.parts[0].from] {
            fs::create_dir_all(directory).unwrap();
        }
        for name in ["shown", "hidden"] {
            fs::write(secrets.join(name), "secret").unwrap();
            symlink(secrets.join(name), adapter.parts[0].from.join(name)).unwrap();
        }
        adapter.hidden = vec![secrets.join("hidden")];
        assert!(adapter.furnish().unwrap().is_empty());
        assert!(!to.join("shown").is_symlink(), "what a user's own link leads to is copied");
        assert_eq!(fs::read_to_string(to.join("shown")).unwrap(), "secret");
        assert!(to.join("hidden").is_symlink(), "where the agent is, it leads to nothing");
    }

    #[test]
    fn odd_files_are_left_out_and_copies_can_be_written() {
        let base = tempfile::tempdir().unwrap();
        let (adapter, to) = gemini(base.path());
        fs::create_dir_all(&adapter.parts[0].from).unwrap();
        let source = adapter.parts[0].from.join("locked.json");
        fs::write(&source, "1").unwrap();
        fs::set_permissions(&source, Permissions::from_mode(0o444)).unwrap();
        symlink("/nonexistent", adapter.parts[0].from.join("nowhere")).unwrap();
        adapter.furnish().unwrap();
        assert_eq!(to.join("locked.json").metadata().unwrap().permissions().mode() & 0o777, 0o600);
        make_newer(&source);
        assert!(adapter.furnish().unwrap().is_empty(), "it is replaced, whatever its mode");

        // Where the copy is to be made the agent has put a directory: one of many ways in which a copy fails.
        fs::create_dir(to.join(UNFINISHED)).unwrap();
        let warnings = adapter.furnish().unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("user/locked.json"), "{warnings:?}");
    }

    #[test]
    fn of_agents_that_keep_databases_only_what_is_named_is_taken_over() {
        let base = tempfile::tempdir().unwrap();
        let own = SessionDirectories { home: base.path().join("own"), tmp: base.path().join("tmp") };
        let (home, codex) = (base.path().join("home"), base.path().join("home/.codex"));
        fs::create_dir_all(&own.home).unwrap();
        fs::create_dir_all(home.join(".claude")).unwrap();
        fs::create_dir_all(home.join(".config/opencode/command")).unwrap();
        fs::create_dir_all(codex.join("prompts")).unwrap();
        for name in [".codex/auth.json", ".codex/state.sqlite", ".claude.json", ".config/opencode/opencode.json"] {
            fs::write(home.join(name), name).unwrap();
        }
        let furnished = |adapter, set: &[(&str, &Path)]| {
            let mut environment: BTreeMap<String, String> = BTreeMap::new();
            let said = [("HOME", home.as_path())].into_iter().chain(set.iter().copied());
            environment.extend(said.map(|(name, path)| (name.to_owned(), path.display().to_string())));
            let adapter = AdapterHome::new(adapter, &own, &Confinement::default(), &mut environment).unwrap();
            assert!(adapter.furnish().unwrap().is_empty());
            environment
        };
        let environment = furnished(Adapter::Codex, &[]);
        assert_eq!(Path::new(&environment["CODEX_HOME"]), own.home.join(".codex"));
        assert_eq!(fs::read_to_string(own.home.join(".codex/auth.json")).unwrap(), ".codex/auth.json");
        assert!(own.home.join(".codex/prompts").is_symlink() && !own.home.join(".codex/state.sqlite").exists());

        furnished(Adapter::Claude, &[]);
        assert_eq!(fs::read_to_string(own.home.join(".claude/.claude.json")).unwrap(), ".claude.json");

        let environment = furnished(Adapter::Opencode, &[]);
        assert_eq!(Path::new(&environment["XDG_CONFIG_HOME"]), own.home.join(".config"));
        assert!(own.home.join(".config/opencode/opencode.json").is_file() && own.home.join(".cache/opencode").is_dir());

        // Who has it elsewhere has said so.
        furnished(Adapter::Qwen, &[("QWEN_HOME", &codex)]);
        assert!(own.home.join(".qwen").is_dir());
    }
}
