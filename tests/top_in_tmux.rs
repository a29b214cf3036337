//! `acpd top` in a real tmux at 80 by 24: the capture in docs/top.md, and the terminal after SIGKILL of the daemon.
//!
//! `ACPD_UPDATE_TOP=1 cargo test --test top_in_tmux` writes the capture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod harness;
mod scene;

use std::path::{Path, PathBuf};

use harness::{Daemon, within};
use tokio::process::Command;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/top.md");
const FENCE: &str = "\n```text\n";
const FENCE_END: &str = "\n```\n";

/// A server of its own, which ends with the test.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Runs a line of shell with this client's environment in a window of 80 by 24. Nothing where there is no tmux.
    async fn start(daemon: &Daemon, line: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().await.is_err() {
            assert!(std::env::var_os("CI").is_none(), "there is no tmux");
            eprintln!("SKIPPED: there is no tmux, so acpd top was not tried in it");
            return None;
        }
        let tmux = Self { socket: daemon.root().join("tmux") };
        let client = daemon.client(&["top"]);
        let client = client.as_std();
        let mut command = Command::new("tmux");
        command.env_clear().envs(client.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("SHELL", "/bin/sh").env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.arg("-u").arg("-S").arg(&tmux.socket).args([
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
        ]);
        command.arg("-c").arg(daemon.workspace());
        command.arg(line.replace("acpd", &client.get_program().display().to_string()));
        let started = within("tmux", command.output()).await.unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(tmux)
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-u").arg("-S").arg(&self.socket).args(arguments).output();
        String::from_utf8(within("tmux", output).await.unwrap().stdout).unwrap()
    }

    /// Waits until the screen is as it should be, and gives it.
    async fn settles(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let settled = async {
            while !is_so(&screen) {
                screen = self.run(&["capture-pane", "-p"]).await;
            }
        };
        let has_settled = tokio::time::timeout(harness::DEADLINE, settled).await.is_ok();
        assert!(has_settled, "{what} never came:\n{screen}");
        screen
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = std::process::Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

#[tokio::test]
async fn the_capture_in_the_docs_is_what_it_shows() {
    let daemon = scene::busy().await;
    let Some(tmux) = Tmux::start(&daemon, "acpd top").await else { return };
    tmux.settles("the question", |screen| screen.contains("? Run cargo publish")).await;
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
    tmux.settles("an empty list", |screen| screen.contains("no sessions; `acpd run")).await;
    daemon.kill().await;
    tmux.settles("the loss", |screen| screen.contains("lost the daemon")).await;
    tmux.run(&["send-keys", "C-c"]).await;
    let screen = tmux.settles("the shell", |screen| screen.contains("isig")).await;
    assert!(screen.starts_with("left with 130\necho icanon isig"), "{screen}");
    daemon.restart().await;
}
