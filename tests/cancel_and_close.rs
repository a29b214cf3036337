//! Ends that people ask for: cancel, archive, delete, and the slots that processes need.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, pid_of, process_gone};
use serde_json::{Value, json};

/// Stands at a gate in every turn, then waits for the cancellation and answers it.
fn polite() -> Value {
    json!([{"handshake": {}}, {"repeat": [
        {"expect": "session/prompt"}, {"text": "working"}, {"gate": "busy"},
        {"expect": "session/cancel"}, {"reply": {"stopReason": "cancelled"}}
    ]}])
}

#[tokio::test]
async fn cancel_ends_the_turn_and_keeps_the_session() {
    let daemon = Daemon::builder().agent("polite", polite()).start().await;
    let session = daemon.create_session("polite").await;
    let path = format!("/v1/sessions/{session}/cancel");
    assert_eq!(daemon.post(&path, json!({})).await.expect_status(409)["error"], "no_turn");

    let accepted = daemon.prompt(&session, "go").await;
    let turn = accepted["turnId"].as_str().unwrap();
    let passage = daemon.gate("polite").reached("busy").await;
    let stale = daemon.post(&path, json!({"turnId": "01a1e272-8a8e-762f-a984-29c55e0e6330"})).await;
    assert_eq!(stale.expect_status(409)["error"], "stale_turn");
    let cancelled = daemon.post(&path, json!({"turnId": turn})).await.expect_status(202);
    assert_eq!(cancelled["turns"], json!([turn]));
    passage.open().await;

    let ended = daemon.wait_turn(&session, turn).await;
    assert_eq!((&ended["status"], &ended["stopReason"]), (&json!("cancelled"), &json!("cancelled")));
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[1]["content"], json!({"type": "text", "text": "working", "partial": true}));
    let view = daemon.session(&session).await;
    assert_eq!((&view["status"], &view["processState"]), (&json!("active"), &json!("ready")));
}

#[tokio::test]
async fn a_committed_cancel_wins_over_the_agents_answer() {
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "busy"}, {"text": "finished all the same"}]}]);
    let daemon = Daemon::builder().agent("deaf", script).start().await;
    let session = daemon.create_session("deaf").await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("deaf").reached("busy").await;
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    passage.open().await;
    let ended = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["stopReason"]), (&json!("cancelled"), &json!("end_turn")));
}

#[tokio::test]
async fn an_agent_that_ignores_a_cancel_is_killed_and_the_next_prompt_has_a_new_one() {
    let script = json!([{"handshake": {}}, {"ignoreSignals": ["TERM"]}, {"expect": "session/prompt"}, {"gate": "busy"},
        {"hang": true}]);
    let daemon =
        Daemon::builder().config("[processes]\ncancel_grace = \"50ms\"").agent("stubborn", script).start().await;
    let session = daemon.create_session("stubborn").await;
    let first = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("stubborn").reached("busy").await;
    let pid = pid_of(&daemon.session(&session).await);
    passage.open().await;
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    let ended = daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "cancelled");
    process_gone(pid).await;
    daemon.prompt(&session, "again").await;
    let passage = daemon.gate("stubborn").reached("busy").await;
    assert_ne!(pid_of(&daemon.session(&session).await), pid);
    drop(passage);
}

#[tokio::test]
async fn queued_turns_are_cancelled_one_by_one_or_all_together() {
    let daemon = Daemon::builder().agent("polite", polite()).start().await;
    let session = daemon.create_session("polite").await;
    let first = daemon.prompt(&session, "one").await;
    let passage = daemon.gate("polite").reached("busy").await;
    let second = daemon.prompt(&session, "two").await;
    let third = daemon.prompt(&session, "three").await;
    let path = format!("/v1/sessions/{session}/cancel");
    daemon.post(&path, json!({"turnId": second["turnId"]})).await.expect_status(202);
    let ended = daemon.wait_turn(&session, second["turnId"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], ended.get("startedAt")), (&json!("cancelled"), None));

    let all = daemon.post(&path, json!({"queued": true})).await.expect_status(202);
    assert_eq!(all["turns"], json!([first["turnId"], third["turnId"]]));
    passage.open().await;
    for turn in [&first, &third] {
        let ended = daemon.wait_turn(&session, turn["turnId"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "cancelled");
    }
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let daemon = Daemon::builder().config("[sessions]\nqueue = 2").agent("polite", polite()).start().await;
    let session = daemon.create_session("polite").await;
    daemon.prompt(&session, "running").await;
    let passage = daemon.gate("polite").reached("busy").await;
    daemon.prompt(&session, "one").await;
    daemon.prompt(&session, "two").await;
    let refused = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "three"})).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.expect_status(429)["error"], "queue_full");
    assert_eq!(daemon.session(&session).await["turns"], 3, "what was refused changed nothing");
    drop(passage);
}

