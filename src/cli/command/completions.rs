//! `acpd completions`: the script that has a shell complete acpd's commands and sessions.

use clap::Args;

use crate::cli::completion::{self, Shell};
use crate::cli::error::ClientError;

/// Print the completion script for a shell
///
/// Load the script when your shell starts, as in the examples, so that it always matches the installed acpd. At each Tab it
/// runs acpd, which asks the running daemon for sessions; it never starts a daemon. In bash, press Tab twice to list
/// sessions with their titles.
#[derive(Args, Clone, Copy, Debug)]
pub struct Completions {
    /// Shell to print the script for
    pub shell: Shell,
}

impl Completions {
    pub fn text(self) -> Result<String, ClientError> {
        completion::script(self.shell).map_err(ClientError::Output)
    }
}
