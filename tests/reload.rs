//! SIGHUP: what changes at once, what needs a restart, and what a mistake in the file does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, echo, pid_of, process_alive, process_gone, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn gated() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "busy"}]}]}])
}

/// What the daemon says about its configuration.
async fn config(daemon: &Daemon) -> Value {
    daemon.get("/v1/info").await.expect_status(200)["config"].clone()
}

/// Sends SIGHUP, and returns what the daemon says when it says something new.
async fn reload(daemon: &Daemon) -> Value {
    let before = config(daemon).await;
    daemon.signal(Signal::SIGHUP);
    within("an outcome of the reload", async {
        loop {
            let now = config(daemon).await;
            if now != before {
                return now;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn text(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.config_file()).unwrap()
}

fn write(daemon: &Daemon, text: &str) {
    std::fs::write(daemon.config_file(), text).unwrap();
}

/// Replaces a piece of the file and reloads it.
async fn reload_with(daemon: &Daemon, old: &str, new: &str) -> Value {
    let text = text(daemon);
    assert!(text.contains(old), "{old:?} in {text}");
    write(daemon, &text.replace(old, new));
    let outcome = reload(daemon).await;
    assert_eq!(outcome["error"], Value::Null, "{outcome}");
    outcome
}

#[tokio::test]
async fn a_new_agent_is_there_and_one_that_is_gone_still_serves_its_sessions() {
    let daemon = Daemon::builder().config("[sessions]\nagent = \"echo\"").agent("echo", echo()).start().await;
    let old = daemon.create_session("echo").await;
    let request = |agent: &str| json!({"workspace": daemon.workspace(), "agent": agent});
    assert_eq!(daemon.post("/v1/sessions", request("later")).await.expect_status(404)["error"], "agent_not_found");

    let changed = text(&daemon).replace("agent = \"echo\"", "agent = \"later\"");
    write(&daemon, &changed.replace("[agents.echo]", "[agents.later]"));
    let outcome = reload(&daemon).await;
    assert_eq!((&outcome["error"], &outcome["needsRestart"]), (&Value::Null, &json!([])));
    let created = daemon.post("/v1/sessions", json!({"workspace": daemon.workspace()})).await.expect_status(201);
    assert_eq!(created["agent"], "later");
    let turn = daemon.prompt_and_wait(created["id"].as_str().unwrap(), "hello").await;
    assert_eq!(turn["status"], "completed");
    assert_eq!(daemon.get("/v1/agents/later").await.expect_status(200)["default"], true);

    daemon.post("/v1/sessions", request("echo")).await.expect_status(404);
    assert_eq!(daemon.prompt_and_wait(&old, "still there?").await["status"], "completed");
}

#[tokio::test]
async fn new_roots_hold_from_then_on() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().canonicalize().unwrap();
    let register = async |path: &std::path::Path| daemon.post("/v1/workspaces", json!({"path": path})).await;
    register(&elsewhere).await.expect_status(403);
    let session = daemon.create_lazy_session("echo").await;
    let (old, new) = (json!(daemon.root()).to_string(), json!(elsewhere).to_string());
    reload_with(&daemon, &format!("roots = [{old}]"), &format!("roots = [{new}]")).await;
    register(&elsewhere).await.expect_status(201);
    register(daemon.workspace()).await.expect_status(403);

    // Roots that were narrowed by mistake cost nobody a session.
    let prompt = format!("/v1/sessions/{session}/prompt");
    let refused = daemon.post(&prompt, json!({"text": "one"})).await.expect_status(403);
    assert_eq!(refused["error"], "outside_roots");
    assert_eq!(daemon.session(&session).await["status"], "active");
    reload_with(&daemon, &format!("roots = [{new}]"), &format!("roots = [{old}]")).await;
    assert_eq!(daemon.prompt_and_wait(&session, "two").await["status"], "completed");
}

#[tokio::test]
async fn more_processes_let_in_who_was_refused() {
    let daemon = Daemon::builder().config("[limits]\nprocesses = 1").agent("gated", gated()).start().await;
    let first = daemon.create_session("gated").await;
    daemon.prompt(&first, "one").await;
    let _busy = daemon.gate("gated").reached("busy").await;
    let request = json!({"workspace": daemon.workspace(), "agent": "gated"});
    let refused = daemon.post("/v1/sessions", request).await.expect_status(429);
    assert_eq!(refused["error"], "process_limit");

    reload_with(&daemon, "processes = 1", "processes = 2").await;
    let second = daemon.create_session("gated").await;
    let turn = daemon.prompt(&second, "two").await;
    daemon.gate("gated").reached("busy").await.open().await;
    assert_eq!(daemon.wait_turn(&second, turn["turnId"].as_str().unwrap()).await["status"], "completed");
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"], json!({"running": 2, "max": 2}));
}

#[tokio::test]
async fn more_processes_serve_work_that_waits_in_line() {
    let mut daemon = Daemon::builder().config("[limits]\nprocesses = 2").agent("gated", gated()).start().await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let session = daemon.create_session("gated").await;
        daemon.prompt(&session, "running").await;
        busy.push(daemon.gate("gated").reached("busy").await);
        daemon.prompt(&session, "queued").await;
    }
    daemon.kill().await;
    drop(busy);
    write(&daemon, &text(&daemon).replace("processes = 2", "processes = 1"));
    daemon.restart().await;
    let _first = daemon.gate("gated").reached("busy").await;
    assert!(!daemon.gate("gated").is_reached("busy"), "there is one slot, and it is taken");
    reload_with(&daemon, "processes = 1", "processes = 2").await;
    daemon.gate("gated").reached("busy").await.open().await;
}

#[tokio::test]
async fn fewer_processes_kill_nobody_and_hold_as_processes_go() {
    let daemon = Daemon::builder().config("[limits]\nprocesses = 2").agent("gated", gated()).start().await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let session = daemon.create_session("gated").await;
        let turn = daemon.prompt(&session, "go").await["turnId"].as_str().unwrap().to_owned();
        let passage = daemon.gate("gated").reached("busy").await;
        let pid = pid_of(&daemon.session(&session).await);
        busy.push((session, turn, passage, pid));
    }
    reload_with(&daemon, "processes = 2", "processes = 1").await;
    let refused = async || {
        let request = json!({"workspace": daemon.workspace(), "agent": "gated"});
        let refused = daemon.post("/v1/sessions", request).await.expect_status(429);
        assert!(refused["message"].as_str().unwrap().contains("all 1 agent processes"), "{refused}");
    };
    refused().await;
    assert!(busy.iter().all(|(_, _, _, pid)| process_alive(*pid)));

    let mut processes = Vec::new();
    for (session, turn, passage, pid) in busy {
        if !processes.is_empty() {
            // The one that is idle goes, but it was one too many: that makes no room.
            refused().await;
            process_gone(processes[0]).await;
            assert!(process_alive(pid));
            // The daemon notices the end a moment after the kernel.
            within("the slot of the process that is gone", async {
                while daemon.get("/v1/info").await.expect_status(200)["processes"]["running"] != 1 {}
            })
            .await;
        }
        passage.open().await;
        assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
        processes.push(pid);
    }
    let third = daemon.create_session("gated").await;
    process_gone(processes[1]).await;
    let turn = daemon.prompt(&third, "go").await;
    daemon.gate("gated").reached("busy").await.open().await;
    assert_eq!(daemon.wait_turn(&third, turn["turnId"].as_str().unwrap()).await["status"], "completed");
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_told_until_it_is_put_right() {
    let daemon = Daemon::builder().config("[limits]\nprocesses = 3").agent("echo", echo()).start().await;
    let (good, before) = (text(&daemon), config(&daemon).await);
    write(&daemon, &good.replace("processes = 3", "processes = 0\nprocessses = 4"));
    let outcome = reload(&daemon).await;
    assert_eq!(outcome["loadedAt"], before["loadedAt"], "the previous one stays in force");
    assert_eq!(
        outcome["error"], "limits.processes: has an invalid value 0; limits.processses: is not a known key",
        "all of it"
    );
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"]["max"], 3);
    let status = daemon.cli(&["status"]).await.success();
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains("cannot reload the configuration: limits.processes: has an invalid value 0;"), "{status}");
    assert_eq!(status.matches("limits.processes: has an invalid value").count(), 1, "once: {status}");
    let log = daemon.log();
    for told in ["limits.processes", "limits.processses", "write a whole number of at least 1", "stays in force"] {
        assert!(log.contains(told), "{told} in {log}");
    }

    std::fs::remove_file(daemon.config_file()).unwrap();
    let outcome = reload(&daemon).await;
    assert!(outcome["error"].as_str().unwrap().contains("cannot be read"), "it was named, so it must be there");
    write(&daemon, &good);
    let outcome = reload(&daemon).await;
    assert_eq!(outcome["error"], Value::Null);
    assert_ne!(outcome["loadedAt"], before["loadedAt"]);
    assert!(!daemon.cli(&["status"]).await.success().contains("cannot reload"));
}

#[tokio::test]
async fn what_is_built_in_at_start_is_named_until_the_restart() {
    let builder = Daemon::builder().config("[control]\nconnections = 100\n[log]\nfiles = 3");
    let mut daemon = builder.agent("echo", echo()).start().await;
    let outcome = reload_with(&daemon, "connections = 100", "connections = 50").await;
    assert_eq!(outcome["needsRestart"], json!(["control.connections"]));
    let outcome = reload_with(&daemon, "files = 3", "files = 2").await;
    assert_eq!(outcome["needsRestart"], json!(["control.connections", "log.files"]));
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["limits"]["connections"], 100, "what is said is what is in force");
    assert!(daemon.log().contains("control.connections"));

    let status = daemon.cli(&["status"]).await.success();
    let status = status.replace(&daemon.root().display().to_string(), "[root]");
    let here = [(r"\d+(\.\d)?s\b", "[age]"), (r"(pid|version)( +).+", "$1$2[$1]"), (r"(kernel +)[^,]+", "$1[release]")];
    insta::with_settings!({filters => here}, { insta::assert_snapshot!(status) });
    let outcome = reload_with(&daemon, "files = 2", "files = 3").await;
    assert_eq!(outcome["needsRestart"], json!(["control.connections"]), "what was taken back needs nothing");
    daemon.restart().await;
    assert_eq!(config(&daemon).await["needsRestart"], json!([]));
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["limits"]["connections"], 50);
}

#[tokio::test]
async fn a_reload_while_stopping_changes_nothing_and_kills_nobody() {
    let script = json!([{"handshake": {}}, {"ignoreSignals": ["TERM"]}, {"gate": "up"}, {"hang": true}]);
    let slow = "[processes]\neof_grace = \"10m\"\nshutdown_timeout = \"10m\"";
    let mut daemon = Daemon::builder().config(slow).agent("stubborn", script).start().await;
    let session = daemon.create_session("stubborn").await;
    daemon.gate("stubborn").reached("up").await.open().await;
    let pid = pid_of(&daemon.session(&session).await);
    daemon.signal(Signal::SIGTERM);
    daemon.is_stopping().await;
    daemon.signal(Signal::SIGHUP);
    within("a word about the reload", async {
        while !daemon.log().contains("ignored a reload because acpd is stopping") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(process_alive(pid), "it is no second order to stop");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().await.success());
}
