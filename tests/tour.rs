//! The quick start of README.md, as a new user would follow it: an empty home, `acpd` on the `PATH`, bash in a real terminal and a
//! second one beside it. Nothing is typed that is not in the README, and what it says is seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;

use std::path::Path;
use std::process::Stdio;

use harness::{Terminal, process_gone};
use tokio::process::Command;

const README: &str = include_str!("../README.md");
/// Wide enough that nothing of what is looked for is broken up, and long enough that nothing scrolls away.
const COLUMNS: u16 = 160;
const ROWS: u16 = 100;
const PROMPT: &str = "ready>";
/// As in any shell: the screen is cleared, and the prompt stands at its top.
const CTRL_L: &str = "\x0c";

/// A block of the tour, and which of the two terminals it is for.
#[derive(Debug)]
enum Step {
    Type { terminal: usize, lines: String },
    See { terminal: usize, text: String },
}

fn steps() -> Vec<Step> {
    let tour = README.split("\n## Quick start\n").nth(1).expect("README.md has a quick start").split("\n## ").next().unwrap();
    let mut steps = Vec::new();
    let mut terminal = 0;
    let mut block: Option<(&str, String)> = None;
    // A block that needs more than acpd is not typed.
    let mut is_left_out = false;
    for line in tour.lines() {
        match (&mut block, line) {
            (None, "<!-- tour: second terminal -->") => terminal = 1,
            (None, "<!-- tour: first terminal -->") => terminal = 0,
            (None, comment) if comment.starts_with("<!-- needs:") => is_left_out = true,
            (None, "```sh" | "```text") => block = Some((&line[3..], String::new())),
            (None, prose) => assert!(!prose.starts_with("```"), "an unknown block: {prose}"),
            (Some(_), "```") => match block.take().unwrap() {
                _ if std::mem::take(&mut is_left_out) => {}
                ("sh", lines) => steps.push(Step::Type { terminal, lines }),
                (_, text) => steps.push(Step::See { terminal, text }),
            },
            (Some((_, text)), line) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    assert!(block.is_none(), "a block does not end");
    steps
}

/// A screen or a text without how it is broken into lines.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_ready(screen: &str) -> bool {
    screen.lines().last().is_some_and(|line| line == PROMPT)
}

struct User {
    home: tempfile::TempDir,
    path: String,
}

impl User {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("acpd-tour-").tempdir().unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_acpd")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Self { home, path }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.home.path()).env("PATH", &self.path).env("LANG", "C.UTF-8");
        // The demo agent speaks as fast as it can; nothing else is different from what a person has.
        command.env("ACPD_DEMO_PAUSE_MS", "0").current_dir(self.home.path());
        command
    }

    /// A shell as a person has it: with line editing, in a terminal of its own.
    fn shell(&self) -> Terminal {
        let mut bash = self.command("bash");
        bash.args(["--norc", "--noprofile", "-i"]).env("PS1", format!("{PROMPT} "));
        Terminal::start(COLUMNS, ROWS, &bash)
    }

    /// Ends the daemon that the tour has left running, whatever came of the tour.
    async fn leaves(&self) {
        let status = self.command("acpd").args(["status", "--json"]).stderr(Stdio::null()).output().await.unwrap();
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&status.stdout) else { return };
        let pid = u32::try_from(status["info"]["pid"].as_u64().unwrap()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::SIGTERM).unwrap();
        process_gone(pid).await;
    }
}

async fn take(shells: &mut [Terminal]) {
    for step in steps() {
        match step {
            Step::Type { terminal, lines } => {
                let shell = &mut shells[terminal];
                shell.settles("the shell's prompt", is_ready).await;
                shell.types(CTRL_L);
                shell.settles("a clear screen", |screen| screen == PROMPT).await;
                let count = lines.lines().count();
                for (index, line) in lines.lines().enumerate() {
                    shell.types(&format!("{line}\n"));
                    // The last one may be waiting for somebody.
                    if index + 1 < count {
                        shell.settles(line, |screen| screen.contains(line) && is_ready(screen)).await;
                    }
                }
            }
            Step::See { terminal, text } => {
                for line in text.lines() {
                    let wanted = flat(line);
                    shells[terminal].settles(&wanted, |screen| flat(screen).contains(&wanted)).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn the_quick_start_works_as_written() {
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        return harness::skip("bash is not installed, so the tour was not taken");
    }
    let user = User::new();
    let mut shells = [user.shell(), user.shell()];
    // A tour that fails must not leave its daemon behind, so the failure is kept until that is gone.
    let mut tour = tokio::task::JoinSet::new();
    tour.spawn(async move { take(&mut shells).await });
    let outcome = tour.join_next().await.unwrap();
    user.leaves().await;
    if let Err(error) = outcome {
        std::panic::resume_unwind(error.into_panic());
    }
}

#[test]
fn the_quick_start_has_what_a_new_user_needs() {
    let steps = steps();
    let typed: String = steps
        .iter()
        .filter_map(|step| match step {
            Step::Type { lines, .. } => Some(lines.as_str()),
            Step::See { .. } => None,
        })
        .collect();
    for command in ["acpd run", "acpd prompt", "acpd approve", "acpd stop"] {
        assert!(typed.contains(command), "the tour has no {command}");
    }
    assert!(steps.iter().any(|step| matches!(step, Step::Type { terminal: 1, .. })), "it needs no second terminal");
}
