//! `POST …/messages`: a prompt under another name, and context that waits for the next prompt.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, prompts};
use serde_json::{Value, json};

fn script() -> Value {
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"text": "ok"}]}]}])
}

async fn add(daemon: &Daemon, session: &str, text: &str) -> harness::Reply {
    daemon.post(&format!("/v1/sessions/{session}/messages"), json!({"role": "system", "text": text})).await
}

#[tokio::test]
async fn a_system_message_waits_for_the_next_prompt_through_the_death_of_the_daemon() {
    let mut daemon = Daemon::builder().agent("plain", script()).start().await;
    let session = daemon.create_lazy_session("plain").await;
    let message = add(&daemon, &session, "be brief").await.expect_status(201);
    assert_eq!((&message["role"], &message["sequence"]), (&json!("system"), &json!(1)));
    assert_eq!(message["content"], json!({"type": "text", "text": "be brief", "partial": false}));
    assert_eq!(message["turnId"], Value::Null);
    let blocks =
        json!({"role": "system", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "kind"}]});
    daemon.post(&format!("/v1/sessions/{session}/messages"), blocks).await.expect_status(201);
    let shown = daemon.session(&session).await;
    assert_eq!((&shown["turns"], &shown["processState"]), (&json!(0), &json!("stopped")), "it begins nothing");
    daemon.kill().await;
    daemon.restart().await;

    daemon.prompt_and_wait(&session, "hello").await;
    daemon.prompt_and_wait(&session, "again").await;
    let heard = prompts(&daemon.heard("plain"));
    assert_eq!(heard, [vec!["be brief", "be\nkind", "hello"], vec!["again"]], "in order, and once");
    assert_eq!(daemon.sql_number("SELECT count(*) FROM waiting_messages".to_owned()).await, 0);

    // An agent that starts from nothing gets what was said before in the transcript, and what waits beside it.
    add(&daemon, &session, "be bold").await.expect_status(201);
    daemon.kill().await;
    daemon.restart().await;
    daemon.prompt_and_wait(&session, "and now").await;
    let heard = prompts(&daemon.heard("plain"));
    let [transcript, rest @ ..] = &heard[2][..] else { panic!("{heard:?}") };
    assert_eq!(rest, ["be bold", "and now"]);
    assert_eq!(transcript.matches("## Context\n\nbe brief").count(), 1, "{transcript}");
    assert!(!transcript.contains("be bold"), "{transcript}");
}

