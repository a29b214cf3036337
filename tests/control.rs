//! The control interface: what it answers, and how it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use harness::{Daemon, DaemonBuilder, ORDINARY, echo, parent_of, users, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[tokio::test]
async fn bad_requests_get_the_documented_error_and_change_nothing() {
    let daemon = Daemon::builder().agent_with("echo", echo(), "permissions_max = \"ask\"").start().await;
    let workspace = daemon.workspace().display().to_string();
    let sessions = "/v1/sessions";
    daemon.raw_request("POST", sessions, "application/json", "{nonsense").await.refused(400, "invalid_request");
    daemon.raw_request("POST", sessions, "application/json", "{} {}").await.refused(400, "invalid_request");
    let form = daemon.raw_request("POST", sessions, "application/x-www-form-urlencoded", "a=b").await;
    form.refused(415, "unsupported_media_type");
    let unknown = daemon.post(sessions, json!({"workspace": workspace, "colour": "red"})).await;
    assert_eq!(unknown.refused(400, "invalid_request")["details"]["field"], "colour");
    let wrong = daemon.post(sessions, json!({"workspace": 7})).await;
    assert_eq!(wrong.refused(400, "invalid_request")["details"]["field"], "workspace");
    let nested = daemon.post(sessions, json!({"workspace": workspace, "permissions": {"mode": "maybe"}})).await;
    assert_eq!(nested.refused(400, "invalid_request")["details"]["field"], "permissions.mode");
    daemon.post(sessions, json!({})).await.refused(400, "invalid_request");
    daemon.post("/v1/workspaces", json!(["/tmp"])).await.refused(400, "invalid_request");
    let missing = daemon.post("/v1/workspaces", json!({})).await;
    assert_eq!(missing.refused(400, "invalid_request")["details"]["field"], "path");
    let nested =
        daemon.post(sessions, json!({"workspace": workspace, "permissions": {"mode": "ask", "rule": []}})).await;
    assert_eq!(nested.refused(400, "invalid_request")["details"]["field"], "permissions.rule");
    for (field, list) in [("limits", json!([7])), ("permissions", json!(["deny"])), ("context", json!(["a.rs"]))] {
        let listed = daemon.post(sessions, json!({"workspace": workspace, "agent": "echo", field: list})).await;
        assert_eq!(listed.refused(400, "invalid_request")["details"]["field"], field);
    }
    let tiny = json!({"workspace": workspace, "agent": "echo", "limits": {"costLimit": 1e-12}});
    assert_eq!(
        daemon.post(sessions, tiny).await.refused(400, "invalid_request")["details"]["field"],
        "limits.costLimit"
    );
    daemon.get("/v1/agents/%ff").await.refused(400, "invalid_request");
    daemon.get("/v1/sessions?limit=1&limit=2").await.refused(400, "invalid_request");
    daemon.post(sessions, json!({"workspace": "relative"})).await.refused(400, "invalid_request");
    daemon.post(sessions, json!({"workspace": format!("{workspace}/missing")})).await.refused(400, "workspace_missing");
    daemon.post(sessions, json!({"workspace": "/"})).await.refused(403, "outside_roots");
    let agent = daemon.post(sessions, json!({"workspace": workspace, "agent": "nobody"})).await;
    agent.refused(404, "agent_not_found");
    let wider = json!({"workspace": workspace, "agent": "echo", "permissions": {"mode": "allow"}});
    daemon.post(sessions, wider).await.refused(403, "wider_permissions");
    let long = json!({"workspace": workspace, "agent": "echo", "title": "x".repeat(300)});
    assert_eq!(daemon.post(sessions, long).await.refused(400, "invalid_request")["details"]["field"], "title");

    let missing = "/v1/sessions/01a1e272-8a8e-762f-a984-29c55e0e6330";
    daemon.get(missing).await.refused(404, "session_not_found");
    daemon.get("/v1/sessions/nonsense").await.refused(404, "session_not_found");
    daemon.post(&format!("{missing}/prompt"), json!({"text": "x"})).await.refused(404, "session_not_found");
    daemon.get(&format!("{missing}/events")).await.refused(404, "session_not_found");
    daemon.get("/v1/nowhere").await.refused(404, "route_not_found");
    let method = daemon.delete("/v1/health").await;
    assert_eq!(method.header("allow"), Some("GET,HEAD"));
    method.refused(405, "method_not_allowed");
    daemon.get("/v1/sessions?limit=0").await.refused(400, "invalid_request");
    daemon.get("/v1/sessions?limit=1001").await.refused(400, "invalid_request");
    let query = daemon.get("/v1/sessions?statsu=active").await;
    assert_eq!(query.refused(400, "invalid_request")["details"]["field"], "statsu");
    daemon.get("/v1/sessions?status=active,asleep").await.refused(400, "invalid_request");

    let listed = daemon.get("/v1/sessions?includeArchived=true").await.expect_status(200);
    assert_eq!(listed, json!({"sessions": [], "total": 0, "limit": 20, "offset": 0}), "nothing was made");
}

