//! What turns and sessions use, and what becomes of turns when that has cost too much.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn cost(amount: f64) -> Value {
    json!({"update": {"sessionUpdate": "usage_update", "used": 100, "size": 1000,
        "cost": {"amount": amount, "currency": "USD"}}})
}

/// One turn that tells what its agent session has cost until then.
fn turn(amount: f64) -> Value {
    json!({"prompt": [{"text": "done"}, cost(amount)]})
}

/// A process that has three turns, each of which costs a dollar.
fn dollar_each(handshake: &Value) -> Value {
    json!([{"record": true}, {"handshake": handshake}, turn(1.0), turn(2.0), turn(3.0)])
}

fn prompts_heard(daemon: &Daemon, agent: &str) -> usize {
    daemon.heard(agent).iter().filter(|heard| heard.method == "session/prompt").count()
}

fn count(events: &[Event], kind: &str) -> usize {
    events.iter().filter(|event| event.kind == kind).count()
}

async fn notices(daemon: &Daemon, session: &str) -> Vec<String> {
    let messages = daemon.messages(session).await;
    let notices = messages.iter().filter(|message| message["content"]["type"] == "notice");
    notices.map(|message| message["content"]["code"].as_str().unwrap().to_owned()).collect()
}

async fn limited(daemon: &Daemon, agent: &str, limits: Value) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": agent, "start": "lazy", "limits": limits});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    session["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tokens_and_cost_are_kept_per_turn_and_per_session() {
    let answer = |input: u64, output: u64| {
        json!({"reply": {"stopReason": "end_turn",
        "usage": {"inputTokens": input, "outputTokens": output, "totalTokens": input + output, "thoughtTokens": 1}}})
    };
    let gemini = json!({"reply": {"stopReason": "end_turn",
        "_meta": {"quota": {"token_count": {"input_tokens": 5, "output_tokens": 6}}}}});
    let strange = json!({"update": {"sessionUpdate": "usage_update", "used": -1, "size": "x",
        "cost": {"amount": -5, "currency": "USD"}}});
    let euros = json!({"update": {"sessionUpdate": "usage_update", "used": 100, "size": 1000,
        "cost": {"amount": 7.0, "currency": "EUR"}}});
    let script = json!([{"handshake": {}},
        {"expect": "session/prompt"}, cost(0.1), answer(10, 20), cost(0.3),
        {"expect": "session/prompt"}, cost(0.35), strange, euros, euros, gemini, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("telling", script).start().await;
    let session = daemon.create_session("telling").await;
    let mut stream = daemon.events(&session, None).await;
    let first = daemon.prompt_and_wait(&session, "one").await;
    let expected = json!({"inputTokens": 10, "outputTokens": 20, "totalTokens": 30, "thoughtTokens": 1,
        "cost": {"amount": 0.1, "currency": "USD"}});
    assert_eq!(first["usage"], expected);
    let completed = stream.until("turn.completed").await.pop().unwrap();
    assert_eq!(completed.payload()["usage"], expected, "the event tells it too");
    let outside = stream.until("usage.updated").await.pop().unwrap();
    assert_eq!(outside.payload()["update"]["cost"]["amount"], 0.3, "in the agent's own words");

    let second = daemon.prompt_and_wait(&session, "two").await;
    assert_eq!(
        second["usage"],
        json!({"inputTokens": 5, "outputTokens": 6, "totalTokens": 11,
        "cost": {"amount": 0.05, "currency": "USD"}})
    );
    let view = daemon.session(&session).await;
    assert_eq!(
        view["usage"],
        json!({"inputTokens": 15, "outputTokens": 26, "totalTokens": 41, "thoughtTokens": 1,
        "cost": {"amount": 0.35, "currency": "USD"}, "context": {"used": 100, "size": 1000}})
    );
    assert_eq!(notices(&daemon, &session).await, ["other_currency"], "told once");
    let shown = daemon.cli(&["show", &session]).await.success();
    for told in ["41 (15 in, 26 out, 1 thought)", "0.35 USD", "100 of 1,000 tokens (10 %)"] {
        assert!(shown.contains(told), "{told} in {shown}");
    }
}

#[tokio::test]
async fn a_cost_that_is_corrected_is_not_counted_again() {
    let script =
        json!([{"handshake": {}}, {"prompt": [{"text": "done"}, cost(1.0), cost(0.9), cost(1.1)]}, turn(1.05)]);
    let daemon = Daemon::builder().agent("corrected", script).start().await;
    let session = daemon.create_session("corrected").await;
    assert_eq!(daemon.prompt_and_wait(&session, "one").await["usage"]["cost"]["amount"], 1.1);
    assert_eq!(daemon.prompt_and_wait(&session, "two").await["usage"]["cost"]["amount"], 0.0);
    assert_eq!(daemon.session(&session).await["usage"]["cost"]["amount"], 1.1);
}

#[tokio::test]
async fn the_cost_of_a_fresh_agent_session_is_added_and_a_restored_one_goes_on() {
    let plain = json!([{"handshake": {}}, turn(1.0), {"expect": "session/prompt"}, cost(1.5), {"exit": 7}]);
    let able = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    let resuming = json!([{"gate": "up", "cases": {
        "first": [{"handshake": able}, turn(1.0), turn(2.5)],
        "second": [{"handshake": able}, turn(3.0), turn(3.25)]}}]);
    let mut daemon = Daemon::builder().agent("plain", plain).agent("resuming", resuming).start().await;
    let session = daemon.create_lazy_session("plain").await;
    assert_eq!(daemon.prompt_and_wait(&session, "one").await["usage"]["cost"]["amount"], 1.0);
    let crashed = daemon.prompt_and_wait(&session, "two").await;
    assert_eq!((&crashed["status"], &crashed["usage"]["cost"]["amount"]), (&json!("failed"), &json!(0.5)));
    assert_eq!(daemon.prompt_and_wait(&session, "three").await["usage"]["cost"]["amount"], 1.0, "from nothing again");
    assert_eq!(daemon.session(&session).await["usage"]["cost"]["amount"], 2.5);

    let other = daemon.create_lazy_session("resuming").await;
    let accepted = daemon.prompt(&other, "one").await;
    daemon.gate("resuming").reached("up").await.say("first").await;
    daemon.wait_turn(&other, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(daemon.prompt_and_wait(&other, "two").await["usage"]["cost"]["amount"], 1.5);
    daemon.kill().await;
    daemon.restart().await;
    let accepted = daemon.prompt(&other, "three").await;
    daemon.gate("resuming").reached("up").await.say("second").await;
    let third = daemon.wait_turn(&other, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(third["usage"]["cost"]["amount"], 0.5, "the same agent session goes on: {third}");
    daemon.prompt_and_wait(&other, "four").await;
    assert_eq!(daemon.session(&other).await["usage"]["cost"]["amount"], 3.25);
}

#[tokio::test]
async fn what_a_turn_used_is_known_after_the_death_of_the_daemon() {
    let script =
        json!([{"handshake": {}}, {"expect": "session/prompt"}, cost(0.25), {"gate": "spent"}, {"hang": true}]);
    let mut daemon = Daemon::builder().agent("slow", script).start().await;
    let session = daemon.create_lazy_session("slow").await;
    let mut stream = daemon.events(&session, None).await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("slow").reached("spent").await;
    stream.until("usage.updated").await;
    daemon.kill().await;
    drop(passage);
    daemon.restart().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!((&turn["status"], &turn["usage"]["cost"]["amount"]), (&json!("interrupted"), &json!(0.25)));
    let events = daemon.events_so_far(&session, None).await;
    let completed = events.iter().find(|event| event.kind == "turn.completed").unwrap();
    assert_eq!(completed.payload()["usage"], turn["usage"]);
}

#[tokio::test]
async fn beyond_the_limit_prompts_fail_before_anything_is_sent() {
    let mut daemon = Daemon::builder().agent("dear", dollar_each(&json!({}))).start().await;
    let session = limited(&daemon, "dear", json!({"costLimit": 2, "turnCap": 3})).await;
    for prompt in ["one", "two"] {
        assert_eq!(daemon.prompt_and_wait(&session, prompt).await["status"], "completed");
    }
    for prompt in ["three", "four"] {
        let turn = daemon.prompt_and_wait(&session, prompt).await;
        assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("cost_limit")), "{turn}");
        assert_eq!(turn["startedAt"], Value::Null);
    }
    assert_eq!((prompts_heard(&daemon, "dear"), notices(&daemon, &session).await.len()), (2, 2));
    daemon.terminate().await;
    daemon.restart().await;
    let path = format!("/v1/sessions/{session}");
    daemon.post(&format!("{path}/resume"), json!({})).await.expect_status(200);
    let before = count(&daemon.events_so_far(&session, None).await, "process.starting");
    let turn = daemon.prompt_and_wait(&session, "five").await;
    assert_eq!(turn["error"]["code"], "cost_limit", "it is known after a restart: {turn}");
    let after = count(&daemon.events_so_far(&session, None).await, "process.starting");
    assert_eq!(after, before, "and needs no process");

    // What failed so is no turn that counts: the third of three runs when the limit is raised, the fourth does not.
    let patched = daemon.patch(&path, json!({"limits": {"costLimit": 50.5}})).await.expect_status(200);
    assert_eq!(patched["limits"], json!({"turnCap": 3, "costLimit": 50.5}));
    assert_eq!(daemon.prompt_and_wait(&session, "six").await["status"], "completed");
    assert_eq!(daemon.prompt_and_wait(&session, "seven").await["error"]["code"], "turn_limit");
    let patched = daemon.patch(&path, json!({"limits": {"costLimit": 0}})).await.expect_status(200);
    assert_eq!(patched["limits"], json!({"turnCap": 3}));
    for bad in [json!({"costLimit": -1}), json!({"costLimit": "much"}), json!({"onExceed": "explode"})] {
        daemon.patch(&path, json!({"limits": bad})).await.expect_status(400);
    }
}

#[tokio::test]
async fn queued_turns_behind_the_one_that_reached_the_limit_fail_too() {
    let script = json!([{"record": true}, {"handshake": {}}, {"prompt": [{"gate": "busy"}, cost(5.0)]},
        {"expect": "session/prompt"}]);
    let config = "[sessions]\ncost_limit = 4.5";
    let daemon = Daemon::builder().config(config).agent("dear", script).start().await;
    let session = daemon.create_lazy_session("dear").await;
    let first = daemon.prompt(&session, "one").await;
    let passage = daemon.gate("dear").reached("busy").await;
    let second = daemon.prompt(&session, "two").await;
    passage.open().await;
    assert_eq!(daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await["status"], "completed");
    let second = daemon.wait_turn(&session, second["turnId"].as_str().unwrap()).await;
    assert_eq!(second["error"]["code"], "cost_limit");
    assert_eq!(prompts_heard(&daemon, "dear"), 1);
}

#[tokio::test]
async fn a_paused_queue_waits_without_a_process_until_the_limit_is_raised() {
    let mut daemon = Daemon::builder().agent("dear", dollar_each(&json!({}))).start().await;
    let session = limited(&daemon, "dear", json!({"costLimit": 1, "onExceed": "pause"})).await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(daemon.prompt_and_wait(&session, "one").await["status"], "completed");
    let waiting = daemon.prompt(&session, "two").await;
    let dropped = daemon.prompt(&session, "three").await;
    let view = daemon.session(&session).await;
    assert_eq!((&view["paused"], &view["status"]), (&json!("cost_limit"), &json!("active")));
    assert_eq!(notices(&daemon, &session).await, ["cost_limit"], "it is said once");

    // Neither a crash of the daemon nor a resume starts a process for it.
    daemon.kill().await;
    daemon.restart().await;
    daemon.terminate().await;
    daemon.restart().await;
    daemon.post(&format!("{path}/resume"), json!({})).await.expect_status(200);
    let body = json!({"turnId": dropped["turnId"]});
    daemon.post(&format!("{path}/cancel"), body).await.expect_status(202);
    assert_eq!(daemon.wait_turn(&session, dropped["turnId"].as_str().unwrap()).await["status"], "cancelled");
    let view = daemon.session(&session).await;
    assert_eq!((&view["paused"], &view["processState"]), (&json!("cost_limit"), &json!("stopped")));
    assert_eq!(count(&daemon.events_so_far(&session, None).await, "process.starting"), 1);
    assert_eq!((prompts_heard(&daemon, "dear"), notices(&daemon, &session).await), (1, vec!["cost_limit".to_owned()]));

    daemon.patch(&path, json!({"limits": {"costLimit": 2}})).await.expect_status(200);
    assert_eq!(daemon.wait_turn(&session, waiting["turnId"].as_str().unwrap()).await["status"], "completed");
    assert_eq!(daemon.session(&session).await["paused"], Value::Null);

    // The limit is reached again; when everything that waits is cancelled, nothing is paused.
    daemon.prompt(&session, "four").await;
    assert_eq!(daemon.session(&session).await["paused"], "cost_limit");
    daemon.post(&format!("{path}/cancel"), json!({"queued": true})).await.expect_status(202);
    let mut stream = daemon.events(&session, None).await;
    stream.until_event("the cancel", |event| event.payload()["status"] == "cancelled").await;
    within("the end of the pause", async {
        while daemon.session(&session).await["paused"] != Value::Null {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_reload_with_a_higher_limit_lets_a_paused_queue_go_on() {
    let config = "[sessions]\ncost_limit = 1\ncost_on_exceed = \"pause\"\nidle_timeout = \"100ms\"";
    let daemon = Daemon::builder().config(config).agent("dear", dollar_each(&json!({}))).start().await;
    let session = daemon.create_lazy_session("dear").await;
    let mut stream = daemon.events(&session, None).await;
    assert_eq!(daemon.prompt_and_wait(&session, "one").await["status"], "completed");
    let waiting = daemon.prompt(&session, "two").await;
    // Its process is idle and goes, and with it the actor.
    stream.until("process.exited").await;
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), text.replace("cost_limit = 1\n", "cost_limit = 10\n")).unwrap();
    daemon.signal(Signal::SIGHUP);
    assert_eq!(daemon.wait_turn(&session, waiting["turnId"].as_str().unwrap()).await["status"], "completed");
}
