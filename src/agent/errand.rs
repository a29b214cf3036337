//! Errands: commands that the configuration names, each run to its end below a shim of its own.
//!
//! The shim is what makes them safe to run: when the command ends, when it is killed, and when the daemon dies, whatever it has
//! started goes with it. An errand is no agent: the control socket serves the processes below its shim ([`super::peer_ancestry`]).

use tokio::sync::mpsc;

use super::command::Command;
use super::host::Host;
use super::process::SpawnError;
use super::shim::Shim;
use super::terminal::{Terminal, TerminalBounds, TerminalEnd, TerminalTold};

/// A command that runs. Dropping it kills.
#[derive(Debug)]
pub struct Errand {
    terminal: Terminal,
    told: mpsc::Receiver<(String, TerminalTold)>,
}

impl Errand {
    /// Starts the command with `input` on its standard input.
    pub fn start(command: &Command, input: &[u8], bounds: TerminalBounds, host: &Host) -> Result<Self, SpawnError> {
        let started = Shim::start_errand(command, bounds.umask, input, &host.children);
        let started = started.map_err(|source| SpawnError::of(command, source))?;
        let (teller, told) = mpsc::channel(1);
        let terminal = Terminal::supervise(String::new(), started, bounds.output_bytes_max, host, teller);
        Ok(Self { terminal, told })
    }

    /// Resolves when nothing is left of it. Safe to cancel.
    pub async fn ended(&mut self) -> TerminalEnd {
        loop {
            match self.told.recv().await {
                Some((_, TerminalTold::Started)) => {}
                Some((_, TerminalTold::Ended(end))) => return end,
                None => {
                    let failure = Some("the task that supervised it failed".to_owned());
                    return TerminalEnd { failure, ..TerminalEnd::default() };
                }
            }
        }
    }

    pub fn kill(&self) {
        self.terminal.kill();
    }

    /// The end of what it has written.
    pub fn output(&self) -> String {
        self.terminal.output(true).0
    }
}
