//! Messages: what an agent does becomes one message each, however it tells it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::Daemon;
use serde_json::{Value, json};

/// Runs one turn of an agent that does this, and returns its messages but for the prompt: role and content.
async fn messages_of(steps: Value) -> Vec<(String, Value)> {
    let script = json!([{"handshake": {}}, {"prompt": steps}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent_with("acting", script, "permissions = \"deny\"").start().await;
    let session = daemon.create_lazy_session("acting").await;
    daemon.prompt_and_wait(&session, "go").await;
    let messages = daemon.messages(&session).await;
    let said = messages.iter().skip(1);
    said.map(|message| (message["role"].as_str().unwrap().to_owned(), message["content"].clone())).collect()
}

fn update(mut fields: Value) -> Value {
    fields["toolCallId"] = json!("c1");
    fields["sessionUpdate"] = json!("tool_call_update");
    json!({"update": fields})
}

fn roles(messages: &[(String, Value)]) -> Vec<&str> {
    messages.iter().map(|(role, _)| role.as_str()).collect()
}

#[tokio::test]
async fn a_tool_call_that_is_told_by_changes_alone_is_one_call_and_one_result() {
    let messages = messages_of(json!([
        {"thought": "let me "}, {"thought": "see"},
        update(json!({"title": "a.txt", "kind": "read", "status": "in_progress", "rawInput": {"path": "a.txt"}})),
        update(json!({"status": "completed", "rawOutput": "line"})),
        update(json!({"status": "completed", "rawOutput": "line again"})),
        {"update": {"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "high", "status": "pending"}]}},
        {"text": "It says "}, {"text": "line"},
        {"update": {"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "high", "status": "completed"}]}}
    ]))
    .await;
    let expected = json!([
        ["agent", {"type": "thought", "text": "let me see", "partial": false}],
        ["tool_call", {"type": "tool_call", "id": "c1", "name": "a.txt", "kind": "read", "arguments": {"path": "a.txt"}}],
        ["tool_result", {"type": "tool_result", "status": "completed", "result": "line", "error": null}],
        ["agent", {"type": "text", "text": "It says line", "partial": false}],
        ["system", {"type": "plan", "steps": [{"content": "look", "priority": "high", "status": "completed"}]}]
    ]);
    assert_eq!(json!(messages), expected);
}

/// Beside the texts that the agent shows, the JSON that the tool returned is kept. A failure says why.
#[tokio::test]
async fn a_result_keeps_its_structure_and_a_failure_has_its_text() {
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let image = json!([{"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": "iVBORw0K"}}]);
    let raw = json!({"matches": [{"line": 7}]});
    for (fields, result, raw_output, error) in [
        (
            json!({"status": "completed", "content": text("7: x"), "rawOutput": raw}),
            text("7: x"),
            raw.clone(),
            Value::Null,
        ),
        (
            json!({"status": "completed", "content": text("7: x"), "rawOutput": "7: x"}),
            text("7: x"),
            Value::Null,
            Value::Null,
        ),
        (json!({"status": "completed", "content": [], "rawOutput": raw}), raw.clone(), Value::Null, Value::Null),
        (
            json!({"status": "failed", "content": text("no such file")}),
            text("no such file"),
            Value::Null,
            json!("no such file"),
        ),
        (json!({"status": "failed", "rawOutput": {"error": "no"}}), json!({"error": "no"}), Value::Null, json!("no")),
        (json!({"status": "failed", "rawOutput": {"code": 2}}), json!({"code": 2}), Value::Null, json!("{\"code\":2}")),
        (json!({"status": "failed"}), Value::Null, Value::Null, json!("the agent gave no reason")),
    ] {
        let messages = messages_of(json!([update(fields.clone())])).await;
        let content = &messages[1].1;
        assert_eq!((&content["result"], &content["rawOutput"]), (&result, &raw_output), "{fields}");
        assert_eq!(content["error"], error, "{fields}");
    }
    let shot = json!({"status": "completed", "content": image, "rawOutput": [{"type": "image", "data": "iVBORw0K"}]});
    let messages = messages_of(json!([update(shot)])).await;
    assert!(!messages[1].1.to_string().contains("iVBORw0K"), "the data is beside the message: {messages:?}");
}

#[tokio::test]
async fn a_call_keeps_its_name_its_title_and_its_files() {
    let call = json!({"name": "grep", "title": "Search for x", "kind": "search", "status": "completed",
        "locations": [{"path": "/a"}, {"path": "/b"}]});
    let messages = messages_of(json!([update(call)])).await;
    let expected = json!({"type": "tool_call", "id": "c1", "name": "grep", "title": "Search for x", "kind": "search",
        "arguments": null, "locations": ["/a", "/b"]});
    assert_eq!(messages[0].1, expected);
}

#[tokio::test]
async fn a_rejected_call_has_one_result_whether_or_not_the_agent_says_more_of_it() {
    let ask = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "c1", "title": "rm x", "kind": "execute", "status": "pending"},
        "options": [{"optionId": "once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"}]}}});
    for more in [json!([]), json!([update(json!({"status": "failed", "title": "rm x"}))])] {
        let steps = [&[ask.clone()][..], more.as_array().unwrap(), &[json!({"text": "never mind"})]].concat();
        let messages = messages_of(json!(steps)).await;
        assert_eq!(roles(&messages), ["tool_call", "tool_result", "system", "agent"], "{messages:?}");
        assert_eq!(
            (&messages[1].1["status"], &messages[2].1["code"]),
            (&json!("failed"), &json!("permission_rejected"))
        );
    }
}

