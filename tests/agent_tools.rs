//! acpd's own tools: a real agent speaks MCP with the server that acpd gives it, and gets to its own session and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use harness::{Daemon, DaemonBuilder, ORDINARY, has_bubblewrap, pid_of, process_alive, process_gone, users, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const TOOLS: &str = "tools";
const SENDER: &str = "sender";
const ENABLED: &str = "acpd_tools = true";
const NAMES: [&str; 5] =
    ["submit_agent_session", "query_agent_history", "query_entity_timeline", "create_checkpoint", "restore_checkpoint"];

/// An agent that calls the tool which the prompt says.
fn caller() -> Value {
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"textFromMcp": {"server": "acpd"}}]}]}])
}

/// An agent that sends what the prompt says, by a program of its own.
fn sender() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}])
}

fn with_agents(builder: DaemonBuilder) -> DaemonBuilder {
    builder.agent_with(TOOLS, caller(), ENABLED).agent_with(SENDER, sender(), ENABLED)
}

/// What the agent says to a prompt.
async fn said(daemon: &Daemon, session: &str, prompt: &str) -> String {
    let turn = daemon.prompt_and_wait(session, prompt).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(session).await;
    let said = messages.iter().rev().find(|message| message["role"] == "agent").expect("the agent answers");
    said["content"]["text"].as_str().unwrap().to_owned()
}

/// What a tool answered the agent: `isError`, `text` and `structured`.
async fn called(daemon: &Daemon, session: &str, tool: &str, arguments: Value) -> Value {
    let told = said(daemon, session, &json!({"tool": tool, "arguments": arguments}).to_string()).await;
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{tool}: {told}"))
}

/// The value of a successful result: what a client gets from `JSON.parse(result.content[0].text)`.
#[track_caller]
fn unwrapped(answer: &Value) -> Value {
    assert_eq!(answer["isError"], false, "{answer}");
    serde_json::from_str(answer["text"][0].as_str().unwrap()).unwrap()
}

/// The structured content of a successful result. The text has the same value, or the list in it.
#[track_caller]
fn done(answer: &Value) -> Value {
    let (text, structured) = (unwrapped(answer), &answer["structured"]);
    assert!(structured.is_object(), "MCP clients refuse anything else: {answer}");
    let list = ["records", "timeline"].into_iter().find_map(|name| structured.get(name));
    assert_eq!(&text, list.unwrap_or(structured), "{answer}");
    structured.clone()
}

#[track_caller]
fn refused(answer: &Value, code: &str) {
    assert_eq!((&answer["isError"], &answer["structured"]["error"]), (&json!(true), &json!(code)), "{answer}");
    let (told, hint) = (answer["text"][0].as_str().unwrap(), answer["structured"]["hint"].as_str().unwrap());
    assert!(told.contains(answer["structured"]["message"].as_str().unwrap()), "{answer}");
    assert!(!hint.is_empty() && told.contains(hint), "{answer}");
}

fn socket_of(daemon: &Daemon, session: &str) -> PathBuf {
    daemon.state_dir().join("run").join(session).join("tools.sock")
}

