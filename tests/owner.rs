//! A daemon of root runs the agents of another user's sessions as that user, and leaves nothing of those either.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use harness::{
    AsUser, Cgroup, Daemon, DaemonBuilder, IMPATIENT, NASTY, ORDINARY, Tree, User, nasty, parent_of, signal, users,
};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};
use serde_json::json;

/// A daemon whose agents' files are the owner's. Nothing, where the tests are not root's.
fn builder() -> Option<DaemonBuilder> {
    let is_root = users().len() > 1;
    if !is_root {
        eprintln!("SKIPPED: only a daemon of root can run agents as other users");
    }
    is_root.then(|| Daemon::builder().owner(ORDINARY))
}

/// Makes a session that belongs to the owner, because the owner asks for it.
async fn create_owned_session(daemon: &Daemon, agent: &str) -> String {
    daemon.as_user(ORDINARY, &[]).create_lazy_session(agent).await
}

fn user_of(process: u32) -> (u32, u32) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let ids = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "no way back is left: {name} {ids:?}");
        ids[0]
    };
    (ids("Uid:"), ids("Gid:"))
}

/// Somebody else, who is no member of the group of the tests.
const STRANGER: User = User { uid: 1, gid: 1 };

/// Whether the daemon closes the connection without a word.
async fn is_refused(client: &AsUser<'_>) -> bool {
    client.try_request("GET", "/v1/info", &[], None).await.is_err_and(|error| !error.contains("cannot connect"))
}

