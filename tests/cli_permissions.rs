//! Questions of agents on the command line: listed, answered from anywhere, and asked on the terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::process::Stdio;

use harness::{CTRL_C, Daemon, Ended, Terminal, process_stopped, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

const PROMPT: &str = "[q] decide later > ";

fn question(verb: &str, tool_call: &Value) -> Value {
    json!({verb: {"method": "session/request_permission", "params": {"sessionId": "test-session", "toolCall": tool_call,
    "options": [
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"}
    ]}}})
}

fn run(command: &str) -> Value {
    json!({"toolCallId": "c1", "title": format!("Run {command}"), "kind": "execute", "status": "pending",
        "rawInput": {"command": command}})
}

/// An agent that asks one thing in every turn, and says what it was told.
fn asking(tool_call: &Value) -> Value {
    json!([{"handshake": {}}, {"repeat": [{"prompt": [question("request", tool_call), {"textFromAnswer": true}]}]}])
}

/// The questions that are open.
async fn open(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.get("/v1/permissions").await.expect_status(200);
    list["permissions"].as_array().unwrap().clone()
}

async fn prompt_and_be_asked(daemon: &Daemon, session: &str) {
    let accepted = daemon.prompt(session, "go").await;
    daemon.events(session, accepted["after"].as_i64()).await.until("permission.requested").await;
}

/// The only question there ever was.
async fn resolution(daemon: &Daemon) -> Value {
    let all = daemon.get("/v1/permissions?status=all").await.expect_status(200);
    assert_eq!(all["total"], 1);
    all["permissions"][0]["resolution"].clone()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

#[tokio::test]
async fn a_piped_run_says_what_answers_it_and_goes_on_waiting() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make\u{1b}[2J install"))).start().await;
    for format in [&[][..], &["--json"]] {
        let arguments = [&["run", "--agent", "asking", "go"], format].concat();
        let mut command = daemon.client(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("acpd can be started");
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let session = within("a line on stderr", stderr.next_line()).await.unwrap().unwrap();
        assert!(session.starts_with("acpd: session "), "{session}");
        let warned = within("a line on stderr", stderr.next_line()).await.unwrap().unwrap();
        assert_eq!(warned, "acpd: asking may act without asking", "acpd has no adapter for it");
        let told = within("a line on stderr", stderr.next_line()).await.unwrap().unwrap();
        let asked = open(&daemon).await.remove(0);
        let short = &text(&asked, "id")[24..];
        assert_eq!(
            told,
            format!(
                "acpd: the agent waits for an answer: $ make\\u{{1b}}[2J install; answer with `acpd approve {short}` or `acpd \
                 reject {short}`"
            )
        );
        assert_eq!(daemon.cli(&["approve"]).await.success().trim(), text(&asked, "id"));
        let ended = within("the end of acpd", child.wait_with_output()).await.unwrap();
        let stdout = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success() && stdout.contains("once"), "the turn went on: {stdout}");
        if !format.is_empty() {
            assert!(stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{stdout}");
        }
    }
}

#[tokio::test]
async fn a_prompt_that_waits_for_an_open_request_names_the_command_that_lists_it() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make"))).start().await;
    let session = daemon.create_session("asking").await;
    prompt_and_be_asked(&daemon, &session).await;
    let mut command = daemon.client(&["prompt", &session, "and then"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("acpd can be started");
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = within("a line on stderr", stderr.next_line()).await.unwrap().unwrap();
    assert_eq!(told, "hint: the running turn waits for an answer; `acpd permissions` lists the requests");
}

#[tokio::test]
async fn what_is_open_is_listed_and_answered_by_a_part_of_its_id() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make install"))).start().await;
    let none = daemon.cli(&["approve"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (1, ""));
    insta::assert_snapshot!(none.stderr, @r"
    error: there are no open permission requests
    hint: `acpd permissions --all` lists answered requests and who answered them
    ");
    assert_eq!(daemon.cli(&["permissions"]).await.success(), "");

    let sessions = [daemon.create_session("asking").await, daemon.create_session("asking").await];
    for session in &sessions {
        prompt_and_be_asked(&daemon, session).await;
    }
    let asked = open(&daemon).await;
    let table = daemon.cli(&["permissions"]).await.success();
    insta::with_settings!({filters => vec![(r"[0-9a-f]{12}", "[id]"), (r" +\d+m?s", " [age]"), (r"/\S*/", "[root]/"), (r" {2,}", "  ")]}, {
        insta::assert_snapshot!(table);
    });
    assert_eq!(daemon.cli(&["permissions", "--json"]).await.json()["total"], 2);
    assert_eq!(daemon.cli(&["permissions", "--json", &sessions[0]]).await.json()["total"], 1);

    let several = daemon.cli(&["reject"]).await;
    assert_eq!(several.code, 1);
    assert!(several.stderr.starts_with("error: 2 permission requests are open:\n"), "{}", several.stderr);
    for permission in &asked {
        assert!(several.stderr.contains(&text(permission, "id")[24..]), "{}", several.stderr);
    }
    let nobody = daemon.cli(&["approve", "ffffffff"]).await;
    assert!(
        nobody.code == 1 && nobody.stderr.contains("there is no permission request \"ffffffff\""),
        "{}",
        nobody.stderr
    );
    let nonsense = daemon.cli(&["approve", text(&asked[0], "id"), "--option", "maybe"]).await;
    assert!(nonsense.code == 1 && nonsense.stderr.contains("always, once, no"), "{}", nonsense.stderr);
    assert_eq!(daemon.cli(&["approve", "--always", "--option", "once"]).await.code, 2);

    let short = &text(&asked[0], "id")[24..];
    daemon.cli(&["reject", short]).await.success();
    let late = daemon.cli(&["approve", short]).await;
    assert_eq!(late.code, 9, "{}", late.stderr);
    assert!(late.stderr.contains("was rejected ") && late.stderr.contains("with acpd"), "{}", late.stderr);
    daemon.cli(&["approve", "--option", "once"]).await.success();
    let all = daemon.cli(&["permissions", "--all"]).await.success();
    assert!(all.contains("rejected") && all.contains("allowed") && all.contains("with acpd"), "{all}");
}

#[tokio::test]
async fn always_is_a_rule_that_is_listed_and_taken_back() {
    let daemon = Daemon::builder().agent("asking", asking(&run("cargo test"))).start().await;
    let session = daemon.create_session("asking").await;
    prompt_and_be_asked(&daemon, &session).await;
    daemon.cli(&["approve", "--always"]).await.success();
    let listed = daemon.cli(&["rules", &session]).await.success();
    assert!(listed.contains("allow") && listed.contains("execute: cargo test"), "{listed}");
    let ran = daemon.cli(&["prompt", &session, "again"]).await;
    assert!(ran.stderr.contains("permission allowed: $ cargo test (rule"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("waits"), "what a rule answers waits for nobody: {}", ran.stderr);
    let all = daemon.cli(&["permissions", "--all", "--json"]).await.json();
    assert_eq!(all["permissions"][0]["resolution"]["by"]["type"], "policy");

    let id = text(&daemon.cli(&["rules", &session, "--json"]).await.json()["rules"][0], "id").to_owned();
    let unknown = daemon.cli(&["rules", &session, "--revoke", "ffff0000"]).await;
    assert!(unknown.code == 1 && unknown.stderr.contains("has no rule"), "{}", unknown.stderr);
    assert_eq!(daemon.cli(&["rules", &session, "--revoke", &id[24..]]).await.success().trim(), id);
    assert_eq!(daemon.cli(&["rules", &session]).await.success(), "");
}

#[tokio::test]
async fn a_terminal_shows_the_change_and_takes_the_answer() {
    let edit = json!({"toolCallId": "c1", "title": "Edit a.txt\u{1b}]0;owned\u{7}", "kind": "edit", "status": "pending",
        "content": [{"type": "diff", "path": "a.txt", "oldText": "one\ntwo\n", "newText": "one\n\u{9b}2Jthree\n"}]});
    let daemon = Daemon::builder().agent("asking", asking(&edit)).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    let shown = terminal.until(PROMPT).await;
    for line in [r"Edit a.txt\u{1b}]0;owned\u{7}", "- two", r"+ \u{9b}2Jthree", "  one"] {
        assert!(shown.contains(line), "{line:?} is not in {shown:?}");
    }
    terminal.types("what?\n");
    terminal.until("one of the letters").await;
    terminal.until(PROMPT).await;
    terminal.types("y\n");
    terminal.until("permission allowed: a.txt — Edit a.txt").await;
    let Ended { code, written: screen, .. } = terminal.ended().await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\"optionId\":\"once\""), "the turn went on: {screen}");
    for (sequence, what) in [("\u{1b}]", "a title"), ("\u{9b}", "a control sequence"), ("\u{7}", "a bell")] {
        assert!(!screen.contains(sequence), "{what} of the agent's reached the terminal: {screen:?}");
    }
    let resolution = resolution(&daemon).await;
    assert_eq!((&resolution["decision"], &resolution["by"]["program"]), (&json!("allow"), &json!("acpd")));
}

#[tokio::test]
async fn of_two_terminals_one_answers_and_the_other_is_told_who() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make"))).start().await;
    let mut first = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    first.until(PROMPT).await;
    let mut second = daemon.terminal(140, 50, &["attach", "-"]);
    second.until(PROMPT).await;
    second.types("n\n");
    let who = first.until("with acpd)").await;
    let user = harness::user_name(rustix::process::geteuid().as_raw());
    assert!(who.contains(&format!("permission rejected: $ make ({user} with ")), "{who:?}");
    let Ended { code, written: screen, .. } = first.ended().await;
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains("hint:"), "a person who rejects needs no advice: {screen}");
    second.until("\"optionId\":\"no\"").await;
    second.types(CTRL_C);
    let Ended { code, written: screen, .. } = second.ended().await;
    assert_eq!(code, 130, "{screen}");
}

#[tokio::test]
async fn questions_are_asked_one_by_one_and_what_goes_on_meanwhile_is_shown_after() {
    let script = json!([{"handshake": {}}, {"prompt": [question("ask", &run("one")), question("ask", &run("two")),
        {"gate": "asked"}, {"text": "meanwhile"}, {"gate": "said"}, {"awaitAnswer": true}, {"awaitAnswer": true}]},
        {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("asking", script).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    assert!(terminal.until(PROMPT).await.contains("$ one"));
    daemon.gate("asking").reached("asked").await.open().await;
    let said = daemon.gate("asking").reached("said").await;
    let session = text(&open(&daemon).await[0], "sessionId").to_owned();
    daemon.events(&session, None).await.until("message.delta").await;
    terminal.types("a\n");
    assert!(!terminal.until("a\r\n").await.contains("meanwhile"));
    terminal.until("permission allowed always: $ one").await;
    let next = terminal.until(PROMPT).await;
    assert!(next.contains("$ two"), "{next}");
    said.open().await;
    terminal.types("n\n");
    let Ended { code, written: screen, .. } = terminal.ended().await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("meanwhile") && screen.contains("permission rejected: $ two"), "{screen}");
    assert!(daemon.cli(&["rules", &session]).await.success().contains("execute: one"));
}

#[tokio::test]
async fn what_was_typed_before_the_question_is_no_answer_to_it() {
    let script = json!([{"handshake": {}}, {"prompt": [{"text": "hello"}, {"gate": "before"},
        question("request", &run("rm -rf /")), {"textFromAnswer": true}]}, {"expect": "session/prompt"}]);
    let daemon = Daemon::builder().agent("asking", script).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    terminal.until("hello").await;
    let passage = daemon.gate("asking").reached("before").await;
    terminal.types("y\n");
    // Keys are not echoed; this one is answered, so those before it were taken.
    terminal.types("?");
    terminal.until("? lists keys").await;
    passage.open().await;
    terminal.until(PROMPT).await;
    terminal.types("n\n");
    assert_eq!(terminal.ended().await.code, 0);
    assert_eq!(resolution(&daemon).await["decision"], "reject");
}

#[tokio::test]
async fn a_question_can_be_seen_whole_and_left_for_later() {
    let many = "line\n".repeat(99) + "the last\n";
    let edit = json!({"toolCallId": "c1", "title": "Write b.txt", "kind": "edit", "status": "pending",
        "content": [{"type": "diff", "path": "b.txt", "oldText": null, "newText": many}]});
    let daemon = Daemon::builder().agent("asking", asking(&edit)).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    let brief = terminal.until(PROMPT).await;
    assert!(brief.contains("more lines") && brief.contains("[d] show all") && !brief.contains("the last"), "{brief}");
    terminal.types("d\n");
    assert!(terminal.until(PROMPT).await.contains("+ the last"));
    terminal.types("q\n");
    let later = terminal.until("`acpd reject ").await;
    assert!(later.contains("the agent waits for an answer: Write b.txt"), "{later}");
    daemon.cli(&["approve"]).await.success();
    let Ended { code, written: screen, .. } = terminal.ended().await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\"optionId\":\"once\""), "{screen}");
}

/// A dangerous command, with a text that wants to look like another question.
fn forged() -> Value {
    let rows = ["? Read README.md", "  │ $ cat README.md", "[y] once  [a] always  [n] reject  [q] decide later >"];
    let rows = rows.map(|row| format!("{row:<80}")).concat();
    let text = format!("{}{}{rows}", "\n".repeat(26), " ".repeat(76));
    json!({"toolCallId": "c1", "title": "Delete everything", "kind": "execute", "status": "pending",
        "rawInput": {"command": "rm -rf ~"}, "content": [{"type": "content", "content": {"type": "text", "text": text}}]})
}

#[tokio::test]
async fn no_text_of_an_agents_looks_like_a_question_or_hides_one() {
    let daemon = Daemon::builder().agent("asking", asking(&forged())).start().await;
    for (columns, rows, prompt) in [(80, 24, PROMPT), (40, 10, PROMPT), (20, 5, "y/a/n/d/q > ")] {
        let mut terminal = daemon.terminal(columns, rows, &["run", "--agent", "asking", "go"]);
        let is_asked = |screen: &str| {
            let lines: Vec<&str> = screen.lines().collect();
            let questions: Vec<&&str> = lines.iter().filter(|line| line.starts_with('?')).collect();
            let is_whole = screen.replace('\n', "").ends_with(prompt.trim_end());
            !questions.is_empty() && questions.iter().all(|line| line.starts_with("? $ rm -rf ~")) && is_whole
        };
        let asked = terminal.settles("the question", is_asked).await;
        assert!(asked.contains("\n  │ $ rm -rf ~\n"), "{asked}");
        terminal.types("d\n");
        terminal.until("cat").await;
        let whole = terminal.settles("all of it", is_asked).await;
        for line in whole.lines().filter(|line| line.contains("README") || line.contains("decide later >")) {
            assert!(line.starts_with("  │ ") || whole.replace('\n', "").ends_with(line), "{line:?} in {whole}");
        }
        terminal.types("n\n");
        assert_eq!(terminal.ended().await.code, 0);
    }
}

#[tokio::test]
async fn after_whatever_came_between_the_question_is_asked_again() {
    let mut daemon = Daemon::builder().agent("asking", asking(&run("make"))).start().await;
    let mut terminal = daemon.terminal(100, 30, &["run", "--agent", "asking", "go"]);
    terminal.until(PROMPT).await;
    let client = Pid::from_raw(terminal.pid().cast_signed());
    kill(client, Signal::SIGTSTP).unwrap();
    process_stopped(terminal.pid()).await;
    kill(client, Signal::SIGCONT).unwrap();
    let again = terminal.until(PROMPT).await;
    assert!(again.contains("$ make"), "{again}");

    terminal.types("y");
    daemon.kill().await;
    terminal.until("the daemon was killed").await;
    let again = terminal.until(PROMPT).await;
    assert!(again.contains("$ make"), "{again}");
    let screen = terminal.ended().await.screen;
    assert!(screen.contains("decide later > y\nacpd: the daemon was killed"), "on a line of its own: {screen}");
    daemon.cli(&["stop"]).await.success();
}

#[tokio::test]
async fn a_question_is_asked_on_the_terminal_also_when_stdin_is_a_pipe() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make"))).start().await;
    let line = "echo 'diff --git a b' | \"$1\" run --agent asking 'review this'";
    let mut terminal = Terminal::start(100, 30, &daemon.shell(line));
    terminal.until(PROMPT).await;
    terminal.types("y\n");
    let end = terminal.ended().await;
    assert!(end.code == 0 && end.is_sane, "{}", end.screen);
    assert!(end.screen.contains("permission allowed: $ make"), "{}", end.screen);
    assert_eq!(resolution(&daemon).await["decision"], "allow");
}

#[tokio::test]
async fn ctrl_c_while_asked_cancels_the_turn() {
    let daemon = Daemon::builder().agent("asking", asking(&run("make"))).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    terminal.until(PROMPT).await;
    terminal.types(CTRL_C);
    terminal.until("cancelling the turn").await;
    let Ended { code, written: screen, .. } = terminal.ended().await;
    assert_eq!(code, 5, "{screen}");
    assert_eq!(resolution(&daemon).await["by"], json!({"type": "cancelled", "reason": "the turn was cancelled"}));
}

#[tokio::test]
async fn what_an_agent_wants_to_know_is_asked_field_by_field() {
    let properties = json!({"name": {"type": "string"}, "tls": {"type": "boolean"}});
    let elicit = json!({"request": {"method": "elicitation/create", "params": {"sessionId": "test-session", "mode": "form",
        "message": "Which database?", "requestedSchema": {"type": "object", "properties": properties, "required": ["name"]}}}});
    let script = json!([{"handshake": {}}, {"repeat": [{"prompt": [elicit, {"textFromAnswer": true}]}]}]);
    let daemon = Daemon::builder().agent("curious", script).start().await;
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "curious", "go"]);
    assert!(terminal.until(PROMPT).await.contains("Which database?"));
    for (line, next) in [("y", "name > "), ("main", "[n] no > "), ("perhaps", "type y or n"), ("y", "\"tls\":true")] {
        terminal.types(&format!("{line}\n"));
        terminal.until(next).await;
    }
    let Ended { code, written: screen, .. } = terminal.ended().await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\"name\":\"main\""), "{screen}");

    let session = text(&daemon.cli(&["ls", "--json"]).await.json()["sessions"][0], "id").to_owned();
    prompt_and_be_asked(&daemon, &session).await;
    let bare = daemon.cli(&["approve"]).await;
    assert!(bare.code == 1 && bare.stderr.contains("requests values"), "{}", bare.stderr);
    daemon.cli(&["approve", "--content", "{\"name\": \"other\"}"]).await.success();
    let mut events = daemon.events(&session, None).await;
    events.until("turn.completed").await;
    events.until("turn.completed").await;
    let said = daemon.cli(&["messages", &session]).await.success();
    assert!(said.contains("other"), "the agent was told: {said}");
}