async fn is_gone(path: &Path) {
    within("the end of a socket", async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A command that asks at a socket, for an agent's shell, and says status and body.
fn curl(socket: &Path, method: &str, path: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { format!("-H content-type:application/json -d '{body}'") };
    format!("curl -s -w ' %{{http_code}}' --unix-socket {} -X {method} {body} http://acpd{path}", socket.display())
}

async fn events_of(daemon: &Daemon, kind: &str) -> i64 {
    daemon.get("/v1/info").await.expect_status(200)["securityEvents"][kind].as_i64().unwrap()
}

/// One session saves something and the next one restores it, and a third when the daemon was started anew.
async fn a_checkpoint_outlives(mut daemon: Daemon, level: &str) {
    let first = daemon.create_lazy_session(TOOLS).await;
    let state = json!({"done": ["a", "b"], "next": "c"});
    let made = done(&called(&daemon, &first, "create_checkpoint", json!({"name": "half way", "state": state})).await);
    assert_eq!((&made["name"], &made["sessionId"]), (&json!("half way"), &json!(first)));
    assert_eq!(daemon.session(&first).await["sandbox"], level);
    let shown = daemon.get(&format!("/v1/sessions/{first}/checkpoints/half%20way")).await.expect_status(200);
    assert_eq!(shown["state"], state);

    let second = daemon.create_lazy_session(TOOLS).await;
    let restored = done(&called(&daemon, &second, "restore_checkpoint", json!({"name": "half way"})).await);
    assert_eq!((&restored["state"], &restored["sessionId"]), (&state, &json!(first)));
    daemon.terminate().await;
    daemon.restart().await;
    let third = daemon.create_lazy_session(TOOLS).await;
    let restored = done(&called(&daemon, &third, "restore_checkpoint", json!({"name": "half way"})).await);
    assert_eq!(restored["state"], state);
    daemon.terminate().await;
    assert!([first, second, third].iter().all(|session| !socket_of(&daemon, session).exists()));
}

#[tokio::test]
async fn a_later_session_restores_what_an_agent_has_saved() {
    a_checkpoint_outlives(with_agents(Daemon::builder()).start().await, "writes-only").await;
}

#[tokio::test]
async fn so_it_does_without_a_network() {
    let builder = Daemon::builder().config("[sandbox]\nnetwork = \"none\"");
    a_checkpoint_outlives(with_agents(builder).start().await, "writes-only").await;
}

#[tokio::test]
async fn so_it_does_in_isolation() {
    if !has_bubblewrap() {
        return;
    }
    let builder = DaemonBuilder::isolated().config("[sandbox]\nmode = \"required\"");
    a_checkpoint_outlives(with_agents(builder).start().await, "isolated").await;
}

#[tokio::test]
async fn every_tool_is_told_of_and_does_what_it_says() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let tools: Vec<Value> = serde_json::from_str(&said(&daemon, &session, "{}").await).unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"), "{tools:?}");

    let action = json!({"type": "edit", "result": "success", "details": {"file": "a.rs"}});
    let outcome = json!({"type": "file", "id": "a.rs"});
    let submission = json!({"actions": [action], "outcomes": [outcome], "started_at": "2026-01-01T10:00:00Z"});
    let submitted = done(&called(&daemon, &session, "submit_agent_session", submission).await);
    assert_eq!(submitted["observation_count"], 1);
    let record = daemon.get(&format!("/v1/sessions/{session}/record")).await.expect_status(200);
    assert!(record["actions"].as_array().unwrap().iter().any(|action| action["type"] == "edit"), "{record}");
    assert!(record["outcomes"].as_array().unwrap().iter().any(|outcome| outcome["id"] == "a.rs"), "{record}");

    done(&called(&daemon, &session, "create_checkpoint", json!({"name": "one", "state": 1})).await);
    let own = done(&called(&daemon, &session, "restore_checkpoint", json!({"name": "one"})).await);
    assert_eq!(own["state"], 1);
    let named = json!({"name": "one", "session_id": session});
    assert_eq!(done(&called(&daemon, &session, "restore_checkpoint", named).await)["state"], 1);

    let history = done(&called(&daemon, &session, "query_agent_history", json!({"limit": 5, "order": "asc"})).await);
    assert_eq!(history["records"][0]["snapshot"]["session_id"], json!(session), "{history}");
    assert_eq!(history["records"][0].get("observations"), None, "they are long");
    let timeline = done(&called(&daemon, &session, "query_entity_timeline", json!({"entity_id": "a.rs"})).await);
    let kinds: Vec<&str> =
        timeline["timeline"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"session_start") && kinds.contains(&"outcome"), "{timeline}");
}

/// The example "Recording a Session" of the specification of `agent_session`.
fn recorded() -> Value {
    json!({
        "session_id": "abc123",
        "actions": [
            {"type": "create_feature_unit", "result": "success", "details": {"feature_unit_id": "FU-061"},
                "timestamp": "2025-12-31T11:15:00.000Z"},
            {"type": "run_tests", "result": "passed", "timestamp": "2025-12-31T11:30:00.000Z"},
        ],
        "checkpoints": [{"name": "spec_complete", "timestamp": "2025-12-31T11:15:00.000Z"}],
        "outcomes": [{"type": "feature_unit_created", "id": "FU-061"}],
        "duration": 3600,
        "started_at": "2025-12-31T11:00:00.000Z",
        "ended_at": "2025-12-31T12:00:00.000Z",
    })
}

