//! Retention: who expires when, and that nobody is deleted who was not expired at two sweeps a day apart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{Daemon, echo};
use serde_json::{Value, json};

const HOUR: i64 = 60 * 60 * 1000;
const DAY: i64 = 24 * HOUR;

/// A session without a process, so that nobody holds on to its row.
async fn lazy_session(daemon: &Daemon, title: &str) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": "echo", "title": title, "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    session["id"].as_str().unwrap().to_owned()
}

/// Makes a session one that has been in a status for that long.
async fn put(daemon: &mut Daemon, session: &str, status: &str, since: i64) {
    let set = format!("status = '{status}', status_changed_at = {NOW} - {since}");
    daemon.sql(format!("UPDATE sessions SET {set} WHERE id = '{session}'")).await;
}

/// Makes its mark that old.
async fn mark(daemon: &mut Daemon, session: &str, age: i64) {
    daemon.sql(format!("UPDATE sessions SET expired_seen_at = {NOW} - {age} WHERE id = '{session}'")).await;
}

const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

async fn gc(daemon: &Daemon, dry_run: bool) -> Value {
    let report = daemon.post("/v1/gc", json!({"dryRun": dry_run})).await.expect_status(200);
    assert_eq!(report["dryRun"], dry_run);
    for list in ["deleted", "marked", "waiting", "unmarked"] {
        assert_eq!(report["counts"][list], ids(&report, list).len(), "{report}");
    }
    report
}

