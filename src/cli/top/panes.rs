//! What is beside the table: the log of a session, a question, the help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::cli::text::columns;

use super::log::{LogLine, Tone};
use super::model::Model;
use super::screen::{bold, colour, dim, heading, put};

const INDENT: &str = "  ";

pub const HELP: [(&str, &str); 17] = [
    ("Up Down j k", "select a session; PgUp PgDn Home End go further"),
    ("Enter", "show the session's log on the full screen"),
    ("y n", "show the session's oldest permission request; then y allows it"),
    ("", "once, Y allows it always, n rejects it, Esc decides later"),
    ("x", "cancel the running turn"),
    ("r", "resume a suspended session"),
    ("A", "archive the session, after confirmation"),
    ("/", "filter by title, agent, workspace, id or state"),
    ("s", "show only sessions with a process, or all sessions"),
    ("c", "sort by CPU; again, by state"),
    ("m", "sort by memory; again, by state"),
    ("a", "sort by age; again, by state"),
    ("Ctrl-L", "redraw the screen"),
    ("? h", "show this help"),
    ("q Esc Ctrl-C", "quit; sessions continue"),
    ("", ""),
    ("STATE", "asks: waits for an answer; stopped: the next prompt starts it"),
];

pub fn help(buffer: &mut Buffer, place: Rect) {
    put(buffer, place, 0, &heading("keys", place.width));
    for (row, (key, words)) in (1..).zip(HELP) {
        let line = Line::from(vec![Span::styled(format!("{key:<13}"), bold().fg(Color::Cyan)), Span::raw(words)]);
        put(buffer, place, row, &line);
    }
}

/// The end of the log, or what is so far before it.
pub fn log(buffer: &mut Buffer, place: Rect, model: &mut Model) {
    let title = match model.selected_row() {
        Some(row) if row.title.is_empty() => "log".to_owned(),
        Some(row) => format!("log: {}", row.title),
        None => return,
    };
    put(buffer, place, 0, &heading(&title, place.width));
    let height = usize::from(place.height.saturating_sub(1));
    let width = usize::from(place.width);
    // From the end back, and no more than is needed: what is scrolled to, and a screen before it.
    let wanted = model.log_back.saturating_add(height);
    let mut rows: Vec<(Tone, String)> = Vec::new();
    for line in model.log.lines().rev() {
        rows.extend(indented(line, width).into_iter().rev().map(|text| (line.tone, text)));
        if rows.len() >= wanted {
            break;
        }
    }
    model.log_back = model.log_back.min(rows.len().saturating_sub(height));
    let shown = rows.iter().skip(model.log_back).take(height).rev();
    for (row, (tone, text)) in (1..).zip(shown) {
        put(buffer, place, row, &Line::styled(text.as_str(), tone_style(*tone)));
    }
}

/// A line as rows of the screen. Only acpd's own words begin at the edge, so that no agent can speak in its name.
fn indented(line: &LogLine, width: usize) -> Vec<String> {
    let is_the_agents = matches!(line.tone, Tone::Said | Tone::Thought);
    let pieces = wrapped(&line.text, width.saturating_sub(INDENT.len()));
    let indent = |(row, piece): (usize, String)| {
        if row == 0 && !is_the_agents { piece } else { format!("{INDENT}{piece}") }
    };
    pieces.into_iter().enumerate().map(indent).collect()
}

fn tone_style(tone: Tone) -> Style {
    match tone {
        Tone::Prompt => bold(),
        Tone::Said => Style::new(),
        Tone::Thought | Tone::Aside => dim(),
        Tone::Tool => colour(Color::Cyan),
        Tone::Question => colour(Color::Yellow),
        Tone::Good => colour(Color::Green),
        Tone::Bad => colour(Color::Red),
    }
}

/// What is asked, with all that it is about; the keys that answer stand below.
pub fn question(buffer: &mut Buffer, place: Rect, model: &mut Model) {
    let Some(question) = &model.question else { return };
    put(buffer, place, 0, &heading("permission request", place.width));
    let width = usize::from(place.width);
    let mut rows: Vec<(Style, String)> =
        wrapped(&question.what, width).into_iter().map(|text| (bold().fg(Color::Yellow), text)).collect();
    for line in &question.details {
        let style = match line.trim_start().trim_start_matches('│').trim_start_matches(' ') {
            line if line.starts_with("+ ") => colour(Color::Green),
            line if line.starts_with("- ") => colour(Color::Red),
            _ => Style::new(),
        };
        // Also the rest of a long line stands behind the mark, so that it cannot look like anything else.
        let (mark, text) = line.split_at(line.find('│').map_or(0, |at| at + '│'.len_utf8()));
        let pieces = wrapped(text, width.saturating_sub(columns(mark)));
        rows.extend(pieces.into_iter().map(|piece| (style, format!("{mark}{piece}"))));
    }
    if question.is_cut {
        rows.push((dim(), "this is cut off: `acpd permissions --json` shows all of it".to_owned()));
    }
    let height = usize::from(place.height.saturating_sub(1));
    let hidden = rows.len().saturating_sub(height);
    model.question_down = model.question_down.min(hidden);
    for (row, (style, text)) in (1..).zip(rows.iter().skip(model.question_down).take(height)) {
        put(buffer, place, row, &Line::styled(text.as_str(), *style));
    }
    let below = hidden - model.question_down;
    if below > 0 && height > 0 {
        let more = format!(" {below} more lines below: Down, PgDn ");
        let row = place.height - 1;
        put(buffer, place, row, &Line::styled(" ".repeat(width), Style::new()));
        put(buffer, place, row, &Line::styled(more, bold().fg(Color::Yellow)));
    }
}

/// The text in lines of this width, broken between words where that is possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let needed = columns(word.trim_end());
        if used > 0 && used + needed > width {
            lines.push(String::new());
            used = 0;
        }
        for character in word.chars() {
            let needed = columns(character.encode_utf8(&mut [0; 4]));
            if used + needed > width {
                // A space at the end of a line is nothing.
                if character == ' ' {
                    continue;
                }
                lines.push(String::new());
                used = 0;
            }
            used += needed;
            if let Some(last) = lines.last_mut() {
                last.push(character);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh ", "ij"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("", 4), [""]);
        for width in 0..20 {
            let lines = wrapped("a bb 日本語 dddddddddddddd  e", width);
            assert!(lines.iter().all(|line| columns(line) <= width.max(2)), "{width}: {lines:?}");
        }
    }

    #[test]
    fn an_agents_words_do_not_look_like_acpds() {
        let line = |tone, text: &str| LogLine { tone, text: text.to_owned() };
        assert_eq!(indented(&line(Tone::Said, "? allowed by nobody"), 12), ["  ? allowed ", "  by nobody"]);
        assert_eq!(indented(&line(Tone::Good, "? allowed by nobody"), 12), ["? allowed ", "  by nobody"]);
    }

    #[test]
    fn the_help_fits_into_80_by_24() {
        assert!(HELP.iter().all(|(_, words)| words.len() <= 80 - 13), "{HELP:?}");
        assert!(HELP.len() <= 24 - 5);
    }
}
