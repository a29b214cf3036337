//! Plain words in every text that a person reads: the manual (which has the help of all commands), the string literals of
//! the program, and the descriptions of the API. docs/concepts.md has the glossary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pronouns without a noun, and passives without an actor. Name the thing instead.
const BANNED: [&str; 7] = ["whoever", "whatever", "somebody", "nobody", "is told", "are told", "what there is"];

/// The banned words in a text, as whole words and also across line breaks.
fn banned(text: &str) -> Vec<&'static str> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let flat = format!(" {} ", words.map(str::to_lowercase).collect::<Vec<_>>().join(" "));
    BANNED.into_iter().filter(|phrase| flat.contains(&format!(" {phrase} "))).collect()
}

fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "write these in plain words:\n{}", problems.join("\n"));
}

#[test]
fn the_manual_has_plain_words() {
    let directory = tempfile::tempdir().unwrap();
    let mut acpd = Command::new(env!("CARGO_BIN_EXE_acpd"));
    assert!(acpd.args(["man", "--out"]).arg(directory.path()).output().unwrap().status.success());
    let mut problems = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        count += 1;
        for phrase in banned(&fs::read_to_string(&path).unwrap()) {
            problems.push(format!("{}: {phrase}", path.file_name().unwrap().display()));
        }
    }
    assert!(count > 30, "only {count} pages were found");
    complain(&problems);
}

#[test]
fn the_api_is_described_in_plain_words() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let text = fs::read_to_string(file).unwrap();
    let problems = (1..).zip(text.lines()).flat_map(|(line, text)| {
        banned(text).into_iter().map(move |phrase| format!("docs/openapi.json:{line}: {phrase}"))
    });
    complain(&problems.collect::<Vec<_>>());
}

#[test]
fn string_literals_have_plain_words() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut test_files) = (Vec::new(), BTreeSet::new());
    collect(&src, &mut files);
    let scanned: Vec<(PathBuf, Vec<Piece>)> = files
        .into_iter()
        .map(|path| {
            let mut pieces = scan(&fs::read_to_string(&path).unwrap());
            test_files.extend(without_tests(&mut pieces).iter().map(|name| module_file(&path, name)));
            (path, pieces)
        })
        .collect();
    let (mut problems, mut count) = (Vec::new(), 0);
    for (path, pieces) in &scanned {
        let relative = path.strip_prefix(&src).unwrap();
        if test_files.contains(path) {
            continue;
        }
        for piece in pieces {
            let Piece::Literal { line, text } = piece else { continue };
            count += 1;
            let place = || format!("src/{}:{line}", relative.display());
            problems.extend(banned(text).iter().map(|phrase| format!("{}: {phrase}", place())));
            if text.split([' ', '(', '`']).any(|word| word.starts_with("docs/")) {
                problems.push(format!("{}: an installed acpd has no docs/", place()));
            }
        }
    }
    assert!(count > 1000, "only {count} literals were found");
    complain(&problems);
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Where `mod name;` in the file at `path` is found.
fn module_file(path: &Path, name: &str) -> PathBuf {
    let directory = match path.file_stem().unwrap().to_str().unwrap() {
        "mod" | "main" => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    directory.join(format!("{name}.rs"))
}

/// A piece of Rust source. Comments and characters in quotes are left out.
#[derive(Debug, PartialEq)]
enum Piece {
    Code(char),
    Literal { line: usize, text: String },
}

fn scan(source: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let line = || source[..source.len() - rest.len()].matches('\n').count() + 1;
        let is_word_inside = matches!(pieces.last(), Some(Piece::Code(c)) if c.is_alphanumeric() || *c == '_');
        let raw = if is_word_inside { None } else { raw_string(rest) };
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some((begin, end, length)) = raw {
            pieces.push(Piece::Literal { line: line(), text: rest[begin..end].to_owned() });
            length
        } else if first == '"' {
            let (text, length) = string(rest);
            pieces.push(Piece::Literal { line: line(), text });
            length
        } else if let Some(length) = (first == '\'').then(|| character(rest)).flatten() {
            length
        } else {
            pieces.push(Piece::Code(first));
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    pieces
}

/// The length of the comment that `text` begins with. Comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match text.get(at..) {
            Some(rest) if rest.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            Some(rest) if rest.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            Some(rest) if !rest.is_empty() => at += rest.chars().next().unwrap().len_utf8(),
            _ => return text.len(),
        }
        if depth == 0 {
            return at;
        }
    }
}

