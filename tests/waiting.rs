//! Waits that people can see: an agent that does not begin a conversation, and one that says nothing in a turn.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const SERVER: &str = "[agents.SLUG.mcp_servers.NAME]\ncommand = \"sh\"\n";

fn servers(slug: &str, names: &[&str]) -> String {
    names.iter().map(|name| SERVER.replace("SLUG", slug).replace("NAME", name)).collect()
}

fn of_kind<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.kind == kind).map(Event::payload).collect()
}

/// Stands at a gate before it begins the conversation.
fn slow() -> Value {
    json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"resume": {}}}}},
        {"switch": {
            "session/new": [{"gate": "asked"}, {"reply": {"sessionId": "s"}}],
            "session/resume": [{"gate": "asked"}, {"reply": {}}]}},
        {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}])
}

#[tokio::test]
async fn whoever_waits_for_a_conversation_is_told_once_which_servers_may_be_why() {
    let daemon = Daemon::builder()
        .config("[processes]\nsession_notice = \"20ms\"")
        .agent("bare", slow())
        .agent_with("one", slow(), &servers("one", &["files"]))
        .agent_with("many", slow(), &servers("many", &["c", "a", "b"]))
        .start()
        .await;
    for (agent, named, words) in [
        ("bare", json!([]), "it may be starting MCP servers from its own settings"),
        ("one", json!(["files"]), "it may be waiting for the MCP server files"),
        ("many", json!(["a", "b", "c"]), "one of the MCP servers a, b, c"),
    ] {
        let session = daemon.create_session(agent).await;
        let gate = daemon.gate(agent);
        let passage = gate.reached("asked").await;
        let seen = daemon.events(&session, None).await.until("process.waiting").await;
        let waiting = seen.last().unwrap().payload();
        assert_eq!((&waiting["phase"], &waiting["servers"]), (&json!("session/new"), &named), "{waiting}");
        let message = waiting["message"].as_str().unwrap();
        assert!(message.contains("has not answered session/new for") && message.ends_with(words), "{message}");
        passage.open().await;
        assert_eq!(daemon.prompt_and_wait(&session, "hello").await["status"], "completed");
        let events = daemon.events_so_far(&session, None).await;
        assert_eq!(of_kind(&events, "process.waiting").len(), 1);

        // The next process is another wait.
        let pid = daemon.session(&session).await["pid"].as_i64().unwrap();
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
        let exited = daemon.events(&session, None).await.until("process.exited").await.pop().unwrap();
        let turn = daemon.prompt(&session, "again").await["turnId"].as_str().unwrap().to_owned();
        let passage = gate.reached("asked").await;
        let seen = daemon.events(&session, Some(exited.id)).await.until("process.waiting").await;
        assert_eq!(seen.last().unwrap().payload()["phase"], "session/resume");
        passage.open().await;
        assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_conversation_that_does_not_begin_in_time_names_the_servers_in_its_error() {
    let hanging =
        json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 1}}, {"expect": "session/new"}, {"hang": true}]);
    let daemon = Daemon::builder()
        .config(
            "[processes]\nsession_timeout = \"300ms\"\nsession_notice = 0\neof_grace = \"50ms\"\nterm_grace = \"50ms\"",
        )
        .agent_with("one", hanging.clone(), &servers("one", &["files"]))
        .agent_with("many", hanging, &servers("many", &["a", "b"]))
        .start()
        .await;
    for (agent, words) in
        [("one", "it may be waiting for the MCP server files"), ("many", "one of the MCP servers a, b")]
    {
        let session = daemon.create_lazy_session(agent).await;
        let turn = daemon.prompt_and_wait(&session, "hello").await;
        assert_eq!(turn["error"]["code"], "timeout", "{turn}");
        let message = turn["error"]["message"].as_str().unwrap();
        let expected = "did not answer session/new in time (processes.session_timeout); it may be waiting for";
        assert!(message.contains(expected) && message.contains(words), "{message}");
        let events = daemon.events_so_far(&session, None).await;
        assert!(of_kind(&events, "process.waiting").is_empty(), "0: nobody is told");
        let check =
            daemon.post(&format!("/v1/agents/{agent}/check"), json!({"session": true})).await.expect_status(200);
        assert!(check["error"]["message"].as_str().unwrap().contains(words), "{check}");
    }
}

#[tokio::test]
async fn a_silent_turn_is_told_of_once_a_silence() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"text": "one"}, {"gate": "first"}, {"text": "two"}, {"gate": "second"}, {"text": "three"}]}]}]);
    let config = "[sessions]\nsilence_notice = \"20ms\"\nturn_silence_timeout = \"10m\"";
    let daemon = Daemon::builder().config(config).agent("quiet", script).start().await;
    let session = daemon.create_lazy_session("quiet").await;
    let accepted = daemon.prompt(&session, "hello").await;
    let turn = accepted["turnId"].as_str().unwrap();
    let mut events = daemon.events(&session, accepted["after"].as_i64()).await;
    for gate in ["first", "second"] {
        let passage = daemon.gate("quiet").reached(gate).await;
        let event = events.until("turn.waiting").await.pop().unwrap();
        assert_eq!(event.data["turnId"], turn);
        let message = event.payload()["message"].as_str().unwrap();
        assert!(message.starts_with("the agent has sent nothing for "), "{message}");
        assert!(message.contains("retrying a busy service") && message.contains("acpd waits until "), "{message}");
        assert!(message.ends_with("(sessions.turn_silence_timeout)"), "{message}");
        passage.open().await;
    }
    assert_eq!(daemon.wait_turn(&session, turn).await["status"], "completed");
    let events = daemon.events_so_far(&session, None).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let told: Vec<usize> = (0..kinds.len()).filter(|index| kinds[*index] == "turn.waiting").collect();
    assert!(told.len() >= 2, "{kinds:?}");
    // How quick the agent is is not known; but between two of them it has said something.
    for pair in told.windows(2) {
        assert!(kinds[pair[0]..pair[1]].contains(&"message.delta"), "{kinds:?}");
    }
}

