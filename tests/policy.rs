//! Policies through the front door: what is decided without a person, by which rule, and that sessions only narrow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::os::unix::fs::symlink;

use harness::Daemon;
use serde_json::{Value, json};

/// An agent that asks for all of these in one turn, without waiting for the answers in between.
fn asking(tool_calls: &[Value]) -> Value {
    let asks = tool_calls.iter().enumerate().map(|(index, call)| {
        let mut call = call.clone();
        call["toolCallId"] = json!(format!("c{index}"));
        if call.get("title").is_none() {
            call["title"] = json!(format!("call {index}"));
        }
        json!({"ask": {"method": "session/request_permission", "params": {"sessionId": "test-session", "toolCall": call,
            "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"}]}}})
    });
    let asks: Vec<Value> = asks.collect();
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "begin"}, {"repeat": asks, "times": 1}, {"gate": "asked"}]}]}])
}

/// What became of the questions of one turn, in order: `allow BY`, `reject BY` or `ask`.
async fn decisions(daemon: &Daemon, agent: &str, session: &str, count: usize) -> Vec<String> {
    let accepted = daemon.prompt(session, "go").await;
    daemon.gate(agent).reached("begin").await.open().await;
    let passage = daemon.gate(agent).reached("asked").await;
    let mut events = daemon.events(session, accepted["after"].as_i64()).await;
    for _ in 0..count {
        events.until("permission.requested").await;
    }
    let list =
        daemon.get(&format!("/v1/sessions/{session}/permissions?status=all&limit={count}")).await.expect_status(200);
    let shown = list["permissions"].as_array().unwrap().iter().rev().map(|permission| {
        match (permission["resolution"]["decision"].as_str(), permission["resolution"]["by"]["rule"].as_str()) {
            (Some(decision), Some(rule)) => format!("{decision} {rule}"),
            _ => "ask".to_owned(),
        }
    });
    let shown = shown.collect();
    passage.open().await;
    shown
}

fn edit(path: &str) -> Value {
    json!({"kind": "edit", "locations": [{"path": path}]})
}

fn run(command: &str) -> Value {
    json!({"kind": "execute", "rawInput": {"command": command}})
}

#[tokio::test]
async fn rules_come_before_the_mode_and_every_decision_names_its_rule() {
    let calls = [
        run("cargo test --all"),
        run("cargo test; rm -rf /"),
        run("rm -rf build"),
        run("true && /bin/rm x"),
        run("git push"),
        run("env git commit"),
        run("git push origin main"),
        edit("src/a.rs"),
        edit("src/../a.rs"),
        edit("/etc/passwd"),
        edit("out/a.rs"),
        json!({"kind": "edit", "locations": [{"path": "src/a.rs"}, {"path": "secrets/key"}]}),
        json!({"kind": "edit"}),
        edit(".git/hooks/pre-commit"),
        edit("hooks/pre-commit"),
        json!({"kind": "read", "rawInput": {"path": "src/a.rs"}}),
        json!({"kind": "read", "rawInput": {"path": "/etc/passwd"}}),
        json!({"kind": "read", "rawInput": {"command": "rm x"}}),
        json!({"kind": "fetch", "rawInput": {"url": "https://example.org"}}),
    ];
    let policy = r#"permissions = { mode = "edit", rules = [
        { decision = "deny", commands = ["rm"] },
        { decision = "deny", paths = ["secrets/**"] },
        { decision = "allow", commands = ["cargo test", ["git"]] },
        { decision = "allow", commands = [["git", "push", "origin"]] },
        { decision = "ask", kinds = ["fetch"] },
    ] }"#;
    let builder = Daemon::builder().agent_with("asking", asking(&calls), policy);
    std::fs::create_dir_all(builder.workspace().join("src")).unwrap();
    std::fs::create_dir_all(builder.workspace().join(".git/hooks")).unwrap();
    symlink("/etc", builder.workspace().join("out")).unwrap();
    symlink(".git/hooks", builder.workspace().join("hooks")).unwrap();
    let daemon = builder.start().await;
    let session = daemon.create_session("asking").await;
    let decided = decisions(&daemon, "asking", &session, calls.len()).await;
    let expected = [
        "allow profile rules[2]",
        "reject profile rules[0]",
        "reject profile rules[0]",
        "reject profile rules[0]",
        "ask",
        "ask",
        "allow profile rules[3]",
        "allow session mode edit",
        "ask",
        "ask",
        "ask",
        "reject profile rules[1]",
        "ask",
        "ask",
        "ask",
        "allow session mode edit",
        "ask",
        "reject profile rules[0]",
        "ask",
    ];
    for (index, (decided, expected)) in decided.iter().zip(expected).enumerate() {
        assert_eq!(decided, expected, "{}", calls[index]);
    }
}

