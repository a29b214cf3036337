//! The log: to standard error for people and journald, and to rolling files.
//!
//! Prompts, answers and environments are never logged at info; at debug an agent's standard error is. No known secret is
//! logged at any level: every line is looked at on its way out.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tracing::Level;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::agent::Secrets;
use crate::config::{self, LogLevel};
use crate::private;

/// Lines that wait for the disk; more are dropped. The places are made at once, so many of them would cost megabytes.
const WAITING_LINES_MAX: usize = 4096;

/// Starts logging until the guard is dropped, which writes what is left.
pub fn start(
    settings: &config::Log,
    directory: &Path,
    detached: bool,
    environment: &BTreeMap<String, String>,
    secrets: &Arc<Secrets>,
) -> anyhow::Result<WorkerGuard> {
    private::directory(directory).with_context(|| format!("cannot prepare {}", directory.display()))?;
    let files = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("acpd")
        .filename_suffix("log")
        .max_log_files(settings.files)
        .build(directory)
        .with_context(|| format!("cannot write logs to {}", directory.display()))?;
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES_MAX).finish(files);
    let level = match settings.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    // The libraries' own chatter is of no use to an admin.
    let filter = Targets::new().with_default(Level::WARN).with_target("acpd", level);
    let to_files = fmt::layer()
        .with_writer(Redacting { to: writer, secrets: Arc::clone(secrets) })
        .with_ansi(false)
        .with_target(false);
    // journald stamps lines itself; a detached daemon has nobody at its standard error.
    let journald = environment.contains_key("JOURNAL_STREAM");
    let to_stderr = (!detached).then(|| {
        let writer = Redacting { to: io::stderr, secrets: Arc::clone(secrets) };
        let layer = fmt::layer().with_writer(writer).with_target(false);
        let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
        if journald { layer.with_ansi(false).without_time().boxed() } else { layer.with_ansi(is_terminal).boxed() }
    });
    tracing_subscriber::registry().with(to_stderr).with(to_files).with(filter).init();
    Ok(guard)
}

/// Takes secrets out of every line, which comes whole.
#[derive(Clone)]
struct Redacting<W> {
    to: W,
    secrets: Arc<Secrets>,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Redacting<W> {
    type Writer = Redacting<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Redacting { to: self.to.make_writer(), secrets: Arc::clone(&self.secrets) }
    }
}

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.secrets.redactor() {
            None => self.to.write(line),
            Some(redactor) => self.to.write_all(&redactor.bytes(line)).map(|()| line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
