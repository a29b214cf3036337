//! MCP servers: what a profile gives its agents, what a session has of that or brings along, and that no value is kept.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{Daemon, DaemonBuilder, ORDINARY, files_below, users, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Parts of values that are nowhere else.
const FROM_FILE: &str = "k0refile-0123456789";
const LITERAL: &str = "k0reliteral-abcdef";
const ROTATED: &str = "k0rerotated-0123456789";

const SERVERS: &str = r#"
env_file = "KEYS"
env = { PLACE = "{tmp}/place" }
env_plain = ["MODE"]
[agents.SLUG.mcp_servers.files]
command = "sh"
args = ["-c", "true", "{workspace}", "{home}", "{tmp}"]
env = { FILES_TOKEN = "${MCP_KEY}", MODE = "plain-and-long", WHERE = "${PLACE}" }
[agents.SLUG.mcp_servers.docs]
url = "http://127.0.0.1:9/mcp"
headers = { Authorization = "Bearer ${MCP_KEY}", X-Literal = "LITERAL" }
[agents.SLUG.mcp_servers.old]
type = "sse"
url = "https://old.example/sse"
"#;

fn with_servers(builder: DaemonBuilder, slug: &str, script: Value, more: &str) -> DaemonBuilder {
    let keys = builder.root().join("keys.env");
    private(&keys, &format!("MCP_KEY={FROM_FILE}\n"));
    let profile = SERVERS.replace("SLUG", slug).replace("KEYS", keys.to_str().unwrap()).replace("LITERAL", LITERAL);
    builder.agent_with(slug, script, &format!("{more}\n{profile}"))
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// Repeats the conversation when it loads one, and says what it was prompted with.
fn script(capabilities: &Value) -> Value {
    json!([{"record": true}, {"sessionId": "own-{pid}"},
        {"handshake": {"capabilities": capabilities, "load": [{"text": "before"}]}},
        {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}])
}

fn all_kinds() -> Value {
    json!({"mcpCapabilities": {"http": true, "sse": true}})
}

/// The servers of the requests for a conversation that an agent has heard, with the method.
fn given(daemon: &Daemon, agent: &str) -> Vec<(String, Value)> {
    let heard = daemon.heard(agent).into_iter();
    let asked =
        heard.filter(|heard| ["session/new", "session/load", "session/resume"].contains(&heard.method.as_str()));
    asked.map(|heard| (heard.method, heard.params["mcpServers"].clone())).collect()
}

fn names(servers: &Value) -> Vec<&str> {
    servers.as_array().unwrap().iter().map(|server| server["name"].as_str().unwrap()).collect()
}

fn value<'a>(server: &'a Value, field: &str, name: &str) -> &'a str {
    let values = server[field].as_array().unwrap();
    values.iter().find(|value| value["name"] == name).unwrap()["value"].as_str().unwrap()
}

async fn create(daemon: &Daemon, agent: &str, servers: Value) -> harness::Reply {
    let body = json!({"workspace": daemon.workspace(), "agent": agent, "start": "lazy", "mcpServers": servers});
    daemon.post("/v1/sessions", body).await
}

async fn made(daemon: &Daemon, agent: &str, servers: Value) -> String {
    create(daemon, agent, servers).await.expect_status(201)["id"].as_str().unwrap().to_owned()
}

async fn notices(daemon: &Daemon, session: &str) -> Vec<String> {
    let messages = daemon.messages(session).await.into_iter();
    let notices = messages.filter(|message| message["content"]["code"] == "mcp_servers");
    notices.map(|message| message["content"]["text"].as_str().unwrap().to_owned()).collect()
}

/// Nothing that the daemon keeps or says has a value in it.
async fn assert_clean(daemon: &Daemon, session: &str) {
    let mut found = vec![("the log".to_owned(), daemon.log().into_bytes())];
    files_below(daemon.state_dir(), &mut found);
    let of_session = ["", "/messages?limit=1000", "/turns", "/events?follow=false"];
    let mut paths: Vec<String> = of_session.iter().map(|rest| format!("/v1/sessions/{session}{rest}")).collect();
    paths.extend(["sessions", "agents", "info"].map(|path| format!("/v1/{path}")));
    for path in paths {
        let reply = daemon.get(&path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        found.push((path, reply.text.into_bytes()));
    }
    for (place, bytes) in &found {
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has("k0re"), "a value is in {place}");
    }
    assert!(found.iter().any(|(place, _)| place.ends_with("/acpd.db")), "the record was read");
}

