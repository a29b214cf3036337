//! Two streams that may be one screen: the answer on stdout, everything beside it on stderr.
//!
//! When both are terminals they share lines, so whoever writes to one ends the other's open line first. When stdout
//! goes to a program it gets the answer and not one byte more.

use std::io::{self, Write};

use super::super::super::style::Style;
use super::super::super::text::clean;

pub struct Screen<A: Write, N: Write> {
    answer: A,
    notes: N,
    /// Whether both are terminals, and so, the same one.
    is_shared: bool,
    style: Style,
    /// The answer's last line has not ended.
    in_answer: bool,
    /// The thought's last line has not ended.
    in_thought: bool,
}

impl<A: Write, N: Write> Screen<A, N> {
    pub fn new(answer: A, notes: N, is_shared: bool, style: Style) -> Self {
        Self { answer, notes, is_shared, style, in_answer: false, in_thought: false }
    }

    /// A piece of the answer.
    pub fn answer(&mut self, text: &str) -> io::Result<()> {
        let text = clean(text);
        if text.is_empty() {
            return Ok(());
        }
        self.end_thought();
        self.answer.write_all(text.as_bytes())?;
        self.answer.flush()?;
        self.in_answer = !text.ends_with('\n');
        Ok(())
    }

    /// A piece of the agent's reasoning, which is only for someone who is looking.
    pub fn thought(&mut self, text: &str) -> io::Result<()> {
        let text = clean(text);
        if text.is_empty() || !self.is_shared {
            return Ok(());
        }
        self.end_answer()?;
        // Nobody is left to be told when stderr cannot be written; so it is everywhere below.
        let _ = write!(self.notes, "{}", self.style.dim(&text));
        let _ = self.notes.flush();
        self.in_thought = !text.ends_with('\n');
        Ok(())
    }

    /// A line beside the answer. The caller has cleaned and styled it.
    pub fn note(&mut self, line: &str) -> io::Result<()> {
        self.make_room()?;
        let _ = writeln!(self.notes, "{line}");
        Ok(())
    }

    /// Ends the lines that stand in the way of one on stderr.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.is_shared {
            self.end_answer()?;
        }
        self.end_thought();
        Ok(())
    }

    /// Ends the answer's line, if it is open.
    pub fn end_answer(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.in_answer) {
            self.answer.write_all(b"\n")?;
            self.answer.flush()?;
        }
        Ok(())
    }

    pub fn end_thought(&mut self) {
        if std::mem::take(&mut self.in_thought) {
            let _ = writeln!(self.notes);
        }
    }

    pub fn style(&self) -> Style {
        self.style
    }

    #[cfg(test)]
    pub fn into_parts(self) -> (A, N) {
        (self.answer, self.notes)
    }
}
