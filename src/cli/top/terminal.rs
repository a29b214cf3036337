//! The terminal while it is ours: raw, and on its alternate screen; and given back as it was, however this ends.
//!
//! It is given back by [`Terminal::leave`], by its drop, and before the words of a panic, whichever comes first.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// A frame goes out in one piece, so that nobody sees half of it.
const FRAME_BYTES: usize = 256 << 10;

/// Whether the terminal is ours now. Also a panic on another thread has to know.
static IS_OURS: AtomicBool = AtomicBool::new(false);

type Drawing = ratatui::Terminal<CrosstermBackend<BufWriter<Stdout>>>;

pub struct Terminal {
    drawing: Drawing,
}

impl Terminal {
    /// Takes the terminal.
    pub fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                tell(panic);
            }));
        });
        enter()?;
        Ok(Self { drawing: drawing().inspect_err(|_| give_back())? })
    }

    /// Draws what has changed since the last time.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.drawing.draw(picture).map(drop)
    }

    /// Gives the terminal back.
    #[expect(clippy::unused_self, reason = "only who has it gives it back")]
    pub fn leave(&mut self) {
        give_back();
    }

    /// Takes it again, and forgets what was drawn.
    pub fn return_to(&mut self) -> io::Result<()> {
        enter()?;
        self.redraw()
    }

    /// The next drawing is a whole one.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Not its own clearing, which asks the terminal where the cursor is: the answer would come as a key.
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.drawing = drawing()?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn drawing() -> io::Result<Drawing> {
    ratatui::Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout())))
}

fn enter() -> io::Result<()> {
    IS_OURS.store(true, Ordering::Release);
    let entered = enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide));
    entered.inspect_err(|_| give_back())
}

/// Once, by whoever comes first. There is nothing to be done about a terminal that is gone.
fn give_back() {
    if IS_OURS.swap(false, Ordering::AcqRel) {
        let mut stdout = io::stdout();
        // Emptied first: tmux brings the rest of a screen back when its window was another size at the beginning.
        let _ = execute!(stdout, Clear(ClearType::All), LeaveAlternateScreen, Show);
        let _ = stdout.flush();
        let _ = disable_raw_mode();
    }
}
