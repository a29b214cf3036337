//! Questions of agents: they wait for a person, are answered once, and every answer is in the record.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::Daemon;
use serde_json::{Value, json};

/// The two halves of a question: `ask`, and later `awaitAnswer`; or with `request` both at once.
fn question(verb: &str, tool_call: &Value) -> Value {
    json!({verb: {"method": "session/request_permission", "params": {"sessionId": "test-session", "toolCall": tool_call,
    "options": [
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"}
    ]}}})
}

fn run(id: &str, command: &str) -> Value {
    json!({"toolCallId": id, "title": format!("Run {command}"), "kind": "execute", "status": "pending",
        "rawInput": {"command": command}})
}

/// An agent that asks one thing in every turn, and says what it was told.
fn asking(tool_call: &Value) -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [question("request", tool_call), {"textFromAnswer": true}]}]}])
}

async fn open(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.get("/v1/permissions").await.expect_status(200);
    list["permissions"].as_array().unwrap().clone()
}

/// Prompts, and returns the turn's id and the question that came of it.
async fn prompt_and_be_asked(daemon: &Daemon, session: &str) -> (String, Value) {
    let accepted = daemon.prompt(session, "go").await;
    let mut events = daemon.events(session, accepted["after"].as_i64()).await;
    let asked = events.until("permission.requested").await;
    let id = asked.last().unwrap().payload()["permissionId"].as_str().unwrap().to_owned();
    let permission = daemon.get(&format!("/v1/permissions/{id}")).await.expect_status(200);
    (accepted["turnId"].as_str().unwrap().to_owned(), permission)
}

async fn shown(daemon: &Daemon, permission: &Value) -> Value {
    daemon.get(&format!("/v1/permissions/{}", permission["id"].as_str().unwrap())).await.expect_status(200)
}

async fn answer(daemon: &Daemon, permission: &Value, body: Value) -> harness::Reply {
    daemon.post(&format!("/v1/permissions/{}", permission["id"].as_str().unwrap()), body).await
}

