//! `acpd export`: a session as one document, on stdout or in a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::connection::{StreamBody, with_query};
use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::output::Output;
use crate::cli::text::{clean, one_line, size};
use crate::private;

/// Export a session as JSON, Markdown or a workflow
///
/// Exporting the same session twice gives the same bytes. The export contains no secret that acpd knows. It does contain
/// the whole conversation and all file contents that tools showed: read it before you share it.
#[derive(Args, Debug)]
pub struct Export {
    /// Session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: String,
    /// Format of the export
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
    /// File to write, readable only by you; it appears once it is complete [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// Complete session, for `acpd import` on another machine
    Json,
    /// Readable conversation
    Markdown,
    /// YAML workflow with one agent node per completed turn
    Workflow,
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Workflow => "workflow",
        }
    }
}

impl Export {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let id = lookup::session(&daemon, &self.session).await?;
        let is_taken = |path: &&Path| path.is_dir() || (!self.force && path.symlink_metadata().is_ok());
        if let Some(path) = self.output.as_deref().filter(is_taken) {
            return Err(exists(path));
        }
        let path = with_query(&format!("/v1/sessions/{id}/export"), &[("format", self.format.name().to_owned())]);
        let mut body = daemon.document(&path).await?;
        let Some(target) = &self.output else {
            print(&mut body, context.output).await?;
            return Ok(Exit::Ok);
        };
        let bytes = save(&mut body, target, self.force).await?;
        if context.output.json {
            let told = json!({ "path": target, "format": self.format.name(), "bytes": bytes });
            context.output.print(&told.to_string())?;
        } else {
            context.output.print(&format!("{} ({})", one_line(&target.display().to_string()), size(bytes)))?;
        }
        Ok(Exit::Ok)
    }
}

/// As it comes; on a terminal, without what that would act upon.
async fn print(body: &mut StreamBody, output: Output) -> Result<(), ClientError> {
    let mut rest = Vec::new();
    while let Some(piece) = next(body).await? {
        if !output.stdout_is_terminal {
            io::stdout().lock().write_all(&piece).map_err(ClientError::Output)?;
            continue;
        }
        rest.extend_from_slice(&piece);
        // A character may be cut in two.
        let whole = match std::str::from_utf8(&rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text: Vec<u8> = rest.drain(..whole).collect();
        output.print_part(&clean(&String::from_utf8_lossy(&text)))?;
    }
    io::stdout().lock().flush().map_err(ClientError::Output)
}

/// Writes a file beside the one that is meant, and gives it its name when it is whole.
async fn save(body: &mut StreamBody, target: &Path, force: bool) -> Result<u64, ClientError> {
    let failed = |error| ClientError::io(format!("write {}", target.display()), error);
    let mut partial = Partial::beside(target).map_err(failed)?;
    let mut bytes = 0;
    while let Some(piece) = next(body).await? {
        partial.file.write_all(&piece).map_err(failed)?;
        bytes += piece.len() as u64;
    }
    partial.file.sync_all().map_err(failed)?;
    match partial.keep(target, force) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(target)),
        kept => kept.map(|()| bytes).map_err(failed),
    }
}

async fn next(body: &mut StreamBody) -> Result<Option<bytes::Bytes>, ClientError> {
    let broken = |source| ClientError::Broken { operation: "the export".to_owned(), source: Box::new(source) };
    body.piece().await.map_err(broken)
}

fn exists(path: &Path) -> ClientError {
    if path.is_dir() {
        return ClientError::local(format!("{} is a directory", path.display()), "name a file in that directory");
    }
    let message = format!("{} already exists", path.display());
    ClientError::local(message, "choose another name, or replace the file with --force")
}

/// A file that has not got its name yet, and never gets it when something goes wrong.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn beside(target: &Path) -> io::Result<Self> {
        let mut name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let path = target.with_file_name(name);
        Ok(Self { file: private::new_file(&path)?, path })
    }

    fn keep(self, target: &Path, force: bool) -> io::Result<()> {
        if force {
            return std::fs::rename(&self.path, target);
        }
        private::rename_new(&self.path, target).map_err(io::Error::from)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is not there any more when it has got its name.
        let _ = std::fs::remove_file(&self.path);
    }
}