#[tokio::test]
async fn a_wrong_type_is_named_in_the_words_of_the_interface() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let workspace = daemon.workspace().display().to_string();
    let sessions = "/v1/sessions";
    for (body, told) in [
        (json!({"workspace": 7}), "must be a string, not `7`"),
        (json!({"workspace": workspace, "tags": "x"}), "must be a list, not \"x\""),
        (
            json!({"workspace": workspace, "limits": {"turnCap": "x"}}),
            "must be a whole number from 0 to 4294967295, not",
        ),
        (
            json!({"workspace": workspace, "limits": {"turnCap": -1}}),
            "must be a whole number from 0 to 4294967295, not",
        ),
        (json!({"workspace": workspace, "limits": 7}), "must be an object"),
        (json!({"workspace": workspace, "start": {"lazy": 1}}), "must be "),
        (json!({"workspace": workspace, "start": 7}), "is not a value that is allowed here"),
        (json!({"workspace": workspace, "permissions": 7}), "must be an object"),
    ] {
        let refused = daemon.post(sessions, body.clone()).await.refused(400, "invalid_request");
        let said = format!("{} {}", refused["message"], refused["hint"]);
        assert!(refused["message"].as_str().unwrap().contains(told), "{body}: {refused}");
        for word in ["u32", "struct", "variant", "enum", "sequence", "invalid type", "integer `"] {
            assert!(!said.contains(word), "{word} in {said}");
        }
    }
}

#[tokio::test]
async fn bad_prompts_are_refused_before_anything_happens() {
    let daemon = Daemon::builder()
        .config("[control]\nbody_max = \"64KiB\"\n[limits]\nprompt_max = \"1KiB\"")
        .agent("echo", echo())
        .start()
        .await;
    let session = daemon.create_session("echo").await;
    let path = format!("/v1/sessions/{session}/prompt");
    for body in [
        json!({}),
        json!({"text": " \n"}),
        json!({"text": "a", "content": []}),
        json!({"content": []}),
        json!({"content": [{"type": "text"}]}),
        json!({"content": [{"type": "image", "data": ""}]}),
        json!({"text": "x".repeat(2000)}),
        json!({"txt": "a"}),
    ] {
        daemon.post(&path, body).await.refused(400, "invalid_request");
    }
    daemon.post(&path, json!({"text": "x".repeat(100_000)})).await.refused(413, "body_too_large");
    let hollow =
        |count: usize| json!({"content": [{"type": "text", "text": "x", "_meta": {"a": vec![json!([]); count]}}]});
    let weighed = daemon.post(&path, hollow(1000)).await.refused(400, "invalid_request");
    assert_eq!(weighed["details"]["field"], "content", "what is empty weighs something too");
    let counted = daemon.post(&path, hollow(20_000)).await.refused(400, "invalid_request");
    assert!(counted["message"].as_str().unwrap().contains("brackets and commas"), "{counted}");
    assert_eq!(daemon.session(&session).await["turns"], 0);
    let blocks = json!({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]});
    let accepted = daemon.post(&path, blocks).await.expect_status(202);
    daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    let messages = daemon.messages(&session).await;
    assert_eq!(messages[1]["content"]["text"], "one\ntwo");
}

