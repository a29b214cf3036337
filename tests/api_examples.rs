//! The examples of docs/api.md, run by bash and curl against a real daemon, in their order; and every route has one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;

use std::path::Path;
use std::process::Stdio;

use harness::{Daemon, within};
use serde_json::{Value, json};
use tokio::process::Command;

const DOCS: &str = include_str!("../docs/api.md");

/// What is between ```sh and ```, in order.
fn examples() -> String {
    let blocks = DOCS.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    blocks.collect::<Vec<_>>().join("\n")
}

/// The requests of the examples: method and path, as far as a shell has not filled it in.
fn requests(examples: &str) -> Vec<(String, String)> {
    let whole = examples.replace("\\\n", " ");
    let requests = whole.lines().filter_map(|line| {
        let (_, rest) = line.split_once("http://acpd")?;
        let path: String = rest.chars().take_while(|character| !" '\"?)".contains(*character)).collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = words.windows(2).find(|pair| pair[0] == "-X").map(|pair| pair[1].to_owned());
        let has_body = words.contains(&"--data");
        let method = named.unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned());
        Some((method, path))
    });
    requests.collect()
}

/// Whether a path of an example is one of this route: a variable stands for what the route has in braces.
fn is_of(path: &str, route: &str) -> bool {
    let (parts, names): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), route.split('/').collect());
    let is_met = |(part, name): (&&str, &&str)| part == name || name.starts_with('{');
    parts.len() == names.len() && parts.iter().zip(&names).all(is_met)
}

#[test]
fn every_route_has_an_example() {
    let document: Value = serde_json::from_str(include_str!("../docs/openapi.json")).unwrap();
    let requests = requests(&examples());
    for (route, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let is_there = requests.iter().any(|(asked, path)| *asked == method && is_of(path, route));
            assert!(is_there, "docs/api.md has no example of {method} {route}");
        }
    }
}

/// An agent that asks before it does anything.
fn asking() -> Value {
    let question = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "t1", "title": "Run ls", "kind": "execute", "status": "pending",
            "rawInput": {"command": "ls"}},
        "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}]}}});
    json!([{"handshake": {}}, {"repeat": [{"prompt": [question, {"textFromAnswer": true}]}]}])
}

#[tokio::test]
async fn the_examples_work() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        return harness::skip("curl is not installed, so the examples of docs/api.md were not run");
    }
    let daemon = Daemon::builder().config("[limits]\nprocesses = 8").agent("asking", asking()).start().await;
    for _ in 0..3 {
        let session = daemon.create_session("asking").await;
        let accepted = daemon.prompt(&session, "go").await;
        daemon.events(&session, accepted["after"].as_i64()).await.until("permission.requested").await;
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_acpd")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let script = format!("set -euo pipefail\n{}\necho all of them", examples());
    let mut bash = Command::new("bash");
    bash.arg("-x").arg("-c").arg(script).env("PATH", path).env("ACPD_SOCKET", daemon.socket());
    bash.env("HOME", daemon.home()).current_dir(daemon.workspace()).stdin(Stdio::null()).kill_on_drop(true);
    let output = within("the end of the examples", bash.output()).await.unwrap();
    let (told, steps) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.ends_with("all of them\n"), "{}\n{told}\n{steps}", output.status);
}
