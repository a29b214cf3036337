//! `acpd top` in a terminal: what a person sees, what each key does, and the terminal when it ends, however it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use harness::{CTRL_C, Daemon, ESCAPE, Terminal, echo, signal, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
const CTRL_Z: &str = "\x1a";

fn question(command: &str) -> Value {
    json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
    "toolCall": {"toolCallId": "c1", "title": format!("Run {command}"), "kind": "execute", "status": "pending",
        "rawInput": {"command": command}},
    "options": [
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"}
    ]}}})
}

/// An agent that asks one thing in every turn, and says what it was told.
fn asking(command: &str) -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [question(command), {"textFromAnswer": true}]}]}])
}

/// An agent that is in the middle of a tool call until it is cancelled.
fn working() -> Value {
    let tool = json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Run the tests",
        "kind": "execute", "status": "in_progress"}});
    json!([{"handshake": {}}, {"repeat": [{"expect": "session/prompt"}, {"text": "On my way."}, tool,
        {"expect": "session/cancel"}, {"reply": {"stopReason": "cancelled"}}]}])
}

async fn asked(daemon: &Daemon, session: &str) {
    let accepted = daemon.prompt(session, "install it").await;
    daemon.events(session, accepted["after"].as_i64()).await.until("permission.requested").await;
}

async fn resolution(daemon: &Daemon) -> Value {
    let all = daemon.get("/v1/permissions?status=all").await.expect_status(200);
    all["permissions"][0]["resolution"].clone()
}

async fn titled(daemon: &Daemon, agent: &str, title: &str) -> String {
    let session = daemon.create_session(agent).await;
    // The process starts beside: only when it is there, what follows has an order.
    daemon.events(&session, None).await.until("process.ready").await;
    daemon.patch(&format!("/v1/sessions/{session}"), json!({"title": title})).await.expect_status(200);
    session
}

