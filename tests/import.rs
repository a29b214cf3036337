//! Sessions that were elsewhere go on here: exports of another daemon, and databases of the earlier application. Nothing of
//! them gains what this machine does not grant, nothing comes twice, and what is wrong changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::path::{Path, PathBuf};

use harness::{Daemon, Heard, ORDINARY, User, users};
use rusqlite::Connection;
use serde_json::{Value, json};

const FIRST: &str = "remember the word xylophone";
const SECOND: &str = "which word was it?";
const ANSWER: &str = "I keep the word zither";
const AT: &str = "2026-01-02T03:04:05.000Z";

/// An agent that cannot restore anything, and calls a tool in every turn.
fn mind() -> Value {
    let call = json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "call-1", "title": "look it up",
        "kind": "read", "rawInput": {"path": "notes"}}});
    let done = json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "found"}}]}});
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [call, done, {"text": ANSWER}]}]}])
}

async fn daemon() -> Daemon {
    Daemon::builder().agent("mind", mind()).start().await
}

fn last_prompt(daemon: &Daemon) -> Value {
    let prompts: Vec<Heard> =
        daemon.heard("mind").into_iter().filter(|heard| heard.method == "session/prompt").collect();
    prompts.last().unwrap().params["prompt"].clone()
}

/// What the daemon has, by the rows of its record.
async fn rows(daemon: &Daemon) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in ["sessions", "turns", "messages", "events", "blobs", "workspaces", "record_observations"] {
        counts.push(daemon.sql_number(format!("SELECT count(*) FROM {table}")).await);
    }
    counts
}

/// A session as it is exported.
async fn exported(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/v1/sessions/{id}/export?format=json")).await.expect_status(200)
}

