//! One bad agent harms nobody: garbage, silence, floods, crashes, wrong answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, process_gone};
use serde_json::{Value, json};

fn initialize() -> Vec<Value> {
    vec![json!({"expect": "initialize"}), json!({"reply": {"protocolVersion": 1}}), json!({"expect": "session/new"})]
}

/// Prompts a session of this agent, and returns the turn and the session as they are then.
async fn run(daemon: &Daemon, agent: &str) -> (Value, Value) {
    let session = daemon.create_session(agent).await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    (turn, daemon.session(&session).await)
}

#[tokio::test]
async fn noise_long_lines_and_bytes_that_are_no_text_are_skipped() {
    let script = json!([
        {"stdout": "Loading extensions…\n\n"},
        {"handshake": {}},
        {"prompt": [
            {"bytes": [255, 254, 0, 10]}, {"longLine": 70000}, {"stdout": "{\"not\": \"a message\"}\n"},
            {"stdout": "\u{1b}[2K{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"test-session\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"still \"}}}}\n"},
            {"text": "here"}
        ]}
    ]);
    let daemon = Daemon::builder()
        .config("[limits]\nline_max = \"64KiB\"\npayload_max = \"64KiB\"")
        .agent("noisy", script)
        .start()
        .await;
    let (turn, session) = run(&daemon, "noisy").await;
    assert_eq!(turn["status"], "completed");
    assert_eq!(session["messages"][1]["content"]["text"], "still here");
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_turn_keeps_the_text_and_tells_why() {
    let script = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"text": "half an ans"},
        {"stderr": "out of cheese"}, {"exit": 3}]);
    let daemon = Daemon::builder().agent("crashing", script).start().await;
    let (turn, session) = run(&daemon, "crashing").await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("agent_exited")));
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.contains("code 3") && message.contains("out of cheese"), "{message}");
    assert_eq!(session["messages"][1]["content"], json!({"type": "text", "text": "half an ans", "partial": true}));
    assert_eq!(session["messages"][2]["content"]["code"], "agent_exited");
    assert_eq!((&session["status"], &session["processState"]), (&json!("active"), &json!("stopped")));
    assert_eq!(session["lastError"]["code"], "agent_exited");

    let id = session["id"].as_str().unwrap();
    let again = daemon.prompt_and_wait(id, "again").await;
    assert_eq!(again["status"], "failed", "the next prompt has a new process, which crashes too");
}

#[tokio::test]
async fn an_exit_during_the_handshake_names_the_phase_and_fails_only_the_turn_that_waited() {
    let mut in_new = initialize();
    in_new.push(json!({"stderr": "no such model"}));
    in_new.push(json!({"killSelf": "KILL"}));
    let daemon = Daemon::builder()
        .agent("mute", json!([{"stderr": "cannot find node"}, {"exit": 127}]))
        .agent("dying", json!(in_new))
        .start()
        .await;
    let (turn, session) = run(&daemon, "mute").await;
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("127") && message.contains("initialize") && message.contains("cannot find node"),
        "{message}"
    );
    assert_eq!(session["status"], "active");
    let (turn, _) = run(&daemon, "dying").await;
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.contains("signal 9") && message.contains("session/new"), "{message}");
}

#[tokio::test]
async fn every_phase_of_the_handshake_has_its_deadline() {
    let mut hangs_in_new = initialize();
    // Before the answer to `initialize`, so that it is there when the clock of `session/new` starts.
    hangs_in_new.insert(0, json!({"stderr": "connecting to an MCP server"}));
    hangs_in_new.push(json!({"gate": "hanging"}));
    hangs_in_new.push(json!({"hang": true}));
    let daemon = Daemon::builder()
        .config("[processes]\ninitialize_timeout = \"150ms\"\nsession_timeout = \"150ms\"\neof_grace = \"50ms\"\nterm_grace = \"50ms\"")
        .agent("silent", json!([{"ignoreSignals": ["TERM"]}, {"hang": true}]))
        .start()
        .await;
    let (turn, session) = run(&daemon, "silent").await;
    assert_eq!(turn["error"]["code"], "timeout");
    assert!(turn["error"]["message"].as_str().unwrap().contains("initialize"), "{turn}");
    let id = session["id"].as_str().unwrap();
    let exited = daemon.events(id, None).await.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["signal"], 9, "the ladder ends with SIGKILL");

    let daemon = Daemon::builder()
        .config("[processes]\nsession_timeout = \"500ms\"")
        .agent("stuck", json!(hangs_in_new))
        .start()
        .await;
    let session = daemon.create_session("stuck").await;
    let accepted = daemon.prompt(&session, "go").await;
    daemon.gate("stuck").reached("hanging").await.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.contains("session/new") && message.contains("MCP server"), "{message}");
}

