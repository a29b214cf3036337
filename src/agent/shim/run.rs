//! Inside the shim: from its first instruction to its last.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use nix::unistd::{Gid, Uid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use signal_hook::consts::{FORBIDDEN, SIGCHLD};

use super::wire::{receive_descriptors, receive_json};
use super::{NAME, NOTIFY_NAME, Order, Owner, Report, Start};
use crate::agent::adapter_home::{AdapterHome, Furnished, Lent};
use crate::agent::confine::stage::{self, CANNOT_EXECUTE, Door};
use crate::agent::{capabilities, family, open_files, procfs};
use crate::model::session::ProcessName;

/// The last of the signals.
const SIGNAL_MAX: i32 = 64;

type Failure = String;

/// `__shim PROGRAM ARGUMENT…`
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let report = match prepare(arguments).and_then(Plan::start) {
        Ok(shim) => {
            shim.watch();
            return ExitCode::SUCCESS;
        }
        Err(message) => Report::Failed(message),
    };
    // It may have started the agent before it failed.
    family::end(procfs::children, None, |_, _| {});
    if !tell(&report) {
        // Nobody listens: a person has started it by hand.
        drop(writeln!(std::io::stderr(), "acpd: only the daemon can start the shim"));
    }
    ExitCode::from(CANNOT_EXECUTE)
}

/// All that is known before the agent starts.
struct Plan {
    command: Command,
    program: OsString,
    /// The way through which the agent gets confined, if it is.
    door: Option<Door>,
    cgroup: Option<Cgroup>,
    ended: UnixStream,
    lent: Option<Lent>,
}

/// The descriptors that came over the control socket.
struct Handed {
    stdin: OwnedFd,
    workspace: OwnedFd,
    cgroup: Option<Cgroup>,
}

/// The agent's cgroup as three open files, because whoever the shim becomes may not open them.
struct Cgroup {
    procs: File,
    procs_of_daemon: File,
    /// A terminal is not given it: its end is not the agent's.
    kill: Option<File>,
}

/// Everything that must hold before the agent exists, in order.
fn prepare(arguments: impl IntoIterator<Item = OsString>) -> Result<Plan, Failure> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().ok_or("the program is missing")?;
    // 1. No signal that programs are asked to end with ends the shim before its work is done; what SIGKILL or a fault
    //    leaves, the daemon ends. Handlers, unlike a mask, are not handed on to the agent.
    let ended = ignore_signals().map_err(failed("cannot handle signals"))?;
    // 2. No terminal and no job control reach it, and whoever loses its parent below it becomes its child.
    rustix::process::setsid().map_err(failed("cannot start a session"))?;
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(failed("cannot become a subreaper"))?;
    // 3. What the daemon opened for it comes before the rights to open it go.
    let Handed { stdin, workspace, cgroup } = receive()?;
    let Start { is_agents, umask, open_files: count, owner, environment, confinement, adapter_home } =
        receive_json(std::io::stdin())?;
    // Before the agent exists: other daemons recognize agents by this name.
    rustix::thread::set_name(if is_agents { NAME } else { NOTIFY_NAME })
        .map_err(failed("cannot set the shim's name"))?;
    if let Some(count) = count {
        open_files::set(count).map_err(failed("cannot set the limit of open files"))?;
    }
    // 4. The session's owner.
    if let Some(owner) = &owner {
        if confinement.is_some() {
            // The agent cannot gain privileges in any case; the right to drop the set goes with the user id.
            capabilities::drop_bounding_set().ok();
        }
        become_owner(owner)?;
    }
    // By descriptor, so that it is the directory that was checked; and as the owner, who must be able to enter it.
    rustix::process::fchdir(&workspace).map_err(failed("cannot enter the workspace"))?;
    rustix::process::umask(Mode::from_raw_mode(umask));
    // 5. The agent, or the stage that is confined first and then becomes the agent.
    let (mut command, mut door) = match confinement {
        None => {
            let mut command = Command::new(&program);
            command.args(arguments).env_clear().envs(environment).stdin(Stdio::from(stdin));
            (command, None)
        }
        Some(confinement) => {
            let (command, door) = stage::command(Path::new(&program), arguments, confinement, environment, stdin)?;
            (command, Some(door))
        }
    };
    // An overlay of the home is better than a private one.
    let is_needed = |home: &AdapterHome| home.moved.is_empty() || !door.as_ref().is_some_and(Door::has_overlay);
    let adapter_home = adapter_home.filter(is_needed);
    if let (Some(door), Some(home)) = (&mut door, &adapter_home) {
        door.extend_environment(&home.moved);
    }
    let has_terminals = door.as_ref().is_none_or(Door::is_isolated);
    let lent = adapter_home.map(|home| furnish(&home, has_terminals)).transpose()?.flatten();
    command.process_group(0);
    Ok(Plan { command, program, door, cgroup, ended, lent })
}

