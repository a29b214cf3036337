//! The log: to standard error for people, or to the journal where that is the same, and to rolling files.
//!
//! Prompts, answers and environments are never logged at info; at debug an agent's standard error is. No known secret is
//! logged at any level: every line is looked at on its way out. A record is one line there, whatever names and texts of others
//! are in it, so that nobody writes lines of their own.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tracing::Level;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::journal::Journal;
use crate::agent::Secrets;
use crate::config::{self, LogLevel};
use crate::private;

/// Lines that wait for the disk; more are dropped. The places are made at once, so many of them would cost megabytes.
const WAITING_LINES_MAX: usize = 4096;

/// What begins a colour on a terminal.
const ESCAPE: u8 = 0x1b;

/// Starts logging until the guard is dropped, which writes what is left.
pub fn start(
    settings: &config::Log,
    directory: &Path,
    detached: bool,
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
        .with_writer(Guarded { to: writer, secrets: Arc::clone(secrets), has_colours: false })
        .with_ansi(false)
        .with_target(false);
    // A detached daemon has nobody at its standard error.
    let journal = Journal::find(secrets).filter(|_| !detached);
    let to_stderr = (!detached && journal.is_none()).then(|| {
        let has_colours = io::IsTerminal::is_terminal(&io::stderr());
        let writer = Guarded { to: io::stderr, secrets: Arc::clone(secrets), has_colours };
        fmt::layer().with_writer(writer).with_target(false).with_ansi(has_colours)
    });
    tracing_subscriber::registry().with(journal).with(to_stderr).with(to_files).with(filter).init();
    Ok(guard)
}

/// Takes secrets out of every record, which comes whole, and keeps it on its line.
#[derive(Clone)]
struct Guarded<W> {
    to: W,
    secrets: Arc<Secrets>,
    /// Then what begins a colour stays; in what is told the subscriber has made it harmless.
    has_colours: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Guarded<W> {
    type Writer = Guarded<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Guarded { to: self.to.make_writer(), secrets: Arc::clone(&self.secrets), has_colours: self.has_colours }
    }
}

impl<W: Write> Write for Guarded<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        // Secrets first: one with a line break in it is not recognized any more when that is written otherwise.
        let redactor = self.secrets.redactor_of_all();
        let redacted = redactor.as_ref().map_or(Cow::Borrowed(record), |redactor| redactor.bytes(record));
        self.to.write_all(&on_one_line(&redacted, self.has_colours))?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A record with its control characters written out, but for the line break at its end. Nearly always there are none.
pub(super) fn on_one_line(record: &[u8], has_colours: bool) -> Cow<'_, [u8]> {
    let is_told = |byte: u8| byte.is_ascii_control() && !(has_colours && byte == ESCAPE);
    let (text, end) = record.strip_suffix(b"\n").map_or((record, &b""[..]), |text| (text, b"\n"));
    if !text.iter().copied().any(is_told) {
        return Cow::Borrowed(record);
    }
    let escaped = text.iter().flat_map(|byte| {
        let (kept, told) = if is_told(*byte) { (None, Some(byte.escape_ascii())) } else { (Some(*byte), None) };
        kept.into_iter().chain(told.into_iter().flatten())
    });
    Cow::Owned(escaped.chain(end.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_and_otherwise_as_it_is() {
        for (record, coloured, line) in [
            ("plain ü\n", false, "plain ü\n"),
            ("a\nb\r\tc\u{0}\u{7f}\n", false, "a\\nb\\r\\tc\\x00\\x7f\n"),
            ("a\n\n", false, "a\\n\n"),
            ("\u{1b}[31mred\n", false, "\\x1b[31mred\n"),
            ("\u{1b}[31mr\ned\n", true, "\u{1b}[31mr\\ned\n"),
            ("without an end", false, "without an end"),
        ] {
            assert_eq!(on_one_line(record.as_bytes(), coloured), line.as_bytes(), "{record:?}");
        }
    }
}