/// Its example "Updating Session", with the state that its complete payload has.
fn updated() -> Value {
    json!({
        "session_id": "abc123",
        "actions": [
            {"type": "create_feature_unit", "result": "success"},
            {"type": "run_tests", "result": "passed"},
            {"type": "commit", "result": "success"},
        ],
        "checkpoints": [
            {"name": "spec_complete", "timestamp": "2025-12-31T11:15:00.000Z", "state": specified_state()},
            {"name": "committed", "timestamp": "2025-12-31T11:45:00.000Z"},
        ],
        "started_at": "2025-12-31T11:00:00.000Z",
    })
}

fn specified_state() -> Value {
    json!({"feature_unit_id": "FU-061", "status": "planning"})
}

/// The usage examples of the specification of `agent_session`, call by call and access by access.
#[tokio::test]
async fn the_examples_of_the_specification_run_as_written() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let call = async |tool: &str, arguments: Value| unwrapped(&called(&daemon, &session, tool, arguments).await);
    let recent = json!({"limit": 10, "order_by": "started_at", "order": "desc"});
    assert_eq!(call("query_agent_history", recent.clone()).await, json!([]), "no session came before");

    let result = call("submit_agent_session", recorded()).await;
    let entity = result["entity_id"].clone();
    assert_eq!(result, json!({"entity_id": entity, "observation_count": 1}));

    let result = call("submit_agent_session", updated()).await;
    assert_eq!(result, json!({"entity_id": entity, "observation_count": 2}));

    // Querying sessions, and a specific one.
    let sessions = call("query_agent_history", recent).await;
    assert_eq!((sessions.as_array().unwrap().len(), &sessions[0]["entity_id"]), (1, &entity), "{sessions}");
    let one = call("query_agent_history", json!({"session_id": "abc123"})).await;
    assert_eq!(one, sessions[0]);
    assert_eq!(one["snapshot"]["actions"][2]["type"], "commit");
    assert_eq!(one["snapshot"]["ended_at"], "2025-12-31T12:00:00.000Z", "the update does not name it");

    // startSession and restoreCheckpoint, in a later session of the same user.
    let later = daemon.create_lazy_session(TOOLS).await;
    let call = async |tool: &str, arguments: Value| unwrapped(&called(&daemon, &later, tool, arguments).await);
    let newest = json!({"limit": 1, "order_by": "started_at", "order": "desc"});
    let previous = call("query_agent_history", newest).await;
    assert_eq!(previous.as_array().unwrap().len(), 1);
    assert_eq!(previous[0]["snapshot"]["session_id"], json!(session), "the newest that came before, and not this one");
    assert_eq!(previous[0]["snapshot"]["checkpoints"], json!([]), "a list, also without entries");
    let restored = call("query_agent_history", json!({"session_id": "abc123"})).await;
    let checkpoints = restored["snapshot"]["checkpoints"].as_array().unwrap();
    let checkpoint = checkpoints.iter().find(|checkpoint| checkpoint["name"] == "spec_complete").unwrap();
    assert_eq!(checkpoint["state"], specified_state());
    assert_eq!(checkpoints.last().unwrap()["name"], "committed");
    // The same recipe with a session of acpd and its own checkpoint.
    let own = json!({"name": "half", "state": specified_state()});
    done(&called(&daemon, &session, "create_checkpoint", own).await);
    let restored = call("query_agent_history", json!({"session_id": session})).await;
    assert_eq!(restored["snapshot"]["checkpoints"][0]["state"], specified_state());

    // The timeline query.
    let query = json!({"entity_id": "FU-061", "start_date": "2025-12-01", "end_date": "2026-01-31"});
    let timeline = call("query_entity_timeline", query).await;
    let told: Vec<(&Value, &Value)> =
        timeline.as_array().unwrap().iter().map(|event| (&event["type"], &event["checkpoint"]["name"])).collect();
    let (start, checkpoint, none) = (json!("session_start"), json!("checkpoint"), Value::Null);
    let (outcome, end) = (json!("outcome"), json!("session_end"));
    let (spec, committed) = (json!("spec_complete"), json!("committed"));
    let expected = [(&start, &none), (&checkpoint, &spec), (&checkpoint, &committed), (&outcome, &none), (&end, &none)];
    assert_eq!(told, expected, "{timeline}");
    assert!(timeline.as_array().unwrap().iter().all(|event| event["session_id"] == "abc123"), "{timeline}");
    let of_one_day = json!({"entity_id": "FU-061", "start_date": "2025-12-31", "end_date": "2025-12-31"});
    assert_eq!(call("query_entity_timeline", of_one_day).await, timeline, "the end is the whole day");
    let before = json!({"entity_id": "FU-061", "end_date": "2025-12-30"});
    assert_eq!(call("query_entity_timeline", before).await, json!([]));
}

