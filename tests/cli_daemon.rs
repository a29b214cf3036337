//! The commands about the daemon: its processes, its log, its configuration.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::process::Stdio;

use harness::{Daemon, echo, within};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

#[tokio::test]
async fn ps_lists_what_runs() {
    let gated = json!([{"handshake": {}}, {"prompt": [{"gate": "busy"}, {"text": "done"}]}]);
    let daemon = Daemon::builder().agent("echo", echo()).agent("gated", gated).start().await;
    let none = daemon.terminal(80, 5, &["ps"]).ended().await;
    assert!(none.screen.contains("no agent runs"), "{}", none.screen);
    let busy = daemon.create_session("gated").await;
    daemon.prompt(&busy, "go").await;
    let passage = daemon.gate("gated").reached("busy").await;
    let idle = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&idle, "hello").await;
    let printed = daemon.cli(&["ps"]).await.success();
    let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["PID", "SESSION", "AGENT", "STATE", "TIME", "MEMORY", "TITLE"]);
    for (session, agent, state) in [(&busy, "gated", "busy"), (&idle, "echo", "idle")] {
        let pid = harness::pid_of(&daemon.session(session).await).to_string();
        assert_eq!(lines.next().unwrap()[..4], [pid.as_str(), &session[24..], agent, state], "{printed}");
    }
    let listed = daemon.cli(&["ps", "--json"]).await.json();
    assert_eq!(listed["processes"].as_array().unwrap().len(), 2, "{listed}");
    passage.open().await;
}

/// A client that follows the log.
fn following(daemon: &Daemon) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = daemon.client(&["logs", "--follow", "-n", "2"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[tokio::test]
async fn logs_are_shown_and_followed_over_the_rotation() {
    let mut daemon = Daemon::start().await;
    let logs = daemon.state_dir().join("logs");
    let write = |name: &str, text: &str| {
        let options = &mut std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(logs.join(name)).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    let told = daemon.cli(&["logs"]).await.success();
    assert!(told.contains("ready"), "{told}");
    // The files of days to come are the newest, whatever the daemon writes today.
    write("acpd.2999-01-01.log", "one\ntwo\x1b[31m\nthree\n");
    write("autostart.log", "another file\n");
    assert_eq!(daemon.cli(&["logs", "-n", "2"]).await.success(), "two[31m\nthree\n");
    assert_eq!(daemon.cli(&["logs", "-n", "1", "--json"]).await.json(), json!({"line": "three"}));
    let many = daemon.cli(&["logs", "-n", "4"]).await.success();
    assert!(many.lines().count() == 4 && many.ends_with("one\ntwo[31m\nthree\n"), "{many}");

    let (mut child, mut lines) = following(&daemon);
    let mut next = async || within("a line", lines.next_line()).await.unwrap().unwrap();
    assert_eq!((next().await.as_str(), next().await.as_str()), ("two[31m", "three"));
    write("acpd.2999-01-01.log", "fo");
    write("acpd.2999-01-01.log", "ur\n");
    assert_eq!(next().await, "four");
    write("acpd.2999-01-01.log", "the last of the day\n");
    write("acpd.2999-01-02.log", "another day\n");
    assert_eq!((next().await.as_str(), next().await.as_str()), ("the last of the day", "another day"));
    child.kill().await.unwrap();
    daemon.terminate().await;
    assert_eq!(daemon.cli(&["logs", "-n", "1"]).await.success(), "another day\n", "no daemon is needed");
}

#[tokio::test]
async fn a_session_is_renamed() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    assert_eq!(daemon.cli(&["rename", "-", "a", "new", "title"]).await.success().trim(), session);
    assert_eq!(daemon.session(&session).await["title"], "a new title");
    assert_eq!(daemon.cli(&["rename", "a new title", "other", "--json"]).await.json()["title"], "other");
}

#[tokio::test]
async fn commands_of_other_programs_get_a_hint() {
    let daemon = Daemon::start().await;
    for (guess, meant) in [
        ("kill", "acpd cancel"),
        ("list", "acpd ls"),
        ("delete", "acpd rm"),
        ("start", "acpd run"),
        ("log", "acpd logs"),
        ("restart", "acpd reload"),
    ] {
        let refused = daemon.cli(&[guess, "-"]).await;
        assert_eq!(refused.code, 2);
        let hints: Vec<&str> = refused.stderr.lines().filter(|line| line.starts_with("hint:")).collect();
        assert!(hints.len() == 1 && hints[0].contains(meant), "{guess}: {}", refused.stderr);
    }
}
