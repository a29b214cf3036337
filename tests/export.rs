//! Exports: the same record gives the same bytes, in each format, whole, without secrets, and at no cost to the daemon.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::{Daemon, ORDINARY, echo, users, within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;

const FORMATS: [&str; 3] = ["json", "markdown", "workflow"];

fn path(session: &str, format: &str) -> String {
    format!("/v1/sessions/{session}/export?format={format}")
}

async fn export(daemon: &Daemon, session: &str, format: &str) -> String {
    let reply = daemon.get(&path(session, format)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.text
}

async fn document(daemon: &Daemon, session: &str) -> Value {
    serde_json::from_str(&export(daemon, session, "json").await).unwrap()
}

/// What Relavium takes: these keys and no others, except below `metadata`. There are no `agents`: the author chooses one for
/// each `agent_ref`.
#[expect(dead_code, reason = "of some fields only the name and the type matter")]
mod relavium {
    use serde::Deserialize;
    use serde_json::Value;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Document {
        pub schema_version: String,
        pub workflow: Workflow,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Workflow {
        pub id: Kebab,
        pub name: Option<Text>,
        pub metadata: Metadata,
        pub nodes: Vec<Node>,
        pub edges: Vec<Edge>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Metadata {
        #[serde(rename = "relaviumExport")]
        pub export: Export,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub struct Export {
        pub source: String,
        pub session_id: Text,
        pub agent_slug: Text,
        pub agent_snapshot: Value,
        pub title: Option<Text>,
        pub created_at: Text,
        pub updated_at: Text,
        pub messages: Vec<Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, tag = "type", rename_all = "lowercase")]
    pub enum Node {
        Input { id: Kebab },
        Agent { id: Kebab, agent_ref: Kebab, prompt_template: Option<Text>, tools: Option<Vec<Text>> },
        Output { id: Kebab },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Edge {
        pub from: Kebab,
        pub to: Kebab,
    }

    /// Small ASCII letters and digits, with single dashes between them.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(try_from = "String")]
    pub struct Kebab(pub String);

    impl TryFrom<String> for Kebab {
        type Error = String;

        fn try_from(id: String) -> Result<Self, String> {
            let is_word = |word: &str| {
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            };
            if id.split('-').all(is_word) { Ok(Self(id)) } else { Err(format!("{id:?} is not in kebab-case")) }
        }
    }

    /// Text that is not empty.
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(try_from = "String")]
    pub struct Text(pub String);

    impl TryFrom<String> for Text {
        type Error = &'static str;

        fn try_from(text: String) -> Result<Self, &'static str> {
            if text.is_empty() { Err("empty text") } else { Ok(Self(text)) }
        }
    }
}

/// That Relavium takes the document: a chain of nodes, with edges from one to the next.
fn check_schema(text: &str) {
    use relavium::{Document, Edge, Kebab, Node};
    let document: Document = yaml_serde::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(document.schema_version, "1.0");
    let relavium::Workflow { nodes, edges, metadata, .. } = document.workflow;
    let ids: Vec<Kebab> = nodes
        .iter()
        .map(|node| match node {
            Node::Input { id } | Node::Agent { id, .. } | Node::Output { id } => id.clone(),
        })
        .collect();
    let turns = (1..nodes.len() - 1).map(|number| format!("turn-{number}"));
    let expected: Vec<String> = ["input".to_owned()].into_iter().chain(turns).chain(["output".to_owned()]).collect();
    assert!(ids.iter().map(|id| &id.0).eq(&expected), "{ids:?}");
    let chain = ids.windows(2).map(|pair| Edge { from: pair[0].clone(), to: pair[1].clone() });
    assert!(edges.iter().eq(&chain.collect::<Vec<_>>()), "{edges:?}");
    let relavium::Export { source, agent_snapshot, agent_slug, .. } = metadata.export;
    assert_eq!((source.as_str(), &agent_snapshot["slug"]), ("session", &json!(agent_slug.0)));
}

fn assert_sorted(value: &yaml_serde::Value) {
    match value {
        yaml_serde::Value::Mapping(fields) => {
            assert!(fields.keys().map(|key| key.as_str().unwrap()).is_sorted(), "{fields:?}");
            fields.values().for_each(assert_sorted);
        }
        yaml_serde::Value::Sequence(items) => items.iter().for_each(assert_sorted),
        _ => {}
    }
}

/// The workflow, which Relavium takes and whose keys are sorted.
async fn workflow(daemon: &Daemon, session: &str) -> Value {
    let text = export(daemon, session, "workflow").await;
    check_schema(&text);
    let read: yaml_serde::Value = yaml_serde::from_str(&text).unwrap();
    assert_sorted(&read);
    serde_json::to_value(read).unwrap()["workflow"].take()
}

fn node_ids(workflow: &Value) -> Vec<&str> {
    workflow["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect()
}

fn update(kind: &str, mut fields: Value) -> Value {
    fields["sessionUpdate"] = json!(kind);
    json!({"update": fields})
}

fn call(id: &str, title: &str, kind: &str, input: &Value) -> Value {
    update("tool_call", json!({"toolCallId": id, "title": title, "kind": kind, "status": "pending", "rawInput": input}))
}

fn done(id: &str, content: &Value) -> Value {
    update("tool_call_update", json!({"toolCallId": id, "status": "completed", "content": content}))
}

fn text_of(text: &str) -> Value {
    json!([{"type": "content", "content": {"type": "text", "text": text}}])
}

/// An agent that does everything that an agent does, by the turn: a rich answer, tools without a word, an answer to a
/// picture, and an end of its own.
fn rich() -> Value {
    let handshake = json!({"capabilities": {"promptCapabilities": {"image": true, "embeddedContext": true}}});
    let diff = json!([{"type": "diff", "path": "src/a.rs", "oldText": "fn a() {\n    1\n}\n", "newText": "fn a() {\n    2\n}\n"}]);
    let plan = json!({"entries": [{"content": "look *here*", "priority": "high", "status": "completed"},
        {"content": "change it", "priority": "low", "status": "in_progress"},
        {"content": "tell", "priority": "low", "status": "pending"}]});
    json!([
        {"handshake": handshake},
        {"prompt": [
            {"thought": "What does <details> do?"}, {"text": "I look at it.\n"},
            call("c1", "grep", "search", &json!({"pattern": "fn a"})), call("c2", "edit `a.rs`", "edit", &json!({"path": "src/a.rs"})),
            done("c1", &text_of("src/a.rs:1: fn a() {\n```\n</details>\n")), done("c2", &diff),
            call("c3", "grep", "search", &json!({"pattern": "fn b"})), update("plan", plan),
            {"text": "# Done\n\nIt returns `2` now:\n\n```rust\nfn a() -> u8 {"}, done("c3", &json!([]))
        ]},
        {"prompt": [call("c4", "cargo test", "execute", &json!({"command": "cargo test"})), done("c4", &text_of("ok"))]},
        {"prompt": [{"text": "A picture of <b>nothing</b>."}]},
        {"expect": "session/prompt"}, {"text": "half a"}, {"exit": 3}
    ])
}

async fn rich_session(daemon: &Daemon) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": "rich", "title": "Fix `a` | Überall!", "tags": ["work"],
        "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let notes = json!({"role": "system", "text": "The house style:\n\n<details>\n```"});
    daemon.post(&format!("/v1/sessions/{session}/messages"), notes).await.expect_status(201);
    daemon
        .prompt_and_wait(&session, "Make `a` return 2.\n\n<details>\n\n- {{ secrets.KEY }}\n- ${HOME}\n\n```\nopen")
        .await;
    daemon.prompt_and_wait(&session, "test").await;
    let content = json!([{"type": "text", "text": "what is this?"},
        {"type": "image", "data": STANDARD.encode("a picture"), "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///tmp/a b.txt", "name": "a b.txt"},
        {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "# Notes\n</details>"}}]);
    let accepted = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"content": content})).await;
    let turn = accepted.expect_status(202)["turnId"].as_str().unwrap().to_owned();
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    let failed = daemon.prompt_and_wait(&session, "go on").await;
    assert_eq!(failed["status"], "failed");
    session
}

