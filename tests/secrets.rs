//! Secrets: where agents get them from, and that acpd itself writes them nowhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{Daemon, DaemonBuilder, ORDINARY, echo, files_below, users};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A name, a value, and the middle of the value, which is nowhere else: whoever finds it has found the secret in some form.
struct Planted {
    name: &'static str,
    value: &'static str,
    middle: &'static str,
}

const BY_ENV: Planted = Planted { name: "BY_ENV", value: "env\"q\\1/schlüssel-k0reenv-🗝\nend", middle: "k0reenv" };
const BY_FILE: Planted = Planted { name: "BY_FILE", value: "file-k0refile-0123456789", middle: "k0refile" };
const BY_CREDENTIAL: Planted = Planted { name: "BY_CREDENTIAL", value: "cred/k0recred/abc==", middle: "k0recred" };
const BY_PASS: Planted = Planted { name: "BY_PASS", value: "pass k0repass word", middle: "k0repass" };
const ALL: [Planted; 4] = [BY_ENV, BY_FILE, BY_CREDENTIAL, BY_PASS];

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// A daemon whose profile `leaky` has all of them.
fn planted(script: Value) -> DaemonBuilder {
    let builder = Daemon::builder();
    let (file, credentials) = (builder.root().join("keys.env"), builder.root().join("credentials"));
    private(&file, &format!("# keys\nexport {}='{}'\nBY_ENV=loses-against-env\n", BY_FILE.name, BY_FILE.value));
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("the-key"), format!("{}\n", BY_CREDENTIAL.value)).unwrap();
    let profile = format!(
        "env = {{ BY_ENV = {}, PLAIN = \"plain-and-long\" }}\nenv_plain = [\"PLAIN\"]\nenv_pass = [\"BY_PASS\"]\n\
         env_file = {}\npermissions = \"deny\"\ncredentials = {{ BY_CREDENTIAL = \"the-key\" }}",
        json!(BY_ENV.value),
        json!(file)
    );
    builder
        .config("[log]\nlevel = \"debug\"\n[limits]\nstderr_tail = \"64B\"")
        .env("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())
        .env(BY_PASS.name, BY_PASS.value)
        .agent_with("leaky", script, &profile)
}

/// Everything that an agent can say, with every secret in it.
fn leaks() -> Vec<Value> {
    let all: Vec<&str> = ALL.iter().map(|planted| planted.value).collect();
    let all = all.join(" | ");
    let mut steps = vec![json!({"text": format!("all: {all}.")}), json!({"thought": all})];
    for planted in &ALL {
        steps.push(json!({"text": format!("{}=", planted.name)}));
        steps.push(json!({"textFromEnvironment": planted.name}));
        // Cut everywhere, and once in the middle.
        steps.extend(planted.value.chars().map(|piece| json!({"text": piece.to_string()})));
        let middle = planted.value.ceil_char_boundary(planted.value.len() / 2);
        steps.extend([json!({"text": &planted.value[..middle]}), json!({"text": &planted.value[middle..]})]);
    }
    // JSON in a text, which has it escaped, and a line that escapes more than it need.
    steps.push(json!({"text": json!({ "key": all }).to_string()}));
    let escaped = json!(all).to_string().replace('/', "\\/").replace('ü', "\\u00fc").replace('🗝', "\\uD83D\\uDDDD");
    steps.push(json!({"stdout": format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"test-session\",\"update\":{{\
         \"sessionUpdate\":\"unknown_kind\",\"data\":{escaped}}}}}}}\n"
    )}));
    steps.push(json!({"stdout": format!("{} noise {all}\n", "x".repeat(180))}));
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": all, "kind": "execute", "status": "pending",
        "rawInput": {"command": format!("echo {all}")}});
    let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
        "rawOutput": {&all: [all]}, "content": [{"type": "content", "content": {"type": "text", "text": all}}]});
    let plan = json!({"sessionUpdate": "plan", "entries": [{"content": all, "priority": "high", "status": "pending"}]});
    let modes = json!({"sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "x", "description": all}]});
    steps.extend([call, done, plan, modes].map(|update| json!({"update": update})));
    steps.push(json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "c2", "title": all, "kind": "execute", "status": "pending"},
        "options": [{"optionId": "no", "name": all, "kind": "reject_once"}]}}}));
    steps.push(json!({"notify": {"method": "x/unknown", "params": {"a": all}}}));
    steps
}

