//! `acpd doctor`: what it says when all is well, and when something is broken for real.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{Daemon, DaemonBuilder, Disk, echo, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// What differs from machine to machine and from run to run.
fn assert_seen(name: &str, daemon: &Daemon, seen: &str) {
    let root = daemon.root().display().to_string();
    let filters = vec![
        (root.as_str(), "[root]"),
        (r"answers in \d+\.\d\d s", "answers in [time]"),
        (env!("CARGO_PKG_VERSION"), "[version]"),
        (r"\bpid \d+", "pid [pid]"),
        (r"running for [^,]+", "running for [time]"),
        (r"echo,\s+/\S+/test-agent\b", "echo, [test-agent]"),
        (r"\d+(\.\d+)? (bytes|KiB|MiB|GiB)", "[size]"),
        (r"schema \d+", "schema [number]"),
        (r"\d+ open files, at most (\d+|unlimited)", "[number] open files"),
    ];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(name, seen) });
}

fn well() -> DaemonBuilder {
    Daemon::builder()
        .config("[sessions]\nagent = \"demo\"\n[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"")
        .agent("echo", echo())
}

/// With an agent of this script as the default one.
fn with_default(script: Value, extra: &str) -> DaemonBuilder {
    let config = "[sessions]\nagent = \"mine\"\n[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"\n\
        initialize_timeout = \"1s\"";
    Daemon::builder().config(config).agent_with("mine", script, extra)
}

/// What the doctor says of one check, and whether it ends with a failure.
async fn found(daemon: &Daemon, group: &str, check: &str) -> (i32, Vec<Value>) {
    let told = daemon.cli(&["doctor", "--json"]).await;
    let findings: Vec<Value> = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{}", told.stdout));
    let is_it = |finding: &Value| finding["group"] == group && finding["check"] == check;
    (told.code, findings.into_iter().filter(is_it).collect())
}

/// The only finding of that name, which must be as bad as this and have these words in it.
async fn assert_found(daemon: &Daemon, group: &str, check: &str, status: &str, words: &[&str]) {
    let (code, findings) = found(daemon, group, check).await;
    let [finding] = findings.as_slice() else { panic!("{group} {check}: {findings:?}") };
    assert_eq!(finding["status"], status, "{finding}");
    assert_eq!(code, i32::from(status == "problem"), "{finding}");
    for word in words {
        assert!(finding.to_string().contains(word), "{word:?} in {finding}");
    }
    let needs_hint = matches!(status, "problem" | "warning");
    assert!(!needs_hint || finding["hint"].is_string(), "what is wrong has a hint: {finding}");
}

fn change_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn when_all_is_well_it_says_so() {
    let daemon = well().start().await;
    let told = daemon.cli(&["doctor"]).await;
    assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{}", told.stdout);
    // What the machine's kernel and its systemd are is not the test's.
    let without_machine = |text: &str| -> String {
        let groups = text.split("\n\n").filter(|group| !group.starts_with("kernel") && !group.starts_with("systemd"));
        let all: Vec<&str> = groups.collect();
        all[..all.len() - 1].join("\n\n")
    };
    assert_seen("well_piped", &daemon, &without_machine(&told.stdout));
    for columns in [80, 140] {
        let ended = daemon.terminal(columns, 60, &["doctor"]).ended().await;
        assert_eq!(ended.code, 0);
        assert!(ended.screen.lines().all(|line| line.chars().count() <= usize::from(columns)), "{}", ended.screen);
        assert!(ended.written.contains("\u{1b}[32m✓"), "in colour");
        assert_seen(&format!("well_{columns}"), &daemon, &without_machine(&ended.screen));
    }
    let all = daemon.cli(&["doctor", "--agents"]).await;
    assert!(all.code == 0 && all.stdout.contains("· echo"), "{}", all.stdout);
    let none = daemon.cli(&["doctor", "--no-agents"]).await.success();
    assert!(none.contains("demo") && !none.contains("answers in"), "{none}");
}

#[tokio::test]
async fn without_a_daemon_it_looks_from_here_and_starts_none() {
    let mut daemon = well().start().await;
    daemon.terminate().await;
    assert_found(&daemon, "daemon", "socket", "note", &["no daemon is running", "acpd serve"]).await;
    assert!(!daemon.socket().exists(), "and none was started");
    let (_, agents) = found(&daemon, "agents", "echo").await;
    assert_eq!(agents[0]["status"], "ok", "{agents:?}");
    let (_, landlock) = found(&daemon, "kernel", "Landlock").await;
    assert_eq!(landlock.len(), 1, "{landlock:?}");

    daemon.restart().await;
    daemon.kill().await;
    assert_found(&daemon, "daemon", "socket", "warning", &["its daemon is not running"]).await;
}

#[tokio::test]
async fn what_is_open_to_others_is_a_problem_with_the_command_that_closes_it() {
    let daemon = well().agent_with("keyed", echo(), "").start().await;
    let state = daemon.state_dir().to_owned();
    let socket = daemon.socket().to_owned();
    let database = state.join("acpd.db");
    for (check, path, open, close) in [
        ("socket", socket.as_path(), 0o666, "600"),
        ("socket dir", socket.parent().unwrap(), 0o755, "700"),
        ("state dir", &state, 0o755, "700"),
        ("database", &database, 0o644, "600"),
    ] {
        let before = path.metadata().unwrap().permissions().mode() & 0o777;
        change_mode(path, open);
        let command = format!("chmod {close} {}", path.display());
        assert_found(&daemon, "files", check, "problem", &[&command]).await;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, open, "it changes nothing");
        change_mode(path, before);
        assert_found(&daemon, "files", check, "ok", &[]).await;
    }
    change_mode(daemon.config_file(), 0o666);
    assert_found(&daemon, "files", "configuration", "problem", &["chmod go-w"]).await;
    change_mode(daemon.config_file(), 0o644);
    assert_found(&daemon, "files", "configuration", "ok", &[]).await;
}

