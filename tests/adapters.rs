//! What adapters do beside the protocol, with the scripted agent. `tests/gemini` has the real one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::Daemon;
use serde_json::{Value, json};

const GEMINI: &str = "adapter = \"gemini\"";

async fn fails(daemon: &Daemon, agent: &str) -> (Value, Value) {
    let session = daemon.create_session(agent).await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "failed", "{agent}: {turn}");
    (turn["error"].clone(), daemon.session(&session).await)
}

/// An older release does not know `--acp`, says so, and ends.
#[tokio::test]
async fn an_older_release_is_started_with_the_argument_that_it_knows() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "here"}]}]}]);
    let builder = Daemon::builder().agent("new", script);
    let test_agent = Path::new(env!("CARGO_BIN_EXE_acpd")).with_file_name("examples").join("test-agent");
    let program = builder.root().join("older-gemini");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --experimental-acp ] && exec {} {}\necho 'Unknown argument: acp' >&2\nexit 1\n",
        test_agent.display(),
        builder.root().join("scripts/new/script.json").display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let section = format!("[agents.older]\ncommand = {}\nargs = [\"--acp\"]\n{GEMINI}\n", json!(program));
    let daemon = builder.config(&section).start().await;

    let session = daemon.create_session("older").await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let events = daemon.events_so_far(&session, None).await;
    let starts = events.iter().filter(|event| event.kind == "process.starting").count();
    assert_eq!(starts, 2);
    assert_eq!(daemon.session(&session).await["lastError"], Value::Null, "nothing is wrong");
    let check = daemon.post("/v1/agents/older/check", json!({})).await.expect_status(200);
    assert_eq!(check["error"], Value::Null, "{check}");
}

/// What the agent says of its mode is no text of the conversation; and a mode that grants too much is left again.
#[tokio::test]
async fn a_mode_that_is_told_as_text_is_no_text() {
    let modes = json!({"modes": {"currentModeId": "default", "availableModes": [
        {"id": "default", "name": "Default"}, {"id": "plan", "name": "Plan"}]}});
    let script = json!([{"handshake": {"newSession": modes}},
        {"repeat": [{"prompt": [{"text": "before "}, {"text": "[MODE_UPDATE] plan"}, {"text": "after"},
            {"text": "[MODE_UPDATE] is what?"}]}]}]);
    let daemon = Daemon::builder().agent_with("modes", script, GEMINI).start().await;
    let session = daemon.create_session("modes").await;
    daemon.prompt_and_wait(&session, "go").await;
    let messages = daemon.messages(&session).await;
    let said: Vec<&Value> = messages.iter().filter(|message| message["role"] == "agent").collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!(said[0]["content"]["text"], "before after[MODE_UPDATE] is what?");
    assert_eq!(daemon.session(&session).await["mode"], "plan");
}

const SHELL: &str = "shell";

async fn printed(daemon: &Daemon, command: &str) -> String {
    let session = daemon.create_session(SHELL).await;
    let turn = daemon.prompt_and_wait(&session, command).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    messages.last().unwrap()["content"]["text"].as_str().unwrap().to_owned()
}

fn shell() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}])
}

