//! Keys and sign-ins: how they get from a person's shell to the agents that need them, and to no others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{CTRL_C, Daemon, ORDINARY, Output, users, within};
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
    // Only root reads what is in the daemon's memory.
    if rustix::process::geteuid().is_root() {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("GEMINI_API_KEY=") && !environment.contains("OTHER_SECRET"), "{environment}");
    }
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
    assert!(
        failed.stderr.contains("`acpd agents key shy --variable MY_KEY`") && !failed.stderr.contains(KEY),
        "{}",
        failed.stderr
    );
    let checked = with(&daemon, &[("MY_KEY", KEY)], &["agents", "check", "shy"]).await;
    assert!(checked.code == 1 && checked.stdout.contains(cure), "{}", checked.stdout);
    let added = ["agents", "add", "demo", "--env-pass", "MY_KEY"];
    assert!(with(&daemon, &[("MY_KEY", KEY)], &added).await.stderr.contains(cure), "a new name is not there either");
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

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_key_is_stored_in_a_private_file_and_reaches_the_next_process() {
    let daemon = Daemon::builder().agent("mine", telling("MY_KEY")).start().await;
    let file = daemon.root().join("mine.env");
    let add = ["agents", "key", "mine", "--variable", "MY_KEY"];
    assert_eq!(daemon.cli(&["run", "--agent", "mine", "hello"]).await.success(), "key: (unset)\n");

    let exposed = daemon.cli(&["agents", "key", "mine", KEY]).await;
    assert!(exposed.code == 1 && exposed.stderr.contains("must not be an argument"), "{}", exposed.stderr);
    assert!(!exposed.stderr.contains(KEY), "{}", exposed.stderr);

    let stored = daemon.cli_with_input(&add, &format!("{KEY}\n")).await;
    assert!(stored.stderr.contains("stored MY_KEY for the agent \"mine\" in "), "{}", stored.stderr);
    assert!(!stored.stderr.contains(KEY) && stored.success().is_empty());
    assert_eq!((std::fs::read_to_string(&file).unwrap(), mode(&file)), (format!("MY_KEY=\"{KEY}\"\n"), 0o600));
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    assert!(config.contains(&format!("env_file = {file:?}")) && !config.contains(KEY), "{config}");
    assert_eq!(daemon.cli(&["run", "--agent", "mine", "hello"]).await.success(), "key: [redacted:MY_KEY]\n");

    // Another variable goes into the same file, and a new key replaces the old one.
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    daemon.cli_with_input(&["agents", "key", "mine", "--variable", "OTHER"], "other").await.success();
    daemon.cli_with_input(&add, "a \"new\" $key").await.success();
    let text = "MY_KEY=\"a \\\"new\\\" \\$key\"\nOTHER=\"other\"\n";
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), mode(&file)), (text, 0o600));
    assert_eq!(std::fs::read_to_string(daemon.config_file()).unwrap(), config);

    for (arguments, input, problem) in [
        (&add[..], "", "no key was given"),
        (&add, "two\nlines", "a line break"),
        (&add, "bell\u{7}", "control character"),
        (&["agents", "key", "mine"], KEY, "--variable"),
        (&["agents", "key", "mine", "--variable", "NOT A NAME"], KEY, "not a valid variable name"),
        (&["agents", "key", "mime"], KEY, "did you mean `mine`?"),
    ] {
        let refused = daemon.cli_with_input(arguments, input).await;
        assert!(refused.code == 1 && refused.stderr.contains(problem), "{problem}: {}", refused.stderr);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{problem}");
    }
}

#[tokio::test]
async fn a_key_that_is_typed_is_not_echoed() {
    let daemon = Daemon::start().await;
    let mut terminal = daemon.terminal(80, 24, &["agents", "key", "gemini"]);
    terminal.until("GEMINI_API_KEY for gemini: ").await;
    terminal.types(&format!("{KEY}\n"));
    let ended = terminal.ended().await;
    assert!(ended.code == 0 && ended.is_sane, "{}", ended.screen);
    assert!(!ended.written.contains(KEY), "{}", ended.written);
    let text = std::fs::read_to_string(daemon.root().join("gemini.env")).unwrap();
    assert_eq!(text, format!("GEMINI_API_KEY=\"{KEY}\"\n"));

    let mut terminal = daemon.terminal(80, 24, &["agents", "key", "codex"]);
    terminal.until("OPENAI_API_KEY for codex: ").await;
    terminal.types(CTRL_C);
    let ended = terminal.ended().await;
    assert!(ended.code == 130 && ended.is_sane, "{}", ended.screen);
    daemon.cli_with_input(&["agents", "key", "codex"], KEY).await.success();
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    assert!(config.contains("auth_method = \"api-key\""), "it uses a key only then: {config}");
}

#[tokio::test]
async fn a_sign_in_runs_here_and_is_checked() {
    let builder = Daemon::builder();
    let (signed, wrapper) = (builder.root().join("signed"), builder.root().join("agent"));
    let methods = json!([{"id": "browser", "name": "A browser"},
        {"id": "tty", "name": "Here", "type": "terminal", "args": ["--sign-in"], "env": {"SIGNED": signed}}]);
    let script = json!([{"handshake": {"initialize": {"authMethods": methods}}}, {"hang": true}]);
    let program = Path::new(env!("CARGO_BIN_EXE_acpd")).with_file_name("examples/test-agent");
    let text =
        format!("#!/bin/sh\n[ \"$2\" = --sign-in ] && exec touch \"$SIGNED\"\nexec {} \"$1\"\n", program.display());
    std::fs::write(&wrapper, text).unwrap();
    std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).unwrap();
    let script_file = builder.root().join("scripts/inner/script.json");
    let daemon = builder
        .agent("inner", script)
        .config(&format!("[agents.announcing]\ncommand = {wrapper:?}\nargs = [{script_file:?}]"))
        .agent_with("shy", refusing(), "login_command = [\"sh\", \"-c\", \"echo here; exit 3\"]")
        .config("[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"")
        .start()
        .await;
    let told = daemon.cli(&["agents", "login", "announcing"]).await;
    assert!(told.code == 0 && told.stdout.contains("· announcing"), "{told:?}");
    assert!(signed.exists(), "the agent's own command was run: {}", told.stderr);

    let told = daemon.cli(&["agents", "login", "shy"]).await;
    assert!(told.stdout.starts_with("here\n") && told.stderr.contains("failed (exit status: 3)"), "{told:?}");
    assert!(told.code == 1 && told.stdout.contains("✗ shy"), "the check tells that it is not signed in: {told:?}");

    let unknown = daemon.cli(&["agents", "login", "demo"]).await;
    assert!(unknown.code == 1 && unknown.stderr.contains("does not know how to sign in"), "{}", unknown.stderr);
    let missing = daemon.cli(&["agents", "login", "qwen"]).await;
    assert!(
        missing.code == 1 && missing.stderr.contains("hint: install it with `npm install -g @qwen-code"),
        "{}",
        missing.stderr
    );
}
