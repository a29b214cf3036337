//! One block of Markdown, as lines.

use std::iter::Peekable;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, OffsetIter, Parser, Tag, TagEnd};

use super::super::glyphs::Glyphs;
use super::super::ink::{Colour, Ink, Line, indented, width};
use super::{is_block, options, table};

const CODE_INDENT: &str = "    ";
/// Deeper than that, what is nested is not indented any more: there must be room for the words.
const COLUMNS_MIN: usize = 16;

/// What is written on: how wide, and with which signs.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    glyphs: &'static Glyphs,
    /// Without colours, a few marks of the source stay, so that what they say is not lost.
    has_colours: bool,
    columns: usize,
    /// For code and tables, which may be wider than prose.
    columns_max: usize,
}

#[derive(Debug, Default)]
pub struct Rendered {
    pub lines: Vec<Line>,
    /// How many of them stay as they are, whatever whole lines follow.
    pub ready: usize,
}

impl Paper {
    pub fn new(glyphs: &'static Glyphs, has_colours: bool) -> Self {
        Self { glyphs, has_colours, columns: 80, columns_max: 80 }
    }

    pub fn resize(&mut self, columns: usize, columns_max: usize) {
        (self.columns, self.columns_max) = (columns.max(1), columns_max.max(1));
    }

    pub fn block(&self, source: &str) -> Rendered {
        let events = Parser::new_ext(source, options()).into_offset_iter().peekable();
        let mut writer =
            Writer { paper: *self, source, events, inks: vec![Ink::PLAIN], task: None, depth: 0, ready: 0 };
        let lines = writer.container(self.columns, true);
        Rendered { ready: writer.ready.min(lines.len()), lines }
    }
}

struct Writer<'a> {
    paper: Paper,
    source: &'a str,
    events: Peekable<OffsetIter<'a>>,
    /// How the text looks, innermost last.
    inks: Vec<Ink>,
    /// The box of the item that is being written.
    task: Option<bool>,
    /// How many containers are open.
    depth: usize,
    ready: usize,
}

