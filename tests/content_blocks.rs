//! Prompts of every kind of block: checked, kept once by hash, given to the agent whole, and gone with the last session
//! that refers to them. And what an agent says that is no text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::{Daemon, Heard};
use serde_json::{Value, json};

const PICTURE: &str = "a picture, as far as anybody here can tell";

fn all_capabilities() -> Value {
    json!({"promptCapabilities": {"image": true, "audio": true, "embeddedContext": true}})
}

fn script(capabilities: &Value, prompt: &Value) -> Value {
    json!([{"record": true}, {"handshake": {"capabilities": capabilities}}, {"repeat": [{"prompt": prompt}]}])
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn image(text: &str) -> Value {
    json!({"type": "image", "data": encoded(text), "mimeType": "image/png"})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn prompts(heard: &[Heard]) -> Vec<Value> {
    let prompts = heard.iter().filter(|heard| heard.method == "session/prompt");
    prompts.map(|heard| heard.params["prompt"].clone()).collect()
}

async fn prompt_and_wait(daemon: &Daemon, session: &str, content: &Value) -> Value {
    let path = format!("/v1/sessions/{session}/prompt");
    let accepted = daemon.post(&path, json!({"content": content})).await.expect_status(202);
    daemon.wait_turn(session, accepted["turnId"].as_str().unwrap()).await
}

async fn rows(daemon: &Daemon, table: &str) -> i64 {
    daemon.sql_number(format!("SELECT count(*) FROM {table}")).await
}

#[tokio::test]
async fn every_kind_of_block_reaches_the_agent_whole_and_is_kept_once() {
    let daemon = Daemon::builder().agent("able", script(&all_capabilities(), &json!([{"text": "ok"}]))).start().await;
    let content = json!([
        {"type": "text", "text": "look", "annotations": {"priority": 1.0}},
        {"type": "image", "data": encoded(PICTURE), "mimeType": "image/png", "uri": "file:///p.png", "_meta": {"a": 1}},
        {"type": "audio", "data": encoded("a sound"), "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "title": "A", "size": 3},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "hello", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "file:///b.html", "blob": encoded("<b>"), "mimeType": "text/html"}},
    ]);
    let first = daemon.create_session("able").await;
    let second = daemon.create_session("able").await;
    for session in [&first, &second] {
        assert_eq!(prompt_and_wait(&daemon, session, &content).await["status"], "completed");
    }
    assert_eq!(prompts(&daemon.heard("able")), [content.clone(), content], "the agent gets what was sent");
    let shown = daemon.session(&first).await;
    assert_eq!(shown["promptCapabilities"], all_capabilities()["promptCapabilities"]);
    assert_eq!(shown["title"], "look");

    let messages = daemon.messages(&first).await;
    let blocks = &messages[0]["content"]["blocks"];
    assert_eq!((&blocks[1]["size"], &blocks[1]["uri"]), (&json!(PICTURE.len()), &json!("file:///p.png")));
    assert_eq!(blocks[1]["_meta"], json!({"a": 1}));
    assert!(blocks[1]["data"].is_null() && blocks[5]["resource"]["blob"].is_null(), "{blocks}");
    assert_eq!(rows(&daemon, "blobs").await, 3, "each is kept once");

    let picture = format!("/v1/blobs/{}", blocks[1]["sha256"].as_str().unwrap());
    let page = format!("/v1/blobs/{}", blocks[5]["resource"]["sha256"].as_str().unwrap());
    let fetched = daemon.get(&picture).await;
    assert_eq!((fetched.status, fetched.text.as_str()), (200, PICTURE));
    assert_eq!(fetched.header("content-type"), Some("image/png"));
    assert_eq!(fetched.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(fetched.header("content-disposition"), Some("attachment"));
    assert!(fetched.header("cache-control").is_some_and(|caching| caching.contains("immutable")));
    let tag = fetched.header("etag").unwrap().to_owned();
    let again = daemon.request_with("GET", &picture, &[("if-none-match", &tag)], None).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert_eq!(daemon.get(&page).await.header("content-type"), Some("application/octet-stream"));
    for nothing in ["/v1/blobs/nonsense".to_owned(), format!("/v1/blobs/{}", "f".repeat(64))] {
        assert_eq!(daemon.get(&nothing).await.expect_status(404)["error"], "blob_not_found");
    }

    daemon.delete(&format!("/v1/sessions/{first}?purge=true")).await.expect_status(200);
    assert_eq!(daemon.get(&picture).await.status, 200, "another session refers to it");
    daemon.delete(&format!("/v1/sessions/{second}?purge=true")).await.expect_status(200);
    daemon.get(&picture).await.expect_status(404);
    assert_eq!((rows(&daemon, "blobs").await, rows(&daemon, "message_blobs").await), (0, 0));
}

#[tokio::test]
async fn bad_blocks_are_named_by_their_path_and_change_nothing() {
    let daemon = Daemon::builder()
        .config("[limits]\nmedia_max = \"1KiB\"\nprompt_max = \"1KiB\"")
        .agent("able", script(&all_capabilities(), &json!([{"text": "ok"}])))
        .start()
        .await;
    let session = daemon.create_session("able").await;
    let path = format!("/v1/sessions/{session}/prompt");
    for (block, field) in [
        (json!({"type": "hologram"}), "content[1].type"),
        (json!({"type": "image", "data": "%%", "mimeType": "image/png"}), "content[1].data"),
        (json!({"type": "image", "data": "AAEC"}), "content[1].mimeType"),
        (json!({"type": "audio", "data": "AAEC", "mimeType": "image/png"}), "content[1].mimeType"),
        (image(&"x".repeat(1025)), "content[1].data"),
        (json!({"type": "image", "data": "AAEC", "mimeType": "image/png", "sha256": "0"}), "content[1].sha256"),
        (json!({"type": "resource_link", "uri": "x:y"}), "content[1].name"),
        (json!({"type": "resource", "resource": {"uri": "x:y", "blob": "%"}}), "content[1].resource.blob"),
        (json!({"type": "resource", "resource": {"uri": "x:y", "text": "x".repeat(2000)}}), "content"),
    ] {
        let refused = daemon.post(&path, json!({"content": [image("fine"), block]})).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    assert_eq!(daemon.session(&session).await["turns"], 0);
    assert_eq!(rows(&daemon, "blobs").await, 0);
    let exactly = json!([image(&"x".repeat(1024))]);
    assert_eq!(prompt_and_wait(&daemon, &session, &exactly).await["status"], "completed");
    assert_eq!(daemon.session(&session).await["title"], "", "a picture gives no title");
}

#[tokio::test]
async fn what_the_agent_does_not_take_is_refused_or_fails_before_it_is_sent() {
    let script = script(&json!({"promptCapabilities": {"image": true}}), &json!([{"text": "ok"}]));
    let mut daemon = Daemon::builder().agent("half", script).start().await;
    let session = daemon.create_lazy_session("half").await;
    let sound = json!([text("hear"), {"type": "audio", "data": encoded("a sound"), "mimeType": "audio/wav"}]);
    assert!(daemon.session(&session).await["promptCapabilities"].is_null(), "nobody has asked the agent yet");

    let turn = prompt_and_wait(&daemon, &session, &sound).await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("unsupported_content")));
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.contains("content[1]") && message.contains("half") && message.contains("image"), "{message}");
    assert_eq!(turn["startedAt"], Value::Null);
    assert_eq!(prompt_and_wait(&daemon, &session, &json!([image(PICTURE)])).await["status"], "completed");
    assert_eq!(prompts(&daemon.heard("half")), [json!([image(PICTURE)])], "nothing of the other was sent");

    let path = format!("/v1/sessions/{session}/prompt");
    for _ in 0..2 {
        let refused = daemon.post(&path, json!({"content": sound})).await.expect_status(422);
        assert_eq!(refused["error"], "unsupported_content");
        assert_eq!(refused["details"]["field"], "content[1]");
        assert_eq!(refused["details"]["takes"], json!(["text", "resource_link", "image"]));
        // Known also when no process runs.
        daemon.kill().await;
        daemon.restart().await;
    }
    assert_eq!(daemon.session(&session).await["turns"], 2);
}

#[tokio::test]
async fn media_that_waits_is_in_the_record_and_survives_the_daemon() {
    let gated = json!([{"gate": "prompted"}, {"text": "ok"}]);
    let mut daemon = Daemon::builder().agent("able", script(&all_capabilities(), &gated)).start().await;
    let session = daemon.create_session("able").await;
    let path = format!("/v1/sessions/{session}/prompt");
    let gate = daemon.gate("able");
    for (round, graceful) in [false, true].into_iter().enumerate() {
        daemon.prompt(&session, "first").await;
        let held = gate.reached("prompted").await;
        let content = json!([text("later"), image(&format!("{PICTURE} {round}"))]);
        let accepted = daemon.post(&path, json!({"content": content})).await.expect_status(202);
        assert_eq!(accepted["position"], 1);
        if graceful {
            daemon.terminate().await;
        } else {
            daemon.kill().await;
        }
        drop(held);
        daemon.restart().await;
        if graceful {
            daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        }
        gate.reached("prompted").await.open().await;
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["status"], "completed", "{turn}");
        let heard = prompts(&daemon.heard("able"));
        let blocks = heard.last().unwrap().as_array().unwrap();
        assert_eq!(blocks[blocks.len() - 2..], content.as_array().unwrap()[..], "with its data");
    }
}

#[tokio::test]
async fn what_an_agent_shows_is_a_message_that_names_its_data() {
    let chunk = |content: Value| json!({"update": {"sessionUpdate": "agent_message_chunk", "content": content}});
    // More than an update may have, and not more than media may.
    let shot = "a shot".repeat(500);
    let steps = json!([
        {"text": "here: "},
        chunk(image(PICTURE)),
        {"text": "and done"},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "shot", "kind": "read",
            "status": "in_progress", "content": [{"type": "content", "content": image("half a shot")}]}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "rawOutput": {"shots": [image("another shot")]},
            "content": [{"type": "content", "content": image(&shot)}]}},
        chunk(image(&"x".repeat(5000))),
    ]);
    let daemon = Daemon::builder()
        .config("[limits]\nmedia_max = \"4KiB\"\npayload_max = \"2KiB\"")
        .agent("painter", script(&json!({}), &steps))
        .start()
        .await;
    let session = daemon.create_session("painter").await;
    daemon.prompt_and_wait(&session, "paint").await;
    let messages = daemon.messages(&session).await;
    let shown: Vec<(&str, &str)> = messages
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["content"]["type"].as_str().unwrap()))
        .collect();
    let expected = [
        ("user", "text"),
        ("agent", "text"),
        ("agent", "blocks"),
        ("agent", "text"),
        ("tool_call", "tool_call"),
        ("tool_result", "tool_result"),
    ];
    assert_eq!(shown, expected);
    let picture = &messages[2]["content"]["blocks"][0];
    let shown = &messages[5]["content"]["result"][0]["content"];
    for (block, text) in [(picture, PICTURE), (shown, &shot)] {
        assert_eq!(block["data"], Value::Null);
        let blob = daemon.get(&format!("/v1/blobs/{}", block["sha256"].as_str().unwrap())).await;
        assert_eq!((blob.status, blob.text.as_str()), (200, text));
    }
    let events = daemon.events_so_far(&session, None).await;
    let of_tools: Vec<_> = events.iter().filter(|event| event.kind.starts_with("tool.")).collect();
    let [started, completed] = of_tools[..] else { panic!("{of_tools:?}") };
    for (event, place, text) in [
        (started, "/update/content/0/content", "half a shot"),
        (completed, "/update/content/0/content", shot.as_str()),
        (completed, "/update/rawOutput/shots/0", "another shot"),
    ] {
        let payload = event.payload();
        let block = payload.pointer(place).unwrap_or_else(|| panic!("{payload}"));
        assert_eq!((&block["data"], &block["size"]), (&Value::Null, &json!(text.len())));
        let blob = daemon.get(&format!("/v1/blobs/{}", block["sha256"].as_str().unwrap())).await;
        assert_eq!((blob.status, blob.text.as_str()), (200, text), "an event names what can be fetched");
    }
    let update = events.iter().find(|event| event.kind == "agent.update").expect("what is too large is marked");
    assert_eq!(update.payload()["update"]["truncated"], true);
    let listed = daemon.cli(&["messages", &session]).await.success();
    assert!(listed.contains("[image image/png, 42 bytes, sha256 "), "{listed}");
}

