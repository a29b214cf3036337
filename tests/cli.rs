//! The command line as a person or a script meets it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use harness::{Daemon, Terminal, process_gone, within};
use serde_json::{Value, json};

/// It has a memory of its own, so that after a restart it gets the prompt alone and not acpd's transcript.
fn echo() -> Value {
    let handshake = json!({"capabilities": {"sessionCapabilities": {"resume": {}}}});
    json!([{"handshake": handshake}, {"repeat": [{"prompt": [{"text": "you said: "}, {"textFromPrompt": true}]}]}])
}

/// Ids, times and paths differ from run to run.
fn settle(text: &str, daemon: &Daemon) -> String {
    text.replace(&daemon.root().display().to_string(), "[root]")
}

#[tokio::test]
async fn run_prints_the_answer_alone_and_the_session_stays() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let output = daemon.cli(&["run", "--agent", "echo", "hello", "there"]).await;
    assert_eq!(output.clone().success(), "you said: hello there\n");
    let told = output.stderr.lines().next().and_then(|line| line.strip_prefix("acpd: session "));
    let listed = daemon.cli(&["ls", "--json"]).await.json();
    assert_eq!((&listed["total"], &listed["sessions"][0]["title"]), (&json!(1), &json!("hello there")));
    assert_eq!(told, listed["sessions"][0]["id"].as_str(), "a script learns which session it is");

    let again = daemon.cli(&["prompt", "-", "more"]).await.success();
    assert_eq!(again, "you said: more\n");
    let table = daemon.cli(&["ls"]).await.success();
    insta::with_settings!({filters => vec![(r"[0-9a-f]{12}", "[id]"), (r" +\d+m?s", " [age]"), (r" +\d+ [KM]iB", " [size]")]}, {
        insta::assert_snapshot!(settle(&table, &daemon));
    });
}

#[tokio::test]
async fn what_is_piped_in_belongs_to_the_prompt() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let both = daemon.cli_with_input(&["run", "--agent", "echo", "review"], "the diff\n").await.success();
    assert_eq!(both, "you said: review\n\nthe diff\n");
    let alone = daemon.cli_with_input(&["run", "--agent", "echo"], "only this").await.success();
    assert_eq!(alone, "you said: only this\n");
    let nothing = daemon.cli(&["run", "--agent", "echo"]).await;
    assert_ne!(nothing.code, 0);
    assert_eq!(daemon.cli(&["ls", "--json"]).await.json()["total"], 2, "an empty prompt made nothing");
}

#[tokio::test]
async fn json_streams_are_one_event_a_line() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let output = daemon.cli(&["run", "--json", "--agent", "echo", "hello"]).await.success();
    let events: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    let replayed = daemon.cli(&["attach", "--json", "--no-follow", "-"]).await.success();
    let all: Vec<Value> = replayed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all[0]["type"], "session.created", "attach replays from the start");
    for event in &events {
        assert!(all.contains(event), "what run showed is in the log: {event}");
    }
}

#[tokio::test]
async fn exit_codes_tell_how_a_turn_ended() {
    let crashing = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"text": "half"}, {"exit": 7}]);
    let polite = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"text": "working"}, {"gate": "busy"},
        {"expect": "session/cancel"}, {"reply": {"stopReason": "cancelled"}}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("crashing", crashing).agent("polite", polite).start().await;
    let failed = daemon.cli(&["run", "--agent", "crashing", "go"]).await;
    assert_eq!((failed.code, failed.stdout.as_str()), (4, "half\n"));
    assert!(failed.stderr.contains("error: the agent exited with code 7"), "{}", failed.stderr);

    let cancelling = async {
        let passage = daemon.gate("polite").reached("busy").await;
        daemon.cli(&["cancel", "-"]).await.success();
        passage.open().await;
    };
    let (cancelled, ()) = tokio::join!(daemon.cli(&["run", "--agent", "polite", "go"]), cancelling);
    assert_eq!(cancelled.code, 5, "{}", cancelled.stderr);
}

