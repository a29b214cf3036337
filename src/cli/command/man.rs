//! `acpd man`: the manual, made by the program that it describes.

use std::path::PathBuf;

use clap::Args;

use crate::cli::error::ClientError;
use crate::cli::man;

/// Print the manual page, or write all pages to a directory
#[derive(Args, Debug)]
pub struct ManCommand {
    /// Write acpd.1, acpd-run.1 and all other pages to this directory, and print their names
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl ManCommand {
    pub fn text(&self) -> Result<String, ClientError> {
        match &self.out {
            None => man::first_page().map(|page| page.trim_end().to_owned()).map_err(ClientError::Output),
            Some(directory) => man::write_all(directory).map(|names| names.join("\n")).map_err(|error| {
                let message = format!("cannot write manual pages to {}: {error}", directory.display());
                ClientError::local(message, "name a directory that you can write to, such as ~/.local/share/man/man1")
            }),
        }
    }
}
