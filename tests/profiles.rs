//! Agents as entities: made, listed, changed and archived over the API; what a session keeps of them, and what reaches the agent.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, DaemonBuilder, ORDINARY, User, echo, files_below, users, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PROMPT: &str = "You are brief.\nYou are kind.";

/// An agent whose prompts are kept.
fn recording(handshake: &Value) -> Value {
    json!([{"record": true}, {"handshake": handshake}, {"repeat": [{"prompt": [{"text": "yes"}]}]}])
}

async fn make(daemon: &Daemon, body: Value) -> Value {
    daemon.post("/v1/agents", body).await.expect_status(201)
}

async fn view(daemon: &Daemon, session: &str) -> Value {
    daemon.get(&format!("/v1/sessions/{session}")).await.expect_status(200)
}

/// What the last prompt that an agent heard is made of.
fn last_prompt(daemon: &Daemon, agent: &str) -> Vec<String> {
    let heard = daemon.heard(agent);
    let prompt = heard.iter().rfind(|heard| heard.method == "session/prompt").expect("the agent was prompted");
    let blocks = prompt.params["prompt"].as_array().unwrap().iter();
    blocks.map(|block| block["text"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn prompted(daemon: &Daemon, agent: &str, session: &str) -> Vec<String> {
    assert_eq!(daemon.prompt_and_wait(session, "go on").await["status"], "completed");
    last_prompt(daemon, agent)
}

/// Puts another configuration in force.
async fn reload_with(daemon: &Daemon, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), change(text)).unwrap();
    let loaded = async || daemon.get("/v1/info").await.expect_status(200)["config"].clone();
    let before = loaded().await;
    daemon.signal(Signal::SIGHUP);
    let now = within("the reload", async {
        loop {
            let now = loaded().await;
            if now != before {
                return now;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(now["error"], Value::Null, "{now}");
}

#[tokio::test]
async fn an_agent_is_made_listed_changed_archived_and_brought_back() {
    let mut daemon = Daemon::builder().agent("echo", echo()).config("[sessions]\nagent = \"echo\"\n").start().await;
    let body = json!({"slug": "brief", "name": "Brief", "description": "Says little", "systemPrompt": PROMPT,
        "model": "small", "mode": "plan", "temperature": 0.5, "maxTokens": 4000, "permissions": {"mode": "deny"},
        "tags": ["a", "b"]});
    let made = make(&daemon, body.clone()).await;
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
    }
    let facts = (&made["source"], &made["base"], &made["status"], &made["default"], &made["installed"]);
    assert_eq!(facts, (&json!("api"), &json!("echo"), &json!("active"), &json!(false), &json!(true)));
    assert_eq!(made["notApplied"], json!(["temperature", "maxTokens"]));
    assert_eq!(&made["id"].as_str().unwrap()[14..15], "7", "{made}");
    let by_id = format!("/v1/agents/{}", made["id"].as_str().unwrap());
    assert_eq!(daemon.get(&by_id).await.expect_status(200), made);
    assert_eq!(daemon.get("/v1/agents/brief").await.expect_status(200), made);

    let list = daemon.get("/v1/agents").await.expect_status(200);
    let agents = list["agents"].as_array().unwrap();
    let of = |slug: &str| agents.iter().find(|agent| agent["slug"] == slug).unwrap();
    assert_eq!(list["total"], agents.len());
    assert_eq!(agents.last().unwrap(), &made);
    assert_eq!((&of("echo")["source"], &of("echo")["default"]), (&json!("config"), &json!(true)));
    assert!(agents.iter().all(|agent| agent["id"].is_string() && agent["createdAt"].is_string()), "{list}");
    let configured = format!("/v1/agents/{}", of("echo")["id"].as_str().unwrap());
    assert_eq!(daemon.get(&configured).await.expect_status(200)["slug"], "echo", "by its id too");
    let last = daemon.get(&format!("/v1/agents?limit=1&offset={}", agents.len() - 1)).await.expect_status(200);
    assert_eq!((&last["agents"][0]["slug"], &last["total"]), (&json!("brief"), &list["total"]));

    let change = json!({"description": null, "systemPrompt": null, "temperature": null, "model": null, "mode": null,
        "name": "Other", "tags": ["c"]});
    let changed = daemon.patch(&by_id, change).await.expect_status(200);
    let facts = (&changed["name"], &changed["description"], &changed["systemPrompt"], &changed["model"]);
    assert_eq!(facts, (&json!("Other"), &json!(""), &Value::Null, &Value::Null));
    assert_eq!((&changed["tags"], &changed["notApplied"]), (&json!(["c"]), &json!(["maxTokens"])));
    assert_eq!((&changed["createdAt"], &changed["id"]), (&made["createdAt"], &made["id"]));

    let session = daemon.create_lazy_session("brief").await;
    let archived = daemon.delete("/v1/agents/brief").await.expect_status(200);
    assert_eq!(archived["status"], "archived");
    assert!(archived["archivedAt"].is_string());
    assert_eq!(daemon.delete("/v1/agents/brief").await.expect_status(200), archived, "twice is fine");
    let slugs = async |query: &str| {
        let list = daemon.get(&format!("/v1/agents{query}")).await.expect_status(200);
        list["agents"].as_array().unwrap().iter().any(|agent| agent["slug"] == "brief")
    };
    assert!(!slugs("").await && slugs("?includeArchived=true").await);
    let refused = daemon.post("/v1/sessions", json!({"workspace": daemon.workspace(), "agent": "brief"})).await;
    refused.refused(409, "agent_archived");
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed", "its sessions go on");

    daemon.restart().await;
    assert_eq!(daemon.get("/v1/agents/brief").await.expect_status(200), archived, "the record has it");
    let back = daemon.patch("/v1/agents/brief", json!({"status": "active"})).await.expect_status(200);
    assert_eq!((&back["status"], &back["archivedAt"]), (&json!("active"), &Value::Null));
    daemon.create_lazy_session("brief").await;
    let check = daemon.post("/v1/agents/brief/check", json!({})).await.expect_status(200);
    assert_eq!((&check["ok"], &check["slug"]), (&json!(true), &json!("brief")), "{check}");
}

/// Definitions that make no sense, and the field that is told.
fn wrong() -> Vec<(Value, &'static str)> {
    let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
    vec![
        (json!({"slug": "Upper"}), "slug"),
        (json!({"slug": "x".repeat(65)}), "slug"),
        (json!({"slug": "a/b"}), "slug"),
        (json!({}), "slug"),
        (json!({"name": ""}), "name"),
        (json!({"name": "x".repeat(201)}), "name"),
        (json!({"description": "x".repeat(2001)}), "description"),
        (json!({"systemPrompt": ""}), "systemPrompt"),
        (json!({"systemPrompt": "x".repeat(65537)}), "systemPrompt"),
        (json!({"systemPrompt": "my key is hunter2-hunter2"}), "systemPrompt"),
        (json!({"description": "hunter2-hunter2"}), "description"),
        (json!({"model": ""}), "model"),
        (json!({"mode": "a\u{7}"}), "mode"),
        (json!({"temperature": 2.1}), "temperature"),
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": "warm"}), "temperature"),
        (json!({"maxTokens": 0}), "maxTokens"),
        (json!({"maxTokens": -5}), "maxTokens"),
        (json!({"tags": many}), "tags"),
        (json!({"tags": [""]}), "tags"),
        (json!({"permissions": {"mode": "maybe"}}), "permissions.mode"),
        (
            json!({"permissions": {"mode": "ask", "rules": [{"decision": "deny", "paths": []}]}}),
            "permissions.rules[0].paths",
        ),
        (json!({"mcpServers": ["nothing"]}), "mcpServers[0]"),
        (json!({"base": "nothing"}), "base"),
        (json!({"base": "there"}), "base"),
        (json!({"base": "echo", "command": "x"}), "command"),
        (json!({"args": ["x"]}), "args"),
        (json!({"envFile": ["/x"]}), "envFile"),
        (json!({"command": "x", "envPass": ["KEY=secret-value"]}), "envPass"),
        (json!({"command": "x", "envFile": ["relative"]}), "envFile"),
        (json!({"command": "x", "credentials": {"KEY": "a/b"}}), "credentials"),
        (json!({"command": "x", "args": ["--key=hunter2-hunter2"]}), "args"),
        (json!({"command": "x", "env": {"KEY": "secret-value"}}), "env"),
        (json!({"status": "gone"}), "status"),
        (json!({"nonsense": 1}), "nonsense"),
    ]
}

#[tokio::test]
async fn each_field_that_makes_no_sense_is_refused_by_its_name() {
    let daemon = Daemon::builder()
        .agent_with("echo", echo(), "env = { ECHO_KEY = \"hunter2-hunter2\" }\npermissions_max = \"ask\"\n")
        .config("[sessions]\nagent = \"echo\"\n")
        .start()
        .await;
    make(&daemon, json!({"slug": "there"})).await;
    for (body, field) in wrong() {
        let mut create = body.clone();
        if field != "slug" {
            create["slug"] = "fresh".into();
        }
        let refused = daemon.post("/v1/agents", create).await;
        assert!(!refused.text.contains("hunter2") && !refused.text.contains("secret-value"), "{}", refused.text);
        assert_eq!(refused.refused(400, "invalid_request")["details"]["field"], field, "made: {body}");
        if field != "slug" {
            let refused = daemon.patch("/v1/agents/there", body.clone()).await.refused(400, "invalid_request");
            assert_eq!(refused["details"]["field"], field, "changed: {body}");
        }
    }
    let wider = |body: Value| daemon.patch("/v1/agents/there", body);
    wider(json!({"permissions": {"mode": "allow"}})).await.refused(403, "wider_permissions");
    wider(json!({"mode": "yolo"})).await.refused(403, "wider_mode");
    let own = json!({"mcpServers": [{"name": "own", "command": "x"}]});
    wider(own).await.refused(403, "mcp_server_not_allowed");
    assert_eq!(
        daemon.patch("/v1/agents/there", json!({"slug": "x"})).await.refused(400, "invalid_request")["details"]["field"],
        "slug"
    );
    let list = daemon.get("/v1/agents?includeArchived=true").await.expect_status(200);
    assert!(list["agents"].as_array().unwrap().iter().all(|agent| agent["slug"] != "fresh"));
}

#[tokio::test]
async fn a_slug_is_one_agents_and_the_configuration_is_changed_in_its_file() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    make(&daemon, json!({"slug": "mine", "base": "echo"})).await;
    daemon.delete("/v1/agents/mine").await.expect_status(200);
    for slug in ["mine", "echo", "demo"] {
        let refused =
            daemon.post("/v1/agents", json!({"slug": slug, "base": "echo"})).await.refused(409, "agent_exists");
        assert_eq!(refused["details"]["agent"], slug);
    }
    for reply in [daemon.patch("/v1/agents/echo", json!({"name": "x"})).await, daemon.delete("/v1/agents/echo").await] {
        assert!(reply.refused(409, "agent_read_only")["hint"].as_str().unwrap().contains("[agents.echo]"));
    }
    for reply in [
        daemon.get("/v1/agents/nobody").await,
        daemon.patch("/v1/agents/nobody", json!({})).await,
        daemon.delete("/v1/agents/019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e").await,
    ] {
        reply.refused(404, "agent_not_found");
    }
}

#[tokio::test]
async fn the_configuration_wins_and_nothing_is_lost() {
    let builder = Daemon::builder().agent("echo", echo()).agent("other", echo());
    let daemon = builder.config("[sessions]\nagent = \"other\"\n").start().await;
    let made = make(&daemon, json!({"slug": "mine", "base": "echo", "name": "Made"})).await;
    let id = format!("/v1/agents/{}", made["id"].as_str().unwrap());
    let session = daemon.create_lazy_session("mine").await;
    let section = "\n[agents.mine]\ncommand = \"acpd-of-the-file\"\nname = \"Configured\"\n";
    reload_with(&daemon, |text| text + section).await;
    let configured = daemon.get("/v1/agents/mine").await.expect_status(200);
    assert_eq!((&configured["name"], &configured["source"]), (&json!("Configured"), &json!("config")));
    let shadowed = daemon.get(&id).await.expect_status(200);
    assert_eq!((&shadowed["name"], &shadowed["shadowed"]), (&json!("Made"), &json!(true)));
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed", "its session is the made one's");
    reload_with(&daemon, |text| text.replace(section, "")).await;
    assert_eq!(daemon.get("/v1/agents/mine").await.expect_status(200), made, "as it was");

    // A base that is gone takes no new sessions, and those that are there go on.
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    let from = text.find("[agents.echo]").unwrap();
    let to = text[from + 1..].find("\n[").map_or(text.len(), |end| from + 1 + end);
    reload_with(&daemon, |text| format!("{}{}", &text[..from], &text[to..])).await;
    let alone = daemon.get("/v1/agents/mine").await.expect_status(200);
    assert_eq!(
        (&alone["baseMissing"], &alone["base"], &alone["installed"]),
        (&json!(true), &json!("echo"), &json!(false))
    );
    let refused = daemon.post("/v1/sessions", json!({"workspace": daemon.workspace(), "agent": "mine"})).await;
    assert!(refused.refused(409, "agent_base_missing")["hint"].as_str().unwrap().contains("[agents.echo]"));
    daemon.post("/v1/agents/mine/check", json!({})).await.refused(409, "agent_base_missing");
    assert_eq!(daemon.prompt_and_wait(&session, "again").await["status"], "completed");
    daemon.patch("/v1/agents/mine", json!({"name": "x"})).await.refused(400, "invalid_request");
    assert_eq!(daemon.delete("/v1/agents/mine").await.expect_status(200)["status"], "archived", "it can be put away");
    daemon.patch("/v1/agents/mine", json!({"status": "active", "base": "other"})).await.expect_status(200);
    daemon.create_lazy_session("mine").await;
}

#[tokio::test]
async fn a_session_keeps_what_its_agent_was_and_todays_values() {
    let secret = "env = { MY_KEY = \"hunter2-hunter2\" }\ntags = [\"of-base\"]\n";
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromEnvironment": "MY_KEY"}]}]}]);
    let daemon = Daemon::builder().agent_with("keyed", script, secret).start().await;
    let made = make(
        &daemon,
        json!({"slug": "mine", "base": "keyed", "systemPrompt": PROMPT, "temperature": 1,
        "maxTokens": 9, "tags": ["t"], "description": "first"}),
    )
    .await;
    let session = daemon.create_lazy_session("mine").await;
    daemon
        .patch("/v1/agents/mine", json!({"systemPrompt": "another", "temperature": null, "tags": []}))
        .await
        .expect_status(200);
    let view = view(&daemon, &session).await;
    let profile = &view["profile"];
    assert_eq!((&view["agent"], &profile["id"], &profile["base"]), (&json!("mine"), &made["id"], &json!("keyed")));
    assert_eq!((&profile["systemPrompt"], &profile["tags"]), (&json!(PROMPT), &json!(["t"])));
    assert_eq!((&profile["temperature"], &profile["maxTokens"]), (&json!(1.0), &json!(9)));
    assert_eq!(view["notApplied"], json!(["temperature", "maxTokens"]));
    assert_eq!((&profile["description"], &profile["envNames"]), (&json!("first"), &json!(["MY_KEY"])));

    assert_eq!(daemon.prompt_and_wait(&session, "tell").await["status"], "completed");
    let said = daemon.messages(&session).await;
    assert_eq!(said.len(), 2, "the system prompt is no message: {said:?}");
    assert_eq!(said[1]["content"]["text"], "[redacted:MY_KEY]", "it had the base's value");
    let mut files = Vec::new();
    files_below(daemon.state_dir(), &mut files);
    let has = |bytes: &[u8]| bytes.windows(7).any(|window| window == b"hunter2");
    assert!(files.iter().any(|(path, _)| path.ends_with("acpd.db")));
    assert_eq!(files.iter().filter(|(_, bytes)| has(bytes)).count(), 0);
    for path in ["/v1/agents", "/v1/agents/mine", &format!("/v1/sessions/{session}")] {
        assert!(!daemon.get(path).await.text.contains("hunter2"), "{path}");
    }
}

#[tokio::test]
async fn model_mode_and_what_has_an_option_are_asked_of_the_agent() {
    let option = |value: &str| {
        json!([{"id": "temperature", "name": "Temperature", "type": "select", "currentValue": value,
            "options": [{"value": "0.5", "name": "Mild"}, {"value": "1", "name": "Warm"}]}])
    };
    let announced = json!({"newSession": {
        "modes": {"currentModeId": "default", "availableModes": [{"id": "default", "name": "D"}, {"id": "plan", "name": "P"}]},
        "models": {"currentModelId": "small", "availableModels": [{"modelId": "small", "name": "S"}, {"modelId": "large", "name": "L"}]},
        "configOptions": option("1")}});
    let script = json!([{"record": true}, {"handshake": announced}, {"repeat": [{"switch": {
        "session/set_mode": [{"reply": {}}], "session/set_model": [{"reply": {}}],
        "session/set_config_option": [{"reply": {"configOptions": option("0.5")}}],
        "session/prompt": [{"text": "yes"}, {"reply": {"stopReason": "end_turn"}}]}}]}]);
    let daemon = Daemon::builder().agent_with("rich", script, "mode = \"plan\"\nmax_tokens = 100\n").start().await;
    make(&daemon, json!({"slug": "mine", "base": "rich", "model": "large", "temperature": 0.5})).await;
    let asked = |from: usize| -> Vec<Value> {
        let heard = daemon.heard("rich").into_iter().skip(from).filter(|heard| heard.method.contains("/set_"));
        heard
            .map(|mut heard| {
                heard.params.as_object_mut().unwrap().remove("sessionId");
                heard.params
            })
            .collect()
    };
    let session = daemon.create_lazy_session("mine").await;
    assert_eq!(view(&daemon, &session).await["notApplied"], json!(["temperature", "maxTokens"]), "nobody knows yet");
    daemon.prompt_and_wait(&session, "hello").await;
    let expected =
        [json!({"modeId": "plan"}), json!({"modelId": "large"}), json!({"configId": "temperature", "value": "0.5"})];
    assert_eq!(asked(0), expected);
    let seen = view(&daemon, &session).await;
    assert_eq!(
        (&seen["mode"], &seen["model"], &seen["notApplied"]),
        (&json!("plan"), &json!("large"), &json!(["maxTokens"]))
    );

    let before = daemon.heard("rich").len();
    let own = json!({"workspace": daemon.workspace(), "agent": "mine", "mode": "default", "model": "small",
        "configOptions": {"temperature": "1"}, "start": "lazy"});
    let session = daemon.post("/v1/sessions", own).await.expect_status(201);
    daemon.prompt_and_wait(session["id"].as_str().unwrap(), "hello").await;
    let expected =
        [json!({"modeId": "default"}), json!({"modelId": "small"}), json!({"configId": "temperature", "value": "1"})];
    assert_eq!(asked(before), expected, "what the request chooses goes before");
}

#[tokio::test]
async fn the_system_prompt_is_the_first_block_of_each_conversation_that_the_agent_begins() {
    let resuming = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    let builder = Daemon::builder().agent("fresh", recording(&json!({}))).agent("native", recording(&resuming));
    let configured = format!("system_prompt = {PROMPT:?}\n");
    let builder = builder.agent_with("configured", recording(&json!({})), &configured);
    let mut daemon = builder.config("[sessions]\nresume_on_start = true\n").start().await;
    make(&daemon, json!({"slug": "a", "base": "fresh", "systemPrompt": PROMPT})).await;
    make(&daemon, json!({"slug": "b", "base": "native", "systemPrompt": PROMPT})).await;
    make(&daemon, json!({"slug": "c", "base": "configured"})).await;
    let fresh = daemon.create_lazy_session("a").await;
    let native = daemon.create_lazy_session("b").await;
    for (agent, slug) in [("configured", "configured"), ("configured", "c")] {
        let session = daemon.create_lazy_session(slug).await;
        assert_eq!(prompted(&daemon, agent, &session).await, [PROMPT, "go on"], "{slug}");
    }
    for (agent, session) in [("fresh", &fresh), ("native", &native)] {
        assert_eq!(prompted(&daemon, agent, session).await, [PROMPT, "go on"], "{agent}");
        assert_eq!(prompted(&daemon, agent, session).await, ["go on"], "{agent}: once");
    }
    for is_killed in [false, true] {
        if is_killed {
            daemon.kill().await;
        }
        daemon.restart().await;
        let again = prompted(&daemon, "fresh", &fresh).await;
        assert_eq!((again.len(), again[0].as_str()), (3, PROMPT), "before the transcript: {again:?}");
        assert!(again[1].contains("# The conversation so far"), "{again:?}");
        assert!(!again[1].contains("You are kind"), "it is not in the record of what was said");
        assert_eq!(prompted(&daemon, "fresh", &fresh).await, ["go on"]);
        assert_eq!(prompted(&daemon, "native", &native).await, ["go on"], "it remembers");
    }
}

#[tokio::test]
async fn a_system_prompt_is_owed_until_a_turn_has_ended_with_a_stop_reason() {
    let script = json!([{"record": true}, {"handshake": {"capabilities": {"sessionCapabilities": {"resume": {}}}}},
        {"repeat": [{"expect": "session/prompt"}, {"gate": "prompted", "cases": {"fail": [
            {"replyError": {"code": -32603, "message": "not now"}}], "die": [{"exit": 3}], "answer": [
            {"text": "yes"}, {"reply": {"stopReason": "end_turn"}}]}}]}]);
    let mut daemon = Daemon::builder().agent("gated", script).start().await;
    make(&daemon, json!({"slug": "mine", "base": "gated", "systemPrompt": PROMPT})).await;
    let session = daemon.create_lazy_session("mine").await;
    let gate = daemon.gate("gated");
    for (case, status) in [("fail", "failed"), ("die", "failed"), ("answer", "completed")] {
        let accepted = daemon.prompt(&session, "go on").await;
        gate.reached("prompted").await.say(case).await;
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["status"], status, "{case}: {turn}");
        assert_eq!(last_prompt(&daemon, "gated")[0], PROMPT, "{case}");
        if case == "die" {
            daemon.restart().await;
            daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        }
    }
    let accepted = daemon.prompt(&session, "go on").await;
    gate.reached("prompted").await.say("answer").await;
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(last_prompt(&daemon, "gated"), ["go on"]);
}

#[tokio::test]
async fn claude_takes_the_system_prompt_beside_the_protocol() {
    let resuming = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    let builder = Daemon::builder().agent_with("claude", recording(&resuming), "adapter = \"claude\"\n");
    let mut daemon = builder.config("[sessions]\nresume_on_start = true\n").start().await;
    make(&daemon, json!({"slug": "mine", "base": "claude", "systemPrompt": PROMPT})).await;
    let session = daemon.create_lazy_session("mine").await;
    assert_eq!(prompted(&daemon, "claude", &session).await, ["go on"]);
    daemon.restart().await;
    assert_eq!(prompted(&daemon, "claude", &session).await, ["go on"]);
    let heard = daemon.heard("claude");
    let begun: Vec<_> =
        heard.iter().filter(|heard| ["session/new", "session/resume"].contains(&&*heard.method)).collect();
    assert_eq!(begun.iter().map(|heard| heard.method.as_str()).collect::<Vec<_>>(), ["session/new", "session/resume"]);
    for heard in begun {
        assert_eq!(heard.params["_meta"], json!({"systemPrompt": {"append": PROMPT}}), "{}", heard.method);
    }
    let plain = daemon.create_lazy_session("claude").await;
    prompted(&daemon, "claude", &plain).await;
    let heard = daemon.heard("claude");
    assert_eq!(heard.iter().rfind(|heard| heard.method == "session/new").unwrap().params.get("_meta"), None);
}

#[tokio::test]
async fn an_agent_has_less_than_its_base() {
    let servers = "permissions = { mode = \"edit\", rules = [{ decision = \"deny\", commands = [\"rm\"] }] }\n\
        [agents.able.mcp_servers.one]\ncommand = \"sh\"\n[agents.able.mcp_servers.two]\ncommand = \"sh\"\n";
    let daemon = Daemon::builder().agent_with("able", recording(&json!({})), servers).start().await;
    let made =
        make(&daemon, json!({"slug": "mine", "base": "able", "mcpServers": ["two"], "permissions": {"mode": "ask"}}))
            .await;
    assert_eq!((&made["mcpServers"][0]["name"], made["mcpServers"].as_array().unwrap().len()), (&json!("two"), 1));
    let create = |more: Value| {
        let mut body = json!({"workspace": daemon.workspace(), "agent": "mine", "start": "lazy"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        daemon.post("/v1/sessions", body)
    };
    let refused = create(json!({"mcpServers": ["one"]})).await.refused(400, "invalid_request");
    assert_eq!(refused["details"]["field"], "mcpServers[0]");
    create(json!({"permissions": {"mode": "edit"}})).await.refused(403, "wider_permissions");
    let session = create(json!({})).await.expect_status(201);
    let id = session["id"].as_str().unwrap();
    assert_eq!(session["permissions"], json!({"mode": "ask"}));
    let profile = view(&daemon, id).await["profile"].clone();
    assert_eq!((&profile["permissions"]["mode"], &profile["basePermissions"]["mode"]), (&json!("ask"), &json!("edit")));
    assert_eq!(profile["basePermissions"]["rules"][0]["commands"], json!([["rm"]]), "its rules hold on");
    prompted(&daemon, "able", id).await;
    let heard = daemon.heard("able");
    let begun = heard.iter().find(|heard| heard.method == "session/new").unwrap();
    let given: Vec<_> = begun.params["mcpServers"].as_array().unwrap().iter().map(|server| &server["name"]).collect();
    assert_eq!(given, ["two"]);
}

#[tokio::test]
async fn a_command_of_its_own_has_references_and_no_values() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromEnvironment": "FILE_KEY"},
        {"textFromEnvironment": "PASSED_KEY"}]}]}]);
    let daemon = Daemon::builder().agent("known", script).env("PASSED_KEY", "of-environment").start().await;
    let known = daemon.get("/v1/agents/known").await.expect_status(200);
    let file = daemon.root().join("keys");
    std::fs::write(&file, "FILE_KEY=of-the-file\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let made = make(
        &daemon,
        json!({"slug": "own", "command": known["command"], "args": known["args"],
        "envFile": [file], "envPass": ["PASSED_KEY"]}),
    )
    .await;
    assert_eq!((&made["base"], &made["env"], &made["envFile"]), (&Value::Null, &json!(["PASSED_KEY"]), &json!([file])));
    let session = daemon.create_lazy_session("own").await;
    assert_eq!(daemon.prompt_and_wait(&session, "tell").await["status"], "completed");
    let said = daemon.messages(&session).await.pop().unwrap();
    assert_eq!(said["content"]["text"], "[redacted:FILE_KEY][redacted:PASSED_KEY]");
    let mut files = Vec::new();
    files_below(daemon.state_dir(), &mut files);
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(files.iter().all(|(_, bytes)| !has(bytes, "of-the-file") && !has(bytes, "of-environment")));
    daemon.patch("/v1/agents/own", json!({"base": "known"})).await.expect_status(200);
    assert_eq!(daemon.get("/v1/agents/own").await.expect_status(200)["base"], "known");
}

