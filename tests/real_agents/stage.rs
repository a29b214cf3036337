//! One agent with its user's home, the stand-in and the daemon, confined.
//!
//! Every test ends the same way: the daemon is stopped, no process that it started is left, and the user's home is byte for
//! byte what it was.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::agents::{Agent, node};
use super::api::Api;
use crate::harness::{Contents, Daemon, DaemonBuilder, contents, has_bubblewrap, npm_packages, pid_of, processes_of};

/// How the agent is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The default, with bubblewrap.
    Isolated,
    /// Without bubblewrap.
    WritesOnly,
}

pub struct Stage {
    pub daemon: Daemon,
    pub api: Api,
    agent: &'static Agent,
    before: Contents,
}

/// Plays the test, if the agents can be installed, and checks what it leaves.
pub async fn play(agent: &'static Agent, level: Level, test: impl AsyncFnOnce(&mut Stage)) {
    let Some(packages) = npm_packages("real_agents").await else { return };
    let builder = match level {
        Level::Isolated if has_bubblewrap() => DaemonBuilder::isolated(),
        _ => Daemon::builder(),
    };
    let api = Api::start().await;
    let setup = (agent.setup)(api.address());
    if let Some((name, text)) = setup.file {
        let path = builder.home().join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("it can be made");
        std::fs::write(&path, text).expect("a file can be written");
    }
    // The stand-in refuses to be a proxy, so no request leaves the machine.
    let proxy = [("HTTPS_PROXY", api.address().to_owned()), ("NO_PROXY", "127.0.0.1".to_owned())];
    let variables = setup.variables.into_iter().chain(proxy).map(|(name, value)| format!("{name}={value}\n"));
    let env_file = builder.root().join("agent.env");
    std::fs::write(&env_file, variables.collect::<String>()).expect("a file can be written");
    std::fs::set_permissions(&env_file, PermissionsExt::from_mode(0o600)).expect("the mode can be set");
    let (name, program, profile) = (agent.name, json!((agent.program)(&packages)), agent.profile);
    let section = format!("[agents.{name}]\ncommand = {program}\nenv_file = [{}]\n{profile}", json!(env_file));
    let path = format!("{}:{}", node(&packages).display(), std::env::var("PATH").unwrap_or_default());
    let before = contents(builder.home());
    let daemon = builder.env("PATH", &path).config(&section).start().await;
    let mut stage = Stage { daemon, api, agent, before };
    test(&mut stage).await;
    stage.clear().await;
}

impl Stage {
    /// A session in the workspace, whose agent is ready.
    pub async fn session(&self) -> String {
        let session = self.daemon.create_session(self.agent.name).await;
        self.daemon.events(&session, None).await.until("process.ready").await;
        session
    }

    /// A prompt whose turn is to be completed, and what the agent said to it.
    pub async fn say(&self, session: &str, text: &str) -> String {
        let turn = self.daemon.prompt_and_wait(session, text).await;
        assert_eq!(turn["status"], "completed", "{turn}");
        let messages = self.daemon.messages(session).await;
        let said = messages.iter().rfind(|message| message["role"] == "agent" && message["content"]["type"] == "text");
        said.expect("the agent said something")["content"]["text"].as_str().expect("it is text").to_owned()
    }

    /// A prompt that is accepted: its turn, and the sequence to follow events from.
    pub async fn begin(&self, session: &str, text: &str) -> (String, Option<i64>) {
        let accepted = self.daemon.prompt(session, text).await;
        (accepted["turnId"].as_str().expect("a turn has an id").to_owned(), accepted["after"].as_i64())
    }

    /// The agent's process.
    pub async fn pid(&self, session: &str) -> u32 {
        pid_of(&self.daemon.session(session).await)
    }

    /// The output of a command, as JSON.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        self.daemon.cli(&[arguments, &["--json"]].concat()).await.json()
    }

    /// The end of every test.
    async fn clear(&mut self) {
        assert!(self.daemon.terminate().await.success());
        let left = processes_of(self.daemon.root());
        assert!(left.is_empty(), "processes are left: {left:?}");
        let after = contents(self.daemon.home());
        let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&self.before), "the user's home has other files");
        assert!(after == self.before, "a file in the user's home was changed");
    }
}