#[tokio::test]
async fn refusals_and_nonsense_of_the_agent_become_clear_errors() {
    let mut unauthorized = initialize();
    unauthorized.push(json!({"replyError": {"code": -32000, "message": "Please sign in"}}));
    let mut nonsense = initialize();
    nonsense.push(json!({"reply": {"session": 7}}));
    let daemon = Daemon::builder()
        .agent("unauthorized", json!(unauthorized))
        .agent("nonsense", json!(nonsense))
        .agent("future", json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 9}}]))
        .agent(
            "limited",
            json!([{"handshake": {}}, {"repeat": [
            {"expect": "session/prompt"}, {"replyError": {"code": 429, "message": "Quota exceeded"}}]}]),
        )
        .start()
        .await;
    for (agent, code, text) in [
        ("unauthorized", "auth_required", "Please sign in"),
        ("nonsense", "protocol", "sessionId"),
        ("future", "protocol", "version 9"),
        ("limited", "rate_limited", "Quota exceeded"),
    ] {
        let (turn, session) = run(&daemon, agent).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!(code)), "{agent}");
        assert!(turn["error"]["message"].as_str().unwrap().contains(text), "{agent}: {turn}");
        assert_eq!(session["status"], "active", "{agent}");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_read_is_noticed() {
    let script = json!([{"handshake": {}}, {"gate": "deaf"}, {"stopReading": true}]);
    let daemon = Daemon::builder()
        .config("[processes]\nstdin_timeout = \"100ms\"\neof_grace = \"50ms\"")
        .agent("deaf", script)
        .start()
        .await;
    let session = daemon.create_session("deaf").await;
    daemon.gate("deaf").reached("deaf").await.open().await;
    // More than a pipe holds.
    let turn = daemon.prompt_and_wait(&session, &"x".repeat(200_000)).await;
    assert_eq!(turn["status"], "failed");
    assert!(turn["error"]["message"].as_str().unwrap().contains("standard input"), "{turn}");
}

#[tokio::test]
async fn a_request_that_acpd_does_not_serve_is_answered_and_the_turn_goes_on() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"request": {"method": "_vendor/unknown", "params": {}}}, {"textFromAnswer": true}
    ]}]);
    let daemon = Daemon::builder().agent("asking", script).start().await;
    let (turn, session) = run(&daemon, "asking").await;
    assert_eq!(turn["status"], "completed");
    assert!(session["messages"][1]["content"]["text"].as_str().unwrap().contains("-32601"));
}

#[tokio::test]
async fn children_in_the_agents_group_go_with_it() {
    let script = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"fork": {"count": 2}},
        {"textFromChildren": true}, {"gate": "forked"}, {"exit": 1}]);
    let daemon = Daemon::builder().agent("parent", script).start().await;
    let session = daemon.create_session("parent").await;
    let accepted = daemon.prompt(&session, "go").await;
    daemon.gate("parent").reached("forked").await.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["error"]["code"], "agent_exited");
    let messages = daemon.messages(&session).await;
    let children: Vec<u32> =
        messages[1]["content"]["text"].as_str().unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(children.len(), 2);
    for child in children {
        process_gone(child).await;
    }
}