fn write(daemon: &Daemon, name: &str, text: &str) -> String {
    let path = daemon.root().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A document that was written by nobody's daemon, of one turn with an answer.
fn document(workspace: &Path) -> Value {
    let (session, turn) = ("019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e", "019a8b1c-7f2e-7c3a-9d4e-000000000001");
    let profile = json!({"slug": "mind", "name": "mind", "command": "/bin/evil", "args": ["--all"], "envNames": [],
        "envPass": ["HOME"], "adapter": "generic", "clientFiles": true, "terminalCommands": ["*"]});
    json!({
        "format": "acpd.session",
        "version": 1,
        "session": {"id": session, "title": "a title", "tags": ["x"], "status": "active", "createdAt": AT,
            "updatedAt": AT, "lastActiveAt": AT, "workspace": workspace, "agent": profile,
            "permissions": {"mode": "ask"}, "context": {"fsScope": "sandboxed"}, "limits": {"turnCap": 9}},
        "turns": [{"id": turn, "sessionId": session, "status": "completed", "stopReason": "end_turn", "queuedAt": AT,
            "startedAt": AT, "finishedAt": AT}],
        "messages": [message(1, "user", &json!({"type": "text", "text": FIRST, "partial": false})),
            message(2, "agent", &json!({"type": "text", "text": ANSWER, "partial": false}))],
    })
}

fn message(sequence: u32, role: &str, content: &Value) -> Value {
    let id = format!("019a8b1c-7f2e-7c3a-9d4e-0000000001{sequence:02}");
    json!({"id": id, "sessionId": "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e", "sequence": sequence,
        "turnId": "019a8b1c-7f2e-7c3a-9d4e-000000000001", "role": role, "content": content, "toolCallId": null,
        "createdAt": AT})
}

fn without(mut message: Value, names: &[&str]) -> Value {
    for name in names {
        message.as_object_mut().unwrap().remove(*name);
    }
    message
}

#[tokio::test]
async fn a_session_goes_on_at_a_second_daemon_with_what_was_said_at_the_first() {
    let (first, mut second) = (daemon().await, daemon().await);
    let id = first.create_session("mind").await;
    assert_eq!(first.prompt_and_wait(&id, FIRST).await["status"], "completed");
    assert_eq!(first.prompt_and_wait(&id, "and more").await["status"], "completed");
    let document = exported(&first, &id).await;
    let file = write(&second, "session.json", &document.to_string());

    let arguments = ["import", &file, "--workspace", second.workspace().to_str().unwrap(), "--json"];
    let report = second.cli(&arguments).await.json();
    let messages = document["messages"].as_array().unwrap();
    assert_eq!(report["made"], json!({"sessions": 1, "turns": 2, "messages": messages.len(), "records": 0}));
    assert_eq!((&report["sessions"][0]["id"], &report["sessions"][0]["outcome"]), (&json!(id), &json!("made")));

    // All that clients see of a session is as it was.
    let (there, here) = (first.session(&id).await, second.session(&id).await);
    for name in ["title", "tags", "createdAt", "updatedAt", "lastActiveAt", "turns", "status", "limits", "usage"] {
        assert_eq!(there[name], here[name], "{name}");
    }
    assert_eq!((&here["processState"], &here["workspace"]), (&json!("stopped"), &json!(second.workspace())));
    let plain = |messages: &[Value]| messages.iter().map(|m| without(m.clone(), &["by"])).collect::<Vec<_>>();
    assert_eq!(plain(&second.messages(&id).await), plain(messages));
    let turns = |daemon: &Value| daemon["turns"].clone();
    let path = format!("/v1/sessions/{id}/turns");
    let (then, now) = (first.get(&path).await.expect_status(200), second.get(&path).await.expect_status(200));
    assert_eq!(turns(&then), turns(&now));

    // The log tells the same story in the same order, of which deltas and processes are no part.
    let story = |events: &[harness::Event]| {
        let told = events.iter().filter(|event| !event.kind.starts_with("process.") && event.kind != "message.delta");
        let told = told.filter(|event| !["session.updated", "tool.updated"].contains(&event.kind.as_str()));
        told.map(|event| event.kind.clone()).collect::<Vec<_>>()
    };
    let (then, now) = (first.events_so_far(&id, None).await, second.events_so_far(&id, None).await);
    let mut expected = story(&then);
    expected.retain(|kind| kind != "turn.started");
    let mut told = story(&now);
    told.retain(|kind| kind != "turn.started");
    assert_eq!(told, expected);
    let from = &now[0].payload()["importedFrom"];
    assert_eq!((&from["sessionId"], &from["agent"]), (&json!(id), &json!("mind")));

    let shown = second.cli(&["attach", &id, "--no-follow"]).await.success();
    assert!(shown.contains(ANSWER), "{shown}");
    let hits = second.get("/v1/search?q=xylophone").await.expect_status(200);
    assert_eq!(hits["total"], 1, "{hits}");

    // The agent knows what was said before, also after a restart.
    second.terminate().await;
    second.restart().await;
    second.post(&format!("/v1/sessions/{id}/resume"), json!({})).await.expect_status(200);
    assert_eq!(second.prompt_and_wait(&id, SECOND).await["status"], "completed");
    let heard = last_prompt(&second);
    let carried = heard[0]["text"].as_str().unwrap();
    for said in [FIRST, ANSWER, "and more", "look it up"] {
        assert!(carried.contains(said), "{said}: {carried}");
    }
    assert_eq!(heard[1]["text"], SECOND);
    let here = second.session(&id).await;
    assert_eq!((&here["contextRestored"], &here["turns"]), (&json!("replayed"), &json!(3)));
    let sequences: Vec<i64> = second.messages(&id).await.iter().map(|m| m["sequence"].as_i64().unwrap()).collect();
    assert!(sequences.windows(2).all(|pair| pair[1] == pair[0] + 1), "{sequences:?}");
}

#[tokio::test]
async fn importing_again_changes_nothing_and_says_so() {
    let daemon = daemon().await;
    let document = document(daemon.workspace());
    let file = write(&daemon, "session.json", &document.to_string());
    let told = daemon.cli(&["import", &file, "--dry-run"]).await.success();
    assert!(told.contains("to import: 1 session (1 turn, 2 messages); dry run"), "{told}");
    assert_eq!(rows(&daemon).await, [0; 7], "a dry run changes nothing");

    let dry = daemon.cli(&["import", &file, "--dry-run", "--json"]).await.json();
    let done = daemon.cli(&["import", &file, "--json"]).await.json();
    assert_eq!(dry["dryRun"], true);
    for name in ["made", "alreadyHere", "sessions"] {
        assert_eq!(dry[name], done[name], "{name}");
    }
    let before = rows(&daemon).await;
    let again = daemon.cli(&["import", &file, "--json"]).await.json();
    assert_eq!(again["made"], json!({"sessions": 0, "turns": 0, "messages": 0, "records": 0}));
    assert_eq!(again["alreadyHere"], json!({"sessions": 1, "turns": 1, "messages": 2, "records": 0}));
    assert!(daemon.cli(&["import", &file]).await.success().contains("already existed: 1 session"));

    // What is here is the session now, whatever a later document says.
    let mut longer = document.clone();
    longer["session"]["title"] = json!("another");
    let more = message(3, "agent", &json!({"type": "text", "text": "more", "partial": false}));
    longer["messages"].as_array_mut().unwrap().push(more);
    let told = daemon.post("/v1/import", json!({"sessions": [longer]})).await.expect_status(200);
    let note = told["sessions"][0]["notes"][0].as_str().unwrap();
    assert!(note.contains("here with 2 messages, and the document has 3"), "{note}");
    assert_eq!(rows(&daemon).await, before);
}

#[tokio::test]
async fn a_document_that_is_wrong_anywhere_changes_nothing() {
    let daemon = daemon().await;
    let good = document(daemon.workspace());
    let other = {
        let text = good.to_string();
        let text = text.replace("5f6a7b8c9d0e", "5f6a7b8c9d0f").replace("-0000000001", "-0000000002");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let before = rows(&daemon).await;
    let missing = daemon.root().join("nowhere");
    for (pointer, value, code, field) in [
        ("/version", json!(2), "invalid_request", "sessions[1]"),
        ("/format", json!("other"), "invalid_request", "sessions[1]"),
        ("/session/status", json!("completed"), "invalid_request", "sessions[1].session.status"),
        ("/session/title", json!("x".repeat(201)), "invalid_request", "sessions[1].session.title"),
        ("/session/tags", json!(["a\u{7}"]), "invalid_request", "sessions[1].session.tags"),
        ("/session/agent/slug", json!("nobody"), "agent_not_found", "sessions[1].session.agent"),
        ("/session/workspace", json!(missing), "workspace_missing", "sessions[1].session.workspace"),
        ("/session/workspace", json!("/etc"), "outside_roots", "sessions[1].session.workspace"),
        ("/session/workspace", json!("here"), "invalid_request", "sessions[1].session.workspace"),
        ("/session/id", good["session"]["id"].clone(), "invalid_request", "sessions[1].turns[0].sessionId"),
        ("/turns/0/status", json!("done"), "invalid_request", "sessions[1].turns[0].status"),
        ("/messages/0/role", json!("robot"), "invalid_request", "sessions[1].messages[0].role"),
        ("/messages/0/content", json!({"type": "video"}), "invalid_request", "sessions[1].messages[0].content"),
        ("/messages/0/content/text", json!("x".repeat(3 << 20)), "invalid_request", "sessions[1].messages[0].content"),
        ("/messages/1/sequence", json!(1), "invalid_request", "sessions[1].messages[1].sequence"),
        ("/messages/1/turnId", good["session"]["id"].clone(), "invalid_request", "sessions[1].messages[1].turnId"),
        ("/messages/1/id", other["messages"][0]["id"].clone(), "invalid_request", "sessions[1].messages[1].id"),
    ] {
        let mut wrong = other.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let reply = daemon.post("/v1/import", json!({"sessions": [good, wrong]})).await;
        let status = reply.status;
        let refused = reply.refused(status, code);
        assert_eq!(refused["details"]["field"], field, "{pointer}: {refused}");
        assert_eq!(rows(&daemon).await, before, "{pointer}");
    }
    let blob = json!({"sha256": "a".repeat(64), "size": 1, "data": "AA=="});
    let mut wrong = other.clone();
    wrong["blobs"] = json!([blob]);
    let refused = daemon.post("/v1/import", json!({"sessions": [wrong]})).await.refused(400, "invalid_request");
    assert_eq!(refused["details"]["field"], "sessions[0].blobs[0].data");
    let refused = daemon.post("/v1/import", json!({"session": []})).await.refused(400, "invalid_request");
    assert_eq!(refused["details"]["field"], "session");
    assert_eq!(rows(&daemon).await, before);

    // A person is told which file it is, and what to do.
    let mut wrong = other;
    wrong["session"]["workspace"] = json!(missing);
    let file = write(&daemon, "moved.json", &wrong.to_string());
    let told = daemon.cli(&["import", &file]).await;
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(
        told.stderr.contains("moved.json: session.workspace") && told.stderr.contains("--workspace"),
        "{}",
        told.stderr
    );
    let file = write(&daemon, "broken.json", "{\"format\": \"acpd.session\"");
    let told = daemon.cli(&["import", &file]).await;
    assert!(told.code == 1 && told.stderr.contains("broken.json"), "{}", told.stderr);
    assert_eq!(rows(&daemon).await, before);
}

#[tokio::test]
async fn a_document_gains_nothing_that_this_machine_does_not_grant() {
    let daemon =
        Daemon::builder().agent_with("mind", mind(), "permissions = \"ask\"\nfs_scope = \"sandboxed\"").start().await;
    let mut document = document(daemon.workspace());
    let session = &mut document["session"];
    session["permissions"] = json!({"mode": "allow", "rules": [{"decision": "allow", "kinds": ["execute"]}]});
    session["context"] = json!({"fsScope": "full", "activeFile": "../../etc/passwd"});
    session["mcpServers"] = json!([{"name": "own", "type": "stdio", "command": "/bin/evil", "args": []}, "unknown"]);
    session["chosen"] = json!({"mode": "yolo"});
    let reply = daemon.post("/v1/import", json!({"sessions": [document]})).await;
    let report = reply.expect_status(200);
    let notes = report["sessions"][0]["notes"].to_string();
    for told in ["permissions", "scope", "context", "MCP servers", "allow more"] {
        assert!(notes.contains(told), "{told}: {notes}");
    }
    let here = daemon.session(document["session"]["id"].as_str().unwrap()).await;
    assert_eq!(here["permissions"]["mode"], "ask");
    assert_eq!(here["context"]["fsScope"], "sandboxed");
    assert!(here["context"].get("activeFile").is_none() && here.get("mcpServers").is_none(), "{here}");
    assert!(here.get("mode").is_none(), "{here}");
    let profile = &here["profile"];
    assert!(!profile.to_string().contains("evil") && profile["terminalCommands"] == json!([]), "{profile}");
    assert_eq!(here["limits"]["turnCap"], 9, "its own limits only narrow");
}

#[tokio::test]
async fn turns_that_were_not_over_are_interrupted_and_final_statuses_stay() {
    let daemon = daemon().await;
    let mut document = document(daemon.workspace());
    document["session"]["status"] = json!("suspended");
    document["turns"][0]["status"] = json!("running");
    document["turns"][0].as_object_mut().unwrap().remove("finishedAt");
    let queued = json!({"id": "019a8b1c-7f2e-7c3a-9d4e-000000000002", "sessionId": document["session"]["id"],
        "status": "queued", "queuedAt": AT});
    document["turns"].as_array_mut().unwrap().push(queued);
    let mut waiting = message(3, "user", &json!({"type": "text", "text": "and then?", "partial": false}));
    waiting["turnId"] = json!("019a8b1c-7f2e-7c3a-9d4e-000000000002");
    document["messages"].as_array_mut().unwrap().push(waiting);
    let mut archived: Value = serde_json::from_str(
        &document.to_string().replace("5f6a7b8c9d0e", "5f6a7b8c9d0f").replace("-0000000001", "-0000000003"),
    )
    .unwrap();
    archived["session"]["status"] = json!("archived");
    let report = daemon.post("/v1/import", json!({"sessions": [document, archived]})).await.expect_status(200);
    assert_eq!(report["sessions"][0]["notes"], json!(["turns that were still open are now interrupted: 2"]));
    let id = document["session"]["id"].as_str().unwrap();
    let turns = daemon.get(&format!("/v1/sessions/{id}/turns")).await.expect_status(200);
    for turn in turns["turns"].as_array().unwrap() {
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("interrupted"), &json!("interrupted")));
    }
    assert_eq!(daemon.session(id).await["status"], "suspended");
    daemon.post(&format!("/v1/sessions/{id}/resume"), json!({})).await.expect_status(200);
    let archived = daemon.session(archived["session"]["id"].as_str().unwrap()).await;
    assert_eq!(archived["status"], "archived");
    assert_ne!(archived["statusChangedAt"], AT, "how long it is kept is counted from now");
    assert_eq!(archived["updatedAt"], AT);
    assert_eq!(daemon.prompt_and_wait(id, SECOND).await["status"], "completed");
    assert!(last_prompt(&daemon)[0]["text"].as_str().unwrap().contains("and then?"));
}

