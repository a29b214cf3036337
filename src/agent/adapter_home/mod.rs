//! What adapters need on the disk before an agent starts, in the session's own home.
//!
//! Confined, agents cannot write to the user's home, where they keep their settings and conversations: Gemini CLI hangs without
//! a word, Codex and Qwen Code end. So each gets a place of its own, which a variable tells it. Files that it may want to write
//! are copied when the user's are newer; directories (extensions, commands) are linked, and so can be read; the login is lent
//! ([`login`]). Of Gemini's everything is taken over but its conversations; of the others what is named here, because
//! beside their settings they keep databases that cannot be shared. Gemini CLI has its place also when it is not confined,
//! because its settings must be others ([`gemini`]) and its conversations looked after ([`chats`]).
//!
//! The shim does it, as the session's user and not confined, in a directory where the agent has been before and may have
//! left anything ([`disk`]). What cannot be had is left out with a word, because the agent may do without it.

mod chats;
mod codex;
mod disk;
mod gemini;
mod login;
mod opencode;
mod private;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, statat, symlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::confine::SessionDirectories;
use crate::model::Adapter;
use gemini::Gemini;
use login::Login;

pub use login::Lent;
pub use opencode::permissions as opencode_permissions;

/// Says where Gemini CLI has its own directory, in place of the home.
const GEMINI_HOME: &str = "GEMINI_CLI_HOME";
const GEMINI: &str = gemini::DIRECTORY;

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
/// Entries that are looked at, in one directory or, where directories are copied, in all.
const ENTRIES_MAX: usize = 1000;
/// What is told of what was left out: it must go into a pipe that nobody reads yet.
const WARNINGS_MAX: usize = 10;
/// What is each home's own of Gemini's: the conversations and what was seen in them, and the names of the directories that
/// they are in. The settings are put together.
const GEMINI_OWN: [&str; 4] = ["tmp", "history", "projects.json", gemini::SETTINGS];
/// What other agents have in common, and Gemini CLI looks for in the home too.
const AGENTS: (&str, &[&str]) = (".agents", &["skills"]);

/// What is put into the session's home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterHome {
    adapter: Adapter,
    /// The session's home.
    home: PathBuf,
    /// The agent's own directory is the first one.
    parts: Vec<Part>,
    /// What the agent is not to see: no copy of it, either, whatever link leads there.
    hidden: Vec<PathBuf>,
    /// What only Gemini CLI needs.
    gemini: Option<Gemini>,
    /// The variables that name it, if it is a private home.
    pub moved: BTreeMap<String, String>,
}

/// One directory of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// The user's own.
    from: PathBuf,
    /// What it is called below the session's home.
    to: PathBuf,
    /// What of it is taken over. Nothing: all but what is each home's own.
    only: Option<Vec<String>>,
    /// Files that are elsewhere, and belong there too.
    also: Vec<PathBuf>,
    take: Take,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Take {
    /// Files are copied, directories linked.
    Files,
    /// Directories are copied too.
    Whole,
    /// Everything is linked.
    Links,
}

/// What a session wishes for its agent.
#[derive(Debug)]
pub struct Furniture<'a> {
    pub adapter: Adapter,
    pub own: &'a SessionDirectories,
    pub is_confined: bool,
    /// What the agent is not to see.
    pub hidden: Vec<PathBuf>,
    /// The names in its environment that the profile itself gives a value.
    pub given: &'a BTreeSet<String>,
    /// The agent's name for the conversation that it is to load.
    pub conversation: Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Furnished {
    /// What had to be left out.
    pub warnings: Vec<String>,
    /// What is known of how the agent signs in, for when that fails.
    pub account: Option<String>,
    pub lent: Option<Lent>,
}

/// Whether a login that the agent renews goes back to its user.
pub const fn returns_login(adapter: Adapter) -> bool {
    login_of(adapter).is_some()
}

