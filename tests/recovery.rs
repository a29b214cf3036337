//! What was acknowledged survives the daemon: SIGKILL, SIGTERM, restart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::collections::BTreeMap;

use harness::{Daemon, Event};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

fn gated() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"thought": "hm"}, {"text": "one "}, {"text": "two "}, {"gate": "middle"}, {"textFromPrompt": true}
    ]}]}])
}

fn by_sequence(events: &[Event]) -> BTreeMap<i64, Value> {
    events.iter().map(|event| (event.id, event.data.clone())).collect()
}

#[tokio::test]
async fn killed_in_the_middle_of_a_turn_nothing_acknowledged_or_seen_is_lost() {
    let mut daemon = Daemon::builder().agent("gated", gated()).start().await;
    let session = daemon.create_session("gated").await;
    let mut stream = daemon.events(&session, None).await;
    let running = daemon.prompt(&session, "first").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let said = |event: &Event| event.kind == "message.delta" && event.payload().to_string().contains("two ");
    let mut seen = stream.until_event("what the agent said", said).await;
    let queued = daemon.prompt(&session, "second").await;
    let is_second = |event: &Event| event.kind == "message.created" && event.payload()["content"]["text"] == "second";
    seen.extend(stream.until_event("the second prompt", is_second).await);
    daemon.kill().await;
    drop(passage);

    daemon.restart().await;
    let turn = daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("interrupted"), &json!("interrupted")));

    // The queued turn runs; the interrupted one is not run again.
    daemon.gate("gated").reached("middle").await.open().await;
    let turn = daemon.wait_turn(&session, queued["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed");

    let stored = by_sequence(&daemon.events_so_far(&session, None).await);
    for (sequence, event) in by_sequence(&seen) {
        assert_eq!(stored.get(&sequence), Some(&event), "what a subscriber saw is there, unchanged");
    }
    let sequences: Vec<i64> = stored.keys().copied().collect();
    assert_eq!(sequences, (1..=i64::try_from(stored.len()).unwrap()).collect::<Vec<_>>(), "without a gap");

    let messages = daemon.messages(&session).await;
    let told: Vec<(&str, &Value)> =
        messages.iter().map(|message| (message["role"].as_str().unwrap(), &message["content"])).collect();
    assert_eq!(told[0], ("user", &json!({"type": "text", "text": "first", "partial": false})));
    assert_eq!(told[1].1, &json!({"type": "thought", "text": "hm", "partial": false}));
    assert_eq!(told[2].1, &json!({"type": "text", "text": "second", "partial": false}));
    assert_eq!(told[3].1, &json!({"type": "text", "text": "one two ", "partial": true}), "what it said is kept");
    assert_eq!(told[4].1["code"], "interrupted");
    let spoken = told.iter().filter(|(role, content)| *role == "agent" && content["type"] == "text").count();
    assert_eq!(spoken, 2, "the first turn's partial text and the second turn's answer: nothing ran twice");
    assert_eq!(daemon.session(&session).await["status"], "active");
}

