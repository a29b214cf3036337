//! One prompt through the real daemon, end to end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event};
use serde_json::{Value, json};

/// An agent that answers every prompt with it.
fn echo() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "you said: "}, {"textFromPrompt": true}]}]}])
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

/// The text that a stream of deltas makes.
fn text_of(events: &[Event]) -> String {
    let deltas = events.iter().filter(|event| event.kind == "message.delta" && event.payload()["type"] == "text");
    deltas.map(|event| event.payload()["text"].as_str().unwrap()).collect()
}

#[track_caller]
fn assert_gapless(events: &[Event]) {
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.id, events[0].id + i64::try_from(index).unwrap(), "sequences have no gap");
        assert_eq!(event.data["sequence"], event.id);
    }
}

#[tokio::test]
async fn a_prompt_is_answered_streamed_and_recorded() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let mut stream = daemon.events(&session, None).await;
    let accepted = daemon.prompt(&session, "hello").await;
    assert_eq!(accepted["position"], 0);

    let events = stream.until("turn.completed").await;
    assert_gapless(&events);
    assert_eq!(events[0].id, 1, "no cursor means from the start");
    assert_eq!(text_of(&events), "you said: hello");
    let expected =
        ["session.created", "process.starting", "process.ready", "turn.queued", "turn.started", "turn.completed"];
    for kind in expected {
        assert_eq!(kinds(&events).iter().filter(|seen| **seen == kind).count(), 1, "{kind} in {:?}", kinds(&events));
    }
    let queued = events.iter().find(|event| event.kind == "turn.queued").unwrap();
    assert_eq!(accepted["after"], queued.id - 1, "the 202 tells from where to follow");

    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!((&turn["status"], &turn["stopReason"]), (&json!("completed"), &json!("end_turn")));

    let messages = daemon.messages(&session).await;
    let shown: Vec<(&str, &str)> = messages
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["content"]["text"].as_str().unwrap()))
        .collect();
    assert_eq!(shown, [("user", "hello"), ("agent", "you said: hello")]);
    assert_eq!(messages[0]["id"], accepted["messageId"]);
    assert_eq!(messages[1]["content"]["partial"], false);

    let view = daemon.session(&session).await;
    assert_eq!((&view["title"], &view["turns"]), (&json!("hello"), &json!(1)));
    assert_eq!((&view["status"], &view["processState"]), (&json!("active"), &json!("ready")));
    assert_eq!(view["contextRestored"], "fresh");
    assert_eq!(view["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn ten_thousand_chunks_arrive_complete_and_in_order_everywhere() {
    const CHUNKS: usize = 10_000;
    let script = json!([{"handshake": {}}, {"prompt": [{"flood": {"count": CHUNKS, "text": "chunk {} "}}]}, {"repeat": [{"prompt": []}]}]);
    let daemon = Daemon::builder().agent("flood", script).start().await;
    let session = daemon.create_session("flood").await;
    let mut first = daemon.events(&session, None).await;
    let mut second = daemon.events(&session, None).await;
    let accepted = daemon.prompt(&session, "go").await;
    let expected = (0..CHUNKS).fold(String::new(), |text, index| text + &format!("chunk {index} "));

    let seen = first.until("turn.completed").await;
    assert_gapless(&seen);
    assert_eq!(text_of(&seen), expected);
    let seen_too = second.until("turn.completed").await;
    let shape = |events: &[Event]| -> Vec<(i64, String, Value)> {
        events.iter().map(|event| (event.id, event.kind.clone(), event.data.clone())).collect()
    };
    assert_eq!(shape(&seen), shape(&seen_too), "two clients see the same events");

    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[1]["content"]["text"], expected);
}

#[tokio::test]
async fn the_end_of_a_flood_is_told_although_nothing_follows_it() {
    const CHUNKS: usize = 2_000;
    let script = json!([{"handshake": {}}, {"prompt": [
        {"flood": {"count": CHUNKS, "text": "chunk {} "}}, {"text": "and silence"}, {"gate": "end"}
    ]}]);
    let daemon = Daemon::builder().agent("flood", script).start().await;
    let session = daemon.create_session("flood").await;
    let mut stream = daemon.events(&session, None).await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("flood").reached("end").await;
    let is_last = |event: &Event| event.payload()["text"].as_str().is_some_and(|text| text.ends_with("and silence"));
    let seen = stream.until_event("the last words", is_last).await;
    let expected = (0..CHUNKS).fold(String::new(), |text, index| text + &format!("chunk {index} "));
    assert_eq!(text_of(&seen), expected + "and silence");
    passage.open().await;
    assert_eq!(daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await["status"], "completed");
}