#[tokio::test]
async fn a_session_narrows_its_profile_and_never_widens_it() {
    let calls = [run("cargo test"), run("make"), edit("a.rs"), run("git push")];
    let daemon = Daemon::builder()
        .agent_with(
            "trusted",
            asking(&calls),
            r#"permissions = { mode = "allow", rules = [{ decision = "deny", commands = ["make"] }] }"#,
        )
        .start()
        .await;
    let session = daemon.create_session("trusted").await;
    let decided = decisions(&daemon, "trusted", &session, calls.len()).await;
    assert_eq!(decided, ["allow session mode allow", "reject profile rules[0]", "allow session mode allow", "ask"]);

    let path = format!("/v1/sessions/{session}");
    let policy = json!({"mode": "ask", "rules": [{"decision": "allow", "commands": [["make"], "cargo test"]}]});
    let changed = daemon.patch(&path, json!({"permissions": policy})).await.expect_status(200);
    assert_eq!(changed["permissions"]["mode"], "ask");
    assert_eq!(changed["permissions"]["rules"][0]["commands"], json!([["make"], ["cargo", "test"]]));
    let decided = decisions(&daemon, "trusted", &session, calls.len()).await;
    assert_eq!(decided, ["allow session rules[0]", "reject profile rules[0]", "ask", "ask"], "the stricter word holds");

    daemon.patch(&path, json!({"permissions": {"mode": "deny"}})).await.expect_status(200);
    let decided = decisions(&daemon, "trusted", &session, calls.len()).await;
    assert_eq!(decided[0], "reject session mode deny");

    // Back to what the profile grants, and no further.
    daemon.patch(&path, json!({"permissions": {"mode": "allow"}})).await.expect_status(200);
    let made =
        json!({"workspace": daemon.workspace(), "agent": "trusted", "permissions": {"mode": "edit"}, "start": "lazy"});
    let narrow = daemon.post("/v1/sessions", made).await.expect_status(201);
    let rules = json!([{"decision": "deny", "commands": [["make"]]}]);
    assert_eq!(
        narrow["permissions"],
        json!({"mode": "edit", "rules": rules}),
        "a mode alone keeps the profile's rules"
    );
    for (wrong, field) in [
        (json!([{"decision": "allow", "paths": ["/etc/*"]}]), "permissions.rules[0].paths[0]"),
        (json!([{"decision": "allow"}, {"decision": "allow", "paths": ["[a"]}]), "permissions.rules[1].paths[0]"),
        (json!([{"decision": "allow", "commands": ["a | b"]}]), "permissions.rules[0].commands[0]"),
        (json!([{"decision": "allow", "kinds": []}]), "permissions.rules[0].kinds"),
        (json!([{"decision": "allow", "colour": 1}]), "permissions.rules[0].colour"),
    ] {
        let refused = daemon.patch(&path, json!({"permissions": {"mode": "ask", "rules": wrong}})).await;
        assert_eq!(refused.expect_status(400)["details"]["field"], field);
    }
    let unchanged = json!({"mode": "allow", "rules": rules});
    assert_eq!(daemon.session(&session).await["permissions"], unchanged, "nothing was changed");
}

#[tokio::test]
async fn a_wider_policy_is_refused_whenever_it_is_asked_for() {
    let daemon = Daemon::builder()
        .agent_with("wary", asking(&[]), "permissions = \"read-only\"\npermissions_max = \"read-only\"")
        .start()
        .await;
    let session = daemon.create_lazy_session("wary").await;
    for mode in ["edit", "allow"] {
        let refused = daemon.patch(&format!("/v1/sessions/{session}"), json!({"permissions": {"mode": mode}})).await;
        let refused = refused.refused(403, "wider_permissions");
        assert_eq!(refused["details"]["granted"], "read-only");
        let (message, hint) = (refused["message"].as_str().unwrap(), refused["hint"].as_str().unwrap());
        assert!(message.contains("\"read-only\" at most"), "{message}");
        assert!(hint.contains(&format!("acpd config set agents.wary.permissions_max {mode}")), "{hint}");
    }
    assert_eq!(daemon.session(&session).await["permissions"]["mode"], "read-only");
}

#[tokio::test]
async fn a_stock_configuration_lets_its_own_user_choose_any_mode() {
    let daemon = Daemon::start().await;
    let agent = daemon.get("/v1/agents/demo").await.expect_status(200);
    assert_eq!((&agent["permissions"]["mode"], &agent["permissionsMax"]), (&json!("ask"), &json!("allow")));
    for mode in ["ask", "read-only", "edit", "allow", "deny"] {
        daemon.cli(&["new", "--agent", "demo", "--permissions", mode]).await.success();
        let list = daemon.get("/v1/sessions?limit=1").await.expect_status(200);
        assert_eq!(list["sessions"][0]["permissions"]["mode"], mode);
    }
}

/// The rules of a profile, and what a session with this mode makes of them.
#[tokio::test]
async fn a_wider_mode_keeps_the_profiles_rules() {
    let calls = [run("cargo test"), run("make"), edit("a.rs"), run("ls")];
    let rules = r#"permissions = { mode = "ask", rules = [
        { decision = "allow", commands = ["cargo"] }, { decision = "deny", commands = ["make"] }] }"#;
    let daemon = Daemon::builder().agent_with("ruled", asking(&calls), rules).start().await;
    let session = daemon.create_session("ruled").await;
    for (mode, expected) in [
        (None, ["allow profile rules[0]", "reject profile rules[1]", "ask", "ask"]),
        (Some("edit"), ["allow profile rules[0]", "reject profile rules[1]", "allow session mode edit", "ask"]),
        (
            Some("allow"),
            [
                "allow profile rules[0]",
                "reject profile rules[1]",
                "allow session mode allow",
                "allow session mode allow",
            ],
        ),
        (
            Some("deny"),
            [
                "reject session mode deny",
                "reject profile rules[1]",
                "reject session mode deny",
                "reject session mode deny",
            ],
        ),
    ] {
        if let Some(mode) = mode {
            let body = json!({"permissions": {"mode": mode}});
            daemon.patch(&format!("/v1/sessions/{session}"), body).await.expect_status(200);
        }
        assert_eq!(decisions(&daemon, "ruled", &session, calls.len()).await, expected, "{mode:?}");
    }
}

