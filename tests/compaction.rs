//! Compaction: deltas of old turns go, everything else stays, and nobody meets a hole without having been told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, within};
use serde_json::{Value, json};

const DELTAS: &str = "SELECT count(*) FROM events WHERE type = 'message.delta'";

/// An agent that streams each of its answers in pieces, around a tool call that keeps them from being merged.
fn talkative() -> Value {
    let tool = |status: &str| json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "look", "status": status}});
    json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"thought": "hm"}, {"text": "first "}, tool("in_progress"), tool("completed"), {"textFromPrompt": true}
    ]}]}])
}

fn settings(replay_turns: u32, delay: &str) -> String {
    format!("[store]\nreplay_turns = {replay_turns}\nmaintenance_delay = \"{delay}\"\n")
}

async fn start(replay_turns: u32, delay: &str) -> Daemon {
    Daemon::builder().config(&settings(replay_turns, delay)).agent("talkative", talkative()).start().await
}

async fn gc(daemon: &Daemon) -> Value {
    daemon.post("/v1/gc", json!({})).await.expect_status(200)["store"].clone()
}

fn of_kind<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.kind == kind).collect()
}

/// Every number that is skipped comes after the word about it, and before what it says is complete.
#[track_caller]
fn assert_no_silent_hole(events: &[Event], mut cursor: i64) {
    let mut complete_from = 0;
    for event in events {
        if event.kind == "log.compacted" {
            assert_eq!(event.id, cursor, "its id is the reader's own cursor");
            complete_from = event.payload()["completeFrom"].as_i64().unwrap();
            continue;
        }
        assert!(event.id == cursor + 1 || event.id <= complete_from, "{} after {cursor}", event.id);
        cursor = event.id;
    }
}

/// The same log without the deltas before a sequence.
fn without_deltas(events: &[Event], before: i64) -> Vec<Value> {
    let stays = |event: &&Event| event.id >= before || event.kind != "message.delta";
    events.iter().filter(stays).map(|event| event.data.clone()).collect()
}

#[tokio::test]
async fn deltas_of_old_turns_go_and_all_else_stays() {
    let mut daemon = start(2, "1h").await;
    let session = daemon.create_session("talkative").await;
    for number in 0..4 {
        daemon.prompt_and_wait(&session, &format!("turn {number}")).await;
    }
    let before = daemon.events_so_far(&session, None).await;
    let messages = daemon.messages(&session).await;
    let all_before = daemon.event_stream("/v1/events?follow=false&after=0", &[]).await.rest().await;
    let starts = of_kind(&before, "turn.started");
    let kept = starts[2].id;
    let removed = of_kind(&before, "message.delta").iter().filter(|event| event.id < kept).count();
    assert!(removed >= 4, "{removed}");

    let forecast = daemon.post("/v1/gc", json!({"dryRun": true})).await.expect_status(200)["store"].clone();
    assert_eq!((&forecast["deltasRemoved"], &forecast["bytesAfter"]), (&json!(removed), &Value::Null));
    assert_eq!((&forecast["messagesIndexed"], &forecast["complete"]), (&json!(messages.len()), &json!(false)));
    assert_eq!(daemon.events_so_far(&session, None).await.len(), before.len(), "a dry run changes nothing");
    let report = gc(&daemon).await;
    assert_eq!((&report["deltasRemoved"], &report["complete"]), (&json!(removed), &json!(true)));
    assert!(report["bytesAfter"].is_u64() && report["bytesBefore"].is_u64(), "{report}");
    assert_eq!(gc(&daemon).await["deltasRemoved"], 0);

    for round in 0..2 {
        let after = daemon.events_so_far(&session, None).await;
        assert_no_silent_hole(&after, 0);
        assert_eq!(after[0].kind, "log.compacted", "it comes first");
        assert_eq!(after[0].payload()["completeFrom"], kept);
        assert_eq!(of_kind(&after, "log.compacted").len(), 1);
        assert_eq!(without_deltas(&after[1..], 0)[..starts.len()], without_deltas(&before, kept)[..starts.len()]);
        let left: Vec<Value> = after[1..].iter().map(|event| event.data.clone()).collect();
        assert_eq!(left[..without_deltas(&before, kept).len()], without_deltas(&before, kept), "round {round}");
        assert_eq!(daemon.messages(&session).await, messages);
        let newer = daemon.events_so_far(&session, Some(kept - 1)).await;
        assert_eq!((newer[0].kind.as_str(), newer[0].id), ("turn.started", kept), "no word when nothing is missing");
        let all = daemon.event_stream("/v1/events?follow=false&after=0", &[]).await.rest().await;
        assert_eq!(of_kind(&all, "log.compacted").len(), 1);
        assert_eq!((all[0].kind.as_str(), all[0].id), ("log.compacted", 0));
        let complete_from = all[0].payload()["completeFrom"].as_i64().unwrap();
        assert_eq!(of_kind(&all_before, "turn.started")[2].id, complete_from);
        assert_no_silent_hole(&all, 0);
        daemon.restart().await;
    }
    let shown = daemon.cli(&["attach", "--no-follow", &session]).await;
    assert!(shown.stdout.contains("turn 0") && shown.stdout.contains("turn 3"), "messages fill the gap: {shown:?}");
}