/// A turn that was accepted is not left behind without a word because there is no place for whoever wants to see it.
#[tokio::test]
async fn a_run_that_finds_no_room_for_its_stream_waits_and_then_says_where_its_session_is() {
    let config = "[control]\nstreams_per_user = 1\n";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    let other = daemon.create_lazy_session("echo").await;
    let taken = daemon.events(&other, None).await;
    let refused = daemon.cli(&["run", "--agent", "echo", "hello"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (7, ""), "{}", refused.stderr);
    let id = daemon.cli(&["show", "--json", "-"]).await.json()["id"].as_str().unwrap().to_owned();
    let attach = format!("the session continues; follow it again with `acpd attach {}`", &id[id.len() - 12..]);
    for told in ["the daemon has too many streams now", &attach, "control.streams_per_user", "try again in 1 second\n"]
    {
        assert!(refused.stderr.contains(told), "{told:?} in {}", refused.stderr);
    }

    let giving_up = async {
        let sessions = async || daemon.get("/v1/sessions").await.expect_status(200)["total"].as_i64().unwrap();
        within("the next session is there", async { while sessions().await < 3 {} }).await;
        drop(taken);
    };
    let (served, ()) = tokio::join!(daemon.cli(&["run", "--agent", "echo", "hello"]), giving_up);
    assert_eq!(served.success(), "you said: hello\n");
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_come_again() {
    let config = "[control]\nprompts_per_minute = 1\n";
    let daemon = Daemon::builder().config(config).agent("echo", echo()).start().await;
    daemon.cli(&["run", "--agent", "echo", "hello"]).await.success();
    let refused = daemon.cli(&["prompt", "-", "more"]).await;
    assert_eq!(refused.code, 7);
    assert!(
        refused.stderr.contains("hint: try again in ") && refused.stderr.contains(" seconds\n"),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn errors_have_a_hint_and_a_code() {
    let daemon = Daemon::builder().env("PATH", "/nonexistent").agent("echo", echo()).start().await;
    let gemini = daemon.cli(&["run", "hello"]).await;
    assert_eq!((gemini.code, gemini.stdout.as_str()), (1, ""));
    insta::assert_snapshot!(gemini.stderr, @r#"
    error: cannot start the agent "gemini": the command "gemini" was not found on the daemon's PATH
    hint: install it with `npm install -g @google/gemini-cli` and sign in with `acpd agents login gemini`; to try acpd without a key, use --agent demo
    "#);
    let outside = daemon.cli(&["run", "--agent", "echo", "--workspace", "/", "hello"]).await;
    assert_eq!(outside.code, 1);
    assert!(outside.stderr.contains("outside the allowed roots") && outside.stderr.contains("hint: allowed roots are"));
    let nobody = daemon.cli(&["show", "nobody"]).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("nobody"), "{}", nobody.stderr);
    assert_eq!(daemon.cli(&["frobnicate"]).await.code, 2);
}

#[tokio::test]
async fn sessions_are_named_by_pieces_of_their_id_and_by_title() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let first = daemon.cli(&["new", "--agent", "echo", "--title", "the first one"]).await.success();
    let second = daemon.cli(&["new", "--agent", "echo", "--lazy"]).await.success();
    let (first, second) = (first.trim(), second.trim());
    let id = async |name: &str| daemon.cli(&["show", "--json", name]).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(id(first).await, first);
    assert_eq!(id(&first[24..]).await, first, "by its end");
    assert_eq!(id("the first one").await, first);
    assert_eq!(id("-").await, second, "the newest of this workspace");
    let ambiguous = daemon.cli(&["show", &first[..4]]).await;
    assert_eq!(ambiguous.code, 1);
    for session in [first, second] {
        assert!(ambiguous.stderr.contains(&session[24..]), "the candidates are listed: {}", ambiguous.stderr);
    }
}

#[tokio::test]
async fn who_asks_for_more_than_the_log_has_is_told_where_it_ends() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    daemon.cli(&["run", "--agent", "echo", "hello"]).await.success();
    let attached = daemon.cli(&["attach", "-", "--after", "99999", "--no-follow"]).await;
    assert!(attached.stderr.contains("the log ends at event "), "{}", attached.stderr);
    assert!(!attached.stderr.contains("anew"), "{}", attached.stderr);
}

#[tokio::test]
async fn a_terminal_of_which_nothing_is_known_gets_text_alone() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let script = format!("unset TERM; exec {} run --agent echo hello", env!("CARGO_BIN_EXE_acpd"));
    let mut shell = tokio::process::Command::new("sh");
    let client = daemon.client(&[]);
    shell.env_clear().envs(client.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.args(["-c", &script]).current_dir(daemon.workspace());
    let ended = Terminal::start(80, 24, &shell).ended().await;
    assert!(ended.code == 0 && ended.screen.contains("hello"), "{}", ended.screen);
    assert!(!ended.written.contains('\x1b'), "{:?}", ended.written);
}

#[tokio::test]
async fn a_session_is_shown_resumed_archived_and_removed() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.cli(&["new", "--agent", "echo"]).await.success();
    let session = session.trim();
    daemon.cli(&["prompt", session, "one"]).await.success();
    let messages = daemon.cli(&["messages", "--json", session]).await.json();
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2);
    assert_eq!(daemon.cli(&["turns", "--json", session]).await.json()["total"], 1);

    daemon.restart().await;
    let resumed = daemon.cli(&["prompt", session, "two"]).await;
    assert_eq!(resumed.clone().success(), "you said: two\n", "a prompt to a suspended session resumes it");
    assert!(resumed.stderr.contains("resumed"), "{}", resumed.stderr);

    daemon.cli(&["archive", session]).await.success();
    let refused = daemon.cli(&["prompt", session, "three"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("archived"), "{}", refused.stderr);
    assert_eq!(daemon.cli(&["ls", "--json"]).await.json()["total"], 0);
    assert_eq!(daemon.cli(&["ls", "--json", "--all"]).await.json()["total"], 1);
    daemon.cli(&["rm", "--purge", session]).await.success();
    assert_eq!(daemon.cli(&["ls", "--json", "--all"]).await.json()["total"], 0);
}

#[tokio::test]
async fn control_characters_of_an_agent_do_not_reach_the_terminal() {
    let script =
        json!([{"handshake": {}}, {"prompt": [{"text": "\u{1b}]0;title\u{7}\u{1b}[31mred\u{9b}2J done\u{8}"}]}]);
    let daemon = Daemon::builder().agent("rude", script).start().await;
    let output = daemon.cli(&["run", "--agent", "rude", "hello"]).await.success();
    assert!(!output.chars().any(|character| character.is_control() && character != '\n'), "{output:?}");
    assert!(output.contains("red"));
}

/// `acpd` without a daemon, in directories of its own.
fn acpd(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_acpd"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .env("ACPD_DEMO_PAUSE_MS", "0")
        .env("SECRET_OF_THE_SHELL", "x")
        .current_dir(home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_client_starts_the_daemon_when_none_runs() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let none = acpd(home, &["status"]);
    assert_eq!(none.status.code(), Some(3), "status never starts one");
    let socket = String::from_utf8(acpd(home, &["socket"]).stdout).unwrap();
    assert_eq!(Path::new(socket.trim()), home.join(".local/state/acpd/run/acpd.sock"));

    let run = acpd(home, &["run", "--agent", "demo", "hello"]);
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{stderr}");
    assert!(stderr.contains("started the daemon"), "{stderr}");
    assert!(String::from_utf8_lossy(&run.stdout).contains("demo agent"));

    let status: Value = serde_json::from_slice(&acpd(home, &["status", "--json"]).stdout).unwrap();
    let pid = u32::try_from(status["info"]["pid"].as_u64().unwrap()).unwrap();
    match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(environment) => assert!(!String::from_utf8_lossy(&environment).contains("SECRET_OF_THE_SHELL")),
        // Only root reads what is in the daemon's memory.
        Err(error) => assert!(!rustix::process::geteuid().is_root(), "{error}"),
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session: u32 = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().parse().unwrap();
    assert_eq!(session, pid, "it has left the client's session");
    let again = acpd(home, &["ls"]);
    assert!(again.status.success() && !String::from_utf8_lossy(&again.stderr).contains("started"));

    let process = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).unwrap();
    process_gone(pid).await;
}

#[tokio::test]
async fn a_daemon_that_does_not_start_is_quoted_in_one_error() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("broken.toml");
    std::fs::write(&config, "sessions = 1\n").unwrap();
    let failed = acpd(home.path(), &["--config", config.to_str().unwrap(), "ls"]);
    let stderr = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(3), "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.starts_with("error:")).count(), 1, "{stderr}");
    assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
}