fn ids(report: &Value, list: &str) -> Vec<String> {
    let sessions = report[list].as_array().unwrap_or_else(|| panic!("no list {list}: {report}"));
    sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

async fn marks(daemon: &Daemon) -> i64 {
    daemon.sql_number("SELECT count(*) FROM sessions WHERE expired_seen_at IS NOT NULL".to_owned()).await
}

async fn sweeps(daemon: &Daemon) -> i64 {
    daemon.sql_number("SELECT count(*) FROM sweeps".to_owned()).await
}

async fn exists(daemon: &Daemon, session: &str) -> bool {
    daemon.get(&format!("/v1/sessions/{session}")).await.status == 200
}

fn millis(time: &Value) -> i64 {
    time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[tokio::test]
async fn every_session_shows_when_it_expires() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    for (status, supports_resume, days) in [
        ("active", 0, None),
        ("suspended", 0, Some(7)),
        ("suspended", 1, Some(30)),
        ("error", 0, Some(1)),
        ("archived", 0, None),
    ] {
        let id = lazy_session(&daemon, "x").await;
        put(&mut daemon, &id, status, HOUR).await;
        daemon.sql(format!("UPDATE sessions SET supports_resume = {supports_resume} WHERE id = '{id}'")).await;
        let view = daemon.session(&id).await;
        let expires_at = days.map(|days| millis(&view["statusChangedAt"]) + days * DAY);
        let shown = view["expiresAt"].is_string().then(|| millis(&view["expiresAt"]));
        assert_eq!((shown, &view["keep"]), (expires_at, &json!(false)), "{view}");
        assert!(view.get("expiresAt").is_some(), "null says that it never expires: {view}");
        let listed = daemon.get(&format!("/v1/sessions?status={status}&limit=1")).await.expect_status(200);
        assert_eq!(listed["sessions"][0].get("expiresAt"), view.get("expiresAt"));
        let shown = daemon.cli(&["show", &id]).await.success();
        match view["expiresAt"].as_str() {
            Some(time) => assert!(shown.contains(&format!("expires      {time}")), "{shown}"),
            None => assert!(!shown.contains("expires"), "{shown}"),
        }
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let [new, old] = [lazy_session(&daemon, "new").await, lazy_session(&daemon, "old").await];
    for id in [&new, &old] {
        put(&mut daemon, id, "suspended", 9 * DAY).await;
    }
    mark(&mut daemon, &old, DAY).await;
    for _ in 0..2 {
        let report = gc(&daemon, true).await;
        assert_eq!((ids(&report, "marked"), ids(&report, "deleted")), (vec![new.clone()], vec![old.clone()]));
        assert!(exists(&daemon, &old).await);
        assert_eq!((marks(&daemon).await, sweeps(&daemon).await), (1, 0));
    }
}

#[tokio::test]
async fn the_first_sweep_marks_and_one_a_day_later_deletes() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let expired = daemon.create_session("echo").await;
    let kept = daemon.create_session("echo").await;
    for id in [&expired, &kept] {
        daemon.prompt_and_wait(id, "hello").await;
    }
    daemon.restart().await;
    assert_eq!(daemon.session(&expired).await["status"], "suspended");
    put(&mut daemon, &expired, "suspended", 9 * DAY).await;

    let first = gc(&daemon, false).await;
    assert_eq!((ids(&first, "marked"), ids(&first, "deleted")), (vec![expired.clone()], vec![]));
    let marked = &first["marked"][0];
    assert_eq!((&marked["title"], &marked["status"]), (&json!("hello"), &json!("suspended")));
    assert_eq!(marked["expiresAt"], daemon.session(&expired).await["expiresAt"]);
    assert_eq!(sweeps(&daemon).await, 1);
    let again = gc(&daemon, false).await;
    assert_eq!((ids(&again, "waiting"), ids(&again, "marked")), (vec![expired.clone()], vec![]));
    assert_eq!(again["waiting"][0]["deletableAt"], marked["deletableAt"], "the mark stands");
    mark(&mut daemon, &expired, DAY - HOUR).await;
    assert_eq!(ids(&gc(&daemon, false).await, "waiting"), [expired.as_str()], "not a whole day yet");

    mark(&mut daemon, &expired, DAY).await;
    let second = gc(&daemon, false).await;
    assert_eq!((ids(&second, "deleted"), ids(&second, "waiting")), (vec![expired.clone()], vec![]));
    assert!(!exists(&daemon, &expired).await);
    for table in ["messages", "events", "turns"] {
        let rows =
            async |id| daemon.sql_number(format!("SELECT count(*) FROM {table} WHERE session_id = '{id}'")).await;
        assert_eq!(rows(&expired).await, 0, "{table}");
        assert!(rows(&kept).await > 0, "{table}");
    }
    assert_eq!(daemon.messages(&kept).await.len(), 2);
    assert_eq!(gc(&daemon, false).await["counts"], json!({"deleted": 0, "marked": 0, "waiting": 0, "unmarked": 0}));
}

#[tokio::test]
async fn queued_turns_keep_their_session() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "busy"}]}]}]);
    let mut daemon = Daemon::builder().agent("gated", script).start().await;
    let id = daemon.create_session("gated").await;
    daemon.prompt(&id, "first").await;
    let passage = daemon.gate("gated").reached("busy").await;
    daemon.prompt(&id, "second").await;
    daemon.restart().await;
    drop(passage);
    put(&mut daemon, &id, "suspended", 9 * DAY).await;
    mark(&mut daemon, &id, 2 * DAY).await;
    for dry_run in [true, false] {
        let report = gc(&daemon, dry_run).await;
        assert_eq!((ids(&report, "waiting"), &report["waiting"][0]["queuedTurns"]), (vec![id.clone()], &json!(1)));
        assert!(exists(&daemon, &id).await);
    }
    daemon.post(&format!("/v1/sessions/{id}/cancel"), json!({"queued": true})).await.expect_status(202);
    assert_eq!(ids(&gc(&daemon, false).await, "deleted"), [id.as_str()], "nothing is promised any more");
}

#[tokio::test]
async fn a_resumed_session_is_unmarked_and_survives() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let id = lazy_session(&daemon, "x").await;
    put(&mut daemon, &id, "suspended", 9 * DAY).await;
    mark(&mut daemon, &id, 2 * DAY).await;
    daemon.post(&format!("/v1/sessions/{id}/resume"), json!({})).await.expect_status(200);
    assert_eq!(marks(&daemon).await, 0);
    assert_eq!(ids(&gc(&daemon, false).await, "deleted"), Vec::<String>::new());
    assert_eq!(daemon.prompt_and_wait(&id, "still here").await["status"], "completed");
}

