//! Modes, models, commands and config options: what the agent announces, and what people choose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, Heard, Passage, pid_of};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn option(value: &str) -> Value {
    json!([{"id": "effort", "name": "Effort", "type": "select", "currentValue": value,
        "options": [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}]}])
}

/// What the agent announces when a session begins.
fn announced() -> Value {
    json!({"newSession": {
        "modes": {"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"},
            {"id": "plan", "name": "Plan"}]},
        "models": {"currentModelId": "small", "availableModels": [{"modelId": "small", "name": "Small"},
            {"modelId": "large", "name": "Large"}]},
        "configOptions": option("low")}})
}

/// It agrees to everything, and answers prompts.
fn agreeable(handshake: &Value) -> Value {
    json!([{"record": true}, {"handshake": handshake}, {"repeat": [{"switch": {
        "session/set_mode": [{"reply": {}}],
        "session/set_model": [{"reply": {}}],
        "session/set_config_option": [{"reply": {"configOptions": option("high")}}],
        "session/prompt": [{"text": "yes"}, {"reply": {"stopReason": "end_turn"}}]}}]}])
}

/// The requests that one process heard after the handshake.
fn asked(daemon: &Daemon, agent: &str, pid: u32) -> Vec<Heard> {
    let heard = daemon.heard(agent).into_iter();
    heard
        .filter(|heard| heard.pid == pid && (heard.method.contains("/set_") || heard.method.contains("prompt")))
        .collect()
}

fn methods(heard: &[Heard]) -> Vec<&str> {
    heard.iter().map(|heard| heard.method.as_str()).collect()
}

async fn ready(daemon: &Daemon, session: &str) {
    daemon.events(session, None).await.until("process.ready").await;
}