/// Codex asks in a permission profile of acpd's, which stands in the session's settings. Without confinement it uses the user's.
#[tokio::test]
async fn codex_has_a_profile_that_asks_in_the_settings_of_a_confined_session() {
    let users = "model = \"mine\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n";
    for (config, is_confined) in [("", true), ("[sandbox]\nmode = \"off\"", false)] {
        let builder = Daemon::builder().config(config).agent_with(SHELL, shell(), "adapter = \"codex\"");
        std::fs::create_dir(builder.home().join(".codex")).unwrap();
        std::fs::write(builder.home().join(".codex/config.toml"), users).unwrap();
        let daemon = builder.start().await;
        let seen = printed(&daemon, "cat ${CODEX_HOME:-$HOME/.codex}/config.toml; echo \"$CODEX_CONFIG\"").await;
        assert!(seen.contains("model = \"mine\""), "{seen}");
        assert_eq!(seen.contains("default_permissions = \"acpd\""), is_confined, "{seen}");
        assert_eq!(seen.contains("sandbox_approval = true"), is_confined, "{seen}");
        assert_eq!(seen.contains(r#"{":root":"read"}"#), is_confined, "the workspace must not widen it: {seen}");
        assert_eq!(seen.contains("never") || seen.contains("danger"), !is_confined, "{seen}");
    }
    // What the user has wrong is said, with the file.
    let builder = Daemon::builder().agent_with(SHELL, shell(), "adapter = \"codex\"");
    std::fs::create_dir(builder.home().join(".codex")).unwrap();
    std::fs::write(builder.home().join(".codex/config.toml"), "model =").unwrap();
    let daemon = builder.start().await;
    let (error, _) = fails(&daemon, SHELL).await;
    assert!(error["message"].as_str().unwrap().contains("cannot use the Codex settings in"), "{error}");
}

/// `OpenCode` is told to ask, whatever its settings allow. What they deny stays denied, and the profile goes before acpd.
#[tokio::test]
async fn opencode_is_told_to_ask() {
    let own = "env = { OPENCODE_PERMISSION = \"{}\" }\n";
    for (sandbox, profile) in [("", ""), ("[sandbox]\nmode = \"off\"", ""), ("", own)] {
        let builder = Daemon::builder().config(sandbox);
        let builder = builder.agent_with(SHELL, shell(), &format!("adapter = \"opencode\"\n{profile}"));
        let settings = builder.home().join(".config/opencode");
        std::fs::create_dir_all(&settings).unwrap();
        let text = r#"{"permission": {"bash": {"*": "allow", "rm *": "deny"}, "edit": "allow", "webfetch": "deny",
            "mine_*": {"*": "deny"}, "read": "allow"}}"#;
        std::fs::write(settings.join("opencode.json"), text).unwrap();
        let daemon = builder.start().await;
        // Its value would be hidden if the profile gave it.
        let seen = printed(&daemon, "printf '%s' \"$OPENCODE_PERMISSION\" | tr '\"' \"'\"").await;
        for rule in [
            "'bash':'ask'",
            "'edit':'ask'",
            "'bash*':{'*':'ask','rm *':'deny'}",
            "'webfetch*':{'*':'deny'}",
            "'mine_**':{'*':'deny'}",
        ] {
            assert_eq!(seen.contains(rule), profile.is_empty(), "{rule} in {seen}");
        }
    }
}

