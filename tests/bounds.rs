//! What one client can cost: connections, deadlines, bodies, streams, and answers that nobody reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::time::Duration;

use harness::{
    Daemon, HEALTH, ORDINARY, RawAnswer, User, answers, ask, echo, next_answer, pid_of, process_stopped, users, within,
};
use nix::sys::signal::Signal;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const MIB: usize = 1 << 20;

fn post(path: &str, headers: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
    )
}

#[track_caller]
fn only(answers: Vec<RawAnswer>) -> RawAnswer {
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.into_iter().next().unwrap()
}

/// A connection that was served, and stays.
async fn settled(daemon: &Daemon) -> UnixStream {
    let mut stream = daemon.connect().await;
    assert_eq!(ask(&mut stream, HEALTH).await.unwrap().status, 200);
    stream
}

/// Asks as a client does that is told to come again.
async fn served(daemon: &Daemon) -> UnixStream {
    within("a place", async {
        loop {
            let mut stream = daemon.connect().await;
            match ask(&mut stream, HEALTH).await.map(|answer| answer.status) {
                Some(200) => return stream,
                Some(503) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let daemon = Daemon::builder().config("[control]\nbody_max = \"64KiB\"").start().await;
    for headers in ["", "expect: 100-continue\r\n"] {
        let refused = only(daemon.send_raw(post("/v1/sessions", headers, 1 << 30).as_bytes()).await);
        assert_eq!(refused.refused(413, "body_too_large")["details"]["max"], 64 << 10);
        assert!(refused.closes(), "{refused:?}");
    }
    // A client that sends all of it first gets to read the answer too, and one that does not say how long it is.
    let body = vec![b' '; 40 * MIB];
    let reply = daemon.raw_request("POST", "/v1/sessions", "application/json", body.clone()).await;
    assert_eq!(reply.expect_status(413)["error"], "body_too_large");
    let head = "POST /v1/sessions HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunked = [format!("{head}{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    only(daemon.send_raw(&chunked).await).refused(413, "body_too_large");
}

#[tokio::test]
async fn a_client_that_waits_for_a_continue_gets_it() {
    let daemon = Daemon::start().await;
    let mut stream = daemon.connect().await;
    let body = json!({"path": daemon.workspace()}).to_string();
    let head = post("/v1/workspaces", "expect: 100-continue\r\n", body.len());
    assert_eq!(ask(&mut stream, &head).await.unwrap().status, 100);
    assert_eq!(ask(&mut stream, &body).await.unwrap().status, 201);
    assert_eq!(ask(&mut stream, HEALTH).await.unwrap().status, 200, "and the connection goes on");
}

#[tokio::test]
async fn heads_bodies_and_pauses_have_deadlines() {
    let config = "[control]\nheader_timeout = \"200ms\"\nbody_timeout = \"200ms\"\nidle_timeout = \"300ms\"";
    let daemon = Daemon::builder().config(config).start().await;
    for half in ["", "GET /v1/hea", "GET /v1/health HTTP/1.1\r\nhost: acpd\r\n"] {
        let late = only(daemon.send_raw(half.as_bytes()).await);
        late.refused(408, "head_timeout");
        assert!(late.closes(), "{late:?}");
    }
    let late = only(daemon.send_raw(format!("{}{{", post("/v1/workspaces", "", 100)).as_bytes()).await);
    late.refused(408, "body_timeout");
    let mut idle = settled(&daemon).await;
    assert!(next_answer(&mut idle).await.is_none(), "a pause that is too long ends without a word");
    // The second head on a connection has the same deadline as the first.
    let mut stream = settled(&daemon).await;
    ask(&mut stream, "GET /").await.unwrap().refused(408, "head_timeout");
    assert!(daemon.load_events("head_timeout").await >= 4);
    assert_eq!(daemon.load_events("body_timeout").await, 1);
}

#[tokio::test]
async fn what_comes_one_byte_at_a_time_prolongs_nothing() {
    let daemon = Daemon::builder().config("[control]\nheader_timeout = \"500ms\"").start().await;
    let (mut reader, mut writer) = daemon.connect().await.into_split();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let trickle = async {
        for byte in HEALTH.bytes().take(HEALTH.len() - 1).chain(std::iter::repeat(b'x')) {
            ticks.tick().await;
            if writer.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    };
    let mut said = Vec::new();
    // What was said is there, also when the connection was reset after it.
    let read = async {
        let _ = reader.read_to_end(&mut said).await;
    };
    within("the end of a head that never ends", async { tokio::join!(trickle, read) }).await;
    assert!(said.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn a_head_is_bounded_in_size_and_fields() {
    let daemon = Daemon::start().await;
    let long = format!("GET /v1/health?{} HTTP/1.1\r\nhost: acpd\r\n\r\n", "x".repeat(100_000));
    let large = format!("GET /v1/health HTTP/1.1\r\nhost: acpd\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /v1/health HTTP/1.1\r\nhost: acpd\r\n{}\r\n", "x: y\r\n".repeat(101));
    for head in [long, large, many] {
        let refused = only(daemon.send_raw(head.as_bytes()).await);
        refused.refused(431, "head_too_large");
        assert!(refused.closes(), "{refused:?}");
    }
    let allowed =
        format!("GET /v1/health HTTP/1.1\r\nhost: acpd\r\nconnection: close\r\n{}\r\n", "x: y\r\n".repeat(90));
    assert_eq!(only(daemon.send_raw(allowed.as_bytes()).await).status, 200);
}

/// Of 16 connections two are kept for root and the daemon's user, and nobody has more than 14.
#[tokio::test]
async fn at_the_limit_a_client_is_told_so() {
    let daemon = Daemon::builder().config("[control]\nconnections = 16").start().await;
    let mut busy = Vec::new();
    for _ in 0..14 {
        busy.push(daemon.event_stream("/v1/events", &[]).await);
    }
    let refused = only(daemon.send_raw(HEALTH.as_bytes()).await);
    refused.refused(503, "overloaded");
    assert!(refused.closes() && refused.head.contains("\r\nretry-after: 1\r\n"), "{refused:?}");
    busy.pop();
    served(&daemon).await;
    assert!(daemon.load_events("refused").await >= 1);
}

#[tokio::test]
async fn whoever_has_asked_for_nothing_makes_room_for_whoever_asks() {
    let daemon = Daemon::builder().config("[control]\nconnections = 16").start().await;
    let mut first = settled(&daemon).await;
    let mut silent = daemon.connect().await;
    let mut half = daemon.connect().await;
    half.write_all(b"GET /v1/health HTTP").await.unwrap();
    let mut sending = daemon.connect().await;
    sending.write_all(format!("{}{{", post("/v1/workspaces", "", 100)).as_bytes()).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..13 {
        others.push(settled(&daemon).await);
    }
    // In the order in which they came, whatever they were at.
    for stalled in [&mut silent, &mut half, &mut sending] {
        only(answers(stalled).await).refused(503, "overloaded");
    }
    for served in others.iter_mut().chain([&mut first]) {
        assert_eq!(ask(served, HEALTH).await.unwrap().status, 200);
    }
    // Then whoever has been idle longest, without a word: there is nothing to answer.
    let last = settled(&daemon).await;
    assert!(next_answer(&mut others[0]).await.is_none());
    assert_eq!(ask(&mut others[1], HEALTH).await.unwrap().status, 200);
    drop((last, others));
    served(&daemon).await;
    // Those that were let go may have had to make room before that was noticed.
    assert!(daemon.load_events("made_room").await >= 4);
}

#[tokio::test]
async fn one_user_has_so_many_streams() {
    let daemon = Daemon::builder().config("[control]\nstreams_per_user = 2").agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let one = daemon.event_stream("/v1/events", &[]).await;
    let two = daemon.events(&session, None).await;
    let export = format!("/v1/sessions/{session}/export");
    for path in ["/v1/events", &format!("/v1/sessions/{session}/events"), &export] {
        let reply = daemon.get(path).await;
        assert_eq!(reply.header("retry-after"), Some("1"), "{path}");
        let body = reply.expect_status(429);
        assert_eq!((&body["error"], &body["details"]["max"]), (&json!("too_many_streams"), &json!(2)), "{path}");
    }
    drop((one, two));
    within("a stream that counts no more", async { while daemon.get(&export).await.status == 429 {} }).await;
    let path = format!("/v1/sessions/{session}/events?follow=false");
    within("the others", async { while daemon.get(&path).await.status == 429 {} }).await;
}

fn flood() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"flood": {"count": 20_000, "text": "a piece of text that takes some room {} "}}]}]}])
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_and_others_get_everything() {
    let config = "[control]\nwrite_timeout = \"200ms\"\nstreams_per_user = 4";
    let daemon = Daemon::builder().config(config).agent("flood", flood()).start().await;
    let session = daemon.create_session("flood").await;
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut stream = daemon.connect().await;
        let request = format!("GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: acpd\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    let mut reader = daemon.events(&session, Some(0)).await;
    daemon.prompt(&session, "go").await;
    let read = reader.until("turn.completed").await;
    assert!(read.len() > 2, "{} events", read.len());
    within("the end of those who do not read", async { while daemon.load_events("stalled").await < 3 {} }).await;
    drop(reader);
    // Their streams count no more, although the clients still hold their ends.
    let mut again = Vec::new();
    for _ in 0..4 {
        again.push(daemon.events(&session, Some(0)).await);
    }
}

#[tokio::test]
async fn large_answers_that_nobody_takes_are_bounded_together() {
    let config = "[control]\nanswers_max = \"1MiB\"\nwrite_timeout = \"1m\"";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let text = "x".repeat(700 << 10);
    daemon
        .post(&format!("/v1/sessions/{session}/messages"), json!({"role": "system", "text": text}))
        .await
        .expect_status(201);
    let path = format!("/v1/sessions/{session}/messages");
    let mut stalled = daemon.connect().await;
    stalled.write_all(format!("GET {path} HTTP/1.1\r\nhost: acpd\r\n\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 15];
    stalled.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let refused = daemon.get(&path).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.expect_status(503)["error"], "overloaded");
    daemon.get("/v1/sessions").await.expect_status(200);
    assert_eq!(daemon.load_events("memory").await, 1);
    let metrics = daemon.get("/metrics").await.text;
    assert!(metrics.lines().any(|line| line == r#"acpd_refusals_total{code="overloaded"} 1"#), "{metrics}");
    drop(stalled);
    within("the memory's return", async { while daemon.get(&path).await.status != 200 {} }).await;
}

#[tokio::test]
async fn bodies_that_are_being_read_are_bounded_together() {
    let config = "[control]\nbody_max = \"1MiB\"\nbodies_max = \"1MiB\"";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let path = format!("/v1/sessions/{session}/prompt");
    let part = vec![b' '; 700 << 10];
    let mut slow = daemon.connect().await;
    slow.write_all(post(&path, "", MIB).as_bytes()).await.unwrap();
    slow.write_all(&part).await.unwrap();
    // Announcing takes nothing, and sending does: the second one finds no room for its bytes.
    let whole = [post(&path, "", MIB).as_bytes(), &part].concat();
    let refused = within("a refusal", async {
        loop {
            // The first one's bytes may still be on their way.
            let answers = daemon.send_raw(&[&whole[..], &vec![b' '; MIB - part.len()]].concat()).await;
            if answers[0].status == 503 {
                return only(answers);
            }
        }
    })
    .await;
    refused.refused(503, "overloaded");
    assert!(refused.head.contains("\r\nretry-after: 1\r\n"), "{refused:?}");
    assert_eq!(daemon.prompt_and_wait(&session, "small ones are always read").await["status"], "completed");
    drop(slow);
    let large = json!({"text": "x".repeat(700 << 10)});
    within("the memory's return", async { while daemon.post(&path, large.clone()).await.status == 503 {} }).await;
}

fn open_files_of(pid: u32) -> Vec<String> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().skip(3).take(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_daemon_takes_all_the_files_it_may_have_and_its_agents_do_not() {
    let daemon = Daemon::builder().open_files(300, 2000).agent("echo", echo()).start().await;
    assert_eq!(open_files_of(daemon.pid()), ["2000", "2000"]);
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let agent = pid_of(&daemon.session(&session).await);
    assert_eq!(open_files_of(agent), ["300", "2000"]);
}

#[tokio::test]
async fn connections_that_do_not_fit_are_lowered_or_refused_at_start() {
    let daemon = Daemon::builder().open_files(512, 512).start().await;
    let connections = daemon.get("/v1/info").await.expect_status(200)["limits"]["connections"].as_u64().unwrap();
    assert!((8..256).contains(&connections), "{connections}");
    assert!(daemon.log().contains("reduced control.connections to"), "{}", daemon.log());
    let refused = Daemon::builder().open_files(100, 100).fail_to_start().await;
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("LimitNOFILE="), "{}", refused.stderr);
}

#[tokio::test]
async fn without_descriptors_clients_wait_and_are_served_when_there_are_some_again() {
    let daemon = Daemon::start().await;
    let process = Pid::from_raw(daemon.pid().cast_signed()).unwrap();
    let maximum = open_files_of(daemon.pid())[1].parse().ok();
    let before = prlimit(Some(process), Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    let mut waiting = daemon.connect().await;
    waiting.write_all(HEALTH.as_bytes()).await.unwrap();
    daemon.logged("cannot accept connections").await;
    prlimit(Some(process), Resource::Nofile, before).unwrap();
    assert_eq!(next_answer(&mut waiting).await.unwrap().status, 200);
    assert_eq!(daemon.log().matches("cannot accept connections").count(), 1, "it is said once in a while");
}

/// A client that has said all it has to say (`printf … | nc -N -U`) still waits for its answer.
#[tokio::test]
async fn whoever_closes_their_half_is_answered() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let body = json!({"text": "hello"}).to_string();
    let prompt = format!("{}{body}", post(&format!("/v1/sessions/{session}/prompt"), "", body.len()));
    let info = "GET /v1/info HTTP/1.1\r\nhost: acpd\r\n\r\n".to_owned();
    for (request, status) in [(info.repeat(2), vec![200, 200]), (prompt.repeat(2), vec![202, 202])] {
        // The daemon finds all of it at once: the request, and that nothing follows.
        daemon.signal(Signal::SIGSTOP);
        process_stopped(daemon.pid()).await;
        let mut stream = daemon.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        daemon.signal(Signal::SIGCONT);
        let statuses: Vec<_> = answers(&mut stream).await.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, status, "{request}");
    }
}

/// Long before the next heartbeat, which would not find its reader.
#[tokio::test]
async fn a_stream_whose_client_closes_one_half_and_then_the_other_counts_no_more() {
    let config = "[control]\nstreams_per_user = 1\nheartbeat = \"1h\"";
    let daemon = Daemon::builder().config(config).start().await;
    let mut stream = daemon.connect().await;
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: acpd\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let path = "/v1/events?follow=false";
    daemon.get(path).await.expect_status(429);
    drop(stream);
    within("a stream that counts no more", async { while daemon.get(path).await.status == 429 {} }).await;
}

/// A stream whose request had a body that nobody read is being served like any other: it is not taken for a newcomer.
#[tokio::test]
async fn streams_with_an_unread_body_do_not_use_up_the_places_of_those_that_leave() {
    let config =
        "[control]\nconnections = 160\nconnections_per_user = 100\nstreams_per_user = 80\nidle_timeout = \"1h\"";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let request = format!("GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: acpd\r\ncontent-length: 2\r\n\r\n");
    let mut streams: Vec<UnixStream> = Vec::new();
    for _ in 0..64 {
        let mut stream = daemon.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 15]).await.unwrap();
        streams.push(stream);
    }
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(settled(&daemon).await);
    }
}

/// What had to make room is no want of memory.
#[tokio::test]
async fn a_body_that_makes_room_is_counted_once() {
    let config = "[control]\nconnections = 16\nconnections_per_user = 4";
    let daemon = Daemon::builder().config(config).start().await;
    let mut halves = Vec::new();
    for _ in 0..12 {
        let mut stream = daemon.connect().await;
        // Who is told to go on is in the middle of a body.
        let head = post("/v1/workspaces", "expect: 100-continue\r\n", 100);
        assert_eq!(ask(&mut stream, &head).await.unwrap().status, 100);
        halves.push(stream);
    }
    assert!(daemon.load_events("made_room").await > 0);
    assert_eq!(daemon.load_events("memory").await, 0);
}

/// It takes what it can, and never stops reading; but others wait for the memory.
#[tokio::test]
async fn a_large_answer_that_is_taken_in_a_trickle_is_given_up() {
    let config = "[control]\nwrite_timeout = \"500ms\"";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let path = format!("/v1/sessions/{session}/messages");
    let text = "x".repeat(900 << 10);
    daemon.post(&path, json!({"role": "system", "text": text})).await.expect_status(201);
    let mut stream = daemon.connect().await;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: acpd\r\n\r\n").as_bytes()).await.unwrap();
    let (mut taken, mut piece) = (0, vec![0; 16 << 10]);
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    within("the end", async {
        loop {
            ticks.tick().await;
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => taken += count,
                _ => return,
            }
        }
    })
    .await;
    assert!(taken < text.len(), "{taken} bytes were taken");
    assert_eq!(daemon.load_events("stalled").await, 1);
}