#[tokio::test]
async fn sessions_are_listed_filtered_paged_and_changed() {
    let daemon = Daemon::builder().config("[limits]\nprocesses = 1").agent("echo", echo()).start().await;
    let workspace = daemon.workspace().display().to_string();
    let mut ids = Vec::new();
    for number in 0..3 {
        let body = json!({"workspace": workspace, "agent": "echo", "title": format!("s{number}"),
            "tags": [format!("tag{}", number % 2)], "start": "lazy"});
        ids.push(daemon.post("/v1/sessions", body).await.expect_status(201)["id"].clone());
    }
    let names = |list: &Value| -> Vec<Value> {
        list["sessions"].as_array().unwrap().iter().map(|session| session["title"].clone()).collect()
    };
    let all = daemon.get("/v1/sessions").await.expect_status(200);
    assert_eq!(names(&all), ["s2", "s1", "s0"], "newest first");
    let page = daemon.get("/v1/sessions?limit=1&offset=1").await.expect_status(200);
    assert_eq!((names(&page), &page["total"]), (vec![json!("s1")], &json!(3)));
    let tagged = daemon.get("/v1/sessions?tag=tag0").await.expect_status(200);
    assert_eq!(names(&tagged), ["s2", "s0"]);
    for name in ["s1", &ids[1].as_str().unwrap()[24..]] {
        let named = daemon.get(&format!("/v1/sessions?name={name}")).await.expect_status(200);
        assert_eq!((names(&named), &named["total"]), (vec![json!("s1")], &json!(1)), "{name}");
    }
    assert_eq!(daemon.get("/v1/sessions?agent=demo").await.expect_status(200)["total"], 0);
    let workspace_id = all["sessions"][0]["workspaceId"].as_str().unwrap();
    let here = daemon.get(&format!("/v1/sessions?workspaceId={workspace_id}")).await.expect_status(200);
    assert_eq!(here["total"], 3);

    let path = format!("/v1/sessions/{}", ids[0].as_str().unwrap());
    let changed = daemon.patch(&path, json!({"title": "new", "tags": ["a", "b"]})).await.expect_status(200);
    assert_eq!((&changed["title"], &changed["tags"]), (&json!("new"), &json!(["a", "b"])));
    daemon.patch(&path, json!({"status": "archived"})).await.refused(400, "invalid_request");
    let events = daemon.events_so_far(ids[0].as_str().unwrap(), None).await;
    let told = events.last().unwrap().payload();
    assert_eq!(told, &json!({"title": "new", "tags": ["a", "b"], "by": told["by"]}));
    let in_use = daemon.delete(&format!("/v1/workspaces/{workspace_id}")).await;
    assert_eq!(in_use.refused(409, "workspace_in_use")["details"]["sessions"], 3);
}

#[tokio::test]
async fn workspaces_are_real_paths_inside_the_roots() {
    let daemon = Daemon::start().await;
    let root = daemon.root();
    std::fs::create_dir(root.join("real")).unwrap();
    std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    let register = async |path: &str| daemon.post("/v1/workspaces", json!({"path": root.join(path)})).await;
    let real = register("real").await.expect_status(201);
    assert_eq!(register("link").await.expect_status(201)["id"], real["id"], "one directory, one workspace");
    assert_eq!(register("real/../real").await.expect_status(201)["id"], real["id"]);
    register("out").await.refused(403, "outside_roots");
    register("real/../../..").await.refused(403, "outside_roots");
    register("file").await.refused(400, "invalid_request");
    let sibling = format!("{}-sibling", root.display());
    daemon.post("/v1/workspaces", json!({"path": sibling})).await.refused(400, "workspace_missing");
    assert_eq!(daemon.get("/v1/workspaces").await.expect_status(200)["total"], 1);
    assert!(daemon.log().contains("security=true"), "an attempt is logged as a security event");
    let path = format!("/v1/workspaces/{}", real["id"].as_str().unwrap());
    assert_eq!(daemon.get(&path).await.expect_status(200), real);
    daemon.delete(&path).await.expect_status(200);
    daemon.get(&path).await.refused(404, "workspace_not_found");
}