/// However long the daemon was down, the turn took until its last event.
#[tokio::test]
async fn a_turn_that_a_kill_interrupts_did_not_take_the_downtime() {
    const HOUR: i64 = 60 * 60 * 1000;
    let mut daemon = Daemon::builder().start().await;
    let session = daemon.create_session("demo").await;
    let prompt = daemon.prompt(&session, "write a note").await;
    let turn = prompt["turnId"].as_str().unwrap().to_owned();
    // The restarted daemon cancels the request, which is no sign of life.
    daemon.events(&session, None).await.until("permission.requested").await;
    daemon.kill().await;
    // As if all of it had been an hour ago.
    daemon
        .sql(format!(
            "UPDATE events SET created_at = created_at - {HOUR};
             UPDATE turns SET queued_at = queued_at - {HOUR}, started_at = started_at - {HOUR}"
        ))
        .await;
    let last = daemon.sql_number(format!("SELECT max(created_at) FROM events WHERE turn_id = '{turn}'")).await;
    daemon.restart().await;
    let turn = daemon.wait_turn(&session, &turn).await;
    assert_eq!(turn["status"], "interrupted");
    let finished = turn["finishedAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(finished.as_millisecond(), last, "{turn}");
    let listed = daemon.cli(&["turns", &session]).await.success();
    assert!(!listed.contains("1h 0m"), "{listed}");
}

#[tokio::test]
async fn every_202_survives_a_kill_at_once() {
    const PROMPTS: usize = 8;
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let mut daemon = Daemon::builder().agent("echo", script).start().await;
    let session = daemon.create_session("echo").await;
    let mut accepted = Vec::new();
    for number in 0..PROMPTS {
        accepted.push(daemon.prompt(&session, &format!("prompt {number}")).await);
    }
    daemon.kill().await;
    daemon.restart().await;
    for prompt in &accepted {
        let turn = daemon.wait_turn(&session, prompt["turnId"].as_str().unwrap()).await;
        assert!(["completed", "interrupted"].contains(&turn["status"].as_str().unwrap()), "{turn}");
    }
    let asked: Vec<String> = daemon
        .messages(&session)
        .await
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| message["content"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(asked, (0..PROMPTS).map(|number| format!("prompt {number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stop_suspends_interrupts_and_ends_streams_and_resume_goes_on() {
    let mut daemon = Daemon::builder().agent("gated", gated()).start().await;
    let session = daemon.create_session("gated").await;
    let running = daemon.prompt(&session, "first").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let queued = daemon.prompt(&session, "second").await;
    let mut stream = daemon.events(&session, None).await;
    stream.until("turn.started").await;
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let rest = stream.rest().await;
    assert!(!stream.was_cut(), "the stream ends, it is not cut");
    drop(passage);
    assert!(daemon.ended().await.success());
    let ended: Vec<&str> = rest.iter().map(|event| event.kind.as_str()).collect();
    assert!(ended.contains(&"turn.completed") && ended.contains(&"session.status"), "{ended:?}");
    assert!(!daemon.socket().exists());
    assert!(!daemon.state_dir().join("acpd.db-wal").exists(), "a clean stop leaves one file");

    daemon.restart().await;
    let view = daemon.session(&session).await;
    assert_eq!((&view["status"], &view["processState"]), (&json!("suspended"), &json!("stopped")));
    let turn = daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "interrupted");
    let refused = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "x"})).await.expect_status(409);
    assert_eq!(refused["error"], "session_suspended");
    assert!(refused["hint"].as_str().unwrap().contains("resume"));

    let resumed = daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    assert_eq!(resumed["status"], "active");
    daemon.gate("gated").reached("middle").await.open().await;
    let turn = daemon.wait_turn(&session, queued["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "queued turns stay queued and run after the resume");
}

#[tokio::test]
async fn resume_on_start_takes_sessions_up_by_itself() {
    let mut daemon =
        Daemon::builder().config("[sessions]\nresume_on_start = true").agent("gated", gated()).start().await;
    let session = daemon.create_session("gated").await;
    daemon.restart().await;
    assert_eq!(daemon.session(&session).await["status"], "active");
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_a_stubborn_agent() {
    let script = json!([{"handshake": {}}, {"ignoreSignals": ["TERM"]}, {"gate": "up"}, {"hang": true}]);
    let slow = "[processes]\neof_grace = \"10m\"\nshutdown_timeout = \"10m\"";
    let mut daemon = Daemon::builder().config(slow).agent("stubborn", script).start().await;
    let session = daemon.create_session("stubborn").await;
    daemon.gate("stubborn").reached("up").await.open().await;
    let pid = daemon.session(&session).await["pid"].as_u64().unwrap();
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.is_stopping().await;
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.ended().await.success());
    assert!(!harness::process_alive(u32::try_from(pid).unwrap()));
}

#[tokio::test]
async fn only_one_daemon_has_a_state_directory() {
    let daemon = Daemon::start().await;
    let state = daemon.state_dir().display().to_string();
    let socket = daemon.root().join("run/other.sock").display().to_string();
    let second = daemon.cli(&["serve", "--state-dir", &state, "--socket", &socket]).await;
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("another acpd uses the state directory"), "{}", second.stderr);
    daemon.get("/v1/health").await.expect_status(200);
}

#[tokio::test]
async fn turns_that_wait_for_a_slot_get_one_from_a_session_that_is_idle() {
    let config = "[limits]\nprocesses = 1\n[processes]\neof_grace = \"50ms\"";
    let mut daemon = Daemon::builder().config(config).agent("gated", gated()).start().await;
    let first = daemon.create_session("gated").await;
    daemon.prompt(&first, "running").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let one = daemon.prompt(&first, "one").await;
    let body = json!({"workspace": daemon.workspace(), "agent": "gated", "start": "lazy"});
    let second = daemon.post("/v1/sessions", body).await.expect_status(201);
    let second = second["id"].as_str().unwrap().to_owned();
    daemon.kill().await;
    drop(passage);
    // A turn that was accepted when there was room, as a crash in between would leave it.
    let turn = "01a1e272-8a8e-762f-a984-29c55e0e6330";
    let content = r#"{"type":"text","text":"two","partial":false}"#;
    let statements = format!(
        "INSERT INTO turns (id, session_id, status, queued_at) VALUES ('{turn}', '{second}', 'queued', 0); \
         INSERT INTO messages (id, session_id, sequence, turn_id, role, content, created_at) VALUES \
         ('01a1e272-8a8e-762f-a984-29c55e0e6331', '{second}', 1, '{turn}', 'user', '{content}', 0);"
    );
    daemon.sql(statements).await;

    daemon.restart().await;
    for (session, turn) in [(&first, one["turnId"].as_str().unwrap()), (&second, turn)] {
        daemon.gate("gated").reached("middle").await.open().await;
        let turn = daemon.wait_turn(session, turn).await;
        assert_eq!(turn["status"], "completed", "each has its process in turn");
    }
}

#[tokio::test]
async fn a_cancel_that_was_acknowledged_stands_whatever_ends_the_daemon() {
    for graceful in [true, false] {
        let mut daemon = Daemon::builder().agent("gated", gated()).start().await;
        let session = daemon.create_session("gated").await;
        let accepted = daemon.prompt(&session, "go").await;
        let passage = daemon.gate("gated").reached("middle").await;
        daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
        if graceful {
            daemon.signal(nix::sys::signal::Signal::SIGTERM);
            drop(passage);
            daemon.ended().await;
        } else {
            daemon.kill().await;
        }
        daemon.restart().await;
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["status"], "cancelled", "graceful: {graceful}");
    }
}

#[tokio::test]
async fn a_purge_does_not_move_the_end_of_the_log_back() {
    let daemon = Daemon::builder().agent("gated", gated()).start().await;
    let kept = daemon.create_session("gated").await;
    let gone = daemon.create_session("gated").await;
    let mut all = daemon.event_stream("/v1/events?after=0", &[]).await;
    let is_gone = |event: &Event| event.kind == "process.ready" && event.data["sessionId"] == gone.as_str();
    let cursor = all.until_event("the second session's process", is_gone).await.pop().unwrap().id.to_string();
    daemon.delete(&format!("/v1/sessions/{gone}?purge=true")).await.expect_status(200);
    let mut again = daemon.event_stream("/v1/events", &[("last-event-id", &cursor)]).await;
    daemon.patch(&format!("/v1/sessions/{kept}"), json!({"title": "next"})).await.expect_status(200);
    let next = again.until("session.updated").await;
    assert!(next.iter().all(|event| event.kind != "log.reset"), "nothing is told again");
}

#[tokio::test]
async fn an_accepted_turn_runs_when_the_record_can_be_written_again() {
    let script = json!([{"gate": "up"}, {"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let mut daemon = Daemon::builder().agent("slow", script).start().await;
    daemon.prepare_full_log().await;
    let session = daemon.create_session("slow").await;
    let passage = daemon.gate("slow").reached("up").await;
    let (pid, accepted) = (passage.pid, daemon.prompt(&session, "go").await);
    let full = daemon.fill_log().await;
    passage.open().await;
    harness::process_gone(pid).await;
    daemon.free_log(&full).await;
    daemon.gate("slow").reached("up").await.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed");
}

#[tokio::test]
async fn a_turn_whose_end_could_not_be_written_is_settled_and_the_session_goes_on() {
    let mut daemon = Daemon::builder().agent("gated", gated()).start().await;
    daemon.prepare_full_log().await;
    let session = daemon.create_session("gated").await;
    let first = daemon.prompt(&session, "one").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let is_last = |event: &Event| event.kind == "message.delta" && event.data.to_string().contains("two ");
    daemon.events(&session, None).await.until_event("what was said before the gate", is_last).await;
    let full = daemon.fill_log().await;
    let pid = passage.pid;
    passage.open().await;
    harness::process_gone(pid).await;
    let refused = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "two"})).await;
    assert_eq!(refused.expect_status(500)["error"], "internal", "what cannot be recorded is not accepted");
    daemon.free_log(&full).await;
    let third = daemon.prompt(&session, "three").await;
    daemon.gate("gated").reached("middle").await.open().await;
    let third = daemon.wait_turn(&session, third["turnId"].as_str().unwrap()).await;
    assert_eq!(third["status"], "completed");
    let first = daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    assert_eq!((&first["status"], &first["error"]["code"]), (&json!("failed"), &json!("internal")));
}

#[tokio::test]
async fn nothing_is_made_after_the_daemon_has_begun_to_stop() {
    let script = json!([{"handshake": {}}, {"ignoreSignals": ["TERM"]}, {"gate": "up"}, {"hang": true}]);
    let slow = "[processes]\neof_grace = \"10m\"\nshutdown_timeout = \"10m\"";
    let mut daemon = Daemon::builder().config(slow).agent("stubborn", script).start().await;
    daemon.create_session("stubborn").await;
    daemon.gate("stubborn").reached("up").await.open().await;
    let body = json!({"workspace": daemon.workspace(), "agent": "stubborn", "start": "lazy"}).to_string();
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: acpd\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = BufReader::new(daemon.connect().await);
    connection.write_all(head.as_bytes()).await.unwrap();
    // The daemon wants the body: the request is past the door.
    let mut go_on = String::new();
    while !go_on.ends_with("\r\n\r\n") {
        connection.read_line(&mut go_on).await.unwrap();
    }
    assert!(go_on.contains("100 Continue"), "{go_on}");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.is_stopping().await;
    connection.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_line(&mut answer).await.unwrap();
    assert!(answer.contains("503"), "{answer}");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.ended().await;
    daemon.restart().await;
    let listed = daemon.get("/v1/sessions").await.expect_status(200);
    assert_eq!((&listed["total"], &listed["sessions"][0]["status"]), (&json!(1), &json!("suspended")));
}

#[tokio::test]
async fn a_session_whose_record_is_damaged_is_in_error_and_the_others_go_on() {
    let mut daemon = Daemon::builder().agent("gated", gated()).start().await;
    let (damaged, sound) = (daemon.create_session("gated").await, daemon.create_session("gated").await);
    for session in [&damaged, &sound] {
        daemon.prompt(session, "first").await;
        daemon.prompt(session, "second").await;
    }
    let gate = daemon.gate("gated");
    let passages = (gate.reached("middle").await, gate.reached("middle").await);
    daemon.kill().await;
    drop(passages);
    daemon.sql(format!("UPDATE messages SET content = '{{}}' WHERE session_id = '{damaged}' AND role = 'user'")).await;

    daemon.restart().await;
    let session = daemon.get("/v1/sessions?status=error").await.expect_status(200)["sessions"][0].clone();
    assert_eq!((&session["id"], &session["lastError"]["code"]), (&json!(damaged), &json!("record_damaged")));
    let turns = daemon.get(&format!("/v1/sessions/{damaged}/turns")).await.expect_status(200);
    let statuses: Vec<&Value> = turns["turns"].as_array().unwrap().iter().map(|turn| &turn["status"]).collect();
    assert_eq!(statuses, ["failed", "failed"], "nobody waits for them for ever");
    assert_eq!(turns["turns"][0]["error"]["code"], "record_damaged");
    assert_says_it_is_damaged(&daemon, &damaged).await;

    gate.reached("middle").await.open().await;
    let turns = daemon.get(&format!("/v1/sessions/{sound}/turns")).await.expect_status(200);
    let queued = turns["turns"][1]["id"].as_str().unwrap();
    assert_eq!(daemon.wait_turn(&sound, queued).await["status"], "completed");
}

/// The conversation and the refusal of a prompt tell the cause, once and for good.
async fn assert_says_it_is_damaged(daemon: &Daemon, session: &str) {
    for _ in 0..2 {
        let refused =
            daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "hi"})).await.expect_status(409);
        assert_eq!(
            (&refused["error"], &refused["details"]["cause"]["code"]),
            (&json!("session_error"), &json!("record_damaged"))
        );
        assert!(refused["message"].as_str().unwrap().contains("the stored session is damaged"), "{refused}");
    }
    let code =
        "SELECT count(*) FROM messages WHERE role = 'system' AND content ->> 'code' = 'record_damaged' AND session_id";
    assert_eq!(daemon.sql_number(format!("{code} = '{session}'")).await, 1);
}

