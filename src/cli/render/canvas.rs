//! The terminal, as a place to write on: lines that are finished are written once and scroll away for good, and below them
//! a live region is repainted in place.
//!
//! 1. The cursor stands at the end of the region's last line, or, when there is none, at the beginning of an empty one.
//! 2. No line is wider than the terminal, so a line is a row, until the terminal is made narrower.
//! 3. The region is lower than the terminal; of more, the end is shown.
//! 4. Whoever drops the canvas gets the screen without the region.

use std::fmt::Write as _;
use std::io::{self, Write};

use rustix::fd::AsFd;

use super::super::style::Style;
use super::super::terminal::{Size, USUAL};
use super::ink::Line;

const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
const ERASE_REST: &str = "\x1b[K";
const ERASE_ROW: &str = "\x1b[2K";
const UP: &str = "\x1b[A";

pub struct Canvas {
    out: Box<dyn Write>,
    measure: Box<dyn Fn() -> Option<Size>>,
    style: Style,
    ellipsis: &'static str,
    /// Finished lines that are not written yet.
    finished: String,
    /// The region as it is on the screen.
    shown: Vec<Line>,
    /// How wide the terminal was then.
    columns: usize,
}

impl Canvas {
    pub fn new(
        out: Box<dyn Write>,
        measure: Box<dyn Fn() -> Option<Size>>,
        style: Style,
        ellipsis: &'static str,
    ) -> Self {
        Self { out, measure, style, ellipsis, finished: String::new(), shown: Vec::new(), columns: 0 }
    }

    /// On one of this program's own streams.
    pub fn on_terminal(stream: impl Write + AsFd + 'static, style: Style, ellipsis: &'static str) -> Self {
        // The stream itself is moved into the canvas.
        let measured = stream.as_fd().try_clone_to_owned().ok();
        let measure = move || Size::of(measured.as_ref()?);
        Self::new(Box::new(stream), Box::new(measure), style, ellipsis)
    }

    /// The columns that may be written on. The last is left free: what a terminal does after it differs.
    pub fn columns(&self) -> usize {
        self.size().columns.saturating_sub(1).max(1)
    }

    /// The rows that the region may have.
    pub fn rows(&self) -> usize {
        self.size().rows.saturating_sub(1).max(1)
    }

    fn size(&self) -> Size {
        (self.measure)().unwrap_or(USUAL)
    }

    pub fn style(&self) -> Style {
        self.style
    }

    /// A line that will not change any more. It is written with the next picture.
    pub fn commit(&mut self, line: &Line) {
        for piece in line.wrap(self.columns()) {
            self.finished.push_str(&piece.render(self.style));
            self.finished.push('\n');
        }
    }

    /// Writes what is finished, and the region below it.
    pub fn paint(&mut self, region: &[Line]) -> io::Result<()> {
        let columns = self.columns();
        let first = region.len().saturating_sub(self.rows());
        let region: Vec<Line> = region[first..].iter().map(|line| line.cut(columns, self.ellipsis)).collect();
        if self.finished.is_empty() && region == self.shown && columns == self.columns {
            return Ok(());
        }
        let is_same_place = self.finished.is_empty() && columns == self.columns && !region.is_empty();
        let text = if is_same_place && region.len() == self.shown.len() {
            self.changed(&region)
        } else {
            let lines: Vec<String> = region.iter().map(|line| line.render(self.style)).collect();
            format!("{}{}{}", self.erased(columns), std::mem::take(&mut self.finished), lines.join("\n"))
        };
        self.shown = region;
        self.columns = columns;
        self.out.write_all(format!("{BEGIN}{text}{END}").as_bytes())?;
        self.out.flush()
    }

