//! The plain commands as a person or a script sees them: with stdout to a program, and on terminals of 80 and 140 columns.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fmt::Write;

use harness::{CTRL_C, CTRL_Z, Daemon, echo, process_stopped, signal, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LONG: &str = "fix the failing test in the parser of the configuration that nobody has looked at for years";
const JAPANESE: &str = "日本語の題名がとても長いので表の幅に収まらないことがあるかもしれません";

/// The commands whose pictures are taken here.
const SHOWN: [(&str, &[&str]); 16] = [
    ("ls", &["ls"]),
    ("ls_all", &["ls", "--all"]),
    ("ls_nothing", &["ls", "--tag", "nothing"]),
    ("show", &["show", "choosing"]),
    ("show_archived", &["show", "done"]),
    ("messages", &["messages", "--no-pager", "choosing"]),
    ("turns", &["turns", "choosing"]),
    ("search", &["search", "parser"]),
    ("mode", &["mode", "choosing"]),
    ("model", &["model", "choosing"]),
    ("permissions", &["permissions"]),
    ("permissions_all", &["permissions", "--all"]),
    ("rules", &["rules", "asking"]),
    ("workspaces", &["workspaces"]),
    ("status", &["status"]),
    ("gc", &["gc", "--dry-run"]),
];

/// The commands whose pictures are taken by the other tests of this file, and by those of other files.
const ELSEWHERE: &[(&str, &str)] = &[
    ("archive", "cli_tables"),
    ("resume", "cli_tables"),
    ("rm", "cli_tables"),
    ("cancel", "cli_tables"),
    ("approve", "cli_tables"),
    ("reject", "cli_tables"),
    ("backup", "cli_tables"),
    ("checkpoint", "checkpoints"),
    ("records", "records"),
    ("timeline", "records"),
    ("import", "import"),
    ("run", "cli_stream"),
    ("ps", "cli_daemon"),
    ("logs", "cli_daemon"),
    ("rename", "cli_daemon"),
    ("reload", "cli_daemon"),
    ("config", "cli_daemon"),
    ("prompt", "cli_stream"),
    ("attach", "cli_stream"),
    ("new", "cli"),
    ("export", "export"),
    ("socket", "cli"),
    ("install-service", "systemd"),
    ("migrate", "cli"),
    ("serve", "store_health"),
    ("agents", "cli_agents"),
    ("mcp", "agent_tools"),
    ("doctor", "doctor"),
    ("top", "top"),
    ("keep", "retention"),
    ("stop", "tour"),
    ("completions", "help"),
    ("man", "help"),
    ("help", "help"),
];

/// What it does when it is prompted, with modes and models to choose from.
fn choosing() -> Value {
    let handshake = json!({"newSession": {
        "modes": {"currentModeId": "default", "availableModes": [
            {"id": "default", "name": "Default", "description": "Asks before it changes anything"},
            {"id": "plan", "name": "Plan", "description": "Reads, thinks and changes nothing at all, however long it takes"}]},
        "models": {"currentModelId": "small", "availableModels": [{"modelId": "small", "name": "Small"},
            {"modelId": "large", "name": "Large \u{1b}[2K"}]}}});
    let usage = json!({"stopReason": "end_turn",
        "usage": {"inputTokens": 1_234_567, "outputTokens": 890, "totalTokens": 1_235_457}});
    json!([{"handshake": handshake}, {"repeat": [{"switch": {
        "session/set_mode": [{"reply": {}}],
        "session/set_model": [{"reply": {}}],
        "session/prompt": [{"thought": "hm"}, {"text": "The parser is \u{1b}[2Jfixed.\n\nAnd tested 👩‍👩‍👧‍👦."}, {"reply": usage}]}}]}])
}

fn asking() -> Value {
    let call = json!({"toolCallId": "c1", "title": "Run make install", "kind": "execute", "status": "pending",
        "rawInput": {"command": "make install"}});
    let ask = json!({"request": {"method": "session/request_permission", "params": {"sessionId": "test-session",
        "toolCall": call, "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"}]}}});
    json!([{"handshake": {}}, {"repeat": [{"prompt": [ask, {"textFromAnswer": true}]}]}])
}

async fn start() -> Daemon {
    let builder = Daemon::builder().agent("echo", echo()).agent("choosing", choosing()).agent("asking", asking());
    builder.start().await
}