/// Where the text of the raw string begins and ends that `text` begins with, and how long all of it is.
fn raw_string(text: &str) -> Option<(usize, usize, usize)> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let hashes = text[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let begin = prefix.len() + hashes + 1;
    text[prefix.len() + hashes..].starts_with('"').then_some(())?;
    let quote = format!("\"{}", "#".repeat(hashes));
    let end = begin + text[begin..].find(&quote)?;
    Some((begin, end, end + quote.len()))
}

/// The text of the string that `text` begins with, and its length in the source.
fn string(text: &str) -> (String, usize) {
    let mut said = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (said, at + 1),
            // An escaped character, or the end of a line that goes on: no letter of a word.
            '\\' => {
                characters.next();
                said.push(' ');
            }
            _ => said.push(character),
        }
    }
    panic!("a string does not end: {text:.80}");
}

/// The length of the character in quotes that `text` begins with; nothing for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut inside = text[1..].char_indices();
    let (_, first) = inside.next()?;
    let after = if first == '\\' { inside.nth(1)?.0 } else { inside.next()?.0 };
    let end = 1 + after + if first == '\\' { text[1 + after..].find('\'')? } else { 0 };
    text[end..].starts_with('\'').then_some(end + 1)
}

/// Takes out what only tests and the compiler read: items with `#[cfg(test)]`, and the reasons of lints. Returns the names of
/// the test modules that are files of their own.
fn without_tests(pieces: &mut Vec<Piece>) -> Vec<String> {
    let mut modules = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        if is_code(&pieces[at..], "#[cfg(test)]") {
            let end = item_end(pieces, at + "#[cfg(test)]".len());
            let code: String = pieces[at..end].iter().filter_map(code_of).collect();
            let module = code.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'));
            modules.extend(module.map(str::to_owned));
            pieces.drain(at..end);
        } else if ["#[expect(", "#[allow(", "#![allow(", "#![expect("].iter().any(|lint| is_code(&pieces[at..], lint)) {
            let end = pieces[at..].iter().position(|piece| *piece == Piece::Code(']')).unwrap();
            pieces.drain(at..=at + end);
        } else {
            at += 1;
        }
    }
    modules
}

fn code_of(piece: &Piece) -> Option<char> {
    match piece {
        Piece::Code(character) => Some(*character),
        Piece::Literal { .. } => None,
    }
}

fn is_code(pieces: &[Piece], code: &str) -> bool {
    pieces.len() >= code.len() && pieces.iter().zip(code.chars()).all(|(piece, c)| *piece == Piece::Code(c))
}

/// Where the item ends that begins at `from`: behind its block, or its semicolon.
fn item_end(pieces: &[Piece], from: usize) -> usize {
    let mut depth = 0;
    for (index, piece) in pieces.iter().enumerate().skip(from) {
        match piece {
            Piece::Code('{' | '(' | '[') => depth += 1,
            Piece::Code(')' | ']') => depth -= 1,
            Piece::Code('}') if depth == 1 => return index + 1,
            Piece::Code('}') => depth -= 1,
            Piece::Code(';') if depth == 0 => return index + 1,
            _ => {}
        }
    }
    pieces.len()
}

#[test]
fn literals_are_found_in_rust() {
    let source = r##"
        // "no comment" /* and none here
        /* "nor /* a nested" */ one */
        fn f<'a>(x: &'a str) -> char { let q = '"'; let b = '\''; let u = '\u{1F600}'; 'x' }
        const A: &str = "an \"escaped\" text \
            that goes on";
        const B: &str = r#"a "raw" text"#; let bytes = b"bytes"; let var = for_r"x";
        #[expect(clippy::panic, reason = "a reason")]
        #[cfg(test)]
        mod tests { const T: &str = "tests"; }
        #[cfg(test)]
        mod elsewhere;
        const C: &str = "last";
    "##;
    let mut pieces = scan(source);
    assert_eq!(without_tests(&mut pieces), ["elsewhere"]);
    let literals: Vec<(usize, String)> = pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Literal { line, text } => Some((line, text.split_whitespace().collect::<Vec<_>>().join(" "))),
            Piece::Code(_) => None,
        })
        .collect();
    let expected = [(5, "an escaped text that goes on"), (7, "a \"raw\" text"), (7, "bytes"), (7, "x"), (13, "last")];
    assert_eq!(literals, expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn banned_words_are_found_whole() {
    assert_eq!(banned("Whoever asks is\n told: what  there is."), ["whoever", "is told", "what there is"]);
    assert_eq!(banned("a nobodyish history told"), [""; 0]);
}
