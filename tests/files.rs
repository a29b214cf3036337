//! Files that agents read and write through acpd: beneath the workspace, as the policy says, and on record.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Daemon, DaemonBuilder, Event, users};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

const ALLOW: &str = "permissions = \"allow\"";
const NOT_FOUND: i64 = -32002;
const INVALID: i64 = -32602;

fn read(path: impl AsRef<Path>) -> Value {
    read_lines(path, &json!({}))
}

fn read_lines(path: impl AsRef<Path>, window: &Value) -> Value {
    let mut params = json!({"sessionId": "test-session", "path": path.as_ref()});
    for (key, value) in window.as_object().unwrap() {
        params[key] = value.clone();
    }
    json!({"request": {"method": "fs/read_text_file", "params": params}})
}

fn write(path: impl AsRef<Path>, content: &str) -> Value {
    let params = json!({"sessionId": "test-session", "path": path.as_ref(), "content": content});
    json!({"request": {"method": "fs/write_text_file", "params": params}})
}

/// A script with one prompt, which makes these requests and tells each answer on a line of its own.
fn asking(requests: Vec<Value>) -> Value {
    let told = |request| [request, json!({"textFromAnswer": true}), json!({"text": "\n"})];
    let steps: Vec<Value> = requests.into_iter().flat_map(told).collect();
    json!([{"handshake": {}}, {"repeat": [{"prompt": steps}]}])
}

/// Has the agent make its requests once, and returns the answers and the session.
async fn answers(daemon: &Daemon, agent: &str) -> (Vec<Value>, String) {
    let session = daemon.create_session(agent).await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    let said = messages.iter().filter(|message| message["role"] == "agent");
    let text: String = said.map(|message| message["content"]["text"].as_str().unwrap()).collect();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), session)
}

async fn events(daemon: &Daemon, session: &str, kind: &str) -> Vec<Event> {
    daemon.events_so_far(session, None).await.into_iter().filter(|event| event.kind == kind).collect()
}

fn refusal(code: i64, message: &str) -> (Value, String) {
    (json!(code), message.to_owned())
}

