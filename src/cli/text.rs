//! Text that others wrote, made fit for a terminal: no control characters, known width, short ids, short times.

use std::fmt::{Display, Write};
use std::time::Duration;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::model::Timestamp;

/// The last group of a UUID. Version 7 begins with the time, so only the end tells sessions of one day apart.
const SHORT_ID_DIGITS: usize = 12;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A time in the local time zone: `2026-01-31 12:00:00`.
pub fn local_time(time: Timestamp) -> String {
    let zoned =
        jiff::Timestamp::from_millisecond(time.as_millis()).map(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    zoned.map_or_else(|_| time.to_string(), |zoned| zoned.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// A number of bytes as people say it, rounded up.
pub fn byte_count(bytes: usize) -> String {
    size(bytes as u64)
}

/// A size as people say it, rounded up; with one digit after the point where less would say too little.
pub fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match bytes {
        ..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{} KiB", bytes.div_ceil(KIB)),
        MIB..GIB => format!("{} MiB", bytes.div_ceil(MIB)),
        GIB.. => {
            let tenths = (bytes / (GIB / 10)).max(10);
            format!("{}.{} GiB", tenths / 10, tenths % 10)
        }
    }
}

/// A number that people can read: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 turn`, `2 turns`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", thousands(number)) }
}

/// Without the characters a terminal acts upon: C0 but for line feed and tab, DEL, C1, and those that turn the direction
/// of what follows. What is left of an escape sequence is its harmless rest, which is better than hiding that there was
/// one. What shows nothing goes too, for terminals disagree on how wide nothing is, and what ends a line is a line feed.
pub fn clean(text: &str) -> String {
    let ended = |character| if matches!(character, '\u{2028}' | '\u{2029}') { '\n' } else { character };
    let stays = |character| matches!(character, '\n' | '\t') || !acts_on_terminal(character);
    text.chars().map(ended).filter(|&character| stays(character) && !is_invisible(character)).collect()
}

/// What has no width of its own and nothing to do with the character before it: soft hyphens, places where a line may or
/// may not be broken, marks of direction, and the mark that some files begin with. Joiners and selectors are not among
/// them, for they make one picture of several.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    )
}

