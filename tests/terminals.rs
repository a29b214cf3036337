//! Terminals: commands that agents have run by acpd, bounded, as the policy says, and gone with their agent.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::{
    Cgroup, Daemon, DaemonBuilder, Event, IMPATIENT, members, pid_of, process_alive, process_gone, signal, within,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const ANY: &str = "permissions = \"allow\"\nterminal_commands = [\"*\"]";
const NOT_FOUND: i64 = -32002;
const INVALID: i64 = -32602;

fn create(command: &str, args: &[&str]) -> Value {
    create_with(command, args, &json!({}))
}

fn create_with(command: &str, args: &[&str], more: &Value) -> Value {
    let mut params = json!({"sessionId": "test-session", "command": command, "args": args});
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    json!({"request": {"method": "terminal/create", "params": params}})
}

fn shell(line: &str) -> Value {
    create("/bin/sh", &["-c", line])
}

fn call(method: &str, terminal: &str) -> Value {
    let params = json!({"sessionId": "test-session", "terminalId": terminal});
    json!({"request": {"method": format!("terminal/{method}"), "params": params}})
}

fn ask(method: &str, terminal: &str) -> Value {
    json!({"ask": call(method, terminal)["request"]})
}

/// A script with one prompt, which makes these requests and tells each answer on a line of its own.
fn asking(requests: Vec<Value>) -> Value {
    let told = |request: Value| {
        let is_silent = request.get("ask").is_some() || request.get("gate").is_some();
        let mut steps = vec![request];
        if !is_silent {
            steps.extend([json!({"textFromAnswer": true}), json!({"text": "\n"})]);
        }
        steps
    };
    let steps: Vec<Value> = requests.into_iter().flat_map(told).collect();
    json!([{"handshake": {}}, {"repeat": [{"prompt": steps}]}])
}