/// Waits until the terminal is as the shell wants it.
async fn given_back(terminal: &Terminal) {
    within("a sane terminal", async {
        while !terminal.is_sane() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn until_status(daemon: &Daemon, session: &str, status: &str) {
    within(status, async {
        while daemon.session(session).await["status"] != status {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The titles in the table, in their order.
fn titles(screen: &str, titles: &[&str]) -> Vec<String> {
    let table = screen.split("── ").next().unwrap();
    let mut found: Vec<(usize, &str)> =
        titles.iter().filter_map(|title| table.find(title).map(|at| (at, *title))).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, title)| title.to_owned()).collect()
}

/// What differs from run to run. What follows a figure in its row moves, what comes before it does not.
macro_rules! assert_screen {
    ($screen:expr) => {
        insta::with_settings!({filters => vec![
            (r"acpd (\d+\.\d+\.\d+) .*events/s", "acpd [version]  pid [pid]  up [age]  RSS [size]  CPU [cpu]  [bars] [rate] events/s"),
            (r" +\d+\.\d +[\d.]+[KMG] ", "  [cpu]  [rss] "),
            (r"[0-9a-f]{12}", "[session id]"),
            (r"acpd-\w{6}", "acpd-[dir]"),
            (r"…\w{6}/workspace", "…[dir]/workspace"),
            (r"(?m) +\d+[smhd]( +|$)", " [age]  "),
            (r"pid \d+", "pid [pid]"),
        ]}, { insta::assert_snapshot!($screen) })
    };
}

/// Whether there are figures of a processor in it, which take two looks.
fn has_figures(screen: &str, rows: usize) -> bool {
    screen.contains("CPU ") && screen.lines().filter(|line| line.contains("M ") && line.contains('.')).count() > rows
}

#[tokio::test]
async fn all_is_there_at_80_by_24_and_more_at_140_by_40() {
    let daemon = Daemon::builder()
        .config("[limits]\nprocesses = 8")
        .agent("asking", asking("make install"))
        .agent("working", working())
        .agent("echo", echo())
        .start()
        .await;
    let done = titled(&daemon, "echo", "Greet the world").await;
    daemon.prompt_and_wait(&done, "hello, world").await;
    let busy = titled(&daemon, "working", "Make the tests pass").await;
    let accepted = daemon.prompt(&busy, "make them pass").await;
    daemon.events(&busy, accepted["after"].as_i64()).await.until("tool.started").await;
    daemon.prompt(&busy, "and then the next").await;
    let asks = titled(&daemon, "asking", "Install 日本 it").await;
    asked(&daemon, &asks).await;
    daemon.create_lazy_session("echo").await;
    for (columns, rows) in [(80, 24), (140, 40)] {
        let mut terminal = daemon.terminal(columns, rows, &["top"]);
        terminal.shows("? $ make install").await;
        let screen = terminal.settles("figures", |screen| has_figures(screen, 3)).await;
        assert_screen!(screen);
        terminal.types("q");
        given_back(&terminal).await;
        assert_eq!(terminal.ended().await.code, 0);
    }
}

#[tokio::test]
async fn a_question_is_shown_and_then_allowed_or_rejected() {
    let daemon = Daemon::builder().agent("asking", asking("make install")).start().await;
    let session = titled(&daemon, "asking", "Install").await;
    asked(&daemon, &session).await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("asks ").await;
    // The first key only shows what it is about.
    terminal.types("y");
    let shown = terminal.shows("allow once").await;
    assert!(shown.contains("│ $ make install") && shown.contains("y allow once"), "{shown}");
    terminal.types(ESCAPE);
    terminal.shows("not answered; the agent is still waiting").await;
    assert_eq!(resolution(&daemon).await, Value::Null);
    terminal.types("y");
    terminal.shows("allow once").await;
    terminal.types("y");
    terminal.shows("allowed: $ make install").await;
    assert_eq!(resolution(&daemon).await["decision"], "allow");
    terminal.settles("no question", |screen| !screen.contains("asks ")).await;
    terminal.types("y");
    terminal.shows("no permission request is open").await;

    asked(&daemon, &session).await;
    terminal.shows("asks ").await;
    terminal.types("n");
    terminal.shows("allow once").await;
    terminal.types("n");
    terminal.shows("rejected: $ make install").await;
    assert_eq!(resolution(&daemon).await["decision"], "reject");
}

#[tokio::test]
async fn a_question_that_somebody_else_answers_closes_and_says_who_that_was() {
    let daemon = Daemon::builder().agent("asking", asking("make install")).start().await;
    let session = titled(&daemon, "asking", "Install").await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    let user = harness::user_name(rustix::process::geteuid().as_raw());
    for (verb, verdict) in [("approve", "allowed"), ("reject", "rejected")] {
        asked(&daemon, &session).await;
        terminal.shows("asks ").await;
        terminal.types("n");
        terminal.shows("allow once").await;
        daemon.cli(&[verb]).await.success();
        terminal.shows(&format!("already answered by {user} with acpd ({verdict}): $ make install")).await;
        terminal.settles("the table", |screen| screen.contains("STATE") && !screen.contains("allow once")).await;
        // What is typed now answers nothing.
        terminal.types("n");
        terminal.shows("no permission request is open").await;
    }
}

#[tokio::test]
async fn a_question_in_the_log_leads_back_to_the_log_and_is_allowed_for_good() {
    let daemon = Daemon::builder().agent("asking", asking("make install")).start().await;
    let session = titled(&daemon, "asking", "Install").await;
    asked(&daemon, &session).await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("asks ").await;
    terminal.types(ENTER);
    let is_log = |screen: &str| screen.contains("── log: Install") && !screen.contains("STATE");
    terminal.settles("the log", is_log).await;
    terminal.types("y");
    terminal.shows("Y allow always").await;
    terminal.types(ESCAPE);
    terminal.shows("not answered; the agent is still waiting").await;
    terminal.settles("the log", is_log).await;
    terminal.types("y");
    terminal.shows("Y allow always").await;
    terminal.types("Y");
    terminal.shows("allowed always: $ make install").await;
    terminal.settles("the log", is_log).await;
    let rules = daemon.get(&format!("/v1/sessions/{session}/rules")).await.expect_status(200);
    assert_eq!((&rules["total"], &rules["rules"][0]["decision"]), (&json!(1), &json!("allow")), "{rules}");
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_told_of() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = titled(&daemon, "echo", "Greet").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("- the turn is completed").await;
    daemon.signal(Signal::SIGSTOP);
    let stuck = terminal.shows("the daemon has not answered for ").await;
    assert!(stuck.contains("Greet") && !stuck.contains(" up "), "{stuck}");
    terminal.types("A");
    terminal.shows("permanently?").await;
    terminal.types("y");
    terminal.shows("archiving…").await;
    terminal.types("Ay");
    terminal.shows("still archiving…").await;
    daemon.signal(Signal::SIGCONT);
    terminal.shows("archived; `acpd messages").await;
    let back = terminal.shows(" up ").await;
    assert!(!back.contains("does not answer"), "{back}");
    assert_eq!(daemon.session(&session).await["status"], "archived");
}

#[tokio::test]
async fn a_turn_is_cancelled_and_a_session_archived_when_that_is_really_wanted() {
    let daemon = Daemon::builder().agent("working", working()).start().await;
    let session = titled(&daemon, "working", "Test it").await;
    let turn = daemon.prompt(&session, "go").await["turnId"].as_str().unwrap().to_owned();
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("* Run the tests").await;
    terminal.types("x");
    terminal.shows("cancelling the turn").await;
    assert_eq!(daemon.wait_turn(&session, &turn).await["status"], "cancelled");
    terminal.shows("- the turn is cancelled").await;
    terminal.settles("an idle agent", |screen| screen.contains("\nready ")).await;
    terminal.types("x");
    terminal.shows("no turn is running").await;
    terminal.types("r");
    terminal.shows("the session is already active").await;
    terminal.types("A");
    terminal.shows("archive \"Test it\" permanently?").await;
    terminal.types("n");
    terminal.shows("not archived").await;
    terminal.types("A");
    terminal.shows("permanently?").await;
    terminal.types("y");
    terminal.shows("archived; `acpd messages").await;
    assert_eq!(daemon.session(&session).await["status"], "archived");
    terminal.shows("no sessions; start one").await;
}

#[tokio::test]
async fn a_suspended_session_is_resumed() {
    let mut daemon =
        Daemon::builder().config("[sessions]\nresume_on_start = false").agent("echo", echo()).start().await;
    let session = titled(&daemon, "echo", "Sleep").await;
    daemon.prompt_and_wait(&session, "hello").await;
    daemon.restart().await;
    assert_eq!(daemon.session(&session).await["status"], "suspended");
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("\nsuspended ").await;
    terminal.types("s");
    terminal.shows("only sessions with a process").await;
    terminal.settles("no such session", |screen| !screen.contains("\nsuspended ")).await;
    terminal.types("s");
    terminal.shows("\nsuspended ").await;
    terminal.types("r");
    terminal.shows("session resumed").await;
    until_status(&daemon, &session, "active").await;
    terminal.shows("\nstopped ").await;
}

#[tokio::test]
async fn the_list_is_sorted_and_narrowed_and_the_log_is_read() {
    let greedy = json!([{"allocate": 64 << 20}, {"handshake": {}},
        {"repeat": [{"prompt": [{"flood": {"count": 60, "text": "line {}\n"}}]}]}]);
    let daemon = Daemon::builder().agent("echo", echo()).agent("greedy", greedy).start().await;
    let names = ["Oldest", "Middle", "Newest"];
    let mut sessions = Vec::new();
    for (agent, title) in [("echo", "Oldest"), ("greedy", "Middle"), ("echo", "Newest")] {
        let session = titled(&daemon, agent, title).await;
        daemon.prompt_and_wait(&session, "hello").await;
        sessions.push(session);
    }
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    let order = |expected: &'static [&'static str]| move |screen: &str| titles(screen, &names) == expected;
    terminal.settles("the last active first", order(&["Newest", "Middle", "Oldest"])).await;
    terminal.types("m");
    terminal.shows("sorted by memory").await;
    terminal.settles("the greedy one first", |screen| titles(screen, &names)[..1] == ["Middle"]).await;
    terminal.types("a");
    terminal.settles("the oldest first", order(&["Oldest", "Middle", "Newest"])).await;
    terminal.types("a");
    terminal.shows("sorted by state").await;
    terminal.types("c");
    terminal.shows("sorted by CPU").await;
    terminal.types("c");
    terminal.types("/midd");
    terminal.settles("only that one", order(&["Middle"])).await;
    terminal.types(ENTER);
    terminal.shows("/midd").await;
    terminal.shows("  line 59").await;

    terminal.types(ENTER);
    let log = terminal.settles("the log alone", |screen| !screen.contains("STATE")).await;
    assert!(log.contains("log: Middle") && log.contains("- the turn is completed"), "{log}");
    terminal.types("g");
    terminal.settles("its beginning", |screen| screen.contains("> hello") && !screen.contains("line 59")).await;
    terminal.types("G");
    terminal.shows("line 59").await;
    terminal.types(ESCAPE);
    terminal.shows("STATE").await;
    terminal.types(ESCAPE);
    terminal.settles("all of them", order(&["Newest", "Middle", "Oldest"])).await;
    for (keys, title) in [("g", "Newest"), (DOWN, "Middle"), ("j", "Oldest"), ("k", "Middle"), ("G", "Oldest")] {
        terminal.types(keys);
        terminal.shows(&format!("── log: {title} ")).await;
    }
    terminal.types("?");
    // The last line is drawn last.
    let help = terminal.shows("any key back").await;
    insta::assert_snapshot!(help.split_once("── keys").unwrap().1);
    terminal.types("?");
    terminal.shows("STATE").await;
    terminal.types(ESCAPE);
    given_back(&terminal).await;
    assert_eq!(terminal.ended().await.code, 0);
}

#[tokio::test]
async fn it_fits_whatever_the_window_is() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = titled(&daemon, "echo", "Greet").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("- the turn is completed").await;
    terminal.resize(40, 10);
    let small = terminal.settles("a small one", |screen| screen.contains("STATE     TITLE")).await;
    assert!(small.contains("Greet") && small.contains("q quit") && small.lines().count() <= 10, "{small}");
    terminal.resize(12, 3);
    terminal.types("\x0c");
    terminal.settles("a tiny one", |screen| screen.lines().count() <= 3).await;
    terminal.resize(200, 60);
    let large = terminal.shows("PROCS").await;
    assert!(large.contains(&session[24..]) && large.contains(&daemon.workspace().display().to_string()), "{large}");
    terminal.types("q");
    assert_eq!(terminal.ended().await.code, 0);
}

#[tokio::test]
async fn no_agent_writes_to_the_terminal() {
    let nasty = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";
    let tool = json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "t", "title": format!("tool{nasty}"),
        "status": "in_progress"}});
    let script = json!([{"handshake": {}},
        {"prompt": [{"text": format!("said{nasty}\n")}, tool, question(&format!("make{nasty}"))]}]);
    let daemon = Daemon::builder().agent("nasty", script).start().await;
    let session = titled(&daemon, "nasty", "title").await;
    asked(&daemon, &session).await;
    let mut terminal = daemon.terminal(100, 30, &["top"]);
    terminal.shows("  said]0;owned").await;
    terminal.types("y");
    terminal.shows(r"$ make\u{1b}]0;owned").await;
    terminal.types(CTRL_C);
    given_back(&terminal).await;
    let ended = terminal.ended().await;
    assert_eq!(ended.code, 130);
    for forbidden in ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}"] {
        assert!(!ended.written.contains(forbidden), "{forbidden:?}");
    }
}

