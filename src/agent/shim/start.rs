//! The daemon's end of the shim: how it is started, told and heard.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, Mode, memfd_create};
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::wire::{hand_over, send_json};
use super::{ARGUMENT, Order, Report, Start};
use crate::agent::cgroup::{AgentCgroup, CgroupDoor};
use crate::agent::children::{Below, Children};
use crate::agent::command::{Command, SELF_PROGRAM};
use crate::agent::open_files;

/// A running shim. When it is dropped the control socket ends, and the shim ends what is below it.
#[derive(Debug)]
pub struct Shim {
    child: Child,
    pid: i32,
    children: Arc<Children>,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    has_ended: bool,
}

/// A shim, and the daemon's ends of the agent's pipes.
pub struct Started {
    pub shim: Shim,
    pub stdin: pipe::Sender,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

#[derive(Debug)]
pub enum Told {
    Report(Report),
    /// The shim is gone; nothing comes after this.
    Gone(ExitStatus),
}

impl Shim {
    pub fn start(
        command: &Command,
        umask: Mode,
        cgroup: Option<&AgentCgroup>,
        children: &Arc<Children>,
    ) -> std::io::Result<Started> {
        let (agent_stdin, stdin) = std::io::pipe()?;
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
        let files = cgroup.map(AgentCgroup::open).transpose()?;
        let mut descriptors = vec![agent_stdin.as_fd(), command.directory.as_fd()];
        descriptors.extend(files.iter().flatten().map(AsFd::as_fd));
        let outputs = [Stdio::piped(), Stdio::piped()];
        let mut shim = Self::launch(command, umask, &descriptors, outputs, children, Below::Agent(command.session))?;
        match (shim.child.stdout.take(), shim.child.stderr.take()) {
            (Some(stdout), Some(stderr)) => Ok(Started { shim, stdin, stdout, stderr }),
            _ => Err(std::io::Error::other("the shim was started without its pipes")),
        }
    }

    /// Starts what a terminal runs, with nothing to read, and gives the one pipe that it writes to.
    pub fn start_terminal(
        command: &Command,
        umask: Mode,
        door: Option<&CgroupDoor>,
        children: &Arc<Children>,
    ) -> std::io::Result<(Self, pipe::Receiver)> {
        let nothing = File::open("/dev/null")?;
        let files = door.map(CgroupDoor::open).transpose()?;
        let mut descriptors = vec![nothing.as_fd(), command.directory.as_fd()];
        descriptors.extend(files.iter().flatten().map(AsFd::as_fd));
        Self::start_with_one_output(command, umask, &descriptors, children, Below::Agent(command.session))
    }

    /// Starts an errand, which finds `input` on its standard input, and gives the one pipe that it writes to.
    pub fn start_errand(
        command: &Command,
        umask: Mode,
        input: &[u8],
        children: &Arc<Children>,
    ) -> std::io::Result<(Self, pipe::Receiver)> {
        // A file in memory, not a pipe: nobody has to wait for a reader.
        let mut stdin = File::from(memfd_create("acpd-errand", MemfdFlags::CLOEXEC)?);
        stdin.write_all(input)?;
        stdin.rewind()?;
        let descriptors = [stdin.as_fd(), command.directory.as_fd()];
        Self::start_with_one_output(command, umask, &descriptors, children, Below::Errand)
    }

    fn start_with_one_output(
        command: &Command,
        umask: Mode,
        descriptors: &[BorrowedFd<'_>],
        children: &Arc<Children>,
        below: Below,
    ) -> std::io::Result<(Self, pipe::Receiver)> {
        let (written, output) = std::io::pipe()?;
        let errors = output.try_clone()?;
        let outputs = [Stdio::from(output), Stdio::from(errors)];
        let shim = Self::launch(command, umask, descriptors, outputs, children, below)?;
        Ok((shim, pipe::Receiver::from_owned_fd(OwnedFd::from(written))?))
    }

    fn launch(
        command: &Command,
        umask: Mode,
        descriptors: &[BorrowedFd<'_>],
        [output, errors]: [Stdio; 2],
        children: &Arc<Children>,
        below: Below,
    ) -> std::io::Result<Self> {
        let (control, theirs) = StdUnixStream::pair()?;
        hand_over(&control, descriptors)?;
        control.set_nonblocking(true)?;
        let start = Start {
            is_agents: below != Below::Errand,
            umask: umask.as_raw_mode(),
            open_files: open_files::at_start(),
            owner: command.owner.clone(),
            environment: command.environment.clone(),
            confinement: command.confinement.clone(),
            adapter_home: command.adapter_home.clone(),
        };
        send_json(&control, &start)?;
        let (reports, orders) = UnixStream::from_std(control)?.into_split();

        let mut shim = tokio::process::Command::new(SELF_PROGRAM);
        shim.arg0("acpd")
            .arg(ARGUMENT)
            .arg(&command.program)
            .args(&command.args)
            .env_clear()
            // It goes to its directory by the descriptor.
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(output)
            .stderr(errors);
        let child = children.start(&mut shim, below)?;
        let pid = child.id().ok_or_else(|| std::io::Error::other("the shim has no process id"))?.cast_signed();
        let reports = BufReader::new(reports).lines();
        Ok(Self { child, pid, children: Arc::clone(children), reports, orders, has_ended: false })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The next report; at the end, the shim's own status. Safe to cancel.
    pub async fn next(&mut self) -> std::io::Result<Told> {
        while !self.has_ended {
            match self.reports.next_line().await {
                Ok(Some(line)) => {
                    if let Some(report) = Report::parse(&line) {
                        return Ok(Told::Report(report));
                    }
                    tracing::warn!(line, "cannot parse a message of the shim");
                }
                Ok(None) | Err(_) => self.has_ended = true,
            }
        }
        let status = self.child.wait().await;
        self.children.forget(self.pid);
        status.map(Told::Gone)
    }

    /// Gives an order, and wakes the shim for it: an agent can stop its own. A shim that is gone needs none.
    pub fn order(&self, order: Order) {
        // It is not reaped yet, so its number is its own.
        if let Some(pid) = Pid::from_raw(self.pid) {
            kill_process(pid, Signal::CONT).ok();
        }
        // Not through tokio, which may not know yet that the socket takes something.
        send(self.orders.as_ref(), &[order.byte()], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok();
    }

    /// The end of a shim that does not do as it is told.
    pub fn kill(&mut self) {
        self.child.start_kill().ok();
    }
}