/// What the daemon keeps and says, by where it is.
async fn everything(daemon: &Daemon, session: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let of_session = ["", "/messages?limit=1000", "/turns", "/events?follow=false"];
    let mut paths: Vec<String> = of_session.iter().map(|path| format!("/v1/sessions/{session}{path}")).collect();
    paths.extend(
        ["sessions", "agents", "agents/leaky", "info", "health", "workspaces", "permissions?status=all"]
            .map(|path| format!("/v1/{path}")),
    );
    paths.extend(ALL.iter().map(|planted| format!("/v1/search?q={}", planted.middle)));
    paths.extend(["/v1/search?q=redacted".to_owned(), "/v1/events?after=0&follow=false".to_owned()]);
    for path in paths {
        let reply = daemon.get(&path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        // Snippets have marks of their own around what was searched for, and the question is not repeated.
        found.push((path, reply.text.into_bytes()));
    }
    found
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn assert_clean(found: &[(String, Vec<u8>)]) {
    for (place, bytes) in found {
        for planted in &ALL {
            if contains(bytes, planted.middle) {
                let text = String::from_utf8_lossy(bytes);
                let at = text.find(planted.middle).unwrap();
                let start = text.floor_char_boundary(at.saturating_sub(200));
                panic!("{} is in {place}: {}", planted.name, text[start..].chars().take(400).collect::<String>());
            }
        }
    }
}

#[tokio::test]
async fn what_agents_print_of_their_secrets_is_nowhere() {
    let all: Vec<&str> = ALL.iter().map(|planted| planted.value).collect();
    let all = all.join(" ");
    let padding = "p".repeat(30);
    let script = json!([
        {"record": true},
        {"handshake": {"initialize": {"agentInfo": {"name": all, "version": "1"}},
            "newSession": {"modes": {"currentModeId": "a", "availableModes": [{"id": "a", "name": all}, {"id": "b", "name": "B"}]}}}},
        {"prompt": leaks()},
        {"expect": "session/set_mode"},
        {"replyError": {"code": -32602, "message": format!("no: {all}")}},
        {"expect": "session/prompt"},
        {"replyError": {"code": -32603, "message": format!("failed with {all}")}},
        {"expect": "session/prompt"},
        // The tail is cut in the middle of a secret.
        {"stderr": format!("{}\n{}{padding}", BY_ENV.value, BY_FILE.value)},
        {"stderr": format!("{}{padding}", BY_FILE.value)},
        {"exit": 3},
    ]);
    let mut daemon = planted(script).start().await;
    let session = daemon.create_lazy_session("leaky").await;
    let prompt = format!("my key is {} and more", BY_FILE.value);
    assert_eq!(daemon.prompt_and_wait(&session, &prompt).await["status"], "completed");

    let messages = daemon.messages(&session).await;
    let spoken = messages.iter().filter(|message| message["role"] == "agent").map(Value::to_string);
    let spoken = spoken.collect::<Vec<_>>().concat();
    for Planted { name, .. } in &ALL {
        let mark = format!("[redacted:{name}]");
        // Whole, from the environment, by character, in halves, in JSON, in a thought.
        assert!(spoken.matches(&mark).count() >= 6, "{name}: {spoken}");
    }
    assert_eq!(messages[0]["content"]["text"], "my key is [redacted:BY_FILE] and more");
    assert_eq!(daemon.session(&session).await["title"], "my key is [redacted:BY_FILE] and more");
    let heard = daemon.heard("leaky");
    let sent = heard.iter().find(|heard| heard.method == "session/prompt").unwrap();
    assert_eq!(sent.params["prompt"][0]["text"], prompt, "the agent is told what was meant");

    let refused = daemon.request("PATCH", &format!("/v1/sessions/{session}"), Some(json!({"mode": "b"}))).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    let failed = daemon.prompt_and_wait(&session, "fail").await;
    let died = daemon.prompt_and_wait(&session, "die").await;
    for answer in [&failed, &died] {
        assert_eq!(answer["status"], "failed", "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("[redacted:"), "{answer}");
    }
    // A mistake in the configuration is told without what stands there.
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("env_plain = [", "env_plain = 7 # [")).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.logged("cannot reload the configuration").await;

    let mut found = everything(&daemon, &session).await;
    found.push(("the refusal".to_owned(), refused.text.into_bytes()));
    let events = daemon.events_so_far(&session, None).await;
    let pieces =
        events.iter().filter(|event| event.kind == "message.delta").map(|event| event.payload()["text"].as_str());
    let pieces: String = pieces.map(Option::unwrap).collect();
    found.push(("the pieces of text, put together".to_owned(), pieces.into_bytes()));
    assert!(String::from_utf8_lossy(&found[0].1).contains("[redacted:BY_ENV]"));
    files_below(daemon.state_dir(), &mut found);
    daemon.terminate().await;
    files_below(daemon.state_dir(), &mut found);
    found.push(("standard error".to_owned(), daemon.log().into_bytes()));
    assert!(found.iter().any(|(place, _)| place.ends_with("acpd.db")), "the database is among what was searched");
    assert!(daemon.log().contains("[redacted:BY_FILE]"), "the log tells of standard error");
    assert_clean(&found);
}

/// The pieces are recorded one by one here: what comes together is recorded together.
#[tokio::test]
async fn a_secret_that_comes_in_pieces_is_not_in_the_pieces() {
    let (first, second) = BY_FILE.value.split_at(BY_FILE.value.len() / 2);
    let script = json!([{"handshake": {}}, {"prompt": [
        {"text": format!("before {first}")}, {"gate": "half"}, {"text": format!("{second} after")}]}]);
    let daemon = planted(script).start().await;
    let session = daemon.create_lazy_session("leaky").await;
    let accepted = daemon.prompt(&session, "go").await;
    let half = daemon.gate("leaky").reached("half").await;
    daemon.events(&session, None).await.until("message.delta").await;
    half.open().await;
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    let events = daemon.events_so_far(&session, None).await;
    let deltas = events.iter().filter(|event| event.kind == "message.delta");
    let pieces: Vec<&str> = deltas.map(|event| event.payload()["text"].as_str().unwrap()).collect();
    assert_eq!(pieces, ["before ", "[redacted:BY_FILE] after"]);
}

#[tokio::test]
async fn later_places_win_and_a_new_key_holds_from_the_next_process() {
    let says: Vec<Value> = ["BY_ENV", "PLAIN", "BY_FILE"]
        .iter()
        .flat_map(|name| [json!({"textFromEnvironment": name}), json!({"text": ";"})])
        .collect();
    let script = json!([{"handshake": {}}, {"prompt": says}]);
    let daemon = planted(script).start().await;
    let spoken = async |session: &str| {
        assert_eq!(daemon.prompt_and_wait(session, "go").await["status"], "completed");
        let messages = daemon.messages(session).await;
        messages.last().unwrap()["content"]["text"].as_str().unwrap().to_owned()
    };
    let session = daemon.create_lazy_session("leaky").await;
    assert_eq!(spoken(&session).await, "[redacted:BY_ENV];plain-and-long;[redacted:BY_FILE];");
    // The agent has ended with its script, and the next prompt starts another one.
    private(&daemon.root().join("keys.env"), "BY_FILE=\"another-k0refile-key\"\n");
    let next = daemon.create_lazy_session("leaky").await;
    assert_eq!(spoken(&next).await, "[redacted:BY_ENV];plain-and-long;[redacted:BY_FILE];");
    private(&daemon.root().join("keys.env"), "BY_FILE=short\n");
    let next = daemon.create_lazy_session("leaky").await;
    assert_eq!(spoken(&next).await, "[redacted:BY_ENV];plain-and-long;short;", "read again at each start");
    let agent = daemon.get("/v1/agents/leaky").await.expect_status(200);
    for name in ["BY_ENV", "BY_CREDENTIAL", "BY_PASS", "PLAIN"] {
        assert!(agent["env"].as_array().unwrap().contains(&json!(name)), "{agent}");
    }
}

/// The name of a model is in every other text. An address can have a password in it.
#[tokio::test]
async fn the_name_of_a_model_is_no_secret() {
    let names = ["KIMI_MODEL_NAME", "KIMI_API_KEY", "KIMI_BASE_URL"];
    let says: Vec<Value> =
        names.iter().flat_map(|name| [json!({"textFromEnvironment": name}), json!({"text": ";"})]).collect();
    let builder = Daemon::builder();
    let file = builder.root().join("kimi.env");
    private(
        &file,
        "KIMI_MODEL_NAME=kimi-k2-turbo\nKIMI_API_KEY=sk-0123456789\nKIMI_BASE_URL=https://me:pw@kimi.example\n",
    );
    let extra = format!("env_file = {:?}", file.display().to_string());
    let daemon = builder.agent_with("kimi", json!([{"handshake": {}}, {"prompt": says}]), &extra).start().await;
    let session = daemon.create_lazy_session("kimi").await;
    daemon.prompt_and_wait(&session, "go").await;
    let said = daemon.messages(&session).await.last().unwrap()["content"]["text"].clone();
    assert_eq!(said, "kimi-k2-turbo;[redacted:KIMI_API_KEY];[redacted:KIMI_BASE_URL];");
}

#[tokio::test]
async fn an_environment_that_cannot_be_had_is_told_with_what_to_do() {
    let builder = Daemon::builder();
    let root = builder.root().to_owned();
    let file = |name: &str| json!(root.join(name)).to_string();
    private(&root.join("open"), "KEY=value\n");
    std::fs::set_permissions(root.join("open"), Permissions::from_mode(0o644)).unwrap();
    private(&root.join("bad"), "KEY=value\nk0refile\n");
    let optional = json!(format!("-{}", root.join("absent").display()));
    let daemon = builder
        .agent_with("absent", echo(), &format!("env_file = {}", file("absent")))
        .agent_with("open", echo(), &format!("env_file = [{}]", file("open")))
        .agent_with("bad", echo(), &format!("env_file = {}", file("bad")))
        .agent_with("credential", echo(), "credentials = { KEY = \"nobody\" }")
        .agent_with("optional", echo(), &format!("env_file = {optional}"))
        .start()
        .await;
    for (agent, told) in [
        ("absent", "does not exist; create it"),
        ("open", "chmod 600 "),
        ("bad", "invalid in line 2"),
        ("credential", "LoadCredential=nobody:PATH"),
    ] {
        let session = daemon.create_lazy_session(agent).await;
        let turn = daemon.prompt_and_wait(&session, "hello").await;
        let message = turn["error"]["message"].as_str().unwrap();
        assert!(message.contains(told) && !message.contains("k0refile"), "{agent}: {message}");
        assert_eq!(daemon.session(&session).await["status"], "active");
    }
    let session = daemon.create_lazy_session("optional").await;
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
    std::fs::set_permissions(root.join("open"), Permissions::from_mode(0o400)).unwrap();
    let session = daemon.create_lazy_session("open").await;
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
}

#[tokio::test]
async fn a_profile_whose_places_are_wrong_is_refused_without_showing_them() {
    let extra = "env_file = [\"relative\"]\ncredentials = { KEY = \"../k0recred\" }";
    let refused = Daemon::builder().agent_with("wrong", echo(), extra).fail_to_start().await;
    for key in ["agents.wrong.env_file", "agents.wrong.credentials"] {
        assert!(refused.stderr.contains(key), "{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("k0recred"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_refusal_tells_no_secret_and_a_rule_may_hold_none() {
    let all: Vec<&str> = ALL.iter().map(|planted| planted.value).collect();
    let question = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "c", "title": "x", "kind": "other", "status": "pending"},
        "options": [{"optionId": "no", "name": all.join(" "), "kind": "reject_once"}]}}});
    let script = json!([{"handshake": {}}, {"prompt": [question]}]);
    let daemon = planted(echo()).agent("asking", script).start().await;
    // Its process has shown acpd its secrets.
    daemon.prompt_and_wait(&daemon.create_session("leaky").await, "hello").await;

    let session = daemon.create_session("asking").await;
    let accepted = daemon.prompt(&session, "go").await;
    let asked = daemon.events(&session, accepted["after"].as_i64()).await.until("permission.requested").await;
    let path = format!("/v1/permissions/{}", asked.last().unwrap().payload()["permissionId"].as_str().unwrap());
    let refused = daemon.post(&path, json!({"optionId": "other"})).await;
    assert!(refused.status == 400 && refused.text.contains("[redacted:BY_ENV]"), "{}", refused.text);
    assert_clean(&[(path, refused.text.into_bytes())]);

    let path = format!("/v1/sessions/{session}");
    let rule = json!({"decision": "deny", "commands": [["curl", BY_ENV.value]]});
    let refused = daemon.request("PATCH", &path, Some(json!({"permissions": {"mode": "deny", "rules": [rule]}}))).await;
    assert!(refused.status == 400 && refused.text.contains("permissions.rules"), "{}", refused.text);
    assert_eq!(daemon.session(&session).await["permissions"], json!({"mode": "ask"}), "nothing is changed");
    assert_clean(&[(path, refused.text.into_bytes())]);
}