/// Puts what the agent needs into the session's home, and gives the login that it was lent.
fn furnish(home: &AdapterHome, has_terminals: bool) -> Result<Option<Lent>, Failure> {
    let Furnished { warnings, account, lent } =
        home.furnish(has_terminals).map_err(failed("cannot prepare the session's home"))?;
    for warning in warnings {
        // It is the agent's, and goes where all that the agent says there goes.
        drop(writeln!(std::io::stderr(), "acpd: {warning}"));
    }
    if let Some(account) = account {
        tell(&Report::Account(account));
    }
    Ok(lent)
}

/// Readable whenever a child has ended; every other signal that would end the shim does nothing.
fn ignore_signals() -> std::io::Result<UnixStream> {
    for signal in (1..=SIGNAL_MAX).filter(|signal| *signal != SIGCHLD && !FORBIDDEN.contains(signal)) {
        // A few numbers are the C library's own.
        signal_hook::flag::register(signal, Arc::default()).ok();
    }
    let (ended, tell) = UnixStream::pair()?;
    ended.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, tell)?;
    Ok(ended)
}

fn receive() -> Result<Handed, Failure> {
    let mut descriptors = receive_descriptors(std::io::stdin())?.into_iter();
    let stdin = descriptors.next().ok_or("the agent has no standard input")?;
    let workspace = descriptors.next().ok_or("the agent has no workspace")?;
    let mut files = descriptors.map(File::from);
    let cgroup = match (files.next(), files.next(), files.next()) {
        (Some(procs), Some(procs_of_daemon), kill) => Some(Cgroup { procs, procs_of_daemon, kill }),
        _ => None,
    };
    Ok(Handed { stdin, workspace, cgroup })
}

/// Groups first: whoever has given up the user id may not change them any more.
fn become_owner(owner: &Owner) -> Result<(), Failure> {
    let groups: Vec<Gid> = owner.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    nix::unistd::setgroups(&groups).map_err(failed("cannot set the owner's groups"))?;
    nix::unistd::setresgid(group, group, group).map_err(failed("cannot become the owner's group"))?;
    nix::unistd::setresuid(user, user, user).map_err(failed("cannot become the owner"))
}

