//! The pages of the documentation: every page is in the table of contents, every link leads somewhere, Markdown renders
//! as what it looks like, docs/configuration.md has the keys of config.toml (`ACPD_UPDATE_BOOK=1` writes them), and
//! docs/specifications.md names only what exists in acpd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;
mod specifications;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use documents::{Page, pages, root};
use pulldown_cmark::{Event, Tag, TagEnd};

const BEGIN: &str = "<!-- keys: written by `ACPD_UPDATE_BOOK=1 cargo test --test book` from config.toml -->\n";
const END: &str = "<!-- end of keys -->\n";

/// The targets of a page's links and pictures that are in the repository.
fn links(page: &Page) -> Vec<String> {
    let targets = page.events().filter_map(|(event, _)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    });
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Page) -> Vec<String> {
    let (mut anchors, mut is_heading) = (Vec::new(), false);
    for (event, _) in page.events() {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                is_heading = true;
                anchors.push(String::new());
            }
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            Event::Text(text) | Event::Code(text) if is_heading => {
                let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                let kept = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c });
                anchors.last_mut().unwrap().extend(kept);
            }
            _ => {}
        }
    }
    anchors
}

#[test]
fn every_link_leads_somewhere() {
    let mut problems = Vec::new();
    for page in pages() {
        let folder = Path::new(&page.name).parent().unwrap();
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { PathBuf::from(&page.name) } else { folder.join(file) };
            let has_anchor = || anchors(&Page::read(target.to_str().unwrap())).iter().any(|known| known == anchor);
            if !root().join(&target).exists() || !(anchor.is_empty() || has_anchor()) {
                problems.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(problems.is_empty(), "links that lead nowhere:\n{}", problems.join("\n"));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let listed = links(&Page::read("docs/README.md"));
    for page in pages() {
        let Some(name) = page.name.strip_prefix("docs/") else { continue };
        assert!(name == "README.md" || listed.iter().any(|link| link == name), "docs/README.md does not list {name}");
    }
}

/// What a line looks like to a person who reads the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Item,
    Row,
    Heading,
    /// A line that is bold and nothing else, which announces what follows.
    Lead,
}

fn looks_like(line: &str) -> Option<Kind> {
    let line = line.trim_start();
    let after_number = line.trim_start_matches(|character: char| character.is_ascii_digit());
    let is_numbered =
        after_number.len() < line.len() && (after_number.starts_with(". ") || after_number.starts_with(") "));
    if is_numbered || ["- ", "* ", "+ "].iter().any(|bullet| line.starts_with(bullet)) {
        Some(Kind::Item)
    } else if line.starts_with('|') {
        Some(Kind::Row)
    } else if line.starts_with('#') {
        Some(Kind::Heading)
    } else if line.len() > 4 && line.starts_with("**") && line[2..].find("**") == Some(line.len() - 4) {
        Some(Kind::Lead)
    } else {
        None
    }
}

/// Lines that look like a list item, a row of a table, a heading or a lead, and that Markdown takes for something else;
/// and headings that do not look like one.
fn misread(page: &Page) -> Vec<String> {
    let mut parsed: BTreeSet<(usize, Kind)> = BTreeSet::new();
    let mut literal: BTreeSet<usize> = BTreeSet::new();
    for (event, range) in page.events() {
        let first = page.line_of(range.start);
        let lines = first..=page.last_line_of(&range);
        match event {
            Event::Start(Tag::Item) => drop(parsed.insert((first, Kind::Item))),
            Event::Start(Tag::Table(_)) => parsed.extend(lines.map(|line| (line, Kind::Row))),
            Event::Start(Tag::Heading { .. }) => drop(parsed.insert((first, Kind::Heading))),
            Event::Start(Tag::Paragraph) if *lines.end() == first => drop(parsed.insert((first, Kind::Lead))),
            Event::Start(Tag::CodeBlock(_) | Tag::HtmlBlock) => literal.extend(lines),
            _ => {}
        }
    }
    let lines = page.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let problems = lines.filter(|(number, _)| !literal.contains(number)).filter_map(|(number, line)| {
        let kind = looks_like(line);
        let is_heading = parsed.contains(&(number, Kind::Heading));
        let problem = match kind {
            Some(kind) if !parsed.contains(&(number, kind)) => format!("does not render as {kind:?}"),
            _ if is_heading && kind != Some(Kind::Heading) => "renders as a heading".to_owned(),
            _ => return None,
        };
        Some(format!("{}:{number}: {problem}: {line}", page.name))
    });
    problems.collect()
}

#[test]
fn markdown_is_what_it_looks_like() {
    let problems: Vec<String> = pages().iter().flat_map(misread).collect();
    assert!(problems.is_empty(), "Markdown that renders as something else:\n{}", problems.join("\n"));
}

#[test]
fn lines_that_render_as_something_else_are_found() {
    let found = |text: &str| {
        let problems = misread(&Page { name: "p".to_owned(), text: text.to_owned() });
        let numbers = problems.iter().map(|problem| problem.split(':').nth(1).unwrap().parse().unwrap());
        numbers.collect::<Vec<usize>>()
    };
    assert_eq!(
        found("# A\n\n**B**\n\n19. c\n20. d\n    - e\n\n| f | g |\n|---|---|\n| - h | i |\n\n```\n- j\n```\n"),
        Vec::<usize>::new()
    );
    assert_eq!(found("**To build**\n19. a\n20. b\n**To trust**\n21. c\n"), [1, 2, 3, 4, 5]);
    assert_eq!(found("1. a\n2. b\n**To trust**\n3. c\n"), [3]);
    assert_eq!(found("Text\n| a | b |\n\n#b\n\nc\n---\n"), [2, 4, 6]);
}

/// The keys of config.toml, as a page shows them: each section with its keys, and of each its default and its reason.
fn keys(config: &str) -> String {
    let mut text = String::new();
    let mut comment: Vec<String> = Vec::new();
    let mut lines = config.lines();
    while let Some(line) = lines.next() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let _ = write!(text, "\n### `[{section}]`\n\n");
            comment.clear();
        } else if let Some(rest) = line.strip_prefix('#') {
            let rest = rest.strip_prefix(' ').unwrap_or(rest);
            // What is set in is an example.
            comment.push(if rest.starts_with(' ') { format!("`{}`", rest.trim()) } else { rest.to_owned() });
        } else if let Some((key, value)) = line.split_once(" = ") {
            let mut value = value.to_owned();
            // A list may have a line for each of its parts.
            while value.matches('[').count() > value.matches(']').count() {
                let next = lines.next().unwrap().trim();
                value.push_str(if value.ends_with('[') || next == "]" { "" } else { " " });
                value.push_str(next);
            }
            let value = value.replace(",]", "]");
            let meaning = comment.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
            let meaning = if meaning.is_empty() { String::new() } else { format!("  \n  {meaning}") };
            let _ = writeln!(text, "- `{key} = {value}`{meaning}");
            comment.clear();
        } else {
            comment.clear();
        }
    }
    text.trim_start().to_owned()
}

#[test]
fn the_keys_in_the_book_are_those_of_the_configuration() {
    let path = root().join("docs/configuration.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/configuration.md has a place for the keys");
    let (written, after) = rest.split_once(END).expect("docs/configuration.md has an end of the keys");
    let keys = format!("\n{}\n", keys(&fs::read_to_string(root().join("config.toml")).unwrap()));
    if std::env::var_os("ACPD_UPDATE_BOOK").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{keys}{END}{after}")).unwrap();
        return;
    }
    assert!(written == keys, "docs/configuration.md is behind: `ACPD_UPDATE_BOOK=1 cargo test --test book`");
}

#[test]
fn a_key_is_shown_with_its_default_and_its_reason() {
    let config = "# Title.\n\n[a]\n# Why it is so:\n#   x = 2\nx = 1\ny = [\n    \"b\",\n    \"c\",\n]\n\n[b.c]\nz = { d = \"e\" }\n";
    let expected = "### `[a]`\n\n- `x = 1`  \n  Why it is so: `x = 2`\n- `y = [\"b\", \"c\"]`\n\n### `[b.c]`\n\n- `z = { d = \"e\" }`\n";
    assert_eq!(keys(config), expected);
}