/// What was stored before there was a ceiling is held to the mode that its profile had.
#[tokio::test]
async fn a_session_of_before_there_was_a_ceiling_is_not_widened() {
    let mut daemon = Daemon::builder().agent("echo", asking(&[])).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let set = "profile = json_remove(profile, '$.permissionsMax')";
    daemon.sql(format!("UPDATE sessions SET {set} WHERE id = '{session}'")).await;
    daemon.restart().await;
    let wider = daemon.patch(&format!("/v1/sessions/{session}"), json!({"permissions": {"mode": "edit"}})).await;
    wider.refused(403, "wider_permissions");
}

#[tokio::test]
async fn modes_that_grant_more_than_the_policy_are_refused_unless_the_profile_names_them() {
    let modes = json!({"modes": {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"},
        {"id": "autoEdit", "name": "Edits"}, {"id": "yolo", "name": "Yolo"}]}});
    let set = json!({"switch": {"session/set_mode": [{"reply": {}}], "session/prompt": [
        {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "yolo"}}, {"reply": {"stopReason": "end_turn"}}]}});
    let script = json!([{"record": true}, {"handshake": {"newSession": modes}}, {"repeat": [set]}]);
    let daemon = Daemon::builder()
        .agent_with("editing", script.clone(), "permissions = \"edit\"")
        .agent_with("free", script, "permissions = \"edit\"\nmodes_allowed = [\"yolo\"]")
        .start()
        .await;
    let create = |agent: &str, mode: &str| {
        let body = json!({"workspace": daemon.workspace(), "agent": agent, "mode": mode});
        async { daemon.post("/v1/sessions", body).await }
    };
    assert_eq!(create("editing", "yolo").await.expect_status(403)["error"], "wider_mode");
    create("free", "yolo").await.expect_status(201);
    let session = create("editing", "autoEdit").await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}");
    let refused = daemon.patch(&path, json!({"mode": "yolo"})).await.expect_status(403);
    assert_eq!((&refused["error"], &refused["details"]["field"]), (&json!("wider_mode"), &json!("mode")));

    // It goes there by itself, and is asked to go back to what was chosen.
    daemon.prompt_and_wait(&session, "go").await;
    let mut events = daemon.events(&session, None).await;
    loop {
        let updated = events.until("session.updated").await;
        if updated.last().unwrap().payload()["mode"] == "yolo" {
            break;
        }
    }
    loop {
        let updated = events.until("session.updated").await;
        if updated.last().unwrap().payload()["mode"] == "autoEdit" {
            break;
        }
    }
    let messages = daemon.messages(&session).await;
    assert!(messages.iter().any(|message| message["content"]["code"] == "wider_mode"), "{messages:?}");

    // A policy that is narrowed later takes the mode back too.
    daemon.patch(&path, json!({"permissions": {"mode": "ask"}})).await.expect_status(200);
    let updated = async {
        loop {
            let updated = events.until("session.updated").await;
            if updated.last().unwrap().payload()["mode"] == "default" {
                break;
            }
        }
    };
    updated.await;
}

/// An agent of this adapter that announces these modes and starts in the first.
fn with_modes(modes: &[&str]) -> Value {
    let available: Vec<Value> = modes.iter().map(|mode| json!({"id": mode, "name": mode})).collect();
    let modes = json!({"modes": {"currentModeId": modes[0], "availableModes": available}});
    let set = json!({"switch": {"session/set_mode": [{"reply": {}}],
        "session/prompt": [{"text": "here"}, {"reply": {"stopReason": "end_turn"}}]}});
    json!([{"record": true}, {"handshake": {"newSession": modes}}, {"repeat": [set]}])
}