#[tokio::test]
async fn a_profiles_servers_reach_the_agent_with_their_values_which_are_kept_nowhere() {
    let printing = json!([{"record": true}, {"handshake": {"capabilities": all_kinds()}},
        {"repeat": [{"prompt": [{"text": format!("my header is Bearer {FROM_FILE}, and {LITERAL}")}]}]}]);
    let daemon = with_servers(Daemon::builder(), "able", printing, "").start().await;
    let session = daemon.create_lazy_session("able").await;
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");

    let given = given(&daemon, "able");
    let [(method, servers)] = &given[..] else { panic!("{given:?}") };
    assert_eq!((method.as_str(), names(servers)), ("session/new", vec!["docs", "files", "old"]));
    let [docs, files, old] = &servers.as_array().unwrap()[..] else { panic!("{servers}") };
    assert_eq!((&docs["type"], &docs["url"]), (&json!("http"), &json!("http://127.0.0.1:9/mcp")));
    assert_eq!(value(docs, "headers", "Authorization"), format!("Bearer {FROM_FILE}"));
    assert_eq!(value(docs, "headers", "X-Literal"), LITERAL);
    assert_eq!(old, &json!({"type": "sse", "name": "old", "url": "https://old.example/sse", "headers": []}));

    assert!(files["command"].as_str().unwrap().ends_with("/sh"), "the whole path, as the protocol wants it: {files}");
    assert_eq!(files.get("type"), None);
    assert_eq!(value(files, "env", "FILES_TOKEN"), FROM_FILE);
    assert_eq!(value(files, "env", "MODE"), "plain-and-long");
    let own = daemon.state_dir().join("run").join(&session);
    let place = own.join("tmp/place").display().to_string();
    assert_eq!(value(files, "env", "WHERE"), place, "the agent's own environment is what is referred to");
    let paths = [daemon.workspace().to_owned(), own.join("home"), own.join("tmp")];
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(files["args"], json!(["-c", "true", paths[0], paths[1], paths[2]]));

    let shown = daemon.session(&session).await;
    assert_eq!(
        shown["mcpServers"][0],
        json!({"name": "docs", "type": "http", "source": "profile",
        "url": "http://127.0.0.1:9/mcp", "headers": ["Authorization", "X-Literal"]})
    );
    assert_eq!(shown["mcpServers"][1]["env"], json!(["FILES_TOKEN", "MODE", "WHERE"]));
    assert_eq!(shown["profile"]["mcpServers"][1]["valueNames"], json!(["FILES_TOKEN", "MODE", "WHERE"]));
    let agent = daemon.get("/v1/agents/able").await.expect_status(200);
    assert_eq!(agent["mcpServers"], shown["mcpServers"]);
    let said = daemon.messages(&session).await.pop().unwrap()["content"]["text"].as_str().unwrap().to_owned();
    assert_eq!(said, "my header is Bearer [redacted:MCP_KEY], and [redacted:X-Literal]");
    assert_eq!(notices(&daemon, &session).await, Vec::<String>::new());
    assert_clean(&daemon, &session).await;
}

#[tokio::test]
async fn a_session_narrows_to_some_servers_or_none() {
    let daemon = with_servers(Daemon::builder(), "able", script(&all_kinds()), "").start().await;
    for (asked, expected) in [
        (json!(["old", "files"]), vec!["old", "files"]),
        (json!([]), vec![]),
        (Value::Null, vec!["docs", "files", "old"]),
    ] {
        let session = made(&daemon, "able", asked.clone()).await;
        assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
        let (_, servers) = given(&daemon, "able").pop().unwrap();
        assert_eq!(names(&servers), expected, "{asked}");
        let shown = daemon.session(&session).await;
        assert_eq!(names(shown.get("mcpServers").unwrap_or(&json!([]))), expected, "{asked}");
    }
    let shown = |arguments: &[&'static str]| {
        let arguments = [&["new", "--agent", "able", "--lazy", "--json"], arguments].concat();
        let daemon = &daemon;
        async move { daemon.cli(&arguments).await.json() }
    };
    assert_eq!(names(&shown(&["--mcp", "files", "--mcp", "docs"]).await["mcpServers"]), ["files", "docs"]);
    assert_eq!(shown(&["--no-mcp"]).await.get("mcpServers"), None);
    let agent = daemon.cli(&["agents", "show", "able"]).await.success();
    assert!(agent.contains("mcp servers   docs, files, old\n"), "{agent}");
    let refused = daemon.cli(&["new", "--agent", "able", "--mcp", "nothing"]).await;
    assert!(refused.stderr.contains("its MCP servers are docs, files, old"), "{}", refused.stderr);
}