const fn login_of(adapter: Adapter) -> Option<&'static Login> {
    match adapter {
        // OpenCode has those of many providers in one file.
        Adapter::Generic | Adapter::Opencode => None,
        Adapter::Gemini => Some(&login::GEMINI),
        Adapter::Claude => Some(&login::CLAUDE),
        Adapter::Codex => Some(&login::CODEX),
        Adapter::Qwen => Some(&login::QWEN),
    }
}

impl AdapterHome {
    /// What an adapter needs, and its place told in the agent's environment.
    pub fn new(wish: Furniture<'_>, environment: &mut BTreeMap<String, String>) -> Option<Self> {
        let Furniture { adapter, own, is_confined, hidden, given, conversation } = wish;
        if !is_confined && !adapter.quirks().always_has_own_home {
            return None;
        }
        let gemini = (adapter == Adapter::Gemini).then(|| Gemini::new(environment, given, conversation));
        let users = environment.get("HOME").map(PathBuf::from);
        let mut told = |variable: &str, place: &Path| {
            let before = environment.insert(variable.to_owned(), place.to_string_lossy().into_owned());
            before.map(PathBuf::from)
        };
        let mut directory = |(variable, name, only): (&str, &str, &[&str])| {
            let from = told(variable, &own.home.join(name)).or_else(|| Some(users.as_ref()?.join(name)))?;
            Some(Part { from, to: PathBuf::from(name), only: Some(owned(only)), also: Vec::new(), take: Take::Files })
        };
        let parts = match adapter {
            Adapter::Generic => return None,
            Adapter::Gemini => {
                let users = told(GEMINI_HOME, &own.home).or_else(|| users.clone())?;
                let part = |name: &str, only| Part {
                    from: users.join(name),
                    to: PathBuf::from(name),
                    only,
                    also: Vec::new(),
                    take: Take::Files,
                };
                vec![part(GEMINI, None), part(AGENTS.0, Some(owned(AGENTS.1)))]
            }
            Adapter::Claude => {
                let also = users.iter().map(|home| home.join(CLAUDE_FILE)).collect();
                vec![Part { also, ..directory(CLAUDE)? }]
            }
            Adapter::Codex => {
                let part = directory(CODEX)?;
                environment.entry(codex::VARIABLE.to_owned()).or_insert_with(|| codex::ENFORCED.to_owned());
                vec![part]
            }
            Adapter::Qwen => vec![directory(QWEN)?],
            Adapter::Opencode => {
                let part = |(variable, name, only): (&str, &str, &[&str])| {
                    let base = told(variable, &own.home.join(name)).or_else(|| Some(users.as_ref()?.join(name)))?;
                    let (from, to) = (base.join(OPENCODE_NAME), Path::new(name).join(OPENCODE_NAME));
                    Some(Part { from, to, only: Some(owned(only)), also: Vec::new(), take: Take::Files })
                };
                OPENCODE.into_iter().map(part).collect::<Option<Vec<Part>>>()?
            }
        };
        Some(Self { adapter, home: own.home.clone(), parts, hidden, gemini, moved: BTreeMap::new() })
    }

