//! Signals, and children that do nothing but be there.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, getgid, getgroups, getuid, pause, setsid};

use crate::step::Step;
use crate::wire::End;

/// Blocks until a signal kills the process.
pub fn block_forever() -> ! {
    loop {
        pause();
    }
}

/// Blocks the signals rather than ignoring them, because setting a disposition is `unsafe`. To the sender it looks the
/// same, and children inherit it in the same way.
pub fn ignore_signals(step: &Step<'_>) -> Result<(), End> {
    let mut signals = SigSet::empty();
    for name in step.array()? {
        signals.add(signal(step, name.as_str().unwrap_or_default())?);
    }
    signals.thread_block().map_err(|error| End::refused("cannot block signals", error))
}

/// Raises the signal against this process. Only a signal that does not kill (`STOP`, until it is continued) returns.
pub fn kill_self(step: &Step<'_>) -> Result<(), End> {
    let signal = signal(step, step.text()?)?;
    let mut unblocked = SigSet::empty();
    unblocked.add(signal);
    unblocked.thread_unblock().map_err(|error| End::refused("cannot unblock the signal", error))?;
    raise(signal).map_err(|error| End::refused("cannot raise the signal", error))?;
    if matches!(signal, Signal::SIGSEGV | Signal::SIGBUS) {
        // std's handler for stack overflows takes the first one and then restores the default action.
        raise(signal).map_err(|error| End::refused("cannot raise the signal", error))?;
    }
    Ok(())
}

fn signal(step: &Step<'_>, name: &str) -> Result<Signal, End> {
    Signal::from_str(&format!("SIG{name}")).map_err(|_| step.wants("names of signals such as \"TERM\""))
}

/// Who this process is: `UID GID GROUP,GROUP…`.
pub fn user() -> std::io::Result<String> {
    let mut groups: Vec<u32> = getgroups()?.into_iter().map(Gid::as_raw).collect();
    groups.sort_unstable();
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    Ok(format!("{} {} {}", getuid(), getgid(), groups.join(",")))
}

/// The children of one agent. They are never waited for, as those of a careless agent are not.
#[derive(Default)]
pub struct Children {
    started: Vec<Child>,
    process_ids: Vec<u32>,
}

impl Children {
    /// The process ids of all idle processes, those of orphans included.
    pub fn process_ids(&self) -> String {
        let texts: Vec<String> = self.process_ids.iter().map(u32::to_string).collect();
        texts.join(" ")
    }

    pub fn fork(&mut self, step: &Step<'_>) -> Result<(), End> {
        let count = if step.argument["count"].is_null() { 1 } else { step.number_at("count")? };
        for _ in 0..count {
            self.fork_one(step)?;
        }
        Ok(())
    }

    /// Starts one child, and waits until it has stopped itself: by then it is in its own session and has had its own
    /// child, so what the script does next does not race with that.
    fn fork_one(&mut self, step: &Step<'_>) -> Result<(), End> {
        let mut command = idle_command()?;
        command.arg("--announce");
        if step.flag_at("setsid") {
            command.arg("--setsid");
        }
        if step.flag_at("orphan") {
            command.arg("--orphan");
        }
        if step.flag_at("clearEnv") {
            command.env_clear();
        }
        if step.flag_at("ownGroup") {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(|error| End::refused("cannot fork", error))?;
        let process = Pid::from_raw(child.id().cast_signed());
        match waitpid(process, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => {}
            other => return Err(End::refused("the child did not announce itself", format!("{other:?}"))),
        }
        if step.flag_at("orphan") {
            self.process_ids.extend(children_of(child.id())?);
        } else {
            self.process_ids.push(child.id());
        }
        kill(process, Signal::SIGCONT).map_err(|error| End::refused("cannot continue the child", error))?;
        if step.flag_at("orphan") {
            child.wait().map_err(|error| End::refused("cannot wait for the child", error))?;
        } else {
            self.started.push(child);
        }
        Ok(())
    }
}

/// `test-agent --idle [--setsid] [--orphan] [--announce]`: what `fork` starts. It inherits stdio and holds it open.
pub fn idle(options: &[String]) -> Result<(), End> {
    let has = |name: &str| options.iter().any(|option| option == name);
    if has("--setsid") {
        setsid().map_err(|error| End::refused("cannot start a session", error))?;
    }
    let orphan = if has("--orphan") {
        Some(idle_command()?.spawn().map_err(|error| End::refused("cannot fork", error))?)
    } else {
        None
    };
    if has("--announce") {
        raise(Signal::SIGSTOP).map_err(|error| End::refused("cannot stop", error))?;
    }
    match orphan {
        // Leaving without waiting is what makes an orphan of it.
        Some(_) => Ok(()),
        None => block_forever(),
    }
}

fn idle_command() -> Result<Command, End> {
    let executable = std::env::current_exe().map_err(|error| End::refused("cannot find myself", error))?;
    let mut command = Command::new(executable);
    command.arg("--idle");
    Ok(command)
}

/// The children of a single-threaded process, from the kernel. The process is stopped meanwhile, so the list is whole.
fn children_of(process_id: u32) -> Result<Vec<u32>, End> {
    let path = format!("/proc/{process_id}/task/{process_id}/children");
    let text = std::fs::read_to_string(&path).map_err(|error| End::refused(&path, error))?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// What a shell command writes, and how it ends.
pub fn shell(command: &str) -> std::io::Result<String> {
    let output = Command::new("sh").arg("-c").arg(format!("{{ {command}\n}} 2>&1")).stdin(Stdio::null()).output()?;
    let code = output.status.code().map_or_else(|| "signal".to_owned(), |code| code.to_string());
    Ok(format!("{}exit {code}", String::from_utf8_lossy(&output.stdout)))
}