async fn said(daemon: &Daemon, session: &str) -> Vec<Value> {
    let messages = daemon.messages(session).await;
    let said = messages.iter().filter(|message| message["role"] == "agent");
    let text: String = said.map(|message| message["content"]["text"].as_str().unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Has the agent make its requests once, and returns the answers and the session.
async fn answers(daemon: &Daemon, agent: &str) -> (Vec<Value>, String) {
    let session = daemon.create_session(agent).await;
    let turn = daemon.prompt_and_wait(&session, "go").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    (said(daemon, &session).await, session)
}

async fn run(builder: DaemonBuilder, settings: &str, requests: Vec<Value>) -> (Daemon, Vec<Value>, String) {
    let daemon = builder.agent_with("terminals", asking(requests), settings).start().await;
    let (answers, session) = answers(&daemon, "terminals").await;
    (daemon, answers, session)
}

async fn events(daemon: &Daemon, session: &str, kind: &str) -> Vec<Event> {
    daemon.events_so_far(session, None).await.into_iter().filter(|event| event.kind == kind).collect()
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn a_command_runs_and_its_output_and_status_are_told() {
    let builder = Daemon::builder();
    let workspace = builder.workspace().to_owned();
    fs::create_dir(workspace.join("sub")).unwrap();
    let line = "echo out; echo err >&2; echo $PWD; read x || echo eof; exit 3";
    let more = json!({"cwd": workspace.join("sub"), "env": [{"name": "CI", "value": "hi"}]});
    let (daemon, answers, session) = run(
        builder,
        ANY,
        vec![
            create_with("/bin/sh", &["-c", line], &more),
            call("wait_for_exit", "{terminal0}"),
            call("output", "{terminal0}"),
            call("wait_for_exit", "{terminal0}"),
            call("kill", "{terminal0}"),
            call("release", "{terminal0}"),
            call("output", "{terminal0}"),
        ],
    )
    .await;
    let id = answers[0]["terminalId"].as_str().unwrap();
    let status = json!({"exitCode": 3, "signal": null});
    let output = format!("out\nerr\n{}\neof\n", workspace.join("sub").display());
    assert_eq!(answers[1], status);
    assert_eq!(answers[2], json!({"output": output, "truncated": false, "exitStatus": status}));
    assert_eq!(answers[3..6], [status, json!({}), json!({})]);
    assert_eq!((&answers[6]["code"], message(&answers[6]).contains(id)), (&json!(NOT_FOUND), true));

    let created = events(&daemon, &session, "terminal.created").await;
    let expected = json!({
        "terminalId": id, "command": ["/bin/sh", "-c", line], "cwd": "sub", "env": {"CI": "hi"},
        "decidedBy": "policy session mode allow",
    });
    assert_eq!(*created[0].payload(), expected);
    let exited = events(&daemon, &session, "terminal.exited").await;
    assert_eq!(*exited[0].payload(), json!({"terminalId": id, "exitCode": 3, "signal": null}));
}

#[tokio::test]
async fn the_environment_is_clean_and_only_listed_variables_are_set() {
    let env = |name: &str| json!({"env": [{"name": name, "value": "x"}]});
    let settings =
        format!("{ANY}\nenv = {{ SECRET_OF_AGENT = \"hidden\" }}\nenv_pass = [\"PASSED\"]\nterminal_env = [\"MI*\"]");
    let builder = Daemon::builder().env("PASSED", "hidden").env("OTHER", "hidden");
    let home = builder.home().to_owned();
    let (_daemon, answers, session) = run(
        builder,
        &settings,
        vec![
            create_with("env", &[], &env("MINE")),
            call("wait_for_exit", "{terminal0}"),
            call("output", "{terminal0}"),
            create_with("env", &[], &env("LD_PRELOAD")),
            create_with("env", &[], &env("ACPD_SESSION")),
            create_with("env", &[], &env("A B")),
            create_with("git", &["status"], &env("GIT_CONFIG_COUNT")),
        ],
    )
    .await;
    let output = answers[2]["output"].as_str().unwrap();
    let names: Vec<&str> = output.lines().map(|line| line.split('=').next().unwrap()).collect();
    assert_eq!(names, ["ACPD_SESSION", "HOME", "MINE", "PATH", "TMPDIR"]);
    assert!(output.contains(&session));
    assert!(output.contains(&format!("HOME={}\n", home.display())), "commands have the user's home: {output}");
    for (answer, name) in answers[3..].iter().zip(["LD_PRELOAD", "ACPD_SESSION", "A B", "GIT_CONFIG_COUNT"]) {
        assert_eq!((&answer["code"], message(answer).contains(name)), (&json!(INVALID), true), "{answer}");
    }
    assert!(message(&answers[6]).contains("agents.terminals.terminal_env"), "{}", answers[6]);
}

#[tokio::test]
async fn arguments_meet_a_rule_as_they_are() {
    let settings = r#"terminal_commands = ["echo"]
        permissions = { mode = "deny", rules = [{ decision = "allow", commands = ["echo"] }] }"#;
    let requests = vec![create("echo", &["a b; c"]), create("echo 'd e'", &[])];
    let (_daemon, answers, _) = run(Daemon::builder(), settings, requests).await;
    assert!(answers.iter().all(|answer| answer["terminalId"].is_string()), "{answers:?}");
}

#[tokio::test]
async fn output_over_the_limit_loses_its_beginning_on_a_character_boundary() {
    let limit = |bytes: u64| json!({"outputByteLimit": bytes});
    let config = "[limits]\nterminal_output = \"1KiB\"";
    let flood = "i=0; while [ $i -lt 400 ]; do echo ü$i; i=$((i+1)); done; printf 'end€'";
    let (_daemon, answers, _) = run(
        Daemon::builder().config(config),
        ANY,
        vec![
            create_with("/bin/sh", &["-c", flood], &limit(8)),
            call("wait_for_exit", "{terminal0}"),
            call("output", "{terminal0}"),
            create_with("/bin/sh", &["-c", flood], &limit(1 << 40)),
            call("wait_for_exit", "{terminal1}"),
            call("output", "{terminal1}"),
            create("printf", &["a\\377b"]),
            call("wait_for_exit", "{terminal2}"),
            call("output", "{terminal2}"),
            create_with("printf", &["abc"], &limit(0)),
            call("wait_for_exit", "{terminal3}"),
            call("output", "{terminal3}"),
        ],
    )
    .await;
    // Eight bytes from the end would begin within a line's last digit; nine, within no character.
    assert_eq!(answers[2]["output"], "9\nend€");
    assert_eq!(answers[2]["truncated"], true);
    let output = answers[5]["output"].as_str().unwrap();
    assert!(output.len() <= 1024 && output.len() > 1020 && output.ends_with("ü399\nend€"), "{output}");
    assert_eq!((&answers[8]["output"], &answers[8]["truncated"]), (&json!("a\u{fffd}b"), &json!(false)));
    assert_eq!((&answers[11]["output"], &answers[11]["truncated"]), (&json!(""), &json!(true)));
}

#[tokio::test]
async fn a_wait_does_not_hold_others_up_and_ends_with_a_kill_or_a_release() {
    let (daemon, answers, session) = run(
        Daemon::builder(),
        ANY,
        vec![
            shell("echo one; exec sleep 600"),
            shell("exec sleep 600"),
            ask("wait_for_exit", "{terminal0}"),
            ask("wait_for_exit", "{terminal1}"),
            create("true", &[]),
            call("wait_for_exit", "{terminal2}"),
            call("kill", "{terminal0}"),
            json!({"awaitAnswer": true}),
            call("output", "{terminal0}"),
            call("release", "{terminal1}"),
            json!({"awaitAnswer": true}),
        ],
    )
    .await;
    assert_eq!(answers[3], json!({"exitCode": 0, "signal": null}), "{answers:?}");
    let killed = json!({"exitCode": null, "signal": "SIGKILL"});
    assert_eq!(answers[4..6], [json!({}), killed.clone()]);
    assert_eq!(answers[6], json!({"output": "one\n", "truncated": false, "exitStatus": killed}));
    assert_eq!(answers[7..], [json!({}), killed]);
    assert_eq!(events(&daemon, &session, "terminal.exited").await.len(), 3);
}

#[tokio::test]
async fn the_number_of_terminals_is_bounded_until_one_is_released() {
    let (daemon, answers, session) = run(
        Daemon::builder().config("[limits]\nterminals = 2"),
        ANY,
        vec![
            create("sleep", &["600"]),
            create("true", &[]),
            call("wait_for_exit", "{terminal1}"),
            create("true", &[]),
            call("release", "{terminal1}"),
            create("true", &[]),
        ],
    )
    .await;
    let reason = "the session already has 2 terminals (limits.terminals); release one first";
    assert_eq!((&answers[3]["code"], message(&answers[3])), (&json!(INVALID), reason));
    assert!(answers[5]["terminalId"].is_string(), "{answers:?}");
    let refused = events(&daemon, &session, "terminal.refused").await;
    assert_eq!(*refused[0].payload(), json!({"command": ["true"], "reason": reason, "decidedBy": null}));
}

#[tokio::test]
async fn without_a_list_there_are_no_terminals_and_the_agent_is_not_told_of_any() {
    for (settings, is_told) in [("permissions = \"allow\"", false), (ANY, true)] {
        let script = json!([
            {"record": true}, {"handshake": {}},
            {"prompt": [create("true", &[]), {"textFromAnswer": true}, {"text": "\n"}, call("output", "x"), {"textFromAnswer": true}]}
        ]);
        let daemon = Daemon::builder().agent_with("quiet", script, settings).start().await;
        let (answers, _) = answers(&daemon, "quiet").await;
        assert_eq!(daemon.heard("quiet")[0].params["clientCapabilities"]["terminal"], is_told);
        if is_told {
            assert_eq!(answers[1]["code"], NOT_FOUND);
        } else {
            assert_eq!((&answers[0]["code"], &answers[1]["code"]), (&json!(-32601), &json!(-32601)));
            assert!(message(&answers[0]).contains("agents.quiet.terminal_commands"), "{answers:?}");
        }
    }
}

#[tokio::test]
async fn only_what_is_listed_runs_and_a_line_for_a_shell_is_listed_by_the_star_alone() {
    let settings = "permissions = \"allow\"\nterminal_commands = [\"echo\", \"printf a\", \"./tool x\"]";
    let builder = Daemon::builder();
    let tool = builder.workspace().join("tool");
    fs::write(&tool, "#!/bin/sh\necho tool $1\n").unwrap();
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mark = builder.workspace().join("mark");
    let mut requests = Vec::new();
    let runs = [("echo", vec!["a b"]), ("echo  one two", vec![]), ("printf", vec!["a"]), ("./tool", vec!["x"])];
    for (index, (command, args)) in runs.iter().enumerate() {
        requests.push(create(command, args));
        requests.push(call("wait_for_exit", &format!("{{terminal{index}}}")));
        requests.push(call("output", &format!("{{terminal{index}}}")));
    }
    let touch = format!("echo a; touch {}", mark.display());
    let refused = [
        create(&touch, &[]),
        create("touch", &[mark.to_str().unwrap()]),
        create("printf", &["b"]),
        create("/bin/echo", &["a"]),
        create("./tool", &["y"]),
        create("echo $(touch mark)", &[]),
    ];
    let count = refused.len();
    requests.extend(refused);
    requests.push(create("echo nothing", &["like that"]));
    let (_daemon, answers, _) = run(builder, settings, requests).await;
    let outputs: Vec<&Value> = answers[..12].iter().skip(2).step_by(3).map(|answer| &answer["output"]).collect();
    assert_eq!(outputs, ["a b\n", "one two\n", "a", "tool x\n"]);
    for answer in &answers[12..12 + count] {
        assert!(message(answer).contains("terminal_commands"), "{answer}");
    }
    assert!(message(&answers[12 + count]).contains("terminal_commands"), "one word with a space is no list's");
    assert!(!mark.exists());
}

#[tokio::test]
async fn a_line_for_a_shell_runs_where_anything_may() {
    let (_daemon, answers, _) = run(
        Daemon::builder(),
        ANY,
        vec![
            create("echo a | tr a b; exit 4", &[]),
            call("wait_for_exit", "{terminal0}"),
            call("output", "{terminal0}"),
            create("no-such-program-at-all", &[]),
            create("no-such program", &["x"]),
            create("", &[]),
            create("{acpd}", &["--version"]),
        ],
    )
    .await;
    assert_eq!((&answers[2]["output"], &answers[1]["exitCode"]), (&json!("b\n"), &json!(4)));
    for answer in &answers[3..] {
        assert!(message(answer).contains("was not found on the daemon's PATH"), "{answer}");
    }
}

#[tokio::test]
async fn the_directory_of_a_terminal_is_in_the_workspace() {
    let builder = Daemon::builder();
    let (workspace, root) = (builder.workspace().to_owned(), builder.root().to_owned());
    symlink(&root, workspace.join("out")).unwrap();
    fs::write(workspace.join("file"), "").unwrap();
    let at = |path: &Path| create_with("pwd", &[], &json!({"cwd": path}));
    let (daemon, answers, _) = run(
        builder,
        ANY,
        vec![
            at(&root),
            at(&workspace.join("..")),
            at(&workspace.join("out")),
            at(&workspace.join("none")),
            at(&workspace.join("file")),
        ],
    )
    .await;
    for answer in &answers[..3] {
        assert_eq!(message(answer), "the directory of the terminal: the path leads out of the workspace");
    }
    assert!(message(&answers[3]).contains("no such file") && message(&answers[4]).contains("not a directory"));
    let info = daemon.get("/v1/info").await.expect_status(200);
    assert_eq!(info["securityEvents"]["path_escape"], 3);
}

#[tokio::test]
async fn the_policy_judges_commands() {
    let settings = "permissions = \"deny\"\nterminal_commands = [\"*\"]";
    let (daemon, answers, session) = run(Daemon::builder(), settings, vec![create("true", &[])]).await;
    assert_eq!(answers[0]["code"], -32603);
    assert_eq!(message(&answers[0]), "permission was denied (policy session mode deny)");
    let refused = events(&daemon, &session, "terminal.refused").await;
    assert_eq!(refused[0].payload()["decidedBy"], "policy session mode deny");
    assert!(events(&daemon, &session, "terminal.created").await.is_empty());
}

/// A command that leaves a child and one in a session of its own, none of which ends when told to. It tells them in a file,
/// because the agent that would hear of them is about to go.
const NASTY_LINE: &str = "trap '' TERM HUP INT; sleep 600 & a=$!; setsid sleep 600 & b=$!; \
     echo $$ $a $b > pids.new; mv pids.new pids; wait";

fn nasty() -> Value {
    json!([{"handshake": {}}, {"expect": "session/prompt"}, shell(NASTY_LINE), {"hang": true}])
}

/// A session whose agent has a nasty terminal, and the processes of that.
async fn with_terminal(daemon: &Daemon) -> (String, Vec<u32>) {
    let session = daemon.create_session("nasty").await;
    daemon.prompt(&session, "go").await;
    let file = daemon.workspace().join("pids");
    let text = within("the processes of the terminal", async {
        loop {
            match fs::read_to_string(&file) {
                Ok(text) => return text,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let processes: Vec<u32> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(processes.len() == 3 && processes.iter().all(|process| process_alive(*process)), "{processes:?}");
    (session, processes)
}

async fn gone(processes: &[u32]) {
    for process in processes {
        process_gone(*process).await;
    }
}

fn nasty_builder() -> DaemonBuilder {
    Daemon::builder().config(IMPATIENT).agent_with("nasty", nasty(), ANY)
}

#[tokio::test]
async fn terminals_are_gone_after_a_kill_of_the_agent() {
    let daemon = nasty_builder().start().await;
    let (session, processes) = with_terminal(&daemon).await;
    signal(pid_of(&daemon.session(&session).await), Signal::SIGKILL);
    gone(&processes).await;
    let mut stream = daemon.events(&session, None).await;
    let exited = stream.until("terminal.exited").await.pop().unwrap();
    assert_eq!(exited.payload()["signal"], "SIGKILL");
}

#[tokio::test]
async fn terminals_are_gone_when_archiving_is_answered() {
    let daemon = nasty_builder().start().await;
    let (session, processes) = with_terminal(&daemon).await;
    daemon.post(&format!("/v1/sessions/{session}/archive"), json!({})).await.expect_status(200);
    assert!(!processes.iter().any(|process| process_alive(*process)), "200 comes after the end of all");
}

#[tokio::test]
async fn terminals_are_gone_after_a_kill_and_after_a_stop_of_the_daemon() {
    let mut daemon = nasty_builder().start().await;
    let (_, processes) = with_terminal(&daemon).await;
    daemon.kill().await;
    gone(&processes).await;

    let mut daemon = nasty_builder().start().await;
    let (_, processes) = with_terminal(&daemon).await;
    assert!(daemon.terminate().await.success());
    assert!(!processes.iter().any(|process| process_alive(*process)), "the daemon ends after them");
}

#[tokio::test]
async fn a_terminal_is_in_its_agents_cgroup_and_its_end_is_not_the_agents() {
    let Some(cgroup) = Cgroup::delegated(None) else { return };
    let requests = vec![
        create("sleep", &["600"]),
        json!({"gate": "running"}),
        call("kill", "{terminal0}"),
        call("wait_for_exit", "{terminal0}"),
    ];
    let daemon = Daemon::builder().agent_with("grouped", asking(requests), ANY).cgroup(&cgroup).start().await;
    let session = daemon.create_session("grouped").await;
    let accepted = daemon.prompt(&session, "go").await;
    let passage = daemon.gate("grouped").reached("running").await;
    let agent = pid_of(&daemon.session(&session).await);
    let both = members(&cgroup.agent(&session));
    assert_eq!((both.len(), both.contains(&agent)), (2, true), "{both:?}");
    passage.open().await;
    let turn = daemon.wait_turn(&session, accepted["turnId"].as_str().unwrap()).await;
    assert_eq!(turn["status"], "completed", "the agent lives on: {turn}");
    assert_eq!(members(&cgroup.agent(&session)), [agent]);
    assert_eq!(said(&daemon, &session).await[2]["signal"], "SIGKILL");
}

#[tokio::test]
async fn an_agent_that_waits_for_a_command_is_not_silent() {
    let requests = vec![create("sleep", &["1.5"]), call("wait_for_exit", "{terminal0}")];
    let config = "[sessions]\nturn_silence_timeout = \"500ms\"";
    let (_daemon, answers, _) = run(Daemon::builder().config(config), ANY, requests).await;
    assert_eq!(answers[1], json!({"exitCode": 0, "signal": null}));
}

#[tokio::test]
async fn a_wait_that_outlives_its_turn_keeps_no_process() {
    let requests = vec![create("sleep", &["600"]), ask("wait_for_exit", "{terminal0}")];
    let builder = Daemon::builder().config("[sessions]\nidle_timeout = \"200ms\"");
    let daemon = builder.agent_with("terminals", asking(requests), ANY).start().await;
    let session = daemon.create_session("terminals").await;
    let accepted = daemon.prompt(&session, "go").await;
    let mut events = daemon.events(&session, accepted["after"].as_i64()).await;
    let exited = events.until("process.exited").await;
    assert_eq!(exited.last().unwrap().payload()["reason"], "idle");
}

#[tokio::test]
async fn a_wait_that_the_agent_takes_back_is_answered() {
    let notify = json!({"notify": {"method": "$/cancel_request", "params": {"requestId": 2}}});
    let waits = json!([{"handshake": {}}, {"prompt": [
        create("sleep", &["600"]), ask("wait_for_exit", "{terminal0}"), notify,
        {"awaitAnswer": true}, {"textFromAnswer": true},
    ]}]);
    let daemon = Daemon::builder().agent_with("waiting", waits, ANY).start().await;
    let (answers, _) = answers(&daemon, "waiting").await;
    assert_eq!(answers[0]["code"], -32800, "{answers:?}");
}
