//! The agent's side of the wire: messages in, lines out, and the ways in which a run ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IoSliceMut, Read, StdinLock, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

const CODE_UNEXPECTED: u8 = 90;
const CODE_BAD_SCRIPT: u8 = 91;
const CODE_REFUSED: u8 = 92;

/// The longest line that the agent takes: twice what acpd itself accepts, so that acpd's own bound shows first.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Large enough that a flood is limited by its reader and not by the number of writes.
const OUTPUT_BUFFER_BYTES: usize = 64 << 10;
/// Long lines and floods are written in pieces of this size, so that they may exceed what fits in memory.
const PIECE_BYTES: usize = 64 << 10;
const STDERR_LINE_BYTES: usize = 80;

/// Why and how the agent ends before its script does.
#[derive(Debug)]
pub struct End {
    pub code: u8,
    pub reason: Option<String>,
    /// The peer has gone: `ignoreEof` turns this end, and no other, into blocking for ever.
    pub is_eof: bool,
}

impl End {
    pub fn exit(code: u8) -> Self {
        Self { code, reason: None, is_eof: false }
    }

    pub fn unexpected(reason: impl Into<String>) -> Self {
        Self { code: CODE_UNEXPECTED, reason: Some(reason.into()), is_eof: false }
    }

    pub fn bad_script(reason: impl Into<String>) -> Self {
        Self { code: CODE_BAD_SCRIPT, reason: Some(reason.into()), is_eof: false }
    }

    pub fn refused(what: &str, error: impl std::fmt::Display) -> Self {
        Self { code: CODE_REFUSED, reason: Some(format!("{what}: {error}")), is_eof: false }
    }

    fn eof() -> Self {
        Self { code: 0, reason: None, is_eof: true }
    }
}

/// One JSON-RPC message. A request has a method and an id, a notification only a method, an answer only an id.
#[derive(Debug, Deserialize)]
pub struct Message {
    pub method: Option<String>,
    /// Kept as it was written, because a client may check that it gets the very same id back.
    pub id: Option<Box<RawValue>>,
    #[serde(default)]
    pub params: Value,
    #[serde(default)]
    pub result: Value,
    pub error: Option<Value>,
}

pub struct Input {
    reader: StdinLock<'static>,
    /// Where everything that is heard is written down, once the script asks for that.
    record: Option<File>,
}

impl Input {
    pub fn new() -> Self {
        Self { reader: io::stdin().lock(), record: None }
    }

    /// From here on every message, and the end of stdin, is a line of this file. All processes of one script append to
    /// it, so each line names its process.
    /// The file comes as a descriptor from the test, because a confined agent may not open it.
    pub fn record_to(&mut self, socket: &Path) -> Result<(), End> {
        let file = received_file(socket).map_err(|error| End::refused(&socket.display().to_string(), error))?;
        self.record = Some(file);
        Ok(())
    }

    /// One write per line, so that those of several processes do not mix.
    fn record(&mut self, what: &str) -> Result<(), End> {
        let Some(file) = &mut self.record else {
            return Ok(());
        };
        let line = format!("{{\"pid\":{},{what}}}\n", std::process::id());
        file.write_all(line.as_bytes()).map_err(|error| End::refused("cannot record", error))
    }

    /// The next message; blank lines are skipped.
    pub fn read(&mut self) -> Result<Message, End> {
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
            limited.read_until(b'\n', &mut line).map_err(|error| End::refused("cannot read stdin", error))?;
            if line.last() != Some(&b'\n') {
                if line.len() as u64 == LINE_BYTES_MAX {
                    return Err(End::unexpected("a line that is too long"));
                }
                self.record(r#""eof":true"#)?;
                return Err(End::eof());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let message = serde_json::from_slice(&line).map_err(|error| {
                End::unexpected(format!("unexpected line ({error}): {}", String::from_utf8_lossy(&line).trim_end()))
            })?;
            self.record(&format!(r#""message":{}"#, String::from_utf8_lossy(&line).trim_end()))?;
            return Ok(message);
        }
    }
}

pub struct Output {
    writer: BufWriter<File>,
}

impl Output {
    /// Writes to a duplicate of stdout, because std's own `Stdout` writes at every newline and a flood would crawl.
    pub fn new() -> Result<Self, End> {
        let descriptor = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| End::refused("cannot duplicate stdout", error))?;
        Ok(Self { writer: BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, File::from(descriptor)) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.writer.write_all(bytes).map_err(|error| Self::end(&error))
    }

    /// Writes one message, given as the JSON of its fields after `jsonrpc`.
    pub fn message(&mut self, fields: &str) -> Result<(), End> {
        writeln!(self.writer, r#"{{"jsonrpc":"2.0",{fields}}}"#).map_err(|error| Self::end(&error))
    }

    pub fn long_line(&mut self, bytes: usize) -> Result<(), End> {
        let piece = vec![b'x'; PIECE_BYTES];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(PIECE_BYTES);
            self.write(&piece[..length])?;
            left -= length;
        }
        self.write(b"\n")
    }

    pub fn flush(&mut self) -> Result<(), End> {
        self.writer.flush().map_err(|error| Self::end(&error))
    }

    /// A closed stdout is the other half of a closed stdin: the client is gone.
    fn end(error: &io::Error) -> End {
        if error.kind() == io::ErrorKind::BrokenPipe { End::eof() } else { End::refused("cannot write stdout", error) }
    }
}

pub fn flood_stderr(bytes: usize) -> Result<(), End> {
    let mut line = [b'e'; STDERR_LINE_BYTES];
    line[STDERR_LINE_BYTES - 1] = b'\n';
    let piece = line.repeat(PIECE_BYTES / STDERR_LINE_BYTES);
    let mut left = bytes;
    while left > 0 {
        let length = left.min(piece.len());
        io::stderr().write_all(&piece[..length]).map_err(|error| End::refused("cannot write stderr", error))?;
        left -= length;
    }
    Ok(())
}

/// Sends a text to a Unix socket, and returns the first line that comes back, without its end.
pub fn exchange(path: &Path, text: &str) -> io::Result<Option<String>> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    let length = BufReader::new(stream).read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}

/// The file whose descriptor whoever listens on the socket hands out.
fn received_file(socket: &Path) -> io::Result<File> {
    let stream = UnixStream::connect(socket)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&stream, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.next().map(File::from).ok_or_else(|| io::Error::other("no descriptor came"))
}
