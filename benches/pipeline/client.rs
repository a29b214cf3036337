//! HTTP/1.1 over the Unix socket, as little of it as the measurements need, so that the client is not what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// Nothing that is measured takes this long; what does is broken.
const READ_TIMEOUT: Duration = Duration::from_mins(2);

/// How the body of an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Bytes(usize),
    Chunked,
}

#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub status: u16,
    pub length: Length,
}

/// One connection that is kept. Requests are sent and answered one after the other.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and returns without its answer.
    pub fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: acpd\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).with_context(|| format!("cannot send {method} {path}"))
    }

    /// The answer to the request that was sent, when its status is the one that is expected.
    pub fn receive(&mut self, status: u16) -> anyhow::Result<Vec<u8>> {
        let head = self.receive_head()?;
        let Length::Bytes(length) = head.length else {
            bail!("an answer without a length");
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if head.status != status {
            bail!("answered {} instead of {status}: {}", head.status, String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// The head alone; the body follows.
    pub fn receive_head(&mut self) -> anyhow::Result<Head> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no status line: {line:?}"))?;
        let mut length = Length::Bytes(0);
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the connection ended in the middle of a head");
            }
            let header = line.trim_end().to_ascii_lowercase();
            match header.split_once(": ") {
                None => return Ok(Head { status, length }),
                Some(("content-length", value)) => length = Length::Bytes(value.parse()?),
                Some(("transfer-encoding", "chunked")) => length = Length::Chunked,
                Some(_) => {}
            }
        }
    }

    pub fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.send("GET", path, None)?;
        Ok(serde_json::from_slice(&self.receive(200)?)?)
    }

    pub fn post(&mut self, path: &str, body: &Value, status: u16) -> anyhow::Result<Value> {
        self.send("POST", path, Some(body))?;
        Ok(serde_json::from_slice(&self.receive(status)?)?)
    }

    /// What follows the head, for a body that comes in chunks.
    pub fn into_chunks(self) -> Chunks {
        Chunks { stream: self.stream, left: 0 }
    }
}

/// The body of an answer with `transfer-encoding: chunked`.
pub struct Chunks {
    stream: BufReader<UnixStream>,
    /// Bytes of the chunk that has begun.
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let malformed = || std::io::Error::other("a chunk without a length");
        if self.left == 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            self.left = usize::from_str_radix(line.trim_end(), 16).map_err(|_| malformed())?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.left);
        let count = self.stream.read(&mut buffer[..length])?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        if self.left == 0 {
            // The line end comes with its chunk, so this waits for nothing.
            self.stream.read_exact(&mut [0; 2])?;
        }
        Ok(count)
    }
}