#[tokio::test]
async fn what_is_cut_off_is_kept_as_far_as_it_came() {
    let script = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"text": "first"},
        update(json!({"title": "make", "kind": "execute", "status": "in_progress"})), {"text": "half an ans"},
        {"exit": 9}]);
    let daemon = Daemon::builder().agent("frail", script).start().await;
    let session = daemon.create_lazy_session("frail").await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["error"]["code"], "agent_exited");
    let messages: Vec<(String, Value)> = daemon
        .messages(&session)
        .await
        .iter()
        .skip(1)
        .map(|message| (message["role"].as_str().unwrap().to_owned(), message["content"].clone()))
        .collect();
    assert_eq!(roles(&messages), ["agent", "tool_call", "agent", "tool_result", "system"], "{messages:?}");
    assert_eq!((&messages[0].1["partial"], &messages[2].1["partial"]), (&json!(false), &json!(true)));
    assert_eq!((&messages[3].1["status"], &messages[4].1["code"]), (&json!("in_progress"), &json!("agent_exited")));
    assert!(messages[3].1["error"].is_string(), "{messages:?}");
}

#[tokio::test]
async fn the_total_counts_what_the_filter_selects_on_all_pages() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"text": "ok"}]}]}]);
    let daemon = Daemon::builder().agent("echo", script).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(daemon.session(&session).await["messagesTotal"], 0);
    daemon.prompt_and_wait(&session, "one").await;
    daemon.prompt_and_wait(&session, "two").await;
    assert_eq!(daemon.session(&session).await["messagesTotal"], 4);
    let times: Vec<String> = daemon
        .messages(&session)
        .await
        .iter()
        .map(|message| message["createdAt"].as_str().unwrap().to_owned())
        .collect();
    let list = async |query: &str| daemon.get(&format!("{path}/messages?{query}")).await.expect_status(200);
    for since in [&times[2], "2999-01-01T00:00:00Z"] {
        let expected = times.iter().filter(|time| time.as_str() >= since).count();
        let found = list(&format!("since={since}")).await;
        assert_eq!(found["total"], expected, "{found}");
        assert_eq!(found["messages"].as_array().unwrap().len(), expected);
    }
    for page in ["limit=1", "after=3", "after=1&limit=2"] {
        assert_eq!(list(page).await["total"], 4, "{page}: a page is no filter");
    }
    let last = daemon.cli(&["messages", &session, "--since", &times[0], "--last", "1", "--json"]).await.success();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["messages"].as_array().unwrap().len(), 1, "{last}");
}
