//! Text that others wrote, put into a Markdown document so that nothing of it acts on what follows: no HTML, no fence that
//! is left open, no heading as high as the document's own. It stays Markdown, as it was meant.
//!
//! What comes out is looked at once more by the same parser, and what would still act on its surroundings is shown as it is
//! written, in a fence.

use std::fmt::Write;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

use crate::model::peer::is_invisible;

/// The highest heading that a text may have. The document's own are above it.
const HEADING_MIN: usize = 4;
const HEADING_MAX: usize = 6;
/// To escape something can show more to escape. Nobody's text needs more rounds than this.
const ROUNDS_MAX: usize = 4;
/// Fewer backticks make no fence.
const FENCE_MIN: usize = 3;
const TAB_COLUMNS: usize = 4;
/// What follows a text, when it is tried.
const SENTINEL: &str = "sentinel";

/// As Markdown that ends where it ends. Without a line end.
pub fn markdown(text: &str) -> String {
    let text = lines(text);
    let contained = without_html(text.trim_end()).map(|text| without_tabs(&closed(&lowered(&text))));
    let holds = |text: &String| is_contained(text) && (text.is_empty() || is_contained(&quoted(text)));
    contained.filter(holds).unwrap_or_else(|| fenced("", &text))
}

/// Every line behind a mark, so that it is one quotation whatever it says.
pub fn quoted(markdown: &str) -> String {
    let mut quoted = String::with_capacity(markdown.len() + 64);
    for line in markdown.lines() {
        quoted.push_str(if line.is_empty() { ">" } else { "> " });
        quoted.push_str(line);
        quoted.push('\n');
    }
    quoted
}

/// As it is written, in a fence that is longer than any in it. Without a line end.
pub fn fenced(language: &str, text: &str) -> String {
    let text = lines(text);
    let mut run = 0;
    let longest = text.chars().fold(0, |longest, character| {
        run = if character == '`' { run + 1 } else { 0 };
        longest.max(run)
    });
    let fence = "`".repeat(FENCE_MIN.max(longest + 1));
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// On one line, with everything escaped that means something in Markdown.
pub fn inline(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        if "\\`*_{}[]<>#|~&$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// On one line, as text of an HTML element.
pub fn html(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A link to what somebody named.
pub fn link(name: &str, uri: &str) -> String {
    let mut address = String::with_capacity(uri.len());
    for character in one_line(uri).chars() {
        // What would end it, and what is no address anyway.
        if "<>()[]\\ |`*_\"".contains(character) {
            let _ = write!(address, "%{:02X}", u32::from(character));
        } else {
            address.push(character);
        }
    }
    format!("[{}]({address})", inline(name))
}

/// Lines end in one way, and nothing in them acts on a terminal or turns what is around it.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{85}', '\u{2028}', '\u{2029}'], "\n");
    text.chars().filter(|&character| matches!(character, '\n' | '\t') || !is_invisible(character)).collect()
}

fn one_line(text: &str) -> String {
    let text = lines(text).replace(['\n', '\t'], " ");
    text.trim().to_owned()
}

fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, options).into_offset_iter()
}

/// The text with every `<` written as what it stands for, but those in code and around addresses.
fn without_html(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    for _ in 0..ROUNDS_MAX {
        let plain = escaped_once(&text);
        if plain == text {
            return Some(text);
        }
        text = plain;
    }
    None
}

fn escaped_once(text: &str) -> String {
    let is_kept = |event: &Event<'_>| match event {
        Event::Code(_) | Event::Start(Tag::CodeBlock(_)) => true,
        Event::Start(Tag::Link { link_type, .. }) => matches!(link_type, LinkType::Autolink | LinkType::Email),
        _ => false,
    };
    let kept = events(text).filter(|(event, _)| is_kept(event)).map(|(_, range)| range);
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut done = 0;
    for range in kept {
        // Those in a list of code are in order; one within another would be passed over.
        if range.start >= done {
            escape(&text[done..range.start], &mut escaped);
            escaped.push_str(&text[range.clone()]);
            done = range.end;
        }
    }
    escape(&text[done..], &mut escaped);
    escaped
}