#[tokio::test]
async fn a_turn_that_the_agent_never_heard_of_leaves_what_waited() {
    let daemon = Daemon::builder().agent("plain", script()).start().await;
    let session = daemon.create_session("plain").await;
    add(&daemon, &session, "be brief").await.expect_status(201);
    let sound = json!({"content": [{"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}]});
    let reply = daemon.post(&format!("/v1/sessions/{session}/prompt"), sound).await;
    // Refused, or failed when the agent had not said yet that it takes no sounds.
    if reply.status == 202 {
        let turn = daemon.wait_turn(&session, reply.body["turnId"].as_str().unwrap()).await;
        assert_eq!(turn["error"]["code"], "unsupported_content");
    }
    daemon.prompt_and_wait(&session, "hello").await;
    assert_eq!(prompts(&daemon.heard("plain")), [["be brief", "hello"]]);
}

#[tokio::test]
async fn what_cannot_be_added_is_refused() {
    let mut daemon = Daemon::builder()
        .config("[control]\nprompts_per_minute = 1000\n[limits]\nprompt_max = \"1KiB\"")
        .agent("plain", script())
        .start()
        .await;
    let session = daemon.create_lazy_session("plain").await;
    let path = format!("/v1/sessions/{session}/messages");
    for (body, field) in [
        (json!({"text": "x"}), "role"),
        (json!({"role": "agent", "text": "x"}), "role"),
        (json!({"role": "system"}), "text"),
        (json!({"role": "system", "text": " "}), "text"),
        (json!({"role": "system", "text": "x", "turn": 1}), "turn"),
        (json!({"role": "system", "text": "x".repeat(1025)}), "text"),
        (
            json!({"role": "system", "content": [{"type": "resource_link", "uri": "x:y", "name": "n"}]}),
            "content[0].type",
        ),
    ] {
        let refused = daemon.post(&path, body).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    assert!(daemon.messages(&session).await.is_empty());
    for number in 0..32 {
        add(&daemon, &session, &format!("note {number}")).await.expect_status(201);
    }
    assert_eq!(add(&daemon, &session, "one too many").await.expect_status(429)["error"], "queue_full");
    let accepted = daemon.post(&path, json!({"role": "user", "text": "hello"})).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await["status"], "completed");
    assert_eq!(prompts(&daemon.heard("plain"))[0].len(), 33);
    for _ in 0..2 {
        add(&daemon, &session, &"x".repeat(500)).await.expect_status(201);
    }
    assert_eq!(add(&daemon, &session, &"x".repeat(500)).await.status, 429, "together they are bounded too");

    daemon.restart().await;
    assert_eq!(add(&daemon, &session, "x").await.expect_status(409)["error"], "session_suspended");
    let nobody = "/v1/sessions/01a1e272-8a8e-762f-a984-29c55e0e6330/messages";
    daemon.post(nobody, json!({"role": "system", "text": "x"})).await.expect_status(404);
}

#[tokio::test]
async fn a_message_of_a_user_is_a_prompt_also_with_its_text_as_the_content() {
    let daemon = Daemon::builder().config("[limits]\nprompt_max = \"1KiB\"").agent("plain", script()).start().await;
    let session = daemon.create_lazy_session("plain").await;
    let own = format!("/v1/sessions/{session}/messages");
    let body = json!({"role": "user", "content": {"text": "How much is 2+2?"}});
    let accepted = daemon.post(&own, body).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await["status"], "completed");
    let prompt = daemon.messages(&session).await.into_iter().find(|message| message["id"] == accepted["messageId"]);
    let prompt = prompt.unwrap();
    assert_eq!(prompt["role"], "user");
    assert_eq!(prompt["content"], json!({"type": "text", "text": "How much is 2+2?", "partial": false}));
    assert_eq!(prompts(&daemon.heard("plain")), [["How much is 2+2?"]]);
    let context = json!({"role": "system", "content": {"text": "be brief"}});
    daemon.post(&own, context).await.expect_status(201);

    let before = daemon.messages(&session).await.len();
    for (content, field) in [
        (json!({}), "content.text"),
        (json!({"text": " "}), "content.text"),
        (json!({"text": 4}), "content.text"),
        (json!({"text": "x", "size": 1}), "content.size"),
        (json!({"text": "x".repeat(1025)}), "content.text"),
        (json!("x"), "content"),
    ] {
        let refused = daemon.post(&own, json!({"role": "user", "content": content})).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{refused}");
    }
    for role in ["assistant", "tool_call", "tool_result", "agent"] {
        let refused = daemon.post(&own, json!({"role": role, "content": {"text": "4"}})).await.expect_status(400);
        assert_eq!(refused["details"]["field"], "role", "{refused}");
        assert!(refused["hint"].as_str().unwrap().contains("the role user for a prompt"), "{refused}");
    }
    assert_eq!(daemon.messages(&session).await.len(), before, "nothing was added");
}

/// However a turn ends that did not take it in, the next one has it.
#[tokio::test]
async fn a_system_message_is_owed_until_a_turn_ends_well() {
    let script = json!([{"record": true}, {"handshake": {"capabilities": {"loadSession": true},
        "load": [{"update": {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "x"}}}]}},
    {"repeat": [
        {"expect": "session/prompt"},
        {"gate": "prompted", "cases": {
            "refuse": [{"replyError": {"code": -32000, "message": "sign in"}}],
            "decline": [{"reply": {"stopReason": "refusal"}}],
            "crash": [{"exit": 3}],
            "answer": [{"text": "ok"}, {"reply": {"stopReason": "end_turn"}}],
        }},
    ]}]);
    let daemon = Daemon::builder().agent("plain", script).start().await;
    let session = daemon.create_session("plain").await;
    let endings = ["refuse", "decline", "crash", "answer", "answer"];
    add(&daemon, &session, "be brief").await.expect_status(201);
    for (number, ending) in endings.iter().enumerate() {
        let accepted = daemon.prompt(&session, &format!("prompt {number}")).await;
        let gate = daemon.gate("plain").reached("prompted").await;
        if *ending == "answer" && number == 3 {
            // What comes while a turn is running is for the next one.
            add(&daemon, &session, "be kind").await.expect_status(201);
        }
        gate.say(ending).await;
        daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    }
    let heard = prompts(&daemon.heard("plain"));
    for (number, prompt) in heard.iter().enumerate().take(4) {
        assert_eq!(prompt[prompt.len() - 2..], ["be brief".to_owned(), format!("prompt {number}")], "{heard:?}");
    }
    assert_eq!(heard[4], ["be kind", "prompt 4"]);
}
