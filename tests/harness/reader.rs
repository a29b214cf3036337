//! A person who follows the documentation: an empty home, `acpd` on the `PATH`, and no settings of this machine.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

pub struct Reader {
    home: TempDir,
    path: String,
}

impl Reader {
    pub fn new() -> Self {
        // Not `TMPDIR`: the path of a socket has a limit.
        let home = tempfile::Builder::new().prefix("acpd-reader-").tempdir_in("/tmp").unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_acpd")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Self { home, path }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.home()).env("PATH", &self.path).env("LANG", "C.UTF-8");
        // The usual place. A machine with a daemon for all users must not get these commands, `acpd stop` least of all.
        command.env("ACPD_SOCKET", self.home().join(".local/state/acpd/run/acpd.sock"));
        // The demo agent answers as fast as it can.
        command.env("ACPD_DEMO_PAUSE_MS", "0").current_dir(self.home()).kill_on_drop(true);
        command
    }
}

/// Stops the daemon that the commands started, also when the test fails.
impl Drop for Reader {
    fn drop(&mut self) {
        let mut stop = self.command("acpd");
        // Without a daemon there is nothing to stop.
        drop(stop.arg("stop").as_std_mut().output());
    }
}