#[tokio::test]
async fn damage_that_is_found_by_a_prompt_ends_the_session_with_its_cause() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "ok"}]}]}]);
    let mut daemon = Daemon::builder().agent("echo", script).start().await;
    let (row, waiting) = (daemon.create_session("echo").await, daemon.create_session("echo").await);
    for session in [&row, &waiting] {
        daemon.prompt_and_wait(session, "hello").await;
    }
    let system = json!({"role": "system", "text": "be brief"});
    daemon.post(&format!("/v1/sessions/{waiting}/messages"), system).await.expect_status(201);
    daemon.kill().await;
    daemon
        .sql(format!(
            "UPDATE sessions SET profile = '{{}}' WHERE id = '{row}'; \
             UPDATE messages SET content = '{{}}' WHERE session_id = '{waiting}' AND role = 'system'"
        ))
        .await;
    daemon.restart().await;
    assert_eq!(daemon.get(&format!("/v1/sessions/{row}")).await.expect_status(500)["error"], "record_damaged");
    for session in [&row, &waiting] {
        assert_says_it_is_damaged(&daemon, session).await;
    }
    for session in [&row, &waiting] {
        let status = format!("SELECT count(*) FROM sessions WHERE id = '{session}' AND status = 'error'");
        assert_eq!(daemon.sql_number(status).await, 1);
    }
}
