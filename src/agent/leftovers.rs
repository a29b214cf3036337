//! What a dead daemon left behind, and the end of that.
//!
//! A shim outlives its daemon only as long as it takes to end its agent. So there is something to find only when the
//! shim was killed too, or is at its work this very moment. Whatever is ended here is known for certain to be ours: by
//! its cgroup, by its process id together with the time it started, or by the mark in its environment. A number alone
//! says nothing, because numbers are given again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::command::SESSION_MARK;
use super::{cgroup, procfs};
use crate::model::SessionId;
use crate::model::session::{ProcessIdentity, ProcessName};

/// How long shims that are at their work may take for it, all together; and what was killed here to end.
const DEADLINE: Duration = Duration::from_secs(5);

/// How often the families are looked for. Two looks do, unless somebody forks as fast as it can.
const LOOKS_MAX: usize = 100;

type Everybody = HashMap<i32, procfs::Stat>;

/// Clears what the sessions' processes left: `known` are those that were recorded, `cgroups` those that are still there.
/// Blocks; tells how many processes and cgroups it ended.
///
/// What a daemon that lives has started is not left by anybody: this may be a copy of its record.
pub fn clear(boot_id: &str, known: &[(SessionId, ProcessIdentity)], cgroups: Vec<(SessionId, PathBuf)>) -> usize {
    // A process of another boot is gone with it.
    let here = || known.iter().filter(|(_, identity)| identity.boot_id == boot_id);
    let owned: HashSet<SessionId> =
        here().filter(|(_, identity)| procfs::is_alive(identity.daemon)).map(|(session, _)| *session).collect();
    let left: Vec<_> = here().filter(|(session, _)| !owned.contains(session)).collect();
    let shims: Vec<OwnedFd> = left.iter().filter_map(|(_, identity)| open(identity.shim)).collect();
    let_shims_finish(&shims);
    let mut ended = 0;
    // The dead daemon may have been in another cgroup than this one; the record tells where its agents were.
    let recorded =
        left.iter().filter_map(|(session, identity)| Some((*session, PathBuf::from(identity.cgroup.as_ref()?))));
    let cgroups: BTreeSet<(SessionId, PathBuf)> = recorded.chain(cgroups).collect();
    let is_left = |(session, directory): &(SessionId, PathBuf)| !owned.contains(session) && directory.exists();
    for (session, directory) in cgroups.into_iter().filter(is_left) {
        tracing::warn!(%session, cgroup = %directory.display(), "removing the cgroup of a stale agent of a previous daemon");
        match cgroup::remove(&directory) {
            Ok(()) => ended += 1,
            Err(error) => tracing::error!(%session, %error, "cannot remove an agent's cgroup"),
        }
    }
    ended + end(&stop_families(&left))
}

/// Everybody is stopped before anybody is killed: whoever forks meanwhile would leave a child that has lost its parent.
/// Only when a look finds nobody new are the families whole.
fn stop_families(left: &[&(SessionId, ProcessIdentity)]) -> Vec<Stopped> {
    let mut stopped = Vec::new();
    let mut known = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let everybody = everybody();
        let before = known.len();
        for (session, identity) in left {
            for process in family(*session, identity, &everybody) {
                if known.insert(process)
                    && let Some(descriptor) = open(process)
                {
                    // One that cannot be stopped is told of when it cannot be killed.
                    pidfd_send_signal(&descriptor, Signal::STOP).ok();
                    stopped.push(Stopped { session: *session, pid: process.pid, descriptor });
                }
            }
        }
        if known.len() == before {
            break;
        }
    }
    stopped
}

/// A process that somebody left, held.
struct Stopped {
    session: SessionId,
    pid: i32,
    descriptor: OwnedFd,
}

/// A shim ends by itself, and leaves nothing. One that was stopped is woken for that.
fn let_shims_finish(shims: &[OwnedFd]) {
    let until = Instant::now() + DEADLINE;
    for shim in shims {
        pidfd_send_signal(shim, Signal::CONT).ok();
    }
    for shim in shims {
        has_ended(shim, until);
    }
}

fn everybody() -> Everybody {
    let own = std::process::id().cast_signed();
    let others = procfs::processes().into_iter().filter(|pid| *pid != own);
    let alive = |pid| procfs::stat(pid).filter(|stat| !stat.is_zombie);
    others.filter_map(|pid| Some((pid, alive(pid)?))).collect()
}

/// The shim and the agent, everybody below them, and everybody that carries the session's mark.
fn family(session: SessionId, identity: &ProcessIdentity, everybody: &Everybody) -> Vec<ProcessName> {
    let name = |pid: i32| everybody.get(&pid).map(|stat| ProcessName { pid, started: stat.started });
    let known = [identity.shim, identity.agent].into_iter().filter(|process| name(process.pid) == Some(*process));
    let mut found: HashSet<i32> = known.map(|process| process.pid).collect();
    let mark = format!("{SESSION_MARK}={session}");
    found.extend(everybody.keys().filter(|pid| procfs::has_environment(**pid, &mark)));
    loop {
        let is_below = |pid: &i32, stat: &procfs::Stat| found.contains(&stat.parent) && !found.contains(pid);
        let below: Vec<i32> = everybody.iter().filter(|(pid, stat)| is_below(pid, stat)).map(|(pid, _)| *pid).collect();
        if below.is_empty() {
            break;
        }
        found.extend(below);
    }
    found.into_iter().filter_map(name).collect()
}

