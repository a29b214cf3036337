//! What runs now: `GET /v1/processes`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, echo, pid_of};
use serde_json::{Value, json};

const ALLOCATED: u64 = 48 << 20;

fn tool(id: &str, title: &str, status: &str) -> Value {
    json!({"update": {"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "status": status, "kind": "execute"}})
}

/// An agent with children, one of whom has got away, a terminal and memory; it is in the middle of a tool call.
fn working() -> Value {
    let terminal = json!({"request": {"method": "terminal/create", "params": {"sessionId": "test-session",
        "command": "sleep", "args": ["600"]}}});
    json!([{"handshake": {}}, {"prompt": [
        {"fork": {"count": 1}}, {"fork": {"count": 1, "setsid": true, "orphan": true}}, {"allocate": ALLOCATED}, terminal,
        tool("a", "Read the plan", "completed"), tool("b", "Run the tests", "in_progress"),
        tool("c", "Build the book with sk-very-secret-key", "in_progress"), {"gate": "working"},
    ]}])
}

async fn running(daemon: &Daemon) -> Value {
    daemon.get("/v1/processes").await.expect_status(200)
}

#[tokio::test]
async fn everything_that_a_session_runs_is_in_its_row() {
    let daemon = Daemon::builder().agent_with(
        "working",
        working(),
        "permissions = \"allow\"\nterminal_commands = [\"*\"]\nenv = { API_KEY = \"sk-very-secret-key\" }",
    );
    let daemon = daemon.start().await;
    let none = running(&daemon).await;
    assert_eq!(none["processes"], json!([]));
    assert_eq!(none["daemon"]["pid"], daemon.pid());
    assert!(none["daemon"]["rssBytes"].as_u64().unwrap() > 1 << 20, "{none}");
    assert!(none["daemon"]["cpuMillis"].is_u64() && none["at"].is_string(), "{none}");

    let session = daemon.create_session("working").await;
    let accepted = daemon.prompt(&session, "go").await;
    let turn = accepted["turnId"].clone();
    daemon.prompt(&session, "and then").await;
    let passage = daemon.gate("working").reached("working").await;
    // The gate tells what the agent has written, the log what the daemon has read of it.
    let mut events = daemon.events(&session, accepted["after"].as_i64()).await;
    events.until_event("the call c", |event| event.data["data"]["toolCallId"] == "c").await;
    let list = running(&daemon).await;
    let row = &list["processes"][0];
    let shown = daemon.session(&session).await;
    assert_eq!(
        (&row["sessionId"], &row["pid"], &row["workspace"], &row["title"], &row["agent"]),
        (&json!(session), &json!(pid_of(&shown)), &shown["workspace"], &json!("go"), &json!("working"))
    );
    assert_eq!(
        (&row["processState"], &row["queuedTurns"], &row["openPermissions"]),
        (&json!("busy"), &json!(1), &json!(0))
    );
    assert_eq!(row["turn"]["id"], turn);
    // The call that ended is not told of, nor one that began before the last; and no secret.
    assert_eq!(row["tool"]["toolCallId"], "c");
    let title = row["tool"]["title"].as_str().unwrap();
    assert!(title.starts_with("Build the book with ") && !title.contains("secret"), "{title}");
    let times = [&shown["createdAt"], &row["turn"]["startedAt"], &row["tool"]["startedAt"], &list["at"]];
    assert!(times.is_sorted_by_key(|time| time.as_str().unwrap()), "{times:?}");
    assert!(row["startedAt"].is_string(), "{row}");
    // The agent, its child, the one that got away, and the terminal's command.
    assert_eq!(row["processes"], 4, "{row}");
    assert!(row["rssBytes"].as_u64().unwrap() >= ALLOCATED, "{row}");
    assert!(row["cpuMillis"].as_u64().unwrap() > 0, "writing to all that memory takes its time: {row}");
    passage.open().await;
}

#[tokio::test]
async fn rows_come_and_go_with_processes_and_wrong_queries_are_named() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let sessions = [daemon.create_session("echo").await, daemon.create_session("echo").await];
    daemon.create_lazy_session("echo").await;
    for session in &sessions {
        daemon.prompt_and_wait(session, "hello").await;
    }
    let list = running(&daemon).await;
    let rows = list["processes"].as_array().unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row["sessionId"].as_str().unwrap()).collect();
    assert_eq!(ids, sessions.each_ref().map(String::as_str), "those with a process, the oldest session first");
    for row in rows {
        assert_eq!((&row["processState"], row.get("turn"), row.get("tool")), (&json!("ready"), None, None), "{row}");
        assert!(row.get("owner").is_none() && row["processes"].as_u64().unwrap() >= 1, "{row}");
    }
    daemon.post(&format!("/v1/sessions/{}/archive", sessions[0]), json!({})).await.expect_status(200);
    assert_eq!(running(&daemon).await["processes"].as_array().unwrap().len(), 1);
    let refused = daemon.get("/v1/processes?limit=3").await.refused(400, "invalid_request");
    assert!(refused["message"].as_str().unwrap().contains("limit"), "{refused}");
}
