//! The store in trouble: a full disk, an unclean end, damage, another program's lock. Clear words, no lie, and all is well
//! when the trouble is over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use harness::{Daemon, DaemonBuilder, Disk, Event, ORDINARY, Output, echo, users};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

/// Bounds that fit a small disk.
const SMALL: &str = "[store]\nfree_min = \"3MiB\"\nreserve = \"1MiB\"\n";
const NO_RESERVE: &str = "[store]\nfree_min = \"3MiB\"\nreserve = 0\n";
const DISK_SIZE: &str = "12m";

fn gated() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"text": "before "}, {"gate": "middle"}, {"textFromPrompt": true}
    ]}]}])
}

/// A daemon whose state is on a small disk. The disk is named last, so that it goes first.
async fn on_a_small_disk(config: &str) -> Option<(Daemon, Disk)> {
    let builder = Daemon::builder().config(config).agent("gated", gated()).agent("echo", echo());
    let disk = Disk::mount(builder.state_dir(), DISK_SIZE)?;
    Some((builder.start().await, disk))
}

/// Everything that is recorded of a session, and that it has no gap.
async fn record(daemon: &Daemon, session: &str) -> (Vec<Value>, Vec<Value>) {
    let events: Vec<Event> = daemon.events_so_far(session, None).await;
    let sequences: Vec<i64> = events.iter().map(|event| event.id).collect();
    assert_eq!(sequences, (1..=i64::try_from(events.len()).unwrap()).collect::<Vec<_>>(), "without a gap");
    let messages = daemon.messages(session).await;
    let numbers: Vec<i64> = messages.iter().map(|message| message["sequence"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(messages.len()).unwrap()).collect::<Vec<_>>(), "without a gap");
    (events.into_iter().map(|event| event.data).collect(), messages)
}

/// What was there is there unchanged, whatever came after it.
fn assert_kept(before: &(Vec<Value>, Vec<Value>), after: &(Vec<Value>, Vec<Value>)) {
    assert_eq!(after.0[..before.0.len()], before.0);
    assert_eq!(after.1[..before.1.len()], before.1);
}

async fn health(daemon: &Daemon, status: u16) -> Value {
    daemon.get("/v1/health").await.expect_status(status)
}

#[tokio::test]
async fn a_full_disk_keeps_new_work_out_and_what_runs_is_recorded_to_its_end() {
    let Some((mut daemon, disk)) = on_a_small_disk(SMALL).await else { return };
    assert_eq!(health(&daemon, 200).await["store"]["shortOfSpace"], false);
    let (session, archived) = (daemon.create_session("gated").await, daemon.create_lazy_session("echo").await);
    let running = daemon.prompt(&session, "after").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let before = record(&daemon, &session).await;

    disk.fill();
    let path = format!("/v1/sessions/{session}");
    let elsewhere = daemon.workspace().join("sub");
    std::fs::create_dir(&elsewhere).unwrap();
    let new_work = [
        ("POST", format!("{path}/prompt"), json!({"text": "more"})),
        ("PATCH", path.clone(), json!({"title": "more"})),
        ("POST", format!("{path}/resume"), json!({})),
        ("POST", "/v1/sessions".to_owned(), json!({"workspace": daemon.workspace(), "agent": "echo"})),
        ("POST", "/v1/workspaces".to_owned(), json!({"path": elsewhere})),
    ];
    for (method, path, body) in new_work {
        let refused = daemon.request(method, &path, Some(body)).await.expect_status(507);
        assert_eq!(refused["error"], "insufficient_storage", "{path}");
        assert_eq!(refused["details"]["directory"], json!(daemon.state_dir()));
        assert!(refused["details"]["freeBytes"].as_u64().unwrap() < 1 << 20, "{refused}");
        assert!(refused["hint"].as_str().unwrap().contains("free some space"), "{refused}");
    }
    let ill = health(&daemon, 503).await;
    assert_eq!((&ill["status"], &ill["error"]), (&json!("degraded"), &json!("insufficient_storage")));
    assert_eq!(ill["store"]["shortOfSpace"], true);
    let status = daemon.cli(&["status"]).await;
    assert!(status.code == 7 && status.stdout.contains("degraded"), "{status:?}");

    passage.open().await;
    let turn = daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    daemon.logged("released the reserve").await;
    daemon.post(&format!("/v1/sessions/{archived}/archive"), json!({})).await.expect_status(200);
    assert_eq!(health(&daemon, 503).await["store"]["writable"], true);
    let during = record(&daemon, &session).await;
    assert_kept(&before, &during);
    assert_eq!(during.1.last().unwrap()["content"]["text"], "before after");

    disk.empty();
    daemon.logged("enough disk space again").await;
    assert_eq!(health(&daemon, 200).await["status"], "ok");
    assert_eq!(std::fs::metadata(daemon.state_dir().join("reserve")).unwrap().len(), 1 << 20, "it is made again");
    let again = daemon.prompt(&session, "again").await;
    daemon.gate("gated").reached("middle").await.open().await;
    assert_eq!(daemon.wait_turn(&session, again["turnId"].as_str().unwrap()).await["status"], "completed");
    let after = record(&daemon, &session).await;
    assert_kept(&during, &after);
    daemon.kill().await;
    daemon.restart().await;
    assert_kept(&after, &record(&daemon, &session).await);
    for word in ["too little disk space", "enough disk space again"] {
        assert_eq!(daemon.log().matches(word).count(), 1, "{word:?} is logged once");
    }
}

