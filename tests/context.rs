//! The context that tools give their sessions: what the agent is shown and when, what the prompts say, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, echo};
use serde_json::{Value, json};

/// An agent whose prompts are kept.
fn recording(handshake: &Value) -> Value {
    json!([{"record": true}, {"handshake": handshake}, {"repeat": [{"prompt": [{"textFromPid": true}]}]}])
}

async fn create(daemon: &Daemon, agent: &str, context: Value) -> Value {
    let body = json!({"workspace": daemon.workspace(), "agent": agent, "start": "lazy", "context": context});
    daemon.post("/v1/sessions", body).await.expect_status(201)
}

fn id_of(session: &Value) -> &str {
    session["id"].as_str().unwrap()
}

fn path_of(session: &Value) -> String {
    format!("/v1/sessions/{}", id_of(session))
}

/// Prompts, waits for the end of the turn, and returns what the agent was given before the prompt's own text.
async fn shown(daemon: &Daemon, agent: &str, session: &Value, prompt: Value) -> Vec<Value> {
    let accepted = daemon.post(&format!("{}/prompt", path_of(session)), prompt).await.expect_status(202);
    let turn = daemon.wait_turn(id_of(session), accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    last_shown(daemon, agent)
}

fn last_shown(daemon: &Daemon, agent: &str) -> Vec<Value> {
    let heard = daemon.heard(agent);
    let prompt = heard.iter().rfind(|heard| heard.method == "session/prompt").expect("the agent was prompted");
    let (own, before) = prompt.params["prompt"].as_array().unwrap().split_last().unwrap();
    assert_eq!(own["type"], "text");
    before.to_vec()
}

/// The links among what the agent was given, without the words around them.
fn links(blocks: &[Value]) -> Vec<&str> {
    blocks.iter().filter(|block| block["type"] == "resource_link").map(|block| block["uri"].as_str().unwrap()).collect()
}

fn plain() -> Value {
    json!({"text": "go on"})
}

#[tokio::test]
async fn the_agent_is_shown_the_context_once_and_whenever_it_changes() {
    let daemon = Daemon::builder().agent("a", recording(&json!({}))).start().await;
    std::fs::write(daemon.workspace().join("a file.rs"), "").unwrap();
    let selection = json!({"file": "./src//b.rs", "startLine": 10, "endLine": 20});
    let session = create(&daemon, "a", json!({"activeFile": "a file.rs", "selection": selection})).await;
    let selection = json!({"file": "src/b.rs", "startLine": 10, "endLine": 20});
    assert_eq!(session["context"], json!({"activeFile": "a file.rs", "selection": selection, "fsScope": "sandboxed"}));
    let root = format!("file://{}", session["workspace"].as_str().unwrap());
    let (a, b) = (format!("{root}/a%20file.rs"), format!("{root}/src/b.rs#L10-L20"));

    let first = shown(&daemon, "a", &session, plain()).await;
    assert_eq!(links(&first), [&a, &b]);
    assert_eq!(
        (&first[0]["name"], &first[1]["name"]),
        (&json!("a file.rs"), &json!("src/b.rs, lines 10-20 (selected)"))
    );
    assert!(shown(&daemon, "a", &session, plain()).await.is_empty(), "it has seen them");

    let patch = async |body: Value| daemon.patch(&path_of(&session), body).await.expect_status(200);
    patch(json!({"title": "another", "context": {"activeFile": "a file.rs", "variables": {"x": "1"}}})).await;
    assert!(shown(&daemon, "a", &session, plain()).await.is_empty(), "nothing of it has changed");
    let absolute = format!("{}/new.rs", session["workspace"].as_str().unwrap());
    let changed = patch(json!({"context": {"activeFile": absolute}})).await;
    assert_eq!(
        changed["context"],
        json!({"activeFile": "new.rs", "selection": selection, "fsScope": "sandboxed", "variables": {"x": "1"}})
    );
    let new = format!("{root}/new.rs");
    assert_eq!(links(&shown(&daemon, "a", &session, plain()).await), [&new, &b]);

    let own = json!({"text": "look", "context": {"activeFile": "own.rs", "selection": null}});
    assert_eq!(links(&shown(&daemon, "a", &session, own).await), [format!("{root}/own.rs")]);
    assert!(shown(&daemon, "a", &session, plain()).await.is_empty(), "that was for one prompt");
    assert_eq!(daemon.session(id_of(&session)).await["context"], changed["context"]);

    patch(json!({"context": null})).await;
    assert_eq!(daemon.session(id_of(&session)).await["context"], json!({"fsScope": "sandboxed"}));
    assert!(shown(&daemon, "a", &session, plain()).await.is_empty());
    let events = daemon.events_so_far(id_of(&session), None).await;
    assert_eq!((&*events[0].kind, &events[0].payload()["context"]), ("session.created", &session["context"]));
    let updates: Vec<_> = events[1..].iter().filter(|event| event.payload()["context"].is_object()).collect();
    assert_eq!(updates.len(), 3, "{updates:?}");
    let told = updates[1].payload();
    assert_eq!(told, &json!({"context": changed["context"], "by": told["by"]}));
}

#[tokio::test]
async fn a_prompt_of_its_own_context_leaves_what_is_owed() {
    let daemon = Daemon::builder().agent("a", recording(&json!({}))).start().await;
    let session = create(&daemon, "a", json!({"activeFile": "a.rs"})).await;
    let root = format!("file://{}", session["workspace"].as_str().unwrap());
    let own = json!({"content": [{"type": "text", "text": "look"}], "context": {"activeFile": "own.rs"}});
    assert_eq!(links(&shown(&daemon, "a", &session, own).await), [format!("{root}/own.rs")]);
    let variables = json!({"text": "look {{ctx.x}}", "context": {"variables": {"x": "1"}}});
    assert_eq!(links(&shown(&daemon, "a", &session, variables).await), [format!("{root}/a.rs")]);
    assert!(shown(&daemon, "a", &session, plain()).await.is_empty());
}

#[tokio::test]
async fn an_agent_that_starts_from_nothing_is_shown_it_again_and_one_that_remembers_is_not() {
    let resuming = recording(&json!({"capabilities": {"sessionCapabilities": {"resume": {}}}}));
    let builder = Daemon::builder().agent("fresh", recording(&json!({}))).agent("native", resuming);
    let mut daemon = builder.config("[sessions]\nresume_on_start = true\n").start().await;
    let fresh = create(&daemon, "fresh", json!({"activeFile": "a.rs"})).await;
    let native = create(&daemon, "native", json!({"activeFile": "a.rs"})).await;
    let link = format!("file://{}/a.rs", fresh["workspace"].as_str().unwrap());
    assert_eq!(links(&shown(&daemon, "fresh", &fresh, plain()).await), [&link]);
    assert_eq!(links(&shown(&daemon, "native", &native, plain()).await), [&link]);
    for is_killed in [false, true] {
        if is_killed {
            daemon.kill().await;
        }
        daemon.restart().await;
        assert_eq!(links(&shown(&daemon, "fresh", &fresh, plain()).await), [&link], "killed: {is_killed}");
        assert!(links(&shown(&daemon, "native", &native, plain()).await).is_empty(), "killed: {is_killed}");
    }
    // A change that nobody has seen yet is not forgotten with the process.
    daemon.patch(&path_of(&native), json!({"context": {"activeFile": "b.rs"}})).await.expect_status(200);
    daemon.kill().await;
    daemon.restart().await;
    assert_eq!(links(&shown(&daemon, "native", &native, plain()).await), [link.replace("a.rs", "b.rs")]);
}

#[tokio::test]
async fn the_context_of_a_prompt_that_waits_survives_the_daemon() {
    let script = json!([{"record": true}, {"handshake": {}},
        {"repeat": [{"prompt": [{"gate": "prompted"}, {"textFromPid": true}]}]}]);
    let mut daemon = Daemon::builder().agent("a", script).start().await;
    let session = create(&daemon, "a", json!({"activeFile": "a.rs"})).await;
    let gate = daemon.gate("a");
    daemon.prompt(id_of(&session), "first").await;
    let held = gate.reached("prompted").await;
    let second = json!({"text": "second {{ctx.x}}", "context": {"activeFile": "own.rs", "variables": {"x": "word"}}});
    let second = daemon.post(&format!("{}/prompt", path_of(&session)), second).await.expect_status(202);
    daemon.kill().await;
    drop(held);
    daemon.restart().await;
    gate.reached("prompted").await.open().await;
    daemon.wait_turn(id_of(&session), second["turnId"].as_str().unwrap()).await;
    let own = format!("file://{}/own.rs", session["workspace"].as_str().unwrap());
    assert_eq!(links(&last_shown(&daemon, "a")), [&own]);
    let said = daemon.messages(id_of(&session)).await;
    assert!(said.iter().any(|message| message["content"]["text"] == "second word"), "{said:?}");
}

#[tokio::test]
async fn variables_are_put_into_prompts_and_nothing_else_is() {
    let daemon = Daemon::builder().agent("echo", echo()).config("[limits]\nprompt_max = \"4KiB\"\n").start().await;
    let long = "x".repeat(2000);
    let session = create(&daemon, "echo", json!({"variables": {"what": "the {{ctx.long}} tests", "long": long}})).await;
    let (id, path) = (id_of(&session), format!("{}/prompt", path_of(&session)));
    assert_eq!(session["context"]["variables"]["long"], long);

    let wrong = [
        (json!({"text": "{{ctx.what}} {{ctx.nothing}}"}), "text", "{{ctx.nothing}}"),
        (
            json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "{{ctx.no}}"}]}),
            "content[1].text",
            "{{ctx.no}}",
        ),
        (json!({"text": "{{ctx.what}}", "context": {"variables": {"what": null}}}), "text", "{{ctx.what}}"),
        (json!({"text": "{{ctx.long}}{{ctx.long}}{{ctx.long}}"}), "text", "limits.prompt_max"),
    ];
    for (prompt, field, named) in wrong {
        let refused = daemon.post(&path, prompt.clone()).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{prompt}");
        assert!(refused["message"].as_str().unwrap().contains(named), "{refused}");
    }
    let untouched = daemon.session(id).await;
    assert_eq!((&untouched["turns"], &untouched["messages"], &untouched["title"]), (&json!(0), &json!([]), &json!("")));

    let text = "fix {{ctx.what}}, {{what}}, {{ ctx.what }}, {{ctx.a-b}}";
    let filled = "fix the {{ctx.long}} tests, {{what}}, {{ ctx.what }}, {{ctx.a-b}}";
    daemon.prompt_and_wait(id, text).await;
    let own = json!({"text": "{{ctx.what}} {{ctx.new}}", "context": {"variables": {"what": "this", "new": "time"}}});
    let accepted = daemon.post(&path, own).await.expect_status(202);
    daemon.wait_turn(id, accepted["turnId"].as_str().unwrap()).await;
    let messages = daemon.messages(id).await;
    let said: Vec<_> = messages.iter().map(|message| message["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(said, [filled, filled, "this time", "this time"], "what is recorded is what was sent");
    assert!(daemon.session(id).await["title"].as_str().unwrap().starts_with("fix the {{ctx.long}}"));
    assert_eq!(daemon.session(id).await["context"], session["context"]);
}

#[tokio::test]
async fn what_is_checked_out_is_found_unless_the_tool_says_it() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let git = daemon.workspace().join(".git");
    assert_eq!(create(&daemon, "echo", json!({})).await["context"], json!({"fsScope": "sandboxed"}));
    std::fs::create_dir(&git).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/feature/x\n").unwrap();
    let session = create(&daemon, "echo", Value::Null).await;
    assert_eq!(session["context"], json!({"gitRef": "feature/x", "fsScope": "sandboxed"}));
    assert_eq!(create(&daemon, "echo", json!({"gitRef": "v1"})).await["context"]["gitRef"], "v1");
    std::fs::write(git.join("HEAD"), "0123456789abcdef0123456789abcdef01234567\n").unwrap();
    for (change, found) in [
        (json!({"variables": {"a": "b"}}), "feature/x"),
        (json!({"gitRef": "v2"}), "v2"),
        (json!({"gitRef": null}), "0123456789abcdef0123456789abcdef01234567"),
    ] {
        let changed = daemon.patch(&path_of(&session), json!({"context": change})).await.expect_status(200);
        assert_eq!(changed["context"]["gitRef"], found, "{change}");
    }
}