#[tokio::test]
async fn what_a_session_may_not_have_is_refused_with_what_to_do() {
    let daemon = with_servers(Daemon::builder(), "strict", script(&json!({})), "");
    let daemon = with_servers(daemon, "open", script(&json!({})), "mcp_servers_allowed = true");
    let daemon =
        with_servers(daemon, "wide", script(&json!({})), "mcp_servers_allowed = true\nmcp_private_urls = true");
    let daemon = daemon.start().await;
    let stdio = json!({"name": "mine", "command": "sh", "args": ["-c", "true"], "env": {"LANG": "C"}});
    let remote = |url: &str| json!([{"name": "mine", "url": url}]);

    let body = create(&daemon, "strict", json!([stdio])).await.refused(403, "mcp_server_not_allowed");
    assert!(body["hint"].as_str().unwrap().contains("agents.strict.mcp_servers_allowed"), "{body}");
    for url in [
        "http://localhost/mcp",
        "http://127.0.0.1:3000/",
        "http://2130706433/",
        "http://169.254.169.254/latest/meta-data",
        "http://metadata.google.internal/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "https://printer.local/",
    ] {
        let body = create(&daemon, "open", remote(url)).await.refused(403, "mcp_url_not_allowed");
        assert!(body["hint"].as_str().unwrap().contains("agents.open.mcp_private_urls"), "{url}: {body}");
        create(&daemon, "wide", remote(url)).await.expect_status(201);
    }
    create(&daemon, "open", remote("https://mcp.example.com/mcp")).await.expect_status(201);

    let secret =
        |value: &str| json!([{"name": "mine", "url": "https://a.example/", "headers": {"Authorization": value}}]);
    let many: Vec<Value> = (0..33).map(|number| json!({"name": format!("s{number}"), "command": "sh"})).collect();
    let long = "x".repeat(5000);
    for (servers, field) in [
        (json!(["files", "nothing"]), "mcpServers[1]"),
        (json!(["files", "files"]), "mcpServers"),
        (json!(["files", {"name": "files", "command": "sh"}]), "mcpServers"),
        (json!(many), "mcpServers"),
        (json!("files"), "mcpServers"),
        (json!([7]), "mcpServers[0]"),
        (json!([{"name": "a b", "command": "sh"}]), "mcpServers[0].name"),
        (json!([{"name": "", "command": "sh"}]), "mcpServers[0].name"),
        (json!([{"name": "x".repeat(65), "command": "sh"}]), "mcpServers[0].name"),
        (json!([{"command": "sh"}]), "mcpServers[0].name"),
        (json!([{"name": "a"}]), "mcpServers[0].command"),
        (json!([{"name": "a", "command": "sh", "url": "https://a.example/"}]), "mcpServers[0].command"),
        (json!([{"name": "a", "command": "sh", "type": "http"}]), "mcpServers[0].command"),
        (json!([{"name": "a", "command": "sh", "nonsense": 1}]), "mcpServers[0].nonsense"),
        (json!([{"name": "a", "command": "sh", "args": [long]}]), "mcpServers[0].args"),
        (json!([{"name": "a", "command": "sh", "env": {"A": long}}]), "mcpServers[0].env.A"),
        (json!([{"name": "a", "command": "sh", "env": {"A": "${"}}]), "mcpServers[0].env.A"),
        (json!([{"name": "a", "command": "sh", "env": {"API_KEY": "literal"}}]), "mcpServers[0].env.API_KEY"),
        (secret("Bearer literal"), "mcpServers[0].headers.Authorization"),
        (json!([{"name": "a", "url": "ftp://a.example/"}]), "mcpServers[0].url"),
        (json!([{"name": "a", "url": "https://me:pw@a.example/"}]), "mcpServers[0].url"),
        (json!([{"name": "a", "url": "https://a.example/?access_token=1"}]), "mcpServers[0].url"),
        (json!([{"name": "a", "command": "sh", "args": [FROM_FILE]}]), "mcpServers"),
    ] {
        let body = create(&daemon, "open", servers.clone()).await.refused(400, "invalid_request");
        assert_eq!(body["details"]["field"], field, "{servers}: {body}");
        assert!(!body.to_string().contains("literal"), "a secret is not told back: {body}");
    }
    let body = create(&daemon, "open", secret("Bearer literal")).await.refused(400, "invalid_request");
    assert!(body["hint"].as_str().unwrap().contains("${NAME}"), "{body}");
}