async fn last_words(daemon: &Daemon, session: &str) -> String {
    let messages = daemon.messages(session).await;
    let said = messages.iter().rfind(|message| message["role"] == "agent").expect("the agent said something");
    said["content"]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_question_waits_with_nobody_attached_and_is_answered_by_whoever_comes() {
    let daemon = Daemon::builder().agent("asking", asking(&run("c1", "make install"))).start().await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert_eq!(
        (&asked["status"], &asked["kind"], &asked["toolCallId"]),
        (&json!("open"), &json!("tool"), &json!("c1"))
    );
    assert_eq!((&asked["sessionId"], &asked["turnId"]), (&json!(session), &json!(turn)));
    assert_eq!(asked["action"], json!({"kind": "execute", "paths": [], "command": "make install"}));
    assert_eq!(asked["options"].as_array().unwrap().len(), 3);
    assert_eq!(asked["request"]["toolCall"]["toolCallId"], "c1");

    // Every connection so far is gone. It is found by its session and among all.
    assert_eq!(open(&daemon).await[0]["id"], asked["id"]);
    let own = daemon.get(&format!("/v1/sessions/{session}/permissions")).await.expect_status(200);
    assert_eq!((&own["total"], &own["permissions"][0]["id"]), (&json!(1), &asked["id"]));
    assert_eq!(daemon.session(&session).await["openPermissions"], 1);

    let path = format!("/v1/sessions/{session}/permissions/{}", asked["id"].as_str().unwrap());
    let answered = daemon.post(&path, json!({"decision": "allow"})).await.expect_status(200);
    let resolution = &answered["resolution"];
    assert_eq!((&answered["status"], &resolution["decision"]), (&json!("answered"), &json!("allow")));
    assert_eq!((&resolution["outcome"], &resolution["optionId"]), (&json!("selected"), &json!("once")));
    assert_eq!((&resolution["always"], &resolution["by"]["type"]), (&json!(false), &json!("person")));
    assert_eq!(resolution["by"]["pid"], std::process::id());
    assert!(resolution["by"]["uid"].is_u64() && resolution["by"]["program"].is_string(), "{resolution}");
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    assert!(last_words(&daemon, &session).await.contains("\"optionId\":\"once\""));
    assert_eq!(daemon.session(&session).await["openPermissions"], 0);
    assert!(open(&daemon).await.is_empty());
    let all = daemon.get("/v1/permissions?status=all").await.expect_status(200);
    assert_eq!((&all["total"], &all["permissions"][0]), (&json!(1), &answered));
}

#[tokio::test]
async fn of_two_answers_at_once_one_wins_and_the_other_is_told_who_did() {
    let daemon = Daemon::builder().agent("asking", asking(&run("c1", "make"))).start().await;
    let session = daemon.create_session("asking").await;
    for _ in 0..5 {
        let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
        let (first, second) = tokio::join!(
            answer(&daemon, &asked, json!({"decision": "allow"})),
            answer(&daemon, &asked, json!({"decision": "reject"}))
        );
        let (winner, loser) = if first.status == 200 { (first, second) } else { (second, first) };
        let winner = winner.expect_status(200);
        let refused = loser.expect_status(409);
        assert_eq!(refused["error"], "permission_answered");
        assert_eq!(refused["details"]["resolution"], winner["resolution"]);
        daemon.wait_turn(&session, &turn).await;
    }
}

#[tokio::test]
async fn what_makes_no_sense_changes_nothing() {
    let daemon = Daemon::builder().agent("asking", asking(&run("c1", "make"))).start().await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    for (body, field) in [
        (json!({}), "decision"),
        (json!({"optionId": "maybe"}), "optionId"),
        (json!({"decision": "maybe"}), "decision"),
        (json!({"decision": "allow", "optionId": "once"}), "decision"),
        (json!({"optionId": "once", "always": true}), "always"),
        (json!({"decision": "allow", "content": {}}), "content"),
        (json!({"action": "accept"}), "action"),
        (json!({"decision": "allow", "colour": 1}), "colour"),
    ] {
        let refused = answer(&daemon, &asked, body.clone()).await.expect_status(400);
        assert_eq!(refused["details"]["field"], field, "{body}: {refused}");
    }
    let refused = answer(&daemon, &asked, json!({"optionId": "maybe"})).await.expect_status(400);
    assert!(refused["hint"].as_str().unwrap().contains("always, once, no"), "{refused}");
    assert_eq!(refused["details"]["options"], asked["options"]);
    for path in ["/v1/permissions/x", "/v1/permissions/019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e"] {
        assert_eq!(daemon.get(path).await.expect_status(404)["error"], "permission_not_found");
    }
    let other = daemon.create_lazy_session("asking").await;
    let elsewhere = format!("/v1/sessions/{other}/permissions/{}", asked["id"].as_str().unwrap());
    daemon.post(&elsewhere, json!({"decision": "allow"})).await.expect_status(404);
    assert_eq!(daemon.get("/v1/permissions?status=shut").await.expect_status(400)["details"]["field"], "status");
    assert_eq!(shown(&daemon, &asked).await["status"], "open");
    answer(&daemon, &asked, json!({"optionId": "no"})).await.expect_status(200);
    daemon.wait_turn(&session, &turn).await;
    assert!(last_words(&daemon, &session).await.contains("\"optionId\":\"no\""));
}

#[tokio::test]
async fn a_question_ends_with_whatever_it_was_asked_for() {
    let daemon = Daemon::builder()
        .agent("asking", asking(&run("c1", "make")))
        .agent("frail", json!([{"handshake": {}}, {"expect": "session/prompt"}, question("ask", &run("c1", "make")),
            {"gate": "asked"}, {"exit": 9}]))
        .agent("hasty", json!([{"handshake": {}}, {"repeat": [{"prompt": [question("ask", &run("c1", "make")), {"gate": "asked"}]}]}]))
        .agent("fickle", json!([{"handshake": {}}, {"repeat": [{"prompt": [question("ask", &run("c1", "make")),
            {"notify": {"method": "$/cancel_request", "params": {"requestId": 1}}}, {"awaitAnswer": true}, {"textFromAnswer": true}]}]}]))
        .start()
        .await;
    let cancelled = async |asked: &Value, why: &str| {
        let shown = shown(&daemon, asked).await;
        let resolution = &shown["resolution"];
        assert_eq!((&shown["status"], &resolution["outcome"]), (&json!("cancelled"), &json!("cancelled")), "{shown}");
        assert_eq!(resolution["by"], json!({"type": "cancelled", "reason": why}));
        let late = answer(&daemon, asked, json!({"decision": "allow"})).await.expect_status(409);
        assert_eq!(late["details"]["resolution"], *resolution);
    };

    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "cancelled");
    cancelled(&asked, "the turn was cancelled").await;
    assert!(last_words(&daemon, &session).await.contains("cancelled"), "the agent was told");

    let (_, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    cancelled(&asked, "the session was closed").await;

    let session = daemon.create_session("frail").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.gate("frail").reached("asked").await.open().await;
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "failed");
    cancelled(&asked, "the agent's process ended unexpectedly").await;

    let session = daemon.create_session("hasty").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.gate("hasty").reached("asked").await.open().await;
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    cancelled(&asked, "the turn ended").await;

    let session = daemon.create_session("fickle").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    cancelled(&asked, "the agent withdrew the permission request").await;
}