#[tokio::test]
async fn archiving_ends_everything_and_is_final() {
    let daemon = Daemon::builder().config("[processes]\neof_grace = \"50ms\"").agent("polite", polite()).start().await;
    let session = daemon.create_session("polite").await;
    let first = daemon.prompt(&session, "one").await;
    let _passage = daemon.gate("polite").reached("busy").await;
    let second = daemon.prompt(&session, "two").await;
    let pid = pid_of(&daemon.session(&session).await);
    let archived = daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    assert_eq!((&archived["status"], &archived["processState"]), (&json!("archived"), &json!("stopped")));
    assert!(!harness::process_alive(pid), "200 comes after the process is reaped");
    for turn in [&first, &second] {
        let ended = daemon.wait_turn(&session, turn["turnId"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "cancelled");
    }
    let path = format!("/v1/sessions/{session}");
    let refused = daemon.post(&format!("{path}/prompt"), json!({"text": "more"})).await.expect_status(409);
    assert_eq!(refused["error"], "session_archived");
    let refused = daemon.post(&format!("{path}/resume"), json!({})).await.expect_status(409);
    assert_eq!(refused["error"], "session_archived");
    daemon.post(&format!("{path}/archive"), json!({})).await.expect_status(200);

    let listed = daemon.get("/v1/sessions").await.expect_status(200);
    assert_eq!(listed["total"], 0, "lists show active and suspended");
    let listed = daemon.get("/v1/sessions?includeArchived=true").await.expect_status(200);
    assert_eq!(listed["total"], 1);
}

/// The agent still tells how a call ended that its session has ended already.
#[tokio::test]
async fn a_tool_call_that_is_archived_with_its_session_is_recorded_once() {
    let daemon = Daemon::start().await;
    let session = daemon.create_session("demo").await;
    let accepted = daemon.prompt(&session, "write a note").await;
    daemon.events(&session, accepted["after"].as_i64()).await.until("permission.requested").await;
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    let messages = daemon.messages(&session).await;
    for role in ["tool_call", "tool_result"] {
        let of_role: Vec<_> = messages.iter().filter(|message| message["role"] == role).collect();
        assert_eq!(of_role.len(), 2, "it lists the workspace, and wants to write: {messages:#?}");
        assert!(of_role.iter().all(|message| message["turnId"] == accepted["turnId"]), "{messages:#?}");
    }
}

#[tokio::test]
async fn deleting_keeps_the_record_with_the_reason_and_purging_does_not() {
    let daemon = Daemon::builder().agent("polite", polite()).start().await;
    let session = daemon.create_session("polite").await;
    let path = format!("/v1/sessions/{session}");
    let deleted = daemon.delete(&format!("{path}?reason=no%20longer%20needed")).await.expect_status(200);
    assert_eq!(deleted["status"], "archived");
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[0]["content"], json!({"type": "notice", "code": "deleted", "text": "no longer needed"}));

    let mut stream = daemon.events(&session, None).await;
    stream.until("session.status").await;
    daemon.delete(&format!("{path}?purge=true")).await.expect_status(200);
    stream.rest().await;
    assert!(!stream.was_cut(), "the stream of a deleted session ends");
    assert_eq!(daemon.get(&path).await.expect_status(404)["error"], "session_not_found");
    assert_eq!(daemon.get(&format!("{path}/events")).await.expect_status(404)["error"], "session_not_found");
    let workspaces = daemon.get("/v1/workspaces").await.expect_status(200);
    let workspace = workspaces["workspaces"][0]["id"].as_str().unwrap();
    daemon.delete(&format!("/v1/workspaces/{workspace}")).await.expect_status(200);
}

