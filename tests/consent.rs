//! What acpd does for an agent after a person was asked: the same inbox, and nobody is asked twice for the same thing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{Daemon, EventStream, pid_of, process_gone, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const TERMINALS: &str = "terminal_commands = [\"*\"]";

fn request(method: &str, mut params: Value) -> Value {
    params["sessionId"] = "test-session".into();
    json!({"request": {"method": method, "params": params}})
}

fn write(path: &Path, content: &str) -> Value {
    request("fs/write_text_file", json!({"path": path, "content": content}))
}

/// The agent shows what it is about to write, and asks whether it may.
fn ask_to_write(path: &Path, content: &str) -> Value {
    let call = json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "status": "pending",
        "content": [{"type": "diff", "path": path, "oldText": null, "newText": content}]});
    permission(&call)
}

fn permission(call: &Value) -> Value {
    request(
        "session/request_permission",
        json!({"toolCall": call, "options": [
            {"optionId": "once", "name": "Once", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"}]}),
    )
}

fn run(command: &str, args: &[&str]) -> Value {
    request("terminal/create", json!({"command": command, "args": args}))
}

/// An agent that does these steps in its turn, and tells what it was answered, each on a line of its own.
fn script(steps: Vec<Value>) -> Value {
    let told = |step: Value| match step.get("request") {
        Some(_) => vec![step, json!({"textFromAnswer": true}), json!({"text": "\n"})],
        None => vec![step],
    };
    json!([{"handshake": {}}, {"prompt": steps.into_iter().flat_map(told).collect::<Vec<_>>()}])
}

/// A turn of which the questions come one by one.
struct Turn<'a> {
    daemon: &'a Daemon,
    session: String,
    id: String,
    events: EventStream,
}

impl<'a> Turn<'a> {
    async fn begin(daemon: &'a Daemon, agent: &str) -> Self {
        let session = daemon.create_session(agent).await;
        let accepted = daemon.prompt(&session, "go").await;
        let events = daemon.events(&session, accepted["after"].as_i64()).await;
        Self { daemon, session, id: accepted["turnId"].as_str().unwrap().to_owned(), events }
    }

    /// The next question that is open.
    async fn asked(&mut self) -> Value {
        let asked = self.events.until("permission.requested").await;
        let id = asked.last().unwrap().payload()["permissionId"].as_str().unwrap().to_owned();
        self.daemon.get(&format!("/v1/permissions/{id}")).await.expect_status(200)
    }

    async fn answer(&self, asked: &Value, body: Value) -> Value {
        let id = asked["id"].as_str().unwrap();
        self.daemon.post(&format!("/v1/permissions/{id}"), body).await.expect_status(200)
    }

    /// What the agent was answered, when the turn is over.
    async fn end(self) -> Vec<Value> {
        let turn = self.daemon.wait_turn(&self.session, &self.id).await;
        assert_eq!(turn["status"], "completed", "{turn}");
        let messages = self.daemon.messages(&self.session).await;
        let said = messages.iter().filter(|message| message["role"] == "agent");
        let text: String = said.map(|message| message["content"]["text"].as_str().unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn a_write_is_asked_done_when_allowed_and_not_done_when_rejected() {
    let builder = Daemon::builder();
    let (good, bad) = (builder.workspace().join("good"), builder.workspace().join("bad"));
    let steps = vec![write(&good, "text"), write(&bad, "text"), write(&good, "again")];
    let daemon = builder.agent("writing", script(steps)).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;

    let asked = turn.asked().await;
    assert_eq!((&asked["kind"], &asked["title"]), (&json!("file"), &json!("Write good")));
    assert_eq!(asked["request"]["toolCall"]["content"][0]["newText"], "text", "the change is shown");
    assert!(!good.exists(), "nothing is done before somebody says so");
    turn.answer(&asked, json!({"decision": "allow", "always": true})).await;

    let asked = turn.asked().await;
    assert_eq!(asked["title"], "Write bad");
    turn.answer(&asked, json!({"decision": "reject"})).await;

    let (daemon, session) = (turn.daemon, turn.session.clone());
    let answers = turn.end().await;
    assert_eq!((&answers[0], &answers[2]), (&json!({}), &json!({})), "always is for the second time too");
    assert!(answers[1]["message"].as_str().unwrap().contains("not allowed (user "), "{}", answers[1]);
    assert_eq!((fs::read_to_string(&good).unwrap(), bad.exists()), ("again".to_owned(), false));
    let rules = daemon.get(&format!("/v1/sessions/{session}/rules")).await.expect_status(200);
    assert_eq!(rules["rules"].as_array().unwrap().len(), 1, "{rules}");
}

#[tokio::test]
async fn what_was_shown_and_allowed_is_not_asked_again_and_anything_else_is() {
    let builder = Daemon::builder();
    let (shown, other) = (builder.workspace().join("shown"), builder.workspace().join("other"));
    let done = json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}});
    let steps = vec![
        ask_to_write(&shown, "text"),
        write(&shown, "text"),
        write(&shown, "another text"),
        write(&other, "text"),
        done,
        write(&shown, "text"),
    ];
    let daemon = builder.agent("writing", script(steps)).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    assert_eq!(asked["kind"], "tool");
    turn.answer(&asked, json!({"decision": "allow"})).await;

    let granted = turn.asked().await;
    assert_eq!((&granted["kind"], &granted["status"]), (&json!("file"), &json!("answered")));
    let rule = granted["resolution"]["by"]["rule"].as_str().unwrap().to_owned();
    assert_eq!(rule, format!("permission {}", asked["id"].as_str().unwrap()));

    for what in ["another text", "another file", "the call is over"] {
        let asked = turn.asked().await;
        assert_eq!(asked["status"], "open", "{what}");
        turn.answer(&asked, json!({"decision": "reject"})).await;
    }
    let answers = turn.end().await;
    assert_eq!(answers[1], json!({}));
    assert_eq!((fs::read_to_string(&shown).unwrap(), other.exists()), ("text".to_owned(), false));
}

#[tokio::test]
async fn a_command_is_asked_and_one_that_was_allowed_as_a_line_is_not_asked_again() {
    let call = json!({"toolCallId": "c1", "title": "Run", "kind": "execute", "status": "pending",
        "rawInput": {"command": "echo hello"}});
    let steps = vec![permission(&call), run("echo", &["hello"]), run("echo", &["hello", "again"])];
    let daemon = Daemon::builder().agent_with("running", script(steps), TERMINALS).start().await;
    let mut turn = Turn::begin(&daemon, "running").await;
    let asked = turn.asked().await;
    turn.answer(&asked, json!({"decision": "allow"})).await;
    assert_eq!(turn.asked().await["status"], "answered", "it was allowed as a line");
    let asked = turn.asked().await;
    assert_eq!((&asked["kind"], &asked["status"]), (&json!("terminal"), &json!("open")));
    assert_eq!(asked["title"], "Run echo hello again");
    turn.answer(&asked, json!({"optionId": "allow"})).await;
    let answers = turn.end().await;
    assert!(answers[1]["terminalId"].is_string() && answers[2]["terminalId"].is_string(), "{answers:?}");
}

#[tokio::test]
async fn a_command_that_was_allowed_is_another_in_another_directory_and_with_other_variables() {
    let builder = Daemon::builder();
    let workspace = builder.workspace().to_owned();
    for directory in ["good", "evil"] {
        fs::create_dir(workspace.join(directory)).unwrap();
        fs::write(workspace.join(directory).join("run.sh"), "#!/bin/sh\ntrue\n").unwrap();
        fs::set_permissions(workspace.join(directory).join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let at = |directory: &str, env: Value| {
        request("terminal/create", json!({"command": "./run.sh", "cwd": workspace.join(directory), "env": env}))
    };
    let ci = json!([{"name": "CI", "value": "1"}]);
    let call = json!({"toolCallId": "c1", "title": "Run", "kind": "execute", "status": "pending",
        "rawInput": {"command": "./run.sh", "cwd": workspace.join("evil")}});
    let steps = vec![
        at("good", ci.clone()),
        at("good", ci.clone()),
        at("evil", ci),
        at("good", json!([])),
        permission(&call),
        at("evil", json!([])),
        at("good", json!([])),
    ];
    let daemon = builder.agent_with("running", script(steps), TERMINALS).start().await;
    let mut turn = Turn::begin(&daemon, "running").await;
    let asked = turn.asked().await;
    assert_eq!((&asked["action"]["cwd"], &asked["action"]["env"]), (&json!("good"), &json!({"CI": "1"})));
    assert_eq!(asked["request"]["toolCall"]["rawInput"]["env"], json!({"CI": "1"}));
    turn.answer(&asked, json!({"decision": "allow", "always": true})).await;
    assert_eq!(turn.asked().await["status"], "answered", "the same again");
    for (what, decision) in [("another directory", "reject"), ("no variable", "reject"), ("the agent's own", "allow")] {
        let asked = turn.asked().await;
        assert_eq!(asked["status"], "open", "{what}");
        turn.answer(&asked, json!({"decision": decision})).await;
    }
    assert_eq!(turn.asked().await["status"], "answered", "it was allowed there");
    let asked = turn.asked().await;
    assert_eq!(asked["status"], "open", "and not here");
    turn.answer(&asked, json!({"decision": "reject"})).await;
    let session = turn.session.clone();
    turn.end().await;
    let rules = daemon.get(&format!("/v1/sessions/{session}/rules")).await.expect_status(200);
    assert_eq!(rules["rules"][0]["cwd"], "good");
}

#[tokio::test]
async fn a_write_that_is_asked_ends_with_the_turn_or_with_the_agent_and_is_not_done() {
    let builder = Daemon::builder();
    let path = builder.workspace().join("file");
    let daemon = builder.agent("writing", script(vec![write(&path, "text")])).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    daemon.post(&format!("/v1/sessions/{}/cancel", turn.session), json!({})).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&turn.session, &turn.id).await["status"], "cancelled");
    let place = format!("/v1/permissions/{}", asked["id"].as_str().unwrap());
    let late = daemon.post(&place, json!({"decision": "allow"})).await;
    assert_eq!(late.expect_status(409)["error"], "permission_answered");

    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    let pid = pid_of(&daemon.session(&turn.session).await);
    signal(pid, Signal::SIGKILL);
    process_gone(pid).await;
    assert_eq!(daemon.wait_turn(&turn.session, &turn.id).await["status"], "failed");
    let shown = daemon.get(&format!("/v1/permissions/{}", asked["id"].as_str().unwrap())).await.expect_status(200);
    assert_eq!(shown["status"], "cancelled");
    assert!(!path.exists());
}