#[tokio::test]
async fn a_question_that_comes_after_the_cancel_is_cancelled_at_once() {
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "begin"}, {"expect": "session/cancel"},
        question("request", &run("c1", "make")), {"textFromAnswer": true}]}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().config("[processes]\ncancel_grace = \"1h\"").agent("late", script).start().await;
    let session = daemon.create_session("late").await;
    let turn = daemon.prompt(&session, "go").await["turnId"].as_str().unwrap().to_owned();
    daemon.gate("late").reached("begin").await.open().await;
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "cancelled");
    assert!(last_words(&daemon, &session).await.contains("cancelled"));
}

#[tokio::test]
async fn a_question_does_not_outlive_the_daemon() {
    let mut daemon = Daemon::builder().agent("asking", asking(&run("c1", "make"))).start().await;
    let session = daemon.create_session("asking").await;
    let (_, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.restart().await;
    let stopped = shown(&daemon, &asked).await;
    assert_eq!(stopped["resolution"]["by"], json!({"type": "cancelled", "reason": "the daemon is stopping"}));

    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    let (_, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.kill().await;
    daemon.restart().await;
    let killed = shown(&daemon, &asked).await;
    assert_eq!(killed["resolution"]["by"], json!({"type": "cancelled", "reason": "the agent that asked has ended"}));
    assert_eq!(daemon.session(&session).await["openPermissions"], 0);
    let events = daemon.events_so_far(&session, None).await;
    let resolved = events.iter().filter(|event| event.kind == "permission.resolved").count();
    assert_eq!(resolved, 2, "the log tells of both");
}

#[tokio::test]
async fn a_question_that_has_a_time_is_rejected_after_it() {
    let daemon = Daemon::builder()
        .config("[permissions]\ntimeout = \"50ms\"")
        .agent("asking", asking(&run("c1", "make")))
        .start()
        .await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert!(asked["expiresAt"].is_string(), "{asked}");
    daemon.wait_turn(&session, &turn).await;
    let expired = shown(&daemon, &asked).await;
    assert_eq!((&expired["status"], &expired["resolution"]["by"]), (&json!("expired"), &json!({"type": "timeout"})));
    assert_eq!(expired["resolution"]["decision"], "reject");
    assert!(last_words(&daemon, &session).await.contains("\"optionId\":\"no\""));
}

#[tokio::test]
async fn while_a_question_is_open_silence_is_no_fault_and_the_process_stays() {
    let silent = json!([{"handshake": {}}, {"prompt": [{"expect": "session/cancel"}]}, {"expect": "session/prompt"}]);
    let between = json!([{"handshake": {}}, {"prompt": []}, question("ask", &run("c1", "make")), {"awaitAnswer": true},
        {"textFromAnswer": true}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder()
        .config("[sessions]\nturn_silence_timeout = \"200ms\"\nidle_timeout = \"200ms\"\n[processes]\ncancel_grace = \"10s\"")
        .agent("asking", asking(&run("c1", "make")))
        .agent("between", between)
        .agent("silent", silent)
        .start()
        .await;
    let session = daemon.create_lazy_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    let idle = daemon.create_lazy_session("between").await;
    let (_, asked_between) = prompt_and_be_asked(&daemon, &idle).await;
    // Their clocks, if they ran, would have run out before that of a turn that starts now.
    let clock = daemon.create_lazy_session("silent").await;
    let timed_out = daemon.prompt_and_wait(&clock, "go").await;
    assert_eq!(timed_out["error"]["code"], "timeout");
    assert_eq!(daemon.session(&idle).await["processState"], "ready");

    answer(&daemon, &asked, json!({"decision": "allow"})).await.expect_status(200);
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "completed");
    assert!(asked_between["turnId"].is_null(), "{asked_between}");
    answer(&daemon, &asked_between, json!({"decision": "allow"})).await.expect_status(200);
    let mut events = daemon.events(&idle, None).await;
    let exited = events.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["reason"], "idle", "it is idle again");
}

#[tokio::test]
async fn always_is_a_rule_that_answers_until_it_is_taken_back() {
    let daemon = Daemon::builder().agent("asking", asking(&run("c1", "cargo test"))).start().await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    let answered = answer(&daemon, &asked, json!({"optionId": "always"})).await.expect_status(200);
    assert_eq!(answered["resolution"]["always"], true);
    assert_eq!(answered["resolution"]["optionId"], "once", "agents are told once");
    daemon.wait_turn(&session, &turn).await;

    let path = format!("/v1/sessions/{session}/rules");
    let rules = daemon.get(&path).await.expect_status(200);
    let rule = &rules["rules"][0];
    assert_eq!((&rules["total"], &rule["decision"]), (&json!(1), &json!("allow")));
    assert_eq!((&rule["kind"], &rule["command"]), (&json!("execute"), &json!("cargo test")));
    assert_eq!(rule["madeBy"]["pid"], std::process::id());

    let (turn, again) = prompt_and_be_asked(&daemon, &session).await;
    daemon.wait_turn(&session, &turn).await;
    let again = shown(&daemon, &again).await;
    let id = rule["id"].as_str().unwrap();
    assert_eq!(again["resolution"]["by"], json!({"type": "policy", "rule": format!("rule {id}")}));
    assert!(last_words(&daemon, &session).await.contains("\"optionId\":\"once\""));

    let revoked = daemon.delete(&format!("{path}/{id}")).await.expect_status(200);
    assert_eq!(revoked["id"], rule["id"]);
    assert_eq!(daemon.delete(&format!("{path}/{id}")).await.expect_status(404)["error"], "rule_not_found");
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert_eq!(asked["status"], "open");
    answer(&daemon, &asked, json!({"decision": "reject", "always": true})).await.expect_status(200);
    daemon.wait_turn(&session, &turn).await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    daemon.wait_turn(&session, &turn).await;
    assert_eq!(shown(&daemon, &asked).await["resolution"]["decision"], "reject");
}

/// Some agents put the title only into an earlier update, and some write only a text.
#[tokio::test]
async fn a_request_without_a_title_has_that_of_its_call_or_its_text() {
    let called =
        json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read notes", "kind": "read"}});
    let text = json!([{"type": "content", "content": {"type": "text", "text": "May I run `make`?"}}]);
    let requests = [
        (json!({"toolCallId": "c1"}), "Read notes"),
        (json!({"toolCallId": "c2", "content": text}), "May I run `make`?"),
        (json!({"toolCallId": "c3"}), "c3"),
    ];
    let mut script = vec![json!({"handshake": {}})];
    let steps = requests.iter().map(|(call, _)| json!({"prompt": [called, question("request", call)]}));
    script.extend(steps);
    let daemon = Daemon::builder().agent("terse", json!(script)).start().await;
    let session = daemon.create_session("terse").await;
    for (_, title) in requests {
        let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
        assert_eq!(asked["title"], title);
        answer(&daemon, &asked, json!({"decision": "allow"})).await.expect_status(200);
        daemon.wait_turn(&session, &turn).await;
    }
}

#[tokio::test]
async fn what_an_agent_wants_to_know_is_asked_too() {
    let elicit = json!({"request": {"method": "elicitation/create", "params": {"sessionId": "test-session", "mode": "form",
        "message": "Which database?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}}});
    let script =
        json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [elicit, {"textFromAnswer": true}]}]}]);
    let daemon = Daemon::builder().agent("curious", script).start().await;
    let session = daemon.create_session("curious").await;
    for (body, told, decision) in [
        (
            json!({"action": "accept", "content": {"name": "kept-from-the-record"}}),
            json!({"action": "accept", "content": {"name": "kept-from-the-record"}}),
            json!("allow"),
        ),
        (json!({"action": "decline"}), json!({"action": "decline"}), json!("reject")),
        (json!({"decision": "reject"}), json!({"action": "decline"}), json!("reject")),
        (json!({"action": "cancel"}), json!({"action": "cancel"}), Value::Null),
    ] {
        let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
        assert_eq!((&asked["kind"], &asked["title"]), (&json!("elicitation"), &json!("Which database?")));
        assert_eq!(answer(&daemon, &asked, json!({"decision": "allow"})).await.status, 400);
        let answered = answer(&daemon, &asked, body).await.expect_status(200);
        assert_eq!(answered["resolution"]["decision"], decision);
        assert!(!answered.to_string().contains("kept-from-the-record"));
        daemon.wait_turn(&session, &turn).await;
        let words: Value = serde_json::from_str(&last_words(&daemon, &session).await).unwrap();
        assert_eq!(words, told);
    }
    let heard = daemon.heard("curious");
    let initialize = heard.iter().find(|heard| heard.method == "initialize").unwrap();
    assert_eq!(initialize.params["clientCapabilities"]["elicitation"], json!({"form": {}, "url": {}}));
    let denied = daemon.patch(&format!("/v1/sessions/{session}"), json!({"permissions": {"mode": "deny"}})).await;
    denied.expect_status(200);
    daemon.prompt_and_wait(&session, "go").await;
    assert!(last_words(&daemon, &session).await.contains("decline"));
}

#[tokio::test]
async fn questions_without_end_are_rejected_and_that_is_recorded() {
    const OPEN_MAX: usize = 32;
    let mut steps: Vec<Value> =
        (0..=OPEN_MAX).map(|index| question("ask", &run(&format!("c{index}"), "make"))).collect();
    steps.extend([json!({"awaitAnswer": true}), json!({"textFromAnswer": true}), json!({"gate": "asked"})]);
    let script = json!([{"handshake": {}}, {"prompt": steps}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("asking", script).start().await;
    let session = daemon.create_session("asking").await;
    daemon.prompt(&session, "go").await;
    let passage = daemon.gate("asking").reached("asked").await;
    assert_eq!(daemon.session(&session).await["openPermissions"], OPEN_MAX);
    let all = daemon.get("/v1/permissions?status=all&limit=1").await.expect_status(200);
    let last = &all["permissions"][0];
    assert_eq!((&last["toolCallId"], &last["resolution"]["decision"]), (&json!("c32"), &json!("reject")));
    assert!(last["resolution"]["by"]["rule"].as_str().unwrap().starts_with("limit"), "{last}");
    passage.open().await;
}

#[tokio::test]
async fn an_option_of_an_unknown_kind_is_a_persons_to_choose() {
    let ask = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": run("c1", "make"), "options": [{"optionId": "session", "name": "Session", "kind": "allow_session"},
        {"optionId": "no", "name": "No", "kind": "reject_once"}]}}});
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [ask, {"textFromAnswer": true}]}]}]);
    let daemon = Daemon::builder().agent_with("asking", script, "permissions = \"allow\"").start().await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert_eq!((&asked["status"], &asked["options"][0]["kind"]), (&json!("open"), &json!("other")));
    let answered = answer(&daemon, &asked, json!({"optionId": "session"})).await.expect_status(200);
    assert_eq!(
        (&answered["resolution"]["optionId"], &answered["resolution"]["always"]),
        (&json!("session"), &json!(false))
    );
    daemon.wait_turn(&session, &turn).await;
    assert!(last_words(&daemon, &session).await.contains("session"));
}

