//! Where a test plays: a user with a `~/.gemini` of their own, the stand-in API, the daemon, and the real CLI, confined as
//! acpd confines it by default.
//!
//! Every test ends the same way: the daemon is stopped, no process is left of anything that it started, and the user's
//! `~/.gemini` is byte for byte what it was.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::api::Api;
use crate::harness::{Contents, Daemon, DaemonBuilder, contents, has_bubblewrap, npm_packages, pid_of, processes_of};

/// The key, which only the agent's process and the API are to see.
pub const KEY: &str = "a-key-of-the-test";
/// A word of the user's own GEMINI.md.
pub const USERS_WORD: &str = "PELICAN7";

/// What a user has there beside settings.
const USERS_FILES: [(&str, &str); 3] = [
    ("GEMINI.md", "Always remember the user's own word PELICAN7.\n"),
    ("commands/greet.toml", "description = \"Greets\"\nprompt = \"Say hello.\"\n"),
    ("extensions/mine/gemini-extension.json", r#"{"name": "mine", "version": "1.0.0"}"#),
];

/// Sends what the CLI asks of Google to the stand-in.
const REDIRECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gemini/redirect.mjs");

/// How the CLI gets at a model. It takes ways of its own for each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A key, and the address of an API that is not Google's.
    KeyAndAddress,
    /// The address of an API that wants no key.
    Address,
    /// A key for Google's own API.
    Key,
    /// The user's own login to Google.
    Account,
    /// Nobody is signed in.
    Nothing,
}

impl Access {
    /// What is in the agent's own file of variables.
    fn variables(self, api: &Api) -> String {
        let key = format!("GEMINI_API_KEY={KEY}\n");
        let redirect = format!("NODE_OPTIONS=--import={REDIRECT}\nACPD_TEST_STAND_IN={}\n", api.address());
        match self {
            Self::KeyAndAddress => key,
            Self::Key => key + &redirect,
            Self::Address => String::new(),
            Self::Account => format!("{redirect}CODE_ASSIST_ENDPOINT={}\n", api.address()),
            // What the CLI asks of others, to sign somebody in, does not get out either.
            Self::Nothing => format!("HTTPS_PROXY={}\n", api.address()),
        }
    }
}

/// What is decided before the curtain rises.
pub struct Setting {
    sections: String,
    is_isolated: bool,
    agent: String,
    settings: Value,
    files: BTreeMap<String, String>,
    access: Access,
}

