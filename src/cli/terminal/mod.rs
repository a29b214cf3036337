//! The terminal that a person sits at: how large it is, what is typed on it, and what it wants of the program.
//!
//! Everything that reads keys or changes how the terminal behaves goes through here, so there is one answer to whether
//! this program is the one that the terminal listens to. `top` draws with crossterm, which has its own.

mod keyboard;
mod screen;
mod signals;

pub use self::keyboard::Keyboard;
pub use self::screen::Screen;
pub use self::signals::{TerminalSignal, TerminalSignals, end, stop};

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// The terminal of the session that the program runs in, whatever its streams are.
const CONTROLLING: &str = "/dev/tty";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// What a terminal of which nothing is known is taken for.
pub const USUAL: Size = Size { columns: 80, rows: 24 };

impl Size {
    /// That of the terminal behind a stream, where there is one that knows.
    pub fn of(stream: impl AsFd) -> Option<Self> {
        let size = tcgetwinsize(stream).ok()?;
        let size = Self { columns: size.ws_col.into(), rows: size.ws_row.into() };
        (size.columns > 0 && size.rows > 0).then_some(size)
    }
}

/// Where what is typed comes from.
#[derive(Debug)]
pub enum Keys {
    Stdin,
    /// Stdin is a pipe or a file: `git diff | acpd run "review this"`.
    Controlling(File),
}

impl Keys {
    /// Those of the terminal that a person looks at; nothing where there is none. `stream` is where they look.
    pub fn of_person(stream: impl AsFd + IsTerminal) -> Option<Self> {
        if !stream.is_terminal() {
            return None;
        }
        if io::stdin().is_terminal() {
            return Some(Self::Stdin);
        }
        // Only the controlling terminal has a foreground. Another one would be looked at here and typed at elsewhere.
        tcgetpgrp(stream).ok()?;
        File::open(CONTROLLING).ok().map(Self::Controlling)
    }

    /// Whether it is this program that the terminal listens to. One in the background would be stopped for reading.
    pub fn are_ours(&self) -> bool {
        // A terminal that is not the controlling one has no foreground, and stops nobody.
        tcgetpgrp(self).map_or(true, |foreground| foreground == rustix::process::getpgrp())
    }
}

impl AsFd for Keys {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdin => rustix::stdio::stdin(),
            Self::Controlling(file) => file.as_fd(),
        }
    }
}