/// Somebody else of the group.
const OTHER: User = User { uid: 1, gid: 1 };

/// A daemon of root for a group. Nothing, where the tests are not root's.
fn for_members() -> Option<DaemonBuilder> {
    let is_root = users().len() > 1;
    if !is_root {
        harness::say("SKIPPED: only a daemon of root has members");
    }
    is_root.then(|| Daemon::builder().owner(ORDINARY).agent("echo", echo()))
}

#[tokio::test]
async fn a_members_agents_are_seen_by_that_member_and_root() {
    let Some(builder) = for_members() else { return };
    let daemon = builder.start().await;
    let (owner, other) = (daemon.as_user(ORDINARY, &[]), daemon.as_user(OTHER, &[ORDINARY.gid]));
    let command = json!({"slug": "own", "command": "/bin/true"});
    owner.post("/v1/agents", command.clone()).await.refused(403, "root_only");
    let made = owner.post("/v1/agents", json!({"slug": "theirs", "base": "echo"})).await.expect_status(201);
    assert_eq!(made["owner"], ORDINARY.uid);
    owner.patch("/v1/agents/theirs", json!({"command": "/bin/true"})).await.refused(403, "root_only");
    make(&daemon, command).await;

    let slugs = |list: Value| -> Vec<String> {
        let agents = list["agents"].as_array().unwrap().iter().filter(|agent| agent["source"] == "api");
        agents.map(|agent| agent["slug"].as_str().unwrap().to_owned()).collect()
    };
    let theirs = format!("/v1/agents/{}", made["id"].as_str().unwrap());
    assert_eq!(slugs(owner.get("/v1/agents").await.expect_status(200)), ["theirs"]);
    assert_eq!(slugs(other.get("/v1/agents?all=true").await.expect_status(200)), Vec::<String>::new());
    assert_eq!(slugs(daemon.get("/v1/agents").await.expect_status(200)), ["own"], "root's own");
    assert_eq!(slugs(daemon.get("/v1/agents?all=true").await.expect_status(200)), ["own", "theirs"]);
    for path in ["/v1/agents/theirs", "/v1/agents/own", &theirs] {
        other.get(path).await.refused(404, "agent_not_found");
        other.patch(path, json!({"name": "x"})).await.refused(404, "agent_not_found");
        other.delete(path).await.refused(404, "agent_not_found");
        other.post(&format!("{path}/check"), json!({})).await.refused(404, "agent_not_found");
    }
    let session = json!({"workspace": daemon.workspace(), "agent": "theirs", "start": "lazy"});
    other.post("/v1/agents", json!({"slug": "theirs", "base": "echo"})).await.refused(409, "agent_exists");
    owner.post("/v1/sessions", session).await.expect_status(201);
    owner.delete("/v1/agents/echo").await.refused(409, "agent_read_only");
    assert_eq!(
        daemon.get("/v1/agents/theirs").await.expect_status(200)["owner"],
        ORDINARY.uid,
        "root reaches it by name"
    );
}