#[tokio::test]
async fn migrate_goes_up_and_down_while_no_daemon_runs() {
    let home = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str]| {
        let output = acpd(home.path(), arguments);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let migrations = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
    let version = |entry: std::fs::DirEntry| entry.file_name().to_str().unwrap()[..4].parse::<u32>().unwrap();
    let newest = migrations.map(|entry| version(entry.unwrap())).max().unwrap();
    assert!(told(&["migrate"]).1.contains(&format!("changed the schema version from 0 to {newest}")));
    assert!(told(&["migrate"]).1.contains("already"));
    assert!(told(&["migrate", "--down", "0"]).1.contains(&format!("changed the schema version from {newest} to 0")));
    let (success, text) = told(&["migrate", "--down", &(newest + 1).to_string()]);
    assert!(!success && text.starts_with("error:"), "{text}");
    let copies = home.path().join(".local/state/acpd/backups");
    assert_eq!(std::fs::read_dir(copies).unwrap().count(), 1, "a copy was made before going down");
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_cancelled() {
    let polite = json!([{"handshake": {}}, {"repeat": [{"expect": "session/prompt"}, {"text": "half"},
        {"expect": "session/cancel"}, {"reply": {"stopReason": "cancelled"}}]}]);
    let daemon = Daemon::builder().agent("polite", polite).start().await;
    for arguments in
        [&["run", "--agent", "polite", "--timeout", "300ms", "go"][..], &["prompt", "-", "--timeout", "300ms", "go"]]
    {
        let ended = daemon.cli(arguments).await;
        assert_eq!(ended.code, 5, "{}", ended.stderr);
        assert!(ended.stderr.contains("the timeout has passed; cancelling the turn"), "{}", ended.stderr);
    }
    let turns = daemon.cli(&["turns", "-", "--json"]).await.json();
    assert!(turns["turns"].as_array().unwrap().iter().all(|turn| turn["status"] == "cancelled"), "{turns}");
    let wrong = daemon.cli(&["run", "--timeout", "soon", "go"]).await;
    assert!(wrong.code == 2 && wrong.stderr.contains("such as 90s"), "{}", wrong.stderr);
}

#[tokio::test]
async fn a_session_is_attached_at_its_last_turns() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = daemon.create_session("echo").await;
    for text in ["one", "two", "three"] {
        daemon.prompt_and_wait(&session, text).await;
    }
    let attached = async |tail: &str| daemon.cli(&["attach", "-", "--no-follow", "--tail", tail]).await.success();
    assert_eq!(attached("0").await, "");
    let last = attached("1").await;
    assert!(last.contains("three") && !last.contains("two"), "{last}");
    let two = attached("2").await;
    assert!(two.contains("two") && two.contains("three") && !two.contains("one"), "{two}");
    let all = attached("9").await;
    assert!(["one", "two", "three"].iter().all(|text| all.contains(text)), "{all}");
}