#[tokio::test]
async fn with_no_room_at_all_the_turn_fails_and_nothing_acknowledged_is_lost() {
    let Some((mut daemon, disk)) = on_a_small_disk(NO_RESERVE).await else { return };
    let session = daemon.create_session("gated").await;
    let running = daemon.prompt(&session, "first").await;
    let passage = daemon.gate("gated").reached("middle").await;
    let queued = daemon.prompt(&session, "second").await;
    let before = record(&daemon, &session).await;
    let pid = daemon.pid();

    disk.fill();
    passage.open_if_alive().await;
    daemon.logged("cannot write a session to the store").await;
    daemon.logged("cannot repair a session in the store").await;
    assert_eq!(health(&daemon, 503).await["error"], "insufficient_storage");
    let refused = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "third"})).await;
    assert_eq!(refused.expect_status(507)["error"], "insufficient_storage");
    assert_eq!(record(&daemon, &session).await, before, "what is not recorded is not told");

    disk.empty();
    let turn = daemon.wait_turn(&session, running["turnId"].as_str().unwrap()).await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("internal")));
    daemon.gate("gated").reached("middle").await.open().await;
    let turn = daemon.wait_turn(&session, queued["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "what was accepted runs: {turn}");
    daemon.logged("enough disk space again").await;
    assert_eq!(daemon.pid(), pid);
    let after = record(&daemon, &session).await;
    assert_kept(&before, &after);
    daemon.restart().await;
    let kept = record(&daemon, &session).await;
    assert_kept(&after, &kept);
}

#[tokio::test]
async fn only_an_unclean_end_is_followed_by_a_check() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let check = async |daemon: &Daemon| daemon.get("/v1/info").await.expect_status(200)["store"]["check"].clone();
    assert_eq!(check(&daemon).await, "clean", "there was nothing before");
    daemon.restart().await;
    assert_eq!(check(&daemon).await, "clean");
    daemon.kill().await;
    daemon.restart().await;
    daemon.logged("the database has no errors").await;
    assert_eq!(health(&daemon, 200).await["store"], json!({"writable": true, "shortOfSpace": false, "check": "ok"}));
    daemon.restart().await;
    assert_eq!(check(&daemon).await, "clean");
    assert_eq!(daemon.log().matches("the database has no errors").count(), 1);
}

/// Overwrites the beginning of every page that has this text.
fn damage_pages_with(database: &Path, text: &str) -> usize {
    const PAGE_BYTES: usize = 4096;
    let mut bytes = std::fs::read(database).unwrap();
    let mut damaged = 0;
    for page in bytes.chunks_mut(PAGE_BYTES).skip(1) {
        if page.windows(text.len()).any(|window| window == text.as_bytes()) {
            page[..8].fill(0xff);
            damaged += 1;
        }
    }
    std::fs::write(database, bytes).unwrap();
    damaged
}

