//! What a person types, as something that can be waited for: keys while a stream is followed, and lines while a question
//! waits for its answer.
//!
//! Keys come as they are pressed and are not echoed; the signals of the terminal stay what they are. What was typed before
//! a question was seen is no answer to it. So the thread that reads can be told to go, and reads nothing more then: it
//! reads under a lock, which is also held by whoever changes how the terminal behaves, and it only reads what is there.

use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use tokio::sync::mpsc;

use super::Keys;

/// A terminal's own limit is lower.
const LINE_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 4096;
/// What comes at once and is more than this is pasted, and meant for somebody else.
const KEYS_AT_ONCE_MAX: usize = 4;
const KEYS_WAITING_MAX: usize = 64;
const ESCAPE: u8 = 0x1b;
/// How often a program in the background looks whether it is in front again.
const BACKGROUND_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

static READING: Mutex<()> = Mutex::new(());

pub struct Keyboard {
    source: Arc<Keys>,
    listening: Option<Listening>,
}

/// A thread that reads. It goes when this is dropped.
struct Listening {
    typed: Typed,
    /// The other end sees when it is closed.
    _until: PipeWriter,
}

enum Typed {
    Lines(mpsc::Receiver<io::Result<Option<String>>>),
    Keys { keys: mpsc::Receiver<char>, _mode: KeyMode },
}

impl Keyboard {
    pub fn new(source: Keys) -> Self {
        Self { source: Arc::new(source), listening: None }
    }

    /// Whether it is this program that the terminal listens to.
    pub fn is_ours(&self) -> bool {
        self.source.are_ours()
    }

    /// Takes nothing more, and leaves what is typed to others. The terminal gives lines again.
    pub fn rest(&mut self) {
        let _reading = reading();
        self.listening = None;
    }

    /// Forgets what was typed and not taken.
    pub fn forget(&mut self) {
        let _reading = reading();
        self.listening = None;
        if self.is_ours() {
            // What cannot be forgotten is at worst a line that makes no sense.
            let _ = tcflush(&self.source, QueueSelector::IFlush);
        }
    }

    /// The next line, without its end; nothing at Ctrl-D. Safe to be dropped while it waits.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        if !matches!(&self.listening, Some(Listening { typed: Typed::Lines(_), .. })) {
            self.rest();
            self.listening = Some(Listening::lines(self.source.clone())?);
        }
        let Some(Listening { typed: Typed::Lines(lines), .. }) = &mut self.listening else { return Ok(None) };
        let line = lines.recv().await;
        self.listening = None;
        line.unwrap_or(Ok(None))
    }

    /// The next line, which the terminal does not echo; nothing at Ctrl-D. Safe to be dropped while it waits.
    pub async fn secret_line(&mut self, ask: impl FnOnce()) -> io::Result<Option<String>> {
        let _mode = KeyMode::change(LocalModes::ECHO, LocalModes::empty(), self.source.clone())?;
        // Only now, because what is typed before is echoed.
        ask();
        self.line().await
    }

    /// The next key; for ever nothing while the program is in the background, or when the terminal is gone. Safe to be
    /// dropped while it waits.
    pub async fn key(&mut self) -> char {
        if !matches!(&self.listening, Some(Listening { typed: Typed::Keys { .. }, .. })) {
            self.rest();
            self.listening = if self.is_ours() { Listening::keys(self.source.clone()).ok() } else { None };
        }
        if let Some(Listening { typed: Typed::Keys { keys, .. }, .. }) = &mut self.listening
            && let Some(key) = keys.recv().await
        {
            return key;
        }
        std::future::pending().await
    }
}

