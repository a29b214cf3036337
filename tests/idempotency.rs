//! What comes twice under one `Idempotency-Key` happens once, whatever becomes of the daemon and the client in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use futures_util::future::join_all;
use harness::{Daemon, Reply, echo, within};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

async fn keyed(daemon: &Daemon, path: &str, key: &str, body: Value) -> Reply {
    daemon.request_with("POST", path, &[("Idempotency-Key", key)], Some(body)).await
}

fn prompt_path(session: &str) -> String {
    format!("/v1/sessions/{session}/prompt")
}

fn new_session(daemon: &Daemon) -> Value {
    json!({"workspace": daemon.workspace(), "agent": "echo", "start": "lazy"})
}

fn is_replayed(reply: &Reply) -> bool {
    reply.header("Idempotent-Replayed") == Some("true")
}

async fn turns(daemon: &Daemon, session: &str) -> i64 {
    let list = daemon.get(&format!("/v1/sessions/{session}/turns")).await.expect_status(200);
    list["total"].as_i64().unwrap()
}

async fn sessions(daemon: &Daemon) -> i64 {
    daemon.get("/v1/sessions").await.expect_status(200)["total"].as_i64().unwrap()
}

#[tokio::test]
async fn the_same_request_is_answered_the_same_also_by_later_daemons() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let made = keyed(&daemon, "/v1/sessions", "key", new_session(&daemon)).await;
    assert!(!is_replayed(&made));
    let session = made.expect_status(201)["id"].as_str().unwrap().to_owned();
    let path = prompt_path(&session);
    daemon.prompt_and_wait(&session, "before").await;
    let first = keyed(&daemon, &path, "key", json!({"text": "hello"})).await;
    assert!(!is_replayed(&first));
    let first = first.expect_status(202);
    daemon.wait_turn(&session, first["turnId"].as_str().unwrap()).await;
    for restart in ["none", "stop", "kill"] {
        match restart {
            "stop" => daemon.restart().await,
            "kill" => {
                daemon.kill().await;
                daemon.restart().await;
            }
            _ => {}
        }
        let again = keyed(&daemon, &path, "key", json!({"text": "hello"})).await;
        assert!(is_replayed(&again), "{restart}");
        assert_eq!(again.expect_status(202), first, "{restart}");
        let again = keyed(&daemon, "/v1/sessions", "key", new_session(&daemon)).await;
        assert!(is_replayed(&again), "{restart}");
        assert_eq!(again.expect_status(201)["id"], session.as_str(), "{restart}");
        let other = keyed(&daemon, &path, "key", json!({"text": "another"})).await.expect_status(422);
        assert_eq!(other["error"], "idempotency_mismatch", "{restart}");
        let other = keyed(&daemon, "/v1/sessions", "key", json!({"workspace": "/"})).await.expect_status(422);
        assert_eq!(other["error"], "idempotency_mismatch", "{restart}");
        assert_eq!((turns(&daemon, &session).await, sessions(&daemon).await), (2, 1), "{restart}");
    }
}

#[tokio::test]
async fn a_key_is_its_sessions_and_its_routes_alone() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let (one, two) = (daemon.create_lazy_session("echo").await, daemon.create_lazy_session("echo").await);
    let body = json!({"text": "hello"});
    let first = keyed(&daemon, &prompt_path(&one), "key", body.clone()).await.expect_status(202);
    let second = keyed(&daemon, &prompt_path(&two), "key", body.clone()).await.expect_status(202);
    let third = keyed(&daemon, &prompt_path(&one), "KEY", body.clone()).await.expect_status(202);
    assert!(first["turnId"] != second["turnId"] && first["turnId"] != third["turnId"]);
    keyed(&daemon, "/v1/sessions", "key", new_session(&daemon)).await.expect_status(201);
    assert_eq!((turns(&daemon, &one).await, turns(&daemon, &two).await), (2, 1));
}

