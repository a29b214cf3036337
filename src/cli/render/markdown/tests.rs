//! A document with everything in it, and: in whatever pieces a text comes, the same is on the screen in the end.

use proptest::prelude::*;

use super::super::super::style::Style;
use super::super::glyphs::Glyphs;
use super::*;

const EVERYTHING: &str = "\
# A heading with `code`

Prose with *emphasis*, **strong words**, ~~struck ones~~, `inline code` and a [link](https://example.com/page), which is \
long enough to be wrapped; <https://example.com> stands for itself.\nA soft break is a space,  \na hard one is not.

## Lists

- one
- two, which is so long that it goes on in a second line, that begins below its own first word
  - nested
    1. deeper
- [x] done
- [ ] to do

7. seven

   with a second paragraph
8. eight

> quoted, and
> > quoted twice

```rust
fn main() {
\tprintln!(\"hello\");
}
```

```diff
@@ -1 +1 @@
-old
+new
```

| Name | What it is | Count |
|------|:----------:|------:|
| `a`  | the first  |     1 |
| beta | a cell that has so much in it that it needs more than one line of the table |  22 |

![a picture](cat.png)

    indented code

---

<div>html</div>

The end: &lt;tag&gt; &amp; &#27;[31m.
";

fn rendered(pieces: &[&str], columns: usize) -> Vec<Line> {
    let mut markdown = Markdown::new(Paper::new(Glyphs::unicode(), true));
    let mut lines = Vec::new();
    for piece in pieces {
        markdown.push(piece);
        lines.extend(markdown.finished(columns));
    }
    lines.extend(markdown.end(columns));
    lines
}

/// The looks as marks that can be read.
fn marked(lines: &[Line], has_colours: bool) -> String {
    let style = if has_colours { Style::coloured() } else { Style::plain() };
    let text: Vec<String> = lines.iter().map(|line| line.render(style)).collect();
    text.join("\n").replace("\x1b[0m", "⟧").replace("\x1b[", "⟦")
}

#[test]
fn everything_has_its_looks() {
    insta::assert_snapshot!(marked(&rendered(&[EVERYTHING], 60), true));
}

#[test]
fn in_a_narrow_terminal_too() {
    let lines = rendered(&[EVERYTHING], 20);
    assert!(lines.iter().all(|line| line.width() <= 20), "{}", marked(&lines, false));
    insta::assert_snapshot!(marked(&lines, false));
}

#[test]
fn without_colours_the_marks_stay() {
    let mut markdown = Markdown::new(Paper::new(Glyphs::unicode(), false));
    markdown.push("## Title\n\n`code` and **strong**");
    assert_eq!(marked(&markdown.end(40), false), "## Title\n\n`code` and strong");
}

#[test]
fn what_cannot_change_is_handed_out_at_once() {
    let mut markdown = Markdown::new(Paper::new(Glyphs::unicode(), true));
    let mut next = |text: &str| {
        markdown.push(text);
        let finished = marked(&markdown.finished(40), false);
        (finished, marked(&markdown.growing(), false))
    };
    let pair = |finished: &str, growing: &str| (finished.to_owned(), growing.to_owned());
    assert_eq!(next("para"), pair("", "para"));
    assert_eq!(next("graph\n\n#"), pair("", "paragraph"));
    assert_eq!(next("# Head\n"), pair("paragraph", "\nHead"));
    assert_eq!(next("```sh\nls\nec"), pair("\nHead\n\n    sh\n    ls", "    ec"));
    assert_eq!(next("ho\n```\n- a\n- b\n"), pair("    echo\n\n• a", "• b"));
    assert_eq!(next("  c"), pair("", "• b c"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_pieces_make_no_difference(
        words in prop::collection::vec(prop_oneof![
            Just("\n"), Just("\n\n"), Just("# "), Just("- "), Just("  "), Just("1. "), Just("```"), Just("> "), Just("|"),
            Just("---"), Just("**"), Just("`"), Just("[a](b)"), Just("[a]: b\n"), Just("[a]"), Just("    "), Just("<div>"),
            Just("- [ ] "), Just("&#27;"), Just("\x1b[2J"), Just("word"), Just("日本"), Just("=="), Just("*"), Just("\t"),
            Just("a | b\n-|-\n"), Just("~~~\n"), Just("\\"), Just("\r"),
        ], 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        columns in 1..60_usize,
    ) {
        let text = words.concat();
        let boundaries: Vec<usize> = text.char_indices().map(|(index, _)| index).collect();
        let mut at: Vec<usize> = if boundaries.is_empty() { Vec::new() } else { cuts.iter().map(|cut| *cut.get(&boundaries)).collect() };
        at.extend([0, text.len()]);
        at.sort_unstable();
        let pieces: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        let (whole, pieced) = (rendered(&[&text], columns), rendered(&pieces, columns));
        prop_assert_eq!(marked(&pieced, true), marked(&whole, true), "{:?}", pieces);
        let plain = marked(&whole, false);
        prop_assert!(!plain.contains(['\x1b', '\u{9b}', '\r', '\t']), "{:?}", plain);
    }
}
