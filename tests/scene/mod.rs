//! A daemon in the middle of its work, for what is shown in the documents: three agents, each busy in its own way.

#![allow(dead_code, clippy::unwrap_used, reason = "every test file uses a part of it, and a test fails by panicking")]

use serde_json::{Value, json};

use super::harness::Daemon;

/// One session that is done, one that runs a tool, and one whose agent asks, which is the newest.
pub async fn busy() -> Daemon {
    let mut builder = Daemon::builder();
    for (name, script) in agents() {
        builder = builder.agent(name, script);
    }
    let daemon = builder.start().await;
    session(&daemon, "claude", "src/site", "Translate the start page", "turn.completed").await;
    session(&daemon, "gemini", "src/parser", "Fix the failing test", "tool.started").await;
    session(&daemon, "codex", "src/parser", "Release 1.4", "permission.requested").await;
    daemon
}

/// Whether all figures are on the screen of `acpd top`, and the log of the second session.
pub fn is_whole(screen: &str) -> bool {
    let has_figures = screen.lines().filter(|line| line.contains("M ") && line.contains('.')).count() > 3;
    has_figures && screen.contains("CPU ") && screen.contains("* cargo test")
}

/// The words of a text but for what differs from run to run: figures, bars and ids.
pub fn words(text: &str) -> Vec<&str> {
    let is_figure = |word: &str| {
        let is_bars = word.chars().all(|character| ('▁'..='█').contains(&character));
        let is_number = word.contains(|character: char| character.is_ascii_digit())
            && word.chars().all(|character| "0123456789.%KMGTsmhd".contains(character));
        is_bars || is_number || (word.len() == 12 && word.chars().all(|character| character.is_ascii_hexdigit()))
    };
    text.split_whitespace().filter(|word| !is_figure(word)).collect()
}

fn tool(id: &str, title: &str, status: &str) -> Value {
    let kind = if status == "in_progress" { "tool_call" } else { "tool_call_update" };
    json!({"update": {"sessionUpdate": kind, "toolCallId": id, "title": title, "status": status, "kind": "execute"}})
}

/// Agents that are in the middle of something, each in its own way.
fn agents() -> [(&'static str, Value); 3] {
    let question = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "q", "title": "Run cargo publish", "kind": "execute", "status": "pending",
            "rawInput": {"command": "cargo publish"}},
        "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}]}}});
    let plan = json!({"update": {"sessionUpdate": "plan", "entries": [
        {"content": "Find the failing test", "priority": "high", "status": "completed"},
        {"content": "Fix it", "priority": "high", "status": "in_progress"}]}});
    [
        ("codex", json!([{"handshake": {}}, {"prompt": [{"text": "All is ready for the release."}, question]}])),
        (
            "gemini",
            json!([{"handshake": {}}, {"prompt": [
                {"thought": "The tests come first."}, tool("a", "Read src/parser.rs", "in_progress"),
                tool("a", "Read src/parser.rs", "completed"), plan,
                {"text": "The parser drops the last token when a line ends without a newline. I fix that in "},
                {"text": "`Parser::finish` and run the tests."}, tool("b", "cargo test", "in_progress"), {"hang": true},
            ]}]),
        ),
        ("claude", json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "The page is translated."}]}]}])),
    ]
}

async fn session(daemon: &Daemon, agent: &str, directory: &str, prompt: &str, until: &str) {
    let path = daemon.home().join(directory);
    std::fs::create_dir_all(&path).unwrap();
    let body = json!({"workspace": path, "agent": agent});
    let id = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    // The process starts beside: only when it is there, what follows has an order.
    daemon.events(&id, None).await.until("process.ready").await;
    let accepted = daemon.prompt(&id, prompt).await;
    daemon.events(&id, accepted["after"].as_i64()).await.until(until).await;
}