#[tokio::test]
async fn a_bad_context_is_refused_by_name_and_changes_nothing() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let outside = daemon.root().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "").unwrap();
    std::os::unix::fs::symlink(&outside, daemon.workspace().join("out")).unwrap();
    std::fs::create_dir(daemon.workspace().join("directory")).unwrap();
    let session = create(&daemon, "echo", json!({"activeFile": "kept.rs", "variables": {"a": "b"}})).await;
    let selection =
        |file: &str, start: i64, end: i64| json!({"selection": {"file": file, "startLine": start, "endLine": end}});
    let many: serde_json::Map<String, Value> = (0..65).map(|index| (format!("v{index}"), json!("x"))).collect();
    let file = "context.activeFile";
    for (context, field) in [
        (json!({"activeFile": "../outside/secret"}), file),
        (json!({"activeFile": "a/../b"}), file),
        (json!({"activeFile": outside.join("secret")}), file),
        (json!({"activeFile": "out/secret"}), file),
        (json!({"activeFile": "out/new"}), file),
        (json!({"activeFile": "directory"}), file),
        (json!({"activeFile": daemon.workspace()}), file),
        (json!({"activeFile": ""}), file),
        (json!({"activeFile": "a\nb"}), file),
        (json!({"activeFile": 1}), file),
        (selection("/etc/passwd", 1, 2), "context.selection.file"),
        (selection("a", 0, 2), "context.selection.startLine"),
        (selection("a", 3, 2), "context.selection.endLine"),
        (selection("a", -1, 2), "context.selection.startLine"),
        (json!({"selection": {"file": "a", "startLine": 1}}), "context.selection.endLine"),
        (json!({"selection": {"file": "a", "startLine": 1, "endLine": 2, "column": 3}}), "context.selection.column"),
        (json!({"gitRef": "two words"}), "context.gitRef"),
        (json!({"variables": {"1": "x"}}), "context.variables"),
        (json!({"variables": {"a-b": "x"}}), "context.variables"),
        (json!({"variables": {"a": 1}}), "context.variables.a"),
        (json!({"variables": many}), "context.variables"),
        (json!({"variables": {"a": "x".repeat(20_000)}}), "context.variables"),
        (json!({"fsScope": "wide"}), "context.fsScope"),
        (json!("text"), "context"),
        (json!(["a.rs"]), "context"),
        (json!({"selection": ["a.rs", 1, 2]}), "context.selection"),
    ] {
        let create = json!({"workspace": daemon.workspace(), "agent": "echo", "start": "lazy", "context": context});
        for (method, path, body) in [
            ("POST", "/v1/sessions".to_owned(), create),
            ("PATCH", path_of(&session), json!({"title": "changed", "context": context})),
            ("POST", format!("{}/prompt", path_of(&session)), json!({"text": "hi", "context": context})),
        ] {
            let refused = daemon.request(method, &path, Some(body)).await;
            assert_eq!(refused.status, 400, "{method} {path} {context}: {}", refused.text);
            assert_eq!(refused.body["details"]["field"], field, "{method} {path} {context}: {}", refused.text);
        }
    }
    // What leads out is an attempt, of whoever asks; the rest are mistakes.
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["securityEvents"]["path_escape"], 5 * 3);
    let own = format!("pid={}", std::process::id());
    assert_eq!(daemon.log().lines().filter(|line| line.contains("path_escape") && line.contains(&own)).count(), 5 * 3);
    assert_eq!(daemon.get("/v1/sessions").await.expect_status(200)["total"], 1);
    let now = daemon.session(id_of(&session)).await;
    assert_eq!((&now["context"], &now["title"], &now["turns"]), (&session["context"], &json!(""), &json!(0)));
    let unknown = "/v1/sessions/00000000-0000-7000-8000-000000000000/prompt";
    daemon.post(unknown, json!({"text": "hi", "context": {"activeFile": "a"}})).await.expect_status(404);
}

