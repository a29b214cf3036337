//! Workspaces: where they may be, and that a session works in the directory that was meant.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use harness::{Daemon, ORDINARY, users, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// It says where it is, again and again.
fn located() -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromCwd": true}]}]}])
}

async fn refusals(daemon: &Daemon) -> u64 {
    daemon.get("/v1/info").await.expect_status(200)["securityEvents"]["outside_roots"].as_u64().unwrap()
}

async fn create(daemon: &Daemon, workspace: &Path) -> String {
    let body = json!({"workspace": workspace, "agent": "located", "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    session["id"].as_str().unwrap().to_owned()
}

async fn prompt(daemon: &Daemon, session: &str) -> harness::Reply {
    daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "where?"})).await
}

/// The last thing that the agent said.
async fn spoken(daemon: &Daemon, session: &str) -> String {
    let messages = daemon.messages(session).await;
    let last = messages.iter().rev().find(|message| message["role"] == "agent").unwrap();
    last["content"]["text"].as_str().unwrap().to_owned()
}

fn notices(messages: &[Value]) -> usize {
    messages.iter().filter(|message| message["content"]["code"] == "workspace_replaced").count()
}

#[tokio::test]
async fn a_workspace_lies_inside_a_root_whatever_it_is_called() {
    let builder = Daemon::builder();
    let root = builder.root().to_owned();
    for directory in ["a", "a/inside", "ab", "real", "real/deep"] {
        std::fs::create_dir(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("a/file"), "").unwrap();
    symlink(root.join("real"), root.join("linked")).unwrap();
    symlink(root.join("ab"), root.join("a/out")).unwrap();
    symlink("inside", root.join("a/alias")).unwrap();
    symlink(root.join("a"), root.join("ab/back")).unwrap();
    // One root is a link itself.
    let roots = json!([root.join("a"), root.join("linked")]);
    let daemon = builder.config(&format!("[workspace]\nroots = {roots}")).agent("located", located()).start().await;
    let own_pid = std::process::id().to_string();
    let register = async |path: &PathBuf| daemon.post("/v1/workspaces", json!({"path": path})).await;
    for (path, real) in [
        ("a", "a"),
        ("a/inside", "a/inside"),
        ("a/alias", "a/inside"),
        ("a/inside/..", "a"),
        ("linked", "real"),
        ("real/deep", "real/deep"),
        ("linked/deep/../deep", "real/deep"),
        ("ab/back/inside", "a/inside"),
    ] {
        let registered = register(&root.join(path)).await.expect_status(201);
        assert_eq!(registered["path"], json!(root.join(real)), "{path}");
    }
    assert_eq!(refusals(&daemon).await, 0);
    let outside = ["ab", "a/../ab", "a/out", "ab/back/../ab", ".", "a/inside/../../ab", "a/alias/../../ab"];
    for (count, path) in (1..).zip(outside) {
        let refused = register(&root.join(path)).await.expect_status(403);
        assert_eq!(refused["error"], "outside_roots", "{path}");
        assert_eq!(refusals(&daemon).await, count, "{path}");
    }
    // The log tells who asked, and for what.
    let log = daemon.log();
    let told = log.lines().find(|line| line.contains("refused: ")).unwrap();
    for part in ["security=true", "outside_roots", &format!("pid={own_pid}"), "uid=", "program=", "/ab"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let before = refusals(&daemon).await;
    let body = json!({"workspace": root.join("ab"), "agent": "located"});
    assert_eq!(daemon.post("/v1/sessions", body).await.expect_status(403)["error"], "outside_roots");
    assert_eq!(refusals(&daemon).await, before + 1, "one attempt is one event");
    for (path, status) in [("a/file", 400), ("a/absent", 400)] {
        register(&root.join(path)).await.expect_status(status);
    }
    assert_eq!(refusals(&daemon).await, before + 1, "a mistake is no attempt");
}

#[tokio::test]
async fn a_directory_that_was_replaced_is_taken_up_again_with_a_word() {
    let mut daemon = Daemon::builder().agent("located", located()).start().await;
    let workspace = daemon.root().join("project");
    std::fs::create_dir(&workspace).unwrap();
    let session = create(&daemon, &workspace).await;
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    assert_eq!(notices(&daemon.messages(&session).await), 0);

    // The process is there and works in the old directory, which has another name by now.
    let moved = daemon.root().join("moved");
    std::fs::rename(&workspace, &moved).unwrap();
    let refused = prompt(&daemon, &session).await.expect_status(409);
    assert_eq!(refused["error"], "workspace_missing");
    std::fs::create_dir(&workspace).unwrap();
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    assert_eq!(spoken(&daemon, &session).await, workspace.display().to_string());
    assert_eq!(notices(&daemon.messages(&session).await), 1);
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    assert_eq!(notices(&daemon.messages(&session).await), 1, "it is told once");

    // Replaced while no daemon runs: its identity was kept.
    daemon.terminate().await;
    std::fs::rename(&workspace, daemon.root().join("moved again")).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    assert_eq!(notices(&daemon.messages(&session).await), 2);
    assert_eq!(refusals(&daemon).await, 0);
}

#[tokio::test]
async fn a_link_in_the_way_is_not_followed_and_the_session_says_why_it_ended() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("project")).unwrap();
    let mut daemon = Daemon::builder().agent("located", located()).start().await;
    let parent = daemon.root().join("parent");
    let other = daemon.root().join("other");
    std::fs::create_dir_all(parent.join("project")).unwrap();
    std::fs::create_dir(&other).unwrap();
    let (idle, live) = (create(&daemon, &parent.join("project")).await, create(&daemon, &parent.join("project")).await);
    assert_eq!(daemon.prompt_and_wait(&live, "where?").await["status"], "completed");

    // To another place inside the root: the workspace is not there, and may come back.
    std::fs::rename(parent.join("project"), daemon.root().join("kept")).unwrap();
    symlink(&other, parent.join("project")).unwrap();
    for session in [&idle, &live] {
        let refused = prompt(&daemon, session).await.expect_status(409);
        assert_eq!(refused["error"], "workspace_missing", "{refused}");
        assert_eq!(daemon.session(session).await["status"], "active");
    }
    std::fs::remove_file(parent.join("project")).unwrap();
    std::fs::rename(daemon.root().join("kept"), parent.join("project")).unwrap();
    assert_eq!(daemon.prompt_and_wait(&live, "where?").await["status"], "completed");
    assert_eq!(notices(&daemon.messages(&live).await), 0, "it is the same directory as before");
    assert_eq!(refusals(&daemon).await, 0);

    // Out of the root, by a directory above it: the end of the sessions.
    std::fs::rename(&parent, daemon.root().join("old parent")).unwrap();
    symlink(outside.path(), &parent).unwrap();
    let turn = daemon.prompt_and_wait(&idle, "where?").await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("workspace_escaped")), "{turn}");
    let cause = format!("now leads to {:?}, outside the allowed roots", outside.path().join("project"));
    assert_eq!(prompt(&daemon, &live).await.expect_status(409)["error"], "session_error");
    let mut events = daemon.events(&live, None).await;
    events.until("session.status").await;
    events.until("process.exited").await;
    assert_eq!(refusals(&daemon).await, 2);
    for is_restarted in [false, true] {
        if is_restarted {
            daemon.restart().await;
        }
        for session in [&idle, &live] {
            let view = daemon.session(session).await;
            assert_eq!((&view["status"], &view["lastError"]["code"]), (&json!("error"), &json!("workspace_escaped")));
            let notices: Vec<&Value> =
                view["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
            let notices: Vec<_> = notices.iter().filter(|content| content["code"] == "workspace_escaped").collect();
            assert_eq!(notices.len(), 1, "{view}");
            assert!(notices[0]["text"].as_str().unwrap().contains(&cause), "{view}");
            let resume = daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await;
            for refused in [prompt(&daemon, session).await, resume] {
                let refused = refused.expect_status(409);
                assert_eq!(
                    (&refused["error"], &refused["details"]["cause"]),
                    (&json!("session_error"), &view["lastError"])
                );
                assert!(refused["message"].as_str().unwrap().contains(&cause), "{refused}");
            }
        }
    }
    let log = daemon.log();
    assert!(log.lines().any(|line| line.contains("outside_roots") && line.contains("parent/project")), "{log}");
}

