//! The quick start of README.md, as a new user follows it: an empty home, `acpd` on the `PATH`, bash in a real terminal
//! and a second one beside it. The test types the `sh` blocks and nothing else, and sees what the `text` blocks show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod documents;
mod harness;

use documents::{Page, QUICK_START};
use harness::{Reader, Terminal};

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

/// The blocks of the quick start that need nothing beside acpd. A comment names the terminal for the next blocks.
fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut terminal = 0;
    for block in Page::read("README.md").blocks().into_iter().filter(|block| block.section == QUICK_START) {
        match block.comment.as_deref() {
            Some("tour: second terminal") => terminal = 1,
            Some("tour: first terminal") => terminal = 0,
            Some(comment) if comment.starts_with("needs:") => continue,
            Some(comment) => panic!("README.md:{}: unknown comment {comment:?}", block.line),
            None => {}
        }
        steps.push(match block.language.as_str() {
            "sh" => Step::Type { terminal, lines: block.text },
            "text" => Step::See { terminal, text: block.text },
            language => panic!("README.md:{}: unknown block {language:?}", block.line),
        });
    }
    steps
}

/// A screen or a text without how it is broken into lines.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_ready(screen: &str) -> bool {
    screen.lines().last().is_some_and(|line| line == PROMPT)
}

/// A shell as a person has it: with line editing, in a terminal of its own.
fn shell(reader: &Reader) -> Terminal {
    let mut bash = reader.command("bash");
    bash.args(["--norc", "--noprofile", "-i"]).env("PS1", format!("{PROMPT} "));
    Terminal::start(COLUMNS, ROWS, &bash)
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
    if !harness::has("bash") {
        return;
    }
    let reader = Reader::new();
    let mut shells = [shell(&reader), shell(&reader)];
    take(&mut shells).await;
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
