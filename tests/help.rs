//! What the program says about itself: its first page, what shells complete, and its manual.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;

use std::path::Path;
use std::process::Stdio;

use harness::{CTRL_D, Daemon, Output, Terminal, echo, within};
use tokio::process::Command;

#[tokio::test]
async fn the_first_page_fits_a_terminal() {
    let daemon = Daemon::start().await;
    let piped = daemon.cli(&["help"]).await.success();
    assert!(!piped.contains('\x1b'), "a pipe gets no colours");
    insta::assert_snapshot!(piped);
    let narrow = daemon.terminal(80, 100, &["help"]).ended().await;
    // Nothing is wrapped, so both have the same lines.
    assert_eq!(narrow.screen.trim(), piped.trim());
    assert!(narrow.written.contains("\x1b[1m"), "headings are bold on a terminal");
}

#[tokio::test]
async fn variables_are_no_arguments() {
    let daemon = Daemon::start().await;
    let page = daemon.cli(&["-h"]).await.success();
    for arguments in [&[][..], &["--json"]] {
        // The client of a test has all three variables.
        let alone = daemon.cli(arguments).await;
        assert_eq!((alone.code, alone.stdout.as_str()), (2, ""));
        assert_eq!(alone.stderr.trim(), page.trim(), "{arguments:?}");
    }
    let archive = daemon.cli(&["archive"]).await;
    assert!(archive.stderr.contains("Usage: acpd archive <SESSION>...\n"), "{}", archive.stderr);
    assert!(daemon.cli(&["archive", "-h"]).await.success().contains("[env: ACPD_SOCKET]"));
}

#[tokio::test]
async fn help_that_cannot_be_written_is_a_failure() {
    let daemon = Daemon::start().await;
    let mut command = daemon.client(&["--help"]);
    command.stdin(Stdio::null()).stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let ended = within("the end of acpd --help", child.wait_with_output()).await.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("cannot write to stdout"));
}

#[tokio::test]
async fn a_command_explains_itself_with_examples() {
    let daemon = Daemon::start().await;
    insta::assert_snapshot!(daemon.cli(&["approve", "--help"]).await.success());
    let help = daemon.cli(&["help", "run"]).await.success();
    assert_eq!(help, daemon.cli(&["run", "--help"]).await.success());
    assert!(help.contains("Exit codes:"), "{help}");
}

/// A shell that knows `acpd`, in the workspace of this daemon.
fn shell(daemon: &Daemon, program: &str) -> Command {
    let acpd = daemon.client(&[]);
    let mut shell = Command::new(program);
    shell.env_clear().envs(acpd.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let programs = Path::new(env!("CARGO_BIN_EXE_acpd")).parent().unwrap();
    shell.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
    shell.current_dir(daemon.workspace()).stdin(Stdio::null()).kill_on_drop(true);
    shell
}

async fn said(mut shell: Command) -> Vec<String> {
    let output = within("the end of the shell", shell.output()).await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr, "", "whoever presses Tab wants no words");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What bash offers for the last of these words. Nothing of it is our own: the script, and the variables that bash sets.
async fn bash(daemon: &Daemon, comp_type: u8, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <(acpd completions bash)\nCOMP_WORDS=({})\nCOMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\nCOMP_TYPE={comp_type}\n\
         _clap_complete_acpd acpd \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\" 2>/dev/null\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
    );
    let mut shell = shell(daemon, "bash");
    shell.args(["--norc", "-c", &script]);
    said(shell).await.into_iter().filter(|line| !line.is_empty()).collect()
}

const TAB: u8 = 9;
const TAB_TWICE: u8 = 63;

