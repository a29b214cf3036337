//! A person who follows the documentation: an empty home, `acpd` on the `PATH`, and nothing else of this machine's settings.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use super::process::process_gone;

pub struct Reader {
    home: TempDir,
    path: String,
}

impl Reader {
    pub fn new() -> Self {
        let home = tempfile::Builder::new().prefix("acpd-reader-").tempdir().unwrap();
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
        // The demo agent answers as fast as it can. Nothing else differs from a person's environment.
        command.env("ACPD_DEMO_PAUSE_MS", "0").current_dir(self.home()).kill_on_drop(true);
        command
    }

    /// Ends the daemon that the commands started, if it still runs.
    pub async fn leave(&self) {
        let status = self.command("acpd").args(["status", "--json"]).stderr(Stdio::null()).output().await.unwrap();
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&status.stdout) else { return };
        let Some(pid) = status["info"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()) else { return };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::SIGTERM).unwrap();
        process_gone(pid).await;
    }
}