#[tokio::test]
async fn media_comes_along_and_is_what_its_hash_says() {
    let daemon = daemon().await;
    let mut document = document(daemon.workspace());
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let image = json!({"type": "image", "mimeType": "image/png", "size": 3, "sha256": hash});
    document["messages"][0]["content"] = json!({"type": "blocks", "blocks": [image]});
    document["blobs"] = json!([{"sha256": hash, "size": 3, "mimeType": "image/png", "data": "YWJj"}]);
    let result = json!({"type": "tool_result", "status": "completed", "error": null,
        "result": [{"type": "content", "content": image}]});
    let mut told = message(3, "tool_result", &result);
    told["toolCallId"] = json!("c");
    document["messages"].as_array_mut().unwrap().push(told);
    daemon.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);
    let blob = daemon.get(&format!("/v1/blobs/{hash}")).await;
    assert_eq!((blob.status, blob.text.as_str()), (200, "abc"));
    assert_eq!(daemon.sql_number("SELECT count(*) FROM message_blobs".to_owned()).await, 2);
}

#[tokio::test]
async fn what_one_user_imports_is_theirs_alone() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only a daemon of root serves several users");
    }
    let daemon = Daemon::builder().owner(ORDINARY).agent("mind", mind()).start().await;
    let stranger = daemon.as_user(User { uid: 1, gid: 1 }, &[ORDINARY.gid]);
    let member = daemon.as_user(ORDINARY, &[]);
    let body = json!({"sessions": [document(daemon.workspace())]});
    let made = member.post("/v1/import", body.clone()).await.expect_status(200);
    let id = made["sessions"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{id}");
    assert_eq!(member.get(&path).await.expect_status(200)["owner"], ORDINARY.uid);
    stranger.get(&path).await.refused(404, "session_not_found");
    assert_eq!(stranger.get("/v1/search?q=xylophone").await.expect_status(200)["total"], 0);

    // Root has the same document, and a session of its own.
    let own = daemon.post("/v1/import", body.clone()).await.expect_status(200);
    let (root_id, outcome) = (&own["sessions"][0]["id"], &own["sessions"][0]["outcome"]);
    assert!(*root_id != json!(id) && outcome == "made", "{own}");
    stranger.get(&format!("/v1/sessions/{}", root_id.as_str().unwrap())).await.refused(404, "session_not_found");
    for again in [daemon.post("/v1/import", body.clone()).await, member.post("/v1/import", body.clone()).await] {
        assert_eq!(again.expect_status(200)["alreadyHere"]["sessions"], 1);
    }
    assert_eq!(daemon.sql_number("SELECT count(*) FROM sessions".to_owned()).await, 2);
    let hits = member.get("/v1/search?q=xylophone").await.expect_status(200);
    assert_eq!(hits["total"], 1, "root's is not theirs: {hits}");
}

#[tokio::test]
async fn an_import_has_a_bound_of_its_own() {
    let config = "[control]\nbody_max = \"64KiB\"\nimport_max = \"1MiB\"";
    let daemon = Daemon::builder().config(config).agent("mind", mind()).start().await;
    let mut document = document(daemon.workspace());
    document["messages"][0]["content"]["text"] = json!("x".repeat(200 << 10));
    daemon.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);
    document["messages"][0]["content"]["text"] = json!("x".repeat(2 << 20));
    let refused = daemon.post("/v1/import", json!({"sessions": [document]})).await.refused(413, "body_too_large");
    assert!(refused["hint"].as_str().unwrap().contains("control.import_max"), "{refused}");
    document["observations"] = json!(vec![json!([]); 100_000]);
    document["messages"] = json!([]);
    let refused = daemon.post("/v1/import", json!({"sessions": [document]})).await.refused(400, "invalid_request");
    assert!(refused["message"].as_str().unwrap().contains("brackets"), "{refused}");
}

fn record(session: &str, at: &str) -> Value {
    json!({"session_id": session, "actions": [{"type": "edit", "result": "success", "timestamp": at}],
        "checkpoints": [{"name": "half", "timestamp": at}], "outcomes": [{"type": "pr", "id": "pr-7"}],
        "duration": 60, "started_at": at, "ended_at": "2026-01-02T03:05:05Z"})
}

