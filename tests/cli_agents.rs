//! Agents on the command line: listed, tried for real, added to the configuration file and taken out of it again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::os::unix::fs::{PermissionsExt, symlink};

use harness::{Daemon, DaemonBuilder, ORDINARY, echo, users};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Where everything of the test is, and how long things took, differ from run to run.
fn assert_seen(name: &str, daemon: &Daemon, seen: &str) {
    let root = daemon.root().display().to_string();
    let filters = vec![
        (root.as_str(), "[root]"),
        (r"/\S+/test-agent\b", "[test-agent]"),
        (r"answers in \d+\.\d\d s", "answers in [time]"),
        (env!("CARGO_PKG_VERSION"), "[version]"),
        (r"\bpid \d+", "pid [pid]"),
    ];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(name, seen) });
}

fn signed_in() -> Value {
    json!([{"handshake": {
        "capabilities": {"loadSession": true, "promptCapabilities": {"image": true}, "_meta": {"authStatus": {}}},
        "initialize": {
            "agentInfo": {"name": "scripted", "title": "Scripted \u{1b}[31magent", "version": "1.2.3"},
            "authMethods": [{"id": "key", "name": "A key"}],
        },
        "newSession": {"modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}},
    }},
    {"notify": {"method": "_auth/status_update", "params": {"authStatus": {"kind": "key"}}}},
    {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}])
}

/// Begins a conversation without a sign-in, and refuses the first prompt.
fn trusting() -> Value {
    json!([{"handshake": {"initialize": {"authMethods": [{"id": "key", "name": "A key"}]}}}, {"expect": "session/prompt"},
        {"replyError": {"code": -32000, "message": "Authentication required"}}, {"hang": true}])
}

fn stranger() -> Value {
    json!([{"expect": "initialize"},
        {"reply": {"protocolVersion": 1, "agentInfo": {"name": "shy", "version": "7"}, "agentCapabilities": {}}},
        {"expect": "session/new"}, {"replyError": {"code": -32000, "message": "Authentication required"}},
        {"hang": true}])
}

/// Says by itself, and late, that nobody is signed in.
fn telling() -> Value {
    json!([{"handshake": {"capabilities": {"_meta": {"authStatus": {}}}}},
        {"notify": {"method": "_auth/status_update", "params": {"authStatus": {"kind": "none"}}}}, {"hang": true}])
}

fn agents() -> DaemonBuilder {
    let login = "login_hint = \"run `shy login`\"";
    Daemon::builder()
        .config("[sessions]\nagent = \"good\"\n[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"")
        .agent("good", signed_in())
        .agent_with("shy", stranger(), login)
        .agent_with("telling", telling(), login)
        .agent("crashing", json!([{"stderr": "cannot find my \u{1b}[2Jwits"}, {"exit": 3}]))
        .agent("hanging", json!([{"ignoreSignals": ["TERM"]}, {"ignoreEof": true}, {"hang": true}]))
        .agent("old", json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 0}}, {"hang": true}]))
        .config("[agents.absent]\ncommand = \"/nowhere/agent\"\ninstall_hint = \"build it\"")
}

async fn check(daemon: &Daemon, agent: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/agents/{agent}/check"), body).await.expect_status(200)
}

/// Nothing that was tried is left: no process, no session, no directory.
async fn assert_nothing_left(daemon: &Daemon) {
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["processes"]["running"], 0, "{info}");
    let run = daemon.state_dir().join("run");
    let left: Vec<_> = std::fs::read_dir(run).map(|entries| entries.flatten().collect()).unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(daemon.sql_number("SELECT count(*) FROM sessions".to_owned()).await, 0);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).unwrap();
    assert_eq!(children.trim(), "", "every shim is reaped");
}