async fn new(daemon: &Daemon, agent: &str, title: &str) -> String {
    daemon.cli(&["new", "--lazy", "--agent", agent, "--title", title]).await.success().trim().to_owned()
}

async fn be_asked(daemon: &Daemon, session: &str) {
    let accepted = daemon.prompt(session, "go").await;
    daemon.events(session, accepted["after"].as_i64()).await.until("permission.requested").await;
}

/// One of everything that a list can have in it.
async fn furnish(daemon: &mut Daemon) {
    new(daemon, "echo", LONG).await;
    new(daemon, "echo", JAPANESE).await;
    new(daemon, "echo", "👩‍👩‍👧‍👦 a family ❤️ and a flag 🇯🇵").await;
    let suspended = new(daemon, "echo", "suspended").await;
    let rude = new(daemon, "echo", "rude").await;
    // The interface takes no title with control characters; one in the store must not reach the terminal.
    daemon
        .sql(format!(
            "UPDATE sessions SET status = 'suspended' WHERE id = '{suspended}';
             UPDATE sessions SET title = 'rude' || char(27) || '[2K' || char(10) || 'title' WHERE id = '{rude}';
             CREATE TRIGGER resolved AFTER UPDATE OF resolution ON permissions WHEN NEW.resolution IS NOT NULL BEGIN
                 UPDATE permissions SET resolution = json_set(resolution, '$.by.uid', {NO_ACCOUNT}) WHERE id = NEW.id;
             END;
             CREATE TRIGGER ruled AFTER INSERT ON permission_rules BEGIN
                 UPDATE permission_rules SET made_by = json_set(made_by, '$.uid', {NO_ACCOUNT}) WHERE id = NEW.id;
             END"
        ))
        .await;
    let done = new(daemon, "echo", "done").await;
    let choosing = new(daemon, "choosing", "choosing").await;
    let asking = new(daemon, "asking", "asking").await;
    daemon.prompt_and_wait(&choosing, "fix the parser\nplease").await;
    daemon.cli(&["archive", "--reason", "nobody needs it", &done]).await.success();
    be_asked(daemon, &asking).await;
    daemon.cli(&["approve", "--always"]).await.success();
    let other = new(daemon, "asking", "waiting").await;
    be_asked(daemon, &other).await;
}

/// A user without a name, so that a table is as wide for every user who runs the tests.
const NO_ACCOUNT: u32 = 424_242;

/// What differs from run to run. What stands in a column keeps its width.
fn settled() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    let user = format!("by {} with", harness::user_name(rustix::process::geteuid().as_raw()));
    for (pattern, text) in [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "[uuid]"),
        (r"\b[0-9a-f]{12}\b", "[----id----]"),
        (r"\d{4}-\d\d-\d\d(T[\d:.]+Z| \d\d:\d\d:\d\d)", "[time]"),
        (r"\bpid \d+", "pid [pid]"),
        (r"[\d.]+ s CPU", "[time] CPU"),
        (r"(,|\(|has) \d+ (bytes|KiB|MiB)\b", "$1 [size]"),
        (r"\(\d+ [KM]iB\b", "([size]"),
        (r"( \d|\d\d) MiB\b", "[size]"),
        (r"up [\dms. ]+s", "up [time]"),
        (r"\bin \d[dh]\b", "[exp]"),
        (r"in \d+\.\d s", "in [time]"),
        (r"\d+\.\ds", "[s]"),
        (r"\b\d+[sm] ago", "[age] ago"),
        (r"( \d|\d\d)[sm]\b", "[s]"),
        (r"/\S*/acpd-\w+", "[root]"),
        (r"…\S*(/\w+)", "…$1"),
        (&user, "by [user] with"),
        (r"(?m)^kernel.*(\n +.*)*", "kernel [kernel]"),
        (r"(?m)^(warning|store) .*(\n {5,}.*)*\n", ""),
    ] {
        settings.add_filter(pattern, text);
    }
    settings
}

/// A program's view and two people's. `rows` are enough for everything.
async fn pictures(daemon: &Daemon, arguments: &[&str]) -> String {
    let piped = daemon.cli(arguments).await;
    assert!(!piped.stdout.contains('\u{1b}'), "no colours for a program: {:?}", piped.stdout);
    let mut text = format!("piped, exit code {}\n{}{}", piped.code, piped.stdout, piped.stderr);
    for columns in [80, 140] {
        let end = daemon.terminal(columns, 60, arguments).ended().await;
        assert_eq!(end.code, piped.code, "{arguments:?}");
        let _ = write!(text, "\n--- {columns} columns\n{}\n", end.screen);
    }
    for line in text.lines() {
        assert_eq!(line, line.trim_end(), "a line of {arguments:?} ends with spaces");
    }
    text
}

