//! The shim: a hidden mode of this program that stands between the daemon and the agent.
//!
//! It undoes what the daemon set for itself (its narrow umask) and then becomes the agent. It runs before any runtime or
//! thread exists, so that what it does to the process is safe without `unsafe`.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::fs::Mode;

/// The first argument that makes this program a shim.
pub const ARGUMENT: &str = "__shim";

/// What a shell says when it cannot execute a command.
const CANNOT_EXECUTE: u8 = 126;

/// The arguments that start `program` through the shim.
pub fn arguments(umask: Mode) -> [OsString; 2] {
    [ARGUMENT.into(), format!("{:o}", umask.as_raw_mode()).into()]
}

/// `__shim UMASK PROGRAM ARGUMENT…`: never returns when all is well.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let umask = arguments.next().and_then(|text| u32::from_str_radix(text.to_str()?, 8).ok());
    let (Some(umask), Some(program)) = (umask, arguments.next()) else {
        complain("the shim is started by the daemon only");
        return ExitCode::from(CANNOT_EXECUTE);
    };
    rustix::process::umask(Mode::from_raw_mode(umask));
    let error = Command::new(&program).args(arguments).exec();
    complain(&format!("cannot execute {}: {error}", program.display()));
    ExitCode::from(CANNOT_EXECUTE)
}

fn complain(message: &str) {
    // Standard error is the daemon's tail of it; when even that is gone, the exit code is all there is to say.
    drop(writeln!(std::io::stderr(), "acpd: {message}"));
}