#[tokio::test]
async fn agents_come_from_the_configuration_and_show_no_values() {
    let daemon = Daemon::builder()
        .agent_with("echo", echo(), "env = { KEY = \"very-secret-value\" }\ndescription = \"repeats\"")
        .start()
        .await;
    let listed = daemon.get("/v1/agents").await;
    assert!(!listed.text.contains("very-secret-value"));
    let listed = listed.expect_status(200);
    let slugs: Vec<&str> =
        listed["agents"].as_array().unwrap().iter().map(|agent| agent["slug"].as_str().unwrap()).collect();
    assert_eq!(slugs, ["claude", "codex", "demo", "echo", "gemini", "opencode", "qwen"]);
    let echo = daemon.get("/v1/agents/echo").await.expect_status(200);
    assert_eq!((&echo["env"], &echo["installed"]), (&json!(["KEY"]), &json!(true)));
    daemon.get("/v1/agents/nobody").await.refused(404, "agent_not_found");
    let database = std::fs::read(daemon.state_dir().join("acpd.db-wal")).unwrap();
    assert!(!database.windows(17).any(|window| window == b"very-secret-value"), "no row has it either");
}

#[tokio::test]
async fn an_agent_that_is_not_installed_is_told_with_what_to_do() {
    let daemon = Daemon::builder().env("PATH", "/nonexistent").start().await;
    let workspace = daemon.workspace().display().to_string();
    let body = daemon.post("/v1/sessions", json!({"workspace": workspace})).await.refused(422, "agent_not_installed");
    let hint = body["hint"].as_str().unwrap();
    assert!(hint.contains("npm install -g @google/gemini-cli") && hint.contains("--agent demo"), "{hint}");
}

#[tokio::test]
async fn health_and_info_tell_how_it_is() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let store = json!({"writable": true, "shortOfSpace": false, "check": "clean"});
    let well = json!({"status": "ok", "live": true, "ready": true, "problems": [], "store": store});
    assert_eq!(daemon.get("/v1/health").await.expect_status(200), well);
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "x").await;
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["store"], store);
    assert_eq!(info["sessions"], json!({"active": 1, "archived": 0, "error": 0, "suspended": 0}));
    assert_eq!(info["processes"], json!({"running": 1, "max": 5}));
    assert_eq!(info["pid"], daemon.pid());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let machine: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    let limit = info["limits"]["memoryBytes"].as_u64().expect("agents have a limit of memory by default") >> 10;
    assert!((machine * 74 / 100..=machine * 75 / 100).contains(&limit), "{limit} of {machine} KiB");
}

#[tokio::test]
async fn the_rate_of_prompts_is_bounded() {
    let daemon = Daemon::builder().config("[control]\nprompts_per_minute = 1").agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt(&session, "one").await;
    let second = daemon.post(&format!("/v1/sessions/{session}/prompt"), json!({"text": "two"})).await;
    let wait: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    second.refused(429, "rate_limited");
}

#[tokio::test]
async fn everything_on_disk_is_private() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "x").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut directories = vec![daemon.state_dir().to_owned(), daemon.socket().parent().unwrap().to_owned()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files >= 5, "database, write-ahead log, log, locks, socket");
}

#[tokio::test]
async fn an_agent_does_not_inherit_the_daemons_umask() {
    let builder = Daemon::builder();
    let path = builder.workspace().join("made-by-agent");
    let script = json!([{"handshake": {}}, {"prompt": [{"textFromWrite": {"path": path, "text": "x"}}]}]);
    let daemon = builder.agent("writer", script).start().await;
    let session = daemon.create_session("writer").await;
    daemon.prompt_and_wait(&session, "go").await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let own = tempfile::tempdir().unwrap();
    std::fs::write(own.path().join("x"), "").unwrap();
    let expected = std::fs::metadata(own.path().join("x")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, expected, "the one that the daemon was started with");
}