#[tokio::test]
async fn every_command_is_what_a_person_expects() {
    let mut daemon = start().await;
    furnish(&mut daemon).await;
    for (name, arguments) in SHOWN {
        let pictures = pictures(&daemon, arguments).await;
        settled().bind(|| insta::assert_snapshot!(name, pictures));
        let json: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let output = daemon.cli(&json).await;
        assert!(serde_json::from_str::<Value>(&output.stdout).is_ok(), "{json:?}: {}", output.stdout);
    }
}

#[tokio::test]
async fn a_command_that_is_added_has_its_picture() {
    let daemon = Daemon::start().await;
    let help = daemon.cli(&["help"]).await.success();
    // The commands stand in groups, indented by two, before the options.
    let list = help.split("Global options:").next().unwrap();
    let commands =
        list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    let mut count = 0;
    for command in commands {
        count += 1;
        let is_shown = SHOWN.iter().any(|(_, arguments)| arguments[0] == command);
        let is_elsewhere = ELSEWHERE.iter().any(|(name, _)| *name == command);
        assert!(is_shown || is_elsewhere, "there is no picture of `acpd {command}`: add it to SHOWN or name its test");
    }
    assert!(count > 20, "{list}");
}

#[tokio::test]
async fn without_sessions_lists_are_empty_and_say_what_to_do() {
    let daemon = Daemon::start().await;
    let mut text = String::new();
    for arguments in [["ls", "--all"], ["permissions", "--all"], ["workspaces", "--all"], ["search", "x"]] {
        let _ = writeln!(text, "$ acpd {}\n{}", arguments.join(" "), pictures(&daemon, &arguments).await);
    }
    let elsewhere = daemon.cli(&["ls", "-C", "/"]).await;
    assert_eq!((elsewhere.code, elsewhere.stdout.as_str()), (0, ""), "a directory without sessions is no error");
    assert_eq!(daemon.cli(&["ls", "-C", "/", "--json"]).await.json()["total"], 0);
    settled().bind(|| insta::assert_snapshot!(text));
}

#[tokio::test]
async fn mistakes_are_told_with_what_was_meant() {
    let daemon = start().await;
    new(&daemon, "echo", "fix the test").await;
    new(&daemon, "choosing", "choosing").await;
    daemon.cli(&["prompt", "choosing", "hello"]).await.success();
    let mistakes: [&[&str]; 25] = [
        &["show", "fix teh test"],
        &["show", "Fix The Test"],
        &["show", "the test"],
        &["show", "nothing like it"],
        &["mode", "choosing", "plna"],
        &["model", "choosing", "huge"],
        &["new", "--agent", "ecko"],
        &["ls", "--agent", "ecko"],
        &["ls", "--status", "actve"],
        &["ls", "-C", "/nowhere/at/all"],
        &["messages", "choosing", "--since", "soon"],
        &["sohw", "choosing"],
        &["fix the bug"],
        &["help", "promt"],
        &["help", "run", "--json"],
        &["prompt", "fix the thing"],
        &["prompt", "fix"],
        &["prompt", "choosing"],
        &["search", ""],
        &["backup", "/nope/x"],
        &["new", "--agent", "echo", "--title", "a\u{1b}"],
        &["cancel", "choosing"],
        &["agents", "show", "ecko"],
        &["agents", "check", "ecko"],
        &["agents", "add", "bad name", "--command", "/bin/true"],
    ];
    let mut text = String::new();
    for arguments in mistakes {
        let output = daemon.cli(arguments).await;
        let _ = writeln!(text, "$ acpd {arguments:?}: {}\n{}{}", output.code, output.stdout, output.stderr);
    }
    settled().bind(|| insta::assert_snapshot!(text));
}