#[tokio::test]
async fn a_mark_of_another_stay_or_another_clock_deletes_nothing() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let id = lazy_session(&daemon, "x").await;
    // Expired for two days: a mark from before that was for an earlier stay, one from the future is a wrong clock's.
    put(&mut daemon, &id, "suspended", 9 * DAY).await;
    for age in [3 * DAY, -DAY] {
        mark(&mut daemon, &id, age).await;
        assert_eq!(ids(&gc(&daemon, false).await, "marked"), [id.as_str()]);
        let report = gc(&daemon, false).await;
        assert_eq!(ids(&report, "waiting"), [id.as_str()], "it was marked anew");
        assert!(millis(&report["waiting"][0]["deletableAt"]) > millis(&report["waiting"][0]["expiresAt"]) + 2 * DAY);
    }
    // A clock that is set back takes the expiry with it.
    put(&mut daemon, &id, "suspended", -9 * DAY).await;
    mark(&mut daemon, &id, -10 * DAY).await;
    assert_eq!(ids(&gc(&daemon, false).await, "unmarked"), [id.as_str()]);
    assert!(exists(&daemon, &id).await);
}

#[tokio::test]
async fn raised_retention_unmarks_and_archived_sessions_go_only_when_told() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let [suspended, archived, failed] = [
        lazy_session(&daemon, "suspended").await,
        lazy_session(&daemon, "archived").await,
        lazy_session(&daemon, "failed").await,
    ];
    put(&mut daemon, &suspended, "suspended", 400 * DAY).await;
    put(&mut daemon, &archived, "archived", 400 * DAY).await;
    put(&mut daemon, &failed, "error", 400 * DAY).await;
    let report = gc(&daemon, false).await;
    assert_eq!(ids(&report, "marked"), [suspended.as_str(), failed.as_str()], "archived sessions are kept for ever");

    let settings = "[sessions]\nretention_suspended = 0\nretention_archived = \"300d\"\n";
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), format!("{config}\n{settings}")).unwrap();
    daemon.restart().await;
    assert!(daemon.session(&suspended).await["expiresAt"].is_null(), "0 keeps");
    let report = gc(&daemon, false).await;
    assert_eq!(ids(&report, "unmarked"), [suspended.as_str()]);
    assert_eq!((ids(&report, "marked"), ids(&report, "waiting")), (vec![archived.clone()], vec![failed.clone()]));
    for id in [&archived, &failed] {
        mark(&mut daemon, id, DAY).await;
    }
    assert_eq!(ids(&gc(&daemon, false).await, "deleted"), [archived, failed]);
    assert!(exists(&daemon, &suspended).await);
}

#[tokio::test]
async fn a_start_never_deletes() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let id = lazy_session(&daemon, "x").await;
    put(&mut daemon, &id, "suspended", 30 * DAY).await;
    mark(&mut daemon, &id, 2 * DAY).await;
    daemon.sql("INSERT INTO sweeps (id, at) VALUES (1, 0)".to_owned()).await;
    daemon.kill().await;
    for _ in 0..2 {
        daemon.restart().await;
        daemon.get("/v1/health").await.expect_status(200);
        assert!(exists(&daemon, &id).await);
        assert_eq!(daemon.sql_number("SELECT at FROM sweeps".to_owned()).await, 0, "no sweep was made");
    }
    assert_eq!(ids(&gc(&daemon, true).await, "deleted"), [id.as_str()], "though it may go any time");
}

#[tokio::test]
async fn whoever_resumes_during_a_sweep_keeps_the_session_or_is_told() {
    const SESSIONS: usize = 12;
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let mut expired = Vec::new();
    for _ in 0..SESSIONS {
        let id = lazy_session(&daemon, "x").await;
        put(&mut daemon, &id, "suspended", 30 * DAY).await;
        mark(&mut daemon, &id, 2 * DAY).await;
        expired.push(id);
    }
    let paths: Vec<String> = expired.iter().map(|id| format!("/v1/sessions/{id}/resume")).collect();
    // In the other direction, so that the two meet in the middle.
    let resumes = futures_util::future::join_all(paths.iter().rev().map(|path| daemon.post(path, json!({}))));
    let (report, resumed) = tokio::join!(gc(&daemon, false), resumes);
    let deleted = ids(&report, "deleted");
    for (id, reply) in expired.iter().rev().zip(resumed) {
        let is_there = exists(&daemon, id).await;
        assert_eq!(deleted.contains(id), !is_there, "{id}");
        assert_eq!(reply.status == 200, is_there, "{}", reply.text);
        assert!(matches!(reply.status, 200 | 404 | 409), "{}", reply.text);
        if is_there {
            assert_eq!(daemon.session(id).await["status"], "active");
        }
    }
}