#[tokio::test]
async fn a_rich_session_reads_well_and_is_the_same_each_time() {
    let daemon = Daemon::builder().agent_with("rich", rich(), "name = \"The Rich\"").start().await;
    let session = rich_session(&daemon).await;
    for format in FORMATS {
        let first = daemon.get(&path(&session, format)).await;
        assert_eq!(first.text, export(&daemon, &session, format).await, "{format}");
        let (mime_type, extension) = match format {
            "json" => ("application/json", "json"),
            "markdown" => ("text/markdown; charset=utf-8", "md"),
            _ => ("application/yaml", "yaml"),
        };
        assert_eq!(first.header("content-type"), Some(mime_type));
        let name = format!("attachment; filename=\"{session}.{extension}\"");
        assert_eq!(first.header("content-disposition"), Some(name.as_str()));
    }
    assert_eq!(
        daemon.get(&format!("/v1/sessions/{session}/export")).await.text,
        export(&daemon, &session, "json").await
    );

    let markdown = export(&daemon, &session, "markdown").await;
    insta::with_settings!({filters => vec![
        (r"[0-9a-f]{8}-[0-9a-f-]{27}", "[id]"), (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "[time]"), (r"took \d+\.\d s", "took [seconds]"),
    ]}, {
        insta::assert_snapshot!(markdown.replace(daemon.root().to_str().unwrap(), "[root]"));
    });
}

