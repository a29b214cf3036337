//! The documents as a book: every page is in the table of contents, every link leads somewhere, and the keys of the
//! configuration are those of config.toml. With `ACPD_UPDATE_BOOK=1` the keys are written anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- keys: written by `ACPD_UPDATE_BOOK=1 cargo test --test book` from config.toml -->\n";
const END: &str = "<!-- end of keys -->\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut pages: Vec<PathBuf> = docs.chain([root().join("README.md"), root().join("CHANGELOG.md")]).collect();
    pages.sort();
    pages
}

/// The text without what stands in blocks of code, where brackets mean something else.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// What the links and pictures of a page lead to, within the repository.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = prose(&fs::read_to_string(&page).unwrap());
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = target.exists()
                && (anchor.is_empty()
                    || anchors(&prose(&fs::read_to_string(&target).unwrap())).contains(&anchor.to_owned()));
            if !is_there {
                problems.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(problems.is_empty(), "links that lead nowhere:\n{}", problems.join("\n"));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let listed = links(&contents);
    for page in pages().into_iter().filter(|page| page.parent().unwrap().ends_with("docs")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || listed.iter().any(|link| link == name), "docs/README.md does not list {name}");
    }
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
