//! What a person sees of `run`, `prompt` and `attach` on a terminal: while a turn goes on, when it is over, and on every way
//! out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{CTRL_C, Daemon, Ended, Terminal, Tmux};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const TEXT: &str = "## What I found\n\nThe test fails because `parse` **drops** the last line, see \
    [the issue](https://example.com/7). It is a long sentence that has to be wrapped in a terminal of the usual width.\n\n\
    1. first\n2. second\n\n```rust\nfn main() {}\n```\n\n| file | lines |\n|---|---:|\n| a.rs | 12 |\n";

fn plan(first: &str, second: &str) -> Value {
    json!({"update": {"sessionUpdate": "plan", "entries": [
        {"content": "Find the failing test", "priority": "high", "status": first},
        {"content": "Repair it", "priority": "high", "status": second}]}})
}

fn tool(id: &str, title: &str, kind: &str) -> Value {
    json!({"update": {"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "in_progress"}})
}

fn done(id: &str, status: &str, content: &Value) -> Value {
    json!({"update": {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": content}})
}

fn said(text: &str) -> Value {
    json!([{"type": "content", "content": {"type": "text", "text": text}}])
}

/// An agent that does a little of everything, and can be held in between.
fn busy() -> Value {
    let diff = json!([{"type": "diff", "path": "a.rs", "oldText": "one\ntwo\n", "newText": "one\n2\u{1b}[2J\n"}]);
    json!([{"handshake": {}}, {"repeat": [{"prompt": [
        {"thought": "Let me think about it.\nThe test is in a.rs.\n"}, {"gate": "thinking"},
        plan("in_progress", "pending"), tool("c1", "Read a.rs", "read"), tool("c2", "cargo test", "execute"), {"gate": "tools"},
        done("c1", "completed", &said("one\ntwo\n")), done("c2", "failed", &said("running 1 test\n\u{1b}]0;owned\u{7}it failed\n")),
        tool("c3", "Edit a.rs", "edit"), done("c3", "completed", &diff),
        plan("completed", "in_progress"), {"text": &TEXT[..60]}, {"gate": "words"}, {"text": &TEXT[60..]},
        plan("completed", "completed"),
        {"update": {"sessionUpdate": "usage_update", "used": 24_000, "size": 200_000}},
    ]}]}])
}

async fn daemon() -> Daemon {
    Daemon::builder().agent("busy", busy()).start().await
}

async fn pass(daemon: &Daemon, gates: &[&str]) {
    for gate in gates {
        daemon.gate("busy").reached(gate).await.open().await;
    }
}

/// Times, ids and the spinner's signs differ from run to run.
macro_rules! assert_screen {
    ($name:expr, $screen:expr) => {
        insta::with_settings!({filters => vec![
            (r"[0-9a-f]{8}-[0-9a-f-]{27}", "[id]"), (r"\d+\.\ds", "[time]"), (r"\b\d+s\b", "[elapsed]"), (r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋"),
        ]}, { insta::assert_snapshot!($name, $screen) })
    };
}

/// Nothing that an agent wrote acts on the terminal.
fn is_harmless(written: &str) {
    for (sequence, what) in
        [("\u{1b}]", "a title"), ("\u{9b}", "a control sequence"), ("\u{7}", "a bell"), ("\u{1b}[2J", "an erasure")]
    {
        assert!(!written.contains(sequence), "{what} of the agent's reached the terminal: {written:?}");
    }
}

async fn shows_all(terminal: &mut Terminal, texts: &[&str]) -> String {
    let what = format!("{texts:?} on the screen");
    terminal.settles(&what, |screen| texts.iter().all(|text| screen.contains(text))).await
}

#[tokio::test]
async fn a_turn_is_seen_while_it_goes_on_and_kept_when_it_is_over() {
    let daemon = daemon().await;
    for columns in [80, 140] {
        let mut terminal = daemon.terminal(columns, 60, &["run", "--agent", "busy", "go"]);
        let thinking = shows_all(&mut terminal, &["The test is in a.rs.", "thinking"]).await;
        assert_screen!(format!("thinking_at_{columns}"), thinking);
        pass(&daemon, &["thinking"]).await;
        let tools = shows_all(&mut terminal, &["Read a.rs", "cargo test", "Repair it"]).await;
        assert_screen!(format!("tools_at_{columns}"), tools);
        pass(&daemon, &["tools"]).await;
        let words = shows_all(&mut terminal, &["The test fails because", "▸ Repair it"]).await;
        assert!(words.contains("\nWhat I found\n"), "{words}");
        pass(&daemon, &["words"]).await;
        let end = terminal.ended().await;
        assert_eq!(end.code, 0, "{}", end.screen);
        is_harmless(&end.written);
        assert_screen!(format!("end_at_{columns}"), end.screen);
    }
}

#[tokio::test]
async fn what_goes_to_a_program_is_the_answer_as_it_is() {
    let daemon = daemon().await;
    let gates = || pass(&daemon, &["thinking", "tools", "words"]);
    let (piped, ()) = tokio::join!(daemon.cli(&["run", "--agent", "busy", "go"]), gates());
    assert_eq!(piped.stdout, TEXT, "{}", piped.stderr);
    assert!(!piped.stderr.contains('\u{1b}') && !piped.stderr.contains("think"), "{}", piped.stderr);
    assert!(piped.stderr.contains("→ Read a.rs (read)\n"), "{}", piped.stderr);

    let mut terminal = Terminal::start(80, 60, &daemon.shell("\"$1\" run --agent busy go > answer"));
    shows_all(&mut terminal, &["The test is in a.rs.", "thinking"]).await;
    let (end, ()) = tokio::join!(terminal.ended(), gates());
    assert_eq!(end.code, 0, "{}", end.screen);
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("answer")).unwrap(), TEXT);
    assert_screen!("end_with_stdout_piped", end.screen);
}

#[tokio::test]
async fn notes_that_go_to_a_file_leave_the_answer_on_the_terminal() {
    let daemon = daemon().await;
    let mut terminal = Terminal::start(80, 60, &daemon.shell("\"$1\" run --agent busy go 2> notes"));
    shows_all(&mut terminal, &["thinking"]).await;
    terminal.types("xX");
    let (end, ()) = tokio::join!(terminal.ended(), pass(&daemon, &["thinking", "tools", "words"]));
    assert!(end.code == 0 && end.is_sane, "{}", end.screen);
    assert!(end.screen.starts_with("What I found\n\nThe test fails because parse drops"), "{}", end.screen);
    assert!(end.screen.ends_with("12") && !end.screen.contains("Read a.rs"), "{}", end.screen);
    let notes = std::fs::read_to_string(daemon.workspace().join("notes")).unwrap();
    assert!(
        notes.contains("\n✓ Read a.rs (read) ") && !notes.contains('\u{1b}') && !notes.contains("What I"),
        "{notes}"
    );
}

#[tokio::test]
async fn what_was_painted_over_is_not_in_the_history_of_tmux() {
    let daemon = daemon().await;
    // In the first row of a fresh pane, where erasing all below is the clearing of a screen.
    let Some(tmux) = Tmux::start(&daemon, "acpd run --agent busy go; echo left with $?; cat").await else { return };
    tmux.settles("the thoughts", |screen| screen.contains("thinking")).await;
    pass(&daemon, &["thinking"]).await;
    tmux.settles("the tools", |screen| screen.contains("Repair it")).await;
    pass(&daemon, &["tools"]).await;
    tmux.settles("the words", |screen| screen.contains("The test fails because")).await;
    pass(&daemon, &["words"]).await;
    tmux.settles("the end", |screen| screen.contains("left with 0")).await;
    let all = tmux.run(&["capture-pane", "-p", "-S", "-"]).await;
    assert!(!all.contains("thinking") && !all.contains("waiting for"), "{all}");
    for once in ["▸ thought", "Read a.rs", "Find the failing test", "What I found", "The test fails"] {
        assert_eq!(all.matches(once).count(), 1, "{once:?} in {all}");
    }
}

#[tokio::test]
async fn a_client_starts_a_daemon_that_was_killed_and_tells_how_the_turn_ended() {
    let mut daemon = daemon().await;
    let mut terminal = daemon.terminal(100, 24, &["run", "--agent", "busy", "go"]);
    shows_all(&mut terminal, &["thinking"]).await;
    let began = daemon.cli(&["status", "--json"]).await.json()["info"]["pid"].clone();
    daemon.kill().await;
    shows_all(&mut terminal, &["acpd: the daemon was killed; starting it again"]).await;
    let end = terminal.ended().await;
    assert_eq!(end.code, 6, "{}", end.screen);
    assert!(end.screen.contains("the daemon crashed while the turn was running"), "{}", end.screen);
    assert!(end.screen.contains("\"continue\"` continues the session"), "{}", end.screen);
    assert!(!end.screen.contains("lost the connection"), "{}", end.screen);
    let now = daemon.cli(&["status", "--json"]).await.json()["info"]["pid"].clone();
    assert!(now.is_u64() && now != began, "{now}");
    daemon.cli(&["stop"]).await.success();
}

#[tokio::test]
async fn a_client_does_not_start_another_daemon_than_the_one_that_was_killed() {
    let mut daemon = daemon().await;
    let elsewhere = daemon.workspace().join("state");
    let arguments = ["--state-dir", elsewhere.to_str().unwrap(), "run", "--agent", "busy", "go"];
    let mut terminal = daemon.terminal(100, 24, &arguments);
    shows_all(&mut terminal, &["thinking"]).await;
    daemon.kill().await;
    let screen = shows_all(&mut terminal, &["acpd: lost the connection to the daemon; reconnecting"]).await;
    assert!(!screen.contains("starting it again"), "{screen}");
    assert!(!elsewhere.exists(), "a daemon with this state directory has other sessions");
}

#[tokio::test]
async fn a_client_waits_for_a_daemon_that_was_stopped() {
    let mut daemon = daemon().await;
    daemon.cli(&["run", "--agent", "demo", "hello"]).await.success();
    let mut terminal = daemon.terminal(100, 60, &["attach", "-"]);
    shows_all(&mut terminal, &["demo agent"]).await;
    daemon.terminate().await;
    shows_all(&mut terminal, &["acpd: lost the connection to the daemon; reconnecting"]).await;
    let end = terminal.ended().await;
    assert_eq!(end.code, 3, "{}", end.screen);
    assert!(end.screen.contains("hint: `acpd attach ") && !end.screen.contains("acpd serve"), "{}", end.screen);
    assert!(!daemon.socket().exists(), "it has started none");
}

#[tokio::test]
async fn without_colours_or_letters_it_can_be_read_all_the_same() {
    let daemon = daemon().await;
    let mut command = daemon.client(&["run", "--agent", "busy", "go"]);
    command.env("NO_COLOR", "1").env("LC_ALL", "C");
    let mut terminal = Terminal::start(80, 60, &command);
    terminal.shows("thinking...").await;
    pass(&daemon, &["thinking"]).await;
    terminal.shows("[>] Find the failing test").await;
    pass(&daemon, &["tools", "words"]).await;
    let end = terminal.ended().await;
    assert!(!end.written.contains("\u{1b}[0m") && !end.written.contains("\u{1b}[2m"), "{:?}", end.written);
    assert_screen!("end_without_colours_or_letters", end.screen);

    let mut command = daemon.client(&["run", "--agent", "busy", "go"]);
    command.env("LC_ALL", "C.UTF-8");
    let mut terminal = Terminal::start(20, 12, &command);
    shows_all(&mut terminal, &["thinking"]).await;
    pass(&daemon, &["thinking", "tools", "words"]).await;
    let narrow = terminal.ended().await;
    assert_eq!(narrow.code, 0);
    is_harmless(&narrow.written);
}

#[tokio::test]
async fn thoughts_are_folded_unfolded_and_left_out() {
    let daemon = daemon().await;
    for (how, shown, hidden) in [("show", "▾ thought", "▸ thought"), ("hide", "✓ Read a.rs", "thought")] {
        let terminal = daemon.terminal(80, 60, &["run", "--agent", "busy", "--thoughts", how, "go"]);
        let (end, ()) = tokio::join!(terminal.ended(), pass(&daemon, &["thinking", "tools", "words"]));
        assert!(end.screen.contains(shown) && !end.screen.contains(hidden), "{how}: {}", end.screen);
        assert_eq!(end.screen.contains("The test is in a.rs."), how == "show", "{}", end.screen);
    }
    let mut terminal = daemon.terminal(80, 60, &["run", "--agent", "busy", "go"]);
    pass(&daemon, &["thinking"]).await;
    let folded = shows_all(&mut terminal, &["▸ thought", "cargo test"]).await;
    assert!(!folded.contains("Let me think"), "{folded}");
    terminal.types("?");
    terminal.shows("t folds thoughts").await;
    terminal.types("xX\u{1b}[A");
    terminal.types("t");
    let whole = shows_all(&mut terminal, &["▾ the last thought", "  Let me think about it."]).await;
    assert!(!whole.contains("xX"), "keys are not echoed: {whole}");
    terminal.types("t");
    terminal.shows("folding thoughts").await;
    pass(&daemon, &["tools", "words"]).await;
    let end = terminal.ended().await;
    assert!(end.is_sane && end.code == 0, "{}", end.screen);
}

#[tokio::test]
async fn ctrl_c_cancels_and_the_second_one_leaves() {
    let stubborn = json!([{"handshake": {}}, {"expect": "session/prompt"}, plan("in_progress", "pending"),
        tool("c1", "sleep 100", "execute"), {"text": "working"}, {"gate": "busy"},
        {"expect": "session/cancel"}, {"gate": "cancelled"}, {"reply": {"stopReason": "cancelled"}}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("stubborn", stubborn).start().await;
    for leaves in [false, true] {
        let mut terminal = daemon.terminal(80, 60, &["run", "--agent", "stubborn", "go"]);
        let passage = daemon.gate("stubborn").reached("busy").await;
        shows_all(&mut terminal, &["working", "sleep 100", "Repair it"]).await;
        terminal.types(CTRL_C);
        terminal.shows("cancelling the turn; press Ctrl-C again").await;
        passage.open().await;
        let passage = daemon.gate("stubborn").reached("cancelled").await;
        if leaves {
            terminal.types(CTRL_C);
            let Ended { code, screen, is_sane, .. } = terminal.ended().await;
            assert!(code == 130 && is_sane && screen.contains("detached; the session continues"), "{code} {screen}");
            assert!(!screen.contains("cancelling…"), "{screen}");
            passage.open().await;
        } else {
            terminal.shows("cancelling…").await;
            passage.open().await;
            let Ended { code, screen, is_sane, .. } = terminal.ended().await;
            assert!(code == 5 && is_sane, "{code} {screen}");
            assert_screen!("end_of_a_cancelled_turn", screen);
        }
    }
}

#[tokio::test]
async fn the_terminal_is_left_as_it_was_by_whatever_ends_the_client() {
    let daemon = daemon().await;
    let mut terminal = daemon.terminal(80, 24, &["run", "--agent", "busy", "go"]);
    shows_all(&mut terminal, &["thinking"]).await;
    assert!(!terminal.is_sane(), "keys are taken as they are pressed");
    kill(Pid::from_raw(terminal.pid().cast_signed()), Signal::SIGTERM).unwrap();
    let end = terminal.ended().await;
    assert!(end.code == 143 && end.is_sane && !end.screen.contains("thinking"), "{end:?}");
}

#[tokio::test]
async fn a_terminal_that_changes_its_size_is_written_on_anew() {
    let daemon = daemon().await;
    let mut terminal = daemon.terminal(100, 60, &["run", "--agent", "busy", "go"]);
    pass(&daemon, &["thinking"]).await;
    shows_all(&mut terminal, &["cargo test", "Repair it"]).await;
    terminal.resize(60, 40);
    pass(&daemon, &["tools"]).await;
    shows_all(&mut terminal, &["The test fails because", "✔ Find"]).await;
    terminal.resize(120, 50);
    pass(&daemon, &["words"]).await;
    let end = terminal.ended().await;
    for once in ["▸ thought", "Read a.rs", "Find the failing test", "What I found", "The test fails", "✔ Repair it"]
    {
        assert_eq!(end.screen.matches(once).count(), 1, "{once:?} in {}", end.screen);
    }
}

#[tokio::test]
async fn several_terminals_see_the_same() {
    let daemon = daemon().await;
    let first = daemon.terminal(80, 60, &["run", "--agent", "busy", "go"]);
    pass(&daemon, &["thinking"]).await;
    let mut second = daemon.terminal(80, 60, &["attach", "-"]);
    shows_all(&mut second, &["> go", "▸ thought", "Read a.rs", "cargo test", "Repair it"]).await;
    pass(&daemon, &["tools", "words"]).await;
    let end = first.ended().await;
    let seen = shows_all(&mut second, &["context 12%"]).await;
    let own = end.screen.strip_prefix("acpd: busy may act without asking\n").unwrap();
    let own = own.split("\nsession ").next().unwrap();
    assert_eq!(seen, format!("> go\n\n{own}"));
    second.types(CTRL_C);
    let left = second.ended().await;
    assert!(left.code == 130 && left.is_sane, "{}", left.screen);
}

#[tokio::test]
async fn a_question_takes_the_place_of_what_goes_on() {
    let ask = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": {"toolCallId": "c1", "title": "Run make", "kind": "execute", "rawInput": {"command": "make"}},
        "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]}}});
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [plan("in_progress", "pending"), {"text": "I will *build* it."},
        {"gate": "before"}, ask, {"gate": "after", "cases": {"speak": [{"text": "Then not."}]}}]}]}]);
    let daemon = Daemon::builder().agent("asking", script).start().await;
    for (case, code) in [("speak", 0), ("silent", 10)] {
        let mut terminal = daemon.terminal(80, 24, &["run", "--agent", "asking", "go"]);
        let passage = daemon.gate("asking").reached("before").await;
        shows_all(&mut terminal, &["I will build it.", "○ Repair it"]).await;
        passage.open().await;
        let asked = terminal.shows("[q] decide later >").await;
        assert!(asked.contains("I will build it.") && !asked.contains("Repair it"), "{asked}");
        terminal.types("n\n");
        let passage = daemon.gate("asking").reached("after").await;
        shows_all(&mut terminal, &["permission rejected: $ make", "○ Repair it"]).await;
        passage.say(case).await;
        let end = terminal.ended().await;
        assert_eq!(end.code, code, "{}", end.screen);
        assert!(end.is_sane);
        if case == "speak" {
            let user = format!("\\({} with", harness::user_name(rustix::process::geteuid().as_raw()));
            insta::with_settings!({filters => vec![(user.as_str(), "([user] with"), (r"\d+\.\ds", "[time]"), (r"[0-9a-f]{8}-[0-9a-f-]{27}", "[id]")]}, {
                insta::assert_snapshot!("end_with_a_question", end.screen);
            });
        }
    }
}

#[tokio::test]
async fn an_agent_that_refuses_has_its_own_code() {
    let script = json!([{"handshake": {}}, {"expect": "session/prompt"}, {"reply": {"stopReason": "refusal"}}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("shy", script).start().await;
    let refused = daemon.cli(&["run", "--agent", "shy", "go"]).await;
    assert!(refused.code == 10 && refused.stderr.ends_with("\nthe agent stopped: refusal\n"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_prompt_need_not_be_waited_for() {
    let echo = json!([{"handshake": {}}, {"repeat": [{"prompt": [{"textFromPrompt": true}]}]}]);
    let daemon = Daemon::builder().agent("echo", echo).start().await;
    let told = daemon.cli(&["run", "--agent", "echo", "--no-wait", "hello"]).await.success();
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(matches!(words[..], ["session", _, "turn", _]), "{told}");
    let turn = daemon.get(&format!("/v1/sessions/{}/turns/{}?wait=30", words[1], words[3])).await.expect_status(200);
    assert_eq!(turn["status"], "completed");
    let accepted = daemon.cli(&["prompt", words[1], "--no-wait", "--json", "more"]).await.json();
    assert!(accepted["turnId"].is_string() && accepted["after"].is_number(), "{accepted}");
    let waited = daemon.cli(&["prompt", words[1], "--no-wait", "--wait", "and more"]).await.success();
    assert_eq!(waited, "and more\n", "the last one counts");
}

#[tokio::test]
async fn a_long_session_is_caught_up_with_in_a_few_pictures() {
    let script = json!([{"handshake": {}}, {"prompt": [{"flood": {"count": 5000, "text": "word {} \n\n"}}]}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("loud", script).start().await;
    daemon.cli(&["run", "--agent", "loud", "go"]).await.success();
    let end = daemon.terminal(80, 24, &["attach", "--no-follow", "-"]).ended().await;
    assert!(end.code == 0 && end.screen.contains("word 4999"), "{}", end.screen);
    let pictures = end.written.matches("\u{1b}[?2026h").count();
    assert!(pictures < 50, "{pictures} pictures of {} bytes", end.written.len());
}
