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
    for (session, agent, state) in [(&busy, "gated", "busy"), (&idle, "echo", "ready")] {
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
        ("key", "acpd agents key"),
        ("settings", "acpd config"),
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
        assert!(!refused.stderr.contains("\n\n\n"), "one empty line is enough: {}", refused.stderr);
    }
}

#[tokio::test]
async fn the_log_of_the_systems_daemon_is_in_the_journal() {
    let daemon = Daemon::start().await;
    let refused = daemon.cli(&["--socket", "/run/acpd/acpd.sock", "logs"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("hint: `sudo journalctl -u acpd"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_reload_says_what_changed_and_what_needs_a_restart() {
    let config = "[limits]\nprocesses = 3\n[log]\nfiles = 3";
    let mut daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let file = daemon.config_file().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(&file).unwrap();
    let nothing = daemon.post("/v1/reload", json!({})).await.expect_status(200);
    assert_eq!(nothing, json!({"file": file, "changed": [], "needsRestart": []}));
    let changed = text.replace("processes = 3", "processes = 4").replace("files = 3", "files = 4");
    std::fs::write(&file, format!("{changed}\n[agents.other]\ncommand = \"other\"\n")).unwrap();
    let printed = daemon.cli(&["reload"]).await.success();
    let expected =
        format!("file           {file}\nchanged        limits.processes, agents.other\nneeds restart  log.files\n");
    assert_eq!(printed, expected);
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"]["max"], 4);

    std::fs::write(&file, text.replace("processes = 3", "processes = 0")).unwrap();
    let refused = daemon.post("/v1/reload", json!({})).await.expect_status(422);
    assert_eq!(refused["error"], "config_invalid");
    assert_eq!(refused["details"]["problems"][0]["key"], "limits.processes");
    let told = daemon.cli(&["reload"]).await;
    assert!(told.code == 1 && told.stderr.contains("limits.processes: has an invalid value 0"), "{}", told.stderr);
    assert!(told.stderr.contains("hint: write a whole number"), "{}", told.stderr);
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"]["max"], 4, "nothing has changed");
    daemon.terminate().await;
    let alone = daemon.cli(&["reload"]).await;
    assert!(alone.code == 3 && alone.stderr.contains("no daemon is running"), "{}", alone.stderr);
}

#[tokio::test]
async fn the_configuration_is_shown_and_set() {
    let daemon = Daemon::builder().config("# mine\n[limits]\nprocesses = 3 # few").agent("echo", echo()).start().await;
    let file = daemon.config_file().to_str().unwrap().to_owned();
    let acpd = async |arguments: &[&str]| daemon.cli(arguments).await;
    assert_eq!(acpd(&["config", "path"]).await.success().trim(), file);
    let default = acpd(&["config", "--default"]).await.success();
    assert_eq!(default.trim_end(), include_str!("../config.toml").trim_end());
    let shown = acpd(&["config"]).await.success();
    assert!(shown.lines().any(|line| line == "limits.processes = 3") && !shown.contains("limits.terminals"), "{shown}");
    assert_eq!(acpd(&["config", "get", "limits.terminals"]).await.success(), "8\n");
    assert_eq!(acpd(&["config", "get", "sessions.agent"]).await.success(), "gemini\n");
    assert!(acpd(&["config", "get", "limits"]).await.success().contains("limits.processes = 3\n"));
    let unknown = acpd(&["config", "get", "limits.proceses"]).await;
    assert!(unknown.code == 1 && unknown.stderr.contains("did you mean `limits.processes`?"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("\"limits.proceses\" is not a key"), "{}", unknown.stderr);
    let unset = acpd(&["config", "get", "agents.echo.fs_scope"]).await;
    assert!(unset.code == 1 && unset.stderr.contains("agents.echo.fs_scope is not set"), "{}", unset.stderr);
    let missing = acpd(&["--config", "/nonexistent.toml", "config"]).await;
    assert!(missing.code == 1 && missing.stderr.contains("there is no file /nonexistent.toml"), "{}", missing.stderr);

    let set = acpd(&["config", "set", "limits.processes", "9"]).await;
    assert!(set.code == 0 && set.stderr.contains("has reloaded its"), "{}", set.stderr);
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"]["max"], 9);
    acpd(&["config", "set", "sessions.agent", "echo"]).await.success();
    acpd(&["config", "set", "agents.echo.env.SOME_KEY", "12345678"]).await.success();
    let restart = acpd(&["config", "set", "log.files", "2"]).await;
    assert!(restart.stderr.contains("take effect after a restart: log.files"), "{}", restart.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    for kept in ["# mine\n", "processes = 9 # few", "agent = \"echo\"", "SOME_KEY = \"12345678\""] {
        assert!(text.contains(kept), "{kept} in {text}");
    }
    assert_eq!(
        acpd(&["config", "get", "agents.echo.env"]).await.success(),
        "agents.echo.env.SOME_KEY = \"(hidden)\"\n"
    );
    let shown = acpd(&["config"]).await.success();
    assert!(shown.contains("SOME_KEY") && !shown.contains("12345678"), "{shown}");
    for (key, value, told) in [
        ("limits.processes", "many", "has an invalid value \"many\""),
        ("limits.proceses", "4", "did you mean `limits.processes`?"),
        ("nonsense", "1", "is not a key"),
        ("agents.echo.fs_scope", "wide", "cannot set agents.echo.fs_scope to \"wide\""),
        ("agents.echo.env_pass", "['A=B']", "has an invalid variable name"),
    ] {
        let refused = acpd(&["config", "set", key, value]).await;
        assert!(refused.code == 1 && refused.stderr.contains(told), "{key}: {}", refused.stderr);
        let is_known = !matches!(key, "limits.proceses" | "nonsense");
        assert!(!is_known || !refused.stderr.contains("did you mean"), "{key}: {}", refused.stderr);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{key}");
    }
}

/// `acpd config edit` with a script as the editor, which has the file as `$1`.
fn editing(daemon: &Daemon, script: &str) -> tokio::process::Command {
    let editor = daemon.root().join("editor");
    std::fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = daemon.client(&["config", "edit"]);
    command.env("EDITOR", editor);
    command
}

#[tokio::test]
async fn the_configuration_is_edited_and_checked() {
    let daemon = Daemon::builder().config("[limits]\nprocesses = 3").agent("echo", echo()).start().await;
    let text = || std::fs::read_to_string(daemon.config_file()).unwrap();
    let max = async || daemon.get("/v1/info").await.expect_status(200)["processes"]["max"].clone();
    let run = async |script: &str| {
        let mut command = editing(&daemon, script);
        command.stdin(Stdio::null());
        let ended = within("the end of acpd config edit", command.output()).await.unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let (code, told) = run("sed -i 's/processes = 3/processes = 5/' \"$1\"").await;
    assert!(code == Some(0) && told.contains("has reloaded its") && max().await == 5, "{told}");
    let (code, told) = run("true").await;
    assert!(code == Some(0) && told.contains("nothing was changed"), "{told}");
    let before = text();
    let (code, told) = run("sed -i 's/processes = 5/processes = 0/' \"$1\"").await;
    assert!(code == Some(1) && told.contains("invalid value 0") && told.contains("your text is in"), "{told}");
    assert_eq!(text(), before);

    let (code, told) = run("false").await;
    assert!(code == Some(1) && told.contains("is unchanged; VISUAL or EDITOR names the editor"), "{told}");

    // A person is asked, and corrects it: the second time the editor finds the mistake.
    let script = "if grep -q 'processes = 0' \"$1\"; then sed -i 's/processes = 0/processes = 7/' \"$1\"; \
        else sed -i 's/processes = 5/processes = 0/' \"$1\"; fi";
    let mut terminal = harness::Terminal::start(100, 20, &editing(&daemon, script));
    terminal.shows("Edit again?").await;
    terminal.types("y\n");
    let ended = terminal.ended().await;
    assert!(ended.code == 0 && ended.screen.contains("has reloaded its"), "{}", ended.screen);
    assert_eq!(max().await, 7);
    let left = daemon
        .root()
        .read_dir()
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("config.edit-"));
    assert_eq!(left.count(), 1, "only the text that was refused is kept");
}
