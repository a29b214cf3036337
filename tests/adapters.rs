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

/// Gemini CLI gives the name of a tool only in the id of its call, and the input only in what it shows.
#[tokio::test]
async fn a_tool_has_the_name_in_its_id_and_the_input_that_is_shown() {
    let update = |kind: &str, fields: Value| {
        let mut update = json!({"sessionUpdate": kind, "content": [], "locations": []});
        update.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"update": update})
    };
    let started = |id: &str, title: &str, kind: &str, fields: Value| {
        let call = json!({"toolCallId": id, "title": title, "kind": kind, "status": "in_progress"});
        let call = [call, fields].map(|fields| fields.as_object().unwrap().clone()).into_iter().flatten().collect();
        let done = json!({"toolCallId": id, "title": title, "kind": kind, "status": "completed"});
        [update("tool_call", Value::Object(call)), update("tool_call_update", done)]
    };
    let shown = json!([{"type": "content", "content": {"type": "text", "text": "{\"count\":3}"}}]);
    let steps = [
        started("read_file__fc_4_0", "a.txt", "read", json!({"locations": [{"path": "/w/a.txt"}]})),
        started("run_shell_command__x1", "touch x", "execute", json!({})),
        started("mcp_sky__stars-1794794146351-1", "stars (sky MCP Server)", "other", json!({"content": shown})),
        started("google_web_search-1794794146352-2", "Searching the web for: acpd", "search", json!({})),
    ];
    let steps = [&steps.concat()[..], &[json!({"text": "done"})]].concat();
    let daemon =
        Daemon::builder().agent_with("tools", json!([{"handshake": {}}, {"prompt": steps}]), GEMINI).start().await;
    let session = daemon.create_lazy_session("tools").await;
    daemon.prompt_and_wait(&session, "go").await;

    let messages = daemon.messages(&session).await;
    let calls = messages.iter().filter(|message| message["role"] == "tool_call").map(|message| &message["content"]);
    let told: Vec<Value> = calls.map(|call| json!([call["name"], call["title"], call["arguments"]])).collect();
    let expected = json!([
        ["read_file", "a.txt", {"path": "/w/a.txt"}],
        ["run_shell_command", "touch x", {"command": "touch x"}],
        ["mcp_sky__stars", "stars (sky MCP Server)", {"count": 3}],
        ["google_web_search", "Searching the web for: acpd", null],
    ]);
    assert_eq!(json!(told), expected);

    let names = json!(["read_file", "run_shell_command", "mcp_sky__stars", "google_web_search"]);
    let record = daemon.get(&format!("/v1/sessions/{session}/record")).await.expect_status(200);
    let actions = record["actions"].as_array().unwrap().iter().filter(|action| action["type"] == "tool_call");
    assert_eq!(json!(actions.map(|action| &action["details"]["name"]).collect::<Vec<_>>()), names);
    let workflow = daemon.get(&format!("/v1/sessions/{session}/export?format=workflow")).await.text;
    assert!(names.as_array().unwrap().iter().all(|name| workflow.contains(name.as_str().unwrap())), "{workflow}");
    for word in ["read_file", "acpd"] {
        let found = daemon.get(&format!("/v1/search?q={word}&role=tool_call")).await.expect_status(200);
        assert_eq!(found["total"], 1, "{word}: {found}");
    }
}