#[tokio::test]
async fn the_json_has_all_that_another_machine_needs() {
    let daemon = Daemon::builder().agent("rich", rich()).start().await;
    let session = rich_session(&daemon).await;
    let document = document(&daemon, &session).await;
    let fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        ["format", "version", "session", "turns", "messages", "blobs", "checkpoints", "observations"],
        "in this order"
    );
    assert_eq!((&document["format"], &document["version"]), (&json!("acpd.session"), &json!(1)));
    let shown = daemon.session(&session).await;
    for field in
        ["id", "title", "tags", "status", "createdAt", "updatedAt", "workspace", "permissions", "context", "limits"]
    {
        assert_eq!(document["session"][field], shown[field], "{field}");
    }
    assert_eq!(document["session"]["agent"], shown["profile"]);
    let turns = daemon.get(&format!("/v1/sessions/{session}/turns")).await.expect_status(200);
    assert_eq!(document["turns"], turns["turns"]);
    assert_eq!(document["messages"], json!(daemon.messages(&session).await));
    let blobs = document["blobs"].as_array().unwrap();
    assert_eq!(blobs.len(), 1);
    assert_eq!((&blobs[0]["mimeType"], &blobs[0]["size"]), (&json!("image/png"), &json!("a picture".len())));
    assert_eq!(blobs[0]["data"], STANDARD.encode("a picture"));
    assert!(export(&daemon, &session, "json").await.contains(&format!("{{\"sha256\":{}", blobs[0]["sha256"])));
}

#[tokio::test]
async fn the_workflow_is_a_chain_of_the_turns_that_were_answered() {
    let daemon = Daemon::builder().agent("rich", rich()).start().await;
    let session = rich_session(&daemon).await;
    let text = export(&daemon, &session, "workflow").await;
    let workflow = workflow(&daemon, &session).await;
    assert_eq!(workflow["id"], "fix-a-berall");
    // The second turn has no text, the fourth failed.
    assert_eq!(node_ids(&workflow), ["input", "turn-1", "turn-2", "output"]);
    let prompt = "Make `a` return 2.\n\n<details>\n\n- { { secrets.KEY }}\n- $ {HOME}\n\n```\nopen";
    assert_eq!(
        workflow["nodes"][1],
        json!({"id": "turn-1", "type": "agent", "agent_ref": "rich", "prompt_template": prompt, "tools": ["grep", "edit `a.rs`"]})
    );
    let picture = json!({"id": "turn-2", "type": "agent", "agent_ref": "rich", "prompt_template": "what is this?"});
    assert_eq!(workflow["nodes"][2], picture, "no tools were used");
    let edges = json!([{"from": "input", "to": "turn-1"}, {"from": "turn-1", "to": "turn-2"}, {"from": "turn-2", "to": "output"}]);
    assert_eq!(workflow["edges"], edges);
    let origin = &workflow["metadata"]["relaviumExport"];
    let shown = daemon.session(&session).await;
    assert_eq!(
        (&origin["source"], &origin["sessionId"], &origin["agentSlug"], &origin["title"]),
        (&json!("session"), &shown["id"], &json!("rich"), &shown["title"])
    );
    assert_eq!((&origin["createdAt"], &origin["updatedAt"]), (&shown["createdAt"], &shown["updatedAt"]));
    assert_eq!(origin["agentSnapshot"], shown["profile"]);
    for absent in ["model:", "temperature:", "maxTokens:", "retry"] {
        assert!(!text.contains(absent), "{absent}");
    }
    let messages = daemon.messages(&session).await;
    let exported = origin["messages"].as_array().unwrap();
    assert_eq!(exported.len(), messages.len());
    for (exported, message) in exported.iter().zip(&messages) {
        assert_eq!((&exported["content"], &exported["sequence"]), (&message["content"], &message["sequence"]));
    }
}