/// Each adapter names the mode that asks. It is chosen before the first prompt, and told once in the life of a session.
#[tokio::test]
async fn an_agent_is_switched_to_the_mode_in_which_it_asks() {
    let cases: [(&str, &[&str], &str); 6] = [
        ("qwen", &["auto", "plan", "default", "auto-edit", "yolo"], "default"),
        ("codex", &["agent", "workspace-write", "read-only", "agent-full-access"], "read-only"),
        ("codex", &["agent", "workspace-write", "read-only", "permission-profile:acpd"], "permission-profile:acpd"),
        ("claude", &["auto", "acceptEdits", "plan", "default"], "default"),
        ("gemini", &["yolo", "plan", "default"], "default"),
        // A mode that the adapter does not list may grant anything.
        ("opencode", &["mine", "plan", "build"], "build"),
    ];
    let name = |index: usize| format!("agent{index}");
    let mut builder = Daemon::builder();
    for (index, (adapter, modes, _)) in cases.iter().enumerate() {
        builder = builder.agent_with(&name(index), with_modes(modes), &format!("adapter = {adapter:?}"));
    }
    let mut daemon = builder.start().await;
    let mut sessions = Vec::new();
    for (index, (adapter, modes, expected)) in cases.iter().enumerate() {
        let session = daemon.create_lazy_session(&name(index)).await;
        daemon.prompt_and_wait(&session, "go").await;
        let view = daemon.session(&session).await;
        assert_eq!((&view["mode"], &view["asks"]), (&json!(expected), &json!("always")), "{adapter} {modes:?}");
        sessions.push(session);
    }
    let notices = async |daemon: &Daemon, session: &str| {
        let messages = daemon.messages(session).await;
        let notices = messages.into_iter().filter(|message| message["content"]["code"] == "wider_mode");
        notices.map(|notice| notice["content"]["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let told = notices(&daemon, &sessions[0]).await;
    assert_eq!(
        told,
        [
            "acpd switched the agent from the mode \"auto\", in which it asks a model instead of you, to \"default\"; to allow \
            that mode, add it to agents.agent0.modes_allowed"
        ]
    );
    assert!(notices(&daemon, &sessions[5]).await[0].contains("acts without asking"));

    daemon.restart().await;
    let path = format!("/v1/sessions/{}", sessions[0]);
    daemon.post(&format!("{path}/resume"), json!({})).await.expect_status(200);
    daemon.prompt_and_wait(&sessions[0], "again").await;
    assert_eq!(daemon.session(&sessions[0]).await["mode"], "default");
    assert_eq!(notices(&daemon, &sessions[0]).await.len(), 1, "the agent starts in `auto` again, and that is known");
}

#[tokio::test]
async fn whether_an_agent_asks_is_said_of_its_sessions_and_its_check() {
    let allowed = "adapter = \"gemini\"\nmodes_allowed = [\"yolo\", \"autoEdit\"]";
    let modes = ["default", "yolo", "autoEdit"];
    let daemon = Daemon::builder()
        .agent_with("known", with_modes(&modes), allowed)
        .agent("other", with_modes(&["default", "yolo"]))
        .start()
        .await;
    let session = daemon.create_session("known").await;
    let path = format!("/v1/sessions/{session}");
    for (mode, asks) in [("yolo", "never"), ("autoEdit", "except-edits"), ("default", "always")] {
        daemon.prompt_and_wait(&session, "go").await;
        daemon.patch(&path, json!({"mode": mode})).await.expect_status(200);
        assert_eq!(daemon.session(&session).await["asks"], asks, "{mode}");
    }
    for (agent, asks) in [("known", "always"), ("other", "unknown"), ("demo", "always")] {
        let check = daemon.post(&format!("/v1/agents/{agent}/check"), json!({})).await.expect_status(200);
        assert_eq!(check["asks"], asks, "{agent}");
        let told = daemon.cli(&["agents", "check", agent]).await.success();
        assert_eq!(told.contains("may act without asking"), asks == "unknown", "{told}");
        let run = daemon.cli(&["run", "--agent", agent, "hello"]).await;
        assert_eq!(run.stderr.contains("may act without asking"), asks == "unknown", "{}", run.stderr);
    }
    let run = daemon.cli(&["run", "--agent", "other", "--permissions", "allow", "hello"]).await;
    assert!(!run.stderr.contains("may act"), "a policy that allows all relies on no request: {}", run.stderr);
}

/// The switch is told where the answer is: it belongs to no turn.
#[tokio::test]
async fn a_switched_mode_is_seen_by_who_waits_for_the_answer() {
    let script = with_modes(&["auto", "plan", "default"]);
    let daemon = Daemon::builder().agent_with("qwen", script, "adapter = \"qwen\"").start().await;
    let run = daemon.cli(&["run", "--agent", "qwen", "hello"]).await;
    assert!(run.stderr.contains("you, to \"default\""), "{}", run.stderr);
    let attached = daemon.cli(&["attach", "--no-follow", "-"]).await;
    assert!(attached.stderr.contains("you, to \"default\""), "{}", attached.stderr);
    let session = daemon.create_lazy_session("qwen").await;
    let prompted = daemon.cli(&["prompt", &session, "hello"]).await;
    assert!(prompted.stderr.contains("you, to \"default\""), "{}", prompted.stderr);
}

#[tokio::test]
async fn a_command_that_gemini_tells_in_the_title_is_judged_and_one_that_nobody_tells_is_not_allowed() {
    // As in tests/data/gemini-0.61-transcript.jsonl.
    let builder = Daemon::builder();
    let directory = builder.workspace().display().to_string();
    let titled = |line: &str, directory: &str| {
        let text = format!("[current working directory {directory}] (why)");
        json!({"status": "pending", "title": line, "kind": "execute", "locations": [],
            "content": [{"type": "content", "content": {"type": "text", "text": text}}]})
    };
    let calls = [
        titled("git push origin main", &directory),
        titled("rm -rf src", &directory),
        titled("cargo test", &directory),
        titled("cargo build", "/elsewhere"),
    ];
    let policy = r#"permissions = { mode = "allow", rules = [
        { decision = "deny", commands = ["rm"] }, { decision = "allow", commands = ["cargo"] },
        { decision = "deny", commands = ["cargo"] }] }"#;
    let unknown = [json!({"kind": "execute", "rawInput": {"cmd": "git push"}}), json!({"kind": "execute"})];
    let daemon = builder
        .agent_with("titles", asking(&calls), &format!("adapter = \"gemini\"\n{policy}"))
        .agent_with("denied", asking(&unknown), policy)
        .agent_with("allowed", asking(&unknown), "permissions = \"allow\"")
        .start()
        .await;
    let session = daemon.create_session("titles").await;
    let decided = decisions(&daemon, "titles", &session, calls.len()).await;
    let expected = ["ask", "reject profile rules[0]", "allow profile rules[1]", "reject profile rules[2]"];
    assert_eq!(decided, expected, "what runs elsewhere is not allowed by a rule");
    let session = daemon.create_session("denied").await;
    let decided = decisions(&daemon, "denied", &session, unknown.len()).await;
    assert_eq!(decided, ["reject profile rules[0]"; 2], "it may be the command that is denied");
    let session = daemon.create_session("allowed").await;
    assert_eq!(decisions(&daemon, "allowed", &session, unknown.len()).await, ["ask"; 2]);
}

#[tokio::test]
async fn words_are_found_whatever_they_are_made_of() {
    let denied = [
        run("npm run build:prod"),
        run("cargo +nightly build"),
        run("docker run --privileged=true x"),
        run("pip install a@b"),
        run("r\\\nm -rf src"),
        run("r$@m -rf src"),
    ];
    let asked = [
        run("git pu\\\nsh"),
        run("git pu$@sh"),
        run(r"git $'pu\x73h'"),
        run("git pu{,}sh"),
        run("git --git-dir=.gi? log"),
        run("rm2 -r .gi?"),
    ];
    let calls = [denied.as_slice(), asked.as_slice()].concat();
    let policy = r#"permissions = { mode = "allow", rules = [{ decision = "deny", commands = ["rm", "npm run build:prod",
        "cargo +nightly", "docker run --privileged=true", "pip install a@b"] }] }"#;
    let daemon = Daemon::builder().agent_with("asking", asking(&calls), policy).start().await;
    let session = daemon.create_session("asking").await;
    let decided = decisions(&daemon, "asking", &session, calls.len()).await;
    for (index, (decided, call)) in decided.iter().zip(&calls).enumerate() {
        assert_eq!(decided, if index < denied.len() { "reject profile rules[0]" } else { "ask" }, "{call}");
    }
}

