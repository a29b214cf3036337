//! `acpd completions`: the script that has a shell complete acpd's commands and sessions.

use clap::Args;

use crate::cli::completion::{self, Shell};
use crate::cli::error::ClientError;

/// Print a script that has a shell complete commands and sessions
///
/// The script asks acpd itself at each Tab, and acpd the running daemon; none is started for it. Have your shell read it
/// at its start, as below, and it is never older than acpd. bash shows the titles of sessions when it lists them (Tab
/// twice).
#[derive(Args, Clone, Copy, Debug)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

impl Completions {
    pub fn text(self) -> Result<String, ClientError> {
        completion::script(self.shell).map_err(ClientError::Output)
    }
}
