//! A terminal's screen as a small SVG, with its colours, in a window. Text that differs from run to run is replaced by
//! fixed text of the same width first.
//!
//! Every character has its own `x`, and spaces are not written. So the columns hold in every viewer and in every font:
//! viewers disagree about spaces (`xml:space`), and the character of a fallback font has another width.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "every test file uses a part of it, and a test fails by panicking"
)]

pub mod browser;

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: u32 = 18;
const FONT_SIZE: u32 = 14;
const MARGIN: u32 = 16;
const BAR_HEIGHT: u32 = 32;
pub const FONTS: &str = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const BACKGROUND: &str = "#16181d";
const BAR: &str = "#23262e";
const FOREGROUND: &str = "#d8dbe2";
const FAINT: &str = "#868c99";
/// Black, red, green, yellow, blue, magenta, cyan, white; then the bright ones.
const PALETTE: [&str; 16] = [
    "#3b4048", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dbe2", "#868c99", "#f08891",
    "#b1d794", "#f0d197", "#82c3ff", "#d99cec", "#7bcfd9", "#ffffff",
];

/// What is drawn: cells in rows, and how each looks.
pub struct Picture {
    title: String,
    rows: Vec<Vec<Drawn>>,
}

#[derive(Clone)]
struct Drawn {
    /// A wide character has an empty one behind it.
    text: String,
    look: Look,
}

#[derive(Clone, Default, PartialEq)]
struct Look {
    color: String,
    background: Option<String>,
    is_bold: bool,
    is_italic: bool,
    is_underlined: bool,
}

impl Drawn {
    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Whether it is a line or a bar, which meets its neighbours.
    fn is_line(&self) -> bool {
        self.text.chars().all(|character| ('\u{2500}'..='\u{259f}').contains(&character))
    }

    /// Whether it takes one `x`: viewers count a character beyond U+FFFF, or one with a mark, as one or as several.
    fn is_simple(&self) -> bool {
        self.text.encode_utf16().count() == 1
    }

    fn continues_with(&self, next: &Self) -> bool {
        let is_word = |cell: &Self| !cell.is_blank() && cell.is_simple();
        self.look == next.look && is_word(self) && is_word(next) && self.is_line() == next.is_line()
    }
}

impl Picture {
    /// The screen below the line that was typed for it; without empty rows at its end.
    pub fn new(title: &str, typed: Option<&str>, screen: &Screen) -> Self {
        let (height, width) = screen.size();
        let row = |row: u16| {
            let cells = (0..width.get()).map(|column| drawn(screen.cell(row, column).unwrap()));
            cells.collect::<Vec<Drawn>>()
        };
        let mut rows: Vec<Vec<Drawn>> = (0..height.get()).map(row).collect();
        while rows.last().is_some_and(|row| row.iter().all(|cell| cell.text.trim().is_empty())) {
            rows.pop();
        }
        if let Some(typed) = typed {
            let plain = |text: &str, color: &str| {
                let look = Look { color: color.to_owned(), ..Look::default() };
                text.chars()
                    .map(move |character| Drawn { text: character.to_string(), look: look.clone() })
                    .collect::<Vec<_>>()
            };
            let mut line = [plain("$ ", PALETTE[2]), plain(typed, PALETTE[15])].concat();
            let blank = plain(" ", FOREGROUND)[0].clone();
            line.resize(usize::from(width.get()).max(line.len()), blank);
            rows.insert(0, line);
        }
        Self { title: title.to_owned(), rows }
    }

    /// Puts something fixed in the place of what differs from run to run. `find` gives where it is in a row's characters,
    /// and what stands there then; both have the same width.
    pub fn settle(mut self, find: impl Fn(&[char]) -> Vec<(usize, String)>) -> Self {
        for row in &mut self.rows {
            let characters: Vec<char> = row.iter().map(|cell| cell.text.chars().next().unwrap_or('\0')).collect();
            for (start, text) in find(&characters) {
                for (cell, character) in row[start..].iter_mut().zip(text.chars()) {
                    cell.text = character.to_string();
                }
            }
        }
        self
    }

    /// The characters of the screen, as lines without spaces at their end.
    pub fn text(&self) -> String {
        let line =
            |row: &Vec<Drawn>| row.iter().map(|cell| cell.text.as_str()).collect::<String>().trim_end().to_owned();
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub fn svg(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = pixels(columns) + f64::from(2 * MARGIN);
        let height = BAR_HEIGHT + 2 * MARGIN + u32::try_from(self.rows.len()).unwrap() * CELL_HEIGHT;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" width=\"{width:.0}\" height=\"{height}\">\n\
             <title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
             <path d=\"M0 {BAR_HEIGHT}V8a8 8 0 0 1 8-8H{:.0}a8 8 0 0 1 8 8V{BAR_HEIGHT}z\" fill=\"{BAR}\"/>\n\
             <circle cx=\"18\" cy=\"16\" r=\"5.5\" fill=\"#e06c75\"/><circle cx=\"37\" cy=\"16\" r=\"5.5\" fill=\"#e5c07b\"/>\
             <circle cx=\"56\" cy=\"16\" r=\"5.5\" fill=\"#98c379\"/>\n\
             <g font-family=\"{FONTS}\" font-size=\"{FONT_SIZE}\">\n\
             <text x=\"{:.0}\" y=\"21\" fill=\"{FAINT}\" text-anchor=\"middle\">{}</text>\n",
            escaped(&self.title),
            width - 8.0,
            width / 2.0,
            escaped(&self.title),
        );
        for (index, row) in self.rows.iter().enumerate() {
            let top = BAR_HEIGHT + MARGIN + u32::try_from(index).unwrap() * CELL_HEIGHT;
            draw(row, top, &mut svg);
        }
        svg + "</g>\n</svg>\n"
    }
}

