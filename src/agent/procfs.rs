//! What `/proc` tells about processes.

use std::fs;

use rustix::process::Pid;

use super::shim;
use crate::model::session::ProcessName;

/// What acpd wants to know of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// It has ended, and waits for its parent to see that.
    pub is_zombie: bool,
    pub parent: i32,
    /// Its name is that of a shim above an agent, of this daemon or another one.
    pub is_shim: bool,
    /// When it started, in clock ticks since the boot.
    pub started: u64,
}

/// Of a process that is there, dead or alive.
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether exactly this process runs. One that has ended and waits for its parent does not.
pub fn is_alive(process: ProcessName) -> bool {
    stat(process.pid).is_some_and(|stat| stat.started == process.started && !stat.is_zombie)
}

/// The name of a process that is there now.
pub fn name(pid: i32) -> Option<ProcessName> {
    stat(pid).map(|stat| ProcessName { pid, started: stat.started })
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The program's name, in parentheses, may itself hold parentheses and spaces; the state follows the last one.
    let (start, rest) = text.rsplit_once(')')?;
    let is_shim = start.split_once('(')?.1.as_bytes() == shim::NAME.to_bytes();
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // The state and the parent are the third and fourth field of the line, the start is the twenty-second.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { is_zombie, parent, is_shim, started })
}

/// The name of this boot. A process id and a start time mean nothing in another one.
pub fn boot_id() -> std::io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// Every process there is.
pub fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The children of this process, dead ones that wait to be reaped among them.
pub fn children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let listed = children_listed();
    // Without that list their parent is in each process.
    let pids = listed.unwrap_or_else(|| {
        processes().into_iter().filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == own)).collect()
    });
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// They belong to the thread that started them, or to any of the threads when that one is gone. Nothing, when the kernel
/// has no such list or a thread ended meanwhile.
fn children_listed() -> Option<Vec<i32>> {
    let mut pids = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        pids.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok()));
    }
    Some(pids)
}

/// Whether a process has this entry in the environment it was started with.
pub fn has_environment(pid: i32, entry: &str) -> bool {
    environment(pid).split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
}

/// Whether a process has this name in the environment it was started with.
pub fn is_marked(pid: i32, name: &str) -> bool {
    let is_it = |entry: &[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    environment(pid).split(|byte| *byte == 0).any(is_it)
}

fn environment(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let line = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 2 3";
        assert_eq!(parse_stat(line), Some(Stat { is_zombie: false, parent: 3, is_shim: false, started: 123_456 }));
        assert!(parse_stat(&line.replace("a) b (c", "acpd-shim")).unwrap().is_shim);
        assert_eq!(parse_stat("7 (cut"), None);
    }

    #[test]
    fn this_process_is_there_with_its_child() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(stat(own).is_some_and(|stat| stat.started > 0));
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        assert!(children().iter().any(|pid| pid.as_raw_nonzero().get() == id));
        assert_eq!(stat(id).unwrap().parent, own);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