#[tokio::test]
async fn a_directory_of_session_records_becomes_records() {
    let daemon = daemon().await;
    let directory = daemon.root().join("sessions");
    std::fs::create_dir(&directory).unwrap();
    let put = |name: &str, value: &Value| std::fs::write(directory.join(name), value.to_string()).unwrap();
    put("a.json", &record("cursor-one", AT));
    put("b.json", &record("cursor-two", AT));
    put("c.json", &record("cursor-two", "2026-01-02T03:00:06Z"));
    put("d.json", &record("cursor-two", AT));
    put("export.json", &document(daemon.workspace()));
    put("notes.txt", &json!("not looked at"));
    let path = directory.to_str().unwrap();
    let dry = daemon.cli(&["import", path, "--dry-run", "--json"]).await.json();
    assert_eq!(rows(&daemon).await, [0; 7]);
    let told = daemon.cli(&["import", path]).await.success();
    let summary = "imported: 1 session (1 turn, 2 messages), 3 records; already existed: 1 record";
    assert!(told.contains(summary) && told.contains("cursor-two: "), "{told}");
    assert_eq!(dry["made"], json!({"sessions": 1, "turns": 1, "messages": 2, "records": 3}));
    let two = daemon.get("/v1/records/cursor-two").await.expect_status(200);
    assert_eq!(two["observations"].as_array().unwrap().len(), 2, "{two}");
    let before = rows(&daemon).await;
    let again = daemon.cli(&["import", path, "--json"]).await.json();
    assert_eq!(again["made"], json!({"sessions": 0, "turns": 0, "messages": 0, "records": 0}));
    assert_eq!(rows(&daemon).await, before);

    // Files that cannot be imported are named with the reason. The others are imported.
    put("e.json", &record("cursor-three", AT));
    let mut wrong = record("cursor-four", AT);
    wrong["actions"][0].as_object_mut().unwrap().remove("result");
    put("f.json", &wrong);
    put("other.json", &json!({"neither": 1}));
    std::fs::write(directory.join("h.json"), "{").unwrap();
    let output = daemon.cli(&["import", path]).await;
    let told = [
        "imported: 1 record",
        "f.json is neither an export nor a session record: actions[0].result is missing",
        "other.json is neither an export nor a session record: Actions array must have at least 1 item",
        "h.json is not a JSON object",
    ];
    let text = format!("{}{}", output.stdout, output.stderr);
    assert!(output.code == 1 && told.iter().all(|part| text.contains(part)), "{text}");
    daemon.get("/v1/records/cursor-three").await.expect_status(200);
    let before = rows(&daemon).await;
    for (file, told) in [("f.json", told[1]), ("other.json", told[2])] {
        let output = daemon.cli(&["import", directory.join(file).to_str().unwrap()]).await;
        assert!(output.code == 1 && output.stderr.contains(told), "{}", output.stderr);
    }
    assert_eq!(rows(&daemon).await, before);
}

/// The layout of `.cursor/memory/sessions`.
#[tokio::test]
async fn the_session_files_of_an_agents_memory_become_records() {
    let daemon = daemon().await;
    let directory = daemon.workspace().join(".cursor/memory/sessions");
    std::fs::create_dir_all(&directory).unwrap();
    let whole = record("abc123", AT);
    std::fs::write(directory.join("session-abc123.json"), whole.to_string()).unwrap();
    let bare = json!({"actions": [
        {"type": "run_tests", "result": "passed", "timestamp": "2026-01-02T03:04:07+00:00"},
        {"type": "deploy", "result": "failure", "details": {"to": "staging"}},
    ], "checkpoints": [{"name": "half", "timestamp": "2026-01-02T03:04:06Z"}]});
    std::fs::write(directory.join("session-def456.json"), bare.to_string()).unwrap();
    let begun = json!({"session_id": "ghi789", "actions": [], "checkpoints": []});
    std::fs::write(directory.join("session-ghi789.json"), begun.to_string()).unwrap();
    std::fs::write(directory.join("session-abc123.md"), "# What happened").unwrap();

    let output = daemon.cli(&["import", directory.to_str().unwrap()]).await;
    assert_eq!(output.code, 1, "one was skipped: {}", output.stderr);
    assert!(output.stdout.contains("imported: 2 records"), "{}", output.stdout);
    assert!(output.stderr.contains("session-ghi789.json") && !output.stderr.contains(".md"), "{}", output.stderr);
    let stored = daemon.get("/v1/records/abc123").await.expect_status(200);
    assert_eq!(stored["snapshot"], whole);
    let stored = daemon.get("/v1/records/def456").await.expect_status(200)["snapshot"].clone();
    assert_eq!((&stored["session_id"], &stored["actions"]), (&json!("def456"), &bare["actions"]));
    assert_eq!(stored["started_at"], "2026-01-02T03:04:06.000Z", "the earliest time in it");
    daemon.get("/v1/records/ghi789").await.refused(404, "record_not_found");
    let timeline = daemon.get("/v1/timeline?entity=pr-7").await.expect_status(200);
    assert_eq!(timeline["total"], 4, "{timeline}");
}

#[tokio::test]
async fn a_record_in_an_export_of_an_earlier_version_is_imported() {
    let daemon = daemon().await;
    let mut document = document(daemon.workspace());
    let id = document["session"]["id"].clone();
    let early = json!({"session_id": id, "actions": [{"type": "a", "result": "b", "details": "text"}],
        "checkpoints": [{"name": "half", "timestamp": AT, "state": [1]}], "outcomes": [{"type": "issue", "id": 7}]});
    daemon.post("/v1/import", json!({"records": [early]})).await.refused(400, "invalid_request");
    document["observations"] = json!([early]);
    daemon.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);
    let stored = daemon.get(&format!("/v1/records/{}", id.as_str().unwrap())).await.expect_status(200);
    assert_eq!(stored["observations"][0]["content"], early);
    let timeline = daemon.get("/v1/timeline?entity=7").await.expect_status(200);
    assert_eq!(timeline["timeline"][2]["outcome"]["id"], 7, "{timeline}");
}

#[tokio::test]
async fn checkpoints_and_records_come_with_their_session() {
    let daemon = daemon().await;
    let mut document = document(daemon.workspace());
    let id = document["session"]["id"].as_str().unwrap().to_owned();
    document["checkpoints"] = json!([{"name": "half", "state": {"a": 1}, "createdAt": AT}]);
    document["observations"] = json!([record(&id, AT)]);
    daemon.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);
    let checkpoint = daemon.get(&format!("/v1/sessions/{id}/checkpoints/half")).await.expect_status(200);
    assert_eq!((&checkpoint["state"], &checkpoint["createdAt"]), (&json!({"a": 1}), &json!(AT)));
    let record = daemon.get(&format!("/v1/sessions/{id}/record")).await.expect_status(200);
    assert_eq!(record["outcomes"][0]["id"], "pr-7", "{record}");
    let before = rows(&daemon).await;
    for (pointer, value, field) in [
        ("/checkpoints/0/name", json!("a\nb"), "sessions[0].checkpoints[0].name"),
        ("/checkpoints/0/state", json!("x".repeat(2 << 20)), "sessions[0].checkpoints[0].state"),
        ("/observations/0/session_id", json!("x"), "sessions[0].observations[0].session_id"),
    ] {
        let text = document.to_string();
        let text = text.replace("5f6a7b8c9d0e", "5f6a7b8c9d0f").replace("-0000000001", "-0000000002");
        let mut wrong: Value = serde_json::from_str(&text).unwrap();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let told = daemon.post("/v1/import", json!({"sessions": [wrong]})).await.refused(400, "invalid_request");
        assert_eq!(told["details"]["field"], field, "{told}");
        assert_eq!(rows(&daemon).await, before);
    }
}

const INSTRUCTIONS: &str = "You are brief.\nYou are kind.";
const PICTURE: &str = "iVBORw0KGgo=";

