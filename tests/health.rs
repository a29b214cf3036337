//! Health: alive apart from ready, and what is wrong; and what the daemon tells of what it runs on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use harness::{Daemon, HeldWriter, ORDINARY, echo, users, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The codes of what is wrong, with how bad it is.
fn problems(health: &Value) -> Vec<(String, String)> {
    let text = |problem: &Value, field: &str| problem[field].as_str().unwrap().to_owned();
    let problems = health["problems"].as_array().unwrap().iter();
    problems
        .inspect(|problem| assert!(!text(problem, "message").is_empty() && !text(problem, "hint").is_empty()))
        .map(|problem| (text(problem, "severity"), text(problem, "code")))
        .collect()
}

fn one(severity: &str, code: &str) -> Vec<(String, String)> {
    vec![(severity.to_owned(), code.to_owned())]
}

#[tokio::test]
async fn who_asks_for_a_sign_of_life_gets_nothing_else() {
    let daemon = Daemon::start().await;
    let live = daemon.get("/v1/health?probe=live").await.expect_status(200);
    assert_eq!(live, json!({"status": "ok", "live": true}));
    let ready = daemon.get("/v1/health?probe=ready").await.expect_status(200);
    assert_eq!((&ready["live"], &ready["ready"], &ready["problems"]), (&json!(true), &json!(true), &json!([])));
    let refused = daemon.get("/v1/health?probe=dead").await.expect_status(400);
    assert_eq!(refused["details"]["field"], "probe", "{refused}");
}

#[tokio::test]
async fn a_write_that_hangs_does_not_hang_health() {
    if !HeldWriter::is_possible() {
        return;
    }
    let daemon = Daemon::start().await;
    let writer = HeldWriter::hold(daemon.pid());
    let ill = daemon.get("/v1/health").await.expect_status(503);
    assert_eq!((&ill["error"], &ill["ready"], &ill["live"]), (&json!("store_stalled"), &json!(false), &json!(true)));
    assert_eq!(problems(&ill), one("problem", "store_stalled"));
    assert!(ill["hint"].as_str().unwrap().contains("disk"), "{ill}");
    assert_eq!(ill["store"]["writable"], false, "health does not contradict itself: {ill}");
    daemon.get("/v1/health?probe=live").await.expect_status(200);
    writer.let_go();
    within("the store is well again", async { while daemon.get("/v1/health").await.status != 200 {} }).await;
}

#[tokio::test]
async fn a_member_is_told_that_something_is_wrong_and_nothing_of_the_inside() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only a daemon of root serves several users");
    }
    let config = "[limits]\nprocesses = 1\n";
    let daemon = Daemon::builder().owner(ORDINARY).config(config).agent("echo", echo()).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "x").await;
    let well = member.get("/v1/health").await.expect_status(200);
    let warning = json!([{"severity": "warning", "code": "process_limit"}]);
    assert_eq!(well, json!({"status": "ok", "live": true, "ready": true, "problems": warning}));

    let writer = HeldWriter::hold(daemon.pid());
    // What the daemon's own user finds is good enough for everybody.
    daemon.get("/v1/health").await.expect_status(503);
    let ill = member.get("/v1/health").await.expect_status(503);
    assert_eq!((&ill["error"], &ill["ready"], &ill["details"]), (&json!("store_stalled"), &json!(false), &json!({})));
    assert_eq!(ill["problems"][0], json!({"severity": "problem", "code": "store_stalled"}));
    assert!(ill.get("store").is_none() && !ill.to_string().contains("acpd.db"), "{ill}");
    writer.let_go();
    within("the store is well again", async { while member.get("/v1/health").await.status != 200 {} }).await;
}

#[tokio::test]
async fn a_daemon_that_stops_lives_and_is_not_ready() {
    let stubborn = json!([
        {"ignoreSignals": ["TERM", "INT", "HUP"]}, {"ignoreEof": true}, {"handshake": {}}, {"gate": "ready"}, {"hang": true},
    ]);
    let config = "[processes]\neof_grace = \"30s\"\nshutdown_timeout = \"50s\"\n";
    let mut daemon = Daemon::builder().config(config).agent("stubborn", stubborn).start().await;
    daemon.create_session("stubborn").await;
    daemon.gate("stubborn").reached("ready").await.open().await;
    daemon.signal(Signal::SIGTERM);
    daemon.is_stopping().await;
    let ill = daemon.get("/v1/health").await.expect_status(503);
    assert_eq!(ill["error"], "shutting_down");
    assert_eq!(problems(&ill)[0], ("problem".to_owned(), "shutting_down".to_owned()));
    daemon.get("/v1/health?probe=live").await.expect_status(200);
    // A second signal kills what is left.
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await;
}

#[tokio::test]
async fn what_only_deserves_attention_is_a_warning() {
    let config = "[limits]\nprocesses = 1\n";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "x").await;
    let health = daemon.get("/v1/health").await.expect_status(200);
    assert_eq!((&health["status"], &health["ready"]), (&json!("ok"), &json!(true)));
    assert_eq!(problems(&health), one("warning", "process_limit"));
    let told = daemon.cli(&["status"]).await.success();
    assert!(told.contains("warning") && told.contains("limits.processes"), "{told}");

    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    std::fs::write(daemon.config_file(), "[limits]\nprocesses = \"many\"\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    within("the reload fails", async {
        while problems(&daemon.get("/v1/health").await.expect_status(200)) != one("warning", "config_not_reloaded") {}
    })
    .await;
}

#[tokio::test]
async fn info_tells_what_of_the_kernel_is_in_use() {
    let daemon = Daemon::start().await;
    let info = daemon.get("/v1/info").await.expect_status(200);
    let kernel = &info["kernel"];
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(kernel["release"], release.trim());
    assert_eq!((&kernel["subreaper"], &kernel["cgroup"]["mode"]), (&json!(true), &json!("auto")));
    for flag in ["openat2", "pidfd", "peerPidfd", "userNamespaces"] {
        assert!(kernel[flag].is_boolean(), "{flag}: {kernel}");
    }
    assert_eq!(kernel["bubblewrap"]["mode"], "never");
    let versions = &info["versions"];
    assert_eq!((&versions["acpd"], &versions["acpProtocol"]), (&info["version"], &json!(1)));
    assert!(versions["storeSchema"].as_i64().unwrap() > 0 && versions["sqlite"].as_str().unwrap().starts_with("3."));
    assert!(info["rlimits"]["nofile"]["soft"].as_u64().unwrap() > 0);
    let limits = &info["limits"];
    assert_eq!((&limits["listLimit"], &limits["fileBytes"]), (&json!(1000), &json!(10 << 20)));
    assert_eq!((&limits["idleTimeoutSeconds"], &limits["costLimit"]), (&json!(1800), &Value::Null));
    let told = daemon.cli(&["status"]).await.success();
    assert!(told.contains(&format!("{}, ", release.trim())), "{told}");
}

/// What a session says of its confinement and what the daemon says of the kernel are the same.
#[tokio::test]
async fn the_version_of_landlock_is_the_one_that_agents_have() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "x").await;
    let landlock = daemon.get("/v1/info").await.expect_status(200)["kernel"]["landlock"].clone();
    let had = daemon.session(&session).await["sandboxDetails"]["landlockAbi"].clone();
    let known = |abi: &Value| abi.as_i64().map(|abi| abi.min(landlock["abiWanted"].as_i64().unwrap()));
    assert_eq!(known(&landlock["abi"]), known(&had), "{landlock}");
}
