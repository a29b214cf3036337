//! The life of one session with each agent, at both levels of confinement.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::agents::{self, Agent};
use super::model::CODEWORD;
use super::stage::{Level, Stage, play};
use crate::harness::{process_gone, processes_of, signal};
use crate::stand_in::Held;

const GREETING: &str = "@@SAY Hello from the stand-in.@@";
const TOLD: &str = "@@SAY The codeword ZEBRA42 is noted.@@";
const RECALL: &str = "@@RECALL@@";
const HOLD: &str = "@@HOLD@@";

/// The prompt must wait for an answer. Without an approval the file is not there.
async fn waits(stage: &Stage, session: &str, prompt: &str, file: &Path) -> String {
    let (turn, after) = stage.begin(session, prompt).await;
    let mut events = stage.daemon.events(session, after).await;
    let is_end = |kind: &str| ["permission.requested", "turn.completed", "turn.failed"].contains(&kind);
    let seen = events.until_event("a permission request", |event| is_end(&event.kind)).await;
    let kinds: Vec<&str> = seen.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds.last(), Some(&"permission.requested"), "{prompt} was not asked for: {kinds:?}");
    assert!(!file.exists(), "{prompt} did not wait for the approval");
    turn
}

async fn approve(stage: &Stage, session: &str, prompt: &str, file: &str) {
    let file = stage.daemon.workspace().join(file);
    let turn = waits(stage, session, prompt, &file).await;
    stage.daemon.cli(&["approve"]).await.success();
    let turn = stage.daemon.wait_turn(session, &turn).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = stage.daemon.messages(session).await;
    let result = messages.iter().rfind(|message| message["role"] == "tool_result");
    assert!(file.exists(), "{prompt}: the file is not there; {result:?}");
}

/// A turn that has said something and does not end by itself.
async fn hold(stage: &Stage, session: &str) -> (String, Held) {
    let (turn, after) = stage.begin(session, HOLD).await;
    let held = stage.api.held("HOLD").await;
    stage.daemon.events(session, after).await.until("message.delta").await;
    (turn, held)
}

/// The id that is marked as current in a list of modes or models.
fn current(list: &Value) -> &str {
    let entries = list.as_array().expect("a list");
    entries.iter().find(|entry| entry["current"] == true).unwrap_or_else(|| panic!("none is current in {list:#}"))["id"]
        .as_str()
        .expect("it has an id")
}

async fn works_and_is_chosen(agent: &'static Agent, level: Level) {
    let test = play(agent, level, async |stage| {
        let checked = stage.json(&["agents", "check", agent.name]).await;
        assert!(checked[0]["ok"] == true && checked[0]["signedIn"] != false, "{checked:#}");
        let session = stage.session().await;
        assert_eq!(stage.say(&session, GREETING).await, "Hello from the stand-in.");

        let modes = stage.json(&["mode", &session]).await;
        assert_eq!(current(&modes), agent.mode_at_first, "{modes:#}");
        assert_eq!(stage.daemon.session(&session).await["asks"], "always");
        stage.daemon.cli(&["mode", &session, agent.other_mode]).await.success();
        assert_eq!(current(&stage.json(&["mode", &session]).await), agent.other_mode);

        let (model, name) = agent.other_model;
        let models = stage.json(&["model", &session]).await;
        assert_ne!(current(&models), model, "{models:#}");
        stage.daemon.cli(&["model", &session, model]).await.success();
        assert_eq!(current(&stage.json(&["model", &session]).await), model);
        stage.say(&session, "@@SAY Chosen.@@").await;
        let asked = stage.api.all().into_iter().filter(|asked| asked.prompt == "SAY Chosen.");
        let models: Vec<String> = asked.map(|asked| asked.model.clone()).collect();
        assert!(models.iter().any(|model| model.contains(name)), "{models:?}");
        assert!(stage.api.all().iter().all(|asked| asked.key.as_deref() == Some(agents::KEY)));
    });
    test.await;
}