#[tokio::test]
async fn a_configuration_with_mistakes_is_refused_with_all_of_them() {
    let refused = Daemon::builder()
        .config("[limits]\nprocesses = 0\n[sesions]\nx = 1\n[sessions]\ncost_limit = 1e-12")
        .fail_to_start()
        .await;
    assert_eq!(refused.code, 1);
    for text in ["limits.processes", "sesions", "sessions.cost_limit", "hint:"] {
        assert!(refused.stderr.contains(text), "{text} in {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_directory_that_others_can_enter_is_refused() {
    let builder = Daemon::builder();
    std::fs::create_dir_all(builder.state_dir()).unwrap();
    std::fs::set_permissions(builder.state_dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = builder.fail_to_start().await;
    assert_eq!(refused.code, 8);
    assert!(refused.stderr.contains("chmod 700"), "{}", refused.stderr);
}

const SHELL: &str = "shell";
const ACPD: &str = env!("CARGO_BIN_EXE_acpd");

/// A daemon with an agent that runs each prompt as a shell command.
fn with_shell(config: &str) -> DaemonBuilder {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}]);
    Daemon::builder().config(config).agent(SHELL, script)
}

async fn session_of_scope(daemon: &Daemon, scope: &str) -> String {
    let body = json!({"workspace": daemon.workspace(), "agent": SHELL, "start": "lazy", "context": {"fsScope": scope}});
    daemon.post("/v1/sessions", body).await.expect_status(201)["id"].as_str().unwrap().to_owned()
}

/// What the agent's shell prints for this command.
async fn run(daemon: &Daemon, session: &str, command: &str) -> String {
    let turn = daemon.prompt_and_wait(session, command).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let messages = daemon.messages(session).await;
    let said = messages.iter().rev().find(|message| message["role"] == "agent").expect("the agent answers");
    said["content"]["text"].as_str().unwrap().to_owned()
}

fn list(socket: &Path) -> String {
    list_with(Path::new(ACPD), socket)
}

fn list_with(acpd: &Path, socket: &Path) -> String {
    format!("{} --json --socket {} ls", acpd.display(), socket.display())
}

#[tokio::test]
async fn an_agent_of_another_daemon_of_the_same_user_is_refused() {
    for user in users() {
        let other = with_shell("[sandbox]\nallow_full = true").user_of(user).start().await;
        let daemon = Daemon::builder().user_of(user).start().await;
        let own_copy = other.root().join("bin/acpd");
        let acpd = if user.is_some() { own_copy.as_path() } else { Path::new(ACPD) };
        let ask = list_with(acpd, daemon.socket());
        for scope in ["sandboxed", "full"] {
            let session = session_of_scope(&other, scope).await;
            let said = run(&other, &session, &ask).await;
            assert!(said.contains("does not serve agents") && !said.contains("exit 0"), "{scope}: {said}");
            // An orphan in a session of its own, with an empty environment.
            let detached = format!(
                "(setsid env -i HOME=/ sh -c '{ask} > said 2>&1; mv said done' &); \
                 while ! [ -e done ]; do sleep 0.01; done; cat done; rm done"
            );
            let said = run(&other, &session, &detached).await;
            assert!(said.contains("does not serve agents"), "{scope}: {said}");
        }
        let info = daemon.get("/v1/info").await.expect_status(200);
        assert!(info["securityEvents"]["agent_peer"].as_i64().unwrap() >= 4, "{info}");
    }
}

#[tokio::test]
async fn a_daemon_below_an_agent_serves_that_agent_and_not_the_agent_of_another_session() {
    let daemon = with_shell("").start().await;
    let (own, other) = (session_of_scope(&daemon, "sandboxed").await, session_of_scope(&daemon, "sandboxed").await);
    let start =
        format!("AGENT_WORKSPACE_ROOT=$PWD {ACPD} --state-dir $PWD/inner run --agent demo hello 2>&1 >/dev/null");
    assert!(run(&daemon, &own, &start).await.ends_with("exit 0"));
    let socket = run(&daemon, &own, &format!("{ACPD} --state-dir $PWD/inner socket")).await;
    let ask = list(Path::new(socket.lines().next().unwrap()));
    let said = run(&daemon, &own, &ask).await;
    assert!(said.ends_with("exit 0") && said.contains("\"total\":1"), "{said}");
    let said = run(&daemon, &other, &ask).await;
    assert!(said.contains("does not serve agents") && !said.contains("exit 0"), "{said}");
}