#[tokio::test]
async fn keys_that_others_can_read_are_a_problem() {
    let builder = well();
    let keys = builder.root().join("keys.env");
    std::fs::write(&keys, "MY_KEY=hunter2-hunter2\n").unwrap();
    change_mode(&keys, 0o644);
    let extra = format!("env_file = {keys:?}\nenv = {{ OTHER_KEY = \"hunter3-hunter3\" }}");
    let daemon = builder.agent_with("keyed", echo(), &extra).start().await;
    assert_found(&daemon, "files", "env_file keyed", "problem", &["chmod 600"]).await;
    change_mode(&keys, 0o600);
    assert_found(&daemon, "files", "configuration", "problem", &["OTHER_KEY", "keyed", "chmod 600"]).await;
    change_mode(daemon.config_file(), 0o600);
    assert_found(&daemon, "files", "configuration", "ok", &[]).await;
    assert_found(&daemon, "files", "env_file keyed", "ok", &[]).await;
    std::fs::remove_file(&keys).unwrap();
    assert_found(&daemon, "files", "env_file keyed", "problem", &["does not exist"]).await;
    let told = daemon.cli(&["doctor"]).await;
    assert!(!told.stdout.contains("hunter"), "{}", told.stdout);
}

#[tokio::test]
async fn mistakes_in_the_file_are_told_with_their_keys_and_so_is_what_does_not_hold_yet() {
    let daemon = well().start().await;
    let reload = async || {
        let config = async || daemon.get("/v1/info").await.expect_status(200)["config"].clone();
        let before = config().await;
        daemon.signal(Signal::SIGHUP);
        within("a reload", async {
            while config().await == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), format!("{text}\n[log]\nfiles = 3\n")).unwrap();
    reload().await;
    assert_found(&daemon, "configuration", "restart", "warning", &["log.files"]).await;

    std::fs::write(daemon.config_file(), format!("{text}\n[log]\nfils = 3\n[limits]\nprocesses = \"many\"\n")).unwrap();
    let (code, keys) = found(&daemon, "configuration", "key").await;
    assert_eq!((code, keys.len()), (1, 2), "{keys:?}");
    assert!(keys[0].to_string().contains("limits.processes") && keys[1].to_string().contains("log.fils"), "{keys:?}");
    reload().await;
    assert_found(&daemon, "configuration", "reload", "problem", &["the last reload failed and changed nothing"]).await;
    let told = daemon.cli(&["doctor", "--no-agents"]).await;
    let group = told.stdout.split("\n\n").find(|group| group.starts_with("configuration")).unwrap();
    assert_seen("mistakes", &daemon, &group.replace(&daemon.pid().to_string(), "[pid]"));

    std::fs::write(daemon.config_file(), &text).unwrap();
    reload().await;
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    std::fs::File::options().append(true).open(daemon.config_file()).unwrap().set_modified(later).unwrap();
    assert_found(&daemon, "configuration", "reload", "warning", &["was changed after"]).await;
}

#[tokio::test]
async fn a_disk_that_is_full_is_a_problem() {
    let builder = well();
    let Some(disk) = Disk::mount(builder.state_dir(), "64M") else { return };
    let daemon = builder.start().await;
    assert_found(&daemon, "store", "space", "warning", &["free of"]).await;
    disk.fill();
    let (code, space) = found(&daemon, "store", "space").await;
    assert_eq!((code, &space[0]["status"]), (1, &json!("problem")), "{space:?}");
    assert!(space[0].to_string().contains("too little for new work"), "{space:?}");
    disk.empty();
    // The directory that the daemon deletes must no longer be a mount point.
    drop(disk);
}

#[tokio::test]
async fn the_default_agent_is_tried_and_what_is_wrong_with_it_is_a_problem() {
    let stranger = json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 1}}, {"expect": "session/new"},
        {"replyError": {"code": -32000, "message": "Authentication required"}}, {"hang": true}]);
    let crashing = json!([{"stderr": "no wits"}, {"exit": 3}]);
    let hanging = json!([{"ignoreEof": true}, {"hang": true}]);
    for (script, extra, words) in [
        (stranger, "login_hint = \"run `mine login`\"", ["you are not signed in", "run `mine login`"]),
        (crashing, "", ["with code 3 during initialize", "no wits"]),
        (hanging, "", ["did not answer initialize in time", "run the agent's command in a terminal"]),
    ] {
        let daemon = with_default(script, extra).start().await;
        assert_found(&daemon, "agents", "mine", "problem", &words).await;
    }
}