#[tokio::test]
async fn quotes_that_an_error_escapes_hide_no_secret() {
    let secret = "it's-k0requoted-\"key\"";
    let settings = format!("env = {{ KEY = {} }}", json!(secret));
    let daemon = Daemon::builder().agent_with("quoted", echo(), &settings).start().await;
    let path = format!("{}/{secret}", daemon.root().display());
    let refused = daemon.post("/v1/workspaces", json!({ "path": path })).await;
    assert!(refused.status == 400 && refused.text.contains("[redacted:KEY]"), "{}", refused.text);
    let refused = daemon.post("/v1/workspaces", json!({ "path": format!("{path}/../../..") })).await;
    let log = daemon.log();
    assert!(!refused.text.contains("k0requoted") && !log.contains("k0requoted"), "{} {log}", refused.text);
}

#[tokio::test]
async fn half_a_secret_is_not_in_the_title_of_a_question() {
    let secret = "hunter2-hunter2-hunter2-hunter2";
    let call = json!({"toolCallId": "c", "title": format!("{}{secret}", "x".repeat(480)), "kind": "execute"});
    let ask = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": call, "options": [{"optionId": "no", "name": "No", "kind": "reject_once"}]}}});
    let script = json!([{"handshake": {}}, {"prompt": [ask]}]);
    let settings = format!("permissions = \"deny\"\nenv = {{ KEY = \"{secret}\" }}");
    let daemon = Daemon::builder().agent_with("asking", script, &settings).start().await;
    let session = daemon.create_session("asking").await;
    daemon.prompt_and_wait(&session, "go").await;
    let asked = daemon.get(&format!("/v1/sessions/{session}/permissions?status=all")).await.expect_status(200);
    assert!(asked["permissions"][0]["title"].as_str().unwrap().starts_with("xxx"), "{asked}");
    assert!(!asked.to_string().contains("hunter2"), "{asked}");
}

