//! A daemon of root runs the agents of another user's sessions as that user, and leaves nothing of those either.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use harness::{
    AsUser, Bystander, Cgroup, Daemon, DaemonBuilder, IMPATIENT, NASTY, ORDINARY, Tree, User, echo, nasty, parent_of,
    signal, users, within,
};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};

/// A daemon whose agents' files are the owner's. Nothing, where the tests are not root's.
fn builder() -> Option<DaemonBuilder> {
    let is_root = users().len() > 1;
    if !is_root {
        harness::say("SKIPPED: only a daemon of root can run agents as other users");
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
    daemon.logged("connection from another user").await;
}

#[tokio::test]
async fn an_ordinary_users_daemon_serves_that_user_and_root_and_has_no_group() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only root can be several users");
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
    assert!(told.contains("control.group: is only for a daemon that runs as root"), "{told}");
    let told = Daemon::builder().config("[control]\ngroup = \"no-such-group\"").fail_to_start().await.stderr;
    assert!(told.contains("which does not exist") && told.contains("groupadd"), "{told}");
}

#[tokio::test]
async fn agent_and_shim_run_as_the_owner_with_its_groups_its_home_and_its_files() {
    let Some(builder) = builder() else { return };
    let file = builder.workspace().join("made");
    let private = builder.state_dir().join("acpd.db");
    let names =
        ["HOME", "USER", "LOGNAME", "SHELL", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "SHARED", "TMPDIR"];
    let mut told = vec![json!({"textFromUser": true}), json!({"text": "\n"}), json!({"textFromCwd": true})];
    for name in names {
        told.extend([json!({"text": "\n"}), json!({"textFromEnvironment": name})]);
    }
    told.extend([json!({"text": "\n"}), json!({"textFromWrite": {"path": file, "text": "hello"}})]);
    told.extend([json!({"text": "\n"}), json!({"textFromRead": private})]);
    let script = json!([{"handshake": {}}, {"prompt": told}, {"gate": "told"}]);
    // Whoever lists root's own names gets nothing for them; others are handed on.
    let passed = "env_pass = [\"HOME\", \"XDG_RUNTIME_DIR\", \"SSH_AUTH_SOCK\", \"SHARED\"]";
    let mut builder = builder.agent_with("owned", script, passed).env("SHARED", "shared");
    for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "TMPDIR"] {
        builder = builder.env(name, "/root/private");
    }
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
        // The private home: an agent without an adapter cannot write to the owner's.
        daemon.state_dir().join("run").join(&session).join("home").display().to_string(),
        user.name.clone(),
        user.name,
        user.shell.display().to_string(),
        "(unset)".to_owned(),
        "(unset)".to_owned(),
        "(unset)".to_owned(),
        "shared".to_owned(),
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

/// A request of the agent's to acpd, whose answer it tells on a line of its own.
fn request(method: &str, more: &Value) -> [Value; 3] {
    let mut params = json!({"sessionId": "test-session"});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    [json!({"request": {"method": method, "params": params}}), json!({"textFromAnswer": true}), json!({"text": "\n"})]
}

/// What the agent of an owner's session tells when it makes these requests, line by line.
async fn answers(daemon: &Daemon, agent: &str) -> Vec<Value> {
    let session = create_owned_session(daemon, agent).await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(&session).await;
    let text = messages[1]["content"]["text"].as_str().unwrap().to_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect()
}

#[tokio::test]
async fn a_terminal_runs_as_the_owner_in_a_directory_that_the_owner_can_reach() {
    let Some(builder) = builder() else { return };
    let terminal = json!({"terminalId": "{terminal0}"});
    let steps = [
        request("terminal/create", &json!({"command": "id -u"})),
        request("terminal/wait_for_exit", &terminal),
        request("terminal/output", &terminal),
        request("terminal/create", &json!({"command": "id -u", "cwd": builder.workspace().join("closed/below")})),
    ];
    let script = json!([{"handshake": {}}, {"prompt": steps.concat()}]);
    let settings = "permissions = \"allow\"\npermissions_max = \"allow\"\nterminal_commands = [\"id\"]";
    let daemon = builder.agent_with("owned", script, settings).start().await;
    make_roots_directory(&daemon.workspace().join("closed"));
    let told = answers(&daemon, "owned").await;
    assert_eq!(told[2]["output"], format!("{}\n", ORDINARY.uid));
    assert!(told[3].to_string().contains("lacks the permission"), "{told:?}");
}

