//! The journal, where systemd keeps what a service says: records with their level and their fields, in journald's own protocol.
//!
//! `journalctl -u acpd -p warning` then shows what is worth a look, and `journalctl ACPD_SESSION=…` what concerned one session.
//! There is a crate for this, but it sends what it is given, and no known secret may be sent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::log::on_one_line;
use crate::agent::Secrets;
use crate::model::error::chain;

const SOCKET: &str = "/run/systemd/journal/socket";
/// The device and the file number of the journal's stream, by which a service knows it.
const STREAM: &str = "JOURNAL_STREAM";
/// How long a journal that is busy is waited for, once. What it does not take is in the log's files all the same.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is kept of one value: a datagram takes a few hundred kilobytes.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// The tracing crates' name for what a record says.
const MESSAGE: &str = "message";

/// Whether what is written there goes to the journal.
pub fn takes(stream: impl AsFd) -> bool {
    std::env::var(STREAM).is_ok_and(|named| is_stream(&named, stream))
}

fn is_stream(named: &str, stream: impl AsFd) -> bool {
    let numbers = named.split_once(':').and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    numbers.is_some_and(|numbers: (u64, u64)| {
        rustix::fs::fstat(stream).is_ok_and(|file| (file.st_dev, file.st_ino) == numbers)
    })
}

/// What begins a line on standard error that is not a record, for the journal to know how bad it is.
pub fn error_mark() -> &'static str {
    if takes(io::stderr()) { "<3>" } else { "" }
}

pub struct Journal {
    /// Not connected: the journal may be restarted, and is then another one at the same place.
    socket: UnixDatagram,
    path: PathBuf,
    /// It was waited for in vain, and is not waited for again before it has taken something.
    is_stuck: AtomicBool,
    secrets: Arc<Secrets>,
}

impl Journal {
    /// The journal, when standard error goes there.
    pub fn find(secrets: &Arc<Secrets>) -> Option<Self> {
        takes(io::stderr()).then(|| Self::at(Path::new(SOCKET), secrets).ok()).flatten()
    }

    fn at(path: &Path, secrets: &Arc<Secrets>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, path: path.to_owned(), is_stuck: AtomicBool::new(false), secrets: Arc::clone(secrets) })
    }

    /// What is lost the files have, and there is nobody else to tell.
    fn send(&self, entry: &[u8]) {
        match self.socket.send_to(entry, &self.path) {
            Ok(_) if self.is_stuck.swap(false, Ordering::Relaxed) => drop(self.socket.set_nonblocking(false)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_stuck.store(true, Ordering::Relaxed);
                // Each time: another thread may just have found it well.
                drop(self.socket.set_nonblocking(true));
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// A value as anybody may see it, on one line.
    fn shown(&self, value: &str) -> Vec<u8> {
        let redactor = self.secrets.redactor_of_all();
        let mut value = redactor.map_or_else(|| value.to_owned(), |redactor| redactor.text(value).into_owned());
        value.truncate(value.floor_char_boundary(VALUE_BYTES_MAX));
        on_one_line(value.as_bytes(), false).into_owned()
    }

    fn entry(&self, level: Level, fields: &Fields) -> Vec<u8> {
        let mut entry = Vec::new();
        let mut put = |name: &str, value: &[u8]| {
            entry.extend([name.as_bytes(), b"=", value, b"\n"].concat());
        };
        put("PRIORITY", priority(level).as_bytes());
        put("SYSLOG_IDENTIFIER", env!("CARGO_PKG_NAME").as_bytes());
        put("MESSAGE", &self.shown(&fields.line()));
        for (name, value) in &fields.named {
            put(&field_name(name), &self.shown(value));
        }
        entry
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Journal {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.named.extend(of_span.named.clone());
            }
        }
        event.record(&mut fields);
        self.send(&self.entry(*event.metadata().level(), &fields));
    }
}

/// What a record or a span says.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    named: BTreeMap<&'static str, String>,
}

impl Fields {
    /// What is read first: the message, and its fields behind it.
    fn line(&self) -> String {
        let named = self.named.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.message.clone()).chain(named).collect()
    }

    fn set(&mut self, field: &Field, value: String) {
        match field.name() {
            MESSAGE => self.message = value,
            name => drop(self.named.insert(name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

/// The journal takes capital letters, digits and underscores, and has names of its own.
fn field_name(name: &str) -> String {
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("ACPD_{}", name.chars().map(allowed).collect::<String>())
}

/// As syslog numbers them.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::agent::Known;

    #[test]
    fn a_record_has_its_level_its_fields_and_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let secrets = Arc::new(Secrets::default());
        secrets.of(None).learn(Known::new("KEY", "sesame-open-1234").into_iter().collect());
        let journal = Journal::at(&path, &secrets).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), || {
            let span = tracing::info_span!("session", session = "01a1");
            let _entered = span.enter();
            let error = io::Error::other("sesame-open-1234\nMESSAGE=forged");
            tracing::warn!(error = &error as &dyn std::error::Error, exit.code = 7, "it went wrong");
        });
        let mut bytes = [0; 4096];
        let length = journald.recv(&mut bytes).unwrap();
        let entry = std::str::from_utf8(&bytes[..length]).unwrap();
        assert_eq!(
            entry,
            "PRIORITY=4\nSYSLOG_IDENTIFIER=acpd\n\
             MESSAGE=it went wrong error=[redacted:KEY]\\nMESSAGE=forged exit.code=7 session=01a1\n\
             ACPD_ERROR=[redacted:KEY]\\nMESSAGE=forged\nACPD_EXIT_CODE=7\nACPD_SESSION=01a1\n"
        );
    }

    #[test]
    fn a_journal_that_is_stuck_is_waited_for_once_and_taken_up_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path, &Arc::default()).unwrap();
        while !journal.is_stuck.load(Ordering::Relaxed) {
            journal.send(b"MESSAGE=nobody reads this\n");
        }
        // Would hang the test, if it waited each time.
        for _ in 0..100_000 {
            journal.send(b"MESSAGE=lost\n");
        }
        journald.set_nonblocking(true).unwrap();
        while journald.recv(&mut [0; 64]).is_ok() {}
        journal.send(b"MESSAGE=again\n");
        assert!(!journal.is_stuck.load(Ordering::Relaxed));
        assert_eq!(journald.recv(&mut [0; 64]).unwrap(), "MESSAGE=again\n".len());
    }

    #[test]
    fn the_journal_is_known_by_device_and_number() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let named = format!("{}:{}", metadata.dev(), metadata.ino());
        assert!(is_stream(&named, &file));
        assert!(!is_stream(&named, io::stderr()));
        assert!(!is_stream("8:x", &file) && !is_stream("", &file));
    }
}
