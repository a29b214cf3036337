//! The stage before the agent: this program again, as the process that becomes the agent when it is confined.
//!
//! Its standard input is a socket to the shim. The socket carries the agent's real standard input and an [`Entry`]. The stage
//! answers with the read end of a pipe and writes its report there: what is in force, and, if the agent cannot be executed,
//! why. The pipe ends when the agent is executed, because the write end is closed then. Other processes, such as bubblewrap,
//! may hold the socket, but not the pipe.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGPIPE;

use super::isolation::{self, Home, Inode, Isolated, Isolation, Obstacle};
use super::{Confinement, home_layer, rules};
use crate::agent::capabilities;
use crate::agent::command::SELF_PROGRAM;
use crate::agent::shim::wire::{hand_over, receive_descriptors, receive_json, send_json};
use crate::model::{Sandbox, SandboxLevel};
use crate::system;

/// The first argument that makes this program a stage.
pub const ARGUMENT: &str = "__confined";

/// What a shell says when it cannot execute a command.
pub const CANNOT_EXECUTE: u8 = 126;
/// The longest report.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// What the stage has to know.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    confinement: Confinement,
    is_isolated: bool,
    /// The directory in which the agent starts.
    directory: Inode,
    mounted: Vec<(PathBuf, Inode)>,
    /// Why the agent is not isolated although the configuration prefers it, or why its home is read-only.
    remark: Option<String>,
    /// Sent, and not inherited, because it must act on the agent alone.
    environment: BTreeMap<String, String>,
}

/// `__confined PROGRAM ARGUMENT…`
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (mut report, entry) = match enter() {
        Ok(entered) => entered,
        Err(error) => {
            // Nobody listens: a person has started it by hand.
            drop(writeln!(std::io::stderr(), "acpd: only the shim can start this mode ({error})"));
            return ExitCode::from(CANNOT_EXECUTE);
        }
    };
    // It returns only when it fails.
    let failure = become_agent(&mut report, entry, arguments);
    drop(report.write_all(format!("failed {}\n", failure.replace('\n', " ")).as_bytes()));
    ExitCode::from(CANNOT_EXECUTE)
}

/// Takes what the shim sends, and gives it the end of the report.
fn enter() -> Result<(File, Entry), String> {
    // The agent gets the standard ones only.
    system::keep_descriptors_from_children();
    // A copy of its own, which is marked to close when the agent is executed.
    let control = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let stdin = receive_descriptors(&control)?.into_iter().next().ok_or("the agent has no standard input")?;
    let entry = receive_json(&control)?;
    let (theirs, report) = std::io::pipe().map_err(|error| error.to_string())?;
    hand_over(&control, &[theirs.as_fd()]).map_err(|error| error.to_string())?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|error| error.to_string())?;
    Ok((File::from(OwnedFd::from(report)), entry))
}

fn become_agent(report: &mut File, entry: Entry, arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut arguments = arguments.into_iter();
    let Some(program) = arguments.next() else { return "the program is missing".to_owned() };
    let Entry { confinement, is_isolated, directory, mounted, remark, environment } = entry;
    // bubblewrap goes by paths: another directory may be at this path by now.
    if !Inode::of(Path::new(".")).is_ok_and(|current| current == directory) {
        return "cannot confine the agent: its start directory does not exist inside bubblewrap".to_owned();
    }
    if let Err(failure) = isolation::verify(&mounted) {
        return failure;
    }
    let mut sandbox = match rules::enforce(&confinement, is_isolated) {
        Ok(enforced) => rules::judge(&confinement, enforced, is_isolated),
        Err(failure) => return failure,
    };
    sandbox.missing.extend(remark);
    if confinement.required && sandbox.level != SandboxLevel::Isolated {
        return not_enough(&sandbox.missing.join("; "));
    }
    let told = serde_json::to_string(&sandbox).map_err(std::io::Error::from);
    if let Err(error) = told.and_then(|told| report.write_all(format!("confined {told}\n").as_bytes())) {
        return format!("cannot report how the agent is confined: {error}");
    }
    if let Err(failure) = capabilities::drop_all() {
        return failure;
    }
    match execute(&program, arguments, environment) {
        Ok(never) => match never {},
        Err(error) => format!("cannot execute {}: {error}", program.display()),
    }
}

fn not_enough(missing: &str) -> String {
    format!(
        "cannot isolate the agent as sandbox.mode = \"required\" demands: {missing}; install bubblewrap, allow user \
            namespaces, use Linux 6.12 or newer, or set sandbox.mode to \"best-effort\""
    )
}