#[tokio::test]
async fn several_sessions_are_each_attempted_and_get_a_line() {
    let daemon = start().await;
    for title in ["one", "two", "three", "four"] {
        new(&daemon, "echo", title).await;
    }
    let mixed = daemon.cli(&["archive", "one", "nobody", "two"]).await;
    assert_eq!((mixed.code, mixed.stdout.lines().count()), (1, 2), "{}", mixed.stderr);
    assert!(mixed.stdout.lines().all(|line| line.len() == 36), "ids for a program: {}", mixed.stdout);
    assert!(mixed.stderr.contains("no session \"nobody\""), "{}", mixed.stderr);
    let json = daemon.cli(&["archive", "one", "two", "--json"]).await.success();
    let statuses: Vec<Value> =
        json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].take()).collect();
    assert_eq!(statuses, ["archived", "archived"]);

    let mut text = String::new();
    for arguments in [
        ["archive", "three", "one"],
        ["resume", "four", "one"],
        ["cancel", "four", "one"],
        ["rm", "four", "--reason=enough"],
        ["rm", "--purge", "nobody"],
    ] {
        let end = daemon.terminal(80, 24, &arguments).ended().await;
        let _ = writeln!(text, "$ acpd {}: {}\n{}\n", arguments.join(" "), end.code, end.screen);
    }
    settled().bind(|| insta::assert_snapshot!(text));
}

#[tokio::test]
async fn a_dash_means_one_session_for_the_whole_command() {
    let daemon = start().await;
    let one = new(&daemon, "echo", "one").await;
    let two = new(&daemon, "echo", "two").await;
    assert_eq!(daemon.cli(&["archive", "-", "-", &two]).await.success().trim(), two);
    assert_eq!(daemon.session(&one).await["status"], "active");
}

#[tokio::test]
async fn a_person_is_asked_before_several_sessions_are_archived() {
    let daemon = start().await;
    for title in ["one", "two"] {
        new(&daemon, "echo", title).await;
    }
    let mut terminal = daemon.terminal(80, 24, &["rm", "one", "two"]);
    terminal.shows("Archive them? [y/N]").await;
    terminal.types("\n");
    let no = terminal.ended().await;
    assert!(no.code == 1 && no.screen.contains("nothing was archived"), "{}", no.screen);
    let mut terminal = daemon.terminal(80, 24, &["rm", "one", "two"]);
    terminal.shows("Archive them? [y/N]").await;
    terminal.types("y\n");
    assert_eq!(terminal.ended().await.code, 0);
    assert_eq!(daemon.cli(&["ls", "--json"]).await.json()["total"], 0);
}

#[tokio::test]
async fn a_person_is_asked_before_sessions_are_deleted_for_good() {
    let daemon = start().await;
    for title in ["one", "two", "three"] {
        new(&daemon, "echo", title).await;
    }
    let mut terminal = daemon.terminal(80, 24, &["rm", "--purge", "one", "two"]);
    terminal.shows("[y/N]").await;
    terminal.types("\n");
    let no = terminal.ended().await;
    assert_eq!(no.code, 1);
    settled().bind(|| insta::assert_snapshot!("rm_declined", no.screen));
    let mut terminal = daemon.terminal(80, 24, &["rm", "--purge", "one"]);
    terminal.shows("[y/N]").await;
    terminal.types("y\n");
    let yes = terminal.ended().await;
    assert_eq!(yes.code, 0);
    settled().bind(|| insta::assert_snapshot!("rm_agreed", yes.screen));
    let forced = daemon.terminal(80, 24, &["rm", "--purge", "--force", "two"]).ended().await;
    assert_eq!(forced.code, 0, "{}", forced.screen);
    daemon.cli(&["rm", "--purge", "three"]).await.success();
    assert_eq!(daemon.cli(&["ls", "--all", "--json"]).await.json()["total"], 0);
}

#[tokio::test]
async fn answers_changes_and_copies_are_confirmed() {
    let daemon = start().await;
    let asking = new(&daemon, "asking", "asking").await;
    let choosing = new(&daemon, "choosing", "choosing").await;
    daemon.prompt_and_wait(&choosing, "hello").await;
    let mut text = String::new();
    for arguments in [
        &["approve"][..],
        &["reject"],
        &["mode", "choosing", "plan"],
        &["model", "choosing", "Large [2K"],
        &["model", "choosing", "large"],
        &["backup", "copy.db"],
        &["backup", "copy.db"],
        &["workspaces", "add", "."],
        &["workspaces", "rm", "."],
    ] {
        if matches!(arguments[0], "approve" | "reject") {
            be_asked(&daemon, &asking).await;
        }
        let end = daemon.terminal(120, 24, arguments).ended().await;
        let _ = writeln!(text, "$ acpd {}: {}\n{}\n", arguments.join(" "), end.code, end.screen);
    }
    assert_eq!(daemon.cli(&["mode", "choosing", "default"]).await.success(), "default\n");
    settled().bind(|| insta::assert_snapshot!(text));
}