    /// Puts it there, and tells what had to be left out. A user who has nothing yet gets an empty one. `has_terminals` says
    /// whether the agent can write to terminals that it opens.
    pub fn furnish(&self, has_terminals: bool) -> Result<Furnished, String> {
        let (mut furnished, mut room) = (Furnished::default(), ENTRIES_MAX);
        for (index, part) in self.parts.iter().enumerate() {
            let made = self.enter(&part.to);
            let directory =
                made.map_err(|error| format!("cannot create {}: {error}", self.home.join(&part.to).display()))?;
            let warnings = &mut furnished.warnings;
            let mut left_out = |path: &Path, error: &io::Error| {
                if warnings.len() < WARNINGS_MAX {
                    warnings.push(format!("omitted {} from the session's home: {error}", path.display()));
                }
            };
            let mut each = ENTRIES_MAX;
            let room = if part.take == Take::Whole { &mut room } else { &mut each };
            self.furnish_part(part, &directory, room, &mut left_out);
            if index == 0 {
                furnished.lent = self.lend(part, &directory, &mut left_out);
                if self.adapter == Adapter::Codex {
                    self.put_codex_settings(part, &directory)?;
                }
                if self.adapter == Adapter::Qwen && !has_terminals {
                    let settings = self.home.join(&part.to).join(gemini::SETTINGS);
                    gemini::use_pipes(&directory).map_err(|error| {
                        format!("cannot use the Qwen Code settings in {}: {error}", settings.display())
                    })?;
                }
                if let Some(gemini) = &self.gemini {
                    let settings = part.from.join(gemini::SETTINGS);
                    let place = gemini::Place {
                        directory: &directory,
                        users: (!self.is_hidden(&settings)).then_some(&settings),
                        has_terminals,
                        missing_login: furnished.lent.is_none().then(|| part.from.join(login::GEMINI.file)),
                    };
                    furnished.account = Some(gemini.prepare(&place, &mut left_out)?);
                }
            }
        }
        Ok(furnished)
    }

    fn furnish_part(
        &self,
        part: &Part,
        directory: &OwnedFd,
        room: &mut usize,
        left_out: &mut impl FnMut(&Path, &io::Error),
    ) {
        let mut found: Vec<PathBuf> = part.also.clone();
        match (&part.only, fs::read_dir(&part.from)) {
            (Some(names), _) => found.extend(names.iter().map(|name| part.from.join(name))),
            (None, Ok(entries)) => {
                for entry in entries.take(*room) {
                    match entry {
                        Ok(entry) => found.push(entry.path()),
                        Err(error) => left_out(&part.from, &error),
                    }
                }
            }
            (None, Err(error)) if error.kind() == ErrorKind::NotFound => {}
            (None, Err(error)) => left_out(&part.from, &error),
        }
        *room = room.saturating_sub(found.len());
        let login = login_of(self.adapter).map(|login| login.file);
        let own = GEMINI_OWN.into_iter().filter(|_| self.gemini.is_some() && part.only.is_none());
        let own = own.chain((self.adapter == Adapter::Codex).then_some(codex::SETTINGS));
        let not_taken: Vec<&str> = own.chain(login).collect();
        for path in found {
            let Some(name) = path.file_name().filter(|name| not_taken.iter().all(|other| name != other)) else {
                continue;
            };
            if part.take == Take::Whole && path.is_dir() && !self.is_hidden(&path) {
                let inner = Part { from: path.clone(), only: None, ..part.clone() };
                let entered = disk::enter(directory, name);
                let copied = entered.map(|directory| self.furnish_part(&inner, &directory, room, left_out));
                copied.unwrap_or_else(|error| left_out(&path, &error));
                continue;
            }
            self.take_over(&path, directory, name, part.take).unwrap_or_else(|error| left_out(&path, &error));
        }
    }

    fn put_codex_settings(&self, part: &Part, directory: &OwnedFd) -> Result<(), String> {
        let users = part.from.join(codex::SETTINGS);
        let text = if self.is_hidden(&users) { None } else { gemini::read_users(&users)? };
        let problem = |problem: String| format!("cannot use the Codex settings in {}: {problem}", users.display());
        let settings = codex::settings(&text.unwrap_or_default()).map_err(problem)?;
        disk::put(directory, OsStr::new(codex::SETTINGS), disk::PRIVATE, settings.as_bytes())
            .map_err(|error| problem(error.to_string()))
    }