#[tokio::test]
async fn a_client_that_reconnects_misses_nothing() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"text": "one "}, {"gate": "middle"}, {"text": "two "}, {"text": "three"}
    ]}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("gated", script).start().await;
    let session = daemon.create_session("gated").await;
    let mut stream = daemon.events(&session, None).await;
    daemon.prompt(&session, "go").await;
    let mut seen = stream.until("message.delta").await;
    drop(stream);

    daemon.gate("gated").reached("middle").await.open().await;
    let last = seen.last().unwrap().id;
    let mut again = daemon.events_with_last_id(&session, last).await;
    seen.extend(again.until("turn.completed").await);
    assert_gapless(&seen);
    assert_eq!(text_of(&seen), "one two three");

    let replayed = daemon.events_so_far(&session, Some(last)).await;
    assert_eq!(replayed.first().unwrap().id, last + 1);
    assert_eq!(replayed.last().unwrap().kind, "turn.completed", "follow=false ends at the tail");
}

#[tokio::test]
async fn a_cursor_beyond_the_head_is_told_that_the_log_is_another() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let mut stream = daemon.events(&session, Some(1_000_000)).await;
    let reset = stream.next().await.unwrap();
    assert_eq!(reset.kind, "log.reset");
    assert_eq!(stream.next().await.unwrap().id, 1, "then the log from its beginning");
}

#[tokio::test]
async fn the_stream_over_all_sessions_has_one_cursor() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let mut all = daemon.event_stream("/v1/events", &[]).await;
    let first = daemon.create_session("echo").await;
    let second = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&first, "a").await;
    daemon.prompt_and_wait(&second, "b").await;
    let seen = all
        .until_event("the second session's end", |event| {
            event.kind == "turn.completed" && event.data["sessionId"] == second.as_str()
        })
        .await;
    assert!(seen.windows(2).all(|pair| pair[0].id < pair[1].id));
    let sessions: std::collections::BTreeSet<&str> =
        seen.iter().map(|event| event.data["sessionId"].as_str().unwrap()).collect();
    assert_eq!(sessions.len(), 2);
}

#[tokio::test]
async fn turns_run_one_after_the_other_in_the_order_they_were_accepted() {
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "first"}, {"textFromPrompt": true}]},
        {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let daemon = Daemon::builder().agent("gated", script).start().await;
    let session = daemon.create_session("gated").await;
    let first = daemon.prompt(&session, "one").await;
    let passage = daemon.gate("gated").reached("first").await;
    let second = daemon.prompt(&session, "two").await;
    let third = daemon.prompt(&session, "three").await;
    assert_eq!((&second["position"], &third["position"]), (&json!(1), &json!(2)));
    let busy = daemon.session(&session).await;
    assert_eq!(busy["processState"], "busy");
    passage.open().await;

    let last = daemon.wait_turn(&session, third["turnId"].as_str().unwrap()).await;
    assert_eq!(last["status"], "completed");
    let spoken: Vec<Value> = daemon
        .messages(&session)
        .await
        .into_iter()
        .filter(|message| message["role"] == "agent")
        .map(|message| json!([message["turnId"], message["content"]["text"]]))
        .collect();
    let expected =
        [json!([first["turnId"], "one"]), json!([second["turnId"], "two"]), json!([third["turnId"], "three"])];
    assert_eq!(spoken, expected);
}

#[tokio::test]
async fn updates_before_the_session_is_known_and_after_the_turn_are_kept() {
    let early = json!({"sessionUpdate": "available_commands_update", "availableCommands": []});
    let late = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "by the way"}});
    let unknown = json!({"sessionUpdate": "from_the_future", "depth": {"a": [1, 2, 3]}});
    let script = json!([
        {"expect": "initialize"}, {"reply": {"protocolVersion": 1}},
        {"expect": "session/new"}, {"update": early}, {"reply": {"sessionId": "test-session"}},
        {"expect": "session/prompt"}, {"update": unknown}, {"reply": {"stopReason": "end_turn"}}, {"update": late},
        {"gate": "said"}, {"repeat": [{"prompt": []}]}
    ]);
    let daemon = Daemon::builder().agent("odd", script).start().await;
    let session = daemon.create_session("odd").await;
    daemon.prompt_and_wait(&session, "go").await;
    daemon.gate("odd").reached("said").await.open().await;
    daemon.prompt_and_wait(&session, "again").await;

    let events = daemon.events_so_far(&session, None).await;
    let updates: Vec<&Value> =
        events.iter().filter(|event| event.kind == "agent.update").map(|event| &event.payload()["update"]).collect();
    assert_eq!(updates, [&early, &unknown]);
    let messages = daemon.messages(&session).await;
    let aside = messages.iter().find(|message| message["content"]["text"] == "by the way").expect("it is recorded");
    assert_eq!(aside["turnId"], Value::Null, "it belongs to no turn");
}