impl Listening {
    fn lines(source: Arc<Keys>) -> io::Result<Self> {
        let (stop, until) = io::pipe()?;
        let (sender, lines) = mpsc::channel(1);
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            // Who does not wait any more has dropped the other end.
            let _ = sender.try_send(read_line(&source, &stop));
        })?;
        Ok(Self { typed: Typed::Lines(lines), _until: until })
    }

    fn keys(source: Arc<Keys>) -> io::Result<Self> {
        // Without NOFLSH, Ctrl-C discards output that is on its way to the screen, and the next picture is painted over a wrong one.
        let mode = KeyMode::change(LocalModes::ICANON | LocalModes::ECHO, LocalModes::NOFLSH, source.clone())?;
        let (stop, until) = io::pipe()?;
        let (sender, keys) = mpsc::channel(KEYS_WAITING_MAX);
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            while let Ok(Some(bytes)) = read_some(&source, &stop) {
                if bytes.is_empty() {
                    break;
                }
                for key in keys_of(&bytes) {
                    // Whoever presses more than are waited for will press again.
                    let _ = sender.try_send(key);
                }
            }
        })?;
        Ok(Self { typed: Typed::Keys { keys, _mode: mode }, _until: until })
    }
}

/// While it exists, the terminal does not echo what is typed, or gives keys as they are pressed, or both.
struct KeyMode {
    source: Arc<Keys>,
    before: Termios,
}

impl KeyMode {
    fn change(removed: LocalModes, added: LocalModes, source: Arc<Keys>) -> io::Result<Self> {
        let before = tcgetattr(&source)?;
        let mut modes = before.clone();
        modes.local_modes.remove(removed);
        modes.local_modes.insert(added);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&source, OptionalActions::Now, &modes)?;
        Ok(Self { source, before })
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        // One in the background would be stopped for it, and the terminal is somebody else's then.
        if self.source.are_ours() {
            let _ = tcsetattr(&self.source, OptionalActions::Now, &self.before);
        }
    }
}

fn reading() -> MutexGuard<'static, ()> {
    READING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The keys that have a letter, without arrows and function keys; none of a text that was pasted.
fn keys_of(bytes: &[u8]) -> Vec<char> {
    let mut keys = Vec::new();
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte == ESCAPE {
            if rest.next_if(|next| matches!(next, b'[' | b'O')).is_some() {
                // Parameters, and the letter that ends them.
                while rest.next().is_some_and(|byte| !matches!(byte, 0x40..=0x7e)) {}
            }
        } else if byte.is_ascii_graphic() {
            keys.push(byte.into());
        }
    }
    if keys.len() > KEYS_AT_ONCE_MAX { Vec::new() } else { keys }
}

fn read_line(source: &Keys, stop: &PipeReader) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let Some(bytes) = read_some(source, stop)? else { return Ok(None) };
        line.extend_from_slice(&bytes);
        let is_whole = line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX;
        if bytes.is_empty() || is_whole {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            return Ok(is_whole.then_some(text));
        }
    }
}

/// What is typed next; nothing of it at the terminal's end, and nothing at all when the reader is told to go.
fn read_some(source: &Keys, stop: &PipeReader) -> io::Result<Option<Vec<u8>>> {
    let look = |timeout: Option<&Timespec>| {
        let mut descriptors = [PollFd::new(stop, PollFlags::IN), PollFd::new(source, PollFlags::IN)];
        retry_on_intr(|| poll(&mut descriptors, timeout))?;
        Ok::<_, io::Error>(descriptors.map(|descriptor| !descriptor.revents().is_empty()))
    };
    loop {
        let [is_told, _] = look(None)?;
        if is_told {
            return Ok(None);
        }
        if !source.are_ours() {
            retry_on_intr(|| poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&BACKGROUND_PAUSE)))?;
            continue;
        }
        let _reading = reading();
        match look(Some(&AT_ONCE))? {
            [true, _] => return Ok(None),
            [_, false] => continue,
            [false, true] => {}
        }
        let mut bytes = [0; READ_BYTES];
        let count = retry_on_intr(|| rustix::io::read(source, &mut bytes))?;
        return Ok(Some(bytes.get(..count).unwrap_or_default().to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_was_pressed_and_not_what_was_pasted() {
        let keys = |text: &str| keys_of(text.as_bytes()).into_iter().collect::<String>();
        assert_eq!(keys("t"), "t");
        assert_eq!(keys("x\x1b[A\x1bOPt\x1b[1;5D?\n"), "xt?");
        assert_eq!(keys("\x1b"), "");
        assert_eq!(keys("git status"), "");
    }
}