#[tokio::test]
async fn damage_is_found_and_told_and_what_can_be_read_is_served() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    let marked = format!("here it breaks {}", "x".repeat(400));
    daemon.prompt_and_wait(&session, &marked).await;
    daemon.terminate().await;
    assert!(damage_pages_with(&daemon.state_dir().join("acpd.db"), &marked) > 0);
    // Nobody looks after a clean end, and nothing of a start needs that page.
    daemon.restart().await;
    daemon.kill().await;
    daemon.restart().await;

    daemon.logged("the database is damaged").await;
    let ill = health(&daemon, 503).await;
    assert_eq!((&ill["status"], &ill["error"]), (&json!("degraded"), &json!("store_damaged")));
    assert_eq!((&ill["store"]["check"], &ill["store"]["writable"]), (&json!("damaged"), &json!(true)));
    assert!(ill["store"]["problem"].as_str().unwrap().contains("table messages"), "{ill}");
    assert!(ill["hint"].as_str().unwrap().contains("acpd backup"), "{ill}");
    assert_eq!(daemon.get("/v1/info").await.expect_status(200)["store"]["check"], "damaged");
    let listed = daemon.get("/v1/sessions?status=active,suspended").await.expect_status(200);
    assert_eq!(listed["total"], 1, "what can be read is served");
    let unreadable = daemon.get(&format!("/v1/sessions/{session}/messages")).await.expect_status(500);
    assert_eq!(unreadable["error"], "store_damaged");
    assert!(unreadable["hint"].as_str().unwrap().contains("acpd backup"), "{unreadable}");
    // It stays damaged, however the daemon ends.
    daemon.restart().await;
    assert_ne!(daemon.get("/v1/info").await.expect_status(200)["store"]["check"], "clean");
}

/// The bytes on which SQLite locks a database: PENDING, RESERVED and SHARED.
const LOCK_BYTES: [(i64, i64); 3] = [(0x4000_0000, 1), (0x4000_0001, 1), (0x4000_0002, 510)];
/// The byte of the shared-memory file on which a writer locks out other writers.
const WRITE_LOCK_BYTE: i64 = 120;
/// For `hold_read_locks`: the state directory.
const LOCKED_STATE: &str = "LOCKED_STATE";

/// Locks bytes of a file for reading. Whether the lock was granted.
fn lock_for_reading(file: &std::fs::File, (start, length): (i64, i64)) -> bool {
    let lock = nix::libc::flock {
        l_type: nix::libc::F_RDLCK.try_into().unwrap(),
        l_whence: nix::libc::SEEK_SET.try_into().unwrap(),
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_SETLK(&lock)).is_ok()
}

/// A program for agents: holds every read lock that it gets on the store, until it is killed.
#[test]
#[ignore = "run by an agent of the next test"]
fn hold_read_locks() {
    let state = std::path::PathBuf::from(std::env::var_os(LOCKED_STATE).expect("run by an agent"));
    let database = std::fs::File::open(state.join("acpd.db")).unwrap();
    let mut granted = LOCK_BYTES.map(|bytes| lock_for_reading(&database, bytes)).to_vec();
    let shared_memory = std::fs::File::open(state.join("acpd.db-shm")).ok();
    granted.extend(shared_memory.as_ref().map(|file| lock_for_reading(file, (WRITE_LOCK_BYTE, 1))));
    std::fs::write("granted.new", format!("{granted:?}")).unwrap();
    std::fs::rename("granted.new", "granted").unwrap();
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn an_agent_that_holds_read_locks_on_the_store_does_not_stop_it() {
    let shell = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}]);
    let config = "[store]\nbusy_timeout = \"100ms\"\n";
    let daemon = Daemon::builder().config(config).agent("shell", shell).start().await;
    let session = daemon.create_session("shell").await;
    let test = std::env::current_exe().unwrap();
    let hold = format!(
        "{LOCKED_STATE}={} {} --ignored --exact hold_read_locks > /dev/null 2>&1 & \
         while ! [ -e granted ]; do sleep 0.01; done; cat granted",
        daemon.state_dir().display(),
        test.display()
    );
    let turn = daemon.prompt_and_wait(&session, &hold).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let turn = daemon.prompt_and_wait(&session, "echo the store works").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    let said: Vec<&str> = messages.iter().filter_map(|message| message["content"]["text"].as_str()).collect();
    assert!(said.iter().any(|text| text.starts_with("[true, true, false]")), "the daemon holds the third: {said:?}");
    assert!(said.last().unwrap().starts_with("the store works"), "{said:?}");
    assert_eq!(health(&daemon, 200).await["store"]["writable"], true);
    // Nor can an agent lock what keeps readers out during a checkpoint: everything is written back and compacted.
    daemon.post("/v1/gc", json!({})).await.expect_status(200);
    assert!(!daemon.state_dir().join("acpd.db-shm").exists(), "the index of the write-ahead log is in memory");
}

async fn connect(database: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(database).create_if_missing(true).connect().await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statements: &'static str) {
    sqlx::raw_sql(statements).execute(connection).await.unwrap();
}

/// What the user sees of a refusal, without what differs from run to run.
fn told(root: &Path, output: &Output) -> String {
    assert_eq!(output.stdout, "");
    let lines = output.stderr.lines().filter(|line| ![" INFO ", " ERROR "].iter().any(|level| line.contains(level)));
    let text = lines.collect::<Vec<_>>().join("\n").replace(&*root.to_string_lossy(), "[root]");
    format!("{text}\nexit code {}", output.code)
}