impl Plan {
    /// Starts the agent. It is born in its own cgroup because the shim is there at that moment, and only then: so no
    /// code of ours need run in the child.
    fn start(self) -> Result<Watch, Failure> {
        let Self { mut command, program, door, mut cgroup, ended, lent } = self;
        if let Some(cgroup) = &mut cgroup {
            cgroup.procs.write_all(b"0").map_err(failed("cannot join the agent's cgroup"))?;
        }
        let spawned = command.spawn();
        if let Some(cgroup) = &mut cgroup {
            cgroup.procs_of_daemon.write_all(b"0").map_err(failed("cannot leave the agent's cgroup"))?;
        }
        let child = spawned.map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
        // It holds the agent's ends of the pipes.
        drop(command);
        if let Some(door) = door {
            tell(&Report::Confined(door.pass()?));
        }
        let agent = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("the agent has no process id")?;
        // Only the agent holds its pipes, so that the daemon sees when it closes them.
        let nothing = File::open("/dev/null").map_err(failed("cannot open /dev/null"))?;
        rustix::stdio::dup2_stdout(&nothing).map_err(failed("cannot close standard output"))?;
        rustix::stdio::dup2_stderr(&nothing).map_err(failed("cannot close standard error"))?;
        let pid = agent.as_raw_nonzero().get();
        // Where /proc hides it, it has no start that anybody could compare.
        tell(&Report::Started(procfs::name(pid).unwrap_or(ProcessName { pid, started: 0 })));
        Ok(Watch { agent, ended, cgroup_kill: cgroup.and_then(|cgroup| cgroup.kill), lent })
    }
}

/// What the shim does for as long as there is an agent.
struct Watch {
    agent: Pid,
    ended: UnixStream,
    cgroup_kill: Option<File>,
    lent: Option<Lent>,
}

impl Watch {
    /// Until the agent ends, the daemon orders it, or the daemon is gone; then until nothing is left.
    fn watch(mut self) {
        let control = std::io::stdin();
        loop {
            let mut ready =
                [PollFd::new(&control, PollFlags::IN), PollFd::from_borrowed_fd(self.ended.as_fd(), PollFlags::IN)];
            // It only fails when a signal interrupts it.
            if poll(&mut ready, None).is_err() {
                continue;
            }
            let (asked, child_ended) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            if child_ended && self.reap() {
                break;
            }
            if asked {
                let mut byte = [0];
                let order = match rustix::io::read(&control, &mut byte) {
                    Ok(1) => Order::from_byte(byte[0]).unwrap_or(Order::Kill),
                    Err(rustix::io::Errno::INTR) => continue,
                    // The end of the daemon.
                    Ok(_) | Err(_) => Order::Kill,
                };
                match order {
                    Order::GiveBack => self.give_back(),
                    Order::Terminate => {
                        // The agent is not reaped yet, so its number is still its own; it may have left its group.
                        kill_process_group(self.agent, Signal::TERM).ok();
                        kill_process(self.agent, Signal::TERM).ok();
                    }
                    Order::Kill => break,
                }
            }
        }
        self.end();
    }

    /// Reaps whoever has ended, but for the agent; whether that one has.
    fn reap(&mut self) -> bool {
        // One signal may stand for several ends, so how many there were does not matter.
        while matches!(self.ended.read(&mut [0; 16]), Ok(1..)) {}
        if matches!(family::status(self.agent), Ok(Some(_))) {
            return true;
        }
        for child in procfs::children().into_iter().filter(|child| *child != self.agent) {
            waitpid(Some(child), WaitOptions::NOHANG).ok();
        }
        false
    }

    fn end(mut self) {
        if let Some(kill) = &mut self.cgroup_kill {
            // What this misses, if anything, is found one by one.
            kill.write_all(b"1").ok();
        }
        let agent = self.agent;
        // The whole group at once; the agent is not reaped yet, so it is still its own.
        kill_process_group(agent, Signal::KILL).ok();
        // Its end is told when it is seen, and not only when nothing else is left.
        family::end(procfs::children, None, |pid, status| {
            if pid == agent {
                tell(&Report::Exited { code: status.exit_status(), signal: status.terminating_signal() });
            }
        });
        self.give_back();
    }

    /// What does not go back now does at the next start.
    fn give_back(&self) {
        if let Some(lent) = &self.lent {
            lent.give_back().ok();
        }
    }
}

/// Whether it was told. A daemon that is gone is not told anything.
fn tell(report: &Report) -> bool {
    send(std::io::stdin(), report.line().as_bytes(), SendFlags::NOSIGNAL).is_ok()
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| format!("{what}: {error}")
}