#[tokio::test]
async fn a_session_without_turns_and_one_in_each_status_can_be_exported() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let before = workflow(&daemon, &session).await;
    assert_eq!((node_ids(&before), &before["id"]), (vec!["input", "output"], &json!("exported-session")));
    assert_eq!(before["edges"], json!([{"from": "input", "to": "output"}]));
    let origin = &before["metadata"]["relaviumExport"];
    assert_eq!((&origin["messages"], origin.get("title")), (&json!([]), None));
    let document = document(&daemon, &session).await;
    assert_eq!((&document["turns"], &document["messages"], &document["blobs"]), (&json!([]), &json!([]), &json!([])));
    assert!(export(&daemon, &session, "markdown").await.starts_with(&format!("# Session {session}\n")));

    let texts = ["json", "markdown", "workflow"].map(|format| (format, path(&session, format)));
    let mut earlier = Vec::new();
    for (_, path) in &texts {
        earlier.push(daemon.get(path).await.text);
    }
    daemon.prompt_and_wait(&session, "hello").await;
    for ((format, path), earlier) in texts.iter().zip(&earlier) {
        assert_ne!(&daemon.get(path).await.text, earlier, "{format} tells of the new turn");
    }
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    for format in FORMATS {
        assert!(export(&daemon, &session, format).await.contains("hello"), "{format}");
    }
}