fn escape(text: &str, escaped: &mut String) {
    let mut backslashes = 0;
    for character in text.chars() {
        // One that is escaped already stays so.
        if character == '<' && backslashes % 2 == 0 {
            escaped.push_str("&lt;");
        } else {
            escaped.push(character);
        }
        backslashes = if character == '\\' { backslashes + 1 } else { 0 };
    }
}

/// With its headings below the document's own.
fn lowered(text: &str) -> String {
    let mut lowered = String::with_capacity(text.len() + 16);
    let (mut done, mut depth) = (0, 0_usize);
    for (event, range) in events(text) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                let source = &text[range.clone()];
                if source.starts_with('#') {
                    lowered.push_str(&text[done..range.start]);
                    lowered.push_str(&"#".repeat(below(level) - level as usize));
                    done = range.start;
                } else if depth == 0 {
                    // It is underlined, and there are only two kinds of lines.
                    let (title, _) = source.trim_end().rsplit_once('\n').unwrap_or((source, ""));
                    lowered.push_str(&text[done..range.start]);
                    let words = title.lines().map(str::trim).collect::<Vec<_>>().join(" ");
                    let _ = writeln!(lowered, "{} {words}", "#".repeat(below(level)));
                    done = range.end;
                }
            }
            Event::Start(Tag::BlockQuote(_) | Tag::List(_) | Tag::Item) => depth += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    lowered + &text[done..]
}

fn below(level: HeadingLevel) -> usize {
    (level as usize + HEADING_MIN - 1).min(HEADING_MAX)
}

/// With the fence closed that it leaves open, if it does.
fn closed(text: &str) -> String {
    let probe = format!("{text}\n\n{SENTINEL}");
    let open = events(&probe).find_map(|(event, range)| match event {
        Event::Start(Tag::CodeBlock(_)) if range.end == probe.len() => Some(range.start),
        _ => None,
    });
    let Some(start) = open else { return text.trim_end().to_owned() };
    let mark = if text[start.min(text.len())..].starts_with('~') { '~' } else { '`' };
    let length = text[start.min(text.len())..].chars().take_while(|character| *character == mark).count();
    format!("{text}\n{}", mark.to_string().repeat(length))
}

