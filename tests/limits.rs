//! What is bounded: how long a process idles, how many turns and tool calls there are, how long a turn may be silent, how
//! often an agent may crash, and what it is told before it goes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, Event, process_gone};
use serde_json::{Value, json};

fn echo() -> Value {
    json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"text": "you said: "}, {"textFromPid": true}]}]}])
}

/// How many prompts the processes of an agent have heard.
fn prompts_heard(daemon: &Daemon, agent: &str) -> usize {
    daemon.heard(agent).iter().filter(|heard| heard.method == "session/prompt").count()
}

fn payloads<'a>(events: &'a [Event], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.kind == kind).map(Event::payload).collect()
}

#[track_caller]
fn assert_failed(turn: &Value, code: &str) -> String {
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!(code)), "{turn}");
    turn["error"]["message"].as_str().unwrap().to_owned()
}

/// The codes of the notices in a session's record.
async fn notices(daemon: &Daemon, session: &str) -> Vec<String> {
    let messages = daemon.messages(session).await;
    let notices = messages.iter().filter(|message| message["content"]["type"] == "notice");
    notices.map(|message| message["content"]["code"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_idle_process_is_stopped_and_the_next_prompt_has_a_new_one() {
    let config = "[sessions]\nidle_timeout = \"100ms\"";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let mut stream = daemon.events(&session, None).await;
    let exited = stream.until("process.exited").await.pop().unwrap();
    assert_eq!((&exited.payload()["reason"], &exited.payload()["code"]), (&json!("idle"), &json!(0)));
    let view = daemon.session(&session).await;
    assert_eq!((&view["status"], &view["processState"]), (&json!("active"), &json!("stopped")));
    assert_eq!(view["lastError"], Value::Null, "nothing went wrong");

    assert_eq!(daemon.prompt_and_wait(&session, "again").await["status"], "completed");
    let next = stream.until("process.exited").await;
    let started = payloads(&next, "process.ready");
    assert_ne!(started[0]["pid"], exited.payload()["pid"], "a new process");
    assert_eq!(next.last().unwrap().payload()["reason"], "idle", "which idles in its turn");
}

#[tokio::test]
async fn a_process_with_a_running_turn_is_not_idle() {
    let busy = json!([{"handshake": {}}, {"prompt": [{"gate": "busy"}]}, {"expect": "session/prompt"}]);
    let config = "[sessions]\nidle_timeout = \"100ms\"";
    let daemon = Daemon::builder().config(config).agent("busy", busy).agent("echo", echo()).start().await;
    let working = daemon.create_lazy_session("busy").await;
    let accepted = daemon.prompt(&working, "work").await;
    let passage = daemon.gate("busy").reached("busy").await;
    // This one becomes idle after the other one fell silent, and is stopped for it: by then the other would be, too.
    let idle = daemon.create_session("echo").await;
    daemon.events(&idle, None).await.until("process.exited").await;
    let view = daemon.session(&working).await;
    assert_eq!((&view["processState"], &view["pid"]), (&json!("busy"), &json!(passage.pid)));
    passage.open().await;
    let turn = daemon.wait_turn(&working, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed");
    daemon.events(&working, None).await.until("process.exited").await;
}

#[tokio::test]
async fn the_idle_timeout_comes_from_the_environment_in_minutes() {
    let refused = Daemon::builder().env("AGENT_SESSION_IDLE_TIMEOUT", "soon").fail_to_start().await;
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    for part in ["sessions.idle_timeout", "AGENT_SESSION_IDLE_TIMEOUT", "soon", "\"30m\""] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    // Empty is unset: the file holds.
    let file = "[sessions]\nidle_timeout = \"never\"";
    let refused = Daemon::builder().config(file).env("AGENT_SESSION_IDLE_TIMEOUT", " ").fail_to_start().await;
    assert!(refused.stderr.contains("never") && !refused.stderr.contains("AGENT_"), "{}", refused.stderr);
    for minutes in ["1", "0", "", "90s"] {
        let daemon = Daemon::builder().env("AGENT_SESSION_IDLE_TIMEOUT", minutes).start().await;
        daemon.get("/v1/health").await.expect_status(200);
    }
    // It goes before the file and before ACPD_*, whose process would be gone at once.
    let daemon = Daemon::builder()
        .config("[sessions]\nidle_timeout = \"1ms\"")
        .env("AGENT_SESSION_IDLE_TIMEOUT", "30")
        .env("ACPD_SESSIONS_IDLE_TIMEOUT", "1ms")
        .agent("echo", echo())
        .start()
        .await;
    let session = daemon.create_session("echo").await;
    for text in ["one", "two", "three"] {
        daemon.prompt_and_wait(&session, text).await;
    }
    let events = daemon.events_so_far(&session, None).await;
    assert_eq!(payloads(&events, "process.starting").len(), 1);
}

#[tokio::test]
async fn a_session_has_so_many_turns_and_a_patch_gives_it_more() {
    let config = "[sessions]\nturn_cap = 2";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    for text in ["one", "two"] {
        assert_eq!(daemon.prompt_and_wait(&session, text).await["status"], "completed");
    }
    assert_failed(&daemon.prompt_and_wait(&session, "three").await, "turn_limit");
    assert_eq!(prompts_heard(&daemon, "echo"), 2, "nothing was sent to the agent");
    assert_eq!(notices(&daemon, &session).await, ["turn_limit"]);
    assert_eq!(daemon.session(&session).await["status"], "active");

    let path = format!("/v1/sessions/{session}");
    let patched = daemon.patch(&path, json!({"limits": {"turnCap": 3}})).await.expect_status(200);
    assert_eq!(patched["limits"], json!({"turnCap": 3}));
    assert_eq!(
        daemon.prompt_and_wait(&session, "three again").await["status"],
        "completed",
        "what failed is not counted"
    );
    assert_failed(&daemon.prompt_and_wait(&session, "four").await, "turn_limit");
    assert_eq!(prompts_heard(&daemon, "echo"), 3);
    let started = payloads(&daemon.events_so_far(&session, None).await, "turn.started").len();
    assert_eq!(started, 3, "a turn past the cap never runs");

    let patched = daemon.patch(&path, json!({"limits": {"toolCallCap": 7}})).await.expect_status(200);
    assert_eq!(patched["limits"], json!({"turnCap": 3, "toolCallCap": 7}), "what is not named stays");
    let patched = daemon.patch(&path, json!({"limits": {"turnCap": 0}})).await.expect_status(200);
    assert_eq!(patched["limits"], json!({"toolCallCap": 7}), "0 takes it away");
}

#[tokio::test]
async fn a_turn_that_ran_counts_however_it_ended() {
    let config = "[sessions]\nturn_cap = 1\ntool_call_cap = 1";
    let steps = [tool_calls(3), vec![json!({"expect": "session/cancel"})]].concat();
    let prompt = json!({"prompt": steps});
    let mut daemon =
        Daemon::builder().config(config).agent("busy", json!([{"handshake": {}}, {"repeat": [prompt]}])).start().await;
    let session = daemon.create_session("busy").await;
    let turn = daemon.prompt_and_wait(&session, "one").await;
    assert!(turn["startedAt"].is_string() && turn["error"]["code"] == "turn_limit", "{turn}");
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    let turn = daemon.prompt_and_wait(&session, "two").await;
    assert!(turn["startedAt"].is_null() && turn["error"]["code"] == "turn_limit", "{turn}");
}

#[tokio::test]
async fn prompts_past_the_cap_that_wait_in_the_queue_fail_one_by_one() {
    let gated = json!([{"record": true}, {"handshake": {}}, {"repeat": [{"prompt": [{"gate": "busy"}]}]}]);
    let config = "[sessions]\nturn_cap = 2";
    let daemon = Daemon::builder().config(config).agent("gated", gated).start().await;
    let session = daemon.create_session("gated").await;
    let mut accepted = vec![daemon.prompt(&session, "one").await];
    let passage = daemon.gate("gated").reached("busy").await;
    for text in ["two", "three", "four"] {
        accepted.push(daemon.prompt(&session, text).await);
    }
    passage.open().await;
    daemon.gate("gated").reached("busy").await.open().await;
    let mut statuses = Vec::new();
    for accepted in &accepted {
        let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
        statuses.push((turn["status"].clone(), turn["error"]["code"].clone()));
    }
    let (completed, failed) = ((json!("completed"), Value::Null), (json!("failed"), json!("turn_limit")));
    assert_eq!(statuses, [completed.clone(), completed, failed.clone(), failed]);
    assert_eq!(prompts_heard(&daemon, "gated"), 2);
}

/// So many tool calls, each begun and completed.
fn tool_calls(count: usize) -> Vec<Value> {
    let update = |kind: &str, number: usize, status: &str| {
        json!({"update": {"sessionUpdate": kind, "toolCallId": format!("call-{number}"), "title": "look",
            "status": status}})
    };
    let call = |number| [update("tool_call", number, "pending"), update("tool_call_update", number, "completed")];
    (0..count).flat_map(call).collect()
}

#[tokio::test]
async fn a_turn_with_too_many_tool_calls_is_cancelled_and_fails() {
    let too_many = [tool_calls(4), vec![json!({"expect": "session/cancel"})]].concat();
    let script = json!([{"record": true}, {"handshake": {}}, {"prompt": tool_calls(3)}, {"prompt": too_many},
        {"repeat": [{"prompt": [{"text": "calm again"}]}]}]);
    let config = "[sessions]\ntool_call_cap = 3";
    let daemon = Daemon::builder().config(config).agent("eager", script).start().await;
    let session = daemon.create_session("eager").await;
    let turn = daemon.prompt_and_wait(&session, "three calls").await;
    assert_eq!(turn["status"], "completed", "as many as the cap are fine: {turn}");
    let message = assert_failed(&daemon.prompt_and_wait(&session, "four calls").await, "turn_limit");
    assert!(message.contains("tool call"), "{message}");
    let methods: Vec<String> = daemon.heard("eager").into_iter().map(|heard| heard.method).collect();
    assert_eq!(methods[2..], ["session/prompt", "session/prompt", "session/cancel"]);
    assert_eq!(daemon.prompt_and_wait(&session, "and now?").await["status"], "completed", "the process stays");
    let events = daemon.events_so_far(&session, None).await;
    assert_eq!(payloads(&events, "process.starting").len(), 1);
    assert_eq!(notices(&daemon, &session).await, ["turn_limit"]);
}

#[tokio::test]
async fn an_agent_that_goes_on_calling_tools_after_the_cancel_is_killed() {
    let mut script =
        vec![json!({"handshake": {}}), json!({"ignoreSignals": ["TERM"]}), json!({"expect": "session/prompt"})];
    script.extend(tool_calls(4));
    script.push(json!({"hang": true}));
    let config = "[sessions]\ntool_call_cap = 3\n[processes]\ncancel_grace = \"100ms\"\neof_grace = \"50ms\"\n\
        term_grace = \"50ms\"";
    let daemon = Daemon::builder().config(config).agent("deaf", json!(script)).start().await;
    let session = daemon.create_session("deaf").await;
    let mut stream = daemon.events(&session, None).await;
    assert_failed(&daemon.prompt_and_wait(&session, "go").await, "turn_limit");
    let exited = stream.until("process.exited").await.pop().unwrap();
    assert_eq!(exited.payload()["reason"], "limit");
    assert_eq!(daemon.session(&session).await["status"], "active");
}

#[tokio::test]
async fn a_turn_that_is_silent_for_too_long_fails_and_its_agent_goes() {
    let script = json!([{"record": true}, {"handshake": {}}, {"ignoreSignals": ["TERM"]}, {"expect": "session/prompt"},
        {"text": "I will be"}, {"gate": "silent"}, {"hang": true}]);
    let config = "[sessions]\nturn_silence_timeout = \"300ms\"\n[processes]\ncancel_grace = \"50ms\"\n\
        eof_grace = \"50ms\"\nterm_grace = \"50ms\"";
    let daemon = Daemon::builder().config(config).agent("silent", script).start().await;
    let session = daemon.create_session("silent").await;
    let mut stream = daemon.events(&session, None).await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("silent").reached("silent").await;
    let pid = passage.pid;
    passage.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_failed(&turn, "timeout");
    let exited = stream.until("process.exited").await.pop().unwrap();
    assert_eq!(exited.payload()["reason"], "timeout");
    process_gone(pid).await;
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[1]["content"], json!({"type": "text", "text": "I will be", "partial": true}));
    assert_eq!(notices(&daemon, &session).await, ["timeout"]);
    assert_eq!(daemon.session(&session).await["status"], "active");
}

/// It crashes or works, as the test says each time.
fn moody() -> Value {
    json!([{"gate": "up", "cases": {"crash": [{"stderr": "no such model"}, {"exit": 7}]}}, {"handshake": {}},
        {"repeat": [{"prompt": [{"text": "fine"}]}]}])
}

/// Prompts, has the process that starts for it crash or work, and returns the turn.
async fn prompt_moody(daemon: &Daemon, session: &str, word: &str) -> Value {
    let accepted = daemon.prompt(session, word).await;
    daemon.gate("moody").reached("up").await.say(word).await;
    daemon.wait_turn(session, accepted["turnId"].as_str().unwrap()).await
}

#[tokio::test]
async fn after_too_many_crashes_in_a_row_turns_fail_at_once() {
    let config = "[processes]\ncrash_limit = 2\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"";
    let daemon = Daemon::builder().config(config).agent("moody", moody()).start().await;
    let session = daemon.create_lazy_session("moody").await;
    for _ in 0..2 {
        let message = assert_failed(&prompt_moody(&daemon, &session, "crash").await, "agent_exited");
        assert!(message.contains("code 7") && message.contains("no such model"), "{message}");
    }
    let message = assert_failed(&daemon.prompt_and_wait(&session, "again").await, "agent_exited");
    assert!(message.contains("crash"), "{message}");
    let events = daemon.events_so_far(&session, None).await;
    assert_eq!(payloads(&events, "process.starting").len(), 2, "nothing was started for it");
    assert_eq!(daemon.session(&session).await["status"], "active", "a crash loop is no error of the session's");
}

#[tokio::test]
async fn a_prompt_waits_the_backoff_out_and_runs_when_the_agent_works_again() {
    let config = "[processes]\ncrash_limit = 10\nbackoff_min = \"100ms\"\nbackoff_max = \"200ms\"";
    let daemon = Daemon::builder().config(config).agent("moody", moody()).start().await;
    let session = daemon.create_lazy_session("moody").await;
    for _ in 0..4 {
        assert_failed(&prompt_moody(&daemon, &session, "crash").await, "agent_exited");
    }
    assert_eq!(prompt_moody(&daemon, &session, "work").await["status"], "completed");
    assert_eq!(daemon.prompt_and_wait(&session, "more").await["status"], "completed");
}

#[tokio::test]
async fn a_turn_that_ends_well_ends_the_row_of_crashes() {
    let working = json!([{"gate": "up", "cases": {"crash": [{"exit": 7}]}}, {"handshake": {}},
        {"prompt": [{"text": "fine"}]}, {"expect": "session/prompt"}, {"exit": 7}]);
    let config = "[processes]\ncrash_limit = 2\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"";
    let daemon = Daemon::builder().config(config).agent("moody", working).start().await;
    let session = daemon.create_lazy_session("moody").await;
    assert_failed(&prompt_moody(&daemon, &session, "crash").await, "agent_exited");
    for _ in 0..3 {
        // Each of these processes answers once and then crashes: never twice in a row without an answer between.
        assert_eq!(prompt_moody(&daemon, &session, "work").await["status"], "completed");
        assert_failed(&daemon.prompt_and_wait(&session, "crash").await, "agent_exited");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_end_with_its_input_is_terminated_before_it_is_killed() {
    let script = json!([{"handshake": {}}, {"ignoreEof": true}, {"expect": "session/prompt"}]);
    let config = "[processes]\neof_grace = \"50ms\"\nterm_grace = \"30s\"";
    let daemon = Daemon::builder().config(config).agent("slow", script).start().await;
    let session = daemon.create_session("slow").await;
    let mut stream = daemon.events(&session, None).await;
    stream.until("process.ready").await;
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    let exited = stream.until("process.exited").await.pop().unwrap();
    assert_eq!((&exited.payload()["reason"], &exited.payload()["signal"]), (&json!("archive"), &json!(15)));
}

#[tokio::test]
async fn a_busy_agent_is_told_to_cancel_before_its_standard_input_closes() {
    let script = json!([{"record": true}, {"handshake": {}}, {"expect": "session/prompt"}, {"gate": "busy"},
        {"expect": "session/cancel"}, {"expect": "session/prompt"}]);
    let config = "[processes]\neof_grace = \"30s\"";
    for archive in [true, false] {
        let mut daemon = Daemon::builder().config(config).agent("polite", script.clone()).start().await;
        let session = daemon.create_session("polite").await;
        daemon.prompt(&session, "go").await;
        let passage = daemon.gate("polite").reached("busy").await;
        if archive {
            let path = format!("/v1/sessions/{session}/archive");
            let (archived, ()) = tokio::join!(daemon.post(&path, json!({})), passage.open());
            archived.expect_status(200);
        } else {
            passage.open().await;
            daemon.terminate().await;
        }
        let methods: Vec<String> = daemon.heard("polite").into_iter().map(|heard| heard.method).collect();
        assert_eq!(methods[2..], ["session/prompt", "session/cancel", "eof"], "archive: {archive}");
    }
}