#[tokio::test]
async fn a_check_tells_what_the_agent_says_of_itself_and_leaves_nothing() {
    let daemon = agents().start().await;
    let seen = check(&daemon, "good", json!({"session": true})).await;
    assert_eq!((&seen["ok"], &seen["found"], &seen["signedIn"]), (&json!(true), &json!(true), &json!(true)), "{seen}");
    assert_eq!((&seen["version"], &seen["protocolVersion"]), (&json!("1.2.3"), &json!(1)));
    assert_eq!((&seen["modes"], &seen["capabilities"]["loadSession"]), (&json!(["ask"]), &json!(true)));
    assert_eq!(seen["authMethods"][0]["id"], "key");
    assert_nothing_left(&daemon).await;

    let seen = check(&daemon, "shy", json!({})).await;
    assert_eq!((&seen["ok"], &seen["signedIn"]), (&json!(true), &Value::Null), "nobody has asked: {seen}");
    for agent in ["shy", "telling"] {
        let seen = check(&daemon, agent, json!({"session": true})).await;
        assert_eq!((&seen["ok"], &seen["signedIn"]), (&json!(false), &json!(false)), "{seen}");
        assert_eq!(
            (&seen["error"]["code"], &seen["error"]["hint"]),
            (&json!("auth_required"), &json!("run `shy login`"))
        );
    }
    let seen = check(&daemon, "crashing", json!({})).await;
    assert_eq!(seen["error"]["code"], "agent_exited");
    assert!(seen["error"]["message"].as_str().unwrap().contains("with code 3 during initialize"), "{seen}");
    let seen = check(&daemon, "hanging", json!({"timeoutSeconds": 1})).await;
    assert_eq!(seen["error"]["code"], "timeout", "{seen}");
    let seen = check(&daemon, "old", json!({})).await;
    assert_eq!((&seen["error"]["code"], &seen["protocolVersion"]), (&json!("protocol"), &json!(0)), "{seen}");
    let seen = check(&daemon, "absent", json!({})).await;
    assert_eq!((&seen["found"], &seen["error"]["code"]), (&json!(false), &json!("agent_not_installed")), "{seen}");
    assert_nothing_left(&daemon).await;

    daemon.post("/v1/agents/nobody/check", json!({})).await.refused(404, "agent_not_found");
    for body in [json!({"sesion": true}), json!({"timeoutSeconds": 0}), json!({"timeoutSeconds": 601})] {
        daemon.post("/v1/agents/good/check", body).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_check_that_cannot_know_of_a_sign_in_says_so() {
    let config = "[sessions]\nagent = \"trusting\"";
    let daemon = Daemon::builder().config(config).agent("trusting", trusting()).start().await;
    for more in [&[][..], &["--no-session"]] {
        let told = daemon.cli(&[&["agents", "check", "trusting"], more].concat()).await.success();
        assert!(told.starts_with("  · trusting") && told.contains("sign-in: unknown"), "{told}");
        assert!(told.contains("hint: `acpd run --agent trusting hello`"), "{told}");
    }
    assert_eq!(daemon.cli(&["agents", "check", "trusting", "--json"]).await.json()[0]["signedIn"], Value::Null);
    let doctor = daemon.cli(&["doctor"]).await.stdout;
    assert!(doctor.contains("· trusting"), "{doctor}");
    let demo = daemon.cli(&["agents", "check", "demo"]).await.success();
    assert!(demo.starts_with("  ✓ demo") && !demo.contains("sign-in"), "the built-in agent needs none: {demo}");
}

#[tokio::test]
async fn a_check_takes_a_free_slot_and_drives_nobody_out() {
    let daemon = agents().config("[limits]\nprocesses = 1").start().await;
    let session = daemon.create_session("good").await;
    daemon.prompt_and_wait(&session, "hello").await;
    daemon.post("/v1/agents/shy/check", json!({})).await.refused(429, "process_limit");
    assert_eq!(daemon.session(&session).await["processState"], "ready", "an idle one stays, too");
    assert_eq!(daemon.cli(&["agents", "check", "good"]).await.code, 7);
}

#[tokio::test]
async fn what_the_agent_lets_slip_of_its_key_is_not_told() {
    let slip = json!([{"stderr": "my key is hunter2-hunter2"}, {"expect": "initialize"},
        {"replyError": {"code": 1, "message": "bad key hunter2-hunter2"}}, {"hang": true}]);
    let daemon = Daemon::builder()
        .agent_with("leaky", slip, "env = { SECRET = \"hunter2-hunter2\" }\n")
        .config("[processes]\neof_grace = \"100ms\"\nterm_grace = \"100ms\"")
        .start()
        .await;
    let seen = check(&daemon, "leaky", json!({})).await.to_string();
    assert!(seen.contains("[redacted:SECRET]") && !seen.contains("hunter2"), "{seen}");
}

#[tokio::test]
async fn a_daemon_that_stops_ends_what_it_tries() {
    let mut daemon = agents().start().await;
    let (reply, ()) = tokio::join!(daemon.post("/v1/agents/hanging/check", json!({})), async {
        daemon.logged("checking the agent").await;
        daemon.signal(Signal::SIGTERM);
    });
    assert_eq!(reply.expect_status(200)["error"]["code"], "interrupted");
    assert!(daemon.ended().await.success());
    assert!(daemon.state_dir().join("run").read_dir().map_or(true, |mut left| left.next().is_none()));
}

#[tokio::test]
async fn a_members_check_runs_as_the_member() {
    if users().len() < 2 {
        harness::say("SKIPPED: only a daemon of root can run agents as other users");
        return;
    }
    let who =
        "[agents.who]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo uid $(id -u) in $(pwd) >&2; touch here; exit 3\"]";
    let daemon = Daemon::builder().owner(ORDINARY).config(who).start().await;
    let seen = daemon.as_user(ORDINARY, &[]).post("/v1/agents/who/check", json!({})).await.expect_status(200);
    let message = seen["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("uid {} in {}", ORDINARY.uid, daemon.state_dir().display())), "{message}");
    assert_nothing_left(&daemon).await;
}

#[tokio::test]
async fn what_was_tried_is_told_in_lines_with_hints() {
    let daemon = agents().start().await;
    let all = ["agents", "check", "good", "shy", "crashing", "absent"];
    let told = daemon.cli(&all).await;
    assert_eq!(told.code, 1, "one that was named does not work");
    assert_seen("check_piped", &daemon, &told.stdout);
    for columns in [80, 140] {
        let ended = daemon.terminal(columns, 40, &all).ended().await;
        assert_eq!(ended.code, 1);
        assert_seen(&format!("check_{columns}"), &daemon, &ended.screen);
        assert!(!ended.written.contains("\u{1b}[2J"), "nothing of the agent's reaches the terminal as it is");
    }
    assert_eq!(daemon.cli(&["agents", "check"]).await.code, 0, "without a name it is the default");
    assert_eq!(daemon.cli(&["agents", "check", "--all", "--timeout", "1s"]).await.code, 0, "nobody named those");
    for timeout in ["11m", "500ms", "90"] {
        let refused = daemon.cli(&["agents", "check", "good", "--timeout", timeout]).await;
        assert!(refused.code == 2 && refused.stderr.contains("from 1s to 10m"), "{}", refused.stderr);
    }
    let json = daemon.cli(&["agents", "check", "good", "--json"]).await.json();
    assert_eq!((&json[0]["slug"], &json[0]["ok"]), (&json!("good"), &json!(true)));
    let refused = daemon.cli(&["agents", "check", "go/od"]).await;
    assert!(refused.code == 1 && refused.stdout.contains("hint: "), "{}", refused.stdout);
    let both = daemon.cli(&["agents", "check", "good", "crashin"]).await;
    assert!(both.code == 1 && both.stdout.contains("✓ good"), "what went well is told too: {}", both.stdout);
    assert!(both.stdout.contains("did you mean `crashing`?"), "{}", both.stdout);
}

#[tokio::test]
async fn checks_do_not_take_the_places_from_each_other() {
    let daemon = agents().config("[limits]\nprocesses = 2").start().await;
    let names = ["good", "shy", "telling", "old", "good", "shy"];
    let told = daemon.cli(&[&["agents", "check", "--json"], names.as_slice()].concat()).await;
    let checks: Vec<Value> = serde_json::from_str(&told.stdout).unwrap();
    let seen: Vec<&str> = checks.iter().map(|check| check["slug"].as_str().unwrap()).collect();
    assert_eq!(seen, names, "in the order in which they were named");
    assert!(checks.iter().all(|check| check["error"]["code"] != "process_limit"), "{checks:?}");
}

#[tokio::test]
async fn a_check_is_counted_among_the_processes() {
    let daemon = agents().config("[limits]\nprocesses = 1").start().await;
    let (hung, ()) = tokio::join!(daemon.post("/v1/agents/hanging/check", json!({"timeoutSeconds": 5})), async {
        daemon.logged("checking the agent").await;
        let info = daemon.get("/v1/info").await.expect_status(200);
        assert_eq!(info["processes"], json!({"running": 1, "max": 1, "checks": 1}));
        let status = daemon.cli(&["status"]).await;
        assert!(status.stdout.contains("1 running, at most 1, checks: 1"), "{}", status.stdout);
        let refused = daemon.post("/v1/agents/good/check", json!({})).await.refused(429, "process_limit");
        assert!(refused["hint"].as_str().unwrap().contains("an agent check to end"), "{refused}");
    });
    let hint = hung.expect_status(200)["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("acpd agents check hanging --timeout") && !hint.contains("initialize_timeout"), "{hint}");
}

#[tokio::test]
async fn what_an_agent_says_of_itself_stays_on_its_line() {
    let script = json!([{"handshake": {"initialize": {"agentInfo": {"name": "two\nlines", "version": "1\n2\u{7}"}}}},
        {"hang": true}]);
    let chatter = format!("{}the last word", "word\n".repeat(400));
    let chatty = json!([{"stderr": chatter}, {"exit": 3}]);
    let daemon = agents().agent("broken", script).agent("chatty", chatty).start().await;
    let told = daemon.cli(&["agents", "check", "broken"]).await.success();
    assert!(told.contains("two lines 1 2,") && told.trim_end().lines().count() == 2, "a line and its hint: {told}");
    let told = daemon.cli(&["agents", "check", "chatty"]).await.stdout;
    assert!(told.contains("with code 3") && told.contains("the last word"), "{told}");
    assert!(told.lines().count() == 2 && told.len() < 1200, "a line and its hint: {told}");
}

#[tokio::test]
async fn agents_are_listed_with_what_is_there_first() {
    let daemon = Daemon::builder().config("[sessions]\nagent = \"echo\"").agent("echo", echo()).start().await;
    assert_seen("list_piped", &daemon, &daemon.cli(&["agents"]).await.success());
    for columns in [80, 140] {
        let ended = daemon.terminal(columns, 24, &["agents"]).ended().await;
        assert_eq!(ended.code, 0);
        // The path to the program has another length in every build.
        if columns == 80 {
            assert_seen("list_80", &daemon, &ended.screen);
        }
        assert!(ended.screen.contains("codex     no "), "{}", ended.screen);
    }
    assert_seen("show", &daemon, &daemon.cli(&["agents", "show", "codex"]).await.success());
    let json = daemon.cli(&["agents", "--json"]).await.json();
    assert_eq!(json["total"], 7);
}

#[tokio::test]
async fn show_has_the_scope_that_sessions_can_get_and_the_files_of_variables() {
    for (config, scope) in [("", "project"), ("[sandbox]\nallow_full = true\n", "full")] {
        let extra = "env_file = [\"-/etc/acpd/a.env\", \"-/etc/acpd/b.env\"]";
        let daemon = Daemon::builder().config(config).agent_with("echo", echo(), extra).start().await;
        let shown = daemon.cli(&["agents", "show", "echo"]).await.success();
        assert!(shown.contains(&format!("sandboxed (sessions may have {scope} at most)")), "{shown}");
        assert!(shown.contains("env_file      -/etc/acpd/a.env, -/etc/acpd/b.env"), "{shown}");
        assert_eq!(daemon.get("/v1/agents/echo").await.expect_status(200)["fsScope"], scope);
    }
}

#[tokio::test]
async fn an_agent_is_added_beside_what_is_there_and_the_daemon_has_it_at_once() {
    let daemon =
        Daemon::builder().config("# mine, and not yours\n[limits] # five are many\nprocesses = 4").start().await;
    let file = daemon.config_file();
    let before = std::fs::read_to_string(file).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let add =
        ["agents", "add", "mine", "--command", "acpd-agent", "--arg", "--acp", "--env-pass", "MY_KEY", "--default"];
    let told = daemon.cli(&add).await;
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert_seen("add", &daemon, &told.stderr);
    let after = std::fs::read_to_string(file).unwrap();
    assert!(after.starts_with(&before), "comments and order stay:\n{after}");
    insta::assert_snapshot!("added", after[before.len()..]);
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o640);
    let mine = daemon.get("/v1/agents/mine").await.expect_status(200);
    assert_eq!((&mine["default"], &mine["env"]), (&json!(true), &json!(["MY_KEY"])));

    // What is refused changes nothing.
    for (arguments, word) in [
        (&["mine", "--command", "other"][..], "--force"),
        (&["Bad Name", "--command", "x"], "lower-case letters"),
        (&["other"], "--command"),
        (&["other", "--command", "x", "--permissions", "lots"], "permission mode"),
        (&["other", "--command", "x", "--permissions-max", "lots"], "permissions_max"),
        (
            &["other", "--command", "x", "--permissions", "allow", "--permissions-max", "edit"],
            "wider than permissions_max",
        ),
        (&["gemini"], "acpd agents check gemini"),
    ] {
        let refused = daemon.cli(&[&["agents", "add"], arguments].concat()).await;
        assert!(refused.code == 1 && refused.stderr.contains(word), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
        assert_eq!(std::fs::read_to_string(file).unwrap(), after);
    }
    let refused = daemon.cli(&["agents", "remove", "mine"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("sessions.agent"), "it is the default: {}", refused.stderr);

    let forced = ["agents", "add", "mine", "--npx", "@scope/agent", "--arg=--acp", "--force", "--json"];
    let forced = [&forced[..], &["--permissions-max", "edit"]].concat();
    assert_eq!(daemon.cli(&forced).await.json()["reloaded"], true);
    let mine = daemon.get("/v1/agents/mine").await.expect_status(200);
    assert_eq!((&mine["command"], &mine["args"]), (&json!("npx"), &json!(["-y", "@scope/agent", "--acp"])));
    assert_eq!(mine["env"], json!(["npm_config_cache", "MY_KEY"]), "what was not named stays");
    assert_eq!(mine["permissionsMax"], "edit");

    daemon.cli(&["agents", "add", "demo", "--default"]).await.success();
    daemon.cli(&["agents", "remove", "mine"]).await.success();
    daemon.get("/v1/agents/mine").await.refused(404, "agent_not_found");
    assert_eq!(daemon.get("/v1/agents/demo").await.expect_status(200)["default"], true);
}

/// The agents of known.toml need no options, and the help and the book name them.
#[tokio::test]
async fn well_known_agents_are_added_by_their_name_alone() {
    let daemon = Daemon::start().await;
    let known: toml::Table = include_str!("../src/cli/command/agents/known.toml").parse().unwrap();
    let help = daemon.cli(&["agents", "add", "--help"]).await.success();
    for name in known.keys() {
        daemon.cli(&["agents", "add", name]).await.success();
        let agent = daemon.get(&format!("/v1/agents/{name}")).await.expect_status(200);
        assert_eq!(agent["command"], known[name]["command"].as_str().unwrap());
        for text in [&help, include_str!("../docs/agents.md")] {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
    }
    let file = std::fs::read_to_string(daemon.config_file()).unwrap();
    assert!(file.contains("[agents.vibe]\n") && !file.contains("docs/agents.md"), "{file}");
    let elsewhere = ["agents", "add", "goose", "--command", "/opt/goose", "--force"];
    daemon.cli(&elsewhere).await.success();
    assert_eq!(daemon.get("/v1/agents/goose").await.expect_status(200)["command"], "/opt/goose");
}

#[tokio::test]
async fn a_new_file_is_private_and_a_link_stays_one() {
    let daemon = Daemon::start().await;
    let at = |name: &str| daemon.home().join(name);
    let add = async |file: &str, more: &[&str]| {
        let file = at(file).display().to_string();
        let arguments = [&["agents", "add", "mine", "--uvx", "agent", "--config", &file], more].concat();
        daemon.cli(&arguments).await
    };
    let shown = add("new/config.toml", &["--dry-run"]).await.success();
    assert!(shown.contains("[agents.mine]\ncommand = \"uvx\"") && !at("new").exists(), "{shown}");
    let told = add("new/config.toml", &["--env", "API_KEY=x"]).await;
    assert!(told.stderr.contains("the running daemon does not use this change: it reads"), "{}", told.stderr);
    assert!(told.stderr.contains("API_KEY") && told.code == 0, "{}", told.stderr);
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("new"), mode("new/config.toml")), (0o700, 0o600));
    assert_eq!(std::fs::read_dir(at("new")).unwrap().count(), 1, "nothing unfinished is left");

    std::fs::write(at("real.toml"), "# real\n").unwrap();
    symlink(at("real.toml"), at("link.toml")).unwrap();
    assert_eq!(add("link.toml", &[]).await.code, 0);
    assert!(at("link.toml").is_symlink());
    assert!(std::fs::read_to_string(at("real.toml")).unwrap().starts_with("# real\n"));

    std::fs::write(at("broken.toml"), "[agents").unwrap();
    let refused = add("broken.toml", &[]).await;
    assert!(refused.code == 1 && refused.stderr.contains("TOML"), "{}", refused.stderr);
}

/// What is in the file after that, and what was said.
async fn changed(daemon: &Daemon, before: &str, arguments: &[&str]) -> (String, String) {
    let file = daemon.home().join("changed.toml");
    std::fs::write(&file, before).unwrap();
    let path = file.display().to_string();
    let told = daemon.cli(&[&["agents", "add", "--config", &path], arguments].concat()).await;
    assert_eq!(told.code, 0, "{}", told.stderr);
    (std::fs::read_to_string(&file).unwrap(), told.stderr)
}

#[tokio::test]
async fn agents_that_are_added_at_once_are_all_there() {
    let daemon = Daemon::start().await;
    let file = daemon.home().join("new/config.toml");
    let path = file.display().to_string();
    let names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let add = |name: &String| {
        let arguments = ["agents", "add", name, "--command", "/bin/cat", "--config", &path].map(str::to_owned);
        let daemon = &daemon;
        async move { daemon.cli(&arguments.each_ref().map(String::as_str)).await }
    };
    for told in futures_util::future::join_all(names.iter().map(add)).await {
        assert_eq!(told.code, 0, "{}", told.stderr);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    for name in &names {
        assert!(text.contains(&format!("[agents.{name}]")), "{name} is lost:\n{text}");
    }
}

#[tokio::test]
async fn a_change_replaces_what_it_names_and_keeps_the_rest() {
    let daemon = Daemon::start().await;
    let before = "[agents.mine] # mine\n# why it is run\ncommand = \"npx\" # so\nargs = [\"-y\", \"foo\"]\n\
        env = { npm_config_cache = \"{home}/.npm\", LEVEL = \"1\", OTHER = \"2\" } # both\n\
        env_plain = [\"npm_config_cache\", \"LEVEL\"]\nenv_pass = [\"A\"]\n";
    let force = ["mine", "--force", "--command", "/bin/cat", "--env", "LEVEL=3", "--env-pass", "B"];
    let (after, told) = changed(&daemon, before, &force).await;
    assert!(told.contains("changed the agent \"mine\""), "{told}");
    insta::assert_snapshot!("changed", after);
    // What it runs need not be said again.
    let (after, _) = changed(&daemon, before, &["mine", "--force", "--description", "Mine"]).await;
    assert!(after.starts_with(before) && after.ends_with("description = \"Mine\"\n"), "{after}");
}

#[tokio::test]
async fn what_is_not_changed_stays_as_it_was_written() {
    let daemon = Daemon::start().await;
    let add = ["mine", "--command", "/bin/cat"];
    let (after, _) = changed(&daemon, "[limits]\r\nprocesses = 4\r\n", &add).await;
    assert!(after.starts_with("[limits]\r\nprocesses = 4\r\n\r\n[agents.mine]\r\n"), "{after:?}");
    assert!(!after.replace("\r\n", "").contains('\n'), "{after:?}");

    let before = "[agents.a]\ncommand = \"a\"\n\n[limits]\nprocesses = 4\n# five were too many\n";
    let (after, _) = changed(&daemon, before, &add).await;
    assert!(after.starts_with(before), "{after}");

    let link = daemon.home().join("link.toml");
    symlink("target.toml", &link).unwrap();
    let path = link.display().to_string();
    daemon.cli(&[&["agents", "add", "--config", &path], add.as_slice()].concat()).await.success();
    assert!(link.is_symlink() && daemon.home().join("target.toml").is_file());
}

#[tokio::test]
async fn what_may_be_a_mistake_is_noted() {
    let daemon = Daemon::start().await;
    let home = daemon.home().display().to_string();
    let (after, told) = changed(&daemon, "", &["mine", "--command", "~/bin/x"]).await;
    assert!(after.contains(&format!("command = \"{home}/bin/x\"")), "{after}");
    assert!(told.contains("/bin/x does not exist"), "{told}");
    let (_, told) = changed(&daemon, "", &["mine", "--command", "my agent --acp"]).await;
    assert!(told.contains("--command my --arg"), "{told}");
    let (_, told) = changed(&daemon, "", &["mine", "--command", "/bin/cat", "--env", "MY_KEY=x"]).await;
    assert!(told.contains("chmod 600"), "{told}");
    let (after, _) = changed(&daemon, "", &["mine", "--npx", "agent"]).await;
    assert!(after.contains("env_plain = [\"npm_config_cache\"]"), "{after}");
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_reported_with_the_reason() {
    let daemon = Daemon::start().await;
    let program = daemon.home().join("my-agent");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    let program = program.display().to_string();
    let (home, absent) = (daemon.home().display().to_string(), format!("{program}/absent"));
    for (command, problem, hint) in [
        (&program, format!("{program} is not executable"), format!("chmod +x {program}")),
        (&home, format!("{home} is a directory"), "name the program in it".to_owned()),
        (&absent, format!("{absent} does not exist"), "correct the path".to_owned()),
    ] {
        let added = daemon.cli(&["agents", "add", "mine", "--command", command, "--force"]).await;
        assert_eq!(added.code, 0, "{}", added.stderr);
        assert!(added.stderr.contains(&problem) && added.stderr.contains(&hint), "{}", added.stderr);
        let started = daemon.cli(&["run", "--agent", "mine", "hello"]).await;
        let error = format!("error: cannot start the agent \"mine\": {problem}\nhint: ");
        assert!(started.code == 1 && started.stderr.starts_with(&error), "{}", started.stderr);
        let checked = daemon.cli(&["agents", "check", "mine"]).await.stdout.replace('\n', " ");
        assert!(checked.contains(&problem), "{checked}");
    }
}

#[tokio::test]
async fn a_list_of_large_agents_comes_in_pages() {
    let large = format!("system_prompt = \"{}\"\n", "x".repeat(65_000));
    let daemon = Daemon::builder().agent_with("large", echo(), &large).start().await;
    // One way is large by its base, the other one by itself.
    for number in 0..70 {
        for body in [
            json!({"slug": format!("a{number}"), "base": "large"}),
            json!({"slug": format!("b{number}"), "base": "demo", "systemPrompt": "y".repeat(65_000)}),
        ] {
            daemon.post("/v1/agents", body).await.expect_status(201);
        }
    }
    let (mut seen, mut total, mut pages) = (0, 1, 0);
    while seen < total {
        let page = daemon.get(&format!("/v1/agents?offset={seen}")).await;
        assert!(page.text.len() < 9 << 20, "{}", page.text.len());
        let page = page.expect_status(200);
        total = page["total"].as_u64().unwrap();
        seen += page["agents"].as_array().unwrap().len() as u64;
        pages += 1;
    }
    assert_eq!((seen, pages), (total, 2));
    let told = daemon.cli(&["agents"]).await;
    assert!(told.stderr.contains("more are not shown"), "{}", told.stderr);
}
