//! The whole terminal, for a picture that is painted again and again, and left as it was found.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::{Size, USUAL};

/// Of a picture that is too tall, at least one line is shown, and that there are more.
const ROWS_MIN: usize = 2;

/// The alternate screen, until it is dropped; then the terminal shows what it showed, also when that is because of a panic.
pub struct Screen(());

impl Screen {
    pub fn enter() -> Self {
        write("\x1b[?1049h\x1b[?25l");
        Self(())
    }

    /// Paints the lines from the top, as many as there is room for.
    #[expect(clippy::unused_self, reason = "only who has the screen paints it")]
    pub fn paint(&self, text: &str) {
        let rows = Size::of(io::stdout()).unwrap_or(USUAL).rows.max(ROWS_MIN);
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
        // The alternate screen has no history into which tmux could scroll what this takes away.
        frame.push_str("\x1b[J\x1b[?2026l");
        write(&frame);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write("\x1b[?25h\x1b[?1049l");
    }
}

/// A terminal that is gone needs no screen.
fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