#[tokio::test]
async fn what_shows_nothing_takes_no_room() {
    let nothing = "\u{2028}\u{2029}\u{200b}\u{2060}\u{feff}\u{ad}";
    let script = json!([{"handshake": {}},
        {"prompt": [{"text": format!("one{nothing}two\n")}, question(&format!("make{nothing}it"))]}]);
    let daemon = Daemon::builder().agent("quiet", script).start().await;
    let session = titled(&daemon, "quiet", &format!("a{nothing}b")).await;
    asked(&daemon, &session).await;
    let mut terminal = daemon.terminal(100, 30, &["top"]);
    terminal.shows("a  b").await;
    terminal.types(CTRL_C);
    let ended = terminal.ended().await;
    for character in nothing.chars() {
        assert!(!ended.written.contains(character), "{character:?}");
    }
}

#[tokio::test]
async fn colours_and_letters_are_those_that_the_terminal_has() {
    let daemon = Daemon::builder().agent("working", working()).start().await;
    let session = titled(&daemon, "working", "Übung").await;
    let accepted = daemon.prompt(&session, "go").await;
    daemon.events(&session, accepted["after"].as_i64()).await.until("tool.started").await;
    let mut command = daemon.client(&["top"]);
    command.env("NO_COLOR", "1").env("LC_ALL", "C");
    let mut terminal = Terminal::start(80, 24, &command);
    let screen = terminal.shows("* Run the tests").await;
    assert!(screen.is_ascii() && screen.contains("?bung") && screen.contains("-- log"), "{screen}");
    let is_plain = |screen: &vt100::Screen| {
        let (rows, columns) = screen.size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        cells.filter_map(|(row, column)| screen.cell(row, column)).all(|cell| cell.fgcolor() == vt100::Color::Default)
    };
    assert!(terminal.look(is_plain));
    let mut coloured = daemon.terminal(80, 24, &["top"]);
    coloured.shows("* Run the tests").await;
    assert!(!coloured.look(is_plain));
}