const OTHER: User = User { uid: 1, gid: 1 };

/// A daemon that serves a group, if this is root.
fn of_group() -> Option<harness::DaemonBuilder> {
    let is_root = users().len() > 1;
    if !is_root {
        harness::say("SKIPPED: only a daemon of root serves several users");
    }
    is_root.then(|| Daemon::builder().owner(ORDINARY))
}

#[tokio::test]
async fn one_member_does_not_shut_out_another() {
    let Some(builder) = of_group() else { return };
    // As much as the whole group has.
    let daemon =
        builder.env("ACPD_CONTROL_CONNECTIONS", "64").env("ACPD_CONTROL_CONNECTIONS_PER_USER", "56").start().await;
    let (greedy, modest) = (daemon.as_user(OTHER, &[ORDINARY.gid]), daemon.as_user(ORDINARY, &[]));
    let mut idle = Vec::new();
    for _ in 0..56 {
        let mut stream = greedy.try_connect().unwrap();
        assert_eq!(ask(&mut stream, HEALTH).await.unwrap().status, 200);
        idle.push(stream);
    }
    let mut own = Vec::new();
    for _ in 0..8 {
        let mut stream = modest.try_connect().unwrap();
        assert_eq!(ask(&mut stream, HEALTH).await.unwrap().status, 200);
        own.push(stream);
    }
    for stream in &mut own {
        assert_eq!(ask(stream, HEALTH).await.unwrap().status, 200, "they have these at the same time");
    }
    let daemon = of_group().unwrap().start().await;
    let limits = &daemon.get("/v1/info").await.expect_status(200)["limits"];
    assert!(limits["connectionsPerUser"].as_u64() < limits["connections"].as_u64().map(|all| all / 2), "{limits}");
}