/// Not by the standard library, whose way has a shell execute what the system takes for no program.
fn execute(
    program: &OsString,
    arguments: impl Iterator<Item = OsString>,
    environment: BTreeMap<String, String>,
) -> std::io::Result<Infallible> {
    let text = |text: OsString| CString::new(text.into_vec()).map_err(std::io::Error::from);
    let path = text(program.clone())?;
    let arguments = std::iter::once(program.clone()).chain(arguments).map(text).collect::<Result<Vec<_>, _>>()?;
    let entry = |(name, value): (String, String)| text(OsString::from(format!("{name}={value}")));
    let environment = environment.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    // This program ignores SIGPIPE, as Rust has it, and what is ignored stays so; but what is handled is not, any more.
    signal_hook::flag::register(SIGPIPE, Arc::default())?;
    Ok(nix::unistd::execve(&path, &arguments, &environment)?)
}

/// The shim's side: a command that starts the stage, and what is said to it.
pub struct Door {
    ours: UnixStream,
    entry: Entry,
    stdin: OwnedFd,
    /// This program, open until the stage has been started.
    own: OwnedFd,
}

/// Makes the command by which `program` is started confined, in place of the program itself, in the current directory.
pub fn command(
    program: &Path,
    arguments: impl IntoIterator<Item = OsString>,
    mut confinement: Confinement,
    environment: BTreeMap<String, String>,
    stdin: OwnedFd,
) -> Result<(Command, Door), String> {
    let failed = |error: std::io::Error| format!("cannot confine the agent: {error}");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(SELF_PROGRAM);
    let directory = Inode::of(Path::new(".")).map_err(failed)?;
    let (mut is_isolated, mut remark, mut mounted) = (false, None, Vec::new());
    // Not marked to close: bubblewrap executes this program by it, also if another file is at the program's path by now.
    let own = rustix::fs::open(SELF_PROGRAM, OFlags::PATH, Mode::empty()).map_err(|error| failed(error.into()))?;
    if let Some(isolation) = &confinement.isolation {
        check_home(isolation)?;
        let path = std::fs::read_link(SELF_PROGRAM).map_err(failed)?;
        let programs = if program == Path::new(SELF_PROGRAM) { vec![path.as_path()] } else { vec![&path, program] };
        let current = std::env::current_dir().map_err(failed)?;
        match Isolated::new(&mut confinement, &programs, &current) {
            Ok((isolated, read_only_home)) => {
                command = Command::new(isolated.program);
                command.args(isolated.arguments).arg(format!("/proc/self/fd/{}", own.as_raw_fd()));
                (is_isolated, remark, mounted) = (true, read_only_home, isolated.mounted);
            }
            Err(Obstacle::Agent(why)) => return Err(why),
            Err(Obstacle::System(why)) if confinement.required => return Err(not_enough(&why)),
            Err(Obstacle::System(why)) => remark = Some(format!("not isolated: {why}")),
        }
    }
    command.arg(ARGUMENT).arg(program).args(arguments).env_clear().stdin(Stdio::from(OwnedFd::from(theirs)));
    let entry = Entry { confinement, is_isolated, directory, mounted, remark, environment };
    Ok((command, Door { ours, entry, stdin, own }))
}

fn check_home(isolation: &Isolation) -> Result<(), String> {
    let Some(Home { layer, bytes_max, .. }) = &isolation.home else { return Ok(()) };
    let bytes = home_layer::size(layer, *bytes_max);
    if bytes <= *bytes_max {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    Err(format!(
        "the agent's changes to its home have {} MiB or more, which is above sandbox.home_max ({} MiB): discard them with \
            `acpd gc --homes` while the session is suspended, or raise the limit",
        mebibytes(bytes),
        mebibytes(*bytes_max)
    ))
}

impl Door {
    pub fn is_isolated(&self) -> bool {
        self.entry.is_isolated
    }

    /// Whether the agent writes to an overlay of its home.
    pub fn has_overlay(&self) -> bool {
        self.entry.is_isolated
            && self.entry.confinement.isolation.as_ref().is_some_and(|isolation| isolation.home.is_some())
    }

    pub fn extend_environment(&mut self, variables: &BTreeMap<String, String>) {
        self.entry.environment.extend(variables.clone());
    }

    /// Waits until the stage has become the agent; what is in force then. The command must be dropped before, because it
    /// holds the stage's end.
    pub fn pass(self) -> Result<Sandbox, String> {
        let Self { ours, entry, stdin, own } = self;
        let silent = |error: String| format!("cannot confine the agent: its first stage did not start ({error})");
        hand_over(&ours, &[stdin.as_fd()]).map_err(|error| silent(error.to_string()))?;
        drop((stdin, own));
        send_json(&ours, &entry).map_err(|error| silent(error.to_string()))?;
        let report = receive_descriptors(&ours).map_err(silent)?.into_iter().next();
        let report = report.ok_or_else(|| silent("it ended without a message".to_owned()))?;
        let mut text = String::new();
        let read = File::from(report).take(REPORT_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| silent(error.to_string()))?;
        let mut confined = None;
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("failed", why)) => return Err(why.to_owned()),
                Some(("confined", sandbox)) => confined = serde_json::from_str(sandbox).ok(),
                _ => {}
            }
        }
        confined.ok_or_else(|| silent("it ended without a message".to_owned()))
    }
}