/// A key of root's agents, which a member's agents get from the profile `roots` only.
const OF_ROOT: &str = "r00t-k3y-13ch";
/// A value that a member's agents never get, because a later place wins.
const OVERRIDDEN: &str = "loses-against-env";

/// A daemon of root with the profiles `roots` and `members`. Nothing, where the tests are not root's.
async fn shared_daemon(script: Value) -> Option<Daemon> {
    if users().len() == 1 {
        harness::say("SKIPPED: only a daemon of root has members");
        return None;
    }
    let builder = Daemon::builder().owner(ORDINARY);
    let file = builder.root().join("keys.env");
    private(&file, &format!("BY_FILE={}\nBY_ENV={OVERRIDDEN}\n", BY_FILE.value));
    let members = format!("env = {{ BY_ENV = \"env-k0reenv-0123\" }}\nenv_file = {}", json!(file));
    let builder = builder.agent_with("roots", echo(), &format!("env = {{ ROOT_KEY = \"{OF_ROOT}\" }}"));
    let daemon = builder.agent_with("members", script, &members).start().await;
    // Root's own sessions have shown acpd the key, too.
    let roots = daemon.create_session("roots").await;
    daemon.prompt_and_wait(&roots, &format!("my key is {OF_ROOT}")).await;
    assert_eq!(daemon.messages(&roots).await[0]["content"]["text"], "my key is [redacted:ROOT_KEY]");
    Some(daemon)
}

