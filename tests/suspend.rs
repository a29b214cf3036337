//! The graceful stop of a daemon with many sessions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::collections::BTreeMap;
use std::time::Instant;

use harness::{Daemon, Event, process_alive};
use serde_json::{Value, json};

const SESSIONS: usize = 100;
/// How long the agents have. When they take longer, the daemon kills them and says so.
const CONFIG: &str = "[limits]\nprocesses = 100\n[processes]\nshutdown_timeout = \"2s\"";

/// The payload of the one event of this kind that each session has.
fn one_of_each(events: &[Event], kind: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind == kind) {
        let session = event.data["sessionId"].as_str().unwrap().to_owned();
        let earlier = found.insert(session, event.payload().clone());
        assert_eq!(earlier, None, "one {kind} a session");
    }
    assert_eq!(found.len(), SESSIONS, "{kind}");
    found
}

#[tokio::test]
async fn a_hundred_sessions_are_suspended_together_in_time() {
    let script = json!([{"handshake": {}}, {"expect": "session/prompt"}]);
    let mut daemon = Daemon::builder().config(CONFIG).agent("calm", script).start().await;
    for _ in 0..SESSIONS {
        daemon.create_session("calm").await;
    }
    let mut all = daemon.event_stream("/v1/events?after=0", &[]).await;
    for _ in 0..SESSIONS {
        all.until("process.ready").await;
    }
    drop(all);
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["processes"]["running"], SESSIONS);

    let begun = Instant::now();
    assert!(daemon.terminate().await.success());
    // Told, not judged: what is judged is whether the daemon's own deadline passed.
    eprintln!("{SESSIONS} sessions were suspended in {:?}", begun.elapsed());
    for complaint in ["did not stop in time", "stopped waiting for"] {
        assert!(!daemon.log().contains(complaint), "{complaint}");
    }

    daemon.restart().await;
    let events = daemon.event_stream("/v1/events?after=0&follow=false", &[]).await.rest().await;
    let started = one_of_each(&events, "process.ready");
    for (session, exited) in one_of_each(&events, "process.exited") {
        assert_eq!((&exited["reason"], &exited["code"]), (&json!("shutdown"), &json!(0)), "{exited}");
        let pid = started[&session]["pid"].as_u64().unwrap();
        assert_eq!(exited["pid"], pid);
        assert!(!process_alive(u32::try_from(pid).unwrap()));
    }
    for (_, status) in one_of_each(&events, "session.status") {
        assert_eq!((&status["from"], &status["to"]), (&json!("active"), &json!("suspended")));
    }
    let counts = &daemon.get("/v1/info").await.expect_status(200)["sessions"];
    assert_eq!(counts["suspended"], SESSIONS);
}