#[tokio::test]
async fn a_sweep_reaches_every_session_page_by_page() {
    const SESSIONS: usize = 250;
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let model = lazy_session(&daemon, "the model").await;
    daemon
        .sql(format!(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {SESSIONS}) \
             INSERT INTO sessions (id, workspace_id, agent, profile, permissions, title, tags, status, created_at, \
             updated_at, last_active_at, status_changed_at) \
             SELECT printf('00000000-0000-7000-8000-%012d', n), workspace_id, agent, profile, permissions, title, tags, \
             'error', created_at, updated_at, last_active_at, {NOW} - {} FROM sessions, number WHERE id = '{model}'",
            3 * DAY
        ))
        .await;
    assert_eq!(ids(&gc(&daemon, false).await, "marked").len(), SESSIONS);
    daemon.sql(format!("UPDATE sessions SET expired_seen_at = expired_seen_at - {DAY}")).await;
    assert_eq!(ids(&gc(&daemon, false).await, "deleted").len(), SESSIONS);
    assert_eq!(daemon.sql_number("SELECT count(*) FROM sessions".to_owned()).await, 1);
    assert!(exists(&daemon, &model).await);
}

#[tokio::test]
async fn gc_tells_what_it_does_and_refuses_what_it_does_not_know() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    // As wide as what it stands for, so that the columns stay.
    let filters = vec![
        (r"[0-9a-f]{12}", "[    id    ]"),
        (r"the store has \d+ [KM]iB( \(before: .*\))?", "the store has [size]"),
    ];
    let nothing = daemon.cli(&["gc", "--dry-run"]).await.success();
    insta::with_settings!({filters => filters.clone()}, {
        insta::assert_snapshot!(nothing, @r"
        no expired sessions

        the store has [size]; 0 text deltas would be removed, 0 messages would be indexed

        dry run: nothing was changed
        ");
    });
    for (title, status, since, marked) in [
        ("fix the test", "suspended", 9 * DAY, Some(DAY)),
        ("a new idea", "error", 2 * DAY + HOUR, None),
        ("on its way out", "suspended", 10 * DAY, Some(HOUR)),
        ("kept after all", "active", DAY, Some(HOUR)),
        ("for ever", "archived", 99 * DAY, None),
    ] {
        let id = lazy_session(&daemon, title).await;
        put(&mut daemon, &id, status, since).await;
        if let Some(age) = marked {
            mark(&mut daemon, &id, age).await;
        }
    }
    let dry = daemon.cli(&["gc", "--dry-run"]).await.success();
    insta::with_settings!({filters => filters.clone()}, {
        insta::assert_snapshot!(dry, @r"
        1 session would be deleted:
        ID            STATUS     EXPIRY  DELETION  TITLE
        [    id    ]  suspended  2d ago  now       fix the test

        1 session would be marked, to be deleted 24 hours later at the earliest:
        ID            STATUS  EXPIRY  DELETION  TITLE
        [    id    ]  error   1d ago  in 1d     a new idea

        1 session marked earlier, not deleted yet:
        ID            STATUS     EXPIRY  DELETION  TITLE
        [    id    ]  suspended  3d ago  in 23h    on its way out

        1 session would be unmarked, no longer expired:
        ID            STATUS  EXPIRY  DELETION  TITLE
        [    id    ]  active  never   no        kept after all

        the store has [size]; 0 text deltas would be removed, 0 messages would be indexed

        dry run: nothing was changed
        ");
    });
    let json = daemon.cli(&["gc", "--dry-run", "--json"]).await.json();
    assert_eq!((&json["dryRun"], &json["counts"]["deleted"]), (&json!(true), &json!(1)));
    let done = daemon.cli(&["gc"]).await.success();
    insta::with_settings!({filters => filters}, {
        insta::assert_snapshot!(done, @r"
        1 session deleted:
        ID            STATUS     EXPIRY  DELETION  TITLE
        [    id    ]  suspended  2d ago  now       fix the test

        1 session marked, to be deleted 24 hours later at the earliest:
        ID            STATUS  EXPIRY  DELETION  TITLE
        [    id    ]  error   1d ago  in 1d     a new idea

        1 session marked earlier, not deleted yet:
        ID            STATUS     EXPIRY  DELETION  TITLE
        [    id    ]  suspended  3d ago  in 23h    on its way out

        1 session unmarked, no longer expired:
        ID            STATUS  EXPIRY  DELETION  TITLE
        [    id    ]  active  never   no        kept after all

        the store has [size]; 0 text deltas removed, 0 messages indexed
        ");
    });

    let unknown = daemon.post("/v1/gc", json!({"dryrun": true})).await.expect_status(400);
    assert_eq!((&unknown["error"], &unknown["details"]["field"]), (&json!("invalid_request"), &json!("dryrun")));
    let bare = daemon.request("POST", "/v1/gc", None).await.expect_status(200);
    assert_eq!((&bare["dryRun"], &bare["counts"]["waiting"]), (&json!(false), &json!(2)));
}

#[tokio::test]
async fn a_kept_session_never_expires_whatever_its_status() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    for status in ["suspended", "error", "archived"] {
        let id = lazy_session(&daemon, status).await;
        put(&mut daemon, &id, status, 90 * DAY).await;
        mark(&mut daemon, &id, 2 * DAY).await;
        daemon.restart().await;
        assert_eq!(daemon.cli(&["keep", &id]).await.success().trim(), id);
        let kept = daemon.session(&id).await;
        assert_eq!((&kept["keep"], &kept["expiresAt"]), (&json!(true), &Value::Null), "{kept}");
        assert!(daemon.cli(&["show", &id]).await.success().contains("never expires"));
        let report = gc(&daemon, false).await;
        assert!(ids(&report, "deleted").is_empty() && exists(&daemon, &id).await, "{report}");
        assert_eq!(ids(&report, "unmarked"), [id.as_str()], "its mark is gone");
        daemon.restart().await;
        assert_eq!(daemon.session(&id).await["keep"], true);

        let changed = daemon.patch(&format!("/v1/sessions/{id}"), json!({"keep": false, "title": "x"})).await;
        let expected = if status == "suspended" { 200 } else { 409 };
        assert_eq!(changed.status, expected, "{}", changed.text);
        daemon.cli(&["keep", "--undo", &id]).await.success();
        assert_eq!(daemon.session(&id).await["keep"], false);
        if status != "archived" {
            assert_eq!(ids(&gc(&daemon, false).await, "marked"), [id.as_str()], "it is marked anew");
        }
        daemon.cli(&["keep", &id]).await.success();
        daemon.cli(&["rm", "--purge", &id]).await.success();
        assert!(!exists(&daemon, &id).await, "a person may still delete it");
    }
    let id = lazy_session(&daemon, "active").await;
    let mut events = daemon.events(&id, None).await;
    daemon.patch(&format!("/v1/sessions/{id}"), json!({"keep": true})).await.expect_status(200);
    assert_eq!(events.until("session.updated").await.last().unwrap().payload()["keep"], true);
    daemon.cli(&["archive", &id]).await.success();
    assert_eq!(daemon.session(&id).await["keep"], true);
}

#[tokio::test]
async fn the_list_shows_what_expires_within_seven_days_and_stopping_says_when() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let (soon, later, over) = (
        lazy_session(&daemon, "soon").await,
        lazy_session(&daemon, "later").await,
        lazy_session(&daemon, "over").await,
    );
    for (id, since) in [(&soon, 5 * DAY - HOUR), (&later, 5 * DAY), (&over, 8 * DAY)] {
        put(&mut daemon, id, "suspended", since).await;
    }
    daemon.sql(format!("UPDATE sessions SET supports_resume = 1 WHERE id = '{later}'")).await;
    let listed = daemon.cli(&["ls"]).await.success();
    let line = |id: &str| listed.lines().find(|line| line.contains(&id[24..])).unwrap().to_owned();
    assert!(listed.lines().next().unwrap().contains("EXPIRES"), "{listed}");
    assert!(
        line(&soon).contains("in 2d") && line(&over).contains("expired") && !line(&later).contains("in "),
        "{listed}"
    );
    daemon.cli(&["keep", &soon, &over]).await.success();
    assert!(!daemon.cli(&["ls"]).await.success().contains("EXPIRES"));

    let stopped = daemon.terminal(140, 10, &["stop"]).ended().await;
    for part in ["expire after 7d, or 30d if the agent can restore them", "`acpd keep SESSION`"] {
        assert!(stopped.screen.contains(part), "{}", stopped.screen);
    }
    daemon.ended().await;
}
