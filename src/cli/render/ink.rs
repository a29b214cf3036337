//! Lines of text with their looks, and how they are made to fit.
//!
//! Whatever becomes part of a line is cleaned here, so that nothing that an agent wrote, in whatever disguise, can act on
//! the terminal: a character reference in Markdown is a control character only after it was parsed.

use unicode_width::UnicodeWidthChar;

use super::super::style::Style;
use super::super::text::clean;

const TAB: &str = "    ";
/// It asks for the wide form of the character before it, and terminals do not agree on whether they give it.
const WIDE_FORM: char = '\u{fe0f}';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ink {
    attributes: u8,
    colour: Option<Colour>,
}

const BOLD: u8 = 1;
const DIM: u8 = 2;
const ITALIC: u8 = 4;
const UNDERLINE: u8 = 8;
const STRUCK: u8 = 16;

impl Ink {
    pub const PLAIN: Self = Self { attributes: 0, colour: None };
    pub const DIM: Self = Self::PLAIN.dim();
    pub const BOLD: Self = Self::PLAIN.bold();

    pub const fn bold(self) -> Self {
        self.with(BOLD)
    }

    pub const fn dim(self) -> Self {
        self.with(DIM)
    }

    pub const fn italic(self) -> Self {
        self.with(ITALIC)
    }

    pub const fn underline(self) -> Self {
        self.with(UNDERLINE)
    }

    pub const fn struck(self) -> Self {
        self.with(STRUCK)
    }

    pub const fn colour(self, colour: Colour) -> Self {
        Self { colour: Some(colour), ..self }
    }

    const fn with(self, attribute: u8) -> Self {
        Self { attributes: self.attributes | attribute, ..self }
    }

    fn codes(self) -> String {
        let attributes = [(BOLD, "1"), (DIM, "2"), (ITALIC, "3"), (UNDERLINE, "4"), (STRUCK, "9")];
        let mut codes: Vec<&str> =
            attributes.iter().filter(|(bit, _)| self.attributes & bit != 0).map(|(_, code)| *code).collect();
        codes.extend(self.colour.map(|colour| match colour {
            Colour::Red => "31",
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Cyan => "36",
        }));
        codes.join(";")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    text: String,
    ink: Ink,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    spans: Vec<Span>,
}

impl Line {
    pub fn new(text: &str, ink: Ink) -> Self {
        Self::default().and(text, ink)
    }

    /// The line, with more after it.
    #[must_use]
    pub fn and(mut self, text: &str, ink: Ink) -> Self {
        self.push(text, ink);
        self
    }

    pub fn push(&mut self, text: &str, ink: Ink) {
        let text = clean(text).replace('\t', TAB).replace('\n', " ");
        self.append(&text, ink);
    }

    fn append(&mut self, text: &str, ink: Ink) {
        match self.spans.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.ink == ink => last.text.push_str(text),
            _ => self.spans.push(Span { text: text.to_owned(), ink }),
        }
    }

    pub fn extend(&mut self, other: &Self) {
        other.spans.iter().for_each(|span| self.append(&span.text, span.ink));
    }