impl Writer<'_> {
    /// Blocks up to the end of what contains them.
    fn container(&mut self, columns: usize, is_spaced: bool) -> Vec<Line> {
        let columns = columns.max(COLUMNS_MIN.min(self.paper.columns));
        let mut lines: Vec<Line> = Vec::new();
        let mut was_paragraph = false;
        self.depth += 1;
        loop {
            let (block, is_paragraph) = match self.events.peek() {
                None => break,
                Some((Event::End(_), _)) => {
                    self.events.next();
                    break;
                }
                Some((Event::Start(tag), _)) if is_block(tag) => {
                    let tag = tag.clone();
                    self.events.next();
                    let is_paragraph = matches!(tag, Tag::Paragraph);
                    (self.block(&tag, columns, lines.len()), is_paragraph)
                }
                Some((Event::Rule, _)) => {
                    self.events.next();
                    (vec![Line::new(&self.paper.glyphs.rule.repeat(columns), Ink::DIM)], false)
                }
                Some(_) => (self.prose(columns), true),
            };
            if block.is_empty() {
                continue;
            }
            if !lines.is_empty() && (is_spaced || (was_paragraph && is_paragraph)) {
                lines.push(Line::default());
            }
            was_paragraph = is_paragraph;
            lines.extend(block);
        }
        self.depth -= 1;
        lines
    }

    fn block(&mut self, tag: &Tag<'_>, columns: usize, lines_before: usize) -> Vec<Line> {
        match tag {
            Tag::Paragraph => {
                let lines = self.prose(columns);
                self.events.next();
                lines
            }
            Tag::Heading { level, .. } => self.heading(*level, columns),
            Tag::BlockQuote(_) => {
                let bar = Line::new(&format!("{} ", self.paper.glyphs.bar), Ink::DIM);
                indented(&self.container(columns.saturating_sub(bar.width()), true), &bar, &bar)
            }
            Tag::CodeBlock(kind) => self.code(kind, lines_before),
            Tag::List(first) => self.list(*first, columns, lines_before),
            Tag::Table(alignments) => {
                let rows = self.rows();
                let columns_max = columns + (self.paper.columns_max - self.paper.columns.min(self.paper.columns_max));
                table::lines(&rows, alignments, columns_max, self.paper.glyphs)
            }
            Tag::HtmlBlock => self.raw(),
            // What was not asked for does not come; if it does, its words are shown.
            _ => self.container(columns, true),
        }
    }

    fn heading(&mut self, level: HeadingLevel, columns: usize) -> Vec<Line> {
        let ink = if level == HeadingLevel::H1 { Ink::BOLD.underline() } else { Ink::BOLD };
        self.inks.push(ink);
        let marks = if self.paper.has_colours { String::new() } else { "#".repeat(level as usize) + " " };
        let lines = self.inline();
        self.inks.pop();
        self.events.next();
        if lines.iter().all(Line::is_blank) {
            return Vec::new();
        }
        let lines = lines.iter().map(|line| line.after(Line::new(&marks, ink)));
        lines.flat_map(|line| line.wrap(columns)).collect()
    }

    fn prose(&mut self, columns: usize) -> Vec<Line> {
        let lines = self.inline();
        if lines.iter().all(Line::is_blank) {
            return Vec::new();
        }
        lines.iter().flat_map(|line| line.wrap(columns)).collect()
    }

    fn code(&mut self, kind: &CodeBlockKind<'_>, lines_before: usize) -> Vec<Line> {
        let language = match kind {
            CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or_default().to_owned(),
            CodeBlockKind::Indented => String::new(),
        };
        let is_diff = matches!(language.as_str(), "diff" | "patch");
        let text = self.raw_text();
        let indent = Line::new(CODE_INDENT, Ink::PLAIN);
        let columns = self.paper.columns_max.saturating_sub(CODE_INDENT.len());
        let mut lines = Vec::new();
        if !language.is_empty() {
            lines.push(Line::new(CODE_INDENT, Ink::PLAIN).and(&language, Ink::DIM));
        }
        for line in text.lines() {
            let ink = if is_diff { diff_ink(line) } else { Ink::PLAIN };
            lines.extend(indented(&Line::new(line, ink).chop(columns), &indent, &indent));
        }
        if self.depth == 1 && lines_before == 0 && matches!(kind, CodeBlockKind::Fenced(_)) {
            self.ready = lines.len();
        }
        lines
    }

    fn list(&mut self, first: Option<u64>, columns: usize, lines_before: usize) -> Vec<Line> {
        let is_top = self.depth == 1 && lines_before == 0;
        let mut lines: Vec<Line> = Vec::new();
        let mut number = first;
        while let Some((event, range)) = self.events.next() {
            if matches!(event, Event::End(TagEnd::List(_))) {
                break;
            }
            if !matches!(event, Event::Start(Tag::Item)) {
                continue;
            }
            // Whether items stand apart is decided between two of them, not by the whole list, which has not come yet.
            let before = self.source.get(..range.start).unwrap_or_default().trim_end_matches([' ', '\t', '>']);
            if !lines.is_empty() && before.ends_with("\n\n") {
                lines.push(Line::default());
            }
            if is_top {
                self.ready = lines.len();
            }
            let glyphs = self.paper.glyphs;
            let mark = number.map_or_else(|| format!("{} ", glyphs.bullet), |number| format!("{number}. "));
            let outer = self.task.take();
            let body = self.container(columns.saturating_sub(width(&mark)), false);
            let mark = match std::mem::replace(&mut self.task, outer) {
                Some(true) => format!("{} ", glyphs.checked),
                Some(false) => format!("{} ", glyphs.unchecked),
                None => mark,
            };
            let body = if body.is_empty() { vec![Line::default()] } else { body };
            let (mark, rest) = (Line::new(&mark, Ink::DIM), Line::new(&" ".repeat(width(&mark)), Ink::PLAIN));
            lines.extend(indented(&body, &mark, &rest));
            number = number.map(|number| number.saturating_add(1));
        }
        lines
    }

    /// The cells of a table's rows, its head first.
    fn rows(&mut self) -> Vec<Vec<Line>> {
        let mut rows = Vec::new();
        while let Some((event, _)) = self.events.next() {
            match event {
                Event::End(TagEnd::Table) => break,
                Event::Start(Tag::TableHead | Tag::TableRow) => rows.push(Vec::new()),
                Event::Start(Tag::TableCell) => {
                    let is_head = rows.len() == 1;
                    self.inks.push(if is_head { Ink::BOLD } else { Ink::PLAIN });
                    let cell = self.inline().into_iter().next().unwrap_or_default();
                    self.inks.pop();
                    self.events.next();
                    if let Some(row) = rows.last_mut() {
                        row.push(cell);
                    }
                }
                _ => {}
            }
        }
        rows
    }

    /// HTML, as it is written: it is for another reader.
    fn raw(&mut self) -> Vec<Line> {
        let text = self.raw_text();
        let columns = self.paper.columns_max;
        text.lines().flat_map(|line| Line::new(line, Ink::DIM).chop(columns)).collect()
    }

    /// The text up to the end of the block.
    fn raw_text(&mut self) -> String {
        let mut text = String::new();
        for (event, _) in self.events.by_ref() {
            match event {
                Event::End(_) => break,
                Event::Text(piece) | Event::Html(piece) => text.push_str(&piece),
                _ => {}
            }
        }
        text
    }

    /// Text up to the next block or the end of this one, which is left there. A line for each break that was asked for.
    fn inline(&mut self) -> Vec<Line> {
        let mut text = Inline { lines: vec![Line::default()], written: String::new(), links: Vec::new() };
        loop {
            match self.events.peek() {
                None | Some((Event::Rule, _)) => return text.lines,
                Some((Event::Start(tag), _)) if is_block(tag) => return text.lines,
                Some((Event::End(tag), _)) if !is_inline_end(*tag) => return text.lines,
                Some(_) => {}
            }
            let Some((event, _)) = self.events.next() else { return text.lines };
            let ink = self.inks.last().copied().unwrap_or_default();
            match event {
                Event::Text(piece) => text.push(&piece, ink),
                Event::Code(piece) if self.paper.has_colours => text.push(&piece, ink.colour(Colour::Cyan)),
                Event::Code(piece) => text.push(&format!("`{piece}`"), ink),
                Event::InlineHtml(piece) | Event::Html(piece) => text.push(&piece, ink.dim()),
                Event::SoftBreak => text.push(" ", ink),
                Event::HardBreak => text.lines.push(Line::default()),
                Event::TaskListMarker(is_done) => self.task = Some(is_done),
                Event::Start(tag) => self.inks.push(text.begin(tag, ink)),
                Event::End(tag) => {
                    self.inks.pop();
                    text.end(tag);
                }
                _ => {}
            }
        }
    }
}