#[tokio::test]
async fn what_runs_and_what_waits_is_exported_as_it_is() {
    let script = json!([{"handshake": {}}, {"prompt": [{"text": "one "}, {"text": "two"}]},
        {"prompt": [call("c1", "make", "execute", &json!({})), {"gate": "busy"}, {"text": "never"}]}]);
    let daemon = Daemon::builder().agent("slow", script).start().await;
    let session = daemon.create_lazy_session("slow").await;
    daemon.prompt_and_wait(&session, "first").await;
    let accepted = daemon.prompt(&session, "second").await;
    let _held = daemon.gate("slow").reached("busy").await;
    daemon.events(&session, accepted["after"].as_i64()).await.until("tool.started").await;
    daemon.prompt(&session, "third").await;
    let document = document(&daemon, &session).await;
    let statuses: Vec<&str> =
        document["turns"].as_array().unwrap().iter().map(|turn| turn["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["completed", "running", "queued"]);
    for message in document["messages"].as_array().unwrap() {
        let turn = &message["turnId"];
        assert!(document["turns"].as_array().unwrap().iter().any(|known| known["id"] == *turn), "{message}");
    }
    assert_eq!(node_ids(&workflow(&daemon, &session).await), ["input", "turn-1", "output"]);
    let markdown = export(&daemon, &session, "markdown").await;
    let places: Vec<usize> =
        ["## Turn 1", "> first", "one two", "## Turn 2", "> second", "<code>make</code>", "## Turn 3", "> third"]
            .iter()
            .map(|part| markdown.find(part).unwrap_or_else(|| panic!("{part} is in {markdown}")))
            .collect();
    assert!(places.is_sorted(), "{markdown}");
    for format in FORMATS {
        assert_eq!(export(&daemon, &session, format).await, export(&daemon, &session, format).await);
    }
}

#[tokio::test]
async fn whatever_was_said_is_written_so_that_it_is_read_again() {
    let texts = [
        " leading",
        "trailing \n\n",
        "a: b",
        "---\nb",
        "\r\nx\r\n",
        "\u{85}nel\u{2028}",
        "😀",
        "\ttab",
        "\u{1b}[2J\u{7f}\u{9b}",
        "yes",
        "1e3",
        "~",
        "# x",
        "- x",
        "'\"\\",
        &"long ".repeat(2000),
        "{{a}} {% b %} ${c} {# d #}",
        "\u{feff}bom",
        "...",
    ];
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    for title in ["", "null", ": - ", "{{x}} #"] {
        let body = json!({"workspace": daemon.workspace(), "agent": "echo", "title": title, "start": "lazy"});
        let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
        for text in texts {
            daemon.prompt_and_wait(&session, text).await;
        }
        let workflow = workflow(&daemon, &session).await;
        let messages = workflow["metadata"]["relaviumExport"]["messages"].as_array().unwrap();
        let asked: Vec<&str> = messages
            .iter()
            .filter(|message| message["role"] == "user")
            .map(|message| message["content"]["text"].as_str().unwrap())
            .collect();
        assert_eq!(asked, texts);
        let markdown = export(&daemon, &session, "markdown").await;
        assert!(!markdown.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
        assert_eq!(markdown.matches("\n## Turn ").count(), texts.len());
    }
}

/// Texts that a reader of YAML 1.1 or 1.2 takes for something else, or cannot read, when they are not quoted.
const TRAPS: [&str; 62] = [
    "y",
    "Y",
    "n",
    "yes",
    "no",
    "Yes",
    "on",
    "On",
    "off",
    "OFF",
    "true",
    "True",
    "FALSE",
    "null",
    "Null",
    "~",
    "=",
    "<<",
    "12:30",
    "1:30:45",
    "190:20:30",
    "12:30:45.5",
    "1_000",
    "0o7",
    "0b1",
    "0b1_0",
    "0x1F",
    "017",
    "08",
    "1e3",
    "1E+3",
    "1.5",
    "-0",
    "+1",
    ".5",
    "5.",
    ".inf",
    "-.INF",
    ".nan",
    "6.02e+23",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    "2026-01-01 00:00:00",
    "a: b",
    "a #b",
    "- a",
    "? a",
    "!tag",
    "&a",
    "*a",
    "[a",
    "{a",
    "%a",
    "@a",
    "`a",
    "|",
    ">-",
    "---",
    "...",
    "\u{85}x\u{2028}",
    "\u{feff}\u{fffe}\u{7f}\u{9b}",
    " \t\r\n\n# \"'\\\n\tx \n ",
];

/// A session in which every text is a trap: title, prompts, answers, tools with their ids, and arguments with their keys.
async fn hostile_session(daemon: &Daemon) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": "no__", "title": "2026-01-01", "start": "lazy",
        "limits": {"turnCap": TRAPS.len()}});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    for text in TRAPS {
        let asked = if text.trim().is_empty() { "x" } else { text };
        daemon.prompt_and_wait(&session, asked).await;
    }
    session
}

fn hostile() -> Value {
    let arguments: serde_json::Map<String, Value> =
        TRAPS.iter().map(|trap| ((*trap).to_owned(), json!([trap, {*trap: [[trap], {}], "a": []}]))).collect();
    let mut calls: Vec<Value> = TRAPS
        .iter()
        .flat_map(|trap| [call(trap, trap, "read", &json!({"value": trap})), done(trap, &text_of(trap))])
        .collect();
    let long = "long \"key\" ".repeat(200);
    let numbers = json!([0, -1, 1.0, -0.0, 1e300, 1.5e-9, i64::MIN, u64::MAX, true, false, null, {long: {"b": 1}}]);
    calls.push(call("all", "all", "read", &json!({"traps": arguments, "numbers": numbers})));
    calls.extend([done("all", &json!([])), json!({"textFromPrompt": true})]);
    let models =
        json!({"models": {"currentModelId": "1_000", "availableModels": [{"modelId": "1_000", "name": "1_000"}]}});
    json!([{"handshake": {"newSession": models}}, {"prompt": calls}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}])
}