/// An agent that wants a code would take the next line for it, so that it hears nothing more.
#[tokio::test]
async fn an_agent_that_asks_for_a_login_code_is_ended_at_once() {
    let asks = json!([{"record": true}, {"expect": "initialize"},
        {"stdout": "\u{1b}[2JPlease visit the following URL to authorize the application:\n\nhttps://x\n"},
        {"ignoreSignals": ["TERM"]}, {"ignoreEof": true}, {"expect": "never"}]);
    let login = "login_hint = \"run `gemini` once\"";
    let config = "[processes]\neof_grace = \"1h\"\nterm_grace = \"1h\"\ncrash_limit = 1\nbackoff_min = \"30m\"\nbackoff_max = \"1h\"\n";
    let daemon = Daemon::builder().config(config).agent_with("asks", asks, &format!("{GEMINI}\n{login}")).start().await;
    for _ in 0..3 {
        let (error, session) = fails(&daemon, "asks").await;
        assert_eq!((&error["code"], &error["hint"]), (&json!("auth_required"), &json!("run `gemini` once")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("GEMINI_API_KEY"), "{error}");
        assert_eq!(session["status"], "active");
        let id = session["id"].as_str().unwrap();
        let exited = daemon.events(id, None).await.until("process.exited").await;
        assert_eq!(exited.last().unwrap().payload()["reason"], "auth");
    }
    let check = daemon.post("/v1/agents/asks/check", json!({})).await.expect_status(200);
    assert_eq!(check["error"]["code"], "auth_required", "{check}");
}

/// Also in the middle of a turn, where it would be told of the turn's end.
#[tokio::test]
async fn an_agent_that_asks_for_a_login_code_in_a_turn_hears_nothing_more() {
    let prompt = "Please visit the following URL to authorize the application:\n";
    let script = json!([{"record": true}, {"handshake": {}}, {"expect": "session/prompt"},
        {"ask": {"method": "session/request_permission", "params": {"sessionId": "test-session",
            "toolCall": {"toolCallId": "t"}, "options": [{"optionId": "o", "name": "O", "kind": "allow_once"}]}}},
        {"stdout": prompt}, {"ignoreSignals": ["TERM"]}, {"expect": "never"}]);
    let daemon = Daemon::builder().agent_with("asks", script, GEMINI).start().await;
    let (error, _) = fails(&daemon, "asks").await;
    assert_eq!(error["code"], "auth_required", "{error}");
    let heard = daemon.heard("asks");
    let methods: Vec<&str> = heard.iter().map(|heard| heard.method.as_str()).collect();
    assert_eq!(methods[..3], ["initialize", "session/new", "session/prompt"]);
    assert!(!methods.contains(&"session/cancel") && methods.len() <= 4, "{methods:?}");
}

/// After a refusal the next prompt has another process, which reads the key anew.
#[tokio::test]
async fn a_new_key_needs_no_restart_of_anything() {
    let script = json!([{"handshake": {"capabilities": {"loadSession": true}, "load": [{"text": "history"}]}},
        {"repeat": [{"expect": "session/prompt"}, {"textFromEnvironment": "AGENT_KEY"},
            {"gate": "key", "cases": {"good": [{"reply": {"stopReason": "end_turn"}}],
                "bad": [{"replyError": {"code": 401, "message": "API key not valid"}}]}}]}]);
    let builder = Daemon::builder();
    let keys = builder.root().join("keys");
    let write = |key: &str| {
        std::fs::write(&keys, format!("AGENT_KEY={key}\n")).unwrap();
        std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("old-key-of-the-test");
    let daemon = builder.agent_with("keyed", script, &format!("env_file = {}", json!(keys))).start().await;
    let session = daemon.create_session("keyed").await;
    let accepted = daemon.prompt(&session, "go").await;
    daemon.gate("keyed").reached("key").await.say("bad").await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["error"]["code"], "auth_required", "{turn}");
    let exited = daemon.events(&session, None).await.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["reason"], "auth");
    write("new-key-of-the-test");
    let accepted = daemon.prompt(&session, "again").await;
    daemon.gate("keyed").reached("key").await.say("good").await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
}

#[tokio::test]
async fn an_agent_that_has_to_be_told_is_told_how_to_sign_in() {
    let answering = [
        json!({"expect": "session/new"}),
        json!({"reply": {"sessionId": "test-session"}}),
        json!({"repeat": [{"prompt": [{"text": "here"}]}]}),
    ];
    let begin = [
        json!({"expect": "initialize"}),
        json!({"reply": {"protocolVersion": 1, "authMethods": [
        {"id": "api-key", "name": "Key"}]}}),
        json!({"expect": "authenticate", "contains": "\"methodId\":\"api-key\""}),
    ];
    let steps = |answer: Value| json!([begin.as_slice(), &[answer], answering.as_slice()].concat());
    let refusal = json!({"replyError": {"code": -32000, "message": "no such key"}});
    let method = "auth_method = \"api-key\"";
    let daemon = Daemon::builder()
        .agent_with("willing", steps(json!({"reply": {}})), method)
        .agent_with("unwilling", steps(refusal), method)
        .start()
        .await;
    let session = daemon.create_session("willing").await;
    assert_eq!(daemon.prompt_and_wait(&session, "go").await["status"], "completed");
    let (error, _) = fails(&daemon, "unwilling").await;
    assert_eq!(error["code"], "auth_required");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("authenticate") && message.contains("no such key"), "{message}");
    for (agent, code) in [("willing", Value::Null), ("unwilling", json!("auth_required"))] {
        let check = daemon.post(&format!("/v1/agents/{agent}/check"), json!({})).await.expect_status(200);
        assert_eq!(check["error"]["code"], code, "{check}");
    }
}

/// Nobody is there to sign in.
#[tokio::test]
async fn a_way_to_sign_in_that_needs_a_person_is_refused() {
    let refused = Daemon::builder().config("[agents.gemini]\nauth_method = \"oauth-personal\"\n").fail_to_start().await;
    let told = &refused.stderr;
    assert!(told.contains("agents.gemini.auth_method") && told.contains("needs a person"), "{told}");
}