fn acts_on_terminal(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleaned and on one line.
pub fn one_line(text: &str) -> String {
    one_line_kept(text).trim().to_owned()
}

/// The same, with the blanks around it.
fn one_line_kept(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .filter(|&character| !acts_on_terminal(character) && !is_invisible(character))
        .collect()
}

/// The text as one word of a shell's, in quotes where it needs some.
pub fn shell_word(text: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_./,:@%+".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else if text.contains(['"', '$', '`', '\\', '!']) {
        format!("'{}'", text.replace('\'', r"'\''"))
    } else {
        format!("\"{text}\"")
    }
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

/// How many columns a terminal gives the text. What a person sees as one character is counted as one, whatever it is
/// made of: an emoji with its joiners and selectors, a letter with its marks.
pub fn columns(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// The text as every terminal shows it equally wide. Some draw an emoji that is made of several as one, others beside each
/// other; some believe a selector that asks for the wide picture, others do not. What they disagree on is reduced to its
/// first character: a table with half a family in it is better than one that is broken. What shows nothing is left out.
pub fn steady(text: &str) -> String {
    let alike = |grapheme: &str| {
        let apart: usize = grapheme.chars().map(|character| character.width().unwrap_or(0)).sum();
        let kept =
            if apart == grapheme.width() { grapheme.len() } else { grapheme.chars().next().map_or(0, char::len_utf8) };
        grapheme[..kept].to_owned()
    };
    one_line_kept(text).graphemes(true).map(alike).collect()
}

/// The text within `width` columns, its end cut off when it is longer.
pub fn cut_end(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let kept = within(text.graphemes(true), width - 1);
    format!("{}…", kept.concat().trim_end())
}

/// The text within `width` columns, its beginning cut off when it is longer: the end of a path says more.
pub fn cut_start(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut kept = within(text.graphemes(true).rev(), width - 1);
    kept.reverse();
    format!("…{}", kept.concat())
}

/// As many as fit.
fn within<'a>(graphemes: impl Iterator<Item = &'a str>, width: usize) -> Vec<&'a str> {
    let mut used = 0;
    let fits = |grapheme: &&str| {
        used += grapheme.width();
        used <= width
    };
    graphemes.take_while(fits).collect()
}

/// The text in lines of `width` columns, broken between words where that is possible.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_word_bounds() {
        let wide = columns(word);
        if used + wide > width && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        if used == 0 && word.trim().is_empty() && lines.len() > 1 {
            continue;
        }
        // A word that is wider than a line is broken where it must be.
        for grapheme in word.graphemes(true) {
            if used + grapheme.width() > width && used > 0 {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push_str(grapheme);
            }
            used += grapheme.width();
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
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

/// A time as seen from now: `in 5h`, `3h ago`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    /// What is to come is rounded up, so that a day that has just begun is a day.
    const ROUNDED_UP: Duration = Duration::from_secs(59);
    if at <= now {
        format!("{} ago", age(at, now))
    } else {
        format!("in {}", age(now, at.after(ROUNDED_UP).unwrap_or(at)))
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

/// What another program said, set apart from what is said here. That it is an error has been said before.
pub fn quoted(said: &str) -> String {
    let lines = said.lines().map(|line| format!("\n  {}", line.strip_prefix("error: ").unwrap_or(line)));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    #[test]
    fn times_are_told_from_here() {
        let hours = |hours: i64| Timestamp::from_millis(hours * 60 * 60 * 1000);
        let just_after = Timestamp::from_millis(20);
        assert_eq!(relative(hours(24), just_after), "in 1d");
        assert_eq!(relative(hours(5), just_after), "in 5h");
        assert_eq!(relative(hours(0), hours(3)), "3h ago");
    }

    #[test]
    fn what_another_program_said_is_set_apart() {
        assert_eq!(quoted("error: the lock is held\nhint: wait"), "\n  the lock is held\n  hint: wait");
        assert_eq!(quoted(""), "");
    }

    #[test]
    fn no_control_character_passes_but_line_feed_and_tab() {
        let all: String = (0..=0xffu32).filter_map(char::from_u32).collect();
        let cleaned = clean(&all);
        assert!(cleaned.chars().all(|character| matches!(character, '\n' | '\t') || !character.is_control()));
        assert_eq!(cleaned.chars().count(), 256 - (32 + 1 + 32) + 2 - 1, "and no soft hyphen");
        assert_eq!(clean("\x1b]0;owned\x07a\r\nb\u{9b}31mü 日本"), "]0;owneda\nb31mü 日本");
        assert_eq!(one_line(" a\r\n\tb\x1b[2J "), "a   b[2J");
    }

    #[test]
    fn what_shows_nothing_is_left_out() {
        let nothing = "a\u{200b}\u{2060}\u{feff}\u{ad}b\u{2028}c\u{2029}d";
        assert_eq!(clean(nothing), "ab\nc\nd");
        assert_eq!(one_line(nothing), "ab c d");
        assert_eq!(steady(nothing), "ab c d");
        assert_eq!(one_line("👩‍👩‍👧 نمی\u{200c}خواهم"), "👩‍👩‍👧 نمی\u{200c}خواهم", "what joins and parts letters stays");
    }

    #[test]
    fn a_word_of_a_shell_has_the_quotes_that_it_needs() {
        for (text, word) in
            [("fix", "fix"), ("fix it", "\"fix it\""), ("", "\"\""), ("cost $5, it's", r"'cost $5, it'\''s'")]
        {
            assert_eq!(shell_word(text), word);
        }
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
    fn what_looks_like_one_character_is_counted_and_cut_as_one() {
        for (text, wide) in [("👩‍👩‍👧‍👦", 2), ("❤️", 2), ("e\u{301}", 1), ("日本", 4), ("🇯🇵", 2), ("", 0)]
        {
            assert_eq!(columns(text), wide, "{text:?}");
        }
        assert_eq!(cut_end("👩‍👩‍👧‍👦 family", 4), "👩‍👩‍👧‍👦…", "cut before the space, not within the family");
        assert_eq!(cut_end("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 3), "👩‍👩‍👧‍👦…");
        assert_eq!(cut_start("xe\u{301}e\u{301}", 2), "…e\u{301}");
    }

    #[test]
    fn what_terminals_disagree_on_is_reduced_to_what_they_agree_on() {
        for (text, shown) in [("👩‍👩‍👧‍👦 ❤️", "👩 ❤"), ("👍🏽", "👍"), ("e\u{301} 日本 🇯🇵", "e\u{301} 日本 🇯🇵")]
        {
            assert_eq!(steady(text), shown);
        }
    }

    #[test]
    fn sizes_and_numbers_are_readable() {
        let sizes: Vec<String> = [0, 1023, 1024, 34_816, 148_897_792, 1_610_612_736].map(size).into();
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1 KiB", "34 KiB", "142 MiB", "1.5 GiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count(1, "turn"), count(2000, "turn")), ("1 turn".to_owned(), "2,000 turns".to_owned()));
    }

    #[test]
    fn a_text_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("", 4), [""]);
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
