//! `acpd socket`: where the daemon listens, for `curl --unix-socket "$(acpd socket)"`.

use clap::Args;
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::clean;

/// Print the path of the daemon's socket
///
/// Prints it even if no daemon runs.
#[derive(Args, Debug)]
pub struct Socket {}

impl Socket {
    pub fn execute(context: &Context) -> Result<Exit, ClientError> {
        let path = context.socket.display().to_string();
        let text = if context.output.json { json!({"socket": path}).to_string() } else { clean(&path) };
        context.output.print(&text)?;
        Ok(Exit::Ok)
    }
}