    /// The line after another.
    #[must_use]
    pub fn after(&self, mut before: Self) -> Self {
        before.extend(self);
        before
    }

    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    pub fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.text.trim().is_empty())
    }

    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }

    /// As a terminal gets it.
    pub fn render(&self, style: Style) -> String {
        if !style.is_enabled() {
            return self.text();
        }
        self.spans
            .iter()
            .map(|span| match span.ink.codes() {
                codes if codes.is_empty() => span.text.clone(),
                codes => format!("\x1b[{codes}m{}\x1b[0m", span.text),
            })
            .collect()
    }

    /// Within `columns`, its end cut off when it is longer.
    pub fn cut(&self, columns: usize, ellipsis: &str) -> Self {
        if self.width() <= columns {
            return self.clone();
        }
        let room = columns.saturating_sub(width(ellipsis));
        let mut cut = self.pieces(room.max(1), false).into_iter().next().unwrap_or_default();
        let ink = cut.spans.last().map(|span| span.ink).unwrap_or_default();
        if room > 0 {
            cut.append(ellipsis, ink);
        }
        cut
    }

    /// Lines of at most `columns`, broken between words where that is possible. There is at least one.
    pub fn wrap(&self, columns: usize) -> Vec<Self> {
        self.pieces(columns, true)
    }

    /// Lines of at most `columns`, broken wherever they are full.
    pub fn chop(&self, columns: usize) -> Vec<Self> {
        self.pieces(columns, false)
    }

    fn pieces(&self, columns: usize, at_words: bool) -> Vec<Self> {
        let columns = columns.max(1);
        let cells: Vec<(char, Ink)> =
            self.spans.iter().flat_map(|span| span.text.chars().map(|character| (character, span.ink))).collect();
        let total =
            |range: &[(char, Ink)]| range.iter().map(|(character, _)| character_width(*character)).sum::<usize>();
        let mut lines = Vec::new();
        let (mut start, mut used) = (0, 0);
        // After which cell the line may end.
        let mut gap = None;
        for (index, (character, _)) in cells.iter().enumerate() {
            let own = character_width(*character);
            if used + own > columns && index > start {
                let end = if at_words && *character != ' ' { gap.unwrap_or(index) } else { index };
                lines.push(gather(&cells[start..end], at_words));
                start = end;
                gap = None;
                if at_words {
                    start += cells[start..index].iter().take_while(|(character, _)| *character == ' ').count();
                }
                used = total(&cells[start..index]);
                if at_words && *character == ' ' && start == index {
                    start += 1;
                    continue;
                }
            }
            used += own;
            if *character == ' ' || own == 2 {
                gap = Some(index + 1);
            }
        }
        if start < cells.len() || lines.is_empty() {
            lines.push(gather(&cells[start.min(cells.len())..], false));
        }
        lines
    }
}

fn gather(cells: &[(char, Ink)], trims: bool) -> Line {
    let kept = if trims {
        cells.iter().rposition(|(character, _)| *character != ' ').map_or(0, |last| last + 1)
    } else {
        cells.len()
    };
    let mut line = Line::default();
    let mut letters = [0; 4];
    for (character, ink) in cells.iter().take(kept) {
        line.append(character.encode_utf8(&mut letters), *ink);
    }
    line
}

/// The columns that a text takes at most.
pub fn width(text: &str) -> usize {
    text.chars().map(character_width).sum()
}

fn character_width(character: char) -> usize {
    if character == WIDE_FORM { 1 } else { character.width().unwrap_or_default() }
}

/// What was already wrapped, behind a first and a further beginning.
pub fn indented(lines: &[Line], first: &Line, rest: &Line) -> Vec<Line> {
    let begins = |index: usize| if index == 0 { first.clone() } else { rest.clone() };
    let whole = |(index, line): (usize, &Line)| {
        let whole = line.after(begins(index));
        if whole.is_blank() { Line::default() } else { whole }
    };
    lines.iter().enumerate().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn lines_are_broken_between_words_and_nothing_is_lost() {
        let line = Line::new("the quick ", Ink::PLAIN).and("brown fox", Ink::BOLD);
        assert_eq!(texts(&line.wrap(10)), ["the quick", "brown fox"]);
        assert_eq!(texts(&line.wrap(9)), ["the quick", "brown fox"]);
        assert_eq!(texts(&line.wrap(4)), ["the", "quic", "k", "brow", "n", "fox"]);
        assert_eq!(texts(&line.chop(7)), ["the qui", "ck brow", "n fox"]);
        assert_eq!(texts(&Line::default().wrap(5)), [""]);
        assert_eq!(texts(&Line::new("日本語のとても", Ink::PLAIN).wrap(5)), ["日本", "語の", "とて", "も"]);
        for columns in 1..30 {
            for text in ["a  bb   ccc dddd", "⚠️ x", "e\u{301}e\u{301} e\u{301}", "    indented", " "] {
                for piece in Line::new(text, Ink::PLAIN).wrap(columns) {
                    assert!(piece.width() <= columns.max(2), "{piece:?} at {columns}");
                }
            }
        }
    }

    #[test]
    fn a_cut_line_fits_and_keeps_its_looks() {
        let line = Line::new("abc", Ink::PLAIN).and("def", Ink::DIM);
        assert_eq!(line.cut(6, "…"), line);
        assert_eq!(line.cut(5, "…"), Line::new("abc", Ink::PLAIN).and("d…", Ink::DIM));
        assert_eq!(line.cut(1, "…").width(), 1);
    }

    #[test]
    fn no_control_character_gets_into_a_line() {
        let line = Line::new("a\x1b[2J\tb\nc\u{9b}\u{202e}", Ink::BOLD);
        assert_eq!(line.text(), "a[2J    b c");
        assert_eq!(line.render(Style::plain()), line.text());
    }
}