/// As [`mind`], with eyes; and a profile of the API with instructions and an MCP server of its own.
async fn kind_daemon() -> Daemon {
    let mut script = mind();
    script[1] = json!({"handshake": {"capabilities": {"promptCapabilities": {"image": true}}}});
    let daemon = Daemon::builder().agent_with("mind", script, "mcp_servers_allowed = true").start().await;
    let own = json!({"name": "own", "command": "/bin/true", "env": {}});
    let body = json!({"slug": "kind", "base": "mind", "systemPrompt": INSTRUCTIONS, "temperature": 0.5,
        "mcpServers": [own]});
    daemon.post("/v1/agents", body).await.expect_status(201);
    daemon
}

#[tokio::test]
async fn all_that_a_session_has_survives_a_round_trip() {
    let (first, second, third) = (kind_daemon().await, kind_daemon().await, kind_daemon().await);
    let id = first.create_session("kind").await;
    let image = json!({"type": "image", "data": PICTURE, "mimeType": "image/png"});
    let body = json!({"content": [{"type": "text", "text": FIRST}, image]});
    let accepted = first.post(&format!("/v1/sessions/{id}/prompt"), body).await.expect_status(202);
    first.wait_turn(&id, accepted["turnId"].as_str().unwrap()).await;
    let checkpoints = format!("/v1/sessions/{id}/checkpoints");
    // Numbers are kept to the letter.
    let states = ["{\"huge\":1e400,\"exact\":12345678901234567890123}", "null", "[1.10]"];
    for (index, state) in states.iter().enumerate() {
        let body = format!("{{\"name\":\"step {index}\",\"state\":{state}}}");
        assert_eq!(first.raw_request("POST", &checkpoints, "application/json", body).await.status, 201);
    }
    assert_eq!(first.prompt_and_wait(&id, "and more").await["status"], "completed");
    for at in [AT, "2026-01-02T03:04:06Z"] {
        first.post("/v1/records", record(&id, at)).await.expect_status(201);
    }

    let mut texts = Vec::new();
    let mut before = &first;
    for daemon in [&second, &third] {
        let file = daemon.root().join("session.json");
        let path = file.to_str().unwrap();
        before.cli(&["export", &id, "--output", path]).await.success();
        texts.push(std::fs::read_to_string(&file).unwrap());
        let workspace = daemon.workspace().to_str().unwrap();
        let report = daemon.cli(&["import", path, "--workspace", workspace, "--json"]).await.json();
        assert_eq!(report["sessions"][0].get("notes"), None, "{report}");
        before = daemon;
    }
    let path = format!("/v1/sessions/{id}/export?format=json");
    texts.push(third.get(&path).await.text);
    assert_eq!(third.get(&path).await.text, texts[2], "the same bytes");
    for text in &texts {
        assert!(states.iter().filter(|state| **state != "null").all(|state| text.contains(*state)), "{text}");
        assert!(text.contains(PICTURE), "{text}");
    }
    // What a parser of ours refuses is in there as it was.
    let documents: Vec<Value> =
        texts.iter().map(|text| serde_json::from_str(&text.replace("1e400", "\"1e400\"")).unwrap()).collect();
    assert_eq!(documents[0]["checkpoints"].as_array().unwrap().len(), 3);
    assert_eq!(documents[0]["observations"].as_array().unwrap().len(), 2);
    for (index, document) in documents.iter().enumerate() {
        for part in ["turns", "checkpoints", "observations", "blobs"] {
            assert_eq!(document[part], documents[0][part], "{part} of {index}");
        }
        let messages = |document: &Value| {
            let messages = document["messages"].as_array().unwrap();
            messages.iter().map(|message| without(message.clone(), &["by"])).collect::<Vec<_>>()
        };
        assert_eq!(messages(document), messages(&documents[0]), "{index}");
        for name in ["title", "status", "createdAt", "updatedAt", "lastActiveAt", "permissions", "mcpServers"] {
            assert_eq!(document["session"][name], documents[0]["session"][name], "{name} of {index}");
        }
    }
    assert_eq!(documents[0]["session"]["mcpServers"][0]["name"], "own", "{}", documents[0]["session"]);

    assert_eq!(third.prompt_and_wait(&id, SECOND).await["status"], "completed");
    let heard = last_prompt(&third);
    assert_eq!((&heard[0]["text"], &heard[2]["text"]), (&json!(INSTRUCTIONS), &json!(SECOND)), "{heard}");
    let carried = heard[1]["text"].as_str().unwrap();
    assert!([FIRST, ANSWER, "and more", "look it up"].iter().all(|said| carried.contains(said)), "{carried}");
    let record = third.get(&format!("/v1/sessions/{id}/record")).await.expect_status(200);
    assert_eq!(record["outcomes"][0]["id"], "pr-7", "{record}");
    let workflow = third.get(&format!("/v1/sessions/{id}/export?format=workflow")).await.text;
    assert!(!workflow.contains("temperature") && workflow.contains("agent_ref: kind"), "{workflow}");
}

#[tokio::test]
async fn a_session_that_goes_on_from_a_checkpoint_still_does_elsewhere() {
    let (first, second) = (daemon().await, daemon().await);
    let id = first.create_lazy_session("mind").await;
    let checkpoints = format!("/v1/sessions/{id}/checkpoints");
    first.post(&checkpoints, json!({"name": "half", "state": {"next": "harpsichord"}})).await.expect_status(201);
    let body = json!({"newSession": {"start": "lazy"}});
    let restored = first.post(&format!("{checkpoints}/half/restore"), body).await.expect_status(201);
    let id = restored["session"]["id"].as_str().unwrap();
    let mut document = exported(&first, id).await;
    document["session"]["workspace"] = json!(second.workspace());
    second.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);
    assert_eq!(second.prompt_and_wait(id, SECOND).await["status"], "completed");
    let heard = last_prompt(&second);
    assert!(heard.to_string().contains("harpsichord"), "{heard}");
}

#[tokio::test]
async fn records_are_of_the_session_under_whatever_id_it_comes_and_also_those_from_before() {
    let daemon = daemon().await;
    let document = document(daemon.workspace());
    let id = document["session"]["id"].as_str().unwrap().to_owned();
    let early = record(&id, "2026-01-02T03:00:00Z");
    daemon.post("/v1/records", early.clone()).await.expect_status(201);
    let mut told = document.clone();
    told["observations"] = json!([record(&id, AT)]);
    daemon.post("/v1/import", json!({"sessions": [told]})).await.expect_status(200);
    let list = daemon.get("/v1/records").await.expect_status(200);
    assert_eq!(list["total"], 1, "one session is one entity: {list}");
    assert_eq!(exported(&daemon, &id).await["observations"], json!([early, record(&id, AT)]));
    daemon.post("/v1/records", record(&id, "2026-01-02T03:00:01Z")).await.expect_status(201);
    let shown = daemon.get(&format!("/v1/records/{id}")).await.expect_status(200);
    assert_eq!((&shown["entity_id"], &shown["observation_count"]), (&json!(id), &json!(3)));
    let timeline = daemon.get("/v1/timeline?entity=pr-7").await.expect_status(200);
    let sessions: Vec<&Value> =
        timeline["timeline"].as_array().unwrap().iter().map(|item| &item["session_id"]).collect();
    assert!(!sessions.is_empty() && sessions.iter().all(|session| **session == json!(id)), "{timeline}");

    // The messages are here already, in a session of another id.
    let other = "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9dff";
    let mut second: Value = serde_json::from_str(&document.to_string().replace(&id, other)).unwrap();
    second["observations"] = json!([record(other, AT)]);
    let made = daemon.post("/v1/import", json!({"sessions": [second]})).await.expect_status(200);
    let derived = made["sessions"][0]["id"].as_str().unwrap();
    assert_ne!(derived, other);
    let shown = daemon.get(&format!("/v1/sessions/{derived}/record")).await.expect_status(200);
    assert_eq!(shown["outcomes"][0]["id"], "pr-7", "{shown}");
    assert_eq!(exported(&daemon, derived).await["observations"], json!([record(derived, AT)]));
    assert_eq!(daemon.get("/v1/records").await.expect_status(200)["total"], 2);
}

