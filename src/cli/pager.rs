//! A long text, for whoever reads it: through a pager on a terminal, as it is anywhere else.
//!
//! The text comes piece by piece, so that a long conversation is never held whole; and when the reader has seen enough and
//! closes the pager, no more is fetched.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::error::ClientError;
use super::interrupts::Interrupts;
use super::output::Output;

/// It ends by itself when everything fits the screen (F), keeps the colours (R) and leaves what was read there (X).
const USUAL: &str = "less -FRX";

pub enum Pager {
    Plain(Output),
    Running {
        child: Child,
        /// Until everything is written.
        stdin: Option<ChildStdin>,
        /// Ctrl-C is the pager's while it runs.
        _interrupts: Interrupts,
    },
}

impl Pager {
    /// A pager where somebody looks at a terminal and wants one; otherwise, and when it cannot be started, stdout.
    pub fn start(output: Output, is_wanted: bool) -> Result<Self, ClientError> {
        let command = if is_wanted && output.stdout_is_terminal && !output.json { chosen() } else { None };
        let Some(command) = command else { return Ok(Self::Plain(output)) };
        let interrupts = Interrupts::listen()?;
        // As every program does it: PAGER may have arguments.
        let mut shell = Command::new("sh");
        // Without a locale `less` takes the text for ASCII.
        if std::env::var_os("LESSCHARSET").is_none() {
            shell.env("LESSCHARSET", "utf-8");
        }
        let child = shell.arg("-c").arg(command).stdin(Stdio::piped()).spawn();
        let Ok(mut child) = child else { return Ok(Self::Plain(output)) };
        let stdin = child.stdin.take();
        Ok(Self::Running { child, stdin, _interrupts: interrupts })
    }

    /// Writes one piece, with its line end. Tells whether there is still somebody who reads.
    pub fn write(&mut self, text: &str) -> Result<bool, ClientError> {
        match self {
            Self::Plain(output) => output.print(text).map(|()| true),
            Self::Running { stdin, .. } => {
                let Some(pipe) = stdin else { return Ok(false) };
                match writeln!(pipe, "{text}") {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
                    Err(error) => Err(ClientError::Output(error)),
                }
            }
        }
    }

    /// Waits until the reader is done.
    pub fn finish(self) -> Result<(), ClientError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Running { mut child, stdin, .. } => {
                drop(stdin);
                child.wait().map(drop).map_err(|source| ClientError::io("wait for the pager", source))
            }
        }
    }
}

/// The command that the environment names, or the usual one when it is installed; nothing when somebody wants none.
fn chosen() -> Option<String> {
    let named = ["ACPD_PAGER", "PAGER"].iter().find_map(|name| std::env::var(name).ok());
    match named.as_deref().map(str::trim) {
        Some("" | "cat") => None,
        Some(command) => Some(command.to_owned()),
        None => is_installed("less").then(|| USUAL.to_owned()),
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