#[tokio::test]
async fn a_daemon_of_root_serves_the_members_of_its_group_and_nobody_else() {
    let Some(builder) = builder() else { return };
    let daemon = builder.start().await;
    let facts = |path: &Path| {
        let metadata = path.metadata().unwrap();
        (metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
    };
    let directory = daemon.socket().parent().unwrap();
    assert_eq!(facts(daemon.socket()), (0o660, 0, ORDINARY.gid));
    assert_eq!(facts(directory), (0o750, 0, ORDINARY.gid));
    assert_eq!(facts(&daemon.socket().with_extension("sock.lock")), (0o600, 0, 0));

    daemon.as_user(ORDINARY, &[]).get("/v1/info").await.expect_status(200);
    daemon.as_user(STRANGER, &[ORDINARY.gid]).get("/v1/info").await.expect_status(200);
    let stranger = daemon.as_user(STRANGER, &[33]);
    assert_eq!(stranger.try_connect().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    // Even where the files let them in, the daemon does not.
    std::fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(daemon.socket(), Permissions::from_mode(0o666)).unwrap();
    assert!(is_refused(&stranger).await);
    daemon.logged("a connection of another user").await;
}

#[tokio::test]
async fn an_ordinary_users_daemon_serves_that_user_and_root_and_has_no_group() {
    if users().len() == 1 {
        return eprintln!("SKIPPED: only root can be several users");
    }
    let daemon = Daemon::builder().user(ORDINARY.uid, ORDINARY.gid).start().await;
    daemon.get("/v1/info").await.expect_status(200);
    daemon.as_user(ORDINARY, &[]).get("/v1/info").await.expect_status(200);
    for directory in [daemon.root(), daemon.socket().parent().unwrap()] {
        std::fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(daemon.socket(), Permissions::from_mode(0o666)).unwrap();
    assert!(is_refused(&daemon.as_user(STRANGER, &[ORDINARY.gid])).await);

    let refusal =
        Daemon::builder().user(ORDINARY.uid, ORDINARY.gid).config("[control]\ngroup = \"root\"").fail_to_start();
    let told = refusal.await.stderr;
    assert!(told.contains("control.group: is for a daemon of root's"), "{told}");
    let told = Daemon::builder().config("[control]\ngroup = \"no-such-group\"").fail_to_start().await.stderr;
    assert!(told.contains("which does not exist") && told.contains("groupadd"), "{told}");
}

#[tokio::test]
async fn agent_and_shim_run_as_the_owner_with_its_groups_its_home_and_its_files() {
    let Some(builder) = builder() else { return };
    let file = builder.workspace().join("made");
    let private = builder.state_dir().join("acpd.db");
    let names = ["HOME", "USER", "LOGNAME", "SHELL", "XDG_STATE_HOME", "TMPDIR"];
    let mut told = vec![json!({"textFromUser": true}), json!({"text": "\n"}), json!({"textFromCwd": true})];
    for name in names {
        told.extend([json!({"text": "\n"}), json!({"textFromEnvironment": name})]);
    }
    told.extend([json!({"text": "\n"}), json!({"textFromWrite": {"path": file, "text": "hello"}})]);
    told.extend([json!({"text": "\n"}), json!({"textFromRead": private})]);
    let script = json!([{"handshake": {}}, {"prompt": told}, {"gate": "told"}]);
    let builder = builder.agent("owned", script).env("XDG_STATE_HOME", "/root/state").env("TMPDIR", "/root/tmp");
    let daemon = builder.start().await;
    let session = create_owned_session(&daemon, "owned").await;
    let turn = daemon.prompt_and_wait(&session, "who are you?").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let agent = daemon.gate("owned").reached("told").await;

    let owner = (ORDINARY.uid, ORDINARY.gid);
    assert_eq!(user_of(agent.pid), owner);
    assert_eq!(user_of(parent_of(agent.pid).unwrap()), owner, "the shim too");
    assert_eq!(user_of(daemon.pid()), (0, 0));
    let user = nix::unistd::User::from_uid(Uid::from_raw(ORDINARY.uid)).unwrap().expect("nobody is a user everywhere");
    let name = std::ffi::CString::new(user.name.as_str()).unwrap();
    let mut groups: Vec<u32> =
        nix::unistd::getgrouplist(&name, user.gid).unwrap().into_iter().map(Gid::as_raw).collect();
    groups.sort_unstable();
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let expected = [
        format!("{} {} {}", ORDINARY.uid, ORDINARY.gid, groups.join(",")),
        daemon.workspace().display().to_string(),
        user.dir.display().to_string(),
        user.name.clone(),
        user.name,
        user.shell.display().to_string(),
        "(unset)".to_owned(),
        daemon.state_dir().join("run").join(&session).join("tmp").display().to_string(),
        "written".to_owned(),
        "error: Permission denied (os error 13)".to_owned(),
    ];
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[1]["content"]["text"], expected.join("\n"));
    let made = std::fs::metadata(&file).unwrap();
    assert_eq!((made.uid(), made.gid()), owner);
    agent.open().await;
}

#[tokio::test]
async fn nothing_is_left_of_an_owners_nasty_agent_with_and_without_a_cgroup() {
    for cgroup in [None, Cgroup::delegated(None)] {
        let Some(mut builder) = builder() else { return };
        if let Some(cgroup) = &cgroup {
            builder = builder.cgroup(cgroup);
        }
        let daemon = builder.config(IMPATIENT).agent(NASTY, nasty()).start().await;
        let archived = create_owned_session(&daemon, NASTY).await;
        let crashed = create_owned_session(&daemon, NASTY).await;
        let archived = Tree::grow_in(&daemon, archived).await;
        let crashed = Tree::grow_in(&daemon, crashed).await;
        for tree in [&archived, &crashed] {
            assert!(tree.processes.iter().all(|process| user_of(*process) == (ORDINARY.uid, ORDINARY.gid)));
        }
        archived.archive(&daemon).await;
        // Its own user may kill the shim, so this is in the agent's power.
        signal(crashed.shim(&daemon), Signal::SIGKILL);
        crashed.exited(&daemon).await;
        crashed.gone().await;
        assert!(cgroup.is_none_or(|cgroup| cgroup.agents().is_empty()));
    }
}

#[tokio::test]
async fn a_terminal_runs_as_the_owner_and_files_are_not_served_with_roots_rights() {
    let Some(builder) = builder() else { return };
    let file = builder.workspace().join("file");
    std::fs::write(&file, "text").unwrap();
    let request = |method: &str, more: serde_json::Value| {
        let mut params = json!({"sessionId": "test-session"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [
            json!({"request": {"method": method, "params": params}}),
            json!({"textFromAnswer": true}),
            json!({"text": "\n"}),
        ]
    };
    let terminal = json!({"terminalId": "{terminal0}"});
    let steps = [
        request("terminal/create", json!({"command": "id -u"})),
        request("terminal/wait_for_exit", terminal.clone()),
        request("terminal/output", terminal),
        request("fs/read_text_file", json!({"path": file})),
        request("fs/write_text_file", json!({"path": file, "content": "x"})),
    ];
    let script = json!([{"handshake": {}}, {"prompt": steps.concat()}]);
    let settings = "permissions = \"allow\"\nterminal_commands = [\"id\"]";
    let daemon = builder.agent_with("owned", script, settings).start().await;
    let session = create_owned_session(&daemon, "owned").await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    let text: Vec<&str> = messages[1]["content"]["text"].as_str().unwrap().lines().collect();
    let output: serde_json::Value = serde_json::from_str(text[2]).unwrap();
    assert_eq!(output["output"], format!("{}\n", ORDINARY.uid));
    assert!(text[3..].iter().all(|answer| answer.contains("belongs to another user")), "{text:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}