#[tokio::test]
async fn whatever_signal_ends_it_the_terminal_is_given_back_first() {
    let daemon = Daemon::start().await;
    for ending in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut terminal = daemon.terminal(80, 24, &["top"]);
        terminal.shows("no sessions; start one").await;
        signal(terminal.pid(), ending);
        let ended = terminal.ended().await;
        assert_eq!((ended.code, ended.is_sane), (128 + ending as i32, true), "{ending}");
    }
}

#[tokio::test]
async fn a_daemon_that_is_killed_is_waited_for() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    let session = titled(&daemon, "echo", "Greet").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("- the turn is completed").await;
    daemon.kill().await;
    let lost = terminal.shows("lost the connection to the daemon; reconnecting").await;
    assert!(lost.contains("Greet"), "what was known is still shown: {lost}");
    daemon.restart().await;
    terminal.shows("reconnected to the daemon").await;
    terminal.shows("processes 0 of 5").await;
    daemon.prompt_and_wait(&session, "and again").await;
    terminal.settles("the next turn", |screen| screen.contains("and again\n- the turn is completed")).await;
    daemon.kill().await;
    terminal.shows("lost the connection to the daemon").await;
    terminal.types(CTRL_C);
    given_back(&terminal).await;
    assert_eq!(terminal.ended().await.code, 130);
    daemon.restart().await;
}