#[tokio::test]
async fn a_sessions_own_servers_are_given_to_every_process_also_of_the_next_daemon() {
    let allowed = "mcp_servers_allowed = true";
    let resuming = json!({"sessionCapabilities": {"resume": {}}, "mcpCapabilities": {"http": true}});
    let loading = json!({"loadSession": true, "mcpCapabilities": {"http": true}});
    let daemon = with_servers(Daemon::builder(), "resuming", script(&resuming), allowed);
    let mut daemon = with_servers(daemon, "loading", script(&loading), allowed).start().await;
    let servers = json!(["files",
        {"name": "mine", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${MCP_KEY}", "X-Mode": "fast"}},
        {"name": "tool", "type": "stdio", "command": "no-such-program", "env": {"TOKEN": "${MCP_KEY}"}}]);
    for (agent, restored) in [("resuming", "session/resume"), ("loading", "session/load")] {
        let session = made(&daemon, agent, servers.clone()).await;
        assert_eq!(daemon.prompt_and_wait(&session, "one").await["status"], "completed");
        let pid = daemon.session(&session).await["pid"].as_i64().unwrap();
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
        daemon.events(&session, None).await.until("process.exited").await;
        assert_eq!(daemon.prompt_and_wait(&session, "two").await["status"], "completed");
        daemon.kill().await;
        daemon.restart().await;
        // A new key holds from the next process on.
        private(&daemon.root().join("keys.env"), &format!("MCP_KEY={ROTATED}\n"));
        assert_eq!(daemon.prompt_and_wait(&session, "three").await["status"], "completed");

        let given = given(&daemon, agent);
        let methods: Vec<&str> = given.iter().map(|(method, _)| method.as_str()).collect();
        assert_eq!(methods, ["session/new", restored, restored]);
        for ((_, servers), key) in given.iter().zip([FROM_FILE, FROM_FILE, ROTATED]) {
            assert_eq!(names(servers), ["files", "mine", "tool"]);
            assert_eq!(value(&servers[0], "env", "FILES_TOKEN"), key);
            assert_eq!(value(&servers[1], "headers", "Authorization"), format!("Bearer {key}"));
            assert_eq!(value(&servers[1], "headers", "X-Mode"), "fast");
            assert_eq!((&servers[2]["command"], value(&servers[2], "env", "TOKEN")), (&json!("no-such-program"), key));
        }
        let shown = daemon.session(&session).await;
        assert_eq!(
            shown["mcpServers"][1],
            json!({"name": "mine", "type": "http", "source": "session",
            "url": "https://a.example/mcp", "headers": ["Authorization", "X-Mode"]})
        );
        // Once by each daemon, and before the agent was there.
        let told = notices(&daemon, &session).await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("\"no-such-program\" of the MCP server tool was not found on the session's PATH"),
            "{told:?}"
        );
        let events = daemon.events_so_far(&session, None).await;
        let warned = events.iter().position(|event| event.payload()["content"]["code"] == "mcp_servers");
        assert!(warned < events.iter().position(|event| event.kind == "process.ready"), "before the agent runs");
        assert_clean(&daemon, &session).await;
        private(&daemon.root().join("keys.env"), &format!("MCP_KEY={FROM_FILE}\n"));
    }
}

#[tokio::test]
async fn servers_that_the_agent_does_not_reach_are_left_out_with_a_word() {
    let daemon = with_servers(Daemon::builder(), "plain", script(&json!({})), "");
    let http = json!({"mcpCapabilities": {"http": true}});
    let daemon = with_servers(daemon, "half", script(&http), "").start().await;
    for (agent, kept, left_out) in [
        ("plain", vec!["files"], "omitted the MCP servers docs (http), old (sse):"),
        ("half", vec!["docs", "files"], "omitted the MCP server old (sse):"),
    ] {
        let session = daemon.create_lazy_session(agent).await;
        assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
        assert_eq!(names(&given(&daemon, agent)[0].1), kept);
        let told = notices(&daemon, &session).await;
        assert!(told.len() == 1 && told[0].starts_with(left_out), "{told:?}");
    }
}

