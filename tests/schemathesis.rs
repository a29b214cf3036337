//! The interface against its own description: schemathesis makes requests of the served document, right ones and
//! wrong ones, and holds every answer against it. No status, type or body that is not described, and never a fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use harness::{Daemon, echo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio::task::JoinSet;

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
    response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,allow_header_conformance,\
    use_after_free,ensure_resource_availability";
/// What is made for each operation, beside what covers its description. The seed is fixed, so that a run can be repeated.
const EXAMPLES: &str = "20";
const SEED: &str = "6";
const DEADLINE: Duration = Duration::from_mins(8);

/// No rate stands in the way of who asks all day.
const CONFIG: &str = "[control]\nrequests_per_second = 100000\nprompts_per_minute = 100000\n[limits]\nprocesses = 16";

fn asking() -> Value {
    let question = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "t1", "title": "Run ls", "kind": "execute", "status": "pending",
            "rawInput": {"command": "ls"}},
        "options": [{"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "once", "name": "Once", "kind": "allow_once"}]}}});
    json!([{"handshake": {"capabilities": {"promptCapabilities": {"image": true}}}},
        {"repeat": [{"prompt": [question, {"textFromAnswer": true}]}]}])
}

/// A session whose agent has asked something: itself, its turn and the question.
async fn asked(daemon: &Daemon) -> (String, String, String) {
    let session = daemon.create_session("asking").await;
    let accepted = daemon.prompt(&session, "go").await;
    let seen = daemon.events(&session, accepted["after"].as_i64()).await.until("permission.requested").await;
    let question = seen.last().unwrap().payload()["permissionId"].as_str().unwrap().to_owned();
    (session, accepted["turnId"].as_str().unwrap().to_owned(), question)
}

/// Something of each kind that a path can name.
async fn seeds(daemon: &Daemon) -> Value {
    let session = daemon.create_session("echo").await;
    let turn = daemon.prompt_and_wait(&session, "hello").await;
    let shown = daemon.session(&session).await;
    let (ruled, first, permission) = asked(daemon).await;
    let answer = json!({"decision": "reject", "always": true});
    daemon.post(&format!("/v1/permissions/{permission}"), answer).await.expect_status(200);
    daemon.wait_turn(&ruled, &first).await;
    let rules = daemon.get(&format!("/v1/sessions/{ruled}/rules")).await.expect_status(200);
    let image = json!({"content": [{"type": "text", "text": "look"},
        {"type": "image", "data": "AAECAwQF", "mimeType": "image/png"}]});
    daemon.post(&format!("/v1/sessions/{ruled}/prompt"), image).await.expect_status(202);
    let messages = daemon.messages(&ruled).await;
    let blob = messages.iter().find_map(|message| message["content"]["blocks"][1]["sha256"].as_str());
    let (_, _, question) = asked(daemon).await;
    let (asking, _, other_question) = asked(daemon).await;
    let (busy, _, _) = asked(daemon).await;
    json!({
        "session": session,
        "doomed": daemon.create_lazy_session("echo").await,
        "workspace": shown["workspaceId"],
        "directory": shown["workspace"],
        "turn": turn["id"],
        "permission": permission,
        "question": question,
        "asking": asking,
        "otherQuestion": other_question,
        "busy": busy,
        "ruled": ruled,
        "rule": rules["rules"][0]["id"],
        "blob": blob.expect("the image is in its message"),
        "agent": "echo",
    })
}

/// A door for a client that knows only TCP.
async fn bridge(socket: PathBuf) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut outside, _)) = listener.accept().await {
            let socket = socket.clone();
            connections.spawn(async move {
                if let Ok(mut inside) = UnixStream::connect(&socket).await {
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    });
    (address, task)
}

async fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(DEADLINE, output).await.map_err(|_| format!("{command:?} does not end"))?;
    let output = output.map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(text) } else { Err(format!("{command:?}: {}\n{text}", output.status)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_as_it_is_described() {
    let Some(programs) = harness::python_packages("schemathesis").await else { return };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis");
    let daemon = Daemon::builder().config(CONFIG).agent("echo", echo()).agent("asking", asking()).start().await;
    let seeds = seeds(&daemon).await;
    let seeds_file = daemon.root().join("seeds.json");
    std::fs::write(&seeds_file, seeds.to_string()).unwrap();
    let (url, _bridge) = bridge(daemon.socket().to_owned()).await;
    let mut command = Command::new(programs.join("st"));
    command
        .arg("--config-file")
        .arg(directory.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("{url}/v1/openapi.json"));
    command.args(["--url", &url, "--checks", CHECKS, "--phases", "coverage,fuzzing,stateful", "--no-color"]);
    command.args([
        "--max-examples",
        EXAMPLES,
        "--seed",
        SEED,
        "--generation-database",
        "none",
        "--continue-on-failure",
    ]);
    command.args(["--request-timeout", "30", "--suppress-health-check", "all", "--warnings", "off"]);
    command.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", &directory).env("ACPD_SEEDS", &seeds_file);
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(daemon.root());
    run(&mut command).await.unwrap_or_else(|told| panic!("{told}"));
    // What was to come of right requests did come.
    let answered =
        daemon.get(&format!("/v1/permissions/{}", seeds["question"].as_str().unwrap())).await.expect_status(200);
    assert_eq!(answered["resolution"]["by"]["type"], "person");
    daemon.get("/v1/health").await.expect_status(200);
}
