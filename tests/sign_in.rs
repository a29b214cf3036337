//! Keys and sign-ins: how they get from a person's shell to the agents that need them, and to no others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, ORDINARY, Output, users, within};
use serde_json::{Value, json};

const KEY: &str = "k0re-of-the-key-0123456789";

/// Says what it has in this variable.
fn telling(variable: &str) -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "key: "}, {"textFromEnvironment": variable}]}]}])
}

/// Is not signed in.
fn refusing() -> Value {
    json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 1, "agentCapabilities": {}}},
        {"expect": "session/new"}, {"replyError": {"code": -32000, "message": "Authentication required"}},
        {"hang": true}])
}

/// A client in a shell that has these variables.
async fn with(daemon: &Daemon, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut client = daemon.client(arguments);
    client.envs(variables.iter().copied()).stdin(std::process::Stdio::null());
    Output::new(&within("the end of a client", client.output()).await.unwrap())
}

#[tokio::test]
async fn a_started_daemon_gets_the_variables_that_profiles_pass_on_and_hands_them_to_those_agents_only() {
    let mut daemon = Daemon::builder()
        .agent_with("keyed", telling("MY_KEY"), "env_pass = [\"MY_KEY\"]")
        .agent("other", telling("MY_KEY"))
        .start()
        .await;
    daemon.terminate().await;
    let shell = [("MY_KEY", KEY), ("GEMINI_API_KEY", "shipped-profiles-name-this"), ("OTHER_SECRET", "stays-here")];
    let told = with(&daemon, &shell, &["run", "--agent", "keyed", "hello"]).await;
    assert!(told.stderr.contains("started the daemon"), "{}", told.stderr);
    assert_eq!(told.success(), "key: [redacted:MY_KEY]\n");
    assert_eq!(with(&daemon, &shell, &["run", "--agent", "other", "hello"]).await.success(), "key: (unset)\n");
    let pid = daemon.cli(&["status", "--json"]).await.json()["info"]["pid"].as_u64().unwrap();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("GEMINI_API_KEY=") && !environment.contains("OTHER_SECRET"), "{environment}");
    daemon.cli(&["stop"]).await.success();
}

#[tokio::test]
async fn a_key_that_only_this_shell_has_is_named_with_the_cure() {
    let daemon = Daemon::builder()
        .agent_with("shy", refusing(), "env_pass = [\"MY_KEY\", \"MY_OTHER_KEY\"]")
        .config("[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"")
        .start()
        .await;
    assert_eq!(daemon.get("/v1/agents/shy").await.expect_status(200)["envUnset"], json!(["MY_KEY", "MY_OTHER_KEY"]));
    let cure = "this shell has MY_KEY, but the daemon was started without it: run `acpd stop`";
    let failed = with(&daemon, &[("MY_KEY", KEY)], &["run", "--agent", "shy", "hello"]).await;
    assert!(failed.code == 4 && failed.stderr.contains(cure), "{}", failed.stderr);
    assert!(failed.stderr.contains("`acpd agents key shy`") && !failed.stderr.contains(KEY), "{}", failed.stderr);
    let checked = with(&daemon, &[("MY_KEY", KEY)], &["agents", "check", "shy"]).await;
    assert!(checked.code == 1 && checked.stdout.contains(cure), "{}", checked.stdout);
    for arguments in [&["run", "--agent", "shy", "hello"][..], &["agents", "check", "shy"]] {
        let failed = daemon.cli(arguments).await;
        assert!(!failed.stderr.contains("this shell") && !failed.stdout.contains("this shell"), "{failed:?}");
    }
}

#[tokio::test]
async fn which_variables_the_daemon_has_is_shown_to_its_own_user_only() {
    if users().len() < 2 {
        harness::say("SKIPPED: only a daemon of root serves other users");
        return;
    }
    let daemon =
        Daemon::builder().owner(ORDINARY).agent_with("shy", refusing(), "env_pass = [\"MY_KEY\"]").start().await;
    let seen = daemon.as_user(ORDINARY, &[]).get("/v1/agents/shy").await.expect_status(200);
    assert_eq!(seen["envUnset"], Value::Null, "{seen}");
}
