//! Text that others wrote, made fit for a terminal: no control characters, known width, short ids, short times.

use std::fmt::{Display, Write};

use crate::model::Timestamp;

/// The last group of a UUID. Version 7 begins with the time, so only the end tells sessions of one day apart.
const SHORT_ID_DIGITS: usize = 12;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A number of bytes as people say it, rounded up.
pub fn byte_count(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

/// Without the characters a terminal acts upon: C0 but for line feed and tab, DEL, C1, and those that turn the direction
/// of what follows. What is left of an escape sequence is its harmless rest, which is better than hiding that there was
/// one.
pub fn clean(text: &str) -> String {
    text.chars().filter(|&character| matches!(character, '\n' | '\t') || !acts_on_terminal(character)).collect()
}

fn acts_on_terminal(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleaned and on one line.
pub fn one_line(text: &str) -> String {
    let flat: String = text
        .chars()
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .filter(|&character| !acts_on_terminal(character))
        .collect();
    flat.trim().to_owned()
}

/// JSON that says the same without the control characters that JSON allows to stand as they are (DEL and C1; C0 is
/// always escaped). They can only be inside strings.
pub fn clean_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if acts_on_terminal(character) && !matches!(character, '\n' | '\r' | '\t') {
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

/// How many columns a terminal gives the text. The blocks that matter are listed by hand: a table that is one column
/// off for a rare character is worth less than one more dependency.
pub fn columns(text: &str) -> usize {
    text.chars().map(character_columns).sum()
}

const fn character_columns(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// The text within `width` columns, its end cut off when it is longer.
pub fn cut_end(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut kept = String::new();
    let mut used = 1;
    for character in text.chars() {
        used += character_columns(character);
        if used > width {
            break;
        }
        kept.push(character);
    }
    kept + "…"
}

/// The text within `width` columns, its beginning cut off when it is longer: the end of a path says more.
pub fn cut_start(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let reversed: String = text.chars().rev().collect();
    cut_end(&reversed, width).chars().rev().collect()
}

/// The end of an id, which commands accept in its place.
pub fn short_id(id: impl Display + Copy) -> String {
    let text = id.to_string();
    text[text.len() - SHORT_ID_DIGITS..].to_owned()
}

/// How long ago, in the largest unit that fits.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_millis() - since.as_millis()).max(0) / 1000;
    match seconds {
        ..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m", seconds / MINUTE),
        HOUR..DAY => format!("{}h", seconds / HOUR),
        DAY.. => format!("{}d", seconds / DAY),
    }
}

/// How long something took.
pub fn duration(from: Timestamp, to: Timestamp) -> String {
    let millis = (to.as_millis() - from.as_millis()).max(0);
    let seconds = millis / 1000;
    if seconds < MINUTE {
        format!("{seconds}.{}s", millis % 1000 / 100)
    } else if seconds < HOUR {
        format!("{}m {}s", seconds / MINUTE, seconds % MINUTE)
    } else {
        format!("{}h {}m", seconds / HOUR, seconds % HOUR / MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    #[test]
    fn no_control_character_passes_but_line_feed_and_tab() {
        let all: String = (0..=0xffu32).filter_map(char::from_u32).collect();
        let cleaned = clean(&all);
        assert!(cleaned.chars().all(|character| matches!(character, '\n' | '\t') || !character.is_control()));
        assert_eq!(cleaned.chars().count(), 256 - (32 + 1 + 32) + 2);
        assert_eq!(clean("\x1b]0;owned\x07a\r\nb\u{9b}31mü 日本"), "]0;owneda\nb31mü 日本");
        assert_eq!(one_line(" a\r\n\tb\x1b[2J "), "a   b[2J");
    }

    #[test]
    fn cleaned_json_says_the_same() {
        let json = "{\"text\":\"a\u{7f}\u{9b}b\\u001b\"}\n";
        let cleaned = clean_json(json);
        assert!(!cleaned.contains(['\u{7f}', '\u{9b}']));
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&cleaned), value(json));
    }

    #[test]
    fn a_cut_text_fits() {
        for text in ["/home/me/src/project", "日本語のとても長い題", "e\u{301}e\u{301}e\u{301}e\u{301}", ""] {
            for width in 0..24 {
                assert!(columns(&cut_end(text, width)) <= width, "{text:?} at {width}");
                assert!(columns(&cut_start(text, width)) <= width, "{text:?} at {width}");
            }
        }
        assert_eq!(cut_end("abcdef", 4), "abc…");
        assert_eq!(cut_start("abcdef", 4), "…def");
    }

    #[test]
    fn a_short_id_is_the_end_of_the_id() {
        let id = SessionId::new();
        let short = short_id(id);
        assert_eq!(short.len(), SHORT_ID_DIGITS);
        assert!(id.to_string().ends_with(&short));
    }

    #[test]
    fn ages_and_durations_are_short() {
        let at = Timestamp::from_millis;
        let ages: Vec<String> = [0, 59_999, 60_000, 7_200_000, 200_000_000].map(|millis| age(at(0), at(millis))).into();
        assert_eq!(ages, ["0s", "59s", "1m", "2h", "2d"]);
        let durations: Vec<String> = [1_250, 61_000, 3_660_000].map(|millis| duration(at(0), at(millis))).into();
        assert_eq!(durations, ["1.2s", "1m 1s", "1h 1m"]);
    }
}
