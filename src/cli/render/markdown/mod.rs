//! Markdown that is rendered while it comes.
//!
//! A block is finished when the next one has begun in a line that is whole: Markdown's blocks are decided line by line, so
//! nothing that follows can change it any more. Of the block that still grows, the lines of a code block and the items of a
//! list before the last are finished as well. Every block is rendered for itself, so that what is finished at the end is
//! the same in however many pieces the text came. Links find no address that is defined elsewhere, for the same reason.

mod block;
mod table;

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::super::text::clean;
use super::ink::Line;

pub use self::block::Paper;

/// Prose in longer lines than these is hard to read.
const PROSE_COLUMNS_MAX: usize = 100;
/// Stands in `]:`, so that nothing is taken for the definition of a link's address: one would change blocks that are
/// finished, and is not shown. It is cleaned away when lines are made, as the agent's own are when they come.
const NOTHING: char = '\u{2060}';

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// A text in Markdown, as far as it has come.
pub struct Markdown {
    paper: Paper,
    /// From the beginning of the block that grows.
    source: String,
    /// The lines of that block that were handed out.
    handed_out: usize,
    is_first: bool,
    /// Whether there is more than when it was last looked at.
    is_news: bool,
}

impl Markdown {
    pub fn new(paper: Paper) -> Self {
        Self { paper, source: String::new(), handed_out: 0, is_first: true, is_news: false }
    }

    pub fn push(&mut self, text: &str) {
        for character in clean(text).chars() {
            if character == ':' && self.source.ends_with(']') {
                self.source.push(NOTHING);
            }
            self.source.push(character);
        }
        self.is_news = true;
    }

    /// The lines that cannot change any more, each once. The width is taken up where a block begins.
    pub fn finished(&mut self, columns: usize) -> Vec<Line> {
        if self.handed_out == 0 {
            self.paper.resize(columns.min(PROSE_COLUMNS_MAX), columns);
        }
        if !std::mem::take(&mut self.is_news) {
            return Vec::new();
        }
        let whole_lines = self.source.rfind('\n').map_or(0, |index| index + 1);
        self.advance(whole_lines, false)
    }

    /// All lines that are left.
    pub fn end(&mut self, columns: usize) -> Vec<Line> {
        if self.handed_out == 0 {
            self.paper.resize(columns.min(PROSE_COLUMNS_MAX), columns);
        }
        self.is_news = false;
        let lines = self.advance(self.source.len(), true);
        self.source.clear();
        lines
    }

    /// The block that grows, without what was handed out of it.
    pub fn growing(&self) -> Vec<Line> {
        let rendered = self.paper.block(&self.source);
        let gap = (!self.is_first && self.handed_out == 0 && !rendered.lines.is_empty()).then(Line::default);
        gap.into_iter().chain(rendered.lines.into_iter().skip(self.handed_out)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.source.trim().is_empty()
    }

    fn advance(&mut self, end: usize, is_end: bool) -> Vec<Line> {
        let blocks = blocks(&self.source[..end]);
        let mut lines = Vec::new();
        let mut consumed = 0;
        for (index, block) in blocks.iter().enumerate() {
            let is_last = index + 1 == blocks.len();
            let rendered = self.paper.block(&self.source[block.clone()]);
            let ready = if is_last && !is_end { rendered.ready } else { rendered.lines.len() };
            if self.handed_out == 0 && ready > 0 && !std::mem::take(&mut self.is_first) {
                lines.push(Line::default());
            }
            lines.extend(rendered.lines.into_iter().take(ready).skip(self.handed_out));
            if is_last {
                self.handed_out = ready.max(self.handed_out);
            } else {
                self.handed_out = 0;
                consumed = block.end;
            }
        }
        self.source.drain(..consumed);
        lines
    }
}

/// The blocks at the top of a text: each from the beginning of its first line to the next one's.
fn blocks(source: &str) -> Vec<Range<usize>> {
    let mut depth = 0_usize;
    let mut starts = Vec::new();
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        let is_block = matches!(event, Event::Start(_) | Event::Rule) && depth == 0;
        if is_block {
            // The indentation belongs to it, and what stands before the first one is nobody else's.
            let line = source[..range.start].rfind('\n').map_or(0, |index| index + 1);
            starts.push(if starts.is_empty() { 0 } else { line });
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    starts.dedup();
    let ends = starts.iter().copied().skip(1).chain([source.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// Whether the tag begins a block, and not a part of a line.
fn is_block(tag: &Tag<'_>) -> bool {
    !matches!(
        tag,
        Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Superscript
            | Tag::Subscript
            | Tag::Link { .. }
            | Tag::Image { .. }
    )
}

#[cfg(test)]
mod tests;