#[tokio::test]
async fn a_list_that_is_too_long_for_a_model_says_that_it_was_cut() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    for name in ["first", "second"] {
        let mut record = recorded();
        record["session_id"] = json!(name);
        record["notes"] = json!("x".repeat(20_000));
        daemon.post("/v1/records", record).await.expect_status(201);
    }
    let answer = called(&daemon, &session, "query_agent_history", json!({})).await;
    assert_eq!((unwrapped(&answer).as_array().unwrap().len(), &answer["structured"]["left_out"]), (1, &json!(1)));
    assert_eq!(answer["text"][1], answer["structured"]["hint"], "the text has no other place for it");
}

/// The rejection body of the specification, and what only warns.
#[tokio::test]
async fn a_record_that_does_not_fit_is_rejected_as_the_specification_says() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let empty = json!({"session_id": "abc123", "actions": [], "started_at": "2025-12-31T11:00:00Z"});
    let answer = called(&daemon, &session, "submit_agent_session", empty.clone()).await;
    let body = json!({
        "error": "schema_validation_failed",
        "details": {
            "field": "actions",
            "value": [],
            "expected": "min_length: 1",
            "message": "Actions array must have at least 1 item",
        },
    });
    assert_eq!((&answer["isError"], &answer["structured"]), (&json!(true), &body));
    assert_eq!(answer["text"], json!([body.to_string()]), "also as text");
    let over_http = daemon.post("/v1/records", empty).await.refused(422, "schema_validation_failed");
    assert_eq!(over_http["details"], body["details"]);

    let mut odd = json!({"session_id": "abc123", "actions": [{"type": "deploy", "result": "warning"}], "duration": 99,
        "checkpoints": [{"name": "late", "timestamp": "2026-01-01T00:00:00Z"}],
        "started_at": "2025-12-31T11:00:00Z", "ended_at": "2025-12-31T12:00:00Z"});
    let taken = unwrapped(&called(&daemon, &session, "submit_agent_session", odd.clone()).await);
    let warned = |index: usize| taken["warnings"][index]["field"].as_str();
    assert_eq!([warned(0), warned(1)], [Some("duration"), Some("checkpoints[0].timestamp")], "{taken}");
    odd.as_object_mut().unwrap().remove("started_at");
    let answer = called(&daemon, &session, "submit_agent_session", odd).await;
    assert_eq!(answer["structured"]["details"]["field"], "started_at");
}

#[tokio::test]
async fn what_is_wrong_is_told_as_an_error_of_the_tool() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    for (tool, arguments, code) in [
        ("create_checkpoint", json!({"name": "x", "nonsense": 1}), "invalid_request"),
        ("create_checkpoint", json!({}), "invalid_request"),
        ("query_agent_history", json!({"nonsense": 1}), "invalid_request"),
        ("query_agent_history", json!({"limit": "many"}), "invalid_request"),
        ("query_agent_history", json!({"session_id": "nothing"}), "record_not_found"),
        ("query_agent_history", json!({"session_id": 7}), "failed"),
        ("query_entity_timeline", json!({}), "invalid_request"),
        ("query_entity_timeline", json!({"entity_id": "x", "end_date": "soon"}), "invalid_request"),
        ("restore_checkpoint", json!({"name": "none"}), "failed"),
        ("restore_checkpoint", json!({"name": 7}), "failed"),
        ("restore_checkpoint", json!({"name": "x", "nonsense": 1}), "failed"),
        ("restore_checkpoint", json!({"name": "x", "session_id": "nobody"}), "session_not_found"),
        ("no_such_tool", json!({}), "failed"),
    ] {
        refused(&called(&daemon, &session, tool, arguments.clone()).await, code);
    }
    done(&called(&daemon, &session, "create_checkpoint", json!({"name": "one"})).await);
    refused(&called(&daemon, &session, "create_checkpoint", json!({"name": "one"})).await, "checkpoint_exists");
}