/// Characters that hide or reorder text are shown escaped wherever a request is shown, and the command comes first.
#[tokio::test]
async fn what_is_shown_is_what_runs() {
    let title = format!("Read README.md {}", "and nothing else ".repeat(40));
    let command = "echo\u{a0}hi\u{202e}\u{200b}\r\u{1b}[2K\u{e0041};\nrm -rf ~";
    let call = json!({"toolCallId": "c1", "title": title, "kind": "execute", "status": "pending",
        "rawInput": {"command": "sh", "args": ["-c", command], "workdir": "su\u{202e}b", "env": {"LD_PRELOAD": "./x.so"}}});
    let daemon = Daemon::builder().agent("asking", asking(&call)).start().await;
    let escaped = r"hi\u{202e}\u{200b}\r\u{1b}[2K\u{e0041};\nrm -rf ~";
    let mut terminal = daemon.terminal(140, 50, &["run", "--agent", "asking", "go"]);
    let screen = terminal.until(PROMPT).await;
    assert!(screen.contains(escaped) && screen.find("$ sh -c") < screen.find("Read README.md"), "{screen}");
    for shown in ["LD_PRELOAD", "./x.so", r"su\u{202e}b", escaped, "Read README.md"] {
        assert!(screen.contains(shown), "{shown} is not in {screen}");
    }
    let table = daemon.cli(&["permissions"]).await.success();
    assert!(table.contains("$ sh -c ") && table.contains(escaped), "{table}");
    let answered = daemon.terminal(2000, 9, &["approve"]).ended().await.screen;
    assert!(answered.contains("allowed: $ sh -c ") && answered.contains(escaped), "{answered}");
    terminal.until("permission allowed: $ sh -c ").await;
    assert_eq!(terminal.ended().await.code, 0);
    let raw = daemon.get("/v1/permissions?status=all").await.expect_status(200);
    assert_eq!(raw["permissions"][0]["action"]["command"][2], command, "the API's JSON is raw");
}