#[tokio::test]
async fn what_a_members_agent_says_is_searched_for_that_members_secrets_only() {
    let (first, second) = OF_ROOT.split_at(OF_ROOT.len() / 2);
    let end = format!("{second} {OVERRIDDEN} {}", BY_FILE.value);
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": OF_ROOT, "rawInput": {"command": OF_ROOT}});
    let script = json!([{"handshake": {}}, {"prompt": [
        {"text": format!("is it {first}")}, {"gate": "half"}, {"text": end}, {"update": call}]}]);
    let Some(daemon) = shared_daemon(script).await else { return };
    let member = daemon.as_user(ORDINARY, &[]);
    let session = member.create_session("members").await;
    let accepted = daemon.prompt(&session, &format!("is it {OF_ROOT}?")).await;
    let half = daemon.gate("members").reached("half").await;
    let delta = daemon.events(&session, None).await.until("message.delta").await;
    assert_eq!(delta.last().unwrap().payload()["text"], format!("is it {first}"), "nothing is held back");
    half.open().await;
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;

    let messages = member.get(&format!("/v1/sessions/{session}/messages")).await.expect_status(200);
    let messages = messages["messages"].as_array().unwrap();
    assert_eq!(messages[0]["content"]["text"], format!("is it {OF_ROOT}?"));
    let said = messages[1]["content"]["text"].as_str().unwrap();
    assert_eq!(said, format!("is it {OF_ROOT} {OVERRIDDEN} [redacted:BY_FILE]"));
    let path = format!("/v1/sessions/{session}/events?follow=false");
    let events = member.get(&path).await.text;
    assert!(events.contains(OF_ROOT) && !events.contains("[redacted:ROOT_KEY]"), "{events}");

    // With an agent that has it, the member has the key; from then on it is redacted.
    let other = member.create_session("roots").await;
    daemon.prompt_and_wait(&other, "hello").await;
    let turn = daemon.prompt_and_wait(&other, &format!("my key is {OF_ROOT}")).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&other).await;
    assert_eq!(messages[2]["content"]["text"], "my key is [redacted:ROOT_KEY]", "{messages:?}");
}

