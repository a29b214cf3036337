//! Looking on: a screen that is painted again when something has changed, and left as it was found.
//!
//! The daemon's stream of events only tells that it is time to look again; what is shown is asked for anew. So nothing is
//! lost when the stream breaks, and a busy agent costs one look in [`LOOK_PAUSE`] and not one an event.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook_tokio::Signals;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::{Daemon, StreamBody};
use super::error::ClientError;
use super::sse::SseParser;
use super::terminal::{self, Keyboard, Keys};

/// Ages and memory change by themselves.
const PERIOD: Duration = Duration::from_secs(1);
/// What happens together is shown together.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// A daemon that does not answer at once is not waited for: the next look is a second away.
const OPEN_PATIENCE: Duration = Duration::from_millis(500);

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Look,
    /// Ctrl-Z: the terminal is somebody else's for a while.
    Stop,
    Leave,
}

/// Waits for what makes another look worth it.
pub struct Watch<'a> {
    daemon: &'a Daemon,
    path: String,
    stream: Option<StreamBody>,
    parser: SseParser,
    signals: Signals,
    /// While a key is waited for, what is typed is not shown. Ctrl-C is still a signal.
    keyboard: Option<Keyboard>,
}

impl<'a> Watch<'a> {
    /// `path` is the stream that tells of changes.
    pub fn new(daemon: &'a Daemon, path: String, takes_keys: bool) -> Result<Self, ClientError> {
        let failed = |source| ClientError::io("listen to Ctrl-C", source);
        let mut wanted = vec![SIGINT, SIGTERM, SIGHUP, SIGWINCH];
        if takes_keys {
            // Whoever has the whole screen gives it back before it stops.
            wanted.extend([SIGTSTP, SIGCONT]);
        }
        let signals = Signals::new(wanted).map_err(failed)?;
        let keys = if takes_keys { Keys::of_person(io::stdout()) } else { None };
        let keyboard = keys.map(Keyboard::new);
        Ok(Self { daemon, path, stream: None, parser: SseParser::default(), signals, keyboard })
    }

    /// Stops as Ctrl-Z wants it, and comes back when the program goes on. The screen is given back before.
    pub fn stop(&mut self) {
        if let Some(keyboard) = &mut self.keyboard {
            keyboard.rest();
        }
        terminal::stop();
    }

    /// Waits for a change, a second, a new size of the window, or the wish to leave.
    pub async fn next(&mut self) -> Next {
        let latest = Instant::now() + PERIOD;
        let mut due = latest;
        loop {
            let Self { daemon, path, stream, parser, signals, keyboard } = self;
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Some(SIGWINCH | SIGCONT) => return Next::Look,
                    Some(SIGTSTP) => return Next::Stop,
                    _ => return Next::Leave,
                },
                is_quit = quits(keyboard.as_mut()) => if is_quit {
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

/// Waits for a key, and tells whether it is the one that leaves.
async fn quits(keyboard: Option<&mut Keyboard>) -> bool {
    match keyboard {
        Some(keyboard) => matches!(keyboard.key().await, 'q' | 'Q'),
        None => std::future::pending().await,
    }
}
