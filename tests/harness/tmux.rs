//! A real tmux, whose idea of a terminal differs here and there from that of the emulator.

use std::path::PathBuf;

use tokio::process::Command;

use super::{Daemon, within};

/// A server of its own, which ends with the test.
pub struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// Runs a line of shell with this client's environment in a window of 80 by 24. Nothing where there is no tmux.
    pub async fn start(daemon: &Daemon, line: &str) -> Option<Self> {
        if !super::has("tmux") {
            return None;
        }
        let tmux = Self { socket: daemon.root().join("tmux") };
        let client = daemon.client(&[]);
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

    pub async fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-u").arg("-S").arg(&self.socket).args(arguments).output();
        String::from_utf8(within("tmux", output).await.unwrap().stdout).unwrap()
    }

    /// Waits until the screen is as it should be, and gives it.
    pub async fn settles(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let settled = async {
            while !is_so(&screen) {
                screen = self.run(&["capture-pane", "-p"]).await;
            }
        };
        let has_settled = tokio::time::timeout(super::DEADLINE, settled).await.is_ok();
        assert!(has_settled, "{what} never came:\n{screen}");
        screen
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = std::process::Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