#[tokio::test]
async fn a_directory_that_is_taken_away_or_named_in_a_command_is_what_is_in_it() {
    let delete = |path: &str| json!({"kind": "delete", "locations": [{"path": path}]});
    let calls = [
        delete("secrets"),
        json!({"kind": "move", "locations": [{"path": "secrets"}, {"path": "open"}]}),
        delete("."),
        run("rm -r secrets"),
        run("cat ./secrets/key"),
        run("cat link/key"),
        json!({"kind": "execute", "rawInput": {"command": "cat key", "cwd": "secrets"}}),
        delete("sub"),
        run("cat hooks/pre-commit"),
        delete("plain"),
        run("cat plain/x ."),
    ];
    let policy = r#"permissions = { mode = "allow", rules = [{ decision = "deny", paths = ["secrets/**"] }] }"#;
    let builder = Daemon::builder().agent_with("asking", asking(&calls), policy);
    for directory in ["secrets", "sub/deep/.git/hooks", "plain"] {
        std::fs::create_dir_all(builder.workspace().join(directory)).unwrap();
    }
    symlink("secrets", builder.workspace().join("link")).unwrap();
    symlink("sub/deep/.git/hooks", builder.workspace().join("hooks")).unwrap();
    let daemon = builder.start().await;
    let session = daemon.create_session("asking").await;
    let decided = decisions(&daemon, "asking", &session, calls.len()).await;
    let allowed = "allow session mode allow";
    let expected = [["reject profile rules[0]"; 7].as_slice(), &["ask", "ask", allowed, allowed]].concat();
    for ((decided, expected), call) in decided.iter().zip(expected).zip(&calls) {
        assert_eq!(decided, expected, "{call}");
    }
}

#[tokio::test]
async fn a_mode_that_asks_nothing_is_wider_than_any_policy() {
    let modes = json!({"modes": {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"},
        {"id": "autoEdit", "name": "Edits"}, {"id": "yolo", "name": "Yolo"}]}});
    let set = json!({"switch": {"session/set_mode": [{"reply": {}}]}});
    let script = json!([{"handshake": {"newSession": modes}}, {"repeat": [set]}]);
    let daemon = Daemon::builder()
        .agent_with("plain", script.clone(), "permissions = \"allow\"")
        .agent_with(
            "ruled",
            script,
            r#"permissions = { mode = "allow", rules = [{ decision = "deny", paths = ["secrets/**"] }] }"#,
        )
        .start()
        .await;
    let rules = json!({"mode": "allow", "rules": [{"decision": "ask", "kinds": ["edit"]}]});
    let plain = json!({"mode": "allow"});
    for (agent, mode, permissions, status) in [
        ("plain", "yolo", &plain, 403),
        ("ruled", "yolo", &plain, 403),
        ("ruled", "autoEdit", &plain, 403),
        ("plain", "autoEdit", &rules, 403),
        ("plain", "autoEdit", &plain, 201),
    ] {
        let body = json!({"workspace": daemon.workspace(), "agent": agent, "mode": mode, "permissions": permissions});
        let reply = daemon.post("/v1/sessions", body).await;
        assert_eq!(reply.status, status, "{agent} {mode}: {}", reply.text);
    }
}