/// A directory of root's that is closed to others, with one below it.
fn make_roots_directory(path: &Path) {
    std::fs::create_dir_all(path.join("below")).unwrap();
    std::fs::write(path.join("below/file"), "secret").unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn files_are_read_and_written_with_the_owners_rights_and_are_the_owners() {
    let Some(builder) = builder() else { return };
    let workspace = builder.workspace().to_owned();
    let at = |name: &str| workspace.join(name);
    let read = |name: &str| request("fs/read_text_file", &json!({"path": at(name)}));
    let write = |name: &str| request("fs/write_text_file", &json!({"path": at(name), "content": "new"}));
    let steps = [
        read("own"),
        read("secret"),
        read("closed/below/file"),
        read("link"),
        write("own"),
        write("made/below/file"),
        write("readable"),
        write("closed/new"),
    ];
    let script = json!([{"handshake": {}}, {"prompt": steps.concat()}]);
    std::fs::write(at("own"), "own text").unwrap();
    let daemon =
        builder.agent_with("owned", script, "permissions = \"allow\"\npermissions_max = \"allow\"").start().await;
    for (name, mode) in [("secret", 0o600), ("readable", 0o644)] {
        std::fs::write(at(name), "root's text").unwrap();
        std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    make_roots_directory(&at("closed"));
    std::os::unix::fs::symlink("closed/below/file", at("link")).unwrap();

    let told = answers(&daemon, "owned").await;
    assert_eq!(told[0]["content"], "own text", "{told:?}");
    for refused in [1, 2, 3, 6, 7] {
        assert!(
            told[refused].to_string().contains("the session's owner lacks the permission for that"),
            "{refused}: {told:?}"
        );
    }
    let owner = |name: &str| at(name).metadata().map(|found| (found.uid(), found.gid())).unwrap();
    for made in ["own", "made", "made/below", "made/below/file"] {
        assert_eq!(owner(made), (ORDINARY.uid, ORDINARY.gid), "{made}");
    }
    assert_eq!(std::fs::read_to_string(at("own")).unwrap(), "new");
    for name in ["secret", "readable"] {
        assert_eq!((std::fs::read_to_string(at(name)).unwrap().as_str(), owner(name)), ("root's text", (0, 0)));
    }
    assert!(!at("closed/new").exists());
}

#[tokio::test]
async fn a_workspace_is_looked_up_with_the_rights_of_whoever_asks() {
    let Some(builder) = builder() else { return };
    let daemon = builder.start().await;
    let closed = daemon.root().join("closed");
    make_roots_directory(&closed);
    std::os::unix::fs::symlink(closed.join("below"), daemon.workspace().join("link")).unwrap();
    let member = daemon.as_user(ORDINARY, &[]);
    // Neither whether it is there nor what it is can be told from the answer.
    let mut told = Vec::new();
    for name in ["closed/below", "closed/nothing", "closed/below/file", "closed/below/../below", "workspace/link"] {
        let path = daemon.root().join(name);
        for (route, body) in [("workspaces", json!({"path": path})), ("sessions", json!({"workspace": path}))] {
            let refusal = member.post(&format!("/v1/{route}"), body).await.expect_status(400);
            assert_eq!(refusal["error"], "workspace_missing", "{refusal}");
            told.push(refusal.to_string().replace(path.to_str().unwrap(), "PATH"));
        }
    }
    assert!(told.iter().all(|answer| *answer == told[0]), "{told:#?}");
    // Root, who may look, is told what there is.
    daemon.post("/v1/workspaces", json!({"path": closed.join("below")})).await.expect_status(201);
    member.post("/v1/workspaces", json!({"path": daemon.workspace()})).await.expect_status(201);
    // A context is looked up in the same way.
    make_roots_directory(&daemon.workspace().join("closed"));
    let create = |file: &str| {
        let body =
            json!({"workspace": daemon.workspace(), "agent": "demo", "start": "lazy", "context": {"activeFile": file}});
        member.post("/v1/sessions", body)
    };
    let told = [create("closed/below/file").await, create("closed/below/none").await];
    let [there, nowhere] = told.map(|reply| reply.expect_status(400)["message"].clone());
    assert_eq!(there, nowhere);
}

#[tokio::test]
async fn roots_are_in_the_home_of_the_owner_and_who_has_none_is_told_so() {
    let Some(builder) = builder() else { return };
    let daemon = builder.config("[workspace]\nroots = [\"~\", \"~/src\"]").start().await;
    let body = || json!({"workspace": daemon.workspace(), "agent": "demo", "start": "lazy"});
    let refusal = daemon.as_user(ORDINARY, &[]).post("/v1/sessions", body()).await.expect_status(403);
    let home = nix::unistd::User::from_uid(Uid::from_raw(ORDINARY.uid)).unwrap().unwrap().dir;
    assert_eq!(refusal["error"], "outside_roots");
    assert_eq!(refusal["details"]["roots"], json!([home, home.join("src")]));
    let refusal = daemon.post("/v1/sessions", body()).await.expect_status(403);
    assert_eq!(refusal["details"]["roots"], json!([daemon.home(), daemon.home().join("src")]));
    let nameless = User { uid: 54321, gid: ORDINARY.gid };
    let refusal = daemon.as_user(nameless, &[]).post("/v1/sessions", body()).await.expect_status(403);
    assert_eq!(refusal["error"], "unknown_user", "{refusal}");
}

#[tokio::test]
async fn a_members_agent_is_not_served_though_it_is_of_the_group() {
    let Some(builder) = builder() else { return };
    let send = "GET /v1/sessions HTTP/1.1\r\nhost: acpd\r\n\r\n";
    let ask = json!({"textFromSocket": {"path": builder.socket(), "send": send}});
    let script = json!([{"handshake": {}}, {"prompt": [ask]}]);
    let daemon = builder.agent("owned", script).start().await;
    assert_eq!(answers(&daemon, "owned").await, [json!("HTTP/1.1 403 Forbidden")]);
}

#[tokio::test]
async fn no_member_takes_all_processes() {
    let Some(builder) = builder() else { return };
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "busy"}]}]);
    let daemon = builder.config("[limits]\nprocesses = 3\nprocesses_per_user = 1").agent("owned", script).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let idle = member.create_session("owned").await;
    daemon.events(&idle, None).await.until("process.ready").await;
    // An idle process of their own makes room; a busy one does not, though there are slots.
    let busy = member.create_session("owned").await;
    daemon.events(&idle, None).await.until("process.exited").await;
    daemon.prompt(&busy, "go").await;
    let passage = daemon.gate("owned").reached("busy").await;
    let body = json!({"workspace": daemon.workspace(), "agent": "owned"});
    for (route, body) in [(String::new(), body), (format!("/{idle}/prompt"), json!({"text": "go"}))] {
        let refused = member.post(&format!("/v1/sessions{route}"), body).await.expect_status(429);
        assert_eq!(refused["error"], "process_limit", "{refused}");
        assert_eq!(refused["details"], json!({"max": 1, "perUser": true}));
    }
    // The other slots are for others, and root has no such bound.
    daemon.create_session("demo").await;
    daemon.create_session("demo").await;
    passage.open().await;
}