/// With spaces in the place of tabs, but in fences: behind the mark of a quotation a tab would be narrower, and what is code
/// by being indented would be none.
fn without_tabs(text: &str) -> String {
    let mut depth = 0_usize;
    let mut fences = Vec::new();
    for (event, range) in events(text) {
        match event {
            Event::Start(tag) => {
                if depth == 0 && matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_))) {
                    fences.push(range);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let (mut spaced, mut column) = (String::with_capacity(text.len() + 16), 0);
    let mut fences = fences.into_iter().peekable();
    for (at, character) in text.char_indices() {
        while fences.next_if(|fence| fence.end <= at).is_some() {}
        if character == '\t' && fences.peek().is_none_or(|fence| at < fence.start) {
            let width = TAB_COLUMNS - column % TAB_COLUMNS;
            spaced.push_str(&" ".repeat(width));
            column += width;
        } else {
            spaced.push(character);
            column = if character == '\n' { 0 } else { column + 1 };
        }
    }
    spaced
}

/// Whether what follows it is what it would be without it.
fn is_contained(text: &str) -> bool {
    let probe = format!("{text}\n\n{SENTINEL}");
    let start = probe.len() - SENTINEL.len();
    let mut depth = 0_usize;
    let mut is_apart = false;
    for (event, range) in events(&probe) {
        match event {
            Event::Html(_) | Event::InlineHtml(_) | Event::Start(Tag::HtmlBlock) => return false,
            Event::Start(tag) => {
                is_apart = is_apart || (depth == 0 && range.start == start && tag == Tag::Paragraph);
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    is_apart
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_meant_as_markdown_stays_so() {
        for text in [
            "Plain words.",
            "A *list*:\n\n- one\n- [x] two\n\n1. three",
            "```rust\nlet a: Vec<u8> = \"</details>\";\n```",
            "`Vec<u8>` and <https://example.com>",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "\\<div>",
        ] {
            assert_eq!(markdown(text), text);
        }
    }

    #[test]
    fn what_would_act_on_the_rest_does_not() {
        for (text, contained) in [
            ("<details><summary>x", "&lt;details>&lt;summary>x"),
            ("<!-- a comment", "&lt;!-- a comment"),
            ("a < b and Vec<u8>", "a &lt; b and Vec&lt;u8>"),
            ("```sh\nls", "```sh\nls\n```"),
            ("~~~~\nls\n```", "~~~~\nls\n```\n~~~~"),
            ("# One\n## Two\n###### Six", "#### One\n##### Two\n###### Six"),
            ("Title\n=====\ntext", "#### Title\ntext"),
            ("two\nlines\n---", "##### two lines"),
            ("> # quoted", "> #### quoted"),
            ("<div>\n```\n</div>", "&lt;div>\n```\n&lt;/div>\n```"),
            ("\tcode\n\n```\n\tmake\n```", "    code\n\n```\n\tmake\n```"),
            ("a\r\nb\rc\u{85}d\u{1b}[2J\u{202e}", "a\nb\nc\nd[2J"),
            ("", ""),
        ] {
            assert_eq!(markdown(text), contained, "{text:?}");
        }
    }

    #[test]
    fn a_fence_is_longer_than_any_in_it() {
        assert_eq!(fenced("text", "a\n````\nb\n\n"), "`````text\na\n````\nb\n`````");
        assert_eq!(fenced("", ""), "```\n\n```");
    }

    #[test]
    fn names_are_text_and_addresses_stay_addresses() {
        assert_eq!(inline("a*b*\n<i> | [x](y)"), "a\\*b\\* \\<i\\> \\| \\[x\\](y)");
        assert_eq!(html("<b>&\n"), "&lt;b&gt;&amp;");
        assert_eq!(link("a]b", "file:///a b)<c"), "[a\\]b](file:///a%20b%29%3Cc)");
    }

    proptest! {
        #[test]
        fn nothing_gets_out(parts in prop::collection::vec(
            "(\\n|\\r\\n| {1,5}|\\t|<details>|</details>|<!--|-->|<div|>|<\\?|<!\\[CDATA\\[|`{1,4}|~{3,4}|#{1,3} |=+|-{2,4}|[-*+] |1\\. |> |\\||\\[x\\]: |\\[a\\]\\(|\\)|\\\\|&lt;|<script>|\\PC){1,3}",
            0..24,
        )) {
            let text = parts.concat();
            let contained = markdown(&text);
            prop_assert!(is_contained(&contained), "{:?}", contained);
            let mut depth = 0;
            for (event, _) in events(&contained) {
                match event {
                    Event::Start(tag) => {
                        let is_high = matches!(&tag, Tag::Heading { level, .. } if (*level as usize) < HEADING_MIN);
                        prop_assert!(depth > 0 || !is_high, "{:?}", contained);
                        depth += 1;
                    }
                    Event::End(_) => depth -= 1,
                    _ => {}
                }
            }
            let quotation = quoted(&contained);
            prop_assert!(is_contained(&quotation), "{:?}", quotation);
        }

        #[test]
        fn a_fence_holds_whatever_is_in_it(text in "(`{1,5}|\\n|~~~|[a-z<>]| ){0,40}") {
            let fence = fenced("x", &text);
            prop_assert!(is_contained(&fence));
            let blocks = events(&fence).filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_)))).count();
            prop_assert_eq!(blocks, 1);
        }
    }
}
