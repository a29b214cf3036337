//! `acpd top` in a real tmux at 80 by 24: the capture in docs/top.md, and the terminal after SIGKILL of the daemon.
//!
//! `ACPD_UPDATE_TOP=1 cargo test --test top_in_tmux` writes the capture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;
mod scene;

use std::path::Path;

use harness::{Daemon, Tmux};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/top.md");
const FENCE: &str = "\n```text\n";
const FENCE_END: &str = "\n```\n";

#[tokio::test]
async fn the_capture_in_the_docs_is_what_it_shows() {
    let daemon = scene::busy().await;
    let Some(tmux) = Tmux::start(&daemon, "acpd top").await else { return };
    tmux.settles("the question", |screen| screen.contains("? $ cargo publish")).await;
    tmux.run(&["send-keys", "j"]).await;
    let screen = tmux.settles("the log and the figures", scene::is_whole).await;
    let screen = screen.trim_end();

    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once(FENCE).expect("docs/top.md has a capture");
    let (shown, after) = rest.split_once(FENCE_END).expect("docs/top.md has a whole capture");
    if std::env::var_os("ACPD_UPDATE_TOP").is_some() {
        std::fs::write(Path::new(DOCUMENT), format!("{before}{FENCE}{screen}{FENCE_END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        scene::words(shown),
        scene::words(screen),
        "ACPD_UPDATE_TOP=1 cargo test --test top_in_tmux writes docs/top.md anew"
    );
}

#[tokio::test]
async fn the_shell_has_its_terminal_back_after_the_daemon_was_killed() {
    let mut daemon = Daemon::start().await;
    let line = "acpd top; echo left with $?; stty -a | tr ' ;' '\\n\\n' | grep -xE 'echo|icanon|isig' | sort | xargs echo; cat";
    let Some(tmux) = Tmux::start(&daemon, line).await else { return };
    tmux.settles("an empty list", |screen| screen.contains("no sessions; start one")).await;
    daemon.kill().await;
    tmux.settles("the loss", |screen| screen.contains("lost the connection to the daemon")).await;
    tmux.run(&["send-keys", "C-c"]).await;
    let screen = tmux.settles("the shell", |screen| screen.contains("isig")).await;
    assert!(screen.starts_with("left with 130\necho icanon isig"), "{screen}");
    daemon.restart().await;
}
