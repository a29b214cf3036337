//! The lines that a person types, as something that can be waited for.
//!
//! stdin is read only while a question waits for its answer: what is typed at other times belongs to whoever reads the
//! terminal next, and what was typed before a question was seen is no answer to it. So the thread that waits for a line
//! can be told to go, and reads nothing more then.

use std::io::{self, PipeReader, PipeWriter};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use tokio::sync::oneshot;

/// A terminal's own limit is lower.
const LINE_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 4096;
/// How often a program in the background looks whether it is in front again.
const BACKGROUND_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

#[derive(Default)]
pub struct Keyboard {
    listening: Option<Listening>,
}

/// A thread that waits for a line. It goes when this is dropped.
struct Listening {
    line: oneshot::Receiver<io::Result<Option<String>>>,
    /// The other end sees when it is closed.
    _until: PipeWriter,
}

impl Keyboard {
    /// Takes nothing more, and leaves what is typed to others.
    pub fn rest(&mut self) {
        self.listening = None;
    }

    /// Forgets what was typed and not taken.
    pub fn forget(&mut self) {
        self.rest();
        if is_in_front() {
            // What cannot be forgotten is at worst a line that makes no sense.
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
    }

    /// The next line, without its end; nothing at Ctrl-D. Safe to be dropped while it waits.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        if self.listening.is_none() {
            self.listening = Some(Listening::start()?);
        }
        let Some(listening) = &mut self.listening else { return Ok(None) };
        let line = (&mut listening.line).await;
        self.listening = None;
        line.unwrap_or(Ok(None))
    }
}

impl Listening {
    fn start() -> io::Result<Self> {
        let (stop, until) = io::pipe()?;
        let (sender, line) = oneshot::channel();
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            // Who does not wait any more has dropped the other end.
            let _ = sender.send(read_line(&stop));
        })?;
        Ok(Self { line, _until: until })
    }
}

/// Whether it is this program that the terminal listens to. One in the background would be stopped for reading.
pub fn is_in_front() -> bool {
    // A terminal that is not the controlling one has no foreground, and stops nobody.
    tcgetpgrp(io::stdin()).map_or(true, |foreground| foreground == rustix::process::getpgrp())
}

fn read_line(stop: &PipeReader) -> io::Result<Option<String>> {
    let stdin = io::stdin();
    let mut line = Vec::new();
    loop {
        let mut descriptors = [PollFd::new(stop, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        retry_on_intr(|| poll(&mut descriptors, None))?;
        let [stopped, typed] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        if stopped {
            return Ok(None);
        }
        if !typed {
            continue;
        }
        if !is_in_front() {
            retry_on_intr(|| poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&BACKGROUND_PAUSE)))?;
            continue;
        }
        let mut bytes = [0; READ_BYTES];
        let count = retry_on_intr(|| rustix::io::read(&stdin, &mut bytes))?;
        line.extend_from_slice(bytes.get(..count).unwrap_or_default());
        let is_whole = line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX;
        if count == 0 || is_whole {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            return Ok(is_whole.then_some(text));
        }
    }
}