#[tokio::test]
async fn an_agent_writes_to_its_own_session_and_gets_to_nothing_else() {
    if !harness::has("curl") {
        return;
    }
    let daemon = with_agents(Daemon::builder()).start().await;
    let (own, other) = (daemon.create_lazy_session(TOOLS).await, daemon.create_lazy_session(TOOLS).await);
    let submission = |session: &str| json!({"session_id": session, "actions": [{"type": "edit", "result": "success"}], "started_at": "2026-01-01T10:00:00Z"});
    for session in [other.as_str(), "01980000-0000-7000-8000-000000000000"] {
        let answer = called(&daemon, &own, "submit_agent_session", submission(session)).await;
        refused(&answer, "other_session");
    }
    let record = daemon.get(&format!("/v1/sessions/{other}/record")).await.expect_status(200);
    assert!(!record.to_string().contains("\"edit\""), "{record}");

    // The same without acpd's own program between.
    let shell = daemon.create_lazy_session(SENDER).await;
    assert!(said(&daemon, &shell, "true").await.contains("exit 0"));
    let socket = socket_of(&daemon, &shell);
    let checkpoint = json!({"name": "x"});
    for (method, path, body, status, code) in [
        ("POST", format!("/v1/sessions/{other}/checkpoints"), &checkpoint, 403, "other_session"),
        ("POST", "/v1/sessions/nobody/checkpoints".to_owned(), &checkpoint, 403, "other_session"),
        ("POST", format!("/v1/sessions/{shell}/prompt"), &json!({"text": "x"}), 404, "route_not_found"),
        ("POST", "/v1/sessions".to_owned(), &json!({}), 404, "route_not_found"),
        ("PATCH", format!("/v1/sessions/{shell}"), &json!({"title": "x"}), 405, "method_not_allowed"),
        ("DELETE", format!("/v1/sessions/{shell}"), &Value::Null, 405, "method_not_allowed"),
        ("GET", "/v1/info".to_owned(), &Value::Null, 404, "route_not_found"),
        ("GET", "/v1/events".to_owned(), &Value::Null, 404, "route_not_found"),
        ("POST", format!("/v1/sessions/{shell}/checkpoints/x/restore"), &json!({}), 404, "route_not_found"),
    ] {
        let told = said(&daemon, &shell, &curl(&socket, method, &path, body)).await;
        assert!(told.contains(code) && told.contains(&format!(" {status}exit 0")), "{method} {path}: {told}");
    }
    let path = format!("/v1/sessions/{shell}/checkpoints");
    let told = said(&daemon, &shell, &curl(&socket, "POST", &path, &checkpoint)).await;
    assert!(told.ends_with(" 201exit 0"), "{told}");
    let large = curl(&socket, "POST", &path, &json!({})).replace("-d '{}'", "--data-binary @-");
    let told = said(&daemon, &shell, &format!("head -c 2000000 /dev/zero | {large}")).await;
    assert!(told.contains("body_too_large") && told.ends_with(" 413exit 0"), "{told}");
    let told = said(&daemon, &shell, &curl(daemon.socket(), "GET", "/v1/sessions", &Value::Null)).await;
    assert!(told.contains("agents_not_served") && told.contains(" 403"), "the control socket goes on refusing: {told}");
}