#[tokio::test]
async fn a_session_full_of_traps_is_the_same_in_every_reader() {
    let daemon = Daemon::builder().agent("no__", hostile()).start().await;
    let session = hostile_session(&daemon).await;
    let text = export(&daemon, &session, "workflow").await;
    let workflow = workflow(&daemon, &session).await;
    assert_eq!((&workflow["id"], &workflow["name"]), (&json!("2026-01-01"), &json!("2026-01-01")));
    assert_eq!(workflow["nodes"].as_array().unwrap().len(), TRAPS.len() + 2);
    assert_eq!(workflow["nodes"][1]["agent_ref"], "no");
    let tools: Vec<&str> = TRAPS.into_iter().chain(["all"]).collect();
    assert_eq!(workflow["nodes"][1]["tools"], json!(tools));
    let exported = workflow["metadata"]["relaviumExport"]["messages"].as_array().unwrap();
    let messages = daemon.messages(&session).await;
    assert_eq!(exported.len(), messages.len());
    for (exported, message) in exported.iter().zip(&messages) {
        for (name, value) in exported.as_object().unwrap() {
            assert_eq!(value, &message[name], "{name}");
        }
        assert_eq!(exported.get("model"), message.get("model"));
    }
    assert!(exported.iter().any(|message| message["model"] == "1_000"));

    // What Rust reads is the JSON of the document; PyYAML and the npm package `yaml` must read the same.
    let (Some(node), Some(python)) =
        (harness::npm_packages("yaml_readers").await, harness::python_packages("yaml_readers").await)
    else {
        return;
    };
    let read: Value = yaml_serde::from_str(&text).unwrap();
    let [document, meant] = ["session.yaml", "session.json"].map(|name| daemon.root().join(name));
    std::fs::write(&document, &text).unwrap();
    std::fs::write(&meant, read.to_string()).unwrap();
    let readers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/yaml_readers");
    let mut by_python = Command::new(python.join("python"));
    by_python.arg(readers.join("read.py"));
    let mut by_node = Command::new("node");
    by_node.arg(readers.join("read.mjs")).arg(node);
    for mut reader in [by_python, by_node] {
        let output = within("the reader", reader.arg(&document).arg(&meant).output()).await.unwrap();
        assert!(output.status.success(), "{reader:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let refused = daemon.get(&path(&session, "pdf")).await.refused(400, "invalid_request");
    assert_eq!(refused["details"]["field"], "format");
    assert!(refused["message"].as_str().unwrap().contains("markdown"), "{refused}");
    let refused = daemon.get(&format!("/v1/sessions/{session}/export?from=1")).await.refused(400, "invalid_request");
    assert_eq!(refused["details"]["field"], "from");
    daemon.get(&path("019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e", "json")).await.refused(404, "session_not_found");
}

#[tokio::test]
async fn nobody_exports_what_is_anothers() {
    if users().len() < 2 {
        return harness::say("SKIPPED: only root can be several users");
    }
    let daemon = Daemon::builder().owner(ORDINARY).agent("echo", echo()).start().await;
    let roots = daemon.create_lazy_session("echo").await;
    let owner = daemon.as_user(ORDINARY, &[]);
    let own = owner.create_lazy_session("echo").await;
    for format in FORMATS {
        owner.get(&path(&roots, format)).await.refused(404, "session_not_found");
        assert_eq!(owner.get(&path(&own, format)).await.status, 200);
        assert_eq!(daemon.get(&path(&own, format)).await.status, 200, "root sees all");
    }
}

#[tokio::test]
async fn a_key_that_the_agent_tells_is_in_no_export() {
    const KEY: &str = "sk-0123456789-abcdefghij";
    let script = json!([{"handshake": {}}, {"prompt": [
        {"textFromEnvironment": "API_KEY"}, call("c1", &format!("curl {KEY}"), "fetch", &json!({"key": KEY})),
        done("c1", &text_of(KEY)), {"text": format!("it is {KEY}")}]}]);
    let profile = format!("env = {{ API_KEY = \"{KEY}\" }}\nmcp_servers_allowed = true");
    let daemon = Daemon::builder().agent_with("leaky", script, &profile).start().await;
    let server = json!({"name": "own", "url": "https://example.com/mcp", "headers": {"X-Kind": "plain-but-nobodys-business",
        "Authorization": "Bearer ${API_KEY}"}});
    let body = json!({"workspace": daemon.workspace(), "agent": "leaky", "mcpServers": [server], "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let turn = daemon.prompt_and_wait(&session, &format!("my key is {KEY}")).await;
    assert!(turn["status"].is_string());
    for format in FORMATS {
        let text = export(&daemon, &session, format).await;
        assert!(!text.contains(KEY) && !text.contains("abcdefghij"), "{format}: {text}");
        assert!(!text.contains("nobodys-business"), "{format}: {text}");
    }
    let servers = &document(&daemon, &session).await["session"]["mcpServers"];
    assert_eq!(servers[0]["values"], json!({"Authorization": "Bearer ${API_KEY}"}));
    assert_eq!(servers[0]["valuesWithheld"], json!(["X-Kind"]));
}

/// In bytes, as the kernel tells it: `VmRSS`, what is resident now, or `VmHWM`, what was at the most.
fn memory(daemon: &Daemon, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Gives the session that many messages of its one turn, of a kilobyte each.
async fn fill(daemon: &mut Daemon, session: &str, count: usize) {
    daemon
        .sql(format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
             INSERT INTO messages (id, session_id, sequence, turn_id, role, content, created_at) \
             SELECT '00000000-0000-7000-8000-' || printf('%012x', n), '{session}', \
             n + (SELECT max(sequence) FROM messages WHERE session_id = '{session}'), \
             (SELECT id FROM turns WHERE session_id = '{session}' LIMIT 1), 'agent', \
             json_object('type', 'text', 'text', n || ' ' || hex(zeroblob(500)), 'partial', json('false')), 0 FROM numbers"
        ))
        .await;
}

#[tokio::test]
async fn a_session_of_any_size_is_exported_in_little_memory() {
    const COUNT: usize = 20_000;
    const GROWTH_MAX: u64 = 8 << 20;
    if !rustix::process::geteuid().is_root() {
        return harness::skip("only root can reset the peak of the daemon's memory");
    }
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let small = daemon.create_lazy_session("echo").await;
    daemon.prompt_and_wait(&small, "hello").await;
    fill(&mut daemon, &session, COUNT).await;
    // What else needs memory is done: the index, and the check after the kill.
    while daemon.post("/v1/gc", json!({})).await.expect_status(200)["store"]["complete"] != true {}
    daemon.logged("the database has no errors").await;
    daemon.restart().await;
    // What one export takes already exists.
    for format in FORMATS {
        export(&daemon, &small, format).await;
    }
    for format in FORMATS {
        let before = memory(&daemon, "VmRSS");
        std::fs::write(format!("/proc/{}/clear_refs", daemon.pid()), "5").unwrap();
        let text = export(&daemon, &session, format).await;
        let grown = memory(&daemon, "VmHWM").saturating_sub(before);
        assert!(text.contains(&format!("{COUNT} 0000")), "{format}");
        assert!(text.len() > COUNT * 1000 && grown < GROWTH_MAX, "{format}: {grown} bytes for {}", text.len());
    }
}

/// A daemon with a session that no client gets at once, and that session.
async fn large_session() -> (Daemon, String) {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    // A daemon that runs knows which sequence is the next one.
    daemon.kill().await;
    fill(&mut daemon, &session, 5000).await;
    daemon.restart().await;
    (daemon, session)
}

/// A client that has read the beginning of an export, and that.
async fn begun(daemon: &Daemon, session: &str, format: &str, version: &str) -> (UnixStream, Vec<u8>) {
    let mut reader = daemon.connect().await;
    let request = format!("GET {} HTTP/{version}\r\nHost: acpd\r\nConnection: close\r\n\r\n", path(session, format));
    reader.write_all(request.as_bytes()).await.unwrap();
    let mut beginning = vec![0; 1000];
    reader.read_exact(&mut beginning).await.unwrap();
    (reader, beginning)
}

#[tokio::test]
async fn what_is_recorded_while_an_export_is_read_is_not_in_it() {
    let (daemon, session) = large_session().await;
    let mut begun_before = Vec::new();
    for format in FORMATS {
        let whole = export(&daemon, &session, format).await;
        // Without chunks: the body ends with the connection.
        begun_before.push((whole, begun(&daemon, &session, format, "1.0").await));
    }
    daemon.prompt_and_wait(&session, "more").await;
    for (whole, (mut reader, mut text)) in begun_before {
        within("the end of the export", reader.read_to_end(&mut text)).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(body == whole, "{} bytes became {}", whole.len(), body.len());
    }
}

#[tokio::test]
async fn a_session_that_is_deleted_meanwhile_is_cut_off() {
    let (daemon, session) = large_session().await;
    let (mut reader, _) = begun(&daemon, &session, "json", "1.1").await;
    daemon.delete(&format!("/v1/sessions/{session}?purge=true")).await.expect_status(200);
    let mut rest = Vec::new();
    let ended = within("the end of the export", reader.read_to_end(&mut rest)).await;
    assert!(ended.is_err() || !rest.ends_with(b"0\r\n\r\n"), "it looks whole");
    daemon.logged("an export ended early").await;
}

#[tokio::test]
async fn the_command_writes_whole_files_and_replaces_none_unasked() {
    let daemon = Daemon::builder().agent("rich", rich()).start().await;
    let session = rich_session(&daemon).await;
    for format in FORMATS {
        let printed = daemon.cli(&["export", &session, "--format", format]).await.success();
        assert_eq!(printed, export(&daemon, &session, format).await, "{format}");
    }
    let directory = daemon.root().join("exports");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("session.json");
    let name = file.to_str().unwrap();
    let told = daemon.cli(&["export", &session, "--output", name]).await.success();
    assert!(told.starts_with(&format!("{name} (")), "{told}");
    let whole = export(&daemon, &session, "json").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let refused = daemon.cli(&["export", &session, "--output", name, "--format", "markdown"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("already exists") && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole, "it is as it was");
    let told = daemon.cli(&["export", &session, "--json", "--force", "-o", name, "--format", "markdown"]).await.json();
    let markdown = export(&daemon, &session, "markdown").await;
    assert_eq!(told, json!({"path": name, "format": "markdown", "bytes": markdown.len()}));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), markdown);

    assert_eq!(daemon.cli(&["export", "nobody", "-o", directory.join("x").to_str().unwrap()]).await.code, 1);
    assert_eq!(daemon.cli(&["export", &session, "--format", "pdf"]).await.code, 2);
    let nowhere = daemon.cli(&["export", &session, "-o", directory.join("no/where").to_str().unwrap()]).await;
    assert!(nowhere.code == 1 && nowhere.stderr.contains("no/where"), "{}", nowhere.stderr);
    let taken = daemon.cli(&["export", &session, "--force", "-o", directory.to_str().unwrap()]).await;
    assert!(taken.code == 1 && taken.stderr.contains("hint: name a file in that directory"), "{}", taken.stderr);
    let names: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["session.json"], "nothing else is left");
}

/// The last block of a language in docs/export.md.
fn example(language: &str) -> &'static str {
    let page = include_str!("../docs/export.md");
    let (_, rest) = page.rsplit_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[tokio::test]
async fn the_examples_of_the_book_are_true() {
    check_schema(example("yaml"));
    let yaml: yaml_serde::Value = yaml_serde::from_str(example("yaml")).unwrap();
    let json: Value = serde_json::from_str(example("json")).unwrap();
    let daemon = Daemon::builder().agent("rich", rich()).start().await;
    let session = rich_session(&daemon).await;
    let document = document(&daemon, &session).await;
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&document), names(&json));
    assert!(names(&document["session"]).iter().all(|name| json["session"].get(name).is_some()), "{document}");
    let exported: yaml_serde::Value = yaml_serde::from_str(&export(&daemon, &session, "workflow").await).unwrap();
    let (exported, shown) = (serde_json::to_value(exported).unwrap(), serde_json::to_value(yaml).unwrap());
    assert_eq!(names(&exported), names(&shown));
    assert_eq!(names(&exported["workflow"]), names(&shown["workflow"]));
    let lines = example("sh").replace("acpd export", "\"$1\" export");
    let output = within("the end of the examples", daemon.shell(&lines).output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, format) in [("session.json", "json"), ("session.md", "markdown"), ("session.yaml", "workflow")] {
        let written = std::fs::read_to_string(daemon.workspace().join(name)).unwrap();
        assert_eq!(written, export(&daemon, &session, format).await, "{name}");
    }
}