#[tokio::test]
async fn a_variable_that_looks_like_a_secret_is_refused_without_its_value() {
    const KNOWN: &str = "no-form-at-all-but-known";
    let profile = format!("env = {{ SOME_SETTING = \"{KNOWN}\" }}");
    let daemon = Daemon::builder().agent_with("echo", echo(), &profile).start().await;
    let plain = json!({"ticket": "42", "model_name": "kimi-k2-0711-preview", "note": "sk-refactor-the-long-name"});
    let session = create(&daemon, "echo", json!({"variables": plain})).await;
    // The daemon knows the secrets of an agent from the first start of its process.
    daemon.prompt_and_wait(id_of(&session), "hi").await;
    for (name, value) in [
        ("API_KEY", "abc"),
        ("githubToken", "abc"),
        ("db_password", "abc"),
        ("Authorization", "abc"),
        ("value", "sk-ant-api03-0123456789abcdef"),
        ("note", "use ghp_0123456789abcdefABCDEF"),
        ("pem", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
        ("plain", KNOWN),
    ] {
        let context = json!({"variables": {"fine": "x", name: value}});
        let create = json!({"workspace": daemon.workspace(), "agent": "echo", "start": "lazy", "context": context});
        for (method, path, body) in [
            ("POST", "/v1/sessions".to_owned(), create),
            ("PATCH", path_of(&session), json!({"context": context})),
            ("POST", format!("{}/prompt", path_of(&session)), json!({"text": "hi", "context": context})),
        ] {
            let refused = daemon.request(method, &path, Some(body)).await;
            assert_eq!(refused.status, 400, "{method} {path} {context}: {}", refused.text);
            assert_eq!(refused.body["details"]["field"], format!("context.variables.{name}"), "{}", refused.text);
            assert!(refused.body["hint"].as_str().unwrap().contains("env_file"), "{}", refused.text);
            assert!(!refused.text.contains(value), "{}", refused.text);
        }
    }
    let now = daemon.session(id_of(&session)).await;
    assert_eq!(now["context"]["variables"], plain);
    // One that an earlier version stored can be removed.
    daemon.patch(&path_of(&session), json!({"context": {"variables": {"API_KEY": null}}})).await.expect_status(200);
}