#[tokio::test]
async fn agents_are_made_and_put_away_on_the_command_line() {
    let builder = Daemon::builder().agent("echo", echo()).config("[sessions]\nagent = \"echo\"\n");
    let daemon = builder.start().await;
    let file = daemon.root().join("prompt.md");
    std::fs::write(&file, PROMPT).unwrap();
    let prompt = format!("@{}", file.display());
    let create = ["agents", "create", "mine", "--base", "echo", "--name", "Mine", "--description", "Says little"];
    let more = ["--system-prompt", &prompt, "--temperature", "0.5", "--max-tokens", "10", "--permissions", "deny"];
    let told = daemon.cli(&[create.as_slice(), &more, &["--tag", "a", "--tag", "b", "--no-mcp"]].concat()).await;
    assert!(told.stderr.contains("temperature and maxTokens: stored"), "{}", told.stderr);
    assert_eq!(told.success(), "mine\n");
    let made = daemon.get("/v1/agents/mine").await.expect_status(200);
    let facts = (&made["systemPrompt"], &made["temperature"], &made["permissions"], &made["tags"]);
    assert_eq!(facts, (&json!(PROMPT), &json!(0.5), &json!({"mode": "deny"}), &json!(["a", "b"])));

    let listed = daemon.cli(&["agents"]).await.success();
    let line = listed.lines().find(|line| line.starts_with("mine")).unwrap();
    assert!(
        line.contains("api") && line.contains("temperature, maxTokens") && line.contains("Says little"),
        "{listed}"
    );
    let shown = daemon.cli(&["agents", "show", "mine"]).await.success();
    for words in ["source        api", "base          echo", "not applied   temperature, maxTokens", "You are brief."] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let said = daemon.cli(&["run", "--agent", "mine", "-C", &daemon.workspace().display().to_string(), "hello"]).await;
    assert!(said.success().contains("hello"));

    daemon
        .cli(&["agents", "edit", "mine", "--name", "Other", "--unset", "temperature", "--unset", "tags"])
        .await
        .success();
    let changed = daemon.get("/v1/agents/mine").await.expect_status(200);
    let facts = (&changed["name"], &changed["temperature"], &changed["tags"], &changed["maxTokens"]);
    assert_eq!(facts, (&json!("Other"), &Value::Null, &json!([]), &json!(10)));
    let refused = daemon.cli(&["agents", "edit", "mine"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("hint: "), "{}", refused.stderr);
    let refused = daemon.cli(&["agents", "edit", "echo", "--name", "x"]).await;
    assert!(refused.stderr.contains("acpd agents add echo"), "{}", refused.stderr);

    assert_eq!(daemon.cli(&["agents", "archive", "mine", "--json"]).await.json()["status"], "archived");
    let new = ["new", "--agent", "mine", "-C", &daemon.workspace().display().to_string()].map(str::to_owned);
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    let refused = daemon.cli(&new).await;
    assert!(refused.code != 0 && refused.stderr.contains("acpd agents edit mine --restore"), "{}", refused.stderr);
    assert!(!daemon.cli(&["agents"]).await.success().contains("Other"));
    assert!(daemon.cli(&["agents", "list", "--all"]).await.success().contains("archived"));
    daemon.cli(&["agents", "edit", "mine", "--restore"]).await.success();
    daemon.cli(&new).await.success();
    assert_eq!(daemon.cli(&["agents", "check", "mine"]).await.code, 0);
}