/// A descriptor of exactly this process: the number is opened first, and then seen to be that of the one meant.
fn open(process: ProcessName) -> Option<OwnedFd> {
    let descriptor = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    (procfs::name(process.pid) == Some(process)).then_some(descriptor)
}

/// Kills them all, and then waits for their end; tells how many have.
fn end(processes: &[Stopped]) -> usize {
    for Stopped { session, pid, descriptor } in processes {
        match pidfd_send_signal(descriptor, Signal::KILL) {
            Ok(()) => tracing::warn!(%session, pid, "killed a stale process of a previous daemon"),
            Err(error) => tracing::error!(%session, pid, %error, "cannot kill a stale process of a previous daemon"),
        }
    }
    let until = Instant::now() + DEADLINE;
    processes.iter().filter(|process| has_ended(&process.descriptor, until)).count()
}

fn has_ended(process: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            // A signal for the daemon; the wait goes on.
            Err(_) if !left.is_zero() => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn identity(child: &std::process::Child, started: u64) -> ProcessIdentity {
        let pid = i32::try_from(child.id()).unwrap();
        let nobody = ProcessName { pid: i32::MAX, started: 0 };
        ProcessIdentity {
            boot_id: procfs::boot_id().unwrap(),
            daemon: nobody,
            shim: nobody,
            agent: ProcessName { pid, started },
            group: pid,
            cgroup: None,
        }
    }

    #[test]
    fn only_who_is_meant_is_ended() {
        let session = SessionId::new();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let started = procfs::stat(i32::try_from(child.id()).unwrap()).unwrap().started;
        let boot = procfs::boot_id().unwrap();

        let another_start = [(session, identity(&child, started + 1))];
        assert_eq!(clear(&boot, &another_start, Vec::new()), 0);
        let another_boot = [(session, ProcessIdentity { boot_id: "other".to_owned(), ..identity(&child, started) })];
        assert_eq!(clear(&boot, &another_boot, Vec::new()), 0);
        let own = procfs::name(std::process::id().cast_signed()).unwrap();
        let living_daemon = [(session, ProcessIdentity { daemon: own, ..identity(&child, started) })];
        assert_eq!(clear(&boot, &living_daemon, Vec::new()), 0);
        assert!(child.try_wait().unwrap().is_none(), "neither a number given again nor a living daemon's is ours");

        // A daemon that has ended is dead, even when nobody has seen that yet.
        let mut unseen = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        let unseen_pid = i32::try_from(unseen.id()).unwrap();
        let daemon = procfs::name(unseen_pid).unwrap();
        while !procfs::stat(unseen_pid).unwrap().is_zombie {
            std::thread::yield_now();
        }
        assert_eq!(clear(&boot, &[(session, ProcessIdentity { daemon, ..identity(&child, started) })], Vec::new()), 1);
        assert!(!child.wait().unwrap().success());
        unseen.wait().unwrap();
    }

    #[test]
    fn a_family_that_forks_while_it_is_ended_is_ended_whole() {
        let session = SessionId::new();
        let forks = "i=0; while [ $i -lt 2000 ]; do sleep 1000 & i=$((i + 1)); done; wait";
        let mut forker = Command::new("sh");
        forker.args(["-c", forks]).env(SESSION_MARK, session.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut forker = forker.spawn().unwrap();
        let marked = || {
            let mark = format!("{SESSION_MARK}={session}");
            procfs::processes().into_iter().filter(|pid| procfs::has_environment(*pid, &mark)).collect::<Vec<i32>>()
        };
        while marked().len() < 3 {
            std::thread::yield_now();
        }
        let started = procfs::stat(i32::try_from(forker.id()).unwrap()).unwrap().started;
        clear(&procfs::boot_id().unwrap(), &[(session, identity(&forker, started))], Vec::new());
        let left = marked();
        for process in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            rustix::process::kill_process(process, Signal::KILL).ok();
        }
        forker.wait().unwrap();
        assert_eq!(left, [0; 0]);
    }

    #[test]
    fn the_mark_in_the_environment_finds_whoever_has_left_the_family() {
        let session = SessionId::new();
        let marked = |session: SessionId| {
            Command::new("cat").env(SESSION_MARK, session.to_string()).stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut ours, mut anothers) = (marked(session), marked(SessionId::new()));
        let mut gone = Command::new("true").spawn().unwrap();
        let known = [(session, identity(&gone, 1))];
        gone.wait().unwrap();
        assert_eq!(clear(&procfs::boot_id().unwrap(), &known, Vec::new()), 1);
        assert!(!ours.wait().unwrap().success());
        assert!(anothers.try_wait().unwrap().is_none());
        drop(anothers.stdin.take());
        anothers.wait().unwrap();
    }
}