#[tokio::test]
async fn the_idle_process_makes_room_and_a_busy_one_does_not() {
    let idle = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPid": true}]}]}]);
    let daemon =
        Daemon::builder().config("[limits]\nprocesses = 1").agent("idle", idle).agent("polite", polite()).start().await;
    let first = daemon.create_session("idle").await;
    daemon.prompt_and_wait(&first, "one").await;
    let pid = pid_of(&daemon.session(&first).await);

    let second = daemon.create_session("polite").await;
    process_gone(pid).await;
    // The process is gone before its end is on record.
    let exited = daemon.events(&first, None).await.until("process.exited").await.pop().unwrap();
    assert_eq!(exited.payload()["reason"], "evicted");
    let evicted = daemon.session(&first).await;
    assert_eq!((&evicted["status"], &evicted["processState"]), (&json!("active"), &json!("stopped")));

    daemon.prompt(&second, "two").await;
    let passage = daemon.gate("polite").reached("busy").await;
    let refused = daemon.post(&format!("/v1/sessions/{first}/prompt"), json!({"text": "again"})).await;
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(refused.expect_status(429)["error"], "process_limit");
    let workspace = daemon.workspace().display().to_string();
    let refused = daemon.post("/v1/sessions", json!({"workspace": workspace, "agent": "idle"})).await;
    assert_eq!(refused.expect_status(429)["error"], "process_limit");
    let lazy = json!({"workspace": workspace, "agent": "idle", "start": "lazy"});
    daemon.post("/v1/sessions", lazy).await.expect_status(201);

    daemon.post(&format!("/v1/sessions/{second}/cancel"), json!({})).await.expect_status(202);
    passage.open().await;
    daemon.events(&second, None).await.until("turn.completed").await;
    let turn = daemon.prompt_and_wait(&first, "again").await;
    assert_eq!(turn["status"], "completed");
}

#[tokio::test]
async fn a_workspace_that_leads_outside_its_root_is_fatal_and_one_that_is_missing_is_not() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "hi"}]}]}]);
    let daemon = Daemon::builder().agent("echo", script).start().await;
    let workspace = daemon.root().join("project");
    std::fs::create_dir(&workspace).unwrap();
    let body = json!({"workspace": workspace, "agent": "echo", "start": "lazy"});
    let created = daemon.post("/v1/sessions", body).await.expect_status(201);
    let session = created["id"].as_str().unwrap();

    std::fs::remove_dir(&workspace).unwrap();
    let refused =
        daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "one"})).await.expect_status(409);
    assert_eq!(refused["error"], "workspace_missing");
    let view = daemon.session(session).await;
    assert_eq!((&view["status"], &view["turns"]), (&json!("active"), &json!(0)), "it may come back");
    std::fs::create_dir(&workspace).unwrap();
    assert_eq!(daemon.prompt_and_wait(session, "two").await["status"], "completed");

    let other = json!({"workspace": workspace, "agent": "echo", "start": "lazy"});
    let other = daemon.post("/v1/sessions", other).await.expect_status(201);
    let other = other["id"].as_str().unwrap();
    std::fs::remove_dir(&workspace).unwrap();
    std::os::unix::fs::symlink("/etc", &workspace).unwrap();
    let turn = daemon.prompt_and_wait(other, "three").await;
    assert!(turn["error"]["message"].as_str().unwrap().contains("outside"), "{turn}");
    let path = format!("/v1/sessions/{other}");
    assert_eq!(daemon.session(other).await["status"], "error");
    for request in ["prompt", "resume", "archive"] {
        let body = if request == "prompt" { json!({"text": "x"}) } else { json!({}) };
        let refused = daemon.post(&format!("{path}/{request}"), body).await.expect_status(409);
        assert_eq!(refused["error"], "session_error", "{request}");
    }
    assert_eq!(daemon.delete(&path).await.expect_status(409)["error"], "session_error");
    daemon.delete(&format!("{path}?purge=true")).await.expect_status(200);
    assert_eq!(daemon.get(&path).await.status, 404);
}

