//! JSON values as YAML that every reader takes for the same values.
//!
//! YAML 1.1 reads `yes`, `12:30`, `1_000`, `=` and many more plain texts as something else than text; YAML 1.2 reads fewer so.
//! So a text is plain only if it begins with a letter, has no character with a meaning in YAML, and is no word of YAML.
//! A text of several lines is a literal block, where people can read it. Every other text is quoted.
//!
//! Keys are sorted and lists keep their order: the same value gives the same text.

use std::fmt::Write;

use serde_json::{Number, Value};

const STEP: usize = 2;
/// Readers look no further than 1024 characters for the colon after a key. A longer key is marked with a question mark.
const KEY_BYTES_MAX: usize = 1000;
/// Words that YAML 1.1 or 1.2 reads as a truth value or as nothing, in small letters or capitals.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// The fields of an object, or the items of a list, each on lines of its own.
pub fn lines(value: &Value, indent: usize) -> String {
    let mut out = String::new();
    write(&mut out, value, indent, false);
    out
}

/// `has_begun`: the first line already has what stands before the value.
fn write(out: &mut String, value: &Value, indent: usize, mut has_begun: bool) {
    let mut begin = |out: &mut String| {
        if !std::mem::take(&mut has_begun) {
            pad(out, indent);
        }
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in fields {
                begin(out);
                let key = if is_plain(key) { key.clone() } else { quoted(key) };
                if key.len() > KEY_BYTES_MAX {
                    out.extend(["? ", &key, "\n"]);
                    pad(out, indent);
                } else {
                    out.push_str(&key);
                }
                out.push(':');
                // A list stands no deeper than the key that it belongs to.
                let is_list = matches!(value, Value::Array(items) if !items.is_empty());
                let is_block = is_list || matches!(value, Value::Object(fields) if !fields.is_empty());
                out.push(if is_block { '\n' } else { ' ' });
                write(out, value, if is_list { indent } else { indent + STEP }, !is_block);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                begin(out);
                out.push_str("- ");
                write(out, item, indent + STEP, true);
            }
        }
        Value::Object(_) => out.push_str("{}\n"),
        Value::Array(_) => out.push_str("[]\n"),
        Value::String(text) => string(out, text, indent),
        Value::Number(number) => out.extend([&self::number(number), "\n"]),
        Value::Null | Value::Bool(_) => out.extend([&value.to_string(), "\n"]),
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn string(out: &mut String, text: &str, indent: usize) {
    if is_literal(text) {
        out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
        for line in text.lines() {
            if !line.is_empty() {
                pad(out, indent);
            }
            out.extend([line, "\n"]);
        }
    } else if is_plain(text) {
        out.extend([text, "\n"]);
    } else {
        out.extend([&quoted(text), "\n"]);
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(char::is_alphabetic)
        && text.chars().all(|c| c.is_alphanumeric() || " _-./(),;!?'".contains(c))
        && !text.ends_with(' ')
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// Where readers differ, at blanks and empty lines at either end, the text is quoted instead.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with("\n\n")
        && text.split('\n').all(|line| !line.ends_with([' ', '\t']))
        && !text.contains(|c| is_special(c) && c != '\n' && c != '\t')
}

/// Characters that cannot stand in a file as they are: control characters, line ends of YAML 1.1, and non-characters.
fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// As JSON has it, which is YAML too but for the special characters.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    for c in Value::from(text).to_string().chars() {
        // Writing to a string cannot fail.
        if is_special(c) { _ = write!(quoted, "\\u{:04X}", u32::from(c)) } else { quoted.push(c) }
    }
    quoted
}

/// YAML 1.1 knows a number with an exponent by its point and by the exponent's sign.
fn number(number: &Number) -> String {
    let text = number.to_string();
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (point, sign) =
        (if digits.contains('.') { "" } else { ".0" }, if exponent.starts_with('-') { "" } else { "+" });
    format!("{digits}{point}e{sign}{}", exponent.trim_start_matches('+'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Texts that YAML 1.1 or 1.2 reads as something else, or cannot read when they are plain.
    const TRAPS: &str = "y N yes No ON off True false null NULL ~ = << - ? .inf -.INF .NaN 1 -1 +1 1_000 007 0o7 0b1 0x1f 1e3 \
        1.5 .5 6.02e+23 12:30 1:30:45.5 2026-01-01 2026-01-01T00:00:00Z 019a8b1c-7f2e a: #a !a &a *a [a {a %a @a `a | > 'a \"a \
        --- ... {{ \\ \u{1b} \u{7f} \u{9b} \u{feff} \u{fffe} \u{0}";
    const BLANKS: [&str; 16] = [
        "", " ", "\n", "\t", "\r", "\r\n", "\u{85}", "\u{2028}", "a b ", " a", "a\tb", "a\n\n", " a\nb", "a \nb",
        "a\n ", "a\rb",
    ];

    #[test]
    fn what_a_reader_takes_for_something_else_is_quoted() {
        for text in TRAPS.split(' ').chain(BLANKS).chain(["a: b", "a #b", "- a", "? a"]) {
            let line = lines(&json!({ "k": text }), 0);
            assert!(line.starts_with("k: \"") && line.ends_with("\"\n"), "{line}");
        }
        for (value, line) in [
            (json!({"k": "it's plain, (no?) - words/paths 2.0"}), "k: it's plain, (no?) - words/paths 2.0\n"),
            (json!({"k": "a\n\n\tb"}), "k: |-\n  a\n\n  \tb\n"),
            (json!({"on": ["a\n  b\n"]}), "\"on\":\n- |\n  a\n    b\n"),
            (
                json!([1e300, -1.5e-9, 1e16, 1.0, u64::MAX, [], {}]),
                "- 1.0e+300\n- -1.5e-9\n- 1.0e+16\n- 1.0\n- 18446744073709551615\n- []\n- {}\n",
            ),
            (json!([[["a"], {"c": [null], "b": {"d": true}}]]), "- - - a\n  - b:\n      d: true\n    c:\n    - null\n"),
        ] {
            assert_eq!(lines(&value, 0), line);
        }
    }

    fn nasty() -> impl Strategy<Value = String> {
        let parts: Vec<&str> =
            TRAPS.split(' ').chain(BLANKS).chain([": ", "#", "- ", "? ", "😀", "\u{10ffff}"]).collect();
        let part = prop_oneof![
            4 => prop::sample::select(parts).prop_map(str::to_owned),
            1 => Just("long ".repeat(300)),
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            4 => nasty().prop_map(Value::from),
            1 => any::<(i64, u64, f64, bool)>().prop_map(|values| json!([values, null])),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(nasty(), inner, 0..4).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_again_is_the_same_value_and_the_same_text(value in any_json()) {
            let text = lines(&json!([value]), 6);
            let read: Value = yaml_serde::from_str(&text).unwrap();
            prop_assert_eq!(&read[0], &value, "{}", text);
            prop_assert_eq!(lines(&read, 6), text);
        }
    }
}