async fn refusal(builder: DaemonBuilder) -> String {
    let root = builder.root().to_owned();
    told(&root, &builder.fail_to_start().await)
}

#[tokio::test]
async fn too_little_space_is_a_refusal_to_start() {
    let builder = Daemon::builder().config("[store]\nfree_min = \"1000000GiB\"\n");
    let database = builder.state_dir().join("acpd.db");
    let text = refusal(builder).await;
    insta::with_settings!({filters => vec![(r"\d+ bytes", "[n] bytes"), (r", \d+ are", ", [n] are")]}, {
        insta::assert_snapshot!("too_little_space", text);
    });
    assert!(!database.exists());
}

#[tokio::test]
async fn what_is_no_database_or_a_damaged_one_is_a_refusal_to_start() {
    let builder = Daemon::builder();
    let database = builder.state_dir().join("acpd.db");
    std::fs::write(&database, "a letter to my aunt, ".repeat(400)).unwrap();
    insta::assert_snapshot!("no_database", refusal(builder).await);

    let builder = Daemon::builder();
    let mut connection = connect(&builder.state_dir().join("acpd.db")).await;
    let break_it = "CREATE TABLE a (b); PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE a('";
    run(&mut connection, break_it).await;
    connection.close().await.unwrap();
    insta::assert_snapshot!("malformed_schema", refusal(builder).await);
}

#[tokio::test]
async fn a_locked_database_is_a_refusal_to_start_that_names_the_process() {
    let builder = Daemon::builder().config("[store]\nbusy_timeout = \"100ms\"\n");
    let mut other = connect(&builder.state_dir().join("acpd.db")).await;
    run(&mut other, "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE a (b); BEGIN EXCLUSIVE").await;
    let this_process = format!("process {} ", std::process::id());
    let text = refusal(builder).await;
    assert!(text.contains(&this_process), "{text}");
    insta::with_settings!({filters => vec![(r#"process \d+ \("[^"]+"\)"#, "process [pid] ([program])")]}, {
        insta::assert_snapshot!("locked", text);
    });

    // A program that only reads the database keeps the daemon out, too.
    let mut daemon = Daemon::builder().config("[store]\nbusy_timeout = \"100ms\"\n").start().await;
    daemon.terminate().await;
    let database = std::fs::File::open(daemon.state_dir().join("acpd.db")).unwrap();
    assert!(lock_for_reading(&database, LOCK_BYTES[2]));
    let refused = daemon.launch_in_vain().await;
    assert!(refused.code == 8 && refused.stderr.contains(&this_process), "{refused:?}");
}

#[tokio::test]
async fn no_other_program_opens_the_store_of_a_running_daemon_not_even_an_idle_ones() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let database = daemon.state_dir().join("acpd.db");
    let read = async || {
        let mut connection =
            SqliteConnectOptions::new().filename(&database).busy_timeout(Duration::ZERO).connect().await?;
        let read = sqlx::query("SELECT count(*) FROM sessions").execute(&mut connection).await.map(drop);
        connection.close().await?;
        read
    };
    let refused = async || read().await.is_err_and(|error| error.to_string().contains("database is locked"));
    assert!(refused().await);
    // What opens the file in the daemon, and closes it again, must be SQLite: a descriptor that is closed releases the lock.
    daemon.post("/v1/backup", json!({"path": daemon.root().join("copy.db")})).await.expect_status(201);
    daemon.post("/v1/gc", json!({})).await.expect_status(200);
    daemon.cli(&["doctor"]).await.success();
    for path in ["/v1/info", "/v1/health", "/v1/search?q=hello"] {
        daemon.get(path).await.expect_status(200);
    }
    assert!(refused().await);
    daemon.kill().await;
    daemon.restart().await;
    daemon.logged("the database has no errors").await;
    assert!(refused().await);
    daemon.terminate().await;
    read().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_or_is_anothers_is_a_refusal_to_start() {
    // Root may write everywhere, so this is an ordinary user's.
    let builder = Daemon::builder().user_of(users().pop().flatten());
    std::fs::set_permissions(builder.state_dir(), Permissions::from_mode(0o500)).unwrap();
    insta::assert_snapshot!("read_only_directory", refusal(builder).await);

    if users().len() > 1 {
        let builder = Daemon::builder();
        chown(builder.state_dir(), Some(ORDINARY.uid), None).unwrap();
        insta::assert_snapshot!("anothers_directory", refusal(builder).await);
    }
}
