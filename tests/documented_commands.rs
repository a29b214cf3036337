//! The `sh` blocks of README.md and docs/*.md work: bash runs those of a page in their order, as a person who has just
//! installed acpd and who has the demo agent as the default agent. Every page has a home and a daemon of its own.
//!
//! A comment directly before a block leaves it out, and names what the block needs beside acpd (see `NEEDS`):
//!
//! ```text
//! <!-- needs: npm, network -->
//! ```
//!
//! tests/tour.rs types the quick start of README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;
mod harness;

use std::fs;
use std::process::Stdio;

use documents::{Block, Page, QUICK_START, pages};
use futures_util::{StreamExt, stream};
use harness::{DEADLINE, Reader};

/// What a block may need, so that a spelling mistake cannot leave one out.
const NEEDS: [&str; 11] = [
    // The source tree and a Rust toolchain.
    "cargo",
    "npm",
    "apt",
    "network",
    // A person who reads and answers; often two terminals.
    "terminal",
    // An agent that is not built in.
    "another agent",
    // An API key, or an account to sign in with.
    "key",
    "desktop",
    // Files that the page does not make.
    "files",
    "root",
    "systemd",
];
/// Commands that a test must not run, because they change the machine or wait, and what a block with them needs.
const FOREIGN: [(&str, &str); 11] = [
    ("cargo", "cargo"),
    ("npm", "npm"),
    ("apt-get", "apt"),
    ("sudo", "root"),
    ("usermod", "root"),
    ("groupadd", "root"),
    ("install", "root"),
    ("systemctl", "systemd"),
    ("journalctl", "systemd"),
    ("install-service", "systemd"),
    ("serve", "terminal"),
];
/// The languages of blocks. `sh` is the one for the shell: a block in `bash` would not be run.
const LANGUAGES: [&str; 6] = ["sh", "text", "json", "toml", "yaml", "ini"];
const PROGRAMS: [&str; 3] = ["bash", "timeout", "curl"];
const PAGES_AT_ONCE: usize = 4;
/// The reader of docs/getting-started.md has no daemon yet.
const FIRST_PAGE: &str = "docs/getting-started.md";
const START: &str = "acpd ls";

fn is_shown_to_readers(page: &Page) -> bool {
    page.name == "README.md" || page.name.starts_with("docs/")
}

fn needs(block: &Block) -> Option<Vec<&str>> {
    let needs = block.comment.as_deref()?.strip_prefix("needs:")?;
    Some(needs.split(',').map(str::trim).collect())
}

/// The blocks of a page that are run, each on the lines that it has in the page, so that bash reports these.
fn script(page: &Page) -> String {
    let mut lines = vec![String::new(); page.text.lines().count()];
    for block in page.blocks() {
        let is_typed_elsewhere = page.name == "README.md" && block.section == QUICK_START;
        if block.language == "sh" && needs(&block).is_none() && !is_typed_elsewhere {
            for (index, line) in block.text.lines().enumerate() {
                line.clone_into(&mut lines[block.line - 1 + index]);
            }
        }
    }
    lines.join("\n")
}

/// The first command of the blocks that are run, and that a test must not run: its line, and what a marker must name.
fn foreign(script: &str) -> Option<(usize, &'static str)> {
    script.lines().enumerate().find_map(|(index, line)| {
        let code = line.split(" #").next().unwrap();
        let found = FOREIGN.iter().find(|(command, _)| code.split_whitespace().any(|word| word == *command))?;
        Some((index + 1, found.1))
    })
}

/// Runs a page, and tells what failed.
async fn run(page: &Page) -> Result<(), String> {
    let script = script(page);
    if script.trim().is_empty() {
        return Ok(());
    }
    if let Some((line, need)) = foreign(&script) {
        return Err(format!("{}:{line}: `<!-- needs: {need} -->` is missing before the block", page.name));
    }
    let reader = Reader::new();
    let (directory, file) = (reader.home().join("project"), reader.home().join("page"));
    fs::create_dir(&directory).unwrap();
    fs::write(&file, script).unwrap();
    let before = if page.name == FIRST_PAGE { "" } else { START };
    // The line in the page, also when a function of the page failed. The last one is that of `. ~/page`.
    let place = "lines=($LINENO ${BASH_LINENO[@]}); echo \"FAILED ${lines[-2]}: $BASH_COMMAND\" >&2";
    // A command that waits for a person would wait for ever: `timeout` ends it with everything that it has started.
    let mut bash = reader.command("timeout");
    bash.arg(DEADLINE.as_secs().to_string()).args(["bash", "-eEuxo", "pipefail", "-c"]);
    bash.arg(format!("{before}\ntrap '{place}' ERR\nPS4='+ line $LINENO: '\n. ~/page"));
    bash.env("ACPD_SESSIONS_AGENT", "demo").env("ACPD_LIMITS_PROCESSES", "8");
    let output = bash.current_dir(&directory).stdin(Stdio::null()).output().await.unwrap();
    let steps = String::from_utf8_lossy(&output.stderr);
    let failed = steps.lines().find_map(|line| line.strip_prefix("FAILED ")).unwrap_or("see the last step");
    if output.status.success() { Ok(()) } else { Err(format!("{}:{failed} ({})\n{steps}", page.name, output.status)) }
}

#[tokio::test]
async fn every_command_in_the_documentation_works() {
    if !PROGRAMS.iter().all(|program| harness::has(program)) {
        return;
    }
    let pages: Vec<Page> = pages().into_iter().filter(is_shown_to_readers).collect();
    let outcomes: Vec<Result<(), String>> = stream::iter(&pages).map(run).buffered(PAGES_AT_ONCE).collect().await;
    let problems: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(problems.is_empty(), "commands that do not work as written:\n{}", problems.join("\n"));
}

#[test]
fn every_block_has_a_known_language_and_known_needs() {
    for page in pages() {
        let blocks = page.blocks();
        for block in &blocks {
            let place = format!("{}:{}", page.name, block.line);
            assert!(LANGUAGES.contains(&block.language.as_str()), "{place}: unknown language {:?}", block.language);
            for need in needs(block).unwrap_or_default() {
                assert!(NEEDS.contains(&need), "{place}: unknown need {need:?}; known are {}", NEEDS.join(", "));
            }
        }
        let marked = blocks.iter().filter(|block| block.language == "sh" && needs(block).is_some()).count();
        let markers = page.text.lines().filter(|line| line.trim_start().starts_with("<!-- needs")).count();
        assert_eq!(markers, marked, "{}: a marker is not `<!-- needs: … -->` directly before an sh block", page.name);
    }
}

#[test]
fn a_block_is_run_on_its_lines_unless_it_is_marked() {
    let text =
        "# A\n\n```sh\na\n```\n\n<!-- needs: npm -->\n```sh\nb\n```\n\n- c\n\n  ```sh\n  d\n  ```\n\n```text\ne\n```\n";
    let page = Page { name: "p".to_owned(), text: text.to_owned() };
    assert_eq!(script(&page).trim_end(), format!("{}a{}d", "\n".repeat(3), "\n".repeat(11)));
}