#[tokio::test]
async fn an_always_for_a_command_that_acpd_does_not_know_covers_the_same_input_only() {
    let call = |input: &Value| json!({"toolCallId": "c1", "title": "Run", "kind": "execute", "rawInput": input});
    let inputs = [json!({"cmd": "ls"}), json!({"cmd": "ls -l"}), json!({"cmd": "ls"}), json!({}), json!({})];
    let mut script = vec![json!({"handshake": {}})];
    script.extend(inputs.iter().map(|input| json!({"prompt": [question("request", &call(input))]})));
    script.push(json!({"expect": "session/prompt"}));
    let daemon = Daemon::builder().agent("asking", json!(script)).start().await;
    let session = daemon.create_session("asking").await;
    for (input, (is_asked, always)) in
        inputs.iter().zip([(true, true), (true, true), (false, true), (true, false), (true, false)])
    {
        let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
        assert_eq!(asked["status"] == "open", is_asked, "{input}");
        if is_asked {
            let answered =
                answer(&daemon, &asked, json!({"decision": "allow", "always": true})).await.expect_status(200);
            assert_eq!(answered["resolution"]["always"], always, "{input}");
        }
        daemon.wait_turn(&session, &turn).await;
    }
}

/// "Always" covers exactly what was shown: the command with its arguments, its directory and its variables.
#[tokio::test]
async fn always_covers_the_arguments_the_directory_and_the_variables() {
    let sh = |input: Value| json!({"toolCallId": "c1", "title": "Shell", "kind": "execute", "rawInput": input});
    let first = json!({"command": "sh", "args": ["-c", "ls"], "description": "one"});
    let others = [
        json!({"command": "sh", "args": ["-c", "rm -rf ~"]}),
        json!({"command": "sh"}),
        json!({"command": "sh", "args": ["-c", "ls"], "env": [{"name": "PATH", "value": "."}]}),
        json!({"command": "sh", "args": ["-c", "ls"], "workdir": "sub"}),
        json!({"command": "sh", "args": ["-c", "ls"], "stdin": "rm -rf ~"}),
        json!({"command": "sh", "args": "-c ls"}),
    ];
    let again = json!({"command": "sh", "args": ["-c", "ls"], "description": "two", "timeout": 3});
    let inputs = [vec![first], others.to_vec(), vec![again]].concat();
    let mut script = vec![json!({"handshake": {}})];
    script.extend(inputs.iter().map(|input| json!({"prompt": [question("request", &sh(input.clone()))]})));
    script.push(json!({"expect": "session/prompt"}));
    let daemon = Daemon::builder().agent("asking", json!(script)).start().await;
    let session = daemon.create_session("asking").await;
    let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
    assert_eq!(asked["action"]["command"], json!(["sh", "-c", "ls"]));
    let answered = answer(&daemon, &asked, json!({"decision": "allow", "always": true})).await.expect_status(200);
    assert_eq!(answered["resolution"]["always"], true);
    daemon.wait_turn(&session, &turn).await;
    for other in &others {
        let (turn, asked) = prompt_and_be_asked(&daemon, &session).await;
        assert_eq!(asked["status"], "open", "{other}");
        answer(&daemon, &asked, json!({"decision": "reject"})).await.expect_status(200);
        daemon.wait_turn(&session, &turn).await;
    }
    let (turn, again) = prompt_and_be_asked(&daemon, &session).await;
    daemon.wait_turn(&session, &turn).await;
    let by = shown(&daemon, &again).await["resolution"]["by"]["rule"].to_string();
    assert!(by.starts_with("\"rule "), "{by}");
}
