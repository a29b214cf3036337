//! Everybody who follows a log gets all of it, in order, from memory or from the store, however slow they are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHUNKS: usize = 5_000;

/// An agent that says a lot at every prompt.
fn flood() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"flood": {"count": CHUNKS, "text": "{} "}}]}]}])
}

/// What the flood says.
fn said() -> String {
    (0..CHUNKS).flat_map(|index| [index.to_string(), " ".to_owned()]).collect()
}

fn text_of(events: &[Event]) -> String {
    let deltas = events.iter().filter(|event| event.kind == "message.delta");
    deltas.map(|event| event.payload()["text"].as_str().unwrap()).collect()
}

#[track_caller]
fn assert_gapless(events: &[Event]) {
    for pair in events.windows(2) {
        assert_eq!(pair[1].id, pair[0].id + 1, "sequences have no gap");
    }
}

/// The same log, whoever reads it when.
#[track_caller]
fn assert_same(one: &[Event], other: &[Event]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert_eq!((one.id, &one.kind, &one.data), (other.id, &other.kind, &other.data));
    }
}

/// With next to no memory for it, readers go to and fro between the tail and the store.
#[tokio::test]
async fn many_readers_of_a_flood_get_the_same_log_whatever_is_in_memory() {
    for tail_max in ["1KiB", "1MiB"] {
        let config = format!("[store]\ntail_max = \"{tail_max}\"");
        let daemon = Daemon::builder().config(&config).agent("flood", flood()).start().await;
        let session = daemon.create_session("flood").await;
        let mut readers = Vec::new();
        for _ in 0..6 {
            readers.push(daemon.events(&session, Some(0)).await);
        }
        daemon.prompt(&session, "go").await;
        let mut logs = Vec::new();
        // One after the other: those that come last are far behind by then.
        for reader in &mut readers {
            logs.push(reader.until("turn.completed").await);
        }
        let stored = daemon.events_so_far(&session, Some(0)).await;
        for log in &logs {
            assert_gapless(log);
            assert_eq!(text_of(log), said());
            assert_same(log, &stored[..log.len()]);
        }
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_nobody_up_and_misses_nothing() {
    let daemon = Daemon::builder().config("[store]\ntail_max = \"64KiB\"").agent("flood", flood()).start().await;
    let session = daemon.create_session("flood").await;
    let mut stalled = daemon.events(&session, Some(0)).await;
    for _ in 0..3 {
        let turn = daemon.prompt_and_wait(&session, "go").await;
        assert_eq!(turn["status"], "completed");
    }
    for _ in 0..3 {
        let log = stalled.until("turn.completed").await;
        assert_gapless(&log);
        assert_eq!(text_of(&log), said());
    }
}

#[tokio::test]
async fn the_log_of_all_sessions_has_no_gap_either() {
    let daemon = Daemon::builder().config("[store]\ntail_max = \"8KiB\"").agent("flood", flood()).start().await;
    let (first, second) = (daemon.create_session("flood").await, daemon.create_session("flood").await);
    let mut all = daemon.event_stream("/v1/events?after=0", &[]).await;
    for session in [&first, &second] {
        daemon.prompt(session, "go").await;
    }
    let mut log = all.until("turn.completed").await;
    log.extend(all.until("turn.completed").await);
    assert_gapless(&log);
    for session in [&first, &second] {
        let own: Vec<Event> = log.iter().filter(|event| event.data["sessionId"] == session.as_str()).cloned().collect();
        assert_eq!(text_of(&own), said());
        let sequences: Vec<i64> = own.iter().map(|event| event.data["sequence"].as_i64().unwrap()).collect();
        assert_eq!(sequences, (1..=i64::try_from(own.len()).unwrap()).collect::<Vec<_>>());
    }
}

/// What nobody has seen yet of a tool call is told once, as it is then; the result is the last word all the same.
#[tokio::test]
async fn a_flood_of_tool_updates_becomes_few_events() {
    let update = |content: &str| {
        json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress",
            "content": [{"type": "content", "content": {"type": "text", "text": content}}]}})
    };
    let script = json!([{"handshake": {}}, {"prompt": [
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "make", "kind": "execute", "status": "pending"}},
        {"repeat": [update("half")], "times": 2_000},
        update("all"),
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}},
    ]}]);
    let daemon = Daemon::builder().agent("tool", script).start().await;
    let session = daemon.create_session("tool").await;
    let mut stream = daemon.events(&session, None).await;
    daemon.prompt(&session, "go").await;
    let events = stream.until("turn.completed").await;
    assert_gapless(&events);
    let of_kind = |kind: &str| events.iter().filter(|event| event.kind == kind).collect::<Vec<_>>();
    let updated = of_kind("tool.updated");
    assert!((1..1_000).contains(&updated.len()), "{} events of 2,001 updates", updated.len());
    let last = &updated.last().unwrap().payload()["update"];
    assert_eq!(last["content"][0]["content"]["text"], "all");
    assert_eq!((of_kind("tool.started").len(), of_kind("tool.completed").len()), (1, 1));
    let messages = daemon.messages(&session).await;
    let result = messages.iter().find(|message| message["role"] == "tool_result").unwrap();
    assert_eq!(result["content"]["result"][0]["content"]["text"], "all");
}