#[tokio::test]
async fn messages_are_rendered_for_people_in_their_time() {
    let script = json!([{"handshake": {}}, {"prompt": [{"text": "## Found\n\nIt is **bold**."}]}]);
    let mut daemon = Daemon::builder().agent("writer", script).start().await;
    let session = daemon.create_session("writer").await;
    daemon.prompt_and_wait(&session, "**as typed**").await;
    daemon.sql("UPDATE messages SET created_at = 1763262000007".to_owned()).await;
    let piped = daemon.cli(&["messages", "-"]).await.success();
    assert!(piped.contains("2025-11-16T03:00:00.007Z") && piped.contains("**bold**"), "{piped}");
    let mut command = daemon.client(&["messages", "-", "--no-pager"]);
    command.env("TZ", "Asia/Tokyo");
    let screen = Terminal::start(80, 24, &command).ended().await.screen;
    assert!(screen.contains("2025-11-16 12:00:00") && screen.contains("It is bold."), "{screen}");
    assert!(screen.contains("**as typed**"), "a prompt is as it was typed: {screen}");
}

#[tokio::test]
async fn mistaken_roles_and_long_prompts_get_a_useful_answer() {
    let daemon = Daemon::builder().config("[limits]\nprompt_max = \"1KiB\"").agent("echo", echo()).start().await;
    daemon.create_lazy_session("echo").await;
    let role = daemon.cli(&["messages", "-", "--role", "bot"]).await;
    assert!(role.code == 2 && role.stderr.contains("user, agent, tool_call, tool_result, system"), "{}", role.stderr);
    let long = daemon.cli(&["prompt", "-", &"x".repeat(2000)]).await;
    assert_eq!(long.code, 1);
    for told in ["2000 bytes", "limits.prompt_max, which is 1KiB", "--attach FILE"] {
        assert!(long.stderr.contains(told), "{told} in {}", long.stderr);
    }
    let before = daemon.cli(&["ls", "--all", "--json"]).await.json()["total"].clone();
    let run = daemon.cli(&["run", "--agent", "echo", &"x".repeat(2000)]).await;
    assert!(run.code == 1 && run.stderr.contains("limits.prompt_max"), "{}", run.stderr);
    let after = daemon.cli(&["ls", "--all", "--json"]).await.json()["total"].clone();
    assert_eq!(after, before, "a session whose first prompt was refused is deleted");
}