#[tokio::test]
async fn what_the_agent_announces_is_on_the_session() {
    let mode = json!({"update": {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}});
    let commands = json!({"update": {"sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "review", "description": "Reviews"}]}});
    let options = json!({"update": {"sessionUpdate": "config_option_update", "configOptions": option("high")}});
    let script = json!([{"handshake": announced()}, {"prompt": [{"text": "a"}, mode, commands, options, {"text": "b"}]},
        {"expect": "session/prompt"}]);
    let mut daemon = Daemon::builder().agent("rich", script).start().await;
    let session = daemon.create_lazy_session("rich").await;
    assert_eq!(daemon.session(&session).await["modes"], Value::Null, "nothing is known yet");
    daemon.prompt_and_wait(&session, "go").await;
    let check = async |daemon: &Daemon| {
        let view = daemon.session(&session).await;
        assert_eq!((&view["mode"], &view["model"]), (&json!("plan"), &json!("small")));
        assert_eq!(view["modes"]["currentModeId"], "plan", "as it is now");
        assert_eq!(view["modes"]["availableModes"][1]["name"], "Plan", "in the agent's own words");
        assert_eq!(view["models"]["availableModels"][1]["modelId"], "large");
        assert_eq!(view["commands"], json!([{"name": "review", "description": "Reviews"}]));
        assert_eq!(view["configOptions"], option("high"));
        let list = daemon.get("/v1/sessions").await.expect_status(200);
        let listed = &list["sessions"][0];
        assert_eq!((&listed["mode"], &listed["commands"]), (&json!("plan"), &Value::Null), "lists are small");
    };
    check(&daemon).await;
    let messages = daemon.messages(&session).await;
    let models: Vec<(&str, &Value)> =
        messages.iter().map(|message| (message["role"].as_str().unwrap(), &message["model"])).collect();
    assert_eq!(models[..2], [("user", &Value::Null), ("agent", &json!("small"))]);
    let events = daemon.events_so_far(&session, None).await;
    let told: Vec<&Value> = events.iter().filter(|event| event.kind == "session.updated").map(Event::payload).collect();
    assert!(told.contains(&&json!({"mode": "plan"})), "{told:?}");
    assert!(told.contains(&&json!({"commands": ["review"]})), "{told:?}");
    assert!(told.contains(&&json!({"configOptions": {"effort": "high"}})), "{told:?}");
    let shown = daemon.cli(&["show", &session]).await.success();
    assert!(shown.contains("plan") && shown.contains("small"), "{shown}");
    daemon.restart().await;
    check(&daemon).await;
}

/// Nanocoder announces two options of the category `model`.
#[tokio::test]
async fn of_two_options_for_the_model_the_daemon_and_the_client_take_the_same() {
    let option = |id: &str, current: &str| {
        json!({"id": id, "name": id, "category": "model", "type": "select", "currentValue": current,
            "options": [{"value": current, "name": "Now"}, {"value": "other", "name": "Other"}]})
    };
    for (options, id, current) in [
        (json!([option("provider", "local"), option("model", "small")]), "model", "small"),
        (json!([option("size", "big"), option("tier", "fast")]), "size", "big"),
    ] {
        let handshake = json!({"newSession": {"configOptions": options}});
        let daemon = Daemon::builder().agent("double", agreeable(&handshake)).start().await;
        let session = daemon.create_session("double").await;
        ready(&daemon, &session).await;
        assert_eq!(daemon.session(&session).await["model"], current, "{options}");
        let offered = daemon.cli(&["model", &session, "--json"]).await.json();
        assert_eq!((&offered[0]["id"], &offered[0]["current"]), (&json!(current), &json!(true)), "{options}");
        daemon.cli(&["model", &session, "other"]).await.success();
        let heard = daemon.heard("double").into_iter().find(|heard| heard.method.contains("/set_")).unwrap();
        assert_eq!(heard.params["configId"], id, "{options}");
    }
}

#[tokio::test]
async fn a_choice_is_asked_of_the_agent_and_again_of_every_new_process() {
    let mut daemon = Daemon::builder().agent("rich", agreeable(&announced())).start().await;
    let session = daemon.create_session("rich").await;
    ready(&daemon, &session).await;
    let path = format!("/v1/sessions/{session}");
    let body = json!({"title": "t", "mode": "plan", "model": "large", "configOptions": {"effort": "high"}});
    let patched = daemon.patch(&path, body).await.expect_status(200);
    assert_eq!((&patched["mode"], &patched["model"]), (&json!("plan"), &json!("large")));
    assert_eq!(patched["title"], "t");
    let view = daemon.session(&session).await;
    assert_eq!(view["configOptions"], option("high"));
    let first = asked(&daemon, "rich", pid_of(&view));
    let wanted = ["session/set_mode", "session/set_model", "session/set_config_option"];
    assert_eq!(methods(&first), wanted);
    assert_eq!(first[0].params, json!({"modeId": "plan", "sessionId": "test-session"}));
    assert_eq!(first[1].params, json!({"modelId": "large", "sessionId": "test-session"}));
    assert_eq!(first[2].params, json!({"configId": "effort", "value": "high", "sessionId": "test-session"}));

    daemon.restart().await;
    daemon.post(&format!("{path}/resume"), json!({})).await.expect_status(200);
    daemon.prompt_and_wait(&session, "go").await;
    let view = daemon.session(&session).await;
    let second = asked(&daemon, "rich", pid_of(&view));
    assert_eq!(methods(&second), [&wanted[..], &["session/prompt"]].concat(), "before the first prompt");
    assert_eq!((&view["mode"], &view["model"]), (&json!("plan"), &json!("large")));
    assert_eq!(daemon.messages(&session).await.last().unwrap()["model"], "large");
}

#[tokio::test]
async fn without_a_process_a_choice_is_checked_against_what_was_announced() {
    let mut daemon = Daemon::builder().agent("rich", agreeable(&announced())).start().await;
    let body = json!({"workspace": daemon.workspace(), "agent": "rich", "start": "lazy", "mode": "plan"});
    let created = daemon.post("/v1/sessions", body).await.expect_status(201);
    assert_eq!(created["mode"], "plan");
    let session = created["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}");
    daemon.patch(&path, json!({"model": "whatever"})).await.expect_status(200);
    daemon.patch(&path, json!({"model": "large"})).await.expect_status(200);
    daemon.prompt_and_wait(&session, "go").await;
    let pid = pid_of(&daemon.session(&session).await);
    let heard = asked(&daemon, "rich", pid);
    assert_eq!(methods(&heard), ["session/set_mode", "session/set_model", "session/prompt"]);
    assert_eq!(heard[1].params["modelId"], "large");

    daemon.restart().await;
    let refused = daemon.patch(&path, json!({"title": "no", "mode": "yolo"})).await.expect_status(422);
    assert_eq!(
        (&refused["error"], &refused["details"]["known"]),
        (&json!("unknown_choice"), &json!(["default", "plan"]))
    );
    assert!(refused["hint"].as_str().unwrap().contains("default, plan"), "{refused}");
    daemon.patch(&path, json!({"configOptions": {"effort": "huge"}})).await.expect_status(422);
    daemon.patch(&path, json!({"configOptions": {"effort": 7}})).await.expect_status(400);
    daemon.patch(&path, json!({"mode": ""})).await.expect_status(400);
    let view = daemon.session(&session).await;
    assert_eq!((&view["mode"], &view["title"]), (&json!("plan"), &json!("go")), "nothing was changed");
    daemon.patch(&path, json!({"mode": "default"})).await.expect_status(200);
    daemon.post(&format!("{path}/archive"), json!({})).await.expect_status(200);
    assert_eq!(daemon.patch(&path, json!({"mode": "plan"})).await.expect_status(409)["error"], "session_archived");
}

#[tokio::test]
async fn what_the_agent_refuses_is_told_and_changes_nothing() {
    let refusal = json!({"replyError": {"code": -32602, "message": "not with this account"}});
    let told = |mode: &str| json!({"update": {"sessionUpdate": "current_mode_update", "currentModeId": mode}});
    let script = json!([{"record": true}, {"handshake": announced()}, {"repeat": [{"switch": {
        "session/set_mode": [told("plan"), {"reply": {}}],
        "session/set_model": [refusal],
        "session/prompt": [{"text": "yes"}, {"reply": {"stopReason": "end_turn"}}]}}]}]);
    let daemon = Daemon::builder().agent("strict", script).start().await;
    let session = daemon.create_session("strict").await;
    ready(&daemon, &session).await;
    let path = format!("/v1/sessions/{session}");
    let body = json!({"title": "no", "mode": "plan", "model": "large"});
    let refused = daemon.patch(&path, body).await.expect_status(409);
    assert_eq!((&refused["error"], &refused["details"]["field"]), (&json!("agent_refused"), &json!("model")));
    assert!(refused["message"].as_str().unwrap().contains("not with this account"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("small, large"), "{refused}");
    let view = daemon.session(&session).await;
    assert_eq!((&view["mode"], &view["model"], &view["title"]), (&json!("default"), &json!("small"), &json!("")));
    let heard = asked(&daemon, "strict", pid_of(&view));
    assert_eq!(methods(&heard), ["session/set_mode", "session/set_model", "session/set_mode"]);
    assert_eq!(heard[2].params["modeId"], "default", "it is asked to go back");

    // What was not announced is not asked at all.
    let unknown = daemon.patch(&path, json!({"mode": "plan", "model": "bad"})).await.expect_status(422);
    assert_eq!((&unknown["error"], &unknown["details"]["field"]), (&json!("unknown_choice"), &json!("model")));
    assert_eq!(asked(&daemon, "strict", pid_of(&view)).len(), heard.len());

    // What a new process refuses does not keep the session from going on.
    let body = json!({"workspace": daemon.workspace(), "agent": "strict", "start": "lazy", "model": "large"});
    let other = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.prompt_and_wait(&other, "go").await["status"], "completed");
    let messages = daemon.messages(&other).await;
    let notice = messages.iter().find(|message| message["content"]["type"] == "notice").unwrap();
    assert_eq!(notice["content"]["code"], "choice_refused");
    assert!(notice["content"]["text"].as_str().unwrap().contains("not with this account"), "{notice}");
    assert_eq!(daemon.session(&other).await["model"], "small", "what the agent says it is");
}

/// Shortens the deadline of choices. Only when the agent is ready: a handshake may take longer on a busy machine.
async fn hurry(daemon: &Daemon) {
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), format!("{text}\n[processes]\nsession_timeout = \"200ms\"\n")).unwrap();
    let loaded = daemon.get("/v1/info").await.expect_status(200)["config"]["loadedAt"].clone();
    daemon.signal(Signal::SIGHUP);
    harness::within("the reload", async {
        while daemon.get("/v1/info").await.expect_status(200)["config"]["loadedAt"] == loaded {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_does_not_answer_a_choice_has_a_deadline() {
    let script = json!([{"handshake": announced()}, {"expect": "session/set_mode"}, {"expect": "session/prompt"},
        {"text": "still here"}, {"reply": {"stopReason": "end_turn"}}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("silent", script).start().await;
    let session = daemon.create_session("silent").await;
    ready(&daemon, &session).await;
    hurry(&daemon).await;
    let path = format!("/v1/sessions/{session}");
    let refused = daemon.patch(&path, json!({"mode": "plan"})).await.expect_status(504);
    assert_eq!(refused["error"], "agent_timeout");
    assert!(refused["message"].as_str().unwrap().contains("session_timeout"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("may still apply it"), "{refused}");
    assert_eq!(daemon.session(&session).await["mode"], "default");
    assert_eq!(daemon.prompt_and_wait(&session, "go").await["status"], "completed", "the process stays");
}

#[tokio::test]
async fn a_choice_is_sent_while_a_turn_runs_and_an_agent_that_goes_is_told() {
    let script = json!([{"handshake": announced()}, {"expect": "session/prompt"}, {"gate": "busy"},
        {"expect": "session/set_mode"}, {"reply": {}}, {"expect": "session/set_model"}, {"exit": 3}]);
    let daemon = Daemon::builder().agent("busy", script).start().await;
    let session = daemon.create_lazy_session("busy").await;
    daemon.prompt(&session, "go").await;
    daemon.gate("busy").reached("busy").await.open().await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(daemon.patch(&path, json!({"mode": "plan"})).await.expect_status(200)["mode"], "plan");
    assert_eq!(daemon.session(&session).await["processState"], "busy", "the turn goes on");
    let refused = daemon.patch(&path, json!({"model": "large"})).await.expect_status(409);
    assert!(refused["message"].as_str().unwrap().contains("exited before it answered"), "{refused}");
}

#[tokio::test]
async fn what_the_agent_does_not_take_back_is_recorded_and_told() {
    let refusal = json!({"replyError": {"code": -32602, "message": "no"}});
    let script = json!([{"handshake": announced()}, {"expect": "session/set_mode"}, {"reply": {}},
        {"expect": "session/set_model"}, refusal, {"expect": "session/set_mode", "contains": "default"}, refusal,
        {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("stubborn", script).start().await;
    let session = daemon.create_session("stubborn").await;
    ready(&daemon, &session).await;
    let body = json!({"title": "no", "mode": "plan", "model": "large"});
    let refused = daemon.patch(&format!("/v1/sessions/{session}"), body).await.expect_status(409);
    assert_eq!((&refused["error"], &refused["details"]["kept"]), (&json!("agent_refused"), &json!(["mode"])));
    assert!(refused["message"].as_str().unwrap().contains("the mode \"plan\""), "{refused}");
    assert!(!refused["hint"].as_str().unwrap().contains("nothing was changed"), "{refused}");
    let view = daemon.session(&session).await;
    assert_eq!((&view["mode"], &view["model"], &view["title"]), (&json!("plan"), &json!("small"), &json!("")));
    let messages = daemon.messages(&session).await;
    assert_eq!(messages.last().unwrap()["content"]["code"], "choice_kept");
}

#[tokio::test]
async fn what_the_agent_takes_too_late_is_what_it_has() {
    let script = json!([{"handshake": announced()}, {"expect": "session/set_mode"}, {"gate": "late"}, {"reply": {}},
        {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("late", script).start().await;
    let session = daemon.create_session("late").await;
    ready(&daemon, &session).await;
    hurry(&daemon).await;
    let path = format!("/v1/sessions/{session}");
    daemon.patch(&path, json!({"mode": "plan"})).await.expect_status(504);
    assert_eq!(daemon.session(&session).await["mode"], "default");
    let mut events = daemon.events(&session, None).await;
    daemon.gate("late").reached("late").await.open().await;
    let is_told = |event: &Event| event.kind == "session.updated" && event.payload()["mode"] == "plan";
    events.until_event("the late agreement", is_told).await;
    assert_eq!(daemon.session(&session).await["mode"], "plan");
}

/// Opens the gate when the change has had every chance to come before: others that came after it are answered.
async fn open_after(daemon: &Daemon, path: &str, passage: Passage) {
    for title in ["a", "b", "c", "d"] {
        daemon.patch(path, json!({"title": title})).await.expect_status(200);
    }
    passage.open().await;
}

#[tokio::test]
async fn a_change_comes_after_what_a_new_process_is_asked_for() {
    let script = json!([{"record": true}, {"handshake": announced()}, {"expect": "session/set_mode"},
        {"gate": "starting"}, {"reply": {}}, {"repeat": [{"switch": {
            "session/set_model": [{"reply": {}}],
            "session/prompt": [{"text": "yes"}, {"reply": {"stopReason": "end_turn"}}]}}]}]);
    let daemon = Daemon::builder().agent("slow", script).start().await;
    let body =
        json!({"workspace": daemon.workspace(), "agent": "slow", "start": "lazy", "mode": "plan", "model": "large"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}");
    let turn = daemon.prompt(&session, "go").await["turnId"].as_str().unwrap().to_owned();
    let passage = daemon.gate("slow").reached("starting").await;
    let change = daemon.patch(&path, json!({"model": "small"}));
    let (changed, ()) = tokio::join!(change, open_after(&daemon, &path, passage));
    assert_eq!(changed.expect_status(200)["model"], "small");
    daemon.wait_turn(&session, &turn).await;
    let view = daemon.session(&session).await;
    assert_eq!(view["model"], "small");
    let heard = asked(&daemon, "slow", pid_of(&view));
    let models: Vec<&Value> = heard.iter().map(|heard| &heard.params["modelId"]).filter(|id| !id.is_null()).collect();
    assert_eq!(models, ["large", "small"]);
}

#[tokio::test]
async fn of_two_changes_the_later_one_stays() {
    // It would answer the second one first, if that were sent before the first is answered. The handshake takes two ids.
    let second = "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n";
    let script = json!([{"record": true}, {"handshake": announced()}, {"expect": "session/set_model"},
        {"gate": "first"}, {"stdout": second}, {"reply": {}}, {"expect": "session/set_model"}, {"reply": {}},
        {"prompt": [{"text": "yes"}]}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("reverse", script).start().await;
    let session = daemon.create_session("reverse").await;
    ready(&daemon, &session).await;
    let path = format!("/v1/sessions/{session}");
    let then = async {
        let passage = daemon.gate("reverse").reached("first").await;
        let change = daemon.patch(&path, json!({"model": "small"}));
        tokio::join!(change, open_after(&daemon, &path, passage)).0
    };
    let (first, later) = tokio::join!(daemon.patch(&path, json!({"model": "large"})), then);
    first.expect_status(200);
    assert_eq!(later.expect_status(200)["model"], "small");
    daemon.prompt_and_wait(&session, "go").await;
    let view = daemon.session(&session).await;
    assert_eq!(view["model"], "small");
    let heard = asked(&daemon, "reverse", pid_of(&view));
    assert_eq!((&heard[0].params["modelId"], &heard[1].params["modelId"]), (&json!("large"), &json!("small")));
}