/// What `/proc` shows of root's processes is shown to root alone.
#[tokio::test]
async fn a_workspace_is_not_found_by_way_of_another_users_process() {
    let Some(builder) = builder() else { return };
    let daemon = builder.start().await;
    let process = Bystander::start(None, "");
    let path = format!("/proc/{}/root", process.pid);
    let member = daemon.as_user(ORDINARY, &[]);
    let refusal = member.post("/v1/workspaces", json!({"path": path})).await.expect_status(400);
    assert_eq!(refusal["error"], "workspace_missing", "{refusal}");
}

#[tokio::test]
async fn a_command_that_a_member_may_not_run_is_not_installed_for_them() {
    let Some(builder) = builder() else { return };
    let closed = builder.root().join("closed");
    make_roots_directory(&closed);
    let program = closed.join("agent");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let daemon = builder.config(&format!("[agents.closed]\ncommand = {program:?}")).start().await;
    let member = daemon.as_user(ORDINARY, &[]);
    let body = json!({"workspace": daemon.workspace(), "agent": "closed", "start": "lazy"});
    let refusal = member.post("/v1/sessions", body.clone()).await.expect_status(422);
    assert_eq!(refusal["error"], "agent_not_installed", "{refusal}");
    assert_eq!(member.get("/v1/agents/closed").await.expect_status(200)["installed"], false);
    daemon.post("/v1/sessions", body).await.expect_status(201);
    assert_eq!(daemon.get("/v1/agents/closed").await.expect_status(200)["installed"], true);
}

/// A user database that may be made to wait: whoever asks it while there is a pipe reads from that to its end first.
struct SlowUsers {
    library: PathBuf,
    pipe: PathBuf,
}