#[tokio::test]
async fn it_happens_by_itself_when_it_is_quiet() {
    let daemon = start(1, "1ms").await;
    let session = daemon.create_session("talkative").await;
    for number in 0..3 {
        daemon.prompt_and_wait(&session, &format!("turn {number}")).await;
    }
    let events = daemon.events_so_far(&session, None).await;
    let kept = of_kind(&events, "turn.started")[2].id;
    within("the compaction of old turns", async {
        while daemon.sql_number(format!("{DELTAS} AND sequence < {kept}")).await > 0 {
            tokio::task::yield_now().await;
        }
        while daemon.sql_number("SELECT count(*) FROM message_index_docsize".to_owned()).await
            < i64::try_from(daemon.messages(&session).await.len()).unwrap()
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(daemon.sql_number(format!("{DELTAS} AND sequence > {kept}")).await > 0, "the last turn stays as it is");
}

#[tokio::test]
async fn a_reader_in_the_middle_is_told_before_the_first_hole() {
    const CHUNKS: usize = 3000;
    // Chunks so large that they are neither merged into few nor wait in the kernel's buffers as a whole.
    let chunk = format!("{}{{}}", "x".repeat(2000));
    let script = json!([{"handshake": {}}, {"prompt": [{"flood": {"count": CHUNKS, "text": chunk}}]},
        {"repeat": [{"prompt": [{"text": "short"}]}]}]);
    let settings = settings(1, "1h");
    let daemon = Daemon::builder().config(&settings).agent("flood", script).start().await;
    let session = daemon.create_session("flood").await;
    daemon.prompt_and_wait(&session, "go").await;
    daemon.prompt_and_wait(&session, "again").await;
    let mut slow = daemon.events(&session, None).await;
    let mut slow_of_all = daemon.event_stream("/v1/events?after=0", &[]).await;
    let mut events = slow.until("message.delta").await;
    let mut events_of_all = slow_of_all.until("message.delta").await;
    assert!(of_kind(&events, "log.compacted").is_empty());
    assert!(gc(&daemon).await["deltasRemoved"].as_u64().unwrap() > 0);
    let ends = |events: &[Event]| of_kind(events, "turn.completed").len();
    while ends(&events) < 2 {
        events.extend(slow.until("turn.completed").await);
    }
    while ends(&events_of_all) < 2 {
        events_of_all.extend(slow_of_all.until("turn.completed").await);
    }
    assert_no_silent_hole(&events, 0);
    assert_eq!(of_kind(&events, "log.compacted").len(), 1);
    assert_no_silent_hole(&events_of_all, 0);
    assert_eq!(of_kind(&events_of_all, "log.compacted").len(), 1);
    assert_ne!(events[0].kind, "log.compacted", "it was in the middle");
}

#[tokio::test]
async fn a_running_turn_is_never_touched_and_its_text_is_recovered() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "so far "}, {"text": "so good"}]}], "times": 1},
        {"expect": "session/prompt"}, {"thought": "over "}, {"text": "half an answer"}, {"gate": "middle"}, {"hang": true}]);
    let mut daemon = Daemon::builder().config(&settings(0, "1h")).agent("halting", script).start().await;
    let session = daemon.create_session("halting").await;
    daemon.prompt_and_wait(&session, "one").await;
    let accepted = daemon.prompt(&session, "two").await;
    let _passage = daemon.gate("halting").reached("middle").await;
    let mut stream = daemon.events(&session, None).await;
    stream.until_event("the text", |event| event.payload()["text"] == "half an answer").await;
    gc(&daemon).await;
    let events = daemon.events_so_far(&session, None).await;
    let started = of_kind(&events, "turn.started")[1].id;
    let deltas = of_kind(&events, "message.delta");
    assert!(!deltas.is_empty() && deltas.iter().all(|event| event.id > started), "{deltas:?}");
    daemon.kill().await;
    daemon.restart().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "interrupted");
    let messages = daemon.messages(&session).await;
    let partial = messages.iter().find(|message| message["content"]["text"] == "half an answer").unwrap();
    assert_eq!(partial["content"]["partial"], true);
    gc(&daemon).await;
    assert_eq!(daemon.sql_number(DELTAS.to_owned()).await, 0, "with 0, all that is finished is compacted");
    assert_eq!(daemon.messages(&session).await, messages);
}

#[tokio::test]
async fn fewer_replayable_turns_hold_for_old_sessions_too() {
    let mut daemon = start(20, "1h").await;
    let session = daemon.create_session("talkative").await;
    for number in 0..3 {
        daemon.prompt_and_wait(&session, &format!("turn {number}")).await;
    }
    assert_eq!(gc(&daemon).await["deltasRemoved"], 0);
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), config.replace("replay_turns = 20", "replay_turns = 1")).unwrap();
    daemon.restart().await;
    assert!(gc(&daemon).await["deltasRemoved"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn space_is_given_back() {
    let daemon =
        Daemon::builder().config("[store]\njournal_max = \"64KiB\"\n").agent("echo", harness::echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, &"large ".repeat(100_000)).await;
    gc(&daemon).await;
    daemon.delete(&format!("/v1/sessions/{session}?purge=true")).await.expect_status(200);
    let report = gc(&daemon).await;
    let bytes = |field: &str| report[field].as_u64().unwrap();
    assert!(bytes("bytesAfter") + 1_000_000 < bytes("bytesBefore"), "{report}");
    let journal = std::fs::metadata(daemon.state_dir().join("acpd.db-wal")).unwrap();
    assert!(journal.len() <= 64 << 10, "{}", journal.len());
}