#[tokio::test]
async fn a_reference_that_is_not_set_keeps_the_agent_from_starting_and_says_which() {
    let daemon = with_servers(Daemon::builder(), "able", script(&all_kinds()), "mcp_servers_allowed = true");
    let daemon = daemon.start().await;
    let servers = json!([{"name": "mine", "command": "sh", "env": {"TOKEN": "x${NOT_THERE}"}}]);
    let session = made(&daemon, "able", servers).await;
    let turn = daemon.prompt_and_wait(&session, "hello").await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_exited")), "{turn}");
    let told = daemon.session(&session).await["lastError"]["message"].as_str().unwrap().to_owned();
    assert!(["\"mine\"", "env.TOKEN", "${NOT_THERE}"].iter().all(|part| told.contains(part)), "{told}");
    assert!(daemon.heard("able").is_empty(), "the agent was not started");
    let check = daemon.post("/v1/agents/able/check", json!({"session": true})).await.expect_status(200);
    assert_eq!(check["ok"], true, "{check}");
    assert_eq!(names(&given(&daemon, "able")[0].1), ["docs", "files", "old"], "a check gives the profile's servers");
}

#[tokio::test]
async fn a_server_that_the_profile_has_no_more_is_left_out_when_it_needs_values() {
    let daemon = with_servers(Daemon::builder(), "able", script(&all_kinds()), "").start().await;
    let session = daemon.create_lazy_session("able").await;
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    // What was written for one address is not sent to another.
    let text = text.replace("http://127.0.0.1:9/mcp", "http://127.0.0.1:10/mcp").replace(".old]", ".older]");
    std::fs::write(daemon.config_file(), text).unwrap();
    daemon.signal(Signal::SIGHUP);
    within("the reload", daemon.logged("reloaded")).await;
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
    assert_eq!(names(&given(&daemon, "able")[0].1), ["files", "old"], "one without values needs no profile");
    let told = notices(&daemon, &session).await;
    assert!(told.len() == 1 && told[0].starts_with("omitted the MCP server docs:"), "{told:?}");
}

#[tokio::test]
async fn programs_are_looked_for_with_the_rights_of_the_sessions_owner() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only a daemon of root can run agents as other users");
    }
    let builder = Daemon::builder().owner(ORDINARY);
    // Root's alone, and for everybody.
    for (name, mode) in [("closed", 0o700), ("open", 0o755)] {
        let directory = builder.root().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("server"), "").unwrap();
        std::fs::set_permissions(directory.join("server"), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    }
    let server = |name: &str| {
        format!("[agents.owned.mcp_servers.{name}]\ncommand = {}\n", json!(builder.root().join(name).join("server")))
    };
    let servers = ["closed", "open"].map(server).concat();
    let daemon = builder.agent_with("owned", script(&json!({})), &servers).start().await;
    let owner = daemon.as_user(ORDINARY, &[]);
    let session = owner.create_lazy_session("owned").await;
    assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
    assert_eq!(names(&given(&daemon, "owned")[0].1), ["closed", "open"]);
    let told = notices(&daemon, &session).await;
    assert!(told.len() == 1 && told[0].contains("closed/server") && !told[0].contains("open/server"), "{told:?}");
}

#[tokio::test]
async fn going_back_to_a_version_without_choices_widens_no_session() {
    let mut daemon = with_servers(Daemon::builder(), "able", script(&all_kinds()), "").start().await;
    let (narrowed, whole) = (made(&daemon, "able", json!(["old"])).await, daemon.create_lazy_session("able").await);
    daemon.terminate().await;
    daemon.cli(&["migrate", "--down", "13"]).await.success();
    daemon.restart().await;
    assert_eq!(daemon.session(&narrowed).await.get("mcpServers"), None, "less, and never more");
    assert_eq!(names(&daemon.session(&whole).await["mcpServers"]), ["docs", "files", "old"]);
}

#[tokio::test]
async fn a_check_of_an_agent_tells_what_is_wrong_with_its_servers() {
    let servers = "[agents.plain.mcp_servers.absent]\ncommand = \"no-such-program\"\n\
        [agents.plain.mcp_servers.far]\nurl = \"https://far.example/mcp\"\n";
    let daemon = Daemon::builder().agent_with("plain", script(&json!({})), servers).start().await;
    let check = daemon.post("/v1/agents/plain/check", json!({"session": true})).await.expect_status(200);
    assert_eq!(check["ok"], true, "{check}");
    let warnings = check["warnings"].to_string();
    assert!(warnings.contains("no-such-program") && warnings.contains("far (http)"), "{warnings}");
    let told = daemon.cli(&["agents", "check", "plain"]).await;
    assert!(told.code == 0 && told.stdout.contains("no-such-program"), "{} {}", told.stdout, told.stderr);
}