#[tokio::test]
async fn the_command_line_attaches_files() {
    let daemon = Daemon::builder().agent("able", script(&all_capabilities(), &json!([{"text": "ok"}]))).start().await;
    std::fs::write(daemon.workspace().join("a picture.PNG"), PICTURE).unwrap();
    std::fs::write(daemon.workspace().join("notes 1.txt"), "hello").unwrap();
    let run = ["run", "--agent", "able", "--attach", "a picture.PNG", "--attach", "notes 1.txt", "look"];
    daemon.cli(&run).await.success();
    let uri = format!("file://{}/notes%201.txt", daemon.workspace().display());
    let link = json!({"type": "resource_link", "uri": uri, "name": "notes 1.txt", "size": 5});
    let expected = json!([text("look"), image(PICTURE), link]);
    assert_eq!(prompts(&daemon.heard("able")), [expected]);
    let attached = daemon.cli(&["attach", "-", "--no-follow"]).await;
    assert!(attached.stderr.contains("> [image image/png, 42 bytes, sha256 "), "{}", attached.stderr);
    let missing = daemon.cli(&["prompt", "-", "--attach", "nowhere.png", "look"]).await;
    assert_ne!(missing.code, 0);
    assert!(missing.stderr.contains("nowhere.png"), "{}", missing.stderr);
}

/// What the daemon holds in memory of its own, in bytes.
fn resident(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn media_that_waits_costs_no_memory() {
    const FIRST: usize = 5;
    const COUNT: usize = 15;
    const BYTES: usize = 2 << 20;
    let gated = json!([{"gate": "prompted"}, {"text": "ok"}]);
    let daemon = Daemon::builder().agent("able", script(&all_capabilities(), &gated)).start().await;
    let session = daemon.create_session("able").await;
    daemon.prompt(&session, "first").await;
    let _held = daemon.gate("able").reached("prompted").await;
    // The first ones grow the heap to what one request takes; the others must find that room again.
    let mut before = 0;
    for number in 0..COUNT {
        if number == FIRST {
            before = resident(&daemon);
        }
        let content = json!([image(&format!("{number:02}").repeat(BYTES / 2))]);
        daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"content": content})).await.expect_status(202);
    }
    let (after, added) = (resident(&daemon), (COUNT - FIRST) * BYTES);
    assert!(after < before + added / 2, "{before} bytes became {after} with {added} bytes of media in the queue");
}