#[tokio::test]
async fn nobody_else_gets_to_the_tools_of_a_session() {
    if !harness::has("curl") {
        return;
    }
    let daemon = with_agents(Daemon::builder()).start().await;
    let (own, other) = (daemon.create_lazy_session(SENDER).await, daemon.create_lazy_session(SENDER).await);
    assert!(said(&daemon, &own, "true").await.contains("exit 0"));
    let (socket, path) = (socket_of(&daemon, &own), format!("/v1/sessions/{own}"));
    let metadata = socket.metadata().unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, nix::unistd::geteuid().as_raw()));
    let ask = curl(&socket, "GET", &path, &Value::Null);
    assert!(said(&daemon, &own, &ask).await.ends_with(" 200exit 0"));
    let nobody = events_of(&daemon, "foreign_agent").await;

    let told = said(&daemon, &other, &ask).await;
    assert!(told.contains("not_its_agent") && told.contains(" 403"), "{told}");
    assert_eq!(events_of(&daemon, "foreign_agent").await, nobody + 1);
    daemon.logged("connection from another session's agent").await;
    // Nor who was orphaned on purpose.
    let detached = format!(
        "(setsid env -i PATH=$PATH {ask} > said; mv said done) & while ! [ -e done ]; do sleep 0.01; done; cat done"
    );
    let told = said(&daemon, &other, &detached).await;
    assert!(told.contains("not_its_agent"), "{told}");

    let mut stream = UnixStream::connect(&socket).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: acpd\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut told = String::new();
    within("an answer", stream.read_to_string(&mut told)).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 403") && told.contains("not_its_agent"), "people have another socket: {told}");
    assert_eq!(events_of(&daemon, "foreign_agent").await, nobody + 3);
    // A confined agent can put nothing in its place.
    let told = said(&daemon, &own, &format!("rm {0}; ln -sf /dev/null {0}; echo x > {0}", socket.display())).await;
    assert!(told.contains("ermi") && !told.contains("exit 0") && socket.exists(), "{told}");
}

#[tokio::test]
async fn users_have_tools_of_their_own_and_see_nothing_of_each_other() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only a daemon of root can run agents as other users");
    }
    let daemon = with_agents(Daemon::builder().owner(ORDINARY)).start().await;
    let theirs = daemon.as_user(ORDINARY, &[]).create_lazy_session(TOOLS).await;
    let roots = daemon.create_lazy_session(TOOLS).await;
    for (session, other, name) in [(&theirs, &roots, "theirs"), (&roots, &theirs, "roots")] {
        done(&called(&daemon, session, "create_checkpoint", json!({"name": name, "state": name})).await);
        let own = done(&called(&daemon, session, "restore_checkpoint", json!({"name": name})).await);
        assert_eq!(own["state"], name);
        refused(&called(&daemon, other, "restore_checkpoint", json!({"name": name})).await, "failed");
        let named = json!({"name": name, "session_id": session});
        refused(&called(&daemon, other, "restore_checkpoint", named).await, "session_not_found");
        let named = json!({"session_id": session});
        refused(&called(&daemon, other, "query_agent_history", named).await, "record_not_found");
        let history = done(&called(&daemon, other, "query_agent_history", json!({})).await);
        assert!(!history.to_string().contains(session.as_str()), "{history}");
        let timeline = done(&called(&daemon, other, "query_entity_timeline", json!({"entity_id": session})).await);
        assert_eq!(timeline["timeline"], json!([]));
    }
    let facts = |session: &str| {
        let metadata = socket_of(&daemon, session).metadata().unwrap();
        (metadata.permissions().mode() & 0o7777, metadata.uid())
    };
    assert_eq!((facts(&theirs), facts(&roots)), ((0o600, ORDINARY.uid), (0o600, 0)));
    let another = daemon.as_user(ORDINARY, &[]).create_lazy_session(TOOLS).await;
    assert_eq!(
        done(&called(&daemon, &another, "restore_checkpoint", json!({"name": "theirs"})).await)["state"],
        "theirs"
    );
}

#[tokio::test]
async fn a_session_has_the_tools_when_its_profile_does_and_it_does_not_leave_them_out() {
    let own = format!("{ENABLED}\nmcp_servers_allowed = true");
    let builder = Daemon::builder().agent_with("plain", caller(), "").agent_with(TOOLS, caller(), &own);
    let daemon = builder.start().await;
    let plain = daemon.create_lazy_session("plain").await;
    assert!(said(&daemon, &plain, "{}").await.contains("no MCP server acpd was given"));
    assert!(!socket_of(&daemon, &plain).exists());
    assert_eq!(daemon.get("/v1/agents/plain").await.expect_status(200).get("mcpServers"), None);

    let with = daemon.create_lazy_session(TOOLS).await;
    let shown = daemon.session(&with).await["mcpServers"].clone();
    let told = json!([{"name": "acpd", "type": "stdio", "source": "profile", "command": "acpd", "args": ["mcp"]}]);
    assert_eq!(shown, told);
    assert_eq!(daemon.get("/v1/agents/tools").await.expect_status(200)["mcpServers"], told);
    let create = |servers: Value| {
        let body = json!({"workspace": daemon.workspace(), "agent": TOOLS, "start": "lazy", "mcpServers": servers});
        daemon.post("/v1/sessions", body)
    };
    let none = create(json!([])).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    assert!(said(&daemon, &none, "{}").await.contains("no MCP server acpd was given"));
    assert!(!socket_of(&daemon, &none).exists());
    let named = create(json!(["acpd"])).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    assert!(said(&daemon, &named, "{}").await.contains("create_checkpoint"));
    let taken = create(json!([{"name": "acpd", "command": "sh"}])).await.refused(400, "invalid_request");
    assert_eq!(taken["details"]["field"], "mcpServers[0].name");
    let check = daemon.post("/v1/agents/tools/check", json!({"session": true})).await.expect_status(200);
    assert_eq!(
        (&check["ok"], check.get("warnings")),
        (&json!(true), None),
        "a trial has no session to write to: {check}"
    );

    // What the profile has no more its sessions have no more.
    withdraw(&daemon, &named).await;
    assert!(said(&daemon, &named, "{}").await.contains("no MCP server acpd was given"));
}