#[tokio::test]
async fn statuses_have_their_colours_and_no_color_has_none() {
    let mut daemon = start().await;
    furnish(&mut daemon).await;
    let written = daemon.terminal(140, 40, &["ls", "--all"]).ended().await.written;
    for coloured in ["\x1b[32mactive", "\x1b[33msuspended", "\x1b[2marchived", "\x1b[33m? 1", "\x1b[1mID"] {
        assert!(written.contains(coloured), "{coloured:?} in {written:?}");
    }
    let mut command = daemon.client(&["ls", "--all"]);
    command.env("NO_COLOR", "1");
    let plain = harness::Terminal::start(140, 40, &command).ended().await.written;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
}

#[tokio::test]
async fn a_list_that_is_watched_keeps_up_and_leaves_the_terminal_as_it_was() {
    let daemon = start().await;
    new(&daemon, "echo", "the first").await;
    let mut terminal = daemon.terminal(100, 12, &["ls", "--watch"]);
    terminal.shows("the first").await;
    assert!(!terminal.is_sane(), "it has the whole screen");
    let second = new(&daemon, "echo", "the second").await;
    terminal.shows("the second").await;
    assert!(terminal.keeps_output(), "Ctrl-C must not discard a part of a picture");
    daemon.prompt_and_wait(&second, "hello").await;
    terminal.shows("MiB").await;
    terminal.resize(60, 12);
    terminal.settles("a narrower table", |screen| !screen.contains("TURNS") && screen.contains("the second")).await;
    terminal.types(CTRL_C);
    let end = terminal.ended().await;
    assert_eq!(end.code, 0);
    assert!(end.screen.contains("the second"), "what was seen last stays: {}", end.screen);
    assert!(end.written.contains("\x1b[?25h") && end.written.contains("\x1b[?1049l"), "{:?}", end.written);

    let mut terminal = daemon.terminal(100, 12, &["ls", "--watch"]);
    terminal.shows("the first").await;
    terminal.types(CTRL_Z);
    process_stopped(terminal.pid()).await;
    within("the shell has its screen back", async {
        while !terminal.is_sane() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    signal(terminal.pid(), Signal::SIGCONT);
    terminal.settles("the list is there again", |screen| screen.contains("the first")).await;
    terminal.types("q");
    assert_eq!(terminal.ended().await.code, 0);
}

#[tokio::test]
async fn a_conversation_is_read_through_the_pager_that_is_named() {
    let daemon = start().await;
    let session = new(&daemon, "echo", "talk").await;
    for prompt in ["alpha", "beta", "gamma"] {
        daemon.prompt_and_wait(&session, prompt).await;
    }
    let mut command = daemon.client(&["messages", "talk"]);
    command.env("ACPD_PAGER", "sed 's/^/paged: /'");
    let paged = harness::Terminal::start(80, 40, &command).ended().await;
    assert!(paged.screen.contains("paged: alpha"), "{}", paged.screen);
    let plain = daemon.terminal(80, 40, &["messages", "--no-pager", "talk"]).ended().await;
    assert!(plain.screen.contains("\nalpha") && !plain.screen.contains("paged"), "{}", plain.screen);
    // A reader who has seen enough ends it.
    let mut command = daemon.client(&["messages", "talk"]);
    command.env("PAGER", "head -1");
    assert_eq!(harness::Terminal::start(80, 40, &command).ended().await.code, 0);

    let count = async |arguments: &[&str]| {
        let arguments: Vec<&str> =
            ["messages", "talk", "--json"].into_iter().chain(arguments.iter().copied()).collect();
        let json = daemon.cli(&arguments).await.json();
        assert_eq!(json["total"], if arguments.contains(&"2099-01-01") { 0 } else { 6 });
        json["messages"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]).await, 6);
    assert_eq!(count(&["--role", "user"]).await, 3);
    assert_eq!(count(&["--role", "user", "-n", "2"]).await, 2);
    assert_eq!(count(&["--last", "1"]).await, 1);
    assert_eq!(count(&["--after", "4"]).await, 2);
    assert_eq!(count(&["--since", "1h"]).await, 6);
    assert_eq!(count(&["--since", "2099-01-01"]).await, 0);
}