impl SlowUsers {
    fn make(directory: &Path) -> Self {
        let (library, pipe) = (directory.join("slow_users.so"), directory.join("pipe"));
        let source = format!(
            r#"
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <fcntl.h>
            #include <pwd.h>
            #include <unistd.h>
            int getpwuid_r(uid_t uid, struct passwd *user, char *buffer, size_t size, struct passwd **found) {{
                int (*real)(uid_t, struct passwd *, char *, size_t, struct passwd **) = dlsym(RTLD_NEXT, "getpwuid_r");
                int pipe = open("{}", O_RDONLY | O_CLOEXEC);
                char byte;
                while (pipe >= 0 && read(pipe, &byte, 1) > 0) {{}}
                if (pipe >= 0) close(pipe);
                return real(uid, user, buffer, size, found);
            }}
            "#,
            pipe.display()
        );
        let file = directory.join("slow_users.c");
        std::fs::write(&file, source).unwrap();
        let mut compiler = std::process::Command::new("cc");
        let compiled = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).arg("-ldl").status().unwrap();
        assert!(compiled.success());
        Self { library, pipe }
    }

    /// From now on whoever asks waits.
    fn hold(&self) {
        nix::unistd::mkfifo(&self.pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }

    /// Somebody has asked, and waits until what is returned is dropped. Whoever asks later does not wait.
    async fn asked(&self) -> std::fs::File {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let pipe = self.pipe.clone();
        // To open it for writing takes somebody who reads. A thread that waits in vain is not waited for.
        std::thread::spawn(move || sender.send(std::fs::OpenOptions::new().write(true).open(pipe).unwrap()));
        let asked = within("a question to the user database", receiver).await.unwrap();
        std::fs::remove_file(&self.pipe).unwrap();
        asked
    }
}

/// The one thread that the daemon has on a small machine does not wait for the user database.
#[tokio::test]
async fn a_slow_user_database_holds_up_nobody_else_and_nothing_that_is_to_end() {
    let Some(builder) = builder() else { return };
    let users = SlowUsers::make(builder.root());
    let crashing = json!({"gate": "busy", "cases": {"crash": [{"exit": 3}]}});
    let script = json!([{"handshake": {}}, {"prompt": [crashing]}]);
    let library = users.library.to_str().unwrap();
    let daemon = builder.env("LD_PRELOAD", library).agent("owned", script).agent("echo", echo()).start().await;
    for is_archived in [false, true] {
        let session = create_owned_session(&daemon, "owned").await;
        daemon.prompt(&session, "first").await;
        let second = daemon.prompt(&session, "second").await;
        let first = daemon.gate("owned").reached("busy").await;
        users.hold();
        // The turn that waits gets another process, for which the owner is looked up anew.
        first.say("crash").await;
        let asked = users.asked().await;
        assert_eq!(daemon.session(&session).await["processState"], "starting");
        let other = daemon.create_session("echo").await;
        assert_eq!(daemon.prompt_and_wait(&other, "hello").await["status"], "completed");
        if is_archived {
            daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
            drop(asked);
            assert_eq!(daemon.session(&session).await["processState"], "stopped");
        } else {
            drop(asked);
            daemon.gate("owned").reached("busy").await.open().await;
            let turn = daemon.wait_turn(&session, second["turnId"].as_str().unwrap()).await;
            assert_eq!(turn["status"], "completed", "{turn}");
        }
    }
}

#[tokio::test]
async fn a_confined_agent_has_no_capability_and_can_gain_none() {
    if builder().is_none() {
        return;
    }
    let none = |name: &str| format!("Cap{name}:\t0000000000000000\n");
    let none: String = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(none).concat() + "NoNewPrivs:\t1\nexit 0";
    let script =
        json!([{"handshake": {}}, {"prompt": [{"textFromShell": "grep -E '^(Cap|NoNewPrivs)' /proc/self/status"}]}]);
    let isolated = harness::has_bubblewrap().then(DaemonBuilder::isolated);
    for builder in [Some(DaemonBuilder::new()), isolated].into_iter().flatten() {
        let daemon = builder.owner(ORDINARY).agent("owned", script.clone()).start().await;
        for session in [daemon.create_lazy_session("owned").await, create_owned_session(&daemon, "owned").await] {
            let turn = daemon.prompt_and_wait(&session, "go").await;
            assert_eq!(turn["status"], "completed", "{turn}");
            assert_eq!(daemon.messages(&session).await[1]["content"]["text"], none);
        }
    }
}