#[tokio::test]
async fn a_default_agent_that_is_missing_is_a_warning_and_the_others_are_a_note() {
    let daemon = Daemon::builder().start().await;
    assert_found(&daemon, "agents", "gemini", "warning", &["npm install -g @google/gemini-cli"]).await;
    assert_found(&daemon, "agents", "not installed", "note", &["claude, codex, opencode, qwen"]).await;
}

/// What it says of a daemon that would be started with these arguments.
async fn found_with(daemon: &Daemon, arguments: &[&str], group: &str, check: &str) -> Vec<Value> {
    let told = daemon.cli(&[&["doctor", "--json"], arguments].concat()).await;
    let findings: Vec<Value> = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{}", told.stdout));
    findings.into_iter().filter(|finding| finding["group"] == group && finding["check"] == check).collect()
}

#[tokio::test]
async fn a_directory_that_is_shared_is_never_to_be_closed() {
    let daemon = well().start().await;
    for directory in ["/tmp", "/run"] {
        let socket = format!("{directory}/acpd-nobody-listens.sock");
        let found = found_with(&daemon, &["--socket", &socket], "files", "socket dir").await;
        let text = serde_json::to_string(&found).unwrap();
        assert!(text.contains("another directory with --socket") && !text.contains("chmod"), "{text}");
    }
}

#[tokio::test]
async fn what_keeps_a_daemon_from_starting_is_a_problem() {
    let mut daemon = well().start().await;
    daemon.terminate().await;
    let database = daemon.state_dir().join("acpd.db");
    assert_found(&daemon, "store", "check", "ok", &["database with schema"]).await;
    std::fs::write(&database, "garbage, and much of it").unwrap();
    assert_found(&daemon, "store", "check", "problem", &["is not a database"]).await;
    std::fs::write(&database, "SQLite format 3\0and garbage").unwrap();
    assert_found(&daemon, "store", "check", "problem", &["is damaged"]).await;
    std::fs::write(&database, "").unwrap();
    assert_found(&daemon, "store", "check", "ok", &["is empty"]).await;

    let file = daemon.home().join("file");
    std::fs::write(&file, "").unwrap();
    let found = found_with(&daemon, &["--state-dir", &file.display().to_string()], "files", "state dir").await;
    let text = serde_json::to_string(&found).unwrap();
    assert!(text.contains("is not a directory") && text.contains("problem") && !text.contains("chmod"), "{text}");
}

#[tokio::test]
async fn a_state_directory_that_is_read_only_is_a_problem() {
    let builder = well();
    let Some(disk) = Disk::mount(builder.state_dir(), "64M") else { return };
    let mut daemon = builder.start().await;
    daemon.terminate().await;
    disk.protect();
    assert_found(&daemon, "files", "state dir", "problem", &["read-only file system", "--state-dir"]).await;
    drop(disk);
}

#[tokio::test]
async fn a_daemon_that_is_stuck_is_named_and_not_waited_for() {
    let daemon = well().start().await;
    daemon.signal(Signal::SIGSTOP);
    let pid = format!("(pid {})", daemon.pid());
    // Not a minute, which other commands wait for an answer.
    let patience = "has not answered within 3 seconds";
    assert_found(&daemon, "daemon", "socket", "problem", &[&pid, patience, "kill -CONT"]).await;
    let status = daemon.cli(&["status"]).await;
    assert_eq!(status.code, 3);
    assert!(status.stderr.contains(&pid) && status.stderr.contains(patience), "{}", status.stderr);
    assert!(!status.stderr.contains("acpd status"), "{}", status.stderr);
    let added = daemon.cli(&["agents", "add", "mine", "--command", "/bin/cat"]).await;
    assert_eq!(added.code, 0, "{}", added.stderr);
    let (said, late) = (added.stderr.find("added the agent"), added.stderr.find("has not reloaded"));
    assert!(said.is_some() && said < late && added.stderr.contains(patience), "{}", added.stderr);
    assert!(!added.stderr.contains("another user"), "{}", added.stderr);
    daemon.signal(Signal::SIGCONT);
}