#[tokio::test]
async fn a_notification_command_of_another_daemon_is_served() {
    let daemon = Daemon::start().await;
    let builder = Daemon::builder();
    let said = builder.root().join("said");
    let script = format!("{} > {}", list(daemon.socket()), said.display());
    let config =
        format!("[notifications.ask]\non = [\"turn.completed\"]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]");
    let other = builder.config(&config).agent("echo", echo()).start().await;
    let session = other.create_session("echo").await;
    other.prompt_and_wait(&session, "hello").await;
    within("the answer to the command", async {
        while !std::fs::read_to_string(&said).is_ok_and(|text| text.contains("\"total\":0")) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// As the first process of a container the daemon inherits every orphan, also one whose environment was cleared.
#[tokio::test]
async fn the_first_process_of_a_container_serves_no_process_that_it_has_inherited() {
    if users().len() == 1 {
        return harness::say("SKIPPED: only root can make a PID namespace");
    }
    let mut daemon = with_shell("[sandbox]\nallow_full = true").first_in_namespace().start().await;
    let session = session_of_scope(&daemon, "full").await;
    // The shell runs below the agent, and that below the shim.
    let parent = |pid: &str| format!("$(sed -n 's/^PPid:\\t//p' /proc/{pid}/status)");
    let ask = list(daemon.socket());
    std::fs::write(
        daemon.workspace().join("orphan"),
        format!("while [ {} != 1 ]; do :; done\n{ask} > said 2>&1\nmv said done\n", parent("$$")),
    )
    .unwrap();
    let kill = format!("(setsid env -i PATH=$PATH HOME=/ sh orphan &); kill -KILL {}; sleep 60", parent("$PPID"));
    daemon.prompt(&session, &kill).await;
    let done = daemon.workspace().join("done");
    within("the orphan's answer", async {
        while !done.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let said = std::fs::read_to_string(&done).unwrap();
    assert!(said.contains("does not serve agents"), "{said}");
    // A client outside has no process id in the namespace; it is no agent of this daemon.
    daemon.get("/v1/health").await.expect_status(200);
    let unshare = daemon.pid();
    let init = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    harness::signal(init.trim().parse().unwrap(), Signal::SIGTERM);
    assert!(daemon.ended().await.success());
}

#[tokio::test]
async fn the_daemon_writes_no_core_dump_and_shows_its_memory_to_nobody() {
    let any = rustix::process::Rlimit { current: None, maximum: None };
    if users().len() == 1 || rustix::process::setrlimit(rustix::process::Resource::Core, any).is_err() {
        return harness::say("SKIPPED: only root can be another user and raise the limit of core dumps");
    }
    let script = json!([{"handshake": {}}, {"prompt": [{"gate": "here"}]}]);
    let mut daemon = Daemon::builder().user_of(Some(ORDINARY)).agent("gated", script).start().await;
    let session = daemon.create_session("gated").await;
    daemon.prompt(&session, "hello").await;
    let passage = daemon.gate("gated").reached("here").await;
    // The kernel gives the files of a process that shows nothing to root.
    let owner = |pid: u32| std::fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
    let shim = parent_of(passage.pid).unwrap();
    assert_eq!([owner(daemon.pid()), owner(shim), owner(passage.pid)], [0, ORDINARY.uid, ORDINARY.uid]);
    for pid in [daemon.pid(), shim, passage.pid] {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["1", "unlimited", "bytes"]);
    }
    daemon.signal(Signal::SIGABRT);
    let status = daemon.ended().await;
    assert_eq!((status.signal(), status.core_dumped()), (Some(Signal::SIGABRT as i32), false));
}