/// An agent that asks, and two sessions: one that waits for an answer, and one with a title that means ill.
async fn busy() -> (Daemon, String, String) {
    let question = serde_json::json!({"request": {"method": "session/request_permission", "params": {
        "sessionId": "test-session",
        "toolCall": {"toolCallId": "t1", "title": "Run ls", "kind": "execute", "rawInput": {"command": "ls"}},
        "options": [{"optionId": "once", "name": "Once", "kind": "allow_once"}]}}});
    let asking = serde_json::json!([{"handshake": {}}, {"prompt": [question]}]);
    let mut daemon = Daemon::builder().agent("echo", echo()).agent("asking", asking).start().await;
    let titled = daemon.cli(&["new", "--agent", "echo", "--lazy"]).await.success();
    // The interface takes no such title; whatever is in the record all the same must do nothing to a terminal.
    daemon.sql("UPDATE sessions SET title = 'a ' || char(27) || '[31mtitle' || char(7) || ': here'".to_owned()).await;
    let asks = daemon.create_session("asking").await;
    let accepted = daemon.prompt(&asks, "go").await;
    daemon.events(&asks, accepted["after"].as_i64()).await.until("permission.requested").await;
    (daemon, titled.trim().to_owned(), asks)
}

#[tokio::test]
async fn bash_completes_commands_and_what_the_daemon_knows() {
    if !harness::has("bash") {
        return;
    }
    let (mut daemon, titled, asks) = busy().await;
    let (titled_short, asks_short) = (&titled[24..], &asks[24..]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "arch"]).await, ["archive"]);
    assert!(bash(&daemon, TAB, &["acpd", "run", "--ag"]).await.contains(&"--agent".to_owned()));
    let sessions = bash(&daemon, TAB, &["acpd", "show", ""]).await;
    assert_eq!(sessions, ["-", asks_short, titled_short]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "show", &titled_short[..6]]).await, [titled_short]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "show", &titled[..20]]).await, [titled.as_str()], "or by its beginning");
    daemon.cli(&["new", "--agent", "echo", "--lazy", "--title", "race in the parser"]).await.success();
    for begun in ["ra", "race\\ in"] {
        let completed = bash(&daemon, TAB, &["acpd", "show", begun]).await;
        assert_eq!(completed, ["race\\ in\\ the\\ parser"], "a title is one word of the shell's");
    }
    daemon.cli(&["rm", "--purge", "--yes", "race in the parser"]).await.success();
    let listed = bash(&daemon, TAB_TWICE, &["acpd", "show", ""]).await;
    assert_eq!(listed[2], format!("{titled_short}  (active, echo: a [31mtitle: here)"), "cleaned, and only listed");
    assert_eq!(bash(&daemon, TAB, &["acpd", "resume", ""]).await, [""; 0], "none is suspended");
    assert_eq!(bash(&daemon, TAB, &["acpd", "run", "--agent", "ec"]).await, ["echo"]);
    let questions = daemon.cli(&["permissions", "--json"]).await.json();
    let id = questions["permissions"][0]["id"].as_str().unwrap();
    assert_eq!(bash(&daemon, TAB, &["acpd", "approve", ""]).await, [&id[24..]]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "archive", &titled_short[..6]]).await, [titled_short], "of several too");
    let modes = ["ask", "read-only", "edit", "allow", "deny"];
    assert_eq!(bash(&daemon, TAB, &["acpd", "run", "--permissions", ""]).await, modes);
    assert_eq!(bash(&daemon, TAB, &["acpd", "new", "--scope", "p"]).await, ["project"]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "messages", "-", "--role", "tool_r"]).await, ["tool_result"]);
    assert_eq!(
        bash(&daemon, TAB, &["acpd", "config", "get", "limits.proc"]).await,
        ["limits.processes", "limits.processes_per_user"]
    );
    let workspace = daemon.workspace().to_str().unwrap();
    assert!(
        bash(&daemon, TAB, &["acpd", "ls", "-C", &workspace[..workspace.len() - 3]])
            .await
            .contains(&workspace.to_owned())
    );
    daemon.terminate().await;
    assert_eq!(bash(&daemon, TAB, &["acpd", "show", ""]).await, [""; 0], "no daemon is started");
    assert_eq!(daemon.cli(&["status"]).await.code, 3);
    assert_eq!(bash(&daemon, TAB, &["acpd", "arch"]).await, ["archive"], "commands need none");
}