    /// Takes the region away, and writes what is finished.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.finished.is_empty() && self.shown.is_empty() {
            return Ok(());
        }
        let text = self.erased(self.columns()) + &std::mem::take(&mut self.finished);
        self.shown.clear();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// The lines that differ, each in its place.
    fn changed(&self, region: &[Line]) -> String {
        let mut text = "\r".to_owned() + &up(region.len() - 1);
        for (index, (new, old)) in region.iter().zip(&self.shown).enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            if new != old {
                let _ = write!(text, "{}{ERASE_REST}", new.render(self.style));
            }
        }
        // The last line stays as it was, and the cursor belongs at its end.
        if let (Some(last), true) = (region.last(), region.last() == self.shown.last()) {
            text.push_str(&last.render(self.style));
        }
        text
    }

    /// What takes the region away. Terminals that were made narrower have wrapped its lines.
    ///
    /// Row by row: what erases from the first row to the last is to tmux the clearing of a screen, which it keeps in the
    /// history, so the region would be there for good.
    fn erased(&self, columns: usize) -> String {
        if self.shown.is_empty() {
            return String::new();
        }
        let rows: usize = self.shown.iter().map(|line| line.width().div_ceil(columns + 1).max(1)).sum();
        let rows = rows.min(self.size().rows);
        format!("\r{ERASE_ROW}{}", format!("{UP}{ERASE_ROW}").repeat(rows - 1))
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        // There is nobody left to be told.
        let _ = self.clear();
    }
}

fn up(rows: usize) -> String {
    if rows == 0 { String::new() } else { format!("\x1b[{rows}A") }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::num::NonZeroU16;
    use std::rc::Rc;

    use super::super::ink::Ink;
    use super::*;

    #[derive(Clone)]
    struct Emulator(Rc<RefCell<vt100::Parser>>);

    impl Write for Emulator {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // As a terminal's driver does.
            let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\n', "\r\n");
            self.0.borrow_mut().process(text.as_bytes());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        emulator: Emulator,
        size: Rc<Cell<Size>>,
        canvas: Canvas,
    }

    impl Bench {
        fn new(columns: u16, rows: u16) -> Self {
            let cells = |count| NonZeroU16::new(count).unwrap();
            let emulator = Emulator(Rc::new(RefCell::new(vt100::Parser::new(cells(rows), cells(columns), 0))));
            let size = Rc::new(Cell::new(Size { columns: columns.into(), rows: rows.into() }));
            let measured = size.clone();
            let canvas =
                Canvas::new(Box::new(emulator.clone()), Box::new(move || Some(measured.get())), Style::plain(), "…");
            Self { emulator, size, canvas }
        }

        fn paint(&mut self, region: &[&str]) {
            let region: Vec<Line> = region.iter().map(|text| Line::new(text, Ink::PLAIN)).collect();
            self.canvas.paint(&region).unwrap();
        }

        fn screen(&self) -> String {
            self.emulator.0.borrow().screen().contents().trim_end().to_owned()
        }
    }

    #[test]
    fn the_region_is_repainted_below_what_is_finished() {
        let mut bench = Bench::new(20, 6);
        bench.paint(&["one", "two"]);
        assert_eq!(bench.screen(), "one\ntwo");
        bench.paint(&["one", "2"]);
        assert_eq!(bench.screen(), "one\n2");
        bench.paint(&["1", "2"]);
        bench.canvas.commit(&Line::new("finished", Ink::PLAIN));
        bench.paint(&["a", "b", "c"]);
        assert_eq!(bench.screen(), "finished\na\nb\nc");
        bench.paint(&[]);
        assert_eq!(bench.screen(), "finished");
        bench.paint(&["alive"]);
        drop(bench.canvas);
        assert_eq!(bench.emulator.0.borrow().screen().contents().trim_end(), "finished");
    }

    #[test]
    fn it_never_outgrows_the_terminal() {
        let mut bench = Bench::new(12, 4);
        bench.paint(&["1", "2", "3", "4", "5", "a line that is far too long"]);
        assert_eq!(bench.screen(), "4\n5\na line tha…");
        bench.canvas.commit(&Line::new("a line that is far too long", Ink::PLAIN));
        bench.paint(&["x"]);
        assert_eq!(bench.screen(), "a line that\nis far too\nlong\nx");
        bench.paint(&["1", "2", "3", "4", "5", "6"]);
        bench.canvas.clear().unwrap();
        assert_eq!(bench.screen(), "long", "what scrolled away stays away, and nothing else is taken");
    }

    #[test]
    fn a_wider_terminal_is_written_on_anew() {
        let mut bench = Bench::new(12, 6);
        bench.paint(&["a line that is long", "x"]);
        let cells = |count| NonZeroU16::new(count).unwrap();
        bench.emulator.0.borrow_mut().screen_mut().set_size(cells(6), cells(30));
        bench.size.set(Size { columns: 30, rows: 6 });
        bench.paint(&["a line that is long", "x"]);
        assert_eq!(bench.screen(), "a line that is long\nx");
    }
}
