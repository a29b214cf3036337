//! The nasty agent, for every test of what is left of one.
//!
//! It is five processes: itself, a plain child, one in its own process group, one that forked twice and has its own
//! session, and the same with an empty environment. All of them ignore TERM, HUP and INT, and the agent ignores the end
//! of its stdin and broken pipes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Daemon, Event, parent_of, process_alive, process_gone, process_stopped};

/// The profile that the trees are grown from.
pub const NASTY: &str = "nasty";
const PROCESSES: usize = 5;
/// Short graces, because this agent uses all of them up.
pub const IMPATIENT: &str = "[limits]\nprocesses = 32\n[processes]\ncancel_grace = \"100ms\"\neof_grace = \"100ms\"\n\
    term_grace = \"100ms\"\n";

/// It answers its first prompt with the ids of its processes, and its second one with a crash, when the test says so.
pub fn nasty() -> Value {
    json!([
        {"handshake": {}}, {"ignoreSignals": ["TERM", "HUP", "INT"]}, {"ignoreEof": true},
        {"fork": {}}, {"fork": {"ownGroup": true}}, {"fork": {"setsid": true, "orphan": true}},
        {"fork": {"setsid": true, "orphan": true, "clearEnv": true}},
        {"prompt": [{"textFromPid": true}, {"text": " "}, {"textFromChildren": true}]},
        {"expect": "session/prompt"}, {"gate": "crash"}, {"exit": 1}
    ])
}

/// One session's agent, with all its processes.
pub struct Tree {
    pub session: String,
    /// The agent itself first.
    pub processes: Vec<u32>,
}

impl Tree {
    /// Makes a session, and has its agent tell its processes. Nothing starts before the prompt, so nothing is missed.
    pub async fn grow(daemon: &Daemon) -> Self {
        let session = daemon.create_lazy_session(NASTY).await;
        let tree = Self::grow_in(daemon, session).await;
        assert_eq!(tree.processes.len(), PROCESSES, "{:?}", tree.processes);
        tree
    }

    /// Has the agent of a session that has not been prompted yet tell its processes.
    pub async fn grow_in(daemon: &Daemon, session: String) -> Self {
        let turn = daemon.prompt_and_wait(&session, "who is there?").await;
        assert_eq!(turn["status"], "completed", "{turn}");
        let messages = daemon.messages(&session).await;
        let text = messages[1]["content"]["text"].as_str().expect("the agent tells its processes");
        let processes = text.split(' ').map(|id| id.parse().expect("the agent tells numbers")).collect();
        Self { session, processes }
    }

    pub async fn grow_many(daemon: &Daemon, count: usize) -> Vec<Self> {
        futures_util::future::join_all((0..count).map(|_| Self::grow(daemon))).await
    }

    pub fn root(&self) -> u32 {
        self.processes[0]
    }

    /// The process that looks after the agent.
    pub fn shim(&self, daemon: &Daemon) -> u32 {
        let parent = parent_of(self.root()).expect("the agent runs");
        assert!(parent != daemon.pid() && parent > 1, "the agent is the child of a shim of its own, not of {parent}");
        parent
    }

    pub async fn exited(&self, daemon: &Daemon) -> Event {
        daemon.events(&self.session, None).await.until("process.exited").await.pop().expect("the awaited event is told")
    }

    pub fn is_whole(&self) -> bool {
        self.processes.iter().all(|process| process_alive(*process))
    }

    pub fn is_gone(&self) -> bool {
        !self.processes.iter().any(|process| process_alive(*process))
    }

    pub async fn gone(&self) {
        for process in &self.processes {
            process_gone(*process).await;
        }
        assert!(self.is_gone());
    }

    pub async fn archive(&self, daemon: &Daemon) {
        daemon.post(&format!("/v1/sessions/{}/archive", self.session), json!({})).await.expect_status(200);
        assert!(self.is_gone(), "200 comes after the end of all");
    }
}

impl Drop for Tree {
    /// A test that failed leaves none either: they would be there for ever.
    fn drop(&mut self) {
        for process in self.processes.iter().filter(|process| process_alive(**process)) {
            let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains("test-agent") {
                signal(*process, Signal::SIGKILL);
            }
        }
    }
}

/// Kills the daemon and the shims of these trees, so that no shim gets to do its work: what an out-of-memory killer or a
/// person with `kill -9` can do. A shim that is stopped first does not notice that the daemon is gone.
pub async fn kill_with_shims(daemon: &mut Daemon, trees: &[Tree]) {
    let shims = Stopped(trees.iter().map(|tree| tree.shim(daemon)).collect());
    for shim in &shims.0 {
        signal(*shim, Signal::SIGSTOP);
        process_stopped(*shim).await;
    }
    daemon.kill().await;
    let killed = shims.0.clone();
    drop(shims);
    for shim in killed {
        process_gone(shim).await;
    }
    assert!(trees.iter().all(Tree::is_whole), "nobody is there to end the agents");
}

/// Shims that are stopped. They would be there for ever, so they are killed when it is dropped, also by a panic.
struct Stopped(Vec<u32>);

impl Drop for Stopped {
    fn drop(&mut self) {
        for shim in &self.0 {
            signal(*shim, Signal::SIGKILL);
        }
    }
}

pub fn signal(process: u32, signal: Signal) {
    // One that has just ended by itself is what is wanted.
    let _ = kill(Pid::from_raw(process.cast_signed()), signal);
}