#[tokio::test]
async fn thoughts_plans_and_tools_are_messages_of_their_own() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"thought": "let me see"},
        {"update": {"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "high", "status": "pending"}]}},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "a.txt", "kind": "read", "rawInput": {"path": "a.txt"}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
                    "content": [{"type": "content", "content": {"type": "text", "text": "line"}}]}},
        {"update": {"sessionUpdate": "usage_update", "used": 10, "size": 100}},
        {"text": "done"}
    ]}]);
    let daemon = Daemon::builder().agent("busy", script).start().await;
    let session = daemon.create_session("busy").await;
    daemon.prompt_and_wait(&session, "go").await;
    let mut messages = daemon.messages(&session).await;
    for message in &mut messages {
        let message = message.as_object_mut().unwrap();
        message.retain(|key, _| ["role", "content", "toolCallId", "sequence"].contains(&key.as_str()));
    }
    insta::assert_json_snapshot!(messages);
    let events = daemon.events_so_far(&session, None).await;
    for kind in ["plan.updated", "tool.started", "tool.completed", "usage.updated"] {
        assert!(kinds(&events).contains(&kind), "{kind} in {:?}", kinds(&events));
    }
}

#[tokio::test]
async fn the_agent_gets_its_workspace_and_a_clean_environment() {
    let script = json!([{"handshake": {}}, {"prompt": [
        {"textFromCwd": true}, {"text": "|"}, {"textFromEnvironment": "SECRET_OF_THE_DAEMON"}, {"text": "|"},
        {"textFromEnvironment": "FROM_PROFILE"}, {"text": "|"}, {"textFromEnvironment": "PASSED"}
    ]}]);
    let daemon = Daemon::builder()
        .env("SECRET_OF_THE_DAEMON", "hunter2")
        .env("PASSED", "through")
        .agent_with(
            "nosy",
            script,
            "env = { FROM_PROFILE = \"value-of-the-profile\" }\nenv_plain = [\"FROM_*\"]\nenv_pass = [\"PASSED\"]",
        )
        .start()
        .await;
    let session = daemon.create_session("nosy").await;
    daemon.prompt_and_wait(&session, "go").await;
    let messages = daemon.messages(&session).await;
    let expected = format!("{}|(unset)|value-of-the-profile|through", daemon.workspace().display());
    assert_eq!(messages[1]["content"]["text"], expected);
    let shown = daemon.session(&session).await["profile"].to_string();
    assert!(shown.contains("FROM_PROFILE") && !shown.contains("value-of-the-profile"), "{shown}");
    assert!(!daemon.log().contains("value-of-the-profile"));
}

#[tokio::test]
async fn permissions_are_answered_by_the_policy_and_recorded() {
    let ask = json!({"request": {"method": "session/request_permission", "params": {
        "sessionId": "test-session",
        "toolCall": {"toolCallId": "t1", "title": "rm -rf x", "kind": "execute", "status": "pending",
            "rawInput": {"command": "rm -rf x"}},
        "options": [
            {"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "once", "name": "Once", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"}
        ]
    }}});
    let script = json!([{"handshake": {}}, {"prompt": [ask, {"textFromAnswer": true}]}]);
    let daemon = Daemon::builder()
        .agent_with("trusted", script.clone(), "permissions = \"allow\"")
        .agent_with("refused", script, "permissions = \"deny\"")
        .start()
        .await;
    for (agent, option, result) in [("trusted", "once", None), ("refused", "no", Some("failed"))] {
        let session = daemon.create_session(agent).await;
        daemon.prompt_and_wait(&session, "go").await;
        let messages = daemon.messages(&session).await;
        let spoken = messages.iter().find(|message| message["role"] == "agent").unwrap();
        assert!(spoken["content"]["text"].as_str().unwrap().contains(&format!("\"optionId\":\"{option}\"")), "{agent}");
        let events = daemon.events_so_far(&session, None).await;
        let resolved = events.iter().find(|event| event.kind == "permission.resolved").unwrap();
        assert_eq!(resolved.payload()["optionId"], option);
        if let Some(status) = result {
            let result = messages.iter().find(|message| message["role"] == "tool_result").unwrap();
            assert_eq!(result["content"]["status"], status);
            assert!(messages.iter().any(|message| message["content"]["code"] == "permission_rejected"));
        }
    }
}

#[tokio::test]
async fn the_demo_agent_works_without_any_key() {
    let daemon = Daemon::builder().env("ACPD_DEMO_PAUSE_MS", "0").start().await;
    std::fs::write(daemon.workspace().join("README.md"), "# Project\n\nText.\n").unwrap();
    let session = daemon.create_session("demo").await;
    let turn = daemon.prompt_and_wait(&session, "what is this?").await;
    assert_eq!(turn["status"], "completed");
    let messages = daemon.messages(&session).await;
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let calls = ["tool_call", "tool_result", "tool_call", "tool_result"];
    assert_eq!(roles, [["user", "agent"].as_slice(), &calls, &["agent", "system"]].concat());
    assert_eq!(messages[1]["content"]["type"], "thought");
    assert!(messages[5]["content"].to_string().contains("# Project"));
    assert!(messages[6]["content"]["text"].as_str().unwrap().contains("what is this?"));
    assert!(turn["usage"]["outputTokens"].as_u64().unwrap() > 50, "{turn}");
}