#[tokio::test]
async fn two_at_once_make_one() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let replies = join_all((0..8).map(|_| keyed(&daemon, "/v1/sessions", "key", new_session(&daemon)))).await;
    assert_eq!(replies.iter().filter(|reply| !is_replayed(reply)).count(), 1);
    let ids: Vec<Value> = replies.into_iter().map(|reply| reply.expect_status(201)["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(sessions(&daemon).await, 1);
    let session = ids[0].as_str().unwrap();
    let path = prompt_path(session);
    let replies = join_all((0..8).map(|_| keyed(&daemon, &path, "key", json!({"text": "hello"})))).await;
    assert_eq!(replies.iter().filter(|reply| !is_replayed(reply)).count(), 1);
    let answers: Vec<Value> = replies.into_iter().map(|reply| reply.expect_status(202)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(turns(&daemon, session).await, 1);
}

#[tokio::test]
async fn a_client_that_goes_away_may_ask_again() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let body = json!({"text": "hello"}).to_string();
    for round in 1..=10 {
        let mut connection = daemon.connect().await;
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\nidempotency-key: key-{round}\r\n\
             content-length: {}\r\n\r\n{body}",
            prompt_path(&session),
            body.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        drop(connection);
        let key = format!("key-{round}");
        let accepted = keyed(&daemon, &prompt_path(&session), &key, json!({"text": "hello"})).await.expect_status(202);
        daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    }
    // A request that was left alone and one that came after it are the same, whichever got in first.
    assert_eq!(turns(&daemon, &session).await, 10);
}

#[tokio::test]
async fn a_daemon_that_is_killed_at_any_moment_does_nothing_twice() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "warm").await;
    for round in 0..6 {
        let key = format!("key-{round}");
        let (path, create) = (prompt_path(&session), new_session(&daemon));
        let before = (turns(&daemon, &session).await, sessions(&daemon).await);
        {
            let headers = [("Idempotency-Key", key.as_str())];
            let prompt = daemon.try_request("POST", &path, &headers, Some(json!({"text": "hello"})));
            let made = daemon.try_request("POST", "/v1/sessions", &headers, Some(create.clone()));
            let (mut prompt, mut made) = (Box::pin(prompt), Box::pin(made));
            // Each round gets a little further: the requests are polled as often as the number of the round says.
            for _ in 0..round {
                let polled = (futures_util::poll!(&mut prompt), futures_util::poll!(&mut made));
                if polled.0.is_ready() || polled.1.is_ready() {
                    break;
                }
                within("a moment of the daemon", daemon.get("/v1/info")).await;
            }
        }
        daemon.kill().await;
        daemon.restart().await;
        let again = keyed(&daemon, &path, &key, json!({"text": "hello"})).await.expect_status(202);
        daemon.wait_turn(&session, again["turnId"].as_str().unwrap()).await;
        keyed(&daemon, "/v1/sessions", &key, create).await.expect_status(201);
        let after = (turns(&daemon, &session).await, sessions(&daemon).await);
        assert_eq!(after, (before.0 + 1, before.1 + 1), "round {round}");
    }
}

#[tokio::test]
async fn what_is_refused_is_not_remembered() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_lazy_session("echo").await;
    let path = prompt_path(&session);
    keyed(&daemon, &path, "key", json!({"text": ""})).await.expect_status(400);
    keyed(&daemon, &path, "key", json!({"text": "{{ctx.no}}"})).await.expect_status(400);
    let wrong = json!({"workspace": daemon.workspace(), "agent": "nobody"});
    keyed(&daemon, "/v1/sessions", "key", wrong).await.expect_status(404);
    keyed(&daemon, "/v1/sessions", "key", new_session(&daemon)).await.expect_status(201);
    daemon.restart().await;
    keyed(&daemon, &path, "key", json!({"text": "hello"})).await.expect_status(409);
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    let accepted = keyed(&daemon, &path, "key", json!({"text": "hello"})).await;
    assert!(!is_replayed(&accepted));
    accepted.expect_status(202);

    let long = "x".repeat(256);
    for key in ["", " ", "two words", "\u{7f}", long.as_str()] {
        // A header cannot have every character; those that it can have reach the daemon.
        if hyper::header::HeaderValue::from_str(key).is_ok() {
            for path in [path.as_str(), "/v1/sessions"] {
                let refused = keyed(&daemon, path, key, json!({"text": "hello"})).await.expect_status(400);
                assert_eq!(refused["details"]["field"], "Idempotency-Key", "{key:?}");
            }
        }
    }
    assert_eq!(turns(&daemon, &session).await, 1);
}

#[tokio::test]
async fn keys_go_with_their_session_and_with_time() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let first = make(&daemon).await;
    keyed(&daemon, &prompt_path(&first), "key", json!({"text": "hello"})).await.expect_status(202);
    assert_eq!(count(&daemon).await, 2);
    daemon.delete(&format!("/v1/sessions/{first}?purge=true")).await.expect_status(200);
    assert_eq!(count(&daemon).await, 0);
    let second = make(&daemon).await;
    assert_ne!(second, first);

    age(&mut daemon, 23).await;
    daemon.post("/v1/gc", json!({})).await.expect_status(200);
    assert_eq!(make(&daemon).await, second);
    age(&mut daemon, 25).await;
    assert_ne!(make(&daemon).await, second, "it is too long ago, deleted or not");
    age(&mut daemon, 25).await;
    daemon.post("/v1/gc", json!({})).await.expect_status(200);
    assert_eq!(count(&daemon).await, 0);
}

async fn count(daemon: &Daemon) -> i64 {
    daemon.sql_number("SELECT count(*) FROM idempotency_keys".to_owned()).await
}

/// The session that was made with the key.
async fn make(daemon: &Daemon) -> String {
    let session = keyed(daemon, "/v1/sessions", "key", new_session(daemon)).await.expect_status(201);
    session["id"].as_str().unwrap().to_owned()
}

/// Makes every key that old.
async fn age(daemon: &mut Daemon, hours: i64) {
    let time = format!("unixepoch() * 1000 - {}", hours * 3_600_000);
    daemon.sql(format!("UPDATE idempotency_keys SET created_at = {time}")).await;
}

#[tokio::test]
async fn the_command_line_gives_each_of_its_requests_a_key() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    for _ in 0..2 {
        daemon.cli(&["run", "--agent", "echo", "hello"]).await.success();
    }
    let count = |route: &str| format!("SELECT count(*) FROM idempotency_keys WHERE route = '{route}'");
    assert_eq!(daemon.sql_number(count("sessions")).await, 2);
    assert_eq!(daemon.sql_number(count("prompt")).await, 2);
}
