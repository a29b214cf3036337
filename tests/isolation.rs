//! What an isolated agent sees and changes: a shell that it starts tries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod harness;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use harness::{
    ANY_COMMAND, Daemon, DaemonBuilder, SHELL, has_bubblewrap, output_of_terminal, run, session_of_scope,
    shell_in_terminal, users, with_shell, within,
};
use serde_json::json;

const REQUIRED: &str = "[sandbox]\nmode = \"required\"\n";

fn isolated() -> DaemonBuilder {
    with_shell(DaemonBuilder::isolated(), "")
}

fn make(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn isolation_hides_what_landlock_cannot() {
    if !has_bubblewrap() {
        return;
    }
    for user in users() {
        let builder = DaemonBuilder::isolated();
        let home = builder.home().to_owned();
        for name in [".ssh/id", ".netrc", ".mozilla/firefox/logins.json", "seen"] {
            make(&home.join(name), "secret");
        }
        let docker = home.join("docker/docker.sock");
        make(&docker, "");
        let hide = json!(["~/.ssh", "~/.netrc", "~/.mozilla", "~/.none", docker.parent().unwrap()]);
        let daemon = with_shell(builder, &format!("{REQUIRED}hide = {hide}")).user_of(user).start().await;
        let session = daemon.create_lazy_session(SHELL).await;
        let state = daemon.state_dir().display().to_string();
        for (command, expected) in [
            ("ls -A $HOME/.ssh $HOME/docker | grep -v :; cat $HOME/seen", "\nsecretexit 0"),
            ("cat $HOME/.netrc 2>&1 | grep -c secret", "0\nexit 1"),
            ("test -e $HOME/.mozilla/firefox || echo gone", "gone\nexit 0"),
            (&format!("ls -A {state}"), "run\nexit 0"),
            (&format!("ls -A {}", daemon.socket().parent().unwrap().display()), "exit 0"),
            ("ls -A /tmp /run/user /run/dbus /run/docker.sock 2>/dev/null | grep -v :", "exit 1"),
            ("ls /proc | grep -c '^[0-9]*$' | grep -qx '[1-9]'", "exit 0"),
            ("ls /dev/pts", "ptmx\nexit 0"),
            ("grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000", "exit 1"),
            ("for i in $PWD $TMPDIR $OWN_HOME $HOME /tmp; do echo x > $i/made || exit 1; done", "exit 0"),
        ] {
            assert_eq!(run(&daemon, &session, command).await, expected, "{command}");
        }
        assert!(daemon.workspace().join("made").exists() && !daemon.home().join("made").exists());
        let said = run(&daemon, &session, &format!("echo x > {}/made", daemon.root().display())).await;
        assert!(said.contains("denied") || said.contains("Read-only"), "{said}");
        let shown = daemon.session(&session).await;
        assert_eq!(shown["sandbox"], "isolated", "{shown}");
        assert_eq!(shown["sandboxDetails"]["missing"], json!([]), "{shown}");
    }
}

#[tokio::test]
async fn a_profile_names_what_its_agent_needs_of_what_is_hidden() {
    if !has_bubblewrap() {
        return;
    }
    let builder = DaemonBuilder::isolated();
    make(&builder.home().join(".ssh/config"), "the user's");
    let keys = format!("sandbox_show = [\"~/.ssh\", {}]", json!(builder.state_dir()));
    let daemon = builder.config(REQUIRED).agent_with(SHELL, harness::shell(), &keys).start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    assert_eq!(run(&daemon, &session, "cat $HOME/.ssh/config").await, "the user'sexit 0");
    let said = run(&daemon, &session, "echo x > $HOME/.ssh/config").await;
    assert!(said.contains("Read-only"), "{said}");
    // acpd's own files are never shown.
    let said = run(&daemon, &session, &format!("ls {}", daemon.state_dir().display())).await;
    assert_eq!(said, "run\nexit 0");
}

#[tokio::test]
async fn an_isolated_agent_reads_the_home_and_changes_nothing_of_it() {
    if !has_bubblewrap() {
        return;
    }
    for user in users() {
        let builder = isolated().user_of(user);
        make(&builder.home().join(".config/tool/settings"), "the user's");
        let _service = UnixListener::bind(builder.home().join("service.sock")).unwrap();
        let mut daemon = builder.start().await;
        let session = daemon.create_lazy_session(SHELL).await;
        let change = "cd $HOME && cat .config/tool/settings && echo changed > .config/tool/settings && mkdir .new && \
                      mv .new .newer && rm -r .newer && echo x > made && cat .config/tool/settings";
        assert_eq!(run(&daemon, &session, change).await, "the user'schanged\nexit 0");
        let settings = daemon.home().join(".config/tool/settings");
        assert_eq!(std::fs::read_to_string(&settings).unwrap(), "the user's");
        assert!(!daemon.home().join("made").exists());
        if harness::has("python3") {
            let connect = "python3 -c \"import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ['HOME'] + \
                           '/service.sock')\" 2>&1 | tail -1";
            let said = run(&daemon, &session, connect).await;
            assert!(said.contains("ConnectionRefusedError"), "{said}");
        }
        // The next process of the session finds what this one has written, and another session does not.
        daemon.restart().await;
        daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        assert!(run(&daemon, &session, "cat $HOME/.config/tool/settings").await.contains("changed\n"));
        let other = daemon.create_lazy_session(SHELL).await;
        assert_eq!(run(&daemon, &other, "cat $HOME/.config/tool/settings").await, "the user'sexit 0");
        let own = daemon.state_dir().join("run").join(&session);
        assert!(own.join("layer/upper/made").exists());
        daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
        within("the end of the session's layer", async {
            while own.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The kernel cannot copy a file into the layer whose group does not exist in the agent's user namespace.
#[tokio::test]
async fn files_of_another_group_in_the_home_can_be_changed() {
    if !has_bubblewrap() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return harness::skip("only root can give a file to another group");
    }
    let builder = isolated();
    make(&builder.home().join(".tool/deep/file"), "");
    make(&builder.home().join(".tool/file"), "the user's ");
    for name in [".tool/file", ".tool/deep"] {
        chown(builder.home().join(name), None, Some(4321)).unwrap();
    }
    std::fs::set_permissions(builder.home().join(".tool"), PermissionsExt::from_mode(0o750)).unwrap();
    let daemon = builder.start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let change = "cd $HOME/.tool && echo changed >> file && cat file && echo x > deep/new && ls deep && stat -c %a .";
    assert_eq!(run(&daemon, &session, change).await, "the user's changed\nfile\nnew\n750\nexit 0");
    assert_eq!(std::fs::read_to_string(daemon.home().join(".tool/file")).unwrap(), "the user's ");
    assert_eq!(daemon.home().join(".tool/file").metadata().unwrap().gid(), 4321);
}

#[tokio::test]
async fn a_home_that_takes_no_overlay_is_read_only() {
    if !has_bubblewrap() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return harness::skip("only root can mount a file system inside the home");
    }
    let builder = isolated();
    let inside = builder.home().join("mounted");
    std::fs::create_dir(&inside).unwrap();
    let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inside).status().unwrap();
    assert!(mount.success());
    let mut daemon = builder.start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let write = format!("echo x > {}/made", daemon.home().display());
    assert!(run(&daemon, &session, &write).await.contains("Read-only file system"));
    assert_eq!(run(&daemon, &session, "echo x > $HOME/made").await, "exit 0", "it has a private home instead");
    let shown = daemon.session(&session).await;
    assert_eq!(shown["sandbox"], "isolated", "{shown}");
    let missing = shown["sandboxDetails"]["missing"][0].as_str().unwrap();
    assert!(missing.starts_with("the home is read-only for the agent"), "{missing}");
    daemon.terminate().await;
    assert!(std::process::Command::new("umount").arg(&inside).status().unwrap().success());
}

#[tokio::test]
async fn an_isolated_agent_plants_no_hook_and_no_setting_of_git() {
    if !has_bubblewrap() || !harness::has("git") {
        return;
    }
    let builder = isolated();
    let work = builder.workspace().to_owned();
    let git = |arguments: &[&str]| {
        let done = std::process::Command::new("git").arg("-C").arg(&work).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "--quiet", "--template="]);
    git(&["config", "user.name", "A Person"]);
    git(&["config", "user.email", "person@example.com"]);
    std::fs::create_dir(work.join("sub")).unwrap();
    let daemon = builder.start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let commit =
        "echo x > file && git add file && git commit -qm 'a change' && git checkout -qb topic && git log --format=%s";
    assert_eq!(run(&daemon, &session, commit).await, "a change\nexit 0");
    for planted in [
        "echo x > .git/hooks/pre-commit",
        "git config core.fsmonitor ./evil",
        "rm -r .git/hooks",
        "mv .git .git2",
        "mv .git/hooks .git/hooks2",
    ] {
        let said = run(&daemon, &session, &format!("{planted} && echo planted")).await;
        assert!(!said.contains("planted"), "{planted}: {said}");
    }
    // In a part of the repository nothing is committed, rather than in the session's layer only.
    let body = json!({"workspace": work.join("sub"), "agent": SHELL, "start": "lazy"});
    let part = daemon.post("/v1/sessions", body).await.expect_status(201);
    let said = run(&daemon, part["id"].as_str().unwrap(), "echo x > file && git log --format=%s && git add file").await;
    assert!(said.starts_with("a change\n") && said.contains("Read-only file system"), "{said}");
}

/// An agent that keeps its next process from being isolated must not get one that is confined less.
#[tokio::test]
async fn an_agent_cannot_end_its_isolation() {
    if !has_bubblewrap() || users().len() == 1 {
        return;
    }
    for user in users().into_iter().flatten() {
        let builder = isolated().user(user.uid, user.gid);
        make(&builder.workspace().join(".git/config"), "");
        let mut daemon = builder.start().await;
        let session = daemon.create_lazy_session(SHELL).await;
        assert_eq!(run(&daemon, &session, "chmod 0 .git").await, "exit 0");
        daemon.restart().await;
        daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        let turn = daemon.prompt_and_wait(&session, "true").await;
        let message = turn["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("cannot isolate the agent") && message.contains("Permission denied"), "{turn}");
        std::fs::set_permissions(daemon.workspace().join(".git"), PermissionsExt::from_mode(0o700)).unwrap();
        daemon.post(&format!("/v1/sessions/{session}/resume"), json!({})).await.expect_status(200);
        assert_eq!(run(&daemon, &session, "true").await, "exit 0");
        assert_eq!(daemon.session(&session).await["sandbox"], "isolated");
    }
}

#[tokio::test]
async fn without_all_of_it_an_agent_is_not_called_isolated() {
    let needed = "[sandbox]\nmode = \"required\"";
    if has_bubblewrap() {
        let daemon = isolated().without_landlock().start().await;
        let session = daemon.create_lazy_session(SHELL).await;
        let said = run(&daemon, &session, &format!("echo x > {}/made", daemon.root().display())).await;
        assert!(said.contains("Read-only"), "{said}");
        assert_eq!(run(&daemon, &session, "echo x > made").await, "exit 0");
        let shown = daemon.session(&session).await;
        assert_eq!(shown["sandbox"], "writes-only", "{shown}");
    }
    // bubblewrap is not where acpd searches for it, or Landlock is missing.
    let daemon = with_shell(DaemonBuilder::isolated(), needed).without_landlock().start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    let turn = daemon.prompt_and_wait(&session, "echo x > made").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    let message = turn["error"]["message"].as_str().unwrap();
    assert!(message.contains("cannot isolate the agent") && message.contains("sandbox.mode"), "{message}");
    assert!(!daemon.workspace().join("made").exists());
}

#[tokio::test]
async fn tools_work_at_both_levels_without_touching_the_home() {
    let isolated = if has_bubblewrap() { Some((isolated(), "$HOME")) } else { None };
    // Not isolated, they must be told where they may write.
    let confined = (with_shell(Daemon::builder(), ""), "$TMPDIR");
    // The toolchain itself: rustup would search for it in the home.
    let cargo = Path::new(env!("CARGO")).parent().unwrap().display();
    for (builder, place) in isolated.into_iter().chain([confined]) {
        let daemon = builder.start().await;
        let session = session_of_scope(&daemon, "sandboxed").await;
        let at = format!(
            "export PATH={cargo}:$PATH CARGO_HOME={place}/.cargo NPM_CONFIG_CACHE={place}/.npm \
             NPM_CONFIG_USERCONFIG={place}/.npmrc GIT_CONFIG_GLOBAL={place}/.gitconfig;"
        );
        for (program, command) in [
            ("node", format!("node -e \"require('fs').writeFileSync('{place}/made', process.version)\"")),
            (
                "python3",
                "python3 -m venv --without-pip venv && venv/bin/python -c 'import multiprocessing as m; m.Lock()'"
                    .into(),
            ),
            ("npm", "npm init -y > /dev/null && npm config set fund false && npm pkg get name > /dev/null".into()),
            (
                "cargo",
                "cargo init -q --vcs none --name made c && cd c && cargo -q run --offline && cargo -q test --offline \
                 > /dev/null"
                    .into(),
            ),
            (
                "git",
                "git init -q r && cd r && git config --global user.name X && git -c user.email=x@y commit -qm x \
                 --allow-empty"
                    .into(),
            ),
        ] {
            if harness::has(program) {
                let said = run(&daemon, &session, &format!("{at} {command}")).await;
                assert!(said.ends_with("exit 0"), "{program} {place}: {said}");
            }
        }
        let left: Vec<_> = daemon.home().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn an_agent_is_isolated_after_acpds_program_was_replaced() {
    if !has_bubblewrap() || users().len() == 1 {
        return;
    }
    for user in users().into_iter().flatten() {
        let daemon = isolated().user(user.uid, user.gid).start().await;
        std::fs::remove_file(daemon.root().join("bin/acpd")).unwrap();
        let session = daemon.create_lazy_session(SHELL).await;
        assert_eq!(run(&daemon, &session, "ls /proc/self/fd | wc -l").await, "4\nexit 0", "and inherits nothing");
        assert_eq!(daemon.session(&session).await["sandbox"], "isolated");
    }
}

#[tokio::test]
async fn an_isolated_terminal_starts_where_it_is_told_to() {
    if !has_bubblewrap() {
        return;
    }
    let builder = DaemonBuilder::isolated();
    let sub = builder.workspace().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let script = shell_in_terminal("/bin/pwd", &["-P"], &sub);
    let daemon: Daemon = builder.config(REQUIRED).agent_with(SHELL, script, ANY_COMMAND).start().await;
    assert_eq!(output_of_terminal(&daemon).await, format!("{}\n", sub.display()));
}

#[tokio::test]
async fn what_an_agent_changes_in_its_home_is_bounded_shown_and_discarded() {
    if !has_bubblewrap() {
        return;
    }
    let mut daemon = with_shell(DaemonBuilder::isolated(), "[sandbox]\nhome_max = \"1MiB\"").start().await;
    let session = daemon.create_lazy_session(SHELL).await;
    assert_eq!(run(&daemon, &session, "head -c 2M /dev/zero > $HOME/.cache && chmod 0 $HOME/.cache").await, "exit 0");
    assert_eq!(daemon.post("/v1/gc", json!({"homes": true})).await.expect_status(200)["homes"]["bytes"], 0, "it runs");
    daemon.restart().await;
    let path = format!("/v1/sessions/{session}/resume");
    daemon.post(&path, json!({})).await.expect_status(200);
    let turn = daemon.prompt_and_wait(&session, "true").await;
    let message = turn["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("sandbox.home_max (1 MiB)") && message.contains("acpd gc --homes"), "{turn}");
    within("the end of the process", async { while daemon.session(&session).await["processState"] != "stopped" {} })
        .await;
    let told = daemon.cli(&["gc"]).await.success();
    assert!(told.contains("isolated agents have changed 2 MiB"), "{told}");
    let told = daemon.cli(&["gc", "--homes"]).await.success();
    assert!(told.contains("discarded 2 MiB"), "{told}");
    daemon.post(&path, json!({})).await.expect_status(200);
    assert_eq!(run(&daemon, &session, "test -e $HOME/.cache").await, "exit 1");
}

/// The daemon opens files for an agent. It must not open what the agent does not see.
#[tokio::test]
async fn nothing_hidden_is_reached_through_the_daemon() {
    let builder = Daemon::builder();
    make(&builder.home().join(".ssh/id"), "secret");
    std::os::unix::fs::symlink("home/.ssh", builder.root().join("link")).unwrap();
    let ask = |method: &str, path: &Path| {
        let params = json!({"sessionId": "test-session", "path": path, "content": "planted"});
        [json!({"request": {"method": format!("fs/{method}"), "params": params}}), json!({"textFromAnswer": true})]
    };
    let paths = ["home/.ssh/id", "link/id", "link/new", "state/acpd.db", "state/new", "config.toml"];
    let steps: Vec<_> = paths.iter().map(|name| builder.root().join(name)).collect();
    let steps = steps.iter().flat_map(|path| [ask("read_text_file", path), ask("write_text_file", path)]).flatten();
    let script = json!([{"handshake": {}}, {"prompt": steps.collect::<Vec<_>>()}]);
    let daemon = builder.agent_with(SHELL, script, "permissions = \"allow\"").start().await;
    let body = json!({"workspace": daemon.root(), "agent": SHELL, "start": "lazy"});
    let session = daemon.post("/v1/sessions", body).await.expect_status(201);
    let said = run(&daemon, session["id"].as_str().unwrap(), "go").await;
    assert_eq!(said.matches("hidden from agents").count(), 2 * paths.len() - 2, "{said}");
    assert!(!said.contains("secret"), "{said}");
    assert!(!daemon.home().join(".ssh/new").exists() && !daemon.state_dir().join("new").exists());
    assert_eq!(std::fs::read_to_string(daemon.home().join(".ssh/id")).unwrap(), "secret");
}