/// "Always" covers a tool with the input that is shown. Where only the title shows it, that is the input.
#[tokio::test]
async fn always_covers_a_tool_with_what_is_shown_of_its_input() {
    let shown = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let calls = [
        ("mcp_sky_stars__1", "stars", shown("{\"count\":3}"), true),
        ("mcp_sky_stars__2", "stars", shown("{\"count\":3}"), false),
        ("mcp_sky_stars__3", "stars", shown("{\"count\":4}"), true),
        ("mcp_sky_moons__4", "stars", shown("{\"count\":3}"), true),
        ("mcp_sky_stars__8", "stars", shown("[Payload omitted due to length]"), true),
        ("mcp_sky_stars__9", "stars", shown("[Payload omitted due to length]"), true),
        ("web_fetch__5", "Fetching a", json!([]), true),
        ("web_fetch__6", "Fetching a", json!([]), false),
        ("web_fetch__7", "Fetching b", json!([]), true),
    ];
    let ask = |id: &str, title: &str, content: &Value| {
        json!({"prompt": [{"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
            "toolCall": {"toolCallId": id, "title": title, "kind": "other", "status": "pending", "content": content},
            "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}]}}}]})
    };
    let mut script = vec![json!({"handshake": {}})];
    script.extend(calls.iter().map(|(id, title, content, _)| ask(id, title, content)));
    let daemon = Daemon::builder().agent_with("tools", json!(script), GEMINI).start().await;
    let session = daemon.create_session("tools").await;
    for (id, _, _, is_asked) in &calls {
        let accepted = daemon.prompt(&session, "go").await;
        let asked = daemon.events(&session, accepted["after"].as_i64()).await.until("permission.requested").await;
        let path = format!("/v1/permissions/{}", asked.last().unwrap().payload()["permissionId"].as_str().unwrap());
        assert_eq!(daemon.get(&path).await.expect_status(200)["status"] == "open", *is_asked, "{id}");
        if *is_asked {
            daemon.post(&path, json!({"decision": "allow", "always": true})).await.expect_status(200);
        }
        daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    }
    let rules = daemon.get(&format!("/v1/sessions/{session}/rules")).await.expect_status(200);
    assert_eq!(rules["rules"][0]["tool"], "mcp_sky_stars", "{rules}");
}

const SHELL: &str = "shell";

/// What a shell prints in a new session.
async fn printed(daemon: &Daemon, command: &str) -> String {
    says(daemon, &daemon.create_session(SHELL).await, command).await
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
            "mine_*": {"*": "deny"}, "*_": {"x": "allow"}, "read": "allow"}}"#;
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
            "'*_*':{'*':'ask','x':'ask'}",
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

/// Says what a shell says of each prompt.
fn shell() -> Value {
    let handshake = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    json!([{"handshake": handshake}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}])
}

async fn says(daemon: &Daemon, session: &str, command: &str) -> String {
    let before = daemon.messages(session).await.len();
    assert_eq!(daemon.prompt_and_wait(session, command).await["status"], "completed", "{command}");
    let messages = daemon.messages(session).await;
    let said = messages[before..].iter().rfind(|message| message["role"] == "agent").unwrap();
    said["content"]["text"].as_str().unwrap().to_owned()
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn an_agent_without_an_adapter_has_a_private_home_and_changes_nothing_of_its_users() {
    let home_copy = "home_copy = [\"~/.agent\", \"~/.other/settings\", \"~/.config/agent\", \"~/.missing\"]";
    let builder = Daemon::builder().agent_with("plain", shell(), home_copy);
    let builder = builder.agent_with("told", shell(), "env = { HOME = \"/nonexistent\" }");
    let at = |name: &str| builder.home().join(name);
    let names = [".agent/deep/login", ".other/settings", ".other/log", ".config/agent/x", ".config/tool/x", ".tool/x"];
    for name in names.into_iter().chain([".gitconfig", ".cache/large/x"]) {
        write(&at(name), "user's");
    }
    let users = at("");
    let mut daemon = builder.start().await;
    let session = daemon.create_lazy_session("plain").await;
    for (command, expected) in [
        ("cd $HOME/.agent/deep && cat login && echo -n own > login && cat login", "user'sownexit 0"),
        ("cat $HOME/.gitconfig $HOME/.tool/x $HOME/.config/tool/x", "user'suser'suser'sexit 0"),
        ("ls -A $HOME/.other $HOME/.cache", "/.cache:\n\n/.other:\nsettings\nexit 0"),
        ("cd $HOME && mkdir .new .cache/large && echo x > .config/agent/y && echo x > .new/x", "exit 0"),
    ] {
        let said = says(&daemon, &session, command).await;
        let own = daemon.state_dir().join("run").join(&session).join("home");
        assert_eq!(said.replace(own.canonicalize().unwrap().to_str().unwrap(), ""), expected, "{command}");
    }
    for command in ["echo x > $HOME/.tool/x", "echo x > $HOME/.gitconfig"] {
        assert!(says(&daemon, &session, command).await.contains("Permission denied"), "{command}");
    }
    assert_eq!(std::fs::read_to_string(users.join(".agent/deep/login")).unwrap(), "user's");
    assert!(!users.join(".new").exists() && !users.join(".config/agent/y").exists());

    // What the agent has changed stays, until the user's own is newer.
    daemon.terminate().await;
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    assert_eq!(says(&daemon, &session, "cat $HOME/.agent/deep/login").await, "ownexit 0");
    write(&users.join(".agent/deep/login"), "newer");
    daemon.terminate().await;
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    assert_eq!(says(&daemon, &session, "cat $HOME/.agent/deep/login").await, "newerexit 0");

    let session = daemon.create_lazy_session("told").await;
    assert_eq!(says(&daemon, &session, "echo $HOME").await, "/nonexistent\nexit 0", "what the profile says counts");
}

#[tokio::test]
async fn without_confinement_only_gemini_has_a_directory_of_its_own() {
    let mut builder = Daemon::builder().config("[sandbox]\nmode = \"off\"");
    for adapter in ["gemini", "codex", "generic"] {
        builder = builder.agent_with(adapter, shell(), &format!("adapter = \"{adapter}\""));
    }
    let daemon = builder.start().await;
    for (adapter, own) in [("gemini", "own"), ("codex", ""), ("generic", "")] {
        let session = daemon.create_lazy_session(adapter).await;
        let command = "echo $HOME; echo ${GEMINI_CLI_HOME:+own}${CODEX_HOME:+own}";
        let said = says(&daemon, &session, command).await;
        assert_eq!(said, format!("{}\n{own}\nexit 0", daemon.home().display()), "{adapter}");
    }
}

#[tokio::test]
async fn a_write_that_the_sandbox_refused_is_named_with_the_line_that_allows_it() {
    let failing = |text: String| json!([{"stderr": text}, {"exit": 1}]);
    let builder = Daemon::builder();
    let home = builder.home().display().to_string();
    let daemon = builder
        .agent(
            "plain",
            failing(format!("Error: EACCES: permission denied, mkdir '{home}/.config/plain/logs'\n at /x.js")),
        )
        .agent_with("adapted", failing(format!("mkdir {home}/.tool/x: permission denied")), "adapter = \"codex\"")
        .agent(
            "hidden",
            failing(format!("File \"/a.py\"\nPermissionError: [Errno 13] Permission denied: '{home}/.ssh/a b'")),
        )
        .agent("last", failing(format!("see {home}/log\ntouch: {home}/.last: Read-only file system (os error 30)")))
        .agent("outside", failing("EACCES: permission denied, mkdir '/var/lib/x'".to_owned()))
        .start()
        .await;
    for (agent, path, remedy) in [
        ("plain", ".config/plain/logs", "home_copy = [\"~/.config/plain\"] in [agents.plain]"),
        ("adapted", ".tool/x", "only sessions with the scope project can write there"),
        ("last", ".last", "home_copy = [\"~/.last\"] in [agents.last]"),
        ("hidden", ".ssh/a b", "sandbox_show = [\"~/.ssh\"] in [agents.hidden]"),
    ] {
        let check = daemon.post(&format!("/v1/agents/{agent}/check"), json!({})).await.expect_status(200);
        let (error, _) = fails(&daemon, agent).await;
        for hint in [&check["error"]["hint"], &error["hint"]] {
            let hint = hint.as_str().unwrap();
            assert!(hint.contains(&format!("refused access to {home}/{path}")) && hint.contains(remedy), "{hint}");
        }
    }
    let (error, _) = fails(&daemon, "outside").await;
    assert_eq!(error["hint"], Value::Null, "acpd cannot know that: {error}");
}
