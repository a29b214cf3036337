//! A thousand clients do everything that clients should not, while two others behave. The two get every answer, the daemon
//! stays small, and nothing of the attack is left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Daemon, HEALTH, Reply, ask, echo, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const ATTACKERS: usize = 1000;
/// The attack goes on until the attackers have connected so often, and each of the two others has completed so many turns.
const CONNECTIONS: usize = 5 * ATTACKERS;
const TURNS: usize = 25;
/// How long an attacker keeps a connection that the daemon does not drop.
const HOLD: Duration = Duration::from_secs(20);
/// How often an attacker that was dropped connects again, and how often a byte trickles.
const PAUSE: Duration = Duration::from_secs(1);
/// The kinds of `loadEvents` that the attack provokes.
const REFUSALS: [&str; 5] = ["made_room", "refused", "bad_request", "memory", "stalled"];
/// Files that the test needs beside one for each attacker.
const OTHER_FILES: u64 = 200;
/// What the daemon may take. By the configuration below: 32 MiB of bodies, as much again while the last of them grow, and 16
/// MiB of answers; 224 connections and those that leave, with 200 KiB each of buffers, a page of events and a task; and 64 MiB
/// for a debug build with its store. Without the bounds a single second of this attack takes more.
const RESIDENT_BYTES_MAX: u64 = 192 << 20;

// The attackers are the same user as the clients that behave, whose rate is not what is tested here.
const CONFIG: &str = "[control]
requests_per_second = 1000000
prompts_per_minute = 1000000
bodies_max = \"32MiB\"
answers_max = \"16MiB\"
header_timeout = \"5s\"
body_timeout = \"5s\"
write_timeout = \"5s\"
[sessions]
turn_cap = 100000
";

fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = ATTACKERS as u64 + OTHER_FILES;
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }).expect("the limit can be raised");
    assert_eq!(current, wanted, "the test needs more open files than it may have");
}

/// In bytes, as the kernel tells it: `VmRSS`, what is resident now, or `VmHWM`, what was at the most.
fn memory(pid: u32, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon runs");
    let line = status.lines().find(|line| line.starts_with(kind)).expect("the kernel tells it");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The number of open descriptors, which the kernel tells only root.
fn descriptors(pid: u32) -> Option<usize> {
    let is_root = rustix::process::geteuid().is_root();
    is_root.then(|| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon runs").count())
}

/// What an attacker does with a connection, until it is dropped.
#[derive(Clone, Copy, Debug)]
enum Attack {
    Silence,
    HalfHead,
    Trickle,
    HugeBody,
    SlowBody,
    StalledStream,
    StalledAnswer,
    Garbage,
    Smuggling,
}

impl Attack {
    const ALL: [Self; 9] = [
        Self::Silence,
        Self::HalfHead,
        Self::Trickle,
        Self::HugeBody,
        Self::SlowBody,
        Self::StalledStream,
        Self::StalledAnswer,
        Self::Garbage,
        Self::Smuggling,
    ];

    async fn run(self, mut stream: UnixStream, session: &str) -> std::io::Result<()> {
        let post =
            format!("POST /v1/sessions/{session}/prompt HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\n");
        match self {
            Self::Silence => {}
            Self::HalfHead => stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: ac").await?,
            Self::Trickle => return trickle(stream, HEALTH.as_bytes()).await,
            Self::HugeBody => {
                stream.write_all(format!("{post}transfer-encoding: chunked\r\n\r\n40000000\r\n").as_bytes()).await?;
                let megabyte = vec![b'x'; 1 << 20];
                for _ in 0..1024 {
                    stream.write_all(&megabyte).await?;
                }
            }
            Self::SlowBody => {
                stream.write_all(format!("{post}content-length: 1000000\r\n\r\n").as_bytes()).await?;
                return trickle(stream, &[b'x'; 1000]).await;
            }
            // It is never read.
            Self::StalledStream => {
                let events = format!("GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: acpd\r\n\r\n");
                stream.write_all(events.as_bytes()).await?;
                std::future::pending::<()>().await;
            }
            Self::StalledAnswer => {
                let messages = format!("GET /v1/sessions/{session}/messages?limit=1000 HTTP/1.1\r\nhost: acpd\r\n\r\n");
                stream.write_all(messages.repeat(2).as_bytes()).await?;
                std::future::pending::<()>().await;
            }
            Self::Garbage => {
                stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, b'\r', b'\n', b'\r', b'\n']).await?;
            }
            Self::Smuggling => {
                let shape = format!("{post}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{HEALTH}");
                stream.write_all(shape.as_bytes()).await?;
            }
        }
        // Until the daemon has had enough.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
    }
}

async fn trickle(stream: UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let mut sink = tokio::io::sink();
    let write = async {
        let mut ticks = tokio::time::interval(PAUSE);
        for byte in bytes {
            ticks.tick().await;
            writer.write_all(&[*byte]).await?;
        }
        std::future::pending::<std::io::Result<()>>().await
    };
    tokio::select! {
        outcome = write => outcome,
        outcome = tokio::io::copy(&mut reader, &mut sink) => outcome.map(drop),
    }
}

/// Always has a connection, or tries to get one. An attacker that does not read does not see that it was dropped, and lets go
/// after a while.
async fn attack(socket: std::path::PathBuf, attack: Attack, session: String, connected: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(PAUSE);
    loop {
        ticks.tick().await;
        // A full line of those who wait is told at once.
        let Ok(stream) = UnixStream::connect(&socket).await else { continue };
        connected.fetch_add(1, Ordering::Relaxed);
        let _ = tokio::time::timeout(HOLD, attack.run(stream, &session)).await;
    }
}