/// Everything that a command is given belongs to the action that rules judge: arguments, directory and variables.
#[tokio::test]
async fn arguments_directory_and_variables_are_part_of_the_command() {
    let given = |input: Value| json!({"kind": "execute", "rawInput": input});
    let reject = "reject profile rules[0]";
    let cases = [
        (json!({"command": "rm", "args": ["-rf", "x"]}), reject),
        (json!({"command": "sh", "arguments": ["-c", "rm x"]}), reject),
        (json!({"command": ["sh"], "argv": ["-c", "rm x"]}), reject),
        (json!({"command": "sudo", "args": "rm x"}), reject),
        (json!({"command": "sh", "stdin": "rm x"}), reject),
        (json!({"command": "sh", "env": ["X=rm -r x"]}), reject),
        (json!({"command": "cat", "args": ["key"], "dir_path": "secrets"}), "reject profile rules[1]"),
        (json!({"command": "cat", "args": ["secrets/key"]}), "reject profile rules[1]"),
        (json!({"command": "git", "args": ["push"]}), "ask"),
        (json!({"command": ["git"], "argv": ["push"]}), "ask"),
        (json!({"command": "cargo", "args": ["test", "--all"]}), "allow profile rules[2]"),
        (json!({"command": "cargo test", "description": "rm nothing", "timeout": 5}), "allow profile rules[2]"),
        (json!({"command": ["cargo"], "args": []}), "allow session mode allow"),
        (json!({"command": "ls"}), "allow session mode allow"),
    ];
    let policy = r#"permissions = { mode = "allow", rules = [{ decision = "deny", commands = ["rm"] },
        { decision = "deny", paths = ["secrets/**"] }, { decision = "allow", commands = ["cargo test"] }] }"#;
    expect(policy, &cases.map(|(input, expected)| (given(input), expected))).await;
}

/// What becomes of each call in one turn of an agent with this policy.
async fn expect(policy: &str, cases: &[(Value, &str)]) {
    let calls: Vec<Value> = cases.iter().map(|(call, _)| call.clone()).collect();
    let builder = Daemon::builder().agent_with("asking", asking(&calls), policy);
    for directory in ["src", "docs", "secrets", ".git/hooks", "app/[id]"] {
        std::fs::create_dir_all(builder.workspace().join(directory)).unwrap();
    }
    let links =
        [("/etc", "link"), ("../docs", "src/link"), ("../secrets", "src/keys"), ("../.git/config", "src/config")];
    for (target, link) in links {
        symlink(target, builder.workspace().join(link)).unwrap();
    }
    for file in ["src/a.rs", "secrets/key", "Makefile", "app/[id]/page.tsx"] {
        std::fs::write(builder.workspace().join(file), "").unwrap();
    }
    let daemon = builder.start().await;
    let session = daemon.create_session("asking").await;
    let decided = decisions(&daemon, "asking", &session, calls.len()).await;
    let wrong: Vec<String> = cases
        .iter()
        .zip(&decided)
        .filter(|((_, expected), decided)| expected != decided)
        .map(|((call, expected), decided)| format!("{call}: {decided}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_command_with_variables_of_its_own_meets_no_allow_rule() {
    let given = |input: Value| (json!({"kind": "execute", "rawInput": input}), "ask");
    let mut cases = [
        json!({"command": "cargo test", "env": {"LD_PRELOAD": "./x.so"}}),
        json!({"command": "cargo test", "environment": {"RUSTC_WRAPPER": "./x"}}),
        json!({"command": "cargo test", "env": [{"name": "RUSTC_WRAPPER", "value": "./x"}]}),
        json!({"command": "cargo test", "env": ["RUSTC_WRAPPER=./x"]}),
        json!({"command": "cargo test", "env": "RUSTC_WRAPPER=./x"}),
        json!({"command": "cargo", "args": ["test"], "ENV": {"A": 1}}),
        json!({"command": "A=b cargo test"}),
        json!({"command": "env A=b cargo test"}),
        json!({"command": ["/usr/bin/env", "A=b", "cargo", "test"]}),
        json!({"command": "cargo test", "shell": "./x"}),
        json!({"command": "cargo test", "sudo": true}),
        json!({"command": "cargo test", "options": {"environment": {"A": "b"}}}),
    ]
    .map(given)
    .to_vec();
    cases.push((run("cargo test"), "allow profile rules[0]"));
    cases
        .push((json!({"kind": "execute", "rawInput": {"command": "cargo test", "env": {}}}), "allow profile rules[0]"));
    let policy = r#"permissions = { mode = "edit", rules = [{ decision = "allow", commands = ["cargo test", "env", "A=b cargo"] },
        { decision = "allow", kinds = ["read"] }] }"#;
    expect(policy, &cases).await;
}

