//! The pages of the documentation, parsed as Markdown the way GitHub parses them.

#![allow(dead_code, clippy::unwrap_used, reason = "every test file uses a part of it, and a test fails by panicking")]

use std::fs;
use std::ops::Range;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Pages beside docs/*.md. A project may not have all of them yet.
const TOP_PAGES: [&str; 4] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

/// The section of README.md that tests/tour.rs types.
pub const QUICK_START: &str = "Quick start";

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page, by its path in the repository.
pub struct Page {
    pub name: String,
    pub text: String,
}

/// A block of code.
#[derive(Debug)]
pub struct Block {
    pub language: String,
    pub text: String,
    /// The line of the page that its first line stands on, counted from 1.
    pub line: usize,
    /// The heading (`##`) that it stands under.
    pub section: String,
    /// The text of an HTML comment directly before it.
    pub comment: Option<String>,
}

/// Every page, README.md first.
pub fn pages() -> Vec<Page> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut docs: Vec<String> = docs.map(|name| format!("docs/{}", name.to_str().unwrap())).collect();
    docs.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
    docs.sort();
    let top = TOP_PAGES.map(str::to_owned).into_iter().filter(|name| root().join(name).exists());
    top.chain(docs).map(|name| Page::read(&name)).collect()
}

impl Page {
    pub fn read(name: &str) -> Self {
        Self { name: name.to_owned(), text: fs::read_to_string(root().join(name)).unwrap() }
    }

    /// What the parser finds, and where.
    pub fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter()
    }

    /// The number of the line, from 1, that a byte of the page is in.
    pub fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    /// The number of the last line of a range that is not blank.
    pub fn last_line_of(&self, range: &Range<usize>) -> usize {
        self.line_of(range.start) + self.text[range.clone()].trim_end().matches('\n').count()
    }

    /// The blocks of code that have a language, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut section, mut comment) = (String::new(), None);
        let (mut is_heading, mut is_code) = (false, false);
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => {
                    is_heading = true;
                    section.clear();
                }
                Event::End(TagEnd::Heading(_)) => is_heading = false,
                Event::Text(text) | Event::Code(text) if is_heading => section.push_str(&text),
                Event::Start(Tag::HtmlBlock) => {
                    let html = self.text[range].trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
                    comment = html.map(|text| text.trim().to_owned());
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    is_code = true;
                    let line = self.line_of(range.start) + 1;
                    let (section, comment) = (section.clone(), comment.take());
                    blocks.push(Block { language: language.to_string(), text: String::new(), line, section, comment });
                }
                Event::End(TagEnd::CodeBlock) => is_code = false,
                Event::Text(text) if is_code => blocks.last_mut().unwrap().text.push_str(&text),
                Event::Start(_) => comment = None,
                _ => {}
            }
        }
        blocks
    }
}
