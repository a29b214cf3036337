//! What acpd does for an agent after a person was asked: the same inbox, and nobody is asked twice for the same thing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
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
    assert!(answers[1]["message"].as_str().unwrap().contains("permission was denied (uid "), "{}", answers[1]);
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

/// An agent that asks to edit a file, and shows this of it.
fn ask_to_edit(located: &Path, content: &Value) -> Value {
    permission(&json!({"toolCallId": "c1", "title": "Edit", "kind": "edit", "status": "pending",
        "locations": [{"path": located}], "content": content}))
}

#[tokio::test]
async fn a_file_that_was_shown_is_that_file_under_whatever_name() {
    let builder = Daemon::builder();
    let (file, link) = (builder.workspace().join("a.txt"), builder.workspace().join("link.txt"));
    fs::write(&file, "old").unwrap();
    symlink("a.txt", &link).unwrap();
    let diff = json!([{"type": "diff", "path": link, "oldText": "old", "newText": "harmless"}]);
    let steps = vec![ask_to_edit(&file, &diff), write(&file, "evil"), write(&link, "harmless")];
    let daemon = builder.agent("writing", script(steps)).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    turn.answer(&asked, json!({"decision": "allow"})).await;

    let asked = turn.asked().await;
    assert_eq!(asked["status"], "open", "another text was shown, under another name");
    turn.answer(&asked, json!({"decision": "reject"})).await;
    assert_eq!(turn.asked().await["status"], "answered", "the text that was shown is not asked again");
    turn.end().await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "harmless");
}

#[tokio::test]
async fn what_was_allowed_is_done_once() {
    let builder = Daemon::builder();
    let file = builder.workspace().join("a.txt");
    let steps = vec![ask_to_edit(&file, &json!([])), write(&file, "1"), write(&file, "2")];
    let daemon = builder.agent("writing", script(steps)).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    turn.answer(&asked, json!({"decision": "allow"})).await;
    assert_eq!(turn.asked().await["status"], "answered");
    let asked = turn.asked().await;
    assert_eq!(asked["status"], "open");
    turn.answer(&asked, json!({"decision": "reject"})).await;
    turn.end().await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
}

async fn narrow(daemon: &Daemon, session: &str, mode: &str) {
    let change = json!({"permissions": {"mode": mode}});
    daemon.patch(&format!("/v1/sessions/{session}"), change).await.expect_status(200);
}

#[tokio::test]
async fn a_policy_that_is_narrowed_ends_what_the_wider_one_allowed() {
    for (settings, is_answered) in [("permissions = \"edit\"", false), ("permissions = \"ask\"", true)] {
        let builder = Daemon::builder();
        let file = builder.workspace().join("a.txt");
        let steps = vec![ask_to_edit(&file, &json!([])), json!({"gate": "granted"}), write(&file, "text")];
        let daemon = builder.agent_with("writing", script(steps), settings).start().await;
        let mut turn = Turn::begin(&daemon, "writing").await;
        let asked = turn.asked().await;
        if is_answered {
            turn.answer(&asked, json!({"decision": "allow"})).await;
        }
        let passage = daemon.gate("writing").reached("granted").await;
        narrow(&daemon, &turn.session, "ask").await;
        passage.open().await;
        let asked = turn.asked().await;
        assert_eq!(asked["status"], "open", "{settings}");
        turn.answer(&asked, json!({"decision": "reject"})).await;
        turn.end().await;
        assert!(!file.exists());
    }
}

#[tokio::test]
async fn a_question_that_is_open_when_its_deed_is_denied_is_rejected() {
    let builder = Daemon::builder();
    let file = builder.workspace().join("a.txt");
    let daemon = builder.agent("writing", script(vec![write(&file, "text")])).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    narrow(&daemon, &turn.session, "deny").await;
    let place = format!("/v1/permissions/{}", asked["id"].as_str().unwrap());
    let late = daemon.post(&place, json!({"decision": "allow", "always": true})).await;
    assert_eq!(late.expect_status(409)["error"], "permission_answered");
    let rejected = daemon.get(&place).await.expect_status(200);
    assert_eq!(rejected["resolution"]["by"], json!({"type": "policy", "rule": "session mode deny"}));
    let answers = turn.end().await;
    assert!(
        answers[0]["message"].as_str().unwrap().contains("permission was denied (policy session mode deny)"),
        "{answers:?}"
    );
    assert!(!file.exists());
}

