//! `acpd logs`: the daemon's log files. A systemd unit's journal has the same lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::output::Output;
use crate::cli::service::{Manager, SYSTEM_SOCKET};
use crate::cli::text::{clean_json, one_line};
use crate::control::wire::Info;

const LINES_MAX: i64 = 100_000;
/// How often the files are read again while following.
const PAUSE: Duration = Duration::from_millis(200);

/// Show the daemon's log
///
/// The log is kept in the directory `logs` of the state directory, one file a day. A daemon that systemd runs writes the
/// same lines to the journal: `journalctl --user -u acpd`, or `journalctl -u acpd` for the system's daemon.
#[derive(Args, Debug)]
pub struct Logs {
    /// Print new lines as the daemon writes them, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with this many of the last lines
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=LINES_MAX))]
    pub lines: u32,
}

impl Logs {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let output = context.output;
        let directory = directory(context).await?;
        let mut newest = None;
        let mut last = VecDeque::new();
        for path in files(&directory)?.into_iter().rev() {
            let mut file = LogFile::open(path)?;
            let mut lines = VecDeque::new();
            let wanted = self.lines as usize - last.len();
            file.read(|line| {
                lines.push_back(line);
                if lines.len() > wanted {
                    lines.pop_front();
                }
                Ok(())
            })?;
            lines.append(&mut last);
            last = lines;
            newest.get_or_insert(file);
            if last.len() >= self.lines as usize {
                break;
            }
        }
        if newest.is_none() && !self.follow {
            output.aside(&format!("no log yet in {}", directory.display()));
        }
        last.iter().try_for_each(|line| print(output, line))?;
        if self.follow { follow(output, &directory, newest).await } else { Ok(Exit::Ok) }
    }
}

async fn follow(output: Output, directory: &Path, mut newest: Option<LogFile>) -> Result<Exit, ClientError> {
    loop {
        // Looked for first: once there is a newer file, nothing is added to this one any more.
        let next = files(directory)?.into_iter().find(|path| newest.as_ref().is_none_or(|file| *path > file.path));
        if let Some(file) = &mut newest {
            file.read(|line| print(output, &line))?;
        }
        match next {
            Some(path) => newest = Some(LogFile::open(path)?),
            None => sleep_until(Instant::now() + PAUSE).await,
        }
    }
}

/// The directory of the running daemon's logs; of the one that would be started here, when none runs or it does not answer.
async fn directory(context: &Context) -> Result<PathBuf, ClientError> {
    let elsewhere = || {
        let message = "the log belongs to the system's daemon, and only its user can read the files";
        ClientError::local(message, format!("`sudo {}` shows it", Manager::System.journalctl()))
    };
    let info = match context.running_daemon().await {
        Ok(daemon) => daemon.report::<Info>("/v1/info").await.ok(),
        Err(_) => None,
    };
    match info {
        Some(Info { state_dir: Some(state), .. }) => Ok(Path::new(&state).join("logs")),
        Some(Info { state_dir: None, .. }) => Err(elsewhere()),
        None if context.socket == Path::new(SYSTEM_SOCKET) => Err(elsewhere()),
        None => Ok(context.paths().logs()),
    }
}

/// The daily files, the oldest first: their names have the date.
fn files(directory: &Path) -> Result<Vec<PathBuf>, ClientError> {
    let failed = |source| ClientError::io(format!("read the log in {}", directory.display()), source);
    let entries = match directory.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let is_log = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("acpd.") && path.extension().is_some_and(|extension| extension == "log")
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths: Vec<PathBuf> = paths.map_err(failed)?.into_iter().filter(is_log).collect();
    paths.sort();
    Ok(paths)
}

/// One file, read as far as it has whole lines.
struct LogFile {
    path: PathBuf,
    reader: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
}

impl LogFile {
    fn open(path: PathBuf) -> Result<Self, ClientError> {
        let file = File::open(&path).map_err(|source| ClientError::io(format!("read {}", path.display()), source))?;
        Ok(Self { path, reader: BufReader::new(file), unfinished: Vec::new() })
    }

    fn read(&mut self, mut each: impl FnMut(String) -> Result<(), ClientError>) -> Result<(), ClientError> {
        loop {
            let read = self.reader.read_until(b'\n', &mut self.unfinished);
            read.map_err(|source| ClientError::io(format!("read {}", self.path.display()), source))?;
            if !self.unfinished.ends_with(b"\n") {
                return Ok(());
            }
            let line = std::mem::take(&mut self.unfinished);
            each(String::from_utf8_lossy(&line).trim_end().to_owned())?;
        }
    }
}

fn print(output: Output, line: &str) -> Result<(), ClientError> {
    let text = if output.json { clean_json(&json!({ "line": line }).to_string()) } else { one_line(line) };
    output.print(&text)
}