#[tokio::test]
async fn roots_that_are_narrowed_hold_for_sessions_that_are_there() {
    let daemon = Daemon::builder().agent("located", located()).start().await;
    let workspace = daemon.root().join("project");
    std::fs::create_dir(&workspace).unwrap();
    let (idle, live) = (create(&daemon, &workspace).await, create(&daemon, &workspace).await);
    assert_eq!(daemon.prompt_and_wait(&live, "where?").await["status"], "completed");
    let text = std::fs::read_to_string(daemon.config_file()).unwrap();
    let narrowed = json!(daemon.workspace()).to_string();
    let config = text.replacen(&json!(daemon.root()).to_string(), &narrowed, 1);
    assert_ne!(text, config);
    let loaded = async |daemon: &Daemon| daemon.get("/v1/info").await.expect_status(200)["config"]["loadedAt"].clone();
    for (config, status) in [(config, 403), (text, 202)] {
        std::fs::write(daemon.config_file(), config).unwrap();
        let before = loaded(&daemon).await;
        daemon.signal(Signal::SIGHUP);
        within("the reload", async {
            while loaded(&daemon).await == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        for session in [&idle, &live] {
            prompt(&daemon, session).await.expect_status(status);
            assert_eq!(daemon.session(session).await["status"], "active");
        }
    }
    assert_eq!(refusals(&daemon).await, 2);
}

#[tokio::test]
async fn the_workspace_can_be_named_in_the_arguments() {
    let builder = Daemon::builder();
    let agent = Path::new(env!("CARGO_BIN_EXE_acpd")).with_file_name("examples").join("test-agent");
    let profile = format!("[agents.located]\ncommand = {}\nargs = [\"{{workspace}}/my script.json\"]", json!(agent));
    std::fs::write(builder.workspace().join("my script.json"), located().to_string()).unwrap();
    let daemon = builder.config(&profile).start().await;
    let session = create(&daemon, daemon.workspace()).await;
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    assert_eq!(spoken(&daemon, &session).await, daemon.workspace().display().to_string());
}

#[tokio::test]
async fn a_directorys_name_makes_no_line_of_its_own_in_the_log() {
    let daemon = Daemon::builder().agent("located", located()).start().await;
    let outside = tempfile::tempdir().unwrap();
    let name = "x\n2030-01-01T00:00:00.000000Z  WARN a line of somebody's";
    let (directory, workspace) = (outside.path().join(name), daemon.workspace().join(name));
    std::fs::create_dir(&directory).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    daemon.post("/v1/workspaces", json!({"path": directory})).await.expect_status(403);
    daemon.logged("outside the allowed roots").await;
    // A name that is fine and logged with the start of a process.
    let session = create(&daemon, &workspace).await;
    assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
    daemon.logged("starting the agent").await;
    let log = daemon.log();
    assert!(log.contains("a line of somebody's"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2030")), "{log}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_directory_that_an_agent_closed_to_its_owner_is_named_with_how_to_open_it() {
    if users().len() == 1 {
        return harness::say("SKIPPED: root may enter every directory, and only root can be another user");
    }
    let builder = Daemon::builder().user(ORDINARY.uid, ORDINARY.gid).agent("located", located());
    let daemon = builder.start().await;
    let (project, below) = (daemon.root().join("project"), daemon.root().join("project/below"));
    std::fs::create_dir_all(&below).unwrap();
    for directory in [&project, &below] {
        chown(directory, Some(ORDINARY.uid), Some(ORDINARY.gid)).unwrap();
    }
    std::fs::write(below.join("file"), "").unwrap();
    for closed in [&project, &below] {
        let session = create(&daemon, &below).await;
        set_mode(closed, 0o755);
        assert_eq!(daemon.prompt_and_wait(&session, "where?").await["status"], "completed");
        let fresh = create(&daemon, &below).await;
        set_mode(closed, 0o000);
        let told = [
            prompt(&daemon, &session).await.text,
            daemon.patch(&format!("/v1/sessions/{session}"), json!({"context": {"activeFile": "file"}})).await.text,
            daemon.post("/v1/sessions", json!({"workspace": below, "agent": "located"})).await.text,
            prompt(&daemon, &fresh).await.text,
        ];
        set_mode(closed, 0o755);
        for (number, told) in told.into_iter().enumerate() {
            let why = format!("the mode 000 of the directory \\\"{}\\\" does not let its owner in", closed.display());
            let hint = format!("chmod u+rwx {}", closed.display());
            assert!(told.contains(&why) && told.contains(&hint), "{number}: {told}");
        }
    }
}
