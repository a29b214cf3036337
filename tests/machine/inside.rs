//! What a test does within the machine: it types commands, and waits for facts.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::harness::{DEADLINE, Output};

/// Somebody with a home and a login.
pub struct Account {
    pub name: &'static str,
    pub uid: u32,
}

impl Account {
    /// Makes a user, who is in these groups.
    pub fn make(name: &'static str, groups: &[&str]) -> Self {
        let groups = groups.iter().flat_map(|group| ["-G", group]);
        let mut command = Command::new("useradd");
        run(command.args(["-m", "-s", "/bin/bash"]).args(groups).arg(name)).success();
        let uid = run(Command::new("id").args(["-u", name])).success().trim().parse().unwrap();
        Self { name, uid }
    }

    pub fn home(&self) -> String {
        format!("/home/{}", self.name)
    }

    /// Runs a line of the shell's as this user, with the environment of a login.
    pub fn shell(&self, line: &str) -> Output {
        let run_dir = format!("XDG_RUNTIME_DIR=/run/user/{}", self.uid);
        let mut command = Command::new("runuser");
        command.args(["-u", self.name, "--", "env", "-i", &run_dir, &format!("HOME={}", self.home())]);
        command.arg(format!("USER={}", self.name)).arg("PATH=/usr/local/bin:/usr/bin:/bin");
        run(command.args(["sh", "-c", line]).current_dir(self.home()))
    }

    /// Runs acpd as this user, and reads what it prints.
    pub fn acpd(&self, arguments: &str) -> Value {
        self.shell(&format!("acpd --json {arguments}")).json()
    }
}

/// A line of the shell's, as root.
pub fn shell(line: &str) -> Output {
    run(Command::new("sh").args(["-c", line]))
}

/// What systemctl says, when it goes well.
#[track_caller]
pub fn systemctl(arguments: &str) -> String {
    shell(&format!("systemctl {arguments}")).success()
}

/// Runs acpd as root, and reads what it prints.
#[track_caller]
pub fn acpd(arguments: &str) -> Value {
    shell(&format!("acpd --json {arguments}")).json()
}

/// One of the service's properties.
pub fn property(name: &str) -> String {
    systemctl(&format!("show acpd.service --value -p {name}")).trim().to_owned()
}

/// What the journal has of the service.
pub fn journal(arguments: &str) -> String {
    shell(&format!("journalctl --sync; journalctl -u acpd --no-pager {arguments}")).success()
}

/// Waits until one of the service's properties is such. Nobody tells, so it is looked at again and again.
pub fn wait_for_property(name: &str, is_met: impl Fn(&str) -> bool) -> String {
    until(&format!("another {name} than {:?}", property(name)), || Some(property(name)).filter(|value| is_met(value)))
}

/// Waits for a fact.
pub fn until<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(fact) = fact() {
            return fact;
        }
        assert!(began.elapsed() < DEADLINE, "waited {} seconds in vain: {what}", DEADLINE.as_secs());
        std::thread::yield_now();
    }
}

/// Writes a file, with the directories that it needs.
pub fn write(path: &str, text: &str) {
    std::fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn run(command: &mut Command) -> Output {
    Output::new(&command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}