/// Takes the tools from the profiles of the configuration, and the process from a session.
async fn withdraw(daemon: &Daemon, session: &str) {
    let config = std::fs::read_to_string(daemon.config_file()).unwrap().replace(ENABLED, "acpd_tools = false");
    std::fs::write(daemon.config_file(), config).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.logged("reloaded").await;
    end_process(daemon, session).await;
}

async fn end_process(daemon: &Daemon, session: &str) {
    let pid = pid_of(&daemon.session(session).await);
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    daemon.events(session, None).await.until("process.exited").await;
}

#[tokio::test]
async fn an_agent_of_the_api_has_the_tools_of_its_base_or_asks_for_them_with_its_command() {
    let own = format!("{ENABLED}\nmcp_servers_allowed = true");
    let builder = Daemon::builder().agent_with("plain", caller(), "").agent_with(TOOLS, caller(), &own);
    let daemon = builder.config("[limits]\nprocesses = 16\n").start().await;
    let configured = daemon.get("/v1/agents/tools").await.expect_status(200);
    let (command, args) = (&configured["command"], &configured["args"]);
    let other = json!({"name": "other", "command": "sh"});
    let mut sessions = Vec::new();
    for (body, has) in [
        (json!({"slug": "heir", "base": TOOLS}), true),
        (json!({"slug": "named", "base": TOOLS, "mcpServers": ["acpd"]}), true),
        (json!({"slug": "beside", "base": TOOLS, "mcpServers": ["acpd", other]}), true),
        (json!({"slug": "asking", "base": TOOLS, "mcpServers": [], "acpdTools": true}), true),
        (json!({"slug": "without", "base": TOOLS, "mcpServers": []}), false),
        (json!({"slug": "refusing", "base": TOOLS, "acpdTools": false}), false),
        (json!({"slug": "own", "command": command, "args": args, "acpdTools": true}), true),
        (json!({"slug": "silent", "command": command, "args": args}), false),
    ] {
        let slug = body["slug"].as_str().unwrap().to_owned();
        let made = daemon.post("/v1/agents", body).await.expect_status(201);
        let servers = made["mcpServers"].as_array().cloned().unwrap_or_default();
        let is_shown = servers.iter().any(|server| server["name"] == "acpd");
        assert_eq!((is_shown, made["acpdTools"] == true), (has, has), "{made}");
        let session = daemon.create_lazy_session(&slug).await;
        let told = said(&daemon, &session, "{}").await;
        assert_eq!(told.contains("create_checkpoint"), has, "{slug}: {told}");
        sessions.push(session);
    }
    let wider = json!({"slug": "wider", "base": "plain", "acpdTools": true});
    let refused = daemon.post("/v1/agents", wider).await.refused(403, "mcp_server_not_allowed");
    assert_eq!(refused["details"]["setting"], "agents.plain.acpd_tools");
    let moved = daemon.patch("/v1/agents/own", json!({"base": "plain"})).await;
    moved.refused(403, "mcp_server_not_allowed");
    let moved = daemon.patch("/v1/agents/own", json!({"base": "plain", "acpdTools": null})).await.expect_status(200);
    assert_eq!(moved.get("acpdTools"), None);

    // What the base has no more is no more given; who has a command of their own needs nobody's.
    withdraw(&daemon, &sessions[0]).await;
    assert!(said(&daemon, &sessions[0], "{}").await.contains("no MCP server acpd was given"));
    end_process(&daemon, &sessions[6]).await;
    assert!(said(&daemon, &sessions[6], "{}").await.contains("create_checkpoint"));
}