/// Text that is being written, and the links that are open in it: where each began, and where it leads.
struct Inline {
    lines: Vec<Line>,
    written: String,
    links: Vec<(usize, String)>,
}

impl Inline {
    fn push(&mut self, text: &str, ink: Ink) {
        self.written.push_str(text);
        if let Some(line) = self.lines.last_mut() {
            line.push(text, ink);
        }
    }

    /// How the text looks after the tag.
    fn begin(&mut self, tag: Tag<'_>, ink: Ink) -> Ink {
        match tag {
            Tag::Emphasis => ink.italic(),
            Tag::Strong => ink.bold(),
            Tag::Strikethrough => ink.struck(),
            Tag::Link { dest_url, .. } => {
                self.links.push((self.written.len(), dest_url.into_string()));
                ink.underline()
            }
            Tag::Image { dest_url, .. } => {
                self.push("[image] ", ink.dim());
                self.links.push((self.written.len(), dest_url.into_string()));
                ink.italic()
            }
            _ => ink,
        }
    }

    /// A link tells where it leads, if its words do not.
    fn end(&mut self, tag: TagEnd) {
        if !matches!(tag, TagEnd::Link | TagEnd::Image) {
            return;
        }
        let Some((start, address)) = self.links.pop() else { return };
        let is_told = self.written.get(start..).is_some_and(|text| is_same(text, &address));
        if !is_told && !address.is_empty() {
            self.push(&format!(" ({address})"), Ink::DIM);
        }
    }
}

/// Whether the words of a link are its address.
fn is_same(text: &str, address: &str) -> bool {
    text == address || address.strip_prefix("mailto:") == Some(text)
}

fn is_inline_end(tag: TagEnd) -> bool {
    matches!(
        tag,
        TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::Link
            | TagEnd::Image
    )
}

fn diff_ink(line: &str) -> Ink {
    match line.as_bytes().first() {
        Some(b'+') => Ink::PLAIN.colour(Colour::Green),
        Some(b'-') => Ink::PLAIN.colour(Colour::Red),
        Some(b'@') => Ink::PLAIN.colour(Colour::Cyan),
        _ => Ink::PLAIN,
    }
}