#[tokio::test]
async fn prompts_that_come_together_share_the_process_that_one_of_them_starts() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let daemon = Daemon::builder().config("[limits]\nprocesses = 1").agent("echo", script).start().await;
    for _ in 0..5 {
        let body = json!({"workspace": daemon.workspace(), "agent": "echo", "start": "lazy"});
        let created = daemon.post("/v1/sessions", body).await.expect_status(201);
        let session = created["id"].as_str().unwrap();
        let (first, second) = tokio::join!(daemon.prompt(session, "one"), daemon.prompt(session, "two"));
        for accepted in [first, second] {
            let turn = daemon.wait_turn(session, accepted["turnId"].as_str().unwrap()).await;
            assert_eq!(turn["status"], "completed");
        }
    }
}

#[tokio::test]
async fn a_title_that_somebody_gave_stays_and_an_archived_session_does_not_change() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let daemon = Daemon::builder().agent("echo", script).start().await;
    let session = daemon.create_session("echo").await;
    let path = format!("/v1/sessions/{session}");
    daemon.patch(&path, json!({"title": "mine"})).await.expect_status(200);
    daemon.prompt_and_wait(&session, "hello").await;
    assert_eq!(daemon.session(&session).await["title"], "mine");
    daemon.post(&format!("{path}/archive"), json!({})).await.expect_status(200);
    let refused = daemon.patch(&path, json!({"title": "other"})).await.expect_status(409);
    assert_eq!(refused["error"], "session_archived");
}

#[tokio::test]
async fn one_session_that_needs_a_process_costs_one_idle_process() {
    let slow = json!([{"handshake": {}}, {"ignoreEof": true}, {"expect": "session/prompt"}]);
    let config = "[limits]\nprocesses = 3\n[processes]\neof_grace = \"300ms\"";
    let daemon = Daemon::builder().config(config).agent("slow", slow).start().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = daemon.create_session("slow").await;
        daemon.events(&session, None).await.until("process.ready").await;
        sessions.push(session);
    }
    let mut states = Vec::new();
    for session in &sessions {
        states.push(daemon.session(session).await["processState"].clone());
    }
    assert_eq!(states, ["stopped", "ready", "ready", "ready"], "the one that was idle longest made room, and no other");
}

#[tokio::test]
async fn a_wait_that_was_cancelled_takes_nobodys_process() {
    let gated = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "busy"}]}]}]);
    let mut daemon = Daemon::builder().config("[limits]\nprocesses = 1").agent("gated", gated).start().await;
    let waiting = daemon.create_session("gated").await;
    daemon.prompt(&waiting, "one").await;
    let passage = daemon.gate("gated").reached("busy").await;
    daemon.prompt(&waiting, "two").await;
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    drop(passage);
    daemon.ended().await;
    daemon.restart().await;
    let working = daemon.create_session("gated").await;
    let turn = daemon.prompt(&working, "x").await;
    let passage = daemon.gate("gated").reached("busy").await;
    daemon.post(&format!("/v1/sessions/{waiting}/resume"), json!({})).await.expect_status(200);
    daemon.post(&format!("/v1/sessions/{waiting}/cancel"), json!({"queued": true})).await.expect_status(202);
    passage.open().await;
    daemon.wait_turn(&working, turn["turnId"].as_str().unwrap()).await;
    assert_eq!(daemon.session(&working).await["processState"], "ready");
    assert_eq!(daemon.session(&waiting).await["processState"], "stopped");
}

#[tokio::test]
async fn deletions_at_once_are_one_deletion() {
    let daemon = Daemon::builder().agent("polite", polite()).start().await;
    for start in ["eager", "lazy"] {
        let body = json!({"workspace": daemon.workspace(), "agent": "polite", "start": start});
        let session = daemon.post("/v1/sessions", body).await.expect_status(201);
        let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
        let purge = format!("{path}?purge=true");
        let replies = futures_util::future::join_all((0..8).map(|_| daemon.delete(&purge))).await;
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert!(statuses.contains(&200), "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 404)), "{statuses:?}");
        daemon.get(&path).await.expect_status(404);
    }
}