/// A client that comes with a connection of its own for every request, and comes again when it is told to.
async fn persistent(daemon: &Daemon, method: &str, path: &str, body: Option<serde_json::Value>) -> Reply {
    within(&format!("an answer to {method} {path}"), async {
        loop {
            let reply = daemon.try_request(method, path, &[], body.clone()).await;
            match reply {
                Ok(reply) if matches!(reply.status, 429 | 503) => {
                    let seconds = reply.header("retry-after").and_then(|wait| wait.parse().ok());
                    let wait = Duration::from_secs(seconds.unwrap_or_else(|| panic!("{}", reply.text)));
                    tokio::time::sleep_until(Instant::now() + wait).await;
                }
                Ok(reply) => return reply,
                // It had to make room before it could ask, or found the line full.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// Prompts on one connection that stays, and is never refused anything.
async fn steady(mut stream: UnixStream, session: &str, turns: &AtomicUsize, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let body = json!({"text": "hello"}).to_string();
        let length = body.len();
        let request = format!(
            "POST /v1/sessions/{session}/prompt HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let accepted = ask(&mut stream, &request).await.expect("the connection stays");
        assert_eq!(accepted.status, 202, "{accepted:?}");
        let turn = accepted.json()["turnId"].as_str().unwrap().to_owned();
        let request = format!("GET /v1/sessions/{session}/turns/{turn}?wait=30 HTTP/1.1\r\nhost: acpd\r\n\r\n");
        let ended = ask(&mut stream, &request).await.expect("the connection stays");
        assert_eq!(ended.json()["status"], "completed", "{ended:?}");
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same with a new connection for every request.
async fn fleeting(daemon: &Daemon, session: &str, turns: &AtomicUsize, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let body = json!({"text": "hello"});
        let accepted = persistent(daemon, "POST", &format!("/v1/sessions/{session}/prompt"), Some(body)).await;
        let turn = accepted.expect_status(202)["turnId"].as_str().unwrap().to_owned();
        let path = format!("/v1/sessions/{session}/turns/{turn}");
        within("the end of a turn", async {
            while persistent(daemon, "GET", &path, None).await.expect_status(200)["status"] != "completed" {}
        })
        .await;
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until a count has come so far.
async fn reached(what: &str, count: &AtomicUsize, wanted: usize) {
    within(&format!("{wanted} {what}"), async {
        while count.load(Ordering::Relaxed) < wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_thousand_bad_clients_harm_nobody() {
    allow_many_files();
    let daemon = Daemon::builder().config(CONFIG).agent("echo", echo()).start().await;
    let (first, second) = (daemon.create_session("echo").await, daemon.create_session("echo").await);
    let bait = daemon.create_session("echo").await;
    for _ in 0..20 {
        daemon.prompt_and_wait(&bait, &"a long prompt that is said again ".repeat(1500)).await;
    }
    for session in [&first, &second] {
        daemon.prompt_and_wait(session, "to begin with").await;
    }
    let mut held = daemon.connect().await;
    assert_eq!(ask(&mut held, HEALTH).await.unwrap().status, 200);
    let before = descriptors(daemon.pid());

    let connected = Arc::new(AtomicUsize::new(0));
    let mut attackers = JoinSet::new();
    for index in 0..ATTACKERS {
        let kind = Attack::ALL[index % Attack::ALL.len()];
        attackers.spawn(attack(daemon.socket().to_owned(), kind, bait.clone(), Arc::clone(&connected)));
    }
    let stop = CancellationToken::new();
    let (steady_turns, fleeting_turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let end = async {
        reached("connections of attackers", &connected, CONNECTIONS).await;
        reached("turns on one connection", &steady_turns, TURNS).await;
        reached("turns on many connections", &fleeting_turns, TURNS).await;
        within("each kind of refusal", async {
            loop {
                let info = persistent(&daemon, "GET", "/v1/info", None).await.expect_status(200);
                if REFUSALS.iter().all(|kind| info["loadEvents"][kind].as_u64().unwrap() > 0) {
                    break;
                }
            }
        })
        .await;
        stop.cancel();
    };
    tokio::join!(end, steady(held, &first, &steady_turns, &stop), fleeting(&daemon, &second, &fleeting_turns, &stop));
    let resident = memory(daemon.pid(), "VmHWM");
    eprintln!(
        "{steady_turns:?} steady turns, {fleeting_turns:?} fleeting ones, {connected:?} connections of attackers, {} MiB resident at the most",
        resident >> 20
    );
    attackers.shutdown().await;
    assert!(resident < RESIDENT_BYTES_MAX, "{resident} bytes resident");

    within("the end of all that the attackers had", async {
        // Asking is a connection too, so it is looked at from outside.
        while before.is_some() && descriptors(daemon.pid()) >= before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let info = daemon.get("/v1/info").await.expect_status(200);
    eprintln!("{}", info["loadEvents"]);
    assert_eq!(daemon.prompt_and_wait(&first, "afterwards").await["status"], "completed");
    let messages = daemon.get(&format!("/v1/sessions/{bait}/turns")).await.expect_status(200);
    assert_eq!(messages["total"], 20, "nothing of what they sent was taken for a prompt");
}