fn told(answer: &Value) -> (Value, String) {
    (answer["code"].clone(), answer["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned())
}

async fn security_events(daemon: &Daemon) -> u64 {
    let info = daemon.get("/v1/info").await.expect_status(200);
    info["securityEvents"]["path_escape"].as_u64().unwrap_or_else(|| panic!("{info}"))
}

fn builder() -> (DaemonBuilder, std::path::PathBuf) {
    let builder = Daemon::builder();
    let workspace = builder.workspace().to_owned();
    (builder, workspace)
}

#[tokio::test]
async fn files_are_read_and_written_and_both_are_on_record() {
    let (builder, workspace) = builder();
    fs::write(workspace.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(workspace.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(workspace.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = fs::File::open(workspace.join("run.sh")).unwrap();
    let script = asking(vec![
        read(workspace.join("a.txt")),
        read_lines(workspace.join("a.txt"), &json!({"line": 2, "limit": 1})),
        read_lines(workspace.join("a.txt"), &json!({"line": 0, "limit": 1})),
        read_lines(workspace.join("a.txt"), &json!({"line": 9})),
        read_lines(workspace.join("a.txt"), &json!({"limit": 0})),
        write(workspace.join("run.sh"), "#!/bin/sh\nexit 1\n"),
        write(workspace.join("new/deep/b.txt"), "grün"),
        read(workspace.join("new/deep/b.txt")),
    ]);
    let daemon = builder.agent_with("files", script, ALLOW).start().await;
    let (answers, session) = answers(&daemon, "files").await;
    let content = |text: &str| json!({"content": text});
    assert_eq!(answers[..5], ["one\ntwo\nthree\n", "two\n", "one\n", "", ""].map(content));
    assert_eq!(answers[5..], [json!({}), json!({}), content("grün")]);

    assert_eq!(fs::read_to_string(workspace.join("run.sh")).unwrap(), "#!/bin/sh\nexit 1\n");
    assert_eq!(fs::metadata(workspace.join("run.sh")).unwrap().permissions().mode() & 0o7777, 0o750);
    let old = std::io::read_to_string(before).unwrap();
    assert_eq!(old, "#!/bin/sh\n", "whoever reads the old file is not disturbed");
    let left = fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.starts_with(".acpd")));

    let reads = events(&daemon, &session, "file.read").await;
    assert_eq!(reads.len(), 6);
    let expected =
        json!({"path": "a.txt", "bytes": 4, "line": 2, "limit": 1, "decidedBy": "policy session mode allow"});
    assert_eq!(*reads[1].payload(), expected);
    let written = events(&daemon, &session, "file.written").await;
    let expected =
        json!({"path": "new/deep/b.txt", "bytes": 5, "isNew": true, "decidedBy": "policy session mode allow"});
    assert_eq!((written.len(), written[1].payload()), (2, &expected));
    assert_eq!(written[0].payload()["isNew"], false);
}

#[tokio::test]
async fn whatever_leads_out_of_the_workspace_is_refused_with_its_own_error() {
    let (builder, workspace) = builder();
    let outside = builder.root().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::create_dir(workspace.join("sub")).unwrap();
    for name in ["secret", "linked"] {
        fs::write(outside.join(name), "secret").unwrap();
    }
    symlink(&outside, workspace.join("out")).unwrap();
    symlink(outside.join("sub"), workspace.join("deep")).unwrap();
    symlink("../outside/secret", workspace.join("relative")).unwrap();
    symlink("/proc/self/root", workspace.join("root")).unwrap();
    symlink("loop", workspace.join("loop")).unwrap();
    symlink("nowhere", workspace.join("dangling")).unwrap();
    fs::hard_link(outside.join("linked"), workspace.join("hard")).unwrap();
    let secret = outside.join("secret");
    let paths = [
        secret.clone(),
        workspace.join("../outside/secret"),
        workspace.join("sub/../../outside/secret"),
        workspace.join("out/secret"),
        workspace.join("deep/../secret"),
        workspace.join("relative"),
        workspace.join("root").join(secret.strip_prefix("/").unwrap()),
        builder.root().join("workspace-too/secret"),
    ];
    let mut requests: Vec<Value> = paths.iter().map(read).collect();
    requests.extend(paths.iter().map(|path| write(path, "overwritten")));
    let escapes = requests.len();
    requests.push(write(workspace.join("hard"), "overwritten"));
    requests.push(read(workspace.join("loop")));
    requests.push(write(workspace.join("dangling"), "made"));
    requests.push(read(workspace.join("none")));
    let daemon = builder.agent_with("escaping", asking(requests), ALLOW).start().await;
    let (answers, session) = answers(&daemon, "escaping").await;

    for (answer, path) in answers[..escapes].iter().zip(paths.iter().chain(&paths)) {
        let message = format!("{}: the path leads out of the workspace", path.display());
        assert_eq!(told(answer), (json!(INVALID), message));
    }
    let at = |name: &str, message: &str| format!("{}: {message}", workspace.join(name).display());
    let hard = "the file has 2 hard links, and a write might change a file outside the workspace";
    assert_eq!(told(&answers[escapes]), refusal(INVALID, &at("hard", hard)));
    let message = at("loop", "the path leads through too many links");
    assert_eq!(told(&answers[escapes + 1]), refusal(INVALID, &message));
    let message = at("dangling", "the path is a link whose target does not exist");
    assert_eq!(told(&answers[escapes + 2]), refusal(INVALID, &message));
    let message = at("none", "there is no such file in the workspace");
    assert_eq!(told(&answers[escapes + 3]), refusal(NOT_FOUND, &message));

    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_to_string(outside.join("linked")).unwrap(), "secret");
    let refused = events(&daemon, &session, "file.refused").await;
    assert_eq!(refused.len(), answers.len());
    let payload = refused[0].payload();
    assert_eq!((&payload["operation"], &payload["decidedBy"]), (&json!("read"), &Value::Null));
    assert_eq!(security_events(&daemon).await, u64::try_from(escapes).unwrap() + 1);
    assert!(daemon.log().contains("path_escape"));
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_with_its_own_error_and_nothing_hangs() {
    let (builder, workspace) = builder();
    mkfifo(&workspace.join("pipe"), Mode::S_IRWXU).unwrap();
    std::os::unix::net::UnixListener::bind(workspace.join("socket")).unwrap();
    fs::create_dir(workspace.join("directory")).unwrap();
    fs::File::create(workspace.join("sparse")).unwrap().set_len(10 << 30).unwrap();
    fs::write(workspace.join("nul"), b"a\0b").unwrap();
    fs::write(workspace.join("latin"), b"gr\xfcn").unwrap();
    fs::write(workspace.join("large"), "line\n".repeat(400)).unwrap();
    fs::write(workspace.join("file"), "x").unwrap();
    let device = {
        use nix::sys::stat::{SFlag, makedev, mknod};
        let made = mknod(&workspace.join("device"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5));
        made.is_ok().then(|| read(workspace.join("device")))
    };
    let first = &json!({"line": 1, "limit": 1});
    let mut requests = vec![
        read(workspace.join("pipe")),
        write(workspace.join("pipe"), "x"),
        read(workspace.join("socket")),
        read(workspace.join("directory")),
        read(&workspace),
        read(workspace.join("sparse")),
        read_lines(workspace.join("sparse"), first),
        read(workspace.join("nul")),
        read(workspace.join("latin")),
        write(workspace.join("file"), &"x".repeat(1025)),
        read(workspace.join("large")),
        read_lines(workspace.join("large"), first),
        read(workspace.join("file/x")),
        write(workspace.join("file"), "a\0b"),
    ];
    requests.extend(device);
    let count = requests.len();
    let script = asking(requests);
    let daemon = builder.config("[limits]\nfile_max = \"1KiB\"").agent_with("odd", script, ALLOW).start().await;
    let (answers, _) = answers(&daemon, "odd").await;
    let too_large = "the file is larger than 1024 bytes (limits.file_max)";
    let binary = "the file is not text: it has a NUL byte, or is not UTF-8";
    let expected = [
        ("pipe", "the path names a pipe, not a regular file"),
        ("pipe", "the path names a pipe, not a regular file"),
        ("socket", "the path names a socket, not a regular file"),
        ("directory", "the path names a directory, not a regular file"),
        ("", "the path names a directory, not a regular file"),
        ("sparse", too_large),
        ("sparse", binary),
        ("nul", binary),
        ("latin", binary),
        ("file", too_large),
        ("large", too_large),
        ("", ""),
        ("file/x", "a part of the path is not a directory"),
        ("file", binary),
        ("device", "the path names a device, not a regular file"),
    ];
    assert_eq!(answers.len(), count);
    for (answer, (name, message)) in answers.iter().zip(expected) {
        if message.is_empty() {
            assert_eq!(*answer, json!({"content": "line\n"}), "a part of a large file may be had");
            continue;
        }
        let path = if name.is_empty() { workspace.clone() } else { workspace.join(name) };
        assert_eq!(told(answer), (json!(INVALID), format!("{}: {message}", path.display())));
    }
}

/// The classic: a link that is swapped between the check and the use. There is nothing between them here.
#[tokio::test]
async fn a_link_that_is_swapped_all_the_time_leads_nowhere_outside() {
    const REQUESTS: usize = 25;
    let (builder, workspace) = builder();
    let outside = builder.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::create_dir(workspace.join("inside")).unwrap();
    fs::write(workspace.join("inside/file"), "plain").unwrap();
    // A link to a directory on the way, and one that is the file itself.
    let paths = [workspace.join("swapped/file"), workspace.join("swapped-file")];
    let requests = (0..REQUESTS).flat_map(|_| paths.each_ref().map(|path| [read(path), write(path, "plain")]).concat());
    let config = "[sessions]\nturn_cap = 10000";
    let daemon = builder.config(config).agent_with("racing", asking(requests.collect()), ALLOW).start().await;

    let is_over = Arc::new(AtomicBool::new(false));
    let (flag, place, target) = (Arc::clone(&is_over), workspace.clone(), outside.clone());
    let swapper = std::thread::spawn(move || {
        let beside = place.join("beside");
        let mut swaps = 0_u64;
        while !flag.load(Ordering::Relaxed) {
            let side = if swaps.is_multiple_of(2) { Path::new("inside") } else { &target };
            // Rename replaces the link in one step, so that the path is always there.
            for (name, to) in [("swapped", side.to_owned()), ("swapped-file", side.join("file"))] {
                symlink(to, &beside).unwrap();
                fs::rename(&beside, place.join(name)).unwrap();
            }
            swaps += 1;
        }
        swaps
    });
    let session = daemon.create_session("racing").await;
    let started = Instant::now();
    let mut attempts = 0;
    while started.elapsed() < Duration::from_secs(3) || attempts <= 100 {
        let turn = daemon.prompt_and_wait(&session, "again").await;
        assert_eq!(turn["status"], "completed", "{turn}");
        attempts += 4 * REQUESTS;
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
    }
    is_over.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert!(attempts > 100 && swaps > 100, "{attempts} attempts, {swaps} swaps");
    let count = async |kind: &str| events(&daemon, &session, kind).await.len();
    let outcomes = (count("file.read").await, count("file.written").await, count("file.refused").await);
    assert!(outcomes.0 > 0 && outcomes.1 > 0 && outcomes.2 > 0, "it went both ways: {outcomes:?}");
    assert_eq!(outcomes.0 + outcomes.1 + outcomes.2, attempts);
    for message in daemon.messages(&session).await {
        assert!(!message.to_string().contains("secret"), "{message}");
    }
    assert!(security_events(&daemon).await > 0);
}

#[tokio::test]
async fn the_policy_judges_writes_and_reads_need_no_question() {
    let (builder, workspace) = builder();
    fs::write(workspace.join("a"), "text").unwrap();
    let script = || asking(vec![read(workspace.join("a")), write(workspace.join("a"), "changed")]);
    let daemon = builder
        .agent_with("denied", script(), "permissions = \"deny\"")
        .agent_with("editing", script(), "permissions = \"edit\"")
        .start()
        .await;
    let (told_denied, session) = answers(&daemon, "denied").await;
    for answer in &told_denied {
        let (code, message) = told(answer);
        assert_eq!(code, -32603);
        assert!(message.ends_with("permission was denied (policy session mode deny)"), "{message}");
    }
    assert_eq!(fs::read_to_string(workspace.join("a")).unwrap(), "text");
    let refused = events(&daemon, &session, "file.refused").await;
    assert_eq!(refused[1].payload()["decidedBy"], "policy session mode deny");
    assert_eq!(refused[1].payload()["operation"], "write");

    let (answers, session) = answers(&daemon, "editing").await;
    assert_eq!(answers, [json!({"content": "text"}), json!({})]);
    assert_eq!(fs::read_to_string(workspace.join("a")).unwrap(), "changed");
    assert_eq!(events(&daemon, &session, "file.written").await[0].payload()["decidedBy"], "policy session mode edit");
}

#[tokio::test]
async fn a_read_needs_no_question_where_all_else_is_asked() {
    let (builder, workspace) = builder();
    fs::write(workspace.join("a"), "text").unwrap();
    let daemon = builder.agent("asking", asking(vec![read(workspace.join("a"))])).start().await;
    let (answers, _) = answers(&daemon, "asking").await;
    assert_eq!(answers, [json!({"content": "text"})]);
}

#[tokio::test]
async fn what_the_profile_does_not_serve_is_neither_told_of_nor_done() {
    let (builder, workspace) = builder();
    fs::write(workspace.join("a"), "text").unwrap();
    let script = json!([
        {"record": true}, {"handshake": {}},
        {"prompt": [read(workspace.join("a")), {"textFromAnswer": true}]}
    ]);
    let daemon = builder.agent_with("bare", script, "client_files = false").start().await;
    let (answers, _) = answers(&daemon, "bare").await;
    let message = "acpd's file access is off (agents.bare.client_files is false)";
    assert_eq!(told(&answers[0]), refusal(-32601, message));
    let heard = daemon.heard("bare");
    let none = json!({"readTextFile": false, "writeTextFile": false});
    let told = &heard[0].params["clientCapabilities"];
    assert_eq!((&told["fs"], &told["terminal"]), (&none, &json!(false)));
}

#[tokio::test]
async fn for_an_agent_that_reads_before_it_makes_a_file_a_missing_one_is_empty() {
    let (builder, workspace) = builder();
    let requests = vec![read(workspace.join("new")), write(workspace.join("new"), "text"), read("/etc/hostname-not")];
    let settings = format!("{ALLOW}\nadapter = \"gemini\"");
    let daemon = builder.agent_with("gemini-like", asking(requests), &settings).start().await;
    let (answers, _) = answers(&daemon, "gemini-like").await;
    assert_eq!(answers[..2], [json!({"content": ""}), json!({})]);
    assert_eq!(answers[2]["code"], INVALID, "what is outside is not empty, but refused");
    assert_eq!(fs::read_to_string(workspace.join("new")).unwrap(), "text");
}

#[tokio::test]
async fn bad_requests_are_answered_with_what_is_wrong() {
    let (builder, workspace) = builder();
    let of_another = json!({"sessionId": "another", "path": workspace.join("a")});
    let script = asking(vec![
        json!({"request": {"method": "fs/read_text_file", "params": {"sessionId": "test-session"}}}),
        json!({"request": {"method": "fs/read_text_file", "params": of_another}}),
        read("a\0b"),
        read("x".repeat(5000)),
    ]);
    let daemon = builder.agent_with("bad", script, ALLOW).start().await;
    let (answers, _) = answers(&daemon, "bad").await;
    assert!(answers.iter().all(|answer| answer["code"] == INVALID), "{answers:?}");
    assert!(told(&answers[0]).1.contains("path"), "{answers:?}");
    assert!(told(&answers[1]).1.contains("not the session"), "{answers:?}");
    assert!(told(&answers[2]).1.ends_with("the path is not valid"), "{answers:?}");
    assert!(told(&answers[3]).1.ends_with("the path is not valid"), "{answers:?}");
}

#[tokio::test]
async fn a_write_of_a_cancelled_turn_is_not_done() {
    let (builder, workspace) = builder();
    let script = json!([
        {"handshake": {}}, {"record": true},
        {"expect": "session/prompt"}, {"gate": "running"}, {"expect": "session/cancel"},
        write(workspace.join("a"), "late"), {"textFromAnswer": true},
        {"reply": {"stopReason": "cancelled"}}
    ]);
    let daemon = builder.agent_with("late", script, ALLOW).start().await;
    let session = daemon.create_session("late").await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("late").reached("running").await;
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.expect_status(202);
    passage.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "cancelled");
    let messages = daemon.messages(&session).await;
    let text = messages.iter().find(|message| message["role"] == "agent").unwrap()["content"]["text"].clone();
    assert!(text.as_str().unwrap().contains("-32800"), "{text}");
    assert!(!workspace.join("a").exists());
}

#[tokio::test]
async fn what_the_daemons_user_may_not_write_is_not_replaced_either() {
    for user in users().into_iter().flatten() {
        let (builder, workspace) = builder();
        for name in ["locked", "closed"] {
            fs::write(workspace.join(name), "kept").unwrap();
        }
        fs::set_permissions(workspace.join("locked"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(workspace.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let script = asking(vec![write(workspace.join("locked"), "x"), read(workspace.join("closed"))]);
        let daemon = builder.agent_with("locked", script, ALLOW).user_of(Some(user)).start().await;
        let (answers, _) = answers(&daemon, "locked").await;
        for answer in &answers {
            let (code, message) = told(answer);
            assert_eq!(code, -32603);
            assert!(message.ends_with("the session's owner lacks the permission for that"), "{message}");
        }
        assert_eq!(fs::read_to_string(workspace.join("locked")).unwrap(), "kept");
    }
}

/// More than run at once and wait in line: the agent is held back, and nothing is lost.
#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    const COUNT: usize = 300;
    let (builder, workspace) = builder();
    let steps: Vec<Value> = (0..COUNT)
        .map(|number| json!({"ask": write(workspace.join(format!("f{number}")), "text")["request"]}))
        .chain((0..COUNT).map(|_| json!({"awaitAnswer": true})))
        .collect();
    let script = json!([{"handshake": {}}, {"prompt": steps}]);
    let daemon = builder.agent_with("busy", script, ALLOW).start().await;
    let session = daemon.create_session("busy").await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert_eq!(events(&daemon, &session, "file.written").await.len(), COUNT);
    assert_eq!(fs::read_dir(&workspace).unwrap().count(), COUNT);
}

#[tokio::test]
async fn directories_that_are_made_for_a_file_hand_the_group_on() {
    let (builder, workspace) = builder();
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o2777)).unwrap();
    let params = json!({"sessionId": "test-session", "path": workspace.join("a/b/file"), "content": "x"});
    let script = json!([{"handshake": {}},
        {"prompt": [{"request": {"method": "fs/write_text_file", "params": params}}, {"textFromAnswer": true}]}]);
    let daemon = builder.agent_with("writes", script, "permissions = \"allow\"").start().await;
    let session = daemon.create_session("writes").await;
    daemon.prompt_and_wait(&session, "write").await;
    for made in ["a", "a/b"] {
        let mode = workspace.join(made).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o2000, 0o2000, "{made}: {mode:o}");
    }
}
