//! `GET /metrics`: what it says is well-formed, moves with what happens, and stays bounded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

mod exposition;
mod harness;

use exposition::{Exposition, Flavour};
use harness::{Daemon, echo};
use serde_json::json;

async fn scrape(daemon: &Daemon) -> Exposition {
    let reply = daemon.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(reply.status, 200);
    Exposition::parse(&reply.text, Flavour::Classic)
}

#[tokio::test]
async fn a_scrape_is_well_formed_in_both_formats() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let classic = scrape(&daemon).await;
    let accept = [("accept", "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.3")];
    let reply = daemon.request_with("GET", "/metrics", &accept, None).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(kind));
    let open = Exposition::parse(&reply.text, Flavour::OpenMetrics);
    for family in ["acpd_turn_duration_seconds", "acpd_process_exits", "acpd_sessions", "process_cpu_seconds"] {
        assert!(open.families.contains_key(family), "{family}");
    }
    for family in ["acpd_process_exits_total", "acpd_build_info", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(classic.families.contains_key(family), "{family}");
    }
    for family in classic.families.keys() {
        assert!(family.starts_with("acpd_") || family.starts_with("process_"), "{family}");
    }
}

#[tokio::test]
async fn the_counts_follow_a_prompt() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let before = scrape(&daemon).await;
    assert_eq!(before.value(r#"acpd_turns_total{outcome="completed",code="none"}"#), 0.0, "a rate needs its zero");
    let session = daemon.create_session("echo").await;
    let mut events = daemon.events(&session, None).await;
    daemon.prompt_and_wait(&session, "hello").await;
    events.until("turn.completed").await;
    let after = scrape(&daemon).await;
    let moved = |series: &str| after.value(series) - before.value(series);
    assert_eq!(moved(r#"acpd_turns_total{outcome="completed",code="none"}"#), 1.0);
    assert_eq!(moved("acpd_turn_duration_seconds_count"), 1.0);
    assert_eq!(moved("acpd_handshake_duration_seconds_count"), 1.0);
    assert_eq!(after.value(r#"acpd_process_starts_total{agent="echo"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_processes{state="ready"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_sessions{status="active"}"#), 1.0);
    assert_eq!(after.value("acpd_subscribers"), 1.0);
    for series in [
        "acpd_events_appended_total",
        "acpd_events_streamed_total",
        "acpd_streamed_bytes_total",
        "acpd_agent_read_bytes_total",
        "acpd_agent_written_bytes_total",
        "acpd_store_commit_rows_count",
        "acpd_store_commit_duration_seconds_sum",
        r#"acpd_store_commits_total{synchronous="full"}"#,
    ] {
        assert!(moved(series) > 0.0, "{series}");
    }
    let prompts = r#"acpd_http_requests_total{route="/v1/sessions/{id}/prompt",method="POST",status="2xx"}"#;
    assert_eq!(after.value(prompts), 1.0);
    assert!(after.value("acpd_store_database_bytes") > 0.0 && after.value("acpd_http_connections") > 0.0);
}

#[tokio::test]
async fn refusals_are_counted_by_code_and_labels_are_never_made_up() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    daemon.get("/v1/nothing/of/the/kind").await.expect_status(404);
    daemon.get("/v1/sessions/no-id").await.expect_status(404);
    daemon.post("/v1/sessions", json!({"workspace": "/etc"})).await.expect_status(403);
    daemon.request("BREW", "/v1/coffee", None).await.expect_status(404);
    let after = scrape(&daemon).await;
    assert_eq!(after.value(r#"acpd_refusals_total{code="route_not_found"}"#), 2.0);
    assert_eq!(after.value(r#"acpd_refusals_total{code="session_not_found"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_refusals_total{code="outside_roots"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_security_events_total{event="outside_roots"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_http_requests_total{route="none",method="other",status="4xx"}"#), 1.0);
    let invented = after.series.keys().find(|series| series.contains("nothing") || series.contains("BREW"));
    assert_eq!(invented, None);
}

#[tokio::test]
async fn failures_and_exits_are_counted_by_reason() {
    let dying = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"exit": 3}]);
    let daemon = Daemon::builder().agent("dying", dying).start().await;
    let session = daemon.create_session("dying").await;
    assert_eq!(daemon.prompt_and_wait(&session, "x").await["status"], "failed");
    let after = scrape(&daemon).await;
    assert_eq!(after.value(r#"acpd_turns_total{outcome="failed",code="agent_exited"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_process_exits_total{reason="crash"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_process_stops_total{step="kill"}"#), 0.0, "nobody had to stop it");
}

#[tokio::test]
async fn every_step_of_the_ladder_is_counted() {
    let stubborn = json!([
        {"ignoreSignals": ["TERM", "INT", "HUP"]}, {"ignoreEof": true}, {"handshake": {}},
        {"expect": "session/prompt"}, {"gate": "busy"}, {"hang": true},
    ]);
    let config = "[processes]\neof_grace = \"50ms\"\nterm_grace = \"50ms\"\n";
    let daemon = Daemon::builder().config(config).agent("stubborn", stubborn).agent("echo", echo()).start().await;
    // One that goes when its input ends takes one step.
    let gentle = daemon.create_session("echo").await;
    daemon.events(&gentle, None).await.until("process.ready").await;
    daemon.post(&format!("/v1/sessions/{gentle}/archive"), json!({})).await.expect_status(200);
    let steps =
        async |step: &str| scrape(&daemon).await.value(&format!(r#"acpd_process_stops_total{{step="{step}"}}"#));
    assert_eq!(
        (steps("cancel").await, steps("eof").await, steps("term").await, steps("kill").await),
        (0.0, 1.0, 0.0, 0.0)
    );

    let session = daemon.create_lazy_session("stubborn").await;
    daemon.prompt(&session, "work").await;
    daemon.gate("stubborn").reached("busy").await.open().await;
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    assert_eq!(
        (steps("cancel").await, steps("eof").await, steps("term").await, steps("kill").await),
        (1.0, 2.0, 1.0, 1.0)
    );
    assert_eq!(steps("shim").await, 0.0);
    let after = scrape(&daemon).await;
    assert_eq!(after.value(r#"acpd_process_exits_total{reason="archive"}"#), 2.0);
    assert_eq!(after.value(r#"acpd_turns_total{outcome="cancelled",code="none"}"#), 1.0);
}

#[tokio::test]
async fn questions_are_counted_by_decision_and_by_whom() {
    let ask = json!({"request": {"method": "session/request_permission", "params": {
        "sessionId": "test-session",
        "toolCall": {"toolCallId": "c1", "title": "run", "kind": "execute", "rawInput": {"command": "true"}},
        "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}],
    }}});
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [ask]}]}]);
    let mut daemon = Daemon::builder().agent("asks", script).start().await;
    let session = daemon.create_session("asks").await;
    let mut events = daemon.events(&session, None).await;
    daemon.prompt(&session, "go").await;
    let asked = events.until("permission.requested").await.pop().unwrap();
    assert_eq!(scrape(&daemon).await.value("acpd_permissions_open"), 1.0);
    let id = asked.payload()["permissionId"].as_str().unwrap().to_owned();
    daemon.post(&format!("/v1/permissions/{id}"), json!({"optionId": "yes"})).await.expect_status(200);
    events.until("turn.completed").await;
    let deny = json!({"permissions": {"mode": "deny"}});
    daemon.patch(&format!("/v1/sessions/{session}"), deny).await.expect_status(200);
    daemon.prompt_and_wait(&session, "again").await;
    let after = scrape(&daemon).await;
    assert_eq!(after.value("acpd_permissions_asked_total"), 2.0);
    assert_eq!(after.value(r#"acpd_permissions_answered_total{decision="allow",by="person"}"#), 1.0);
    assert_eq!(after.value(r#"acpd_permissions_answered_total{decision="reject",by="policy"}"#), 1.0);
    assert_eq!(after.value("acpd_permissions_open"), 0.0);

    // Whose agent is gone with the daemon has ended too, though nobody has answered it.
    daemon.patch(&format!("/v1/sessions/{session}"), json!({"permissions": {"mode": "ask"}})).await.expect_status(200);
    let mut events = daemon.events(&session, None).await;
    daemon.prompt(&session, "once more").await;
    for _ in 0..3 {
        events.until("permission.requested").await;
    }
    daemon.kill().await;
    daemon.restart().await;
    let after = scrape(&daemon).await;
    assert_eq!(after.value(r#"acpd_permissions_answered_total{decision="cancelled",by="none"}"#), 1.0);
    assert_eq!(after.value("acpd_permissions_open"), 0.0);
}

#[tokio::test]
async fn many_sessions_make_no_more_series() {
    let config = "[limits]\nprocesses = 3\n[sessions]\nidle_timeout = \"1h\"\n";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let round = async || {
        let session = daemon.create_lazy_session("echo").await;
        daemon.prompt_and_wait(&session, "x").await;
        daemon.session(&session).await;
        daemon.messages(&session).await;
        daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
        scrape(&daemon).await
    };
    round().await;
    let few: Vec<String> = round().await.series.into_keys().collect();
    for _ in 0..20 {
        round().await;
    }
    let many: Vec<String> = round().await.series.into_keys().collect();
    assert_eq!(few, many);
    assert!(many.len() < 1000, "{}", many.len());
}