#[tokio::test]
async fn a_silence_that_waits_for_a_person_is_not_the_agents() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
            "toolCall": {"toolCallId": "c", "title": "x", "kind": "execute", "status": "pending"},
            "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]}}},
        {"gate": "answered"}]}, {"repeat": [{"prompt": []}]}]);
    let config = "[sessions]\nsilence_notice = \"20ms\"\nturn_silence_timeout = 0";
    let daemon = Daemon::builder().config(config).agent("asking", script).start().await;
    let session = daemon.create_lazy_session("asking").await;
    let accepted = daemon.prompt(&session, "hello").await;
    let mut stream = daemon.events(&session, accepted["after"].as_i64()).await;
    let asked = stream.until("permission.requested").await.pop().unwrap();
    let id = asked.payload()["permissionId"].as_str().unwrap();
    daemon.post(&format!("/v1/permissions/{id}"), json!({"optionId": "yes"})).await.expect_status(200);
    let passage = daemon.gate("asking").reached("answered").await;
    let seen = stream.until("turn.waiting").await;
    let kinds: Vec<&str> = seen.iter().map(|event| event.kind.as_str()).collect();
    let (answered, told) = (kinds.iter().position(|kind| *kind == "permission.resolved"), kinds.len() - 1);
    assert!(answered.is_some_and(|answered| answered < told), "{kinds:?}");
    let message = seen.last().unwrap().payload()["message"].as_str().unwrap();
    assert!(message.contains("without a time limit"), "{message}");
    passage.open().await;
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
}

#[tokio::test]
async fn people_see_on_stderr_that_an_agent_is_slow() {
    let script = json!([{"expect": "initialize"}, {"reply": {"protocolVersion": 1}},
        {"expect": "session/new"}, {"gate": "new"}, {"reply": {"sessionId": "test-session"}},
        {"prompt": [{"gate": "turn"}, {"text": "done"}]}, {"repeat": [{"prompt": []}]}]);
    let daemon = Daemon::builder()
        .config("[processes]\nsession_notice = \"20ms\"\n[sessions]\nsilence_notice = \"20ms\"")
        .agent_with("slow", script, &servers("slow", &["files"]))
        .start()
        .await;
    let run = daemon.cli(&["run", "--agent", "slow", "hello"]);
    let gates = async {
        for (gate, kind) in [("new", "process.waiting"), ("turn", "turn.waiting")] {
            let passage = daemon.gate("slow").reached(gate).await;
            let sessions = daemon.get("/v1/sessions").await.expect_status(200);
            let session = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
            daemon.events(&session, None).await.until(kind).await;
            passage.open().await;
        }
    };
    let (seen, ()) = tokio::join!(run, gates);
    assert_eq!(seen.stdout, "done\n", "{}", seen.stderr);
    assert!(seen.stderr.contains("the agent has not answered session/new for"), "{}", seen.stderr);
    assert!(seen.stderr.contains("it may be waiting for the MCP server files"), "{}", seen.stderr);
    assert!(seen.stderr.contains("the agent has sent nothing for"), "{}", seen.stderr);
}

/// It waits for the server and not for the conversation, which is there when the server is.
#[tokio::test]
async fn a_server_that_hangs_does_not_cost_the_session_its_conversation() {
    let load = json!([{"gate": "loading", "cases": {"hang": [{"hang": true}], "go": [{"text": "history"}]}}]);
    let script = json!([{"handshake": {"capabilities": {"loadSession": true}, "load": load}},
        {"repeat": [{"prompt": [{"text": "here"}]}]}]);
    let server = "[agents.slow.mcp_servers.stuck]\ncommand = \"true\"\n";
    let config = "[processes]\nsession_timeout = \"1s\"\neof_grace = \"50ms\"\nterm_grace = \"50ms\"\n";
    let mut daemon = Daemon::builder().config(config).agent_with("slow", script, server).start().await;
    let session = daemon.create_session("slow").await;
    assert_eq!(daemon.prompt_and_wait(&session, "go").await["status"], "completed");
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);

    for (word, status) in [("hang", "failed"), ("go", "completed")] {
        let accepted = daemon.prompt(&session, "again").await;
        daemon.gate("slow").reached("loading").await.say(word).await;
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["status"], status, "{turn}");
        if word == "hang" {
            let message = turn["error"]["message"].as_str().unwrap();
            assert!(message.contains("session/load") && message.contains("the MCP server stuck"), "{message}");
        }
    }
    assert_eq!(daemon.session(&session).await["contextRestored"], "native");
}