#[tokio::test]
async fn every_string_that_can_be_a_path_is_checked() {
    let edit = |mut input: Value| {
        if input.get("file_path").is_none() {
            input["file_path"] = json!("src/a.rs");
        }
        json!({"kind": "edit", "rawInput": input})
    };
    let (allowed, denied) = ("allow profile rules[1]", "reject profile rules[0]");
    let cases = [
        (json!({}), allowed),
        (json!({"content": "see /etc/passwd", "old_string": "secrets/key", "new_string": "a\n/b"}), allowed),
        (json!({"edits": [{"newText": "/etc/passwd", "oldText": "../x"}], "mode": "overwrite"}), allowed),
        (json!({"description": "Write /etc/passwd", "url": "https://example.org/a"}), allowed),
        (json!({"also": "src/b/new.rs"}), allowed),
        (json!({"dest": "/etc/passwd"}), "ask"),
        (json!({"a": {"b": [["../../x"]]}}), "ask"),
        (json!({"target": "~/.bashrc"}), "ask"),
        (json!({"target": "$HOME/.bashrc"}), "ask"),
        (json!({"uri": "file:///etc/passwd"}), "ask"),
        (json!({"changes": {"/etc/passwd": {"type": "update"}}}), "ask"),
        (json!({"also": "Makefile"}), "allow session mode edit"),
        (json!({"also": "docs/new.md"}), "allow session mode edit"),
        (json!({"files": "src/a.rs,/etc/passwd"}), "ask"),
        (json!({"files": "src/a.rs\n/etc/passwd"}), "ask"),
        (json!({"hooks": ".git/hooks/pre-commit"}), "ask"),
        (json!({"include": "src/*.rs"}), "ask"),
        (json!({"also": "secrets/key"}), denied),
        (json!({"deep": [{"er": "./secrets/key"}]}), denied),
        (json!({"glob": "sec*/k?y"}), denied),
        (json!({"glob": "**/key"}), denied),
        (json!({"file_path": "secrets/key"}), denied),
        (json!({"file_path": "app/[id]/page.tsx"}), "allow session mode edit"),
        (json!({"file_path": "app/[new]/page.tsx"}), "allow session mode edit"),
    ];
    let mut cases = cases.map(|(input, expected)| (edit(input), expected)).to_vec();
    let fetch = |input: Value| json!({"kind": "fetch", "rawInput": input});
    cases.extend([
        (fetch(json!({"path": "secrets/key"})), denied),
        (run("cat sec*/k?y"), denied),
        (run("cat *"), denied),
        (run("cat se[c]rets/key"), denied),
        (
            json!({"kind": "execute", "rawInput": {"command": "cat /etc/passwd"}, "locations": [{"path": "src/a.rs"}]}),
            "ask",
        ),
        (json!({"kind": "read", "rawInput": {"cmd": "rm -rf x"}, "locations": [{"path": "src/a.rs"}]}), "ask"),
        (json!({"kind": "edit", "rawInput": {"note": "src/a.rs"}}), "ask"),
        (run("cat $PWD/secrets/key"), denied),
        (run("cat ~+/secrets/key"), denied),
        (run("cat sec{r,x}ets/key"), denied),
        (run("cat .//src/../secrets/k*"), denied),
        (json!({"kind": "edit", "rawInput": {"cwd": "secrets", "file": "key"}}), denied),
        (json!({"kind": "edit", "rawInput": {"file_path": "src/a.rs", "to": "link"}}), "ask"),
        (json!({"kind": "edit", "rawInput": {"file_path": "src/a.rs", "to": "secret\u{0}s/key"}}), allowed),
        (json!({"kind": "edit", "rawInput": {"path": "secrets\n/key"}}), "ask"),
        (json!({"kind": "edit", "rawInput": {"file_path": "src/a.rs", "list": "a ../../etc/passwd"}}), "ask"),
        (json!({"kind": "edit", "rawInput": {"file_path": "src/a.rs", "uri": "FILE:///x/secr%65ts/key"}}), "ask"),
        (json!({"kind": "edit", "rawInput": "src/a.rs", "locations": [{"path": "src/a.rs"}]}), "ask"),
        (
            json!({"kind": "edit", "rawInput": {"truncated": true, "bytes": 1}, "locations": [{"path": "src/a.rs"}]}),
            "ask",
        ),
    ]);
    let policy = r#"permissions = { mode = "edit", rules = [{ decision = "deny", paths = ["secrets/**"] },
        { decision = "allow", paths = ["src/**"] }] }"#;
    expect(policy, &cases).await;
}

#[tokio::test]
async fn every_git_verb_that_is_not_known_to_read_asks() {
    let asked = [
        "merge x",
        "cherry-pick x",
        "am < x",
        "pull",
        "rebase x",
        "http-push x",
        "-c core.hooksPath=/x status",
        "st",
        "--exec-path=/x status",
        "-C x status",
        "add .",
        "clone x",
        "stash",
        "config a b",
        "--git-dir=x log",
        "reflog expire",
        "log --output=x",
        "log --outp x",
        "diff --ext-diff",
        "grep -O x",
        "grep -nOless x",
        "branch x",
        "tag x",
        "-p log",
        "status; git merge x",
        "log | xargs git",
        "remote -v add x y",
        "show --textconv",
    ];
    let allowed = [
        "status",
        "log --oneline -5",
        "diff HEAD~1 -- src",
        "show HEAD",
        "blame src/a.rs",
        "--no-pager log",
        "log $REF",
        "branch --show-current",
        "stash list",
        "rev-parse HEAD",
        "status && ls",
        "grep -o x",
        "--version",
    ];
    let mode = "allow session mode allow";
    let mut cases: Vec<(Value, &str)> = asked.iter().map(|verb| (run(&format!("git {verb}")), "ask")).collect();
    cases.extend(allowed.iter().map(|verb| (run(&format!("git {verb}")), mode)));
    cases.extend([
        (run("GIT_EXTERNAL_DIFF=./x git diff"), "ask"),
        (json!({"kind": "execute", "rawInput": {"command": "git diff", "env": {"GIT_PAGER": "./x"}}}), "ask"),
        (run("git-merge x"), "ask"),
        (run("/usr/lib/git-core/git-status"), mode),
        (run("which git"), mode),
    ]);
    expect("permissions = \"allow\"", &cases).await;
    let rules = r#"permissions = { mode = "ask", rules = [{ decision = "allow", commands = ["git", "git log", "git -C x", "git add"] }] }"#;
    let rule = "allow profile rules[0]";
    let cases = [
        ("git status", rule),
        ("git log -3", rule),
        ("git add .", rule),
        ("git log --output=x", "ask"),
        ("git merge x", "ask"),
        ("git -C x push", "ask"),
        ("git -C x status", "ask"),
    ];
    expect(rules, &cases.map(|(line, expected)| (run(line), expected))).await;
}