impl Setting {
    pub fn new() -> Self {
        let files = USERS_FILES.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        // Nothing is sent to anybody but the stand-in.
        let settings = json!({"ui": {"theme": "Dracula"}, "general": {"enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false}});
        Self {
            sections: String::new(),
            is_isolated: true,
            agent: String::new(),
            settings,
            files,
            access: Access::KeyAndAddress,
        }
    }

    /// Sections for the daemon's configuration.
    pub fn config(mut self, sections: &str) -> Self {
        self.sections.push_str(sections);
        self
    }

    /// Lines for the agent's own section of it.
    pub fn agent(mut self, lines: &str) -> Self {
        self.agent.push_str(lines);
        self
    }

    /// One of the user's own settings, by the way to it: `/general/maxAttempts`.
    pub fn setting(mut self, pointer: &str, value: Value) -> Self {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
        let parent = self.settings.pointer_mut(parent).expect("the settings have that section");
        parent[name] = value;
        self
    }

    /// Without bubblewrap.
    pub fn writes_only(mut self) -> Self {
        self.is_isolated = false;
        self
    }

    /// A file in the user's `~/.gemini`.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.insert(name.to_owned(), text.to_owned());
        self
    }

    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Plays the test, unless the CLI is not to be had here, and holds what is to hold of each.
    pub async fn play(self, test: impl AsyncFnOnce(&mut Stage)) {
        let Some(packages) = npm_packages("gemini").await else { return };
        let mut stage = self.set(&packages.join(".bin/gemini")).await;
        test(&mut stage).await;
        stage.clear().await;
    }

    async fn set(self, program: &Path) -> Stage {
        let mut builder =
            if self.is_isolated && has_bubblewrap() { DaemonBuilder::isolated() } else { Daemon::builder() };
        let users = builder.home().join(".gemini");
        let settings = ("settings.json".to_owned(), self.settings.to_string());
        for (name, text) in self.files.into_iter().chain([settings]) {
            let path = users.join(name);
            std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("it can be made");
            std::fs::write(&path, text).expect("a file can be written");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("the mode can be set");
        }
        let api = Api::start().await;
        let env_file = builder.root().join("gemini.env");
        std::fs::write(&env_file, self.access.variables(&api)).expect("a file can be written");
        std::fs::set_permissions(&env_file, PermissionsExt::from_mode(0o600)).expect("the mode can be set");
        let (program, env_file) = (json!(program), json!(env_file));
        let agent = format!("[agents.gemini]\ncommand = {program}\nenv_file = [{env_file}]\n{}", self.agent);
        if matches!(self.access, Access::KeyAndAddress | Access::Address) {
            builder = builder.env("GOOGLE_GEMINI_BASE_URL", api.address());
        }
        let before = contents(&users);
        let daemon = builder.config(&self.sections).config(&agent).start().await;
        Stage { daemon, api, users, before, changed: Vec::new() }
    }
}

pub struct Stage {
    pub daemon: Daemon,
    pub api: Api,
    users: PathBuf,
    before: Contents,
    changed: Vec<PathBuf>,
}

impl Stage {
    /// A session in the workspace, whose CLI is ready.
    pub async fn session(&self) -> String {
        let session = self.daemon.create_session("gemini").await;
        self.daemon.events(&session, None).await.until("process.ready").await;
        session
    }

    /// A prompt whose turn is to be completed, and that turn.
    pub async fn say(&self, session: &str, text: &str) -> Value {
        let turn = self.daemon.prompt_and_wait(session, text).await;
        assert_eq!(turn["status"], "completed", "{turn}");
        turn
    }

    /// A prompt whose turn is to fail, and the error.
    pub async fn fail(&self, session: &str, text: &str) -> Value {
        let turn = self.daemon.prompt_and_wait(session, text).await;
        assert_eq!(turn["status"], "failed", "{turn}");
        turn["error"].clone()
    }

    /// A prompt that is accepted: its turn, and where to follow from.
    pub async fn begin(&self, session: &str, text: &str) -> (String, Option<i64>) {
        let accepted = self.daemon.prompt(session, text).await;
        (accepted["turnId"].as_str().expect("a turn has an id").to_owned(), accepted["after"].as_i64())
    }

    /// What the session's agent said last.
    pub async fn last_words(&self, session: &str) -> String {
        let messages = self.daemon.messages(session).await;
        let said = messages.iter().rfind(|message| message["role"] == "agent" && message["content"]["type"] == "text");
        said.expect("the agent said something")["content"]["text"].as_str().expect("it is text").to_owned()
    }

    /// The CLI's process.
    pub async fn pid(&self, session: &str) -> u32 {
        pid_of(&self.daemon.session(session).await)
    }

    /// A file of the user's that the CLI itself writes in ordinary use, and that is another one now.
    pub fn expect_change(&mut self, path: PathBuf) {
        self.changed.push(path);
    }

    /// The end of every test.
    async fn clear(&mut self) {
        assert!(self.daemon.terminate().await.success());
        let left = processes_of(self.daemon.root());
        assert!(left.is_empty(), "processes are left: {left:?}");
        let mut after = contents(&self.users);
        for path in &self.changed {
            let (was, is) = (&self.before[path], &after[path]);
            assert!(was.0 == is.0 && was.1 != is.1, "{} was to be changed, and its mode kept", path.display());
            after.insert(path.clone(), was.clone());
        }
        let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&self.before), "the user's ~/.gemini has other files");
        assert!(after == self.before, "the user's ~/.gemini was changed: {}", self.users.display());
    }
}
