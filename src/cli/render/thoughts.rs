//! The agent's thoughts: their end while they come, and one line when they are over, or all of them for whoever wants that.

use std::time::Duration;

use crate::model::Timestamp;

use super::super::text::{clean, duration};
use super::ThoughtsShown;
use super::glyphs::Glyphs;
use super::ink::{Ink, Line, indented};

/// Of what is thought now, while thoughts are folded.
const REGION_LINES: usize = 3;
/// Of a longer thought, the end is kept.
const THOUGHT_BYTES_MAX: usize = 256 << 10;
/// Less than this is not worth telling.
const TIME_MIN: Duration = Duration::from_millis(100);

pub struct Thoughts {
    shown: ThoughtsShown,
    glyphs: &'static Glyphs,
    /// What is thought now, as far as it came.
    text: String,
    /// The first and the last piece of it.
    times: Option<(Timestamp, Timestamp)>,
    /// The last one that was folded.
    folded: Option<String>,
}

impl Thoughts {
    pub fn new(shown: ThoughtsShown, glyphs: &'static Glyphs) -> Self {
        Self { shown, glyphs, text: String::new(), times: None, folded: None }
    }

    pub fn push(&mut self, text: &str, at: Timestamp) {
        self.text.push_str(&clean(text));
        if let Some(excess) = self.text.len().checked_sub(THOUGHT_BYTES_MAX) {
            let start = (excess..self.text.len()).find(|index| self.text.is_char_boundary(*index));
            self.text.drain(..start.unwrap_or(excess));
        }
        self.times = Some((self.times.map_or(at, |(first, _)| first), at));
    }

    pub fn is_open(&self) -> bool {
        self.times.is_some()
    }

    /// What is thought now, as far as a person wants to see it.
    pub fn region(&self, columns: usize) -> Vec<Line> {
        match self.shown {
            ThoughtsShown::Hide => Vec::new(),
            ThoughtsShown::Show => lines(&self.text, columns),
            ThoughtsShown::Fold => {
                let lines = lines(&self.text, columns);
                let first = lines.len().saturating_sub(REGION_LINES);
                lines.into_iter().skip(first).collect()
            }
        }
    }

    /// What is left of a thought that is over. `at` is when that was known.
    pub fn end(&mut self, at: Timestamp, columns: usize) -> Vec<Line> {
        let Some((first, last)) = self.times.take() else { return Vec::new() };
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return Vec::new();
        }
        // A message that came whole tells nothing of how long it took.
        let at = at.max(last);
        let took = if at.since(first) < TIME_MIN { String::new() } else { format!(" for {}", duration(first, at)) };
        match self.shown {
            ThoughtsShown::Hide => Vec::new(),
            ThoughtsShown::Fold => {
                self.folded = Some(text);
                vec![Line::new(&format!("{} thought{took}", self.glyphs.folded), Ink::DIM)]
            }
            ThoughtsShown::Show => self.whole(&format!("thought{took}"), &text, columns),
        }
    }

    /// Folds what is shown, and shows what is folded, from now on; and the last thought that was folded, whole.
    pub fn toggle(&mut self, columns: usize) -> Vec<Line> {
        self.shown = match self.shown {
            ThoughtsShown::Show => ThoughtsShown::Fold,
            ThoughtsShown::Fold | ThoughtsShown::Hide => ThoughtsShown::Show,
        };
        let say = |text: &str| vec![Line::new(text, Ink::DIM)];
        match (self.shown, self.folded.take()) {
            (ThoughtsShown::Show, Some(text)) => self.whole("the last thought", &text, columns),
            (ThoughtsShown::Show, None) if self.is_open() => Vec::new(),
            (ThoughtsShown::Show, None) => say("showing thoughts"),
            _ => say("folding thoughts"),
        }
    }

    fn whole(&self, head: &str, text: &str, columns: usize) -> Vec<Line> {
        let head = Line::new(&format!("{} {head}", self.glyphs.unfolded), Ink::DIM);
        std::iter::once(head).chain(lines(text, columns)).collect()
    }
}

fn lines(text: &str, columns: usize) -> Vec<Line> {
    let indent = Line::new("  ", Ink::PLAIN);
    let text = text.trim();
    let wrap = |line: &str| Line::new(line, Ink::DIM).wrap(columns.saturating_sub(indent.width()));
    let lines: Vec<Line> = text.lines().filter(|line| !line.trim().is_empty()).flat_map(wrap).collect();
    indented(&lines, &indent, &indent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn a_thought_is_folded_and_can_be_had_whole() {
        let at = Timestamp::from_millis;
        let mut thoughts = Thoughts::new(ThoughtsShown::Fold, Glyphs::unicode());
        assert!(thoughts.end(at(0), 40).is_empty());
        thoughts.push("one\ntwo\x1b[2J\n", at(0));
        thoughts.push("\nthree\nfour", at(1000));
        assert_eq!(texts(&thoughts.region(40)), ["  two[2J", "  three", "  four"]);
        assert_eq!(texts(&thoughts.end(at(4200), 40)), ["▸ thought for 4.2s"]);
        assert!(thoughts.region(40).is_empty());
        assert_eq!(texts(&thoughts.toggle(40)), ["▾ the last thought", "  one", "  two[2J", "  three", "  four"]);
        thoughts.push("again", at(5000));
        assert_eq!(texts(&thoughts.end(at(5000), 40)), ["▾ thought", "  again"]);
        assert_eq!(texts(&thoughts.toggle(40)), ["folding thoughts"]);
    }

    #[test]
    fn a_thought_that_is_hidden_leaves_nothing() {
        let mut thoughts = Thoughts::new(ThoughtsShown::Hide, Glyphs::unicode());
        thoughts.push(&"x".repeat(THOUGHT_BYTES_MAX + 9), Timestamp::from_millis(0));
        assert_eq!(thoughts.text.len(), THOUGHT_BYTES_MAX);
        assert!(thoughts.region(40).is_empty() && thoughts.end(Timestamp::from_millis(1), 40).is_empty());
    }
}