#[tokio::test]
async fn a_file_that_is_too_large_for_the_daemon_is_refused_with_what_to_do() {
    let daemon = Daemon::builder().config("[control]\nimport_max = \"1MiB\"").agent("mind", mind()).start().await;
    let mut document = document(daemon.workspace());
    document["messages"][0]["content"]["text"] = json!("x".repeat(20 << 20));
    let file = write(&daemon, "large.json", &document.to_string());
    let output = daemon.cli(&["import", &file]).await;
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("control.import_max"), "{}", output.stderr);
    assert_eq!(rows(&daemon).await, [0; 7]);
}

#[tokio::test]
async fn what_was_said_of_a_session_before_it_came_is_said_of_it() {
    let daemon = daemon().await;
    let mut document = document(daemon.workspace());
    document["session"]["status"] = json!("archived");
    document["session"]["updatedAt"] = json!("2026-01-02T03:05:05.000Z");
    let id = document["session"]["id"].as_str().unwrap().to_owned();
    let said = daemon.post("/v1/records", record(&id, AT)).await.expect_status(201);
    let entity = said["entity_id"].as_str().unwrap();
    assert_ne!(entity, id);
    daemon.post("/v1/import", json!({"sessions": [document]})).await.expect_status(200);

    // One entity, by whichever name.
    let list = daemon.get("/v1/records").await.expect_status(200);
    assert_eq!((&list["total"], &list["records"][0]["entity_id"]), (&json!(1), &json!(id)), "{list}");
    assert_eq!(list["records"][0]["observations"].as_array().unwrap().len(), 1);
    for name in [entity, &id] {
        let shown = daemon.get(&format!("/v1/records/{name}")).await.expect_status(200);
        assert_eq!(shown, list["records"][0], "{name}");
        let timeline = daemon.get(&format!("/v1/timeline?entity={name}")).await.expect_status(200);
        let told: Vec<&str> =
            timeline["timeline"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(told, ["session_start", "checkpoint", "outcome", "session_end"], "{name}: {timeline}");
        assert!(timeline["timeline"].as_array().unwrap().iter().all(|item| item["entity_id"] == json!(id)));
    }
    assert_eq!(daemon.get("/v1/timeline?entity=pr-7").await.body["total"], 4);
    let mut more = record(&id, AT);
    more["more"] = json!(1);
    let said = daemon.post("/v1/records", more).await.expect_status(201);
    assert_eq!((&said["entity_id"], &said["observation_count"]), (&json!(id), &json!(2)));

    // It was over before it came.
    let shown = daemon.get(&format!("/v1/sessions/{id}/record")).await.expect_status(200);
    let end = json!("2026-01-02T03:05:05.000Z");
    assert_eq!((&shown["ended_at"], &shown["duration"]), (&end, &json!(60.0)));
    let timeline = daemon.get(&format!("/v1/timeline?entity={id}")).await.expect_status(200);
    assert_eq!(timeline["timeline"][3]["timestamp"], end, "{timeline}");

    daemon.delete(&format!("/v1/sessions/{id}?purge=true")).await;
    assert_eq!(daemon.get("/v1/records").await.body["total"], 0, "it is purged with what was said of it");
}

/// A database of the earlier application, with what the statements put into it.
fn database(daemon: &Daemon, name: &str, statements: &str) -> PathBuf {
    let path = daemon.root().join(name);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE Repo (id TEXT PRIMARY KEY, name TEXT, path TEXT, createdAt DATETIME, updatedAt DATETIME);
             CREATE TABLE AgentSession (id TEXT PRIMARY KEY, repoId TEXT, title TEXT, status TEXT, agentType TEXT,
                 createdAt DATETIME, updatedAt DATETIME);
             CREATE TABLE AgentMessage (id TEXT PRIMARY KEY, sessionId TEXT, role TEXT, content TEXT, createdAt DATETIME);",
        )
        .unwrap();
    connection.execute_batch(statements).unwrap();
    path
}

/// One session of every status, and messages of every kind in the first.
fn full(daemon: &Daemon) -> PathBuf {
    let statuses = ["completed", "cancelled", "active", "suspended", "archived", "error"];
    let mut statements =
        vec![format!("INSERT INTO Repo VALUES ('r1', 'app', '{}', 0, 0);", daemon.workspace().display())];
    for (index, status) in statuses.iter().enumerate() {
        let title = format!("The {status} one");
        let (created, updated) = (format!("2025-01-02T03:04:0{index}Z"), 1_735_787_060_000_i64);
        let values = format!("'s{index}', 'r1', '{title}', '{status}', 'Mind', '{created}', {updated}");
        statements.push(format!("INSERT INTO AgentSession VALUES ({values});"));
    }
    let tool = json!({"type": "tool", "id": "c1", "name": "grep", "input": {"q": "zither"}, "output": "a.txt"});
    let failed = json!({"type": "tool", "toolName": "rm", "args": [], "error": "denied"});
    // In no order, with times of every kind, and three at the same time.
    for (id, role, content, at) in [
        ("m5", "assistant", "found the harpsichord", "1735787055"),
        ("m1", "system", "be brief", "1735787050000"),
        ("m2", "user", "\"where is the harpsichord?\"", "'2025-01-02 03:04:11'"),
        ("m3", "tool", &tool.to_string(), "'2025-01-02T03:04:12.000Z'"),
        ("m4", "assistant", &failed.to_string(), "1735787052000"),
        ("m6", "user", "thanks", "1735787055"),
        ("m7", "assistant", "{\"type\":\"text\",\"text\":\"you are welcome\"}", "1735787055"),
        ("m8", "user", "still there?", "1735787059.5"),
    ] {
        let content = content.replace('\'', "''");
        statements.push(format!("INSERT INTO AgentMessage VALUES ('{id}', 's0', '{role}', '{content}', {at});"));
    }
    database(daemon, "old.db", &statements.concat())
}