#[tokio::test]
async fn one_member_does_not_take_all_the_memory_for_answers() {
    let Some(builder) = of_group() else { return };
    let builder = builder.env("ACPD_CONTROL_ANSWERS_MAX", "2MiB").env("ACPD_CONTROL_WRITE_TIMEOUT", "1m");
    let daemon = builder.agent("echo", echo()).start().await;
    let (greedy, modest) = (daemon.as_user(OTHER, &[ORDINARY.gid]), daemon.as_user(ORDINARY, &[]));
    let mut paths = Vec::new();
    for member in [&greedy, &modest] {
        let path = format!("/v1/sessions/{}/messages", member.create_lazy_session("echo").await);
        let text = "x".repeat(700 << 10);
        member.post(&path, json!({"role": "system", "text": text})).await.expect_status(201);
        paths.push(path);
    }
    let mut stalled = greedy.try_connect().unwrap();
    stalled.write_all(format!("GET {} HTTP/1.1\r\nhost: acpd\r\n\r\n", paths[0]).as_bytes()).await.unwrap();
    stalled.read_exact(&mut [0; 15]).await.unwrap();
    assert_eq!(greedy.get(&paths[0]).await.expect_status(503)["error"], "overloaded");
    modest.get(&paths[1]).await.expect_status(200);
}

/// Nobody is waited for who has not asked, and nobody finds a socket that is not served any more.
#[tokio::test]
async fn at_the_end_half_requests_are_not_waited_for() {
    let mut daemon = Daemon::start().await;
    let mut head = daemon.connect().await;
    head.write_all(b"GET /v1/health HTTP").await.unwrap();
    let mut body = daemon.connect().await;
    let request = post("/v1/workspaces", "expect: 100-continue\r\n", 100);
    assert_eq!(ask(&mut body, &request).await.unwrap().status, 100);
    assert!(daemon.terminate().await.success());
    assert!(!daemon.log().contains("stopped waiting for"), "{}", daemon.log());
    assert!(!daemon.socket().exists());
    for stream in [&mut head, &mut body] {
        assert!(answers(stream).await.is_empty());
    }
}