#[tokio::test]
async fn the_terminal_is_given_back_after_a_panic_and_while_it_is_stopped() {
    let daemon = Daemon::start().await;
    let mut command = daemon.client(&["top"]);
    command.env("ACPD_TEST_TOP_PANIC", "1");
    let mut terminal = Terminal::start(80, 24, &command);
    terminal.shows("no sessions; start one").await;
    assert!(!terminal.is_sane());
    terminal.types("!");
    given_back(&terminal).await;
    let ended = terminal.ended().await;
    assert_eq!(ended.code, 101);
    assert!(ended.screen.contains("a test asked for this"), "{}", ended.screen);

    let mut terminal = daemon.terminal(80, 24, &["top"]);
    terminal.shows("no sessions; start one").await;
    for stop in [true, false] {
        if stop {
            terminal.types(CTRL_Z);
        } else {
            signal(terminal.pid(), Signal::SIGTSTP);
        }
        given_back(&terminal).await;
        let path = format!("/proc/{}/stat", terminal.pid());
        within("a stopped process", async {
            while !std::fs::read_to_string(&path).unwrap().contains(") T ") {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(terminal.is_sane());
        signal(terminal.pid(), Signal::SIGCONT);
        terminal.shows("no sessions; start one").await;
    }
    terminal.types("q");
    given_back(&terminal).await;
    assert_eq!(terminal.ended().await.code, 0);
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_do() {
    let daemon = Daemon::builder().agent("echo", echo()).start().await;
    let refused = daemon.cli(&["top"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    insta::assert_snapshot!(refused.stderr, @r"
    error: `acpd top` needs a terminal that can move the cursor
    hint: `acpd ls --watch` updates a list of sessions; `acpd top --json` prints the current state once
    ");
    let session = daemon.create_session("echo").await;
    daemon.prompt_and_wait(&session, "hello").await;
    let list = daemon.cli(&["top", "--json"]).await.json();
    assert_eq!((&list["processes"][0]["sessionId"], &list["daemon"]["pid"]), (&json!(session), &json!(daemon.pid())));
}
