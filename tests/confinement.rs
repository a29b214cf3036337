//! What a confined agent can and cannot do: a shell that it starts tries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::{
    ANY_COMMAND, Daemon, DaemonBuilder, SHELL, output_of_terminal, run, session_of_scope, shell, shell_in_terminal,
    users, with_shell, within,
};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

fn builder(config: &str) -> DaemonBuilder {
    with_shell(Daemon::builder(), config)
}

#[track_caller]
fn assert_refused(said: &str) {
    assert!(said.contains("Permission denied") && !said.contains("exit 0"), "{said}");
}

async fn is_gone(path: &Path) {
    within("the end of a session's directory", async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_confined_shell_writes_to_its_workspace_and_its_own_directories_only() {
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    assert_eq!(daemon.session(&session).await["sandbox"], "none", "nothing has run yet");
    let root = daemon.root().display().to_string();
    std::fs::write(daemon.home().join("file"), "the user's").unwrap();

    for allowed in ["$PWD", "$TMPDIR", "$OWN_HOME", "$OWN_TMP"] {
        let command = format!("cd {allowed} && mkdir d && echo x > d/f && mv d/f g && ln -s g s && rm g s && rmdir d");
        assert_eq!(run(&daemon, &session, &command).await, "exit 0", "{allowed}");
    }
    assert_eq!(
        run(&daemon, &session, "echo x > /dev/null && : > /dev/shm/acpd-$$ && rm /dev/shm/acpd-$$").await,
        "exit 0"
    );
    assert_eq!(run(&daemon, &session, &format!("cat {root}/home/file")).await, "the user'sexit 0", "reading is free");
    for refused in [
        "echo x > ROOT/made",
        "echo x >> ROOT/home/file",
        ": > ROOT/home/file",
        "rm ROOT/home/file",
        "mkdir ROOT/home/made",
        "mv ROOT/home/file ROOT/workspace/file",
        "ln ROOT/home/file ROOT/workspace/file",
        "echo x >> ROOT/state/acpd.db",
        "rm ROOT/state/acpd.db",
        "mkdir ROOT/state/run/made",
        "ln -sf ROOT/home ROOT/workspace/link && echo x > ROOT/workspace/link/made",
        "echo x > /tmp/acpd-made",
    ] {
        let said = run(&daemon, &session, &refused.replace("ROOT", &root)).await;
        assert!(said.contains("Permission denied") || said.contains("Invalid cross-device link"), "{refused}: {said}");
    }
    assert_eq!(std::fs::read_to_string(daemon.home().join("file")).unwrap(), "the user's");

    let shown = daemon.session(&session).await;
    assert_eq!(shown["sandbox"], "writes-only", "{shown}");
    assert!(shown["sandboxDetails"]["landlockAbi"].as_i64().unwrap() >= 6, "{shown}");
    let ready = daemon.events_so_far(&session, None).await;
    let ready = ready.iter().find(|event| event.kind == "process.ready").unwrap();
    assert_eq!(ready.payload()["sandbox"], "writes-only");
    // Other sessions' directories are no more its own than anybody's.
    let other = daemon.create_lazy_session(SHELL).await;
    let theirs = run(&daemon, &other, "echo x > $OWN_TMP/theirs; echo $OWN_TMP").await;
    let theirs = theirs.lines().next().unwrap().to_owned();
    assert_refused(&run(&daemon, &session, &format!("echo x > {theirs}/theirs")).await);
}

#[tokio::test]
async fn a_confined_shell_cannot_signal_the_daemon_and_not_its_shim() {
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    for command in
        [format!("kill -KILL {}", daemon.pid()), r"kill -KILL $(sed -n 's/^PPid:\s*//p' /proc/$PPID/status)".to_owned()]
    {
        let said = run(&daemon, &session, &command).await;
        assert!(said.contains("ermitted"), "{said}");
    }
    assert_eq!(run(&daemon, &session, "sleep 60 & kill $!").await, "exit 0", "its own processes it may");
    daemon.get("/v1/health").await.expect_status(200);
}

#[tokio::test]
async fn agents_cannot_use_the_control_socket_wherever_they_hide() {
    let daemon = builder("[sandbox]\nallow_full = true").start().await;
    let acpd = env!("CARGO_BIN_EXE_acpd");
    for scope in ["sandboxed", "full"] {
        let session = session_of_scope(&daemon, scope).await;
        let ask = format!("{acpd} --socket {} ls", daemon.socket().display());
        let said = run(&daemon, &session, &ask).await;
        assert!(said.contains("does not serve agents") && !said.contains("exit 0"), "{said}");
        // Orphaned, in a session of its own, with nothing of the agent's in its environment.
        let detached = format!(
            "(setsid env -i HOME=/ sh -c '{ask} > said 2>&1; mv said done' &); while ! [ -e done ]; do sleep 0.01; done; \
             cat done; rm done"
        );
        let said = run(&daemon, &session, &detached).await;
        assert!(said.contains("does not serve agents"), "{said}");
    }
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert!(info["securityEvents"]["agent_peer"].as_i64().unwrap() >= 4, "{info}");
}

#[tokio::test]
async fn a_daemon_inside_anothers_agent_serves_whoever_is_not_its_own_agent() {
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let acpd = format!("{} --state-dir $PWD/inner", env!("CARGO_BIN_EXE_acpd"));
    // The first command starts the daemon, and that an agent: from then on peers are told apart.
    let command =
        format!("export AGENT_WORKSPACE_ROOT=$PWD; {acpd} run --agent demo hello 2>&1 >/dev/null && {acpd} ls --json");
    let said = run(&daemon, &session, &command).await;
    assert!(said.ends_with("exit 0") && said.contains("\"total\":1"), "{said}");
}

#[tokio::test]
async fn the_refusal_of_an_agent_is_an_answer_like_any_other() {
    let builder = Daemon::builder();
    let request = "GET /v1/sessions HTTP/1.1\r\nHost: acpd\r\n\r\n";
    let told = json!({"textFromSocket": {"path": builder.socket(), "send": request}});
    let daemon = builder.agent("caller", json!([{"handshake": {}}, {"prompt": [told]}])).start().await;
    let session = daemon.create_lazy_session("caller").await;
    assert_eq!(run(&daemon, &session, "call").await, "HTTP/1.1 403 Forbidden");
}

#[tokio::test]
async fn the_scope_full_is_no_confinement_and_must_be_allowed() {
    let daemon = builder("[sandbox]\nallow_full = true").start().await;
    let session = session_of_scope(&daemon, "full").await;
    let outside = daemon.root().join("made");
    assert_eq!(run(&daemon, &session, &format!("echo x > {}", outside.display())).await, "exit 0");
    assert!(outside.exists());
    assert_eq!(daemon.session(&session).await["sandbox"], "none");
    assert_eq!(run(&daemon, &session, "echo x > $OWN_TMP/x").await, "exit 0", "it has its own directories too");

    let daemon = builder("").agent_with("narrow", shell(), "fs_scope = \"sandboxed\"").start().await;
    for (agent, scope, granted) in
        [(SHELL, "full", "project"), ("narrow", "project", "sandboxed"), ("narrow", "full", "sandboxed")]
    {
        let body = json!({"workspace": daemon.workspace(), "agent": agent, "context": {"fsScope": scope}});
        let refused = daemon.post("/v1/sessions", body).await.expect_status(403);
        assert_eq!(refused["error"], "scope_not_allowed", "{refused}");
        assert_eq!(refused["details"]["granted"], granted, "{refused}");
    }
    assert_eq!(daemon.get("/v1/agents/narrow").await.expect_status(200)["fsScope"], "sandboxed");
}

#[tokio::test]
async fn a_scope_is_for_life_and_one_that_is_unknown_is_refused() {
    let daemon = builder("").start().await;
    let body = json!({"workspace": daemon.workspace(), "agent": SHELL, "context": {"fsScope": "wide"}});
    let refused = daemon.post("/v1/sessions", body).await.expect_status(400);
    assert_eq!(refused["details"]["field"], "context.fsScope", "{refused}");

    let session = session_of_scope(&daemon, "project").await;
    let path = format!("/v1/sessions/{session}");
    for body in [json!({"context": {"fsScope": "sandboxed"}}), json!({"context": {"fsScope": null}})] {
        let refused = daemon.patch(&path, body).await.expect_status(400);
        assert_eq!(refused["details"]["field"], "context.fsScope", "{refused}");
    }
    let prompt = json!({"text": "true", "context": {"fsScope": "sandboxed"}});
    daemon.post(&format!("{path}/prompt"), prompt).await.expect_status(400);
    daemon.patch(&path, json!({"context": null})).await.expect_status(200);
    assert_eq!(daemon.session(&session).await["context"]["fsScope"], "project");
}

#[tokio::test]
async fn the_scope_project_adds_directories_and_a_failure_without_it_is_explained() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "cargo build", "status": "failed",
            "content": [{"type": "content", "content": {"type": "text", "text": "HOME/.cargo/registry: Permission denied"}}]}},
        {"textFromShell": "{prompt}"}
    ]}]}]);
    let builder = Daemon::builder();
    let script = script.to_string().replace("HOME", builder.home().to_str().unwrap());
    let script = serde_json::from_str(&script).unwrap();
    let roots = json!([builder.root()]);
    let config = format!("[workspace]\nroots = {roots}\nextra = [\"~/.cargo/registry\", \"~/.missing\"]");
    std::fs::create_dir_all(builder.home().join(".cargo/registry")).unwrap();
    let daemon = builder.config(&config).agent(SHELL, script).start().await;
    let command = "echo x > $HOME/.cargo/registry/made";

    let session = session_of_scope(&daemon, "sandboxed").await;
    assert_refused(&run(&daemon, &session, command).await);
    run(&daemon, &session, command).await;
    let notices: Vec<Value> =
        daemon.messages(&session).await.into_iter().filter(|message| message["content"]["code"] == "sandbox").collect();
    assert_eq!(notices.len(), 1, "once a process: {notices:?}");
    assert!(notices[0]["content"]["text"].as_str().unwrap().contains("project"), "{notices:?}");

    let session = session_of_scope(&daemon, "project").await;
    assert_eq!(run(&daemon, &session, command).await, "exit 0");
    assert_refused(&run(&daemon, &session, "echo x > $HOME/made").await);
    assert_refused(&run(&daemon, &session, "mkdir $HOME/.cargo/bin").await);
}