#[tokio::test]
async fn a_denied_command_is_found_whatever_surrounds_it_and_whatever_it_is_called() {
    let (denied, allowed) = ("reject profile rules[0]", "allow session mode allow");
    let texts = [
        "rm -rf x",
        "rm -rf x; y",
        "true && rm -rf x",
        "sudo /bin/rm -v -rf x",
        "sh -c \"rm -rf x\"",
        "r\\m '-rf' x",
        "$(rm -rf x)",
        "r\\\nm -rf x",
        "echo x\\\\\nrm -rf y",
        "r$@m -rf x",
        "r${E}m -rf x",
        "r`:`m -rf x",
        "/bin/r? -rf x",
        "r{,}m -rf x",
        "$'rm' -rf x",
        "$1rm -rf x",
    ];
    let harmless = [
        "rm x",
        "cat $HOME/x",
        "ls *.rs",
        "echo $A$B",
        "grep 'a.*b$' c | sed 's/\\//'",
        "for i in {1..3}; do echo $i; done",
    ];
    let mut cases: Vec<(Value, &str)> = texts.iter().map(|text| (run(text), denied)).collect();
    cases.extend(harmless.iter().map(|text| (run(text), allowed)));
    cases.extend([
        (json!({"kind": "read", "rawInput": {"command": "x"}}), "reject profile rules[1]"),
        (json!({"kind": "delete", "rawInput": {"command": "x"}}), allowed),
        (edit("/etc/passwd"), allowed),
        (edit("/etc/../etc/key"), "reject profile rules[2]"),
    ]);
    let policy = r#"permissions = { mode = "allow", rules = [{ decision = "deny", commands = ["rm -rf"] },
        { decision = "deny", kinds = ["read"] }, { decision = "deny", paths = ["**/key"] }, { decision = "deny", kinds = ["think"] }] }"#;
    expect(policy, &cases).await;
    let asked = [(json!({"kind": "read", "rawInput": {"command": "cat a"}}), "ask"), (edit("/etc/passwd"), "ask")];
    for mode in ["read-only", "edit"] {
        let rules = r#"[{ decision = "allow", kinds = ["read", "edit"] }, { decision = "allow", kinds = ["think"] }]"#;
        expect(&format!("permissions = {{ mode = \"{mode}\", rules = {rules} }}"), &asked).await;
    }
}

#[tokio::test]
async fn a_tool_that_takes_a_directory_away_takes_what_is_in_it() {
    let taken = |kind: &str, path: &str| json!({"kind": kind, "locations": [{"path": path}]});
    let mut cases = vec![(taken("read", "a"), "allow session mode allow")];
    for kind in ["delete", "move"] {
        cases.extend(
            ["a/secrets", "a", "", "keys", "src/.."].map(|path| (taken(kind, path), "reject profile rules[0]")),
        );
        cases.extend(["b", "a/other", "keysx"].map(|path| (taken(kind, path), "allow session mode allow")));
    }
    let policy =
        r#"permissions = { mode = "allow", rules = [{ decision = "deny", paths = ["a/secrets/**", "keys/*.pem"] }] }"#;
    expect(policy, &cases).await;
}

#[tokio::test]
async fn an_action_is_allowed_only_as_a_whole_and_denied_by_any_part_and_a_link_by_its_names() {
    let at = |paths: &[&str]| json!({"kind": "edit", "locations": paths.iter().map(|path| json!({"path": path})).collect::<Vec<_>>()});
    let (rule, denied) = ("allow profile rules[1]", "reject profile rules[0]");
    let cases = [
        (at(&["src/a", "src/b/c"]), rule),
        (at(&["src/a", "docs/b"]), "ask"),
        (at(&[]), "ask"),
        (at(&["src"]), "ask"),
        (at(&["srcs/a"]), "ask"),
        (at(&["src/a", "secrets/b"]), denied),
        (at(&["secrets/a/b"]), "ask"),
        (at(&["src/link/b"]), "ask"),
        (at(&["src/keys/b"]), denied),
        (at(&["src/keys"]), "ask"),
        (at(&["src/config"]), "ask"),
        (at(&["src/.git/config"]), "ask"),
        (at(&["src/.GIT/x"]), "ask"),
    ];
    let policy = r#"permissions = { mode = "ask", rules = [{ decision = "deny", paths = ["secrets/*", "denied/**"] },
        { decision = "allow", paths = ["src/**"] }] }"#;
    expect(policy, &cases).await;
    let named = r#"permissions = { mode = "ask", rules = [{ decision = "allow", paths = [".git/**"] }] }"#;
    expect(named, &[(at(&[".git/config"]), "allow profile rules[0]")]).await;
    let wide = r#"permissions = { mode = "allow", rules = [{ decision = "allow", paths = ["**"] }, { decision = "allow", kinds = ["edit"] }] }"#;
    expect(wide, &[".git/config", "a/.git/hooks/b", ".GIT/config", ".git"].map(|path| (at(&[path]), "ask"))).await;
}