async fn waits_for_approval(agent: &'static Agent, level: Level) {
    let test = play(agent, level, async |stage| {
        let session = stage.session().await;
        let file = stage.daemon.workspace().join("rejected");
        let turn = waits(stage, &session, "@@SHELL touch rejected@@", &file).await;
        stage.daemon.cli(&["reject"]).await.success();
        stage.daemon.wait_turn(&session, &turn).await;
        assert!(!file.exists(), "it was rejected");
        approve(stage, &session, "@@SHELL touch made@@", "made").await;
        let path = stage.daemon.workspace().join("written");
        approve(stage, &session, &format!("@@WRITE {} a text@@", path.display()), "written").await;
        assert_eq!(std::fs::read_to_string(path).unwrap().trim_end(), "a text");
        let messages = stage.daemon.messages(&session).await;
        let notices: Vec<&Value> = messages.iter().filter(|message| message["content"]["type"] == "notice").collect();
        assert!(notices.iter().all(|notice| notice["content"]["code"] != "sandbox"), "{notices:#?}");
    });
    test.await;
}

async fn outlives_kills_and_restarts(agent: &'static Agent, level: Level) {
    let test = play(agent, level, async |stage| {
        let session = stage.session().await;
        stage.say(&session, TOLD).await;

        let (turn, held) = hold(stage, &session).await;
        stage.daemon.cli(&["cancel", &session]).await.success();
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "cancelled");
        held.hung_up().await;
        assert_eq!(stage.say(&session, RECALL).await, CODEWORD);

        let (turn, held) = hold(stage, &session).await;
        signal(stage.pid(&session).await, Signal::SIGKILL);
        let turn = stage.daemon.wait_turn(&session, &turn).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_exited")), "{turn}");
        held.hung_up().await;
        assert_eq!(stage.say(&session, RECALL).await, CODEWORD);

        let (turn, held) = hold(stage, &session).await;
        let pid = stage.pid(&session).await;
        stage.daemon.kill().await;
        process_gone(pid).await;
        held.hung_up().await;
        stage.daemon.restart().await;
        assert_eq!(stage.daemon.wait_turn(&session, &turn).await["status"], "interrupted");
        assert_eq!(stage.say(&session, RECALL).await, CODEWORD);

        stage.daemon.restart().await;
        assert_eq!(stage.daemon.session(&session).await["status"], "suspended");
        stage.daemon.cli(&["resume", &session]).await.success();
        assert_eq!(stage.say(&session, RECALL).await, CODEWORD);

        let pid = stage.pid(&session).await;
        stage.daemon.cli(&["archive", &session]).await.success();
        process_gone(pid).await;
        assert_eq!(stage.daemon.session(&session).await["status"], "archived");
    });
    test.await;
}

/// The kernel kills it, for one, when memory runs out.
async fn outlives_its_child(level: Level) {
    let test = play(&agents::CLAUDE, level, async |stage| {
        let session = stage.session().await;
        stage.say(&session, TOLD).await;
        let processes = processes_of(stage.daemon.root());
        let is_child = |command: &str| command.contains("/claude-agent-sdk-linux-");
        let (pid, _) = processes.iter().find(|(_, command)| is_child(command)).expect("Claude Code runs");
        signal(*pid, Signal::SIGKILL);
        process_gone(*pid).await;
        assert_eq!(stage.say(&session, RECALL).await, CODEWORD);
    });
    test.await;
}

macro_rules! tests {
    ($($name:ident: $agent:ident, $level:ident;)*) => {$(
        mod $name {
            use super::{Level, agents};

            #[tokio::test]
            async fn works_and_is_chosen() {
                super::works_and_is_chosen(&agents::$agent, Level::$level).await;
            }

            #[tokio::test]
            async fn waits_for_approval() {
                super::waits_for_approval(&agents::$agent, Level::$level).await;
            }

            #[tokio::test]
            async fn outlives_kills_and_restarts() {
                super::outlives_kills_and_restarts(&agents::$agent, Level::$level).await;
            }
        }
    )*};
}

tests! {
    claude_isolated: CLAUDE, Isolated;
    claude_writes_only: CLAUDE, WritesOnly;
    codex_isolated: CODEX, Isolated;
    codex_writes_only: CODEX, WritesOnly;
    opencode_isolated: OPENCODE, Isolated;
    opencode_writes_only: OPENCODE, WritesOnly;
    qwen_isolated: QWEN, Isolated;
    qwen_writes_only: QWEN, WritesOnly;
}

#[tokio::test]
async fn claude_outlives_its_child() {
    for level in [Level::Isolated, Level::WritesOnly] {
        outlives_its_child(level).await;
    }
}