#[tokio::test]
async fn what_was_changed_while_the_question_waited_is_not_overwritten() {
    let builder = Daemon::builder();
    let file = builder.workspace().join("a.txt");
    fs::write(&file, "old").unwrap();
    let daemon = builder.agent("writing", script(vec![write(&file, "new")])).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    fs::write(&file, "an hour of somebody's work").unwrap();
    turn.answer(&asked, json!({"decision": "allow"})).await;
    let answers = turn.end().await;
    assert!(answers[0]["message"].as_str().unwrap().ends_with("the file changed during the check; try again"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "an hour of somebody's work");
}

#[tokio::test]
async fn of_a_large_write_the_beginning_is_shown() {
    let builder = Daemon::builder();
    let file = builder.workspace().join("f");
    fs::write(&file, "old\n".repeat(1 << 20)).unwrap();
    let large = "new\n".repeat(1 << 19);
    let daemon = builder.agent("writing", script(vec![write(&file, &large)])).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let asked = turn.asked().await;
    let diff = &asked["request"]["toolCall"]["content"][0];
    let (old, new) = (diff["oldText"].as_str().unwrap(), diff["newText"].as_str().unwrap());
    assert!(new.starts_with("new\nnew\n"), "{new:.100}");
    assert!(new.ends_with("(shortened: the whole text has 2097152 bytes)"), "{}", new.len());
    assert!(old.contains("too large to show"), "{old}");
    turn.answer(&asked, json!({"decision": "allow"})).await;
    turn.end().await;
    assert_eq!(fs::read_to_string(&file).unwrap(), large, "and all of it is written");
}

#[tokio::test]
async fn what_waits_for_consent_has_a_bound_in_bytes() {
    let builder = Daemon::builder();
    let workspace = builder.workspace().to_owned();
    let large = "x".repeat(9 << 20);
    let ask = |name: &str| json!({"ask": write(&workspace.join(name), &large)["request"]});
    let steps = [["a", "b", "c", "d"].map(ask).to_vec(), vec![json!({"gate": "asked"})]].concat();
    let daemon = builder.agent("writing", script(steps)).start().await;
    let mut turn = Turn::begin(&daemon, "writing").await;
    let passage = daemon.gate("writing").reached("asked").await;
    let (mut open, mut rejected) = (0, Vec::new());
    for _ in 0..4 {
        let asked = turn.asked().await;
        match asked["status"].as_str() {
            Some("open") => open += 1,
            _ => rejected.push(asked["resolution"]["by"]["rule"].as_str().unwrap().to_owned()),
        }
    }
    assert_eq!((open, rejected.len()), (3, 1));
    assert!(rejected[0].starts_with("limit: the open permission requests already hold 28311552 bytes"), "{rejected:?}");
    passage.open().await;
}

#[tokio::test]
async fn a_read_is_asked_where_a_rule_says_so() {
    let builder = Daemon::builder();
    fs::create_dir(builder.workspace().join("secrets")).unwrap();
    let (key, other) = (builder.workspace().join("secrets/key"), builder.workspace().join("other"));
    fs::write(&key, "the key").unwrap();
    fs::write(&other, "other").unwrap();
    let read = |path: &Path| request("fs/read_text_file", json!({"path": path}));
    let rules = r#"permissions = { mode = "allow", rules = [{ decision = "ask", paths = ["secrets/**"] }] }"#;
    let steps = vec![read(&other), read(&key), read(&key)];
    let daemon = builder.agent_with("reading", script(steps), rules).start().await;
    let mut turn = Turn::begin(&daemon, "reading").await;
    let asked = turn.asked().await;
    assert_eq!((&asked["kind"], &asked["title"]), (&json!("file"), &json!("Read secrets/key")));
    turn.answer(&asked, json!({"decision": "reject"})).await;
    let asked = turn.asked().await;
    turn.answer(&asked, json!({"decision": "allow"})).await;
    let answers = turn.end().await;
    assert_eq!(answers[0], json!({"content": "other"}), "no rule asks");
    assert!(answers[1]["message"].as_str().unwrap().contains("permission was denied (uid "), "{answers:?}");
    assert_eq!(answers[2], json!({"content": "the key"}));
}

#[tokio::test]
async fn what_is_asked_at_the_end_of_a_turn_keeps_no_process() {
    let builder = Daemon::builder().config("[sessions]\nidle_timeout = \"200ms\"");
    let file = builder.workspace().join("a.txt");
    let ask = |step: &Value| json!({"ask": step["request"]});
    let steps = vec![ask(&write(&file, "text")), ask(&run("touch", &["b.txt"]))];
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": steps}]}]);
    let daemon = builder.agent_with("hasty", script, TERMINALS).start().await;
    let mut turn = Turn::begin(&daemon, "hasty").await;
    let exited = turn.events.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["reason"], "idle");
    assert_eq!(daemon.get("/v1/permissions").await.expect_status(200)["total"], 0);
    assert!(!file.exists());
}