/// The backgrounds of a row, and its words.
fn draw(row: &[Drawn], top: u32, svg: &mut String) {
    let mut column = 0;
    for run in row.chunk_by(|one, next| one.look == next.look) {
        let (left, wide) = (left_of(column), pixels(run.len()));
        column += run.len();
        if let Some(background) = &run[0].look.background {
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{background}\"/>"
            );
        }
    }
    column = 0;
    for word in row.chunk_by(Drawn::continues_with) {
        if !word[0].is_blank() {
            draw_word(word, column, top, svg);
        }
        column += word.len();
    }
}

/// Cells that look the same, without spaces. Lines are as long as their cells, so that they meet; letters are not
/// stretched.
fn draw_word(word: &[Drawn], column: usize, top: u32, svg: &mut String) {
    let look = &word[0].look;
    let place = if word[0].is_line() {
        let length = pixels(word.len());
        format!("x=\"{:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"", left_of(column))
    } else {
        let lefts: Vec<String> =
            (column..column + word.len()).map(|column| format!("{:.1}", left_of(column))).collect();
        format!("x=\"{}\"", lefts.join(" "))
    };
    let mut style = String::new();
    for (is_so, attribute) in [
        (look.is_bold, " font-weight=\"700\""),
        (look.is_italic, " font-style=\"italic\""),
        (look.is_underlined, " text-decoration=\"underline\""),
    ] {
        style.push_str(if is_so { attribute } else { "" });
    }
    let text: String = word.iter().map(|cell| cell.text.as_str()).collect();
    let (baseline, color, text) = (top + CELL_HEIGHT - 5, &look.color, escaped(&text));
    let _ = writeln!(svg, "<text {place} y=\"{baseline}\" fill=\"{color}\"{style}>{text}</text>");
}

/// Where a column begins in the picture.
fn left_of(column: usize) -> f64 {
    f64::from(MARGIN) + pixels(column)
}

fn pixels(columns: usize) -> f64 {
    CELL_WIDTH * f64::from(u32::try_from(columns).unwrap())
}

fn drawn(cell: &Cell) -> Drawn {
    let text = if cell.is_wide_continuation() {
        String::new()
    } else if cell.has_contents() {
        cell.contents().to_owned()
    } else {
        " ".to_owned()
    };
    let mut color = named(cell.fgcolor(), FOREGROUND);
    if cell.dim() {
        FAINT.clone_into(&mut color);
    }
    let mut background = (cell.bgcolor() != Color::Default).then(|| named(cell.bgcolor(), BACKGROUND));
    if cell.inverse() {
        let under = background.unwrap_or_else(|| BACKGROUND.to_owned());
        background = Some(std::mem::replace(&mut color, under));
    }
    let look =
        Look { color, background, is_bold: cell.bold(), is_italic: cell.italic(), is_underlined: cell.underline() };
    Drawn { text, look }
}

fn named(color: Color, default: &str) -> String {
    match color {
        Color::Default => default.to_owned(),
        Color::Idx(index @ 0..16) => PALETTE[usize::from(index)].to_owned(),
        Color::Idx(index @ 16..232) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let index = index - 16;
            format!("#{:02x}{:02x}{:02x}", level(index / 36), level(index / 6 % 6), level(index % 6))
        }
        Color::Idx(index) => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (index - 232)),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Ids, long and short, that are always others.
pub fn ids(row: &[char]) -> Vec<(usize, String)> {
    const ID: &str = "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e";
    let is_part = |character: char| character.is_ascii_hexdigit() || character == '-';
    words(row, is_part)
        .filter_map(|(start, word)| match word.len() {
            36 if word.matches('-').count() == 4 => Some((start, ID.to_owned())),
            12 if !word.contains('-') && word.contains(|c: char| c.is_ascii_digit()) => {
                Some((start, ID[24..].to_owned()))
            }
            _ => None,
        })
        .collect()
}

/// How long something took: `0.3s`, `12.5s`, `340ms`.
pub fn durations(row: &[char]) -> Vec<(usize, String)> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '.';
    words(row, is_part)
        .filter_map(|(start, word)| {
            let figures = word.strip_suffix("ms").or_else(|| word.strip_suffix('s'))?;
            let is_number = !figures.is_empty() && figures.chars().all(|c| c.is_ascii_digit() || c == '.');
            let settled = figures.chars().enumerate().map(|(index, c)| match (index, c) {
                (_, '.') => '.',
                (0, _) => '0',
                _ => '4',
            });
            is_number.then(|| (start, settled.collect()))
        })
        .collect()
}

/// One text in the place of another that is as wide.
pub fn text(from: &str, to: &str) -> impl Fn(&[char]) -> Vec<(usize, String)> {
    assert_eq!(from.chars().count(), to.chars().count(), "{from:?} and {to:?} are not of one width");
    let (from, to): (Vec<char>, String) = (from.chars().collect(), to.to_owned());
    move |row| {
        let places = row.windows(from.len()).enumerate().filter(|(_, window)| **window == *from);
        places.map(|(start, _)| (start, to.clone())).collect()
    }
}

fn words(row: &[char], is_part: impl Fn(char) -> bool) -> impl Iterator<Item = (usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (index, &character) in row.iter().enumerate() {
        let is_here = is_part(character);
        match (is_inside, is_here) {
            (true, true) => found.last_mut().unwrap().1.push(character),
            (false, true) => found.push((index, character.to_string())),
            (_, false) => {}
        }
        is_inside = is_here;
    }
    found.into_iter()
}