    fn lend(&self, part: &Part, directory: &OwnedFd, left_out: &mut impl FnMut(&Path, &io::Error)) -> Option<Lent> {
        let login = login_of(self.adapter)?;
        let users = part.from.join(login.file);
        if self.is_hidden(&users) {
            return None;
        }
        let lent = directory.try_clone().and_then(|directory| Lent::lend(login, &users, directory));
        lent.unwrap_or_else(|error| {
            left_out(&users, &error);
            None
        })
    }

    /// The directory, and nothing that a link leads to. Of the way to the session's home nothing is the agent's.
    fn enter(&self, to: &Path) -> io::Result<OwnedFd> {
        let home = disk::directory(&self.home)?;
        to.iter().try_fold(home, |parent, name| disk::enter(&parent, name))
    }

    fn is_hidden(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.hidden.iter().any(|hidden| real.starts_with(hidden))
    }

    /// Copies or links one entry, if that is not there already.
    fn take_over(&self, source: &Path, directory: &OwnedFd, name: &OsStr, take: Take) -> io::Result<()> {
        // A link of the user's own may lead nowhere.
        let real = match source.canonicalize() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let metadata = fs::symlink_metadata(&real)?;
        let known = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        let is_copied = metadata.is_file() && metadata.len() <= COPIED_BYTES_MAX && take != Take::Links;
        if !is_copied || self.is_hidden(&real) {
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
            // The file was large once or was not to be copied, or the agent has put something else there.
            Some(known) => take == Take::Whole && FileType::from_raw_mode(known.st_mode).is_symlink(),
            None => true,
        };
        if is_older { copy(&real, &metadata, directory, name) } else { Ok(()) }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Whatever the mode of the user's file is, the copy is the agent's to write.
fn copy(source: &Path, metadata: &Metadata, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let bytes = disk::read(disk::open_real(source)?, COPIED_BYTES_MAX)?;
    let executable = Mode::from_raw_mode(metadata.mode()) & Mode::XUSR;
    disk::put(directory, name, disk::PRIVATE | executable, bytes.as_slice())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// The user's directory, and the session's, which the agent can write to.
    fn gemini(base: &Path) -> (AdapterHome, PathBuf) {
        let home = base.join("own");
        fs::create_dir_all(&home).unwrap();
        let to = home.join(GEMINI);
        let part = Part {
            from: base.join("user"),
            to: PathBuf::from(GEMINI),
            only: None,
            also: Vec::new(),
            take: Take::Files,
        };
        let gemini = Some(Gemini::new(&BTreeMap::new(), &BTreeSet::new(), None));
        let (adapter, parts, hidden) = (Adapter::Gemini, vec![part], Vec::new());
        (AdapterHome { adapter, home, parts, hidden, gemini, moved: BTreeMap::new() }, to)
    }

    fn wish(adapter: Adapter, own: &SessionDirectories) -> Furniture<'_> {
        static NOTHING: BTreeSet<String> = BTreeSet::new();
        Furniture { adapter, own, is_confined: true, hidden: Vec::new(), given: &NOTHING, conversation: None }
    }

    fn unfinished() -> String {
        format!("{}-{}", disk::UNFINISHED, std::process::id())
    }

    fn make_newer(path: &Path) {
        File::open(path).unwrap().set_modified(SystemTime::now() + Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn nothing_that_the_agent_leaves_is_followed() {
        let base = tempfile::tempdir().unwrap();
        let (adapter, to) = gemini(base.path());
        let outside = base.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(&adapter.parts[0].from).unwrap();
        fs::write(outside.join("state.json"), "theirs").unwrap();
        fs::write(adapter.parts[0].from.join("state.json"), "the user's").unwrap();
        make_newer(&adapter.parts[0].from.join("state.json"));

        symlink(&outside, &to).unwrap();
        adapter.furnish(true).unwrap();
        assert!(to.is_dir() && !to.is_symlink(), "the link made room for a directory");
        for name in ["state.json".to_owned(), unfinished()] {
            fs::remove_file(to.join("state.json")).ok();
            symlink(outside.join("state.json"), to.join(name)).unwrap();
            adapter.furnish(true).unwrap();
        }
        assert_eq!(fs::read_to_string(outside.join("state.json")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(to.join("state.json")).unwrap(), "the user's");
    }

    #[test]
    fn gemini_gets_its_settings_put_together_and_the_login_lent() {
        let base = tempfile::tempdir().unwrap();
        let (mut adapter, to) = gemini(base.path());
        let user = adapter.parts[0].from.clone();
        fs::create_dir_all(&user).unwrap();
        let google = r#"{"security":{"auth":{"selectedType":"oauth-personal"}},"ui":{"theme":"x"}}"#;
        fs::write(user.join(gemini::SETTINGS), google).unwrap();
        fs::write(user.join("projects.json"), "{}").unwrap();
        let furnished = adapter.furnish(true).unwrap();
        assert!(
            furnished.lent.is_none() && furnished.account.unwrap().contains("user/oauth_creds.json does not exist")
        );
        assert!(!to.join("projects.json").exists(), "the names of its directories are each home's own");

        fs::write(user.join("oauth_creds.json"), "{}").unwrap();
        let furnished = adapter.furnish(true).unwrap();
        assert!(furnished.lent.is_some() && furnished.account.unwrap().contains("Google account"));
        let settings = fs::read_to_string(to.join(gemini::SETTINGS)).unwrap();
        assert!(settings.contains("oauth-personal") && settings.contains("\"theme\": \"x\""), "{settings}");
        assert_eq!(fs::read_to_string(user.join(gemini::SETTINGS)).unwrap(), google, "the user's stay as they are");

        adapter.hidden = vec![user.canonicalize().unwrap()];
        assert!(adapter.furnish(true).unwrap().lent.is_none(), "what is hidden is not lent");
        adapter.hidden.clear();
        fs::write(user.join(gemini::SETTINGS), "{").unwrap();
        let told = adapter.furnish(true).unwrap_err();
        assert!(told.contains("user/settings.json") && told.contains("correct them"), "{told}");
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
        assert!(adapter.furnish(true).unwrap().warnings.is_empty());
        assert!(!to.join("shown").is_symlink(), "what a user's own link leads to is copied");
        assert_eq!(fs::read_to_string(to.join("shown")).unwrap(), "secret");
        assert!(to.join("hidden").is_symlink(), "where the agent is, it leads to nothing");
    }

    #[test]
    fn odd_files_are_left_out_and_copies_can_be_written() {
        let base = tempfile::tempdir().unwrap();
        let (mut adapter, to) = gemini(base.path());
        adapter.gemini = None;
        fs::create_dir_all(&adapter.parts[0].from).unwrap();
        let source = adapter.parts[0].from.join("locked.json");
        fs::write(&source, "1").unwrap();
        fs::set_permissions(&source, Permissions::from_mode(0o444)).unwrap();
        symlink("/nonexistent", adapter.parts[0].from.join("nowhere")).unwrap();
        adapter.furnish(true).unwrap();
        assert_eq!(to.join("locked.json").metadata().unwrap().permissions().mode() & 0o777, 0o600);
        make_newer(&source);
        assert!(adapter.furnish(true).unwrap().warnings.is_empty(), "it is replaced, also if it is read-only");

        // Where the copy is to be made the agent has put a directory: one of many ways in which a copy fails.
        fs::create_dir(to.join(unfinished())).unwrap();
        let warnings = adapter.furnish(true).unwrap().warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("user/locked.json"), "{warnings:?}");
    }

    #[test]
    fn of_agents_that_keep_databases_only_what_is_named_is_taken_over() {
        let base = tempfile::tempdir().unwrap();
        let own = SessionDirectories::in_directory(&base.path().join("own"));
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
            let adapter = AdapterHome::new(wish(adapter, &own), &mut environment).unwrap();
            assert!(adapter.furnish(true).unwrap().warnings.is_empty());
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