#[tokio::test]
async fn the_socket_and_the_server_go_with_the_process_however_that_ends() {
    let mut daemon = with_agents(Daemon::builder()).start().await;
    let start = async |daemon: &Daemon| {
        let session = daemon.create_lazy_session(TOOLS).await;
        let server: u32 = said(daemon, &session, r#"{"pid": true}"#).await.parse().unwrap();
        assert!(process_alive(server) && socket_of(daemon, &session).exists());
        (session, server)
    };

    let (killed, server) = start(&daemon).await;
    let pid = pid_of(&daemon.session(&killed).await);
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    process_gone(server).await;
    is_gone(&socket_of(&daemon, &killed)).await;
    assert!(said(&daemon, &killed, "{}").await.contains("create_checkpoint"), "and the next process has its own");

    let (archived, server) = start(&daemon).await;
    daemon.post(&format!("/v1/sessions/{archived}/archive"), json!({})).await.expect_status(200);
    process_gone(server).await;
    is_gone(&socket_of(&daemon, &archived)).await;

    let (purged, server) = start(&daemon).await;
    daemon.delete(&format!("/v1/sessions/{purged}?purge=true")).await.expect_status(200);
    process_gone(server).await;
    is_gone(&socket_of(&daemon, &purged)).await;

    let (left, server) = start(&daemon).await;
    daemon.kill().await;
    process_gone(server).await;
    assert!(socket_of(&daemon, &left).exists(), "nobody was there to remove it");
    daemon.restart().await;
    assert!(!socket_of(&daemon, &left).exists());
    assert!(said(&daemon, &left, "{}").await.contains("create_checkpoint"));
}

#[tokio::test]
async fn an_idle_process_takes_its_tools_with_it() {
    let daemon = with_agents(Daemon::builder().config("[sessions]\nidle_timeout = \"200ms\"")).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let server: u32 = said(&daemon, &session, r#"{"pid": true}"#).await.parse().unwrap();
    process_gone(server).await;
    is_gone(&socket_of(&daemon, &session)).await;
    assert!(said(&daemon, &session, "{}").await.contains("create_checkpoint"));
}

#[tokio::test]
async fn the_server_tells_that_its_socket_is_gone_and_ends() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let session = daemon.create_lazy_session(TOOLS).await;
    let server: u32 = said(&daemon, &session, r#"{"pid": true}"#).await.parse().unwrap();
    std::fs::remove_file(socket_of(&daemon, &session)).unwrap();
    let answer = called(&daemon, &session, "restore_checkpoint", json!({"name": "x"})).await;
    refused(&answer, "failed");
    assert!(answer["text"][0].as_str().unwrap().contains("the session's tools are no longer available"), "{answer}");
    process_gone(server).await;
}

#[tokio::test]
async fn a_person_who_starts_the_server_is_told_what_it_is_for() {
    let daemon = with_agents(Daemon::builder()).start().await;
    let acpd = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_acpd"));
        command.args(arguments).env_clear().stdin(std::process::Stdio::null());
        async move { harness::Output::new(&command.output().await.unwrap()) }
    };
    let control = daemon.socket().to_str().unwrap();
    for arguments in [&["mcp"][..], &["mcp", "--socket", control], &["mcp", "--socket", "/nowhere/tools.sock"]] {
        let told = acpd(arguments).await;
        assert_eq!((told.code, told.stdout.as_str()), (1, ""), "{}", told.stderr);
        assert!(told.stderr.contains("acpd_tools = true") && told.stderr.contains("hint:"), "{}", told.stderr);
    }
    let session = daemon.create_lazy_session(TOOLS).await;
    let socket = socket_of(&daemon, &session);
    let gone = acpd(&["mcp", "--socket", socket.to_str().unwrap()]).await;
    assert!(gone.code != 0 && gone.stdout.is_empty(), "{}", gone.stderr);
    said(&daemon, &session, "{}").await;
    let ended = acpd(&["mcp", "--socket", socket.to_str().unwrap()]).await;
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""), "it ends with its input");
}