#[tokio::test]
async fn a_flooding_agent_does_not_keep_another_session_waiting() {
    let flood = json!([{"handshake": {}}, {"prompt": [{"flood": {"count": 50_000, "text": "spam {} "}}]}]);
    let echo = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let daemon = Daemon::builder().agent("flood", flood).agent("echo", echo).start().await;
    let flooding = daemon.create_session("flood").await;
    let calm = daemon.create_session("echo").await;
    let accepted = daemon.prompt(&flooding, "go").await;
    for round in 0..5 {
        let turn = daemon.prompt_and_wait(&calm, &format!("round {round}")).await;
        assert_eq!(turn["status"], "completed");
    }
    let turn = daemon.wait_turn(&flooding, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed");
    let messages = daemon.messages(&flooding).await;
    let text: String = messages[1..].iter().map(|message| message["content"]["text"].as_str().unwrap()).collect();
    assert!(text.ends_with("spam 49999 "), "all of it is there");
}

#[tokio::test]
async fn what_escaped_the_agent_and_goes_on_writing_holds_nobody_up() {
    let builder = Daemon::builder();
    let pid_file = builder.workspace().join("escaped.pid");
    let answers =
        r#"read l; echo '{"id":0,"result":{"protocolVersion":1}}'; read l; echo '{"id":1,"result":{"sessionId":"s"}}'"#;
    let noise = format!("echo $$ > {}; while :; do echo noise >&2 || exit; done", pid_file.display());
    let escaped = format!("while [ ! -s {} ]; do :; done", pid_file.display());
    let shell = format!("{answers}; setsid sh -c '{noise}' & {escaped}; read l; exit 3");
    let agent = format!("[agents.escaping]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {}]", json!(shell));
    let daemon = builder.config(&agent).start().await;
    let session = daemon.create_session("escaping").await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    assert!(turn["error"]["message"].as_str().unwrap().contains("code 3"), "{turn}");
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    // It dies of its broken pipe, or by this; killing what has escaped is not acpd's yet.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

#[tokio::test]
async fn an_agent_that_closes_its_output_or_answers_in_its_own_way_does_not_hang_the_turn() {
    let answers = r#"read l; echo '{"id":0,"result":{"protocolVersion":1}}'; read l; echo '{"id":1,"result":{"sessionId":"s"}}'; read l"#;
    let closing = json!(format!("{answers}; exec 1>&-; while :; do read l || exit 0; done"));
    let odd =
        json!(format!("{answers}; echo '{{\"id\":2,\"error\":{{\"code\":\"E_ODD\",\"message\":null}}}}'; read l"));
    let agents = format!(
        "[processes]\neof_grace = \"50ms\"\n[agents.closing]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {closing}]\n\
         [agents.odd]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {odd}]"
    );
    let daemon = Daemon::builder().config(&agents).start().await;
    let (turn, _) = run(&daemon, "closing").await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    let (turn, _) = run(&daemon, "odd").await;
    assert!(turn["error"]["message"].as_str().unwrap().contains("E_ODD"), "{turn}");
}

#[tokio::test]
async fn large_payloads_are_cut_before_they_are_kept() {
    let large = "y".repeat(300_000);
    let script = json!([{"handshake": {}}, {"prompt": [
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "big", "rawInput": {"data": large}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": large}}]}},
        {"text": large}
    ]}]);
    let daemon = Daemon::builder().config("[limits]\npayload_max = \"64KiB\"").agent("big", script).start().await;
    let (turn, session) = run(&daemon, "big").await;
    assert_eq!(turn["status"], "completed");
    let messages = session["messages"].as_array().unwrap();
    assert_eq!(messages[1]["content"]["arguments"]["truncated"], true);
    assert_eq!(messages[2]["content"]["result"]["truncated"], true);
    let text: String = messages[3..].iter().map(|message| message["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(text, large, "text is split, not cut");
    assert!(messages.iter().all(|message| message.to_string().len() < 70_000));
}

/// JSON that is nested deeper than parsers read it is not kept: a client that follows would stop at it for good.
#[tokio::test]
async fn what_is_nested_without_end_harms_no_client() {
    let update = |update: String| {
        let params = format!(r#"{{"sessionId":"test-session","update":{update}}}"#);
        json!({"stdout": format!("{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{params}}}\n")})
    };
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let call = |id: &str, depth: usize| {
        let input = nested(depth);
        update(format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"{id}","title":"t","rawInput":{{"a":{input}}}}}"#))
    };
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [
        update(format!(r#"{{"sessionUpdate":"brand_new","payload":{}}}"#, nested(10_000))),
        call("a", 120), call("b", 10_000), {"text": "still here"},
    ]}]}]);
    let daemon = Daemon::builder().agent("deep", script).start().await;
    let (turn, session) = run(&daemon, "deep").await;
    assert_eq!(turn["status"], "completed");
    let id = session["id"].as_str().unwrap();
    let events = daemon.events_so_far(id, None).await;
    assert!(events.iter().any(|event| event.kind == "agent.update" && event.payload()["update"]["truncated"] == true));
    let told = daemon.cli(&["prompt", id, "again"]).await.success();
    assert!(told.contains("still here"), "{told}");
    let messages = daemon.messages(id).await;
    let calls: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool_call").collect();
    assert!(calls.iter().all(|message| message["content"]["arguments"]["truncated"] == true), "{calls:?}");
}

#[tokio::test]
async fn an_agent_that_reaches_out_and_writes_nonsense_does_not_fill_the_log() {
    const ATTEMPTS: usize = 50;
    const LINES_MAX: usize = 20;
    let read = json!({"request": {"method": "fs/read_text_file",
        "params": {"sessionId": "test-session", "path": "/etc/hostname"}}});
    let update = json!({"stdout": "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{}}\n"});
    let steps = [read, update, json!({"longLine": 70000})];
    let steps: Vec<Value> = steps.iter().flat_map(|step| std::iter::repeat_n(step.clone(), ATTEMPTS)).collect();
    let daemon = Daemon::builder()
        .config("[limits]\nline_max = \"64KiB\"\npayload_max = \"64KiB\"")
        .agent("loud", json!([{"handshake": {}}, {"prompt": steps}]))
        .start()
        .await;
    let (turn, _) = run(&daemon, "loud").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["securityEvents"]["path_escape"], ATTEMPTS, "each is counted");
    let log = daemon.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("path_escape"), LINES_MAX);
    assert_eq!(lines("the agent wrote "), LINES_MAX);
}
