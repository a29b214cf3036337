//! `acpd backup`: a copy of the whole record, while the daemon runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::text::{one_line, size};
use crate::control::wire::{BackUp, Backup};

/// A copy takes as long as the disk takes; past this something is wrong with it.
const TIMEOUT: Duration = Duration::from_hours(1);

/// Copy the store to a file while the daemon runs
///
/// The copy has all sessions and messages. The daemon writes it under a temporary name, checks it, and renames it last. It
/// never replaces an existing file. To restore a backup: stop the daemon, move acpd.db and acpd.db-wal out of
/// the state directory, copy the backup there as acpd.db, and start the daemon.
#[derive(Args, Debug)]
pub struct BackupCommand {
    /// File to write; it must not exist yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

impl BackupCommand {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        // The daemon works elsewhere.
        let path = std::path::absolute(&self.file)
            .map_err(|error| ClientError::io(format!("find {}", self.file.display()), error))?;
        let Some(path) = path.to_str() else {
            let message = format!("the path {} is not valid UTF-8", path.display());
            return Err(ClientError::local(message, "choose another name"));
        };
        let daemon = context.daemon().await?;
        let request = BackUp { path: path.to_owned() };
        let answer: Box<RawValue> = daemon.post_patiently("/v1/backup", &request, TIMEOUT).await?;
        context.show(&answer, |made: Backup| {
            let seconds = made.duration_ms / 1000;
            let took = format!("{seconds}.{} s", made.duration_ms % 1000 / 100);
            let about = format!("{}, schema version {}, in {took}", size(made.bytes), made.schema_version);
            format!("{} ({about})", one_line(&made.path))
        })
    }
}