#[tokio::test]
async fn bash_completes_what_the_agent_of_a_session_offers() {
    if !harness::has("bash") {
        return;
    }
    let offers = serde_json::json!({
        "modes": {"currentModeId": "default", "availableModes": [
            {"id": "default", "name": "Default"}, {"id": "plan", "name": "Plan"}]},
        "models": {"currentModelId": "fast", "availableModels": [
            {"modelId": "fast", "name": "Fast"}, {"modelId": "slow", "name": "Slow"}]}});
    let script = serde_json::json!([{"handshake": {"newSession": offers}}, {"prompt": [{"text": "hello"}]}]);
    let daemon = Daemon::builder().agent("choosy", script).start().await;
    let session = daemon.create_session("choosy").await;
    daemon.prompt_and_wait(&session, "hello").await;
    assert_eq!(bash(&daemon, TAB, &["acpd", "mode", "-", ""]).await, ["default", "plan"]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "mode", &session[24..], "p"]).await, ["plan"]);
    assert_eq!(bash(&daemon, TAB, &["acpd", "model", "-", ""]).await, ["fast", "slow"]);
}

#[tokio::test]
async fn a_person_presses_tab_in_bash() {
    if !harness::has("bash") {
        return;
    }
    let (daemon, titled, _) = busy().await;
    let mut bash = shell(&daemon, "bash");
    bash.args(["--norc", "--noprofile", "-i"]).env("PS1", "ready> ");
    let mut terminal = Terminal::start(100, 24, &bash);
    terminal.shows("ready>").await;
    terminal.types("source <(acpd completions bash)\n");
    terminal.settles("the prompt", |screen| screen.lines().last() == Some("ready>") && screen.contains("source")).await;
    terminal.types("acpd show \t\t");
    let screen = terminal.shows("a [31mtitle: here").await;
    assert!(screen.contains("newest session of this directory"), "{screen}");
    // The terminal has nothing of the title's escape sequence, so nothing is red.
    terminal.types(&format!("{}\t", &titled[24..30]));
    terminal
        .settles("the whole id", |screen| screen.lines().last().is_some_and(|line| line.ends_with(&titled[24..])))
        .await;
    terminal.types(&format!("\x15{CTRL_D}"));
    assert_eq!(terminal.ended().await.code, 0);
}

#[tokio::test]
async fn zsh_and_fish_complete_sessions_with_their_titles() {
    let (daemon, titled, _) = busy().await;
    let short = &titled[24..];
    if harness::has("fish") {
        let mut fish = shell(&daemon, "fish");
        fish.args(["--no-config", "-c", "acpd completions fish | source; complete --do-complete 'acpd show '"]);
        let offered = said(fish).await;
        assert!(offered.contains(&format!("{short}\tactive, echo: a [31mtitle: here")), "{offered:?}");
    }
    if harness::has("zsh") {
        let mut zsh = shell(&daemon, "zsh");
        // What its completion system would do with the script, as far as that can be seen without a terminal.
        let script = "compdef() {}; _describe() { print -l -- ${(P)3} }; source <(acpd completions zsh); \
            words=(acpd show ''); CURRENT=3; _clap_dynamic_completer_acpd";
        zsh.args(["-f", "-c", script]);
        let offered = said(zsh).await;
        assert!(offered.iter().any(|line| line.starts_with(short) && line.contains("title")), "{offered:?}");
    }
    for name in ["zsh", "fish"] {
        let script = daemon.cli(&["completions", name]).await.success();
        assert!(script.contains("ACPD_COMPLETE") && script.contains("acpd"), "{script}");
    }
    let unknown = daemon.cli(&["completions", "tcsh"]).await;
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
}

