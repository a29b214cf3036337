//! acpd's own tools: a real agent speaks MCP with the server that acpd gives it, and gets to its own session and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, DaemonBuilder};
use serde_json::{Value, json};

const TOOLS: &str = "tools";
const ENABLED: &str = "acpd_tools = true";

/// An agent that calls the tool which the prompt says.
fn caller() -> Value {
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"textFromMcp": {"server": "acpd"}}]}]}])
}

fn builder() -> DaemonBuilder {
    Daemon::builder().agent_with(TOOLS, caller(), ENABLED)
}

/// What the agent says that it was told.
async fn asked(daemon: &Daemon, session: &str, prompt: &Value) -> String {
    let turn = daemon.prompt_and_wait(session, &prompt.to_string()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(session).await;
    let said = messages.iter().rev().find(|message| message["role"] == "agent").expect("the agent answers");
    said["content"]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_agent_is_given_the_tools_and_finds_them() {
    let daemon = builder().start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let tools: Vec<Value> = serde_json::from_str(&asked(&daemon, &session, &json!({})).await).unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 5);
}
