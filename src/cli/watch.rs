//! Looking on: a screen that is painted again when something has changed, and left as it was found.
//!
//! The daemon's stream of events only tells that it is time to look again; what is shown is asked for anew. So nothing is
//! lost when the stream breaks, and a busy agent costs one look in [`LOOK_PAUSE`] and not one an event.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Write};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::{Daemon, StreamBody};
use super::error::ClientError;
use super::sse::SseParser;

/// Ages and memory change by themselves.
const PERIOD: Duration = Duration::from_secs(1);
/// What happens together is shown together.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// A daemon that does not answer at once is not waited for: the next look is a second away.
const OPEN_PATIENCE: Duration = Duration::from_millis(500);

/// Nobody types more than this between two looks.
const KEYS_MAX: usize = 64;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Look,
    Leave,
}

/// Waits for what makes another look worth it.
pub struct Watch<'a> {
    daemon: &'a Daemon,
    path: String,
    stream: Option<StreamBody>,
    parser: SseParser,
    signals: Signals,
    keys: Option<Keys>,
}

impl<'a> Watch<'a> {
    /// `path` is the stream that tells of changes.
    pub fn new(daemon: &'a Daemon, path: String, takes_keys: bool) -> Result<Self, ClientError> {
        let failed = |source| ClientError::io("listen to Ctrl-C", source);
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(failed)?;
        let takes_keys = takes_keys && io::stdin().is_terminal() && is_in_front();
        let keys = takes_keys.then(|| Keys::listen().ok()).flatten();
        Ok(Self { daemon, path, stream: None, parser: SseParser::default(), signals, keys })
    }

    /// Waits for a change, a second, a new size of the window, or the wish to leave.
    pub async fn next(&mut self) -> Next {
        let latest = Instant::now() + PERIOD;
        let mut due = latest;
        loop {
            let Self { daemon, path, stream, parser, signals, keys } = self;
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Some(SIGWINCH) => return Next::Look,
                    _ => return Next::Leave,
                },
                is_quit = quits(keys.as_mut()) => if is_quit {
                    return Next::Leave;
                },
                // Before the stream, which may always have something to say.
                () = sleep_until(due) => return Next::Look,
                has_changed = changes(daemon, path, stream, parser, latest) => if has_changed {
                    due = due.min(Instant::now() + LOOK_PAUSE);
                },
            }
        }
    }
}

/// Waits for the next piece of the stream, and tells whether it changes what a list shows. Without a stream it waits until
/// it is time to look anyway.
async fn changes(
    daemon: &Daemon,
    path: &str,
    stream: &mut Option<StreamBody>,
    parser: &mut SseParser,
    latest: Instant,
) -> bool {
    if stream.is_none() {
        let opened = timeout_at(latest.min(Instant::now() + OPEN_PATIENCE), daemon.stream(path, None)).await;
        *stream = opened.ok().and_then(Result::ok);
        *parser = SseParser::default();
    }
    let Some(open) = stream else {
        sleep_until(latest).await;
        return true;
    };
    let frames = match open.piece().await {
        Ok(Some(bytes)) => parser.push(&bytes).ok(),
        Ok(None) | Err(_) => None,
    };
    let Some(frames) = frames else {
        *stream = None;
        // The daemon is gone, or ends its streams: the next look tells.
        sleep_until(latest).await;
        return true;
    };
    frames.iter().any(|frame| !matches!(frame.event.as_str(), "message.delta" | "tool.updated"))
}

/// What is typed, read by a thread that goes when this is dropped.
struct Keys {
    typed: mpsc::Receiver<u8>,
    /// The other end sees when it is closed.
    _until: PipeWriter,
}

impl Keys {
    fn listen() -> io::Result<Self> {
        let (stop, until) = io::pipe()?;
        let (sender, typed) = mpsc::channel(KEYS_MAX);
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&stop, &sender))?;
        Ok(Self { typed, _until: until })
    }
}

fn read_keys(stop: &PipeReader, sender: &mpsc::Sender<u8>) {
    let stdin = io::stdin();
    loop {
        let mut descriptors = [PollFd::new(stop, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        let polled = retry_on_intr(|| poll(&mut descriptors, None));
        let is_stopped = !descriptors[0].revents().is_empty();
        let mut typed = [0; KEYS_MAX];
        if polled.is_err() || is_stopped || !is_in_front() {
            return;
        }
        match retry_on_intr(|| rustix::io::read(&stdin, &mut typed)) {
            Ok(count @ 1..) => {
                for key in &typed[..count] {
                    // What nobody has taken yet is enough.
                    let _ = sender.try_send(*key);
                }
            }
            Ok(0) | Err(_) => return,
        }
    }
}

/// Waits for a key, and tells whether it is the one that leaves.
async fn quits(keys: Option<&mut Keys>) -> bool {
    let Some(keys) = keys else { return std::future::pending().await };
    match keys.typed.recv().await {
        Some(key) => matches!(key, b'q' | b'Q'),
        // Nobody listens to the keyboard any more, which ends nothing.
        None => std::future::pending().await,
    }
}

/// Whether it is this program that the terminal listens to. One in the background would be stopped for reading.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

/// The whole terminal, until it is dropped; then it is as it was, also when that is because of a panic.
pub struct Screen {
    before: Option<Termios>,
}

impl Screen {
    pub fn enter() -> Self {
        let before = tcgetattr(io::stdin()).ok().filter(|_| is_in_front());
        if let Some(before) = &before {
            let mut quiet = before.clone();
            // What is typed is not shown, and comes without the end of a line. Ctrl-C is still a signal.
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
        }
        write("\x1b[?1049h\x1b[?25l");
        Self { before }
    }

    /// Paints the lines from the top, as many as there is room for.
    #[expect(clippy::unused_self, reason = "only who has the screen paints it")]
    pub fn paint(&self, text: &str) {
        let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row)).max(2);
        let lines: Vec<&str> = text.lines().collect();
        let shown = if lines.len() > rows { rows - 1 } else { lines.len() };
        // All at once, where the terminal can; without flicker where it cannot.
        let mut frame = "\x1b[?2026h\x1b[H".to_owned();
        for (index, line) in lines.iter().take(shown).enumerate() {
            let _ = write!(frame, "{}{line}\x1b[K", if index > 0 { "\r\n" } else { "" });
        }
        if shown < lines.len() {
            let _ = write!(frame, "\r\n… and {} more\x1b[K", lines.len() - shown);
        }
        frame.push_str("\x1b[J\x1b[?2026l");
        write(&frame);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write("\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// A terminal that is gone needs no screen.
fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