/// An agent that wraps its commands in bubblewrap of its own can run none: Landlock lets no process mount.
#[tokio::test]
async fn an_agents_own_sandbox_that_cannot_start_is_told() {
    let text = "bwrap: setting up uid map: Permission denied";
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "ls", "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": text}}]}}]}]}]);
    for (config, told) in [("", 1), ("[sandbox]\nmode = \"off\"", 0)] {
        let daemon = Daemon::builder().config(config).agent("wraps", script.clone()).start().await;
        let session = daemon.create_session("wraps").await;
        for _ in 0..2 {
            daemon.prompt_and_wait(&session, "go").await;
        }
        let messages = daemon.messages(&session).await;
        let notices = messages.iter().filter(|message| message["content"]["code"] == "sandbox");
        let notices: Vec<&str> = notices.map(|notice| notice["content"]["text"].as_str().unwrap()).collect();
        assert_eq!(notices.len(), told, "once a process, if acpd's confinement can be the cause: {notices:?}");
        assert!(notices.iter().all(|notice| notice.contains("the agent's own sandbox cannot start")), "{notices:?}");
    }
}

/// An agent could replace what its user executes: acpd itself, in `~/.cargo/bin`.
#[tokio::test]
async fn the_scope_project_does_not_reach_programs() {
    for (extra, expected) in [("", "completed"), ("extra = [\"~/.cargo\"]", "failed")] {
        let builder = Daemon::builder();
        for name in [".cargo/bin", ".cargo/registry"] {
            std::fs::create_dir_all(builder.home().join(name)).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", builder.home().join(".cargo/bin").display());
        let config = format!("[workspace]\nroots = {}\n{extra}", json!([builder.root()]));
        let daemon = with_shell(builder.env("PATH", &path), &config).start().await;
        let session = session_of_scope(&daemon, "project").await;
        let turn = daemon.prompt_and_wait(&session, "echo x > $HOME/.cargo/registry/made").await;
        assert_eq!(turn["status"], expected, "{turn}");
        assert_eq!(daemon.home().join(".cargo/registry/made").exists(), extra.is_empty());
        if extra.is_empty() {
            assert_refused(&run(&daemon, &session, "echo x > $HOME/.cargo/bin/acpd").await);
        } else {
            let message = turn["error"]["message"].as_str().unwrap();
            assert!(message.contains("workspace.extra") && message.contains(".cargo/bin"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_policy_that_only_reads_makes_the_workspace_read_only() {
    let daemon = builder("").start().await;
    let body = json!({"workspace": daemon.workspace(), "agent": SHELL, "permissions": {"mode": "deny"}});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    let session = session["id"].as_str().unwrap();
    assert_refused(&run(&daemon, session, "echo x > made").await);
    assert_eq!(run(&daemon, session, "echo x > $TMPDIR/made").await, "exit 0");
}

#[tokio::test]
async fn node_programs_start_and_use_their_temporary_directory() {
    if !harness::has("node") {
        return;
    }
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let script = "node -e \"const fs = require('fs'), os = require('os'); fs.mkdtempSync(os.tmpdir() + '/x'); \
                  fs.writeFileSync('made', 'x'); try { fs.writeFileSync(os.homedir() + '/made', 'x') } \
                  catch (e) { console.log(e.code) }\"";
    assert_eq!(run(&daemon, &session, script).await, "EACCES\nexit 0");
}

#[tokio::test]
async fn without_landlock_a_session_says_so_or_does_not_start() {
    let daemon = builder("").without_landlock().start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    assert_eq!(run(&daemon, &session, &format!("echo x > {}/made", daemon.root().display())).await, "exit 0");
    let shown = daemon.session(&session).await;
    assert_eq!(shown["sandbox"], "none", "{shown}");
    assert!(shown["sandboxDetails"]["missing"][0].as_str().unwrap().contains("Landlock"), "{shown}");
}

#[tokio::test]
async fn a_workspace_that_holds_acpds_own_state_is_not_called_confined() {
    let daemon = builder("").start().await;
    let body = json!({"workspace": daemon.root(), "agent": SHELL, "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    let session = session["id"].as_str().unwrap();
    assert_eq!(run(&daemon, session, "true").await, "exit 0");
    assert_eq!(daemon.session(session).await["sandbox"], "partial");
}

/// An agent could write escape sequences to its user's terminal.
#[tokio::test]
async fn a_confined_shell_cannot_write_to_its_users_terminals() {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    unlockpt(&person).unwrap();
    let terminal = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    assert_refused(&run(&daemon, &session, &format!("echo x > {terminal}")).await);
}

#[tokio::test]
async fn what_cannot_be_executed_is_told_through_the_confinement() {
    let builder = Daemon::builder();
    let program = builder.root().join("garbage");
    std::fs::write(&program, "\u{1}not a program").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!("[agents.garbage]\ncommand = {}", json!(program));
    let daemon = builder.config(&config).start().await;
    let session = daemon.create_lazy_session("garbage").await;
    let turn = daemon.prompt_and_wait(&session, "hello").await;
    let message = turn["error"]["message"].as_str().unwrap();
    let expected = format!("cannot start the agent: cannot execute {}: Exec format error", program.display());
    assert!(message.starts_with(&expected), "{message}");
}

#[tokio::test]
async fn a_sessions_directories_are_private_and_go_with_it() {
    let mut daemon = builder("").start().await;
    let run_dir = daemon.state_dir().join("run");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = daemon.create_lazy_session(SHELL).await;
        run(&daemon, &session, "mkdir $TMPDIR/a && echo x > $TMPDIR/a/b").await;
        for directory in ["home", "tmp"] {
            assert_eq!(mode(&run_dir.join(&session).join(directory)), 0o700);
        }
        sessions.push(session);
    }
    daemon.post(&format!("/v1/sessions/{}/archive", sessions[0]), json!({})).await.expect_status(200);
    is_gone(&run_dir.join(&sessions[0])).await;
    daemon.delete(&format!("/v1/sessions/{}?purge=true", sessions[1])).await.expect_status(200);
    is_gone(&run_dir.join(&sessions[1])).await;
    // What a dead daemon did not get round to.
    daemon.kill().await;
    let left = "01890000-0000-7000-8000-000000000000";
    std::fs::create_dir_all(run_dir.join(left).join("tmp")).unwrap();
    daemon.restart().await;
    is_gone(&run_dir.join(left)).await;
    assert!(run_dir.join(&sessions[2]).join("tmp/a/b").exists(), "a session that goes on keeps its own");
}

#[tokio::test]
async fn a_confined_gemini_has_its_own_home_with_what_the_user_has() {
    let builder = Daemon::builder();
    std::fs::create_dir_all(builder.home().join(".gemini/extensions")).unwrap();
    std::fs::write(builder.home().join(".gemini/state.json"), "{}").unwrap();
    let daemon = builder.agent_with(SHELL, shell(), "adapter = \"gemini\"").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let said =
        run(&daemon, &session, "cd $GEMINI_CLI_HOME/.gemini && echo x >> state.json && ls && cat state.json").await;
    assert_eq!(said, "extensions\nsettings.json\nstate.json\n{}x\nexit 0");
    assert_eq!(std::fs::read_to_string(daemon.home().join(".gemini/state.json")).unwrap(), "{}");
}

#[tokio::test]
async fn nothing_is_written_through_a_link_that_a_confined_agent_leaves() {
    let builder = Daemon::builder();
    let (claude, gemini) = (builder.home().join(".claude"), builder.home().join(".gemini"));
    for (directory, text) in [(&claude, "of another agent"), (&gemini, "the user's")] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("state.json"), text).unwrap();
    }
    // What nobody can write to, or read, keeps no agent from starting.
    std::fs::write(gemini.join("locked.json"), "1").unwrap();
    std::fs::set_permissions(gemini.join("locked.json"), PermissionsExt::from_mode(0o444)).unwrap();
    // It remembers, so that it is told nothing but the prompt.
    let capabilities = json!({"sessionCapabilities": {"resume": {}}});
    let script = json!([{"handshake": {"capabilities": capabilities}}, {"repeat": [{"prompt": [{"textFromShell": "{prompt}"}]}]}]);
    let mut daemon = builder.agent_with(SHELL, script, "adapter = \"gemini\"").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let leave = "cd $GEMINI_CLI_HOME && echo 2 > .gemini/locked.json && rm -r .gemini && ln -s $HOME/.claude .gemini";
    assert_eq!(run(&daemon, &session, leave).await, "exit 0");
    // So that there is a reason to copy.
    std::fs::write(gemini.join("state.json"), "the user's newer").unwrap();
    daemon.restart().await;
    daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
    let said = run(&daemon, &session, "cd $GEMINI_CLI_HOME/.gemini && pwd -P && cat state.json").await;
    let own = daemon.state_dir().join("run").join(&session).join("home/.gemini");
    assert_eq!(said, format!("{}\nthe user's newerexit 0", own.display()));
    assert_eq!(std::fs::read_to_string(claude.join("state.json")).unwrap(), "of another agent");
    assert_eq!(std::fs::read_dir(&claude).unwrap().count(), 1);
}

#[tokio::test]
async fn in_a_confined_terminal_pipes_end_as_everywhere() {
    // Not by way of the scripted agent, which would give the signal back to what it starts.
    let builder = Daemon::builder();
    let script =
        shell_in_terminal("/bin/sh", &["-c", "yes | head -1; grep SigIgn /proc/self/status"], builder.workspace());
    let daemon = builder.agent_with(SHELL, script, ANY_COMMAND).start().await;
    let output = output_of_terminal(&daemon).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "y"), "nobody tells of a broken pipe: {output}");
    let ignored = lines[1].split_whitespace().nth(1).unwrap();
    let broken_pipe = 1 << (rustix::process::Signal::PIPE.as_raw() - 1);
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & broken_pipe, 0, "{output}");
}

#[tokio::test]
async fn a_confined_shell_sets_limits_for_itself_only() {
    if !harness::has("prlimit") {
        return;
    }
    let daemon = builder("").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    for limit in ["--fsize=0", "--nofile=3:3", "--cpu=1"] {
        let said = run(&daemon, &session, &format!("prlimit --pid {} {limit}", daemon.pid())).await;
        assert!(said.contains("ermitted") && !said.contains("exit 0"), "{said}");
    }
    assert!(
        run(&daemon, &session, "ulimit -Sn 64 && ulimit -Sn && prlimit --nofile=32 true").await.ends_with("exit 0")
    );
    assert_eq!(daemon.session(&session).await["sandbox"], "writes-only");
    // Somebody who may gives the daemon a limit: then writes fail, and it lives to say so.
    let own = daemon.pid().to_string();
    let limited = std::process::Command::new("prlimit").args(["--pid", &own, "--fsize=0:unlimited"]).status().unwrap();
    assert!(limited.success());
    daemon.post("/v1/sessions", json!({"workspace": daemon.workspace(), "agent": SHELL})).await;
    daemon.get("/v1/health").await;
}

#[tokio::test]
async fn nobody_works_in_what_is_acpds_own() {
    let daemon = builder("").start().await;
    std::os::unix::fs::symlink(daemon.state_dir(), daemon.root().join("link")).unwrap();
    for name in ["state", "state/logs", "state/run", "link", "workspace/../state/logs"] {
        std::fs::create_dir_all(daemon.root().join(name)).unwrap();
        let body = json!({"workspace": daemon.root().join(name), "agent": SHELL, "start": "lazy"});
        let refused = daemon.post("/v1/sessions", body).await.expect_status(403);
        assert_eq!(refused["error"], "workspace_reserved", "{name}: {refused}");
        let register = json!({"path": daemon.root().join(name)});
        let refused = daemon.post("/v1/workspaces", register).await.expect_status(403);
        assert_eq!(refused["error"], "workspace_reserved", "{name}: {refused}");
    }
}

#[tokio::test]
async fn directories_that_are_closed_to_their_owner_go_with_the_session() {
    for user in users() {
        let daemon = builder("").user_of(user).start().await;
        let session = daemon.create_lazy_session(SHELL).await;
        let closed = "mkdir -p $TMPDIR/a/b && echo x > $TMPDIR/a/b/c && chmod 500 $TMPDIR/a/b && chmod 0 $TMPDIR/a";
        assert_eq!(run(&daemon, &session, closed).await, "exit 0");
        daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
        is_gone(&daemon.state_dir().join("run").join(&session)).await;
    }
}

#[tokio::test]
async fn a_process_that_runs_when_the_policy_forbids_writes_is_followed_by_one_that_cannot() {
    let daemon = builder("").start().await;
    let session = daemon.create_session(SHELL).await;
    assert!(run(&daemon, &session, "echo x > here").await.contains("exit 0"));
    let mut events = daemon.events(&session, None).await;
    let change = json!({"permissions": {"mode": "deny"}});
    daemon.patch(&format!("/v1/sessions/{session}"), change).await.expect_status(200);
    let exited = events.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["reason"], "policy");
    // The transcript comes with the prompt, so the shell's last word is not the exit of this.
    let said = run(&daemon, &session, "echo y > here").await;
    assert!(said.contains("cannot create here: Permission denied"), "{said}");
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("here")).unwrap(), "x\n");
}

#[tokio::test]
async fn a_turn_that_runs_when_the_policy_forbids_writes_ends_before_its_process_goes() {
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"gate": "running"}]}]}]);
    let daemon = Daemon::builder().agent("busy", script).start().await;
    let session = daemon.create_session("busy").await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("busy").reached("running").await;
    let change = json!({"permissions": {"mode": "deny"}});
    daemon.patch(&format!("/v1/sessions/{session}"), change).await.expect_status(200);
    passage.open().await;
    let mut events = daemon.events(&session, accepted["after"].as_i64()).await;
    let events = events.until("process.exited").await;
    assert!(events.iter().any(|event| event.kind == "turn.completed"), "{events:?}");
    assert_eq!(events.last().unwrap().payload()["reason"], "policy");
}
