//! `acpd top` in a real tmux at 80 by 24: the capture in docs/top.md, and the terminal after SIGKILL of the daemon.
//!
//! `ACPD_UPDATE_TOP=1 cargo test --test top_in_tmux` writes the capture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;

use std::path::{Path, PathBuf};

use harness::{Daemon, within};
use serde_json::{Value, json};
use tokio::process::Command;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/top.md");
const FENCE: &str = "\n```text\n";
const FENCE_END: &str = "\n```\n";

/// A server of its own, which ends with the test.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Runs a line of shell with this client's environment in a window of 80 by 24. Nothing where there is no tmux.
    async fn start(daemon: &Daemon, line: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().await.is_err() {
            assert!(std::env::var_os("CI").is_none(), "there is no tmux");
            eprintln!("SKIPPED: there is no tmux, so acpd top was not tried in it");
            return None;
        }
        let tmux = Self { socket: daemon.root().join("tmux") };
        let client = daemon.client(&["top"]);
        let client = client.as_std();
        let mut command = Command::new("tmux");
        command.env_clear().envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("SHELL", "/bin/sh").env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.arg("-u").arg("-S").arg(&tmux.socket).args([
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
        ]);
        command.arg("-c").arg(daemon.workspace());
        command.arg(line.replace("acpd", &client.get_program().display().to_string()));
        let started = within("tmux", command.output()).await.unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(tmux)
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-u").arg("-S").arg(&self.socket).args(arguments).output();
        String::from_utf8(within("tmux", output).await.unwrap().stdout).unwrap()
    }

    /// Waits until the screen is as it should be, and gives it.
    async fn settles(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let settled = async {
            while !is_so(&screen) {
                screen = self.run(&["capture-pane", "-p"]).await;
            }
        };
        let has_settled = tokio::time::timeout(harness::DEADLINE, settled).await.is_ok();
        assert!(has_settled, "{what} never came:\n{screen}");
        screen
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = std::process::Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
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

/// A screen without what differs from run to run: figures, ids, and the space that they take.
fn without_figures(screen: &str) -> Vec<String> {
    let is_figure = |word: &str| {
        let is_bars = word.chars().all(|character| ('▁'..='█').contains(&character));
        let is_number = word.contains(|character: char| character.is_ascii_digit())
            && word.chars().all(|character| "0123456789.%KMGTsmhd".contains(character));
        is_bars || is_number || (word.len() == 12 && word.chars().all(|character| character.is_ascii_hexdigit()))
    };
    let line = |line: &str| line.split_whitespace().filter(|word| !is_figure(word)).collect::<Vec<_>>().join(" ");
    screen.lines().map(line).collect()
}

#[tokio::test]
async fn the_capture_in_the_docs_is_what_it_shows() {
    let mut builder = Daemon::builder();
    for (name, script) in agents() {
        builder = builder.agent(name, script);
    }
    let daemon = builder.start().await;
    session(&daemon, "claude", "src/site", "Translate the start page", "turn.completed").await;
    session(&daemon, "gemini", "src/parser", "Fix the failing test", "tool.started").await;
    session(&daemon, "codex", "src/parser", "Release 1.4", "permission.requested").await;
    let Some(tmux) = Tmux::start(&daemon, "acpd top").await else { return };
    tmux.settles("the question", |screen| screen.contains("? Run cargo publish")).await;
    tmux.run(&["send-keys", "j"]).await;
    let is_whole = |screen: &str| {
        let has_figures = screen.lines().filter(|line| line.contains("M ") && line.contains('.')).count() > 3;
        has_figures && screen.contains("CPU ") && screen.contains("* cargo test")
    };
    let screen = tmux.settles("the log and the figures", is_whole).await;
    let screen = screen.trim_end();

    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once(FENCE).expect("docs/top.md has a capture");
    let (shown, after) = rest.split_once(FENCE_END).expect("docs/top.md has a whole capture");
    if std::env::var_os("ACPD_UPDATE_TOP").is_some() {
        std::fs::write(Path::new(DOCUMENT), format!("{before}{FENCE}{screen}{FENCE_END}{after}")).unwrap();
        return;
    }
    let (shown, screen) = (without_figures(shown), without_figures(screen));
    assert_eq!(shown, screen, "ACPD_UPDATE_TOP=1 cargo test --test top_in_tmux writes docs/top.md anew");
}

#[tokio::test]
async fn the_shell_has_its_terminal_back_after_the_daemon_was_killed() {
    let mut daemon = Daemon::start().await;
    let line = "acpd top; echo left with $?; stty -a | tr ' ;' '\\n\\n' | grep -xE 'echo|icanon|isig' | sort | xargs echo; cat";
    let Some(tmux) = Tmux::start(&daemon, line).await else { return };
    tmux.settles("an empty list", |screen| screen.contains("no sessions; `acpd run")).await;
    daemon.kill().await;
    tmux.settles("the loss", |screen| screen.contains("lost the daemon")).await;
    tmux.run(&["send-keys", "C-c"]).await;
    let screen = tmux.settles("the shell", |screen| screen.contains("isig")).await;
    assert!(screen.starts_with("left with 130\necho icanon isig"), "{screen}");
    daemon.restart().await;
}