#[tokio::test]
async fn no_route_tells_a_member_whether_a_guess_is_another_owners_secret() {
    let Some(daemon) = shared_daemon(echo()).await else { return };
    let member = daemon.as_user(ORDINARY, &[]);
    let session = member.create_session("members").await;
    let of_session = |rest: &str| format!("/v1/sessions/{session}{rest}");
    let rule = json!({"decision": "deny", "commands": [[OF_ROOT]]});
    let server = json!({"name": "x", "type": "stdio", "command": "x", "env": {"A": OF_ROOT}});
    let posts = [
        (
            "/v1/sessions".to_owned(),
            json!({"workspace": daemon.workspace(), "agent": "members", "title": OF_ROOT,
            "start": "lazy", "tags": [OF_ROOT], "permissions": {"mode": "ask", "rules": [rule.clone()]},
            "context": {"variables": {"A": OF_ROOT}}}),
        ),
        ("/v1/sessions".to_owned(), json!({"workspace": daemon.workspace(), "agent": OF_ROOT})),
        ("/v1/sessions".to_owned(), json!({"workspace": format!("/{OF_ROOT}")})),
        ("/v1/agents".to_owned(), json!({"slug": "mine", "name": "mine", "base": "members", "systemPrompt": OF_ROOT})),
        ("/v1/agents".to_owned(), json!({"slug": "own", "name": "own", "base": "members", "mcpServers": [server]})),
        ("/v1/agents".to_owned(), json!({"slug": "other", "name": "other", "base": OF_ROOT})),
        (of_session("/checkpoints"), json!({"name": OF_ROOT, "state": {"a": OF_ROOT}})),
        (of_session("/messages"), json!({"text": OF_ROOT})),
        (of_session("/cancel"), json!({ OF_ROOT: 1 })),
        ("/v1/records".to_owned(), json!({"session_id": "mine", "title": OF_ROOT})),
        ("/v1/permissions/x".to_owned(), json!({"optionId": OF_ROOT})),
        ("/v1/import".to_owned(), json!({"sessions": [{ OF_ROOT: 1 }]})),
    ];
    let mut told = Vec::new();
    for (path, body) in posts {
        told.push((path.clone(), member.post(&path, body).await));
    }
    let change = json!({"title": OF_ROOT, "permissions": {"mode": "ask", "rules": [rule]}});
    told.push(("PATCH".to_owned(), member.patch(&of_session(""), change).await));
    let encoded = format!("/v1/sessions?{OF_ROOT}=1");
    for path in [
        encoded,
        format!("/{OF_ROOT}"),
        format!("/v1/agents/{OF_ROOT}"),
        format!("/v1/timeline/{OF_ROOT}"),
        format!("/v1/search?q=%22{OF_ROOT}%22"),
        of_session(""),
        of_session("/checkpoints"),
        "/v1/records".to_owned(),
        "/v1/sessions".to_owned(),
        "/v1/agents/mine".to_owned(),
        "/v1/events?after=0&follow=false".to_owned(),
    ] {
        told.push((path.clone(), member.get(&path).await));
    }
    for (path, reply) in &told {
        assert!(!reply.text.contains("redacted") && !reply.text.contains("agent's secret"), "{path}: {}", reply.text);
    }
    let echoed = told.iter().filter(|(_, reply)| reply.text.contains(OF_ROOT)).count();
    assert!(echoed > told.len() / 2, "most repeat it: {echoed} of {}", told.len());
}
