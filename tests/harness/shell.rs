//! An agent that has a shell do what it is told, for tests of what agents can and cannot do.

use std::path::Path;

use serde_json::{Value, json};

use super::{Daemon, DaemonBuilder};

pub const SHELL: &str = "shell";

/// It restores its conversation, so that it is told nothing but the prompt.
pub fn shell() -> Value {
    let capabilities = json!({"sessionCapabilities": {"resume": {}}});
    json!([{"handshake": {"capabilities": capabilities}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}])
}

/// The session's own directories are in the agent's environment.
pub fn with_shell(builder: DaemonBuilder, config: &str) -> DaemonBuilder {
    builder.config(config).agent_with(SHELL, shell(), "env = { OWN_HOME = \"{home}\", OWN_TMP = \"{tmp}\" }")
}

pub async fn session_of_scope(daemon: &Daemon, scope: &str) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": SHELL, "start": "lazy", "context": {"fsScope": scope}});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    assert_eq!(session["context"]["fsScope"], scope);
    session["id"].as_str().unwrap().to_owned()
}

/// What the agent's shell says to a command.
pub async fn run(daemon: &Daemon, session: &str, command: &str) -> String {
    let turn = daemon.prompt_and_wait(session, command).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(session).await;
    let said = messages.iter().rev().find(|message| message["role"] == "agent").expect("the agent answers");
    said["content"]["text"].as_str().unwrap().to_owned()
}

/// An agent that has one command run in a terminal, and tells what that has put out.
pub fn shell_in_terminal(command: &str, args: &[&str], cwd: &Path) -> Value {
    let ask = |method: &str, mut params: Value| {
        params["sessionId"] = json!("test-session");
        json!({"request": {"method": format!("terminal/{method}"), "params": params}})
    };
    json!([{"handshake": {}}, {"prompt": [
        ask("create", json!({"command": command, "args": args, "cwd": cwd})),
        ask("wait_for_exit", json!({"terminalId": "{terminal0}"})),
        ask("output", json!({"terminalId": "{terminal0}"})),
        {"textFromAnswer": true},
    ]}])
}

pub const ANY_COMMAND: &str = "permissions = \"allow\"\nterminal_commands = [\"*\"]";

/// What the terminal has put out.
pub async fn output_of_terminal(daemon: &Daemon) -> String {
    let session = daemon.create_lazy_session(SHELL).await;
    let answer: Value = serde_json::from_str(&run(daemon, &session, "go").await).unwrap();
    answer["output"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