/// `acpd` with nothing in its environment, not even a home.
async fn bare(arguments: &[&str]) -> Output {
    let mut acpd = Command::new(env!("CARGO_BIN_EXE_acpd"));
    acpd.args(arguments).env_clear().stdin(Stdio::null());
    let output = within("the end of acpd", acpd.output()).await.unwrap();
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn the_manual_has_a_page_for_every_command() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut told = Vec::new();
    for directory in &directories {
        // A directory that is not there yet is made.
        let out = directory.path().join("man1");
        told.push(bare(&["man", "--out", out.to_str().unwrap()]).await.success());
    }
    assert_eq!(told[0], told[1]);
    let pages: Vec<&str> = told[0].lines().collect();
    assert!(["acpd.1", "acpd-run.1", "acpd-approve.1"].iter().all(|page| pages.contains(page)), "{pages:?}");
    assert!(!pages.iter().any(|page| page.contains("demo-agent")), "{pages:?}");
    let read = |directory: &tempfile::TempDir, page: &str| {
        std::fs::read_to_string(directory.path().join("man1").join(page)).unwrap()
    };
    for page in &pages {
        assert_eq!(read(&directories[0], page), read(&directories[1], page), "{page} is the same each time");
    }
    let first = bare(&["man"]).await.success();
    assert_eq!(first.trim_end(), read(&directories[0], "acpd.1").trim_end());
    for section in ["NAME", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "FILES", "ENVIRONMENT", "\"SEE ALSO\""] {
        assert!(first.contains(&format!("\n.SH {section}\n")), "there is no {section}:\n{first}");
    }
    // The pages are found, or acpd says how.
    if harness::has("manpath") {
        let parent = directories[0].path().canonicalize().unwrap();
        let parent = parent.to_str().unwrap();
        let mut acpd = Command::new(env!("CARGO_BIN_EXE_acpd"));
        acpd.args(["man", "--out", &format!("{parent}/man1")]);
        let told = within("the end of acpd man", acpd.output()).await.unwrap();
        let told = String::from_utf8(told.stderr).unwrap();
        assert!(told.contains(&format!("hint: `export MANPATH=\"{parent}:\"`")), "{told}");
        let silent = within("the end of acpd man", acpd.env("MANPATH", format!("{parent}:")).output()).await.unwrap();
        assert_eq!(String::from_utf8(silent.stderr).unwrap(), "", "what acpd says helps");
        for arguments in [&["-w", "acpd-run"][..], &["-M", parent, "-w", "acpd-run"]] {
            let mut man = Command::new("man");
            man.args(arguments).env("MANPATH", format!("{parent}:"));
            let found = within("the end of man", man.output()).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), format!("{parent}/man1/acpd-run.1"));
        }
    }
    let refused = bare(&["man", "--out", "/dev/null/man1"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("hint:"), "{}", refused.stderr);
    if !harness::has("groff") {
        return;
    }
    for page in &pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(directories[0].path().join("man1").join(page));
        let output = within("the end of groff", groff.output()).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{page}");
        assert!(output.status.success());
    }
}

#[tokio::test]
async fn a_daemon_is_stopped_and_its_sessions_are_there_again() {
    let mut daemon = Daemon::builder().agent("echo", echo()).start().await;
    daemon.cli(&["new", "--agent", "echo"]).await.success();
    let pid = daemon.pid().to_string();
    // The test is the daemon's parent, so the end of it is seen before it is reaped.
    assert_eq!(daemon.cli(&["stop"]).await.success().trim(), pid);
    daemon.ended().await;
    let again = daemon.cli(&["stop"]).await;
    assert_eq!(again.code, 3);
    assert!(again.stderr.contains("no daemon is running") && again.stderr.contains("hint:"), "{}", again.stderr);
    daemon.restart().await;
    assert_eq!(daemon.cli(&["ls", "--json"]).await.json()["sessions"][0]["status"], "suspended");
    let pid = daemon.pid();
    let stopped = daemon.terminal(100, 10, &["stop"]).ended().await;
    assert!(stopped.screen.contains(&format!("the daemon (pid {pid}) has stopped")), "{}", stopped.screen);
    assert!(!stopped.screen.lines().any(|line| line.trim() == pid.to_string()), "{}", stopped.screen);
    daemon.ended().await;
}
