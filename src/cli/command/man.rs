//! `acpd man`: the manual, made by the program that it describes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::cli::error::ClientError;
use crate::cli::man;
use crate::cli::output::Output;

/// Print the manual page, or write all pages to a directory
#[derive(Args, Debug)]
pub struct ManCommand {
    /// Write acpd.1, acpd-run.1 and all other pages to this directory, and print their names
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl ManCommand {
    pub fn execute(&self, output: Output) -> Result<(), ClientError> {
        let Some(directory) = &self.out else {
            return output.print(man::first_page().map_err(ClientError::Output)?.trim_end());
        };
        let names = man::write_all(directory).map_err(|error| {
            let message = format!("cannot write manual pages to {}: {error}", directory.display());
            ClientError::local(message, "name a directory that you can write to, such as ~/.local/share/man/man1")
        })?;
        output.print(&names.join("\n"))?;
        if let Some((note, hint)) = not_found(directory) {
            output.note(&note);
            output.hint(&hint);
        }
        Ok(())
    }
}

/// Why `man acpd-run` does not find the pages, and what to do. `manpath` is of the same package as `man` on Debian.
fn not_found(directory: &Path) -> Option<(String, String)> {
    let directory = directory.canonicalize().ok()?;
    let answer = Command::new("manpath").arg("-q").stderr(Stdio::null()).output().ok()?;
    let searched = String::from_utf8_lossy(&answer.stdout);
    let is_real = |searched: &str, place: &Path| Path::new(searched).canonicalize().is_ok_and(|real| real == *place);
    let note = |place: &Path| format!("man does not look for pages in {}", place.display());
    let place = directory.parent().filter(|_| directory.ends_with("man1"));
    let Some(place) = place else {
        let hint = format!(
            "write them to a directory named man1, or read one with `man -l {}`",
            directory.join("acpd.1").display()
        );
        return Some((note(&directory), hint));
    };
    if searched.trim().split(':').any(|searched| is_real(searched, place)) {
        return None;
    }
    // The colon at the end stands for the usual places.
    let place_name = place.display();
    let hint = format!("`export MANPATH=\"{place_name}:\"` in your shell's profile, or `man -M {place_name} acpd-run`");
    Some((note(place), hint))
}