#[tokio::test]
async fn the_earlier_applications_database_becomes_sessions() {
    let daemon = daemon().await;
    let path = full(&daemon);
    let before = std::fs::read(&path).unwrap();
    let report = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    assert_eq!(report["made"], json!({"sessions": 6, "turns": 3, "messages": 10, "records": 0}));
    assert_eq!(std::fs::read(&path).unwrap(), before, "the database is only read");
    let sessions = report["sessions"].as_array().unwrap();
    let statuses: Vec<&str> = sessions.iter().map(|session| session["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["active", "archived", "active", "suspended", "archived", "error"]);
    assert_eq!(sessions[0]["notes"], json!(["its status was \"completed\"", "its id was \"s0\""]));

    let id = sessions[0]["id"].as_str().unwrap();
    let view = daemon.session(id).await;
    assert_eq!((&view["createdAt"], &view["agent"]), (&json!("2025-01-02T03:04:00.000Z"), &json!("mind")));
    assert_eq!((&view["updatedAt"], &view["title"]), (&json!("2025-01-02T03:04:20.000Z"), &json!("The completed one")));
    assert_eq!(view["permissions"], daemon.get("/v1/agents/mind").await.expect_status(200)["permissions"]);
    let messages = daemon.messages(id).await;
    let told: Vec<(&str, &str, &str)> = messages
        .iter()
        .map(|message| {
            let content = &message["content"];
            let said = content["text"].as_str().or(content["name"].as_str()).or(content["status"].as_str());
            (message["role"].as_str().unwrap(), content["type"].as_str().unwrap(), said.unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("system", "text", "be brief"),
            ("user", "text", "where is the harpsichord?"),
            ("tool_call", "tool_call", "grep"),
            ("tool_result", "tool_result", "completed"),
            ("tool_call", "tool_call", "rm"),
            ("tool_result", "tool_result", "failed"),
            ("agent", "text", "found the harpsichord"),
            ("user", "text", "thanks"),
            ("agent", "text", "you are welcome"),
            ("user", "text", "still there?"),
        ]
    );
    assert_eq!((&messages[2]["toolCallId"], &messages[3]["toolCallId"]), (&json!("c1"), &json!("c1")));
    assert_eq!(messages[3]["content"]["result"], "a.txt");
    assert_eq!(messages[5]["content"]["error"], "denied");
    assert_eq!(messages[9]["createdAt"], "2025-01-02T03:04:19.500Z");
    let turns = daemon.get(&format!("/v1/sessions/{id}/turns")).await.expect_status(200);
    let ends: Vec<&str> = turns["turns"].as_array().unwrap().iter().map(|t| t["status"].as_str().unwrap()).collect();
    assert_eq!(ends, ["completed", "completed", "interrupted"]);

    // It goes on, and it comes only once.
    assert_eq!(daemon.prompt_and_wait(id, SECOND).await["status"], "completed");
    assert!(last_prompt(&daemon)[0]["text"].as_str().unwrap().contains("harpsichord"));
    let before = rows(&daemon).await;
    let again = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    assert_eq!((&again["made"]["sessions"], &again["alreadyHere"]["sessions"]), (&json!(0), &json!(6)));
    assert_eq!(rows(&daemon).await, before);
}

#[tokio::test]
async fn a_session_in_a_status_that_expires_says_when() {
    let daemon = daemon().await;
    let path = full(&daemon);
    let dry = daemon.cli(&["import", path.to_str().unwrap(), "--dry-run"]).await.success();
    assert!(dry.contains("EXPIRES"), "{dry}");
    let report = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    let again = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    let shown = daemon.cli(&["import", path.to_str().unwrap()]).await.success();
    for (session, here) in report["sessions"].as_array().unwrap().iter().zip(again["sessions"].as_array().unwrap()) {
        let view = daemon.session(session["id"].as_str().unwrap()).await;
        let expires = &view["expiresAt"];
        assert_eq!((&session["expiresAt"], &here["expiresAt"]), (expires, expires), "{view}");
        assert_eq!(expires.is_string(), ["suspended", "error"].contains(&view["status"].as_str().unwrap()), "{view}");
        assert!(expires.as_str().is_none_or(|at| shown.contains(at)), "{shown}");
    }
    let suspended = report["sessions"][3]["id"].as_str().unwrap();
    assert_eq!(daemon.session(suspended).await["status"], "suspended");
    daemon.post(&format!("/v1/sessions/{suspended}/resume"), json!({})).await.expect_status(200);
    assert_eq!(daemon.prompt_and_wait(suspended, SECOND).await["status"], "completed");
}

fn chunk(text: &str, partial: bool) -> Value {
    json!({"type": "text", "text": text, "partial": partial})
}

/// A database of one session, with answers in chunks, a plan, and tools in every form.
fn chunked(daemon: &Daemon) -> PathBuf {
    let steps = json!([{"content": "look", "priority": "high", "status": "completed"}, "change it",
        {"title": "tell", "status": "in_progress"}, {"odd": 1}]);
    let rows = [
        ("user", json!([chunk("go", false), chunk("on", false)])),
        ("agent", chunk("I will", true)),
        ("agent", chunk(" ", true)),
        ("agent", chunk("look.", true)),
        ("system", json!({"type": "plan", "steps": steps})),
        ("system", json!({"type": "tool", "tool": "grep", "args": {"q": 1}, "result": {"found": "a"}})),
        ("agent", chunk("Done", true)),
        ("agent", chunk(".", true)),
        ("agent", chunk("", false)),
        (
            "agent",
            json!([chunk("And", false), {"type": "tool_use", "id": "c", "name": "n", "input": {}},
            {"type": "tool_result", "tool_use_id": "c", "content": "r"}]),
        ),
        ("tool", json!("done")),
        ("user", json!({"type": "plan", "steps": []})),
        ("agent", chunk("half an", true)),
        ("agent", chunk(" answer", true)),
        ("system", json!({"type": "text", "text": "cancelled"})),
    ];
    let mut statements = vec![format!(
        "INSERT INTO Repo VALUES ('r', 'app', '{}', 0, 0);
         INSERT INTO AgentSession VALUES ('s', 'r', 't', 'completed', 'mind', 1735787000, 1735787060);",
        daemon.workspace().display()
    )];
    for (index, (role, content)) in rows.iter().enumerate() {
        let at = 1_735_787_000 + index;
        statements.push(format!("INSERT INTO AgentMessage VALUES ('m{index}', 's', '{role}', '{content}', {at});"));
    }
    database(daemon, "chunks.db", &statements.concat())
}

#[tokio::test]
async fn an_answer_in_chunks_is_one_message_and_a_plan_is_a_plan() {
    let daemon = daemon().await;
    let path = chunked(&daemon);
    let report = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    let id = report["sessions"][0]["id"].as_str().unwrap();
    let messages = daemon.messages(id).await;
    let told: Vec<(&str, &Value)> =
        messages.iter().map(|message| (message["role"].as_str().unwrap(), &message["content"])).collect();
    let step = |content: &str, priority: &str, status: &str| json!({"content": content, "priority": priority, "status": status});
    let plan = json!({"type": "plan", "steps": [step("look", "high", "completed"), step("change it", "medium", "pending"),
        step("tell", "medium", "in_progress"), step("{\"odd\":1}", "medium", "pending")]});
    let call = |id: &str, name: &str, arguments: Value| json!({"type": "tool_call", "id": id, "name": name, "kind": "other", "arguments": arguments});
    let result = |result: Value| json!({"type": "tool_result", "status": "completed", "result": result, "error": null});
    assert_eq!(
        told,
        [
            ("user", &chunk("go", false)),
            ("user", &chunk("on", false)),
            ("agent", &chunk("I will look.", false)),
            ("system", &plan),
            ("tool_call", &call("m5", "grep", json!({"q": 1}))),
            ("tool_result", &result(json!({"found": "a"}))),
            ("agent", &chunk("Done.", false)),
            ("agent", &chunk("And", false)),
            ("tool_call", &call("c", "n", json!({}))),
            ("tool_result", &result(json!("r"))),
            ("tool_call", &call("m10", "tool", Value::Null)),
            ("tool_result", &result(json!("done"))),
            ("user", &chunk("{\"type\":\"plan\",\"steps\":[]}", false)),
            ("agent", &chunk("half an answer", true)),
            ("system", &chunk("cancelled", false)),
        ]
    );
    let calls: Vec<&str> = messages.iter().filter_map(|message| message["toolCallId"].as_str()).collect();
    assert_eq!(calls, ["m5", "m5", "c", "c", "m10", "m10"]);
    assert_eq!(messages[6]["createdAt"], "2025-01-02T03:03:28.000Z", "the time of the last chunk");
    let turns = daemon.get(&format!("/v1/sessions/{id}/turns")).await.expect_status(200);
    let ends: Vec<&str> = turns["turns"].as_array().unwrap().iter().map(|t| t["status"].as_str().unwrap()).collect();
    assert_eq!(ends, ["completed", "interrupted"]);
    let markdown = daemon.get(&format!("/v1/sessions/{id}/export?format=markdown")).await.text;
    assert!(markdown.contains("- [x] look"), "{markdown}");
    let workflow = daemon.get(&format!("/v1/sessions/{id}/export?format=workflow")).await.text;
    assert!(
        workflow.contains("prompt_template: |-\n      go\n\n      on\n") && !workflow.contains("turn-2"),
        "{workflow}"
    );
}

#[tokio::test]
async fn an_agent_that_spoke_unasked_is_told_of_it_too() {
    let daemon = daemon().await;
    let repo = format!("INSERT INTO Repo VALUES ('r', 'app', '{}', 0, 0);", daemon.workspace().display());
    let statements = format!(
        "{repo} INSERT INTO AgentSession VALUES ('s', 'r', 't', 'active', 'mind', 1735787060, 1735787060);
         INSERT INTO AgentMessage VALUES ('m0', 's', 'system', 'be brief', 1735787060);
         INSERT INTO AgentMessage VALUES ('m1', 's', 'user', NULL, 1735787061);
         INSERT INTO AgentMessage VALUES ('m2', 's', 'assistant', x'68617270', 1735787062);"
    );
    let path = database(&daemon, "unasked.db", &statements);
    let report = daemon.cli(&["import", path.to_str().unwrap(), "--json"]).await.json();
    assert_eq!((&report["made"]["turns"], &report["made"]["messages"]), (&json!(1), &json!(2)), "{report}");
    let id = report["sessions"][0]["id"].as_str().unwrap();
    daemon.prompt_and_wait(id, SECOND).await;
    let heard = last_prompt(&daemon)[0]["text"].as_str().unwrap().to_owned();
    assert!(heard.contains("harp") && heard.contains("be brief"), "{heard}");
}

#[tokio::test]
async fn a_database_that_was_not_closed_is_read_with_its_log_and_not_touched() {
    let daemon = daemon().await;
    let path = full(&daemon);
    let open = Connection::open(&path).unwrap();
    open.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
         INSERT INTO AgentMessage VALUES ('m9', 's2', 'user', 'only in the log', 1735787060);",
    )
    .unwrap();
    // A copy of a database in use, as a person makes it.
    let directory = daemon.root().join("copied");
    std::fs::create_dir(&directory).unwrap();
    for suffix in ["", "-wal"] {
        std::fs::copy(format!("{}{suffix}", path.display()), directory.join(format!("old.db{suffix}"))).unwrap();
    }
    drop(open);
    let state = || {
        let mut files = Vec::new();
        harness::files_below(&directory, &mut files);
        files.sort();
        files
    };
    let before = state();
    assert_eq!(before.len(), 2);
    let copy = directory.join("old.db");
    let report = daemon.cli(&["import", copy.to_str().unwrap(), "--json"]).await.json();
    assert_eq!(report["sessions"][2]["messages"], 1, "{report}");
    assert!(state() == before, "nothing was written beside it");
}

#[tokio::test]
async fn a_database_that_makes_no_sense_is_refused_by_its_row_or_column() {
    let daemon = daemon().await;
    let repo = format!("INSERT INTO Repo VALUES ('r', 'app', '{}', 0, 0);", daemon.workspace().display());
    let session = |status: &str, agent: &str| {
        format!("INSERT INTO AgentSession VALUES ('s', 'r', 't', '{status}', {agent}, 1735787060, 1735787060);")
    };
    let good = format!("{repo}{}", session("active", "'mind'"));
    for (name, statements, told) in [
        ("status", format!("{repo}{}", session("paused", "'mind'")), "the status \"paused\""),
        ("agent", format!("{repo}{}", session("active", "NULL")), "--agent"),
        ("unknown", format!("{repo}{}", session("active", "'nobody'")), "--agent"),
        ("repo", session("active", "'mind'"), "AgentSession \"s\": its Repo \"r\" does not exist"),
        (
            "role",
            format!("{good} INSERT INTO AgentMessage VALUES ('m', 's', 'robot', 'x', 1);"),
            "AgentMessage \"m\": acpd does not know the role \"robot\"",
        ),
        (
            "time",
            format!("{good} INSERT INTO AgentMessage VALUES ('m', 's', 'user', 'x', 'soon');"),
            "AgentMessage \"m\": createdAt: \"soon\" is not a time",
        ),
        (
            "orphan",
            format!("{good} INSERT INTO AgentMessage VALUES ('m', 'x', 'user', 'x', 1);"),
            "its AgentSession \"x\" does not exist",
        ),
        (
            "column",
            format!("{good} ALTER TABLE AgentMessage DROP COLUMN content;"),
            "AgentMessage has no column content",
        ),
        ("path", format!("{good} ALTER TABLE Repo DROP COLUMN path;"), "the table Repo has no column path"),
        ("table", format!("{good} DROP TABLE AgentMessage;"), "has no table AgentMessage; its tables are"),
    ] {
        let path = database(&daemon, &format!("{name}.db"), &statements);
        let output = daemon.cli(&["import", path.to_str().unwrap()]).await;
        assert_eq!(output.code, 1, "{name}: {}", output.stderr);
        assert!(output.stderr.contains(told) && output.stderr.contains("hint:"), "{name}: {}", output.stderr);
        assert_eq!(rows(&daemon).await, [0; 7], "{name}");
    }
    // Other names for the same, and another agent and place.
    let path = database(&daemon, "renamed.db", &good);
    let connection = Connection::open(&path).unwrap();
    let renamed = "ALTER TABLE AgentSession RENAME COLUMN agentType TO agent_name; \
         ALTER TABLE AgentSession RENAME COLUMN repoId TO repo_id; UPDATE Repo SET path = '/old/place/app'; \
         UPDATE AgentSession SET agent_name = 'nobody';";
    connection.execute_batch(renamed).unwrap();
    drop(connection);
    let place = daemon.workspace().join("app");
    std::fs::create_dir(&place).unwrap();
    let moved = format!("/old/place={}", daemon.workspace().display());
    let arguments = ["import", path.to_str().unwrap(), "--agent", "mind", "--workspace", &moved, "--json"];
    let report = daemon.cli(&arguments).await.json();
    assert_eq!(report["sessions"][0]["workspace"], json!(place), "{report}");
    let own = daemon.state_dir().join("acpd.db");
    let output = daemon.cli(&["import", own.to_str().unwrap()]).await;
    assert!(output.code == 1 && output.stderr.contains("a store of acpd"), "{}", output.stderr);
}