const PLACES: usize = 3;

/// A daemon with few places for streams, and a session with more events than fit a socket's buffer. Time alone drops no client.
async fn daemon_with_few_streams() -> (Daemon, String) {
    let flood = json!({"flood": {"count": CHUNKS, "text": format!("{} {{}} ", "x".repeat(200))}});
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [flood]}]}]);
    let config = format!("[control]\nstreams_per_user = {PLACES}\nwrite_timeout = \"1h\"\nheartbeat = \"1h\"");
    let daemon = Daemon::builder().config(&config).agent("flood", script).start().await;
    let session = daemon.create_session("flood").await;
    for _ in 0..2 {
        daemon.prompt_and_wait(&session, "go").await;
    }
    (daemon, session)
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_use_up_their_users_streams() {
    let (daemon, session) = daemon_with_few_streams().await;
    let path = format!("/v1/sessions/{session}/events");
    let mut stalled = Vec::new();
    for _ in 0..PLACES {
        let mut client = daemon.connect().await;
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: acpd\r\n\r\n").as_bytes()).await.unwrap();
        let mut first = [0; 15];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK", "it has a place, and reads no further");
        stalled.push(client);
    }
    let ended = format!("{path}?follow=false");
    let whole = within("the place of a stalled stream", async {
        loop {
            let reply = daemon.get(&ended).await;
            // It may take a moment until the daemon sees that a client does not read.
            if reply.status != 429 {
                return reply.text;
            }
        }
    })
    .await;
    assert_eq!(whole.matches("event: turn.completed\n").count(), 2);
    within("the end of the stalled one", async { while daemon.load_events("stalled").await == 0 {} }).await;
    let mut reader = daemon.events(&session, Some(0)).await;
    for _ in 0..2 {
        assert_gapless(&reader.until("turn.completed").await);
    }
    drop(stalled);
}

#[tokio::test]
async fn clients_that_read_keep_their_streams_and_waits_take_no_place() {
    let (daemon, session) = daemon_with_few_streams().await;
    let mut readers = Vec::new();
    for _ in 0..PLACES {
        let mut reader = daemon.events(&session, Some(0)).await;
        for _ in 0..2 {
            reader.until("turn.completed").await;
        }
        readers.push(reader);
    }
    daemon.get(&format!("/v1/sessions/{session}/events")).await.refused(429, "too_many_streams");
    assert_eq!(daemon.prompt_and_wait(&session, "go").await["status"], "completed", "a wait is no stream");
    for reader in &mut readers {
        assert_gapless(&reader.until("turn.completed").await);
    }
}
