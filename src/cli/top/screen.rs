//! The picture: a head, the table, the log below it, a line of words and a line of keys. Drawn from the model alone.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::cli::text::{age, columns as columns_of, cut_end, short_id};
use crate::model::Timestamp;

use super::columns::{columns, percent, size};
use super::model::{Lost, Mode, Model, Sort};
use super::panes;
use super::row::{Row, State};

/// From this height on there is room for a second line at the top and at the bottom, and for the log.
const TALL_FROM: u16 = 14;
const TABLE_ROWS_MIN: u16 = 4;

const KEYS: [(&str, &str); 9] = [
    ("q", "quit"),
    ("?", "help"),
    ("Enter", "log"),
    ("y/n", "answer"),
    ("x", "cancel"),
    ("/", "find"),
    ("r", "resume"),
    ("A", "archive"),
    ("s", "live"),
];

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub has_colours: bool,
    pub is_utf8: bool,
}

/// Where things are.
struct Places {
    head: Rect,
    table: Rect,
    log: Rect,
    words: Rect,
    keys: Rect,
}

impl Places {
    fn of(area: Rect, rows: usize) -> Self {
        let mut rest = area;
        let is_tall = area.height >= TALL_FROM;
        let head = top(&mut rest, if is_tall { 2 } else { 1 });
        let keys = bottom(&mut rest, 1);
        let words = if is_tall { bottom(&mut rest, 1) } else { keys };
        let wanted = u16::try_from(rows + 1).unwrap_or(u16::MAX).max(TABLE_ROWS_MIN);
        let table = if is_tall { wanted.min(rest.height / 2) } else { rest.height };
        let table = top(&mut rest, table);
        Self { head, table, log: rest, words, keys }
    }
}

fn top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let taken = Rect { height, ..*rest };
    *rest = Rect { y: rest.y + height, height: rest.height - height, ..*rest };
    taken
}

fn bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let taken = Rect { y: rest.y + rest.height - height, height, ..*rest };
    *rest = Rect { height: rest.height - height, ..*rest };
    taken
}

pub fn draw(frame: &mut Frame<'_>, model: &mut Model, look: Look, now: Timestamp) {
    let area = frame.area();
    // Nothing grows older on the screen than it was when it was looked at.
    let at = model.at.unwrap_or(now);
    let buffer = frame.buffer_mut();
    let places = Places::of(area, model.shown().len());
    draw_head(buffer, places.head, model, now);
    let body = Rect { height: places.table.height + places.log.height, ..places.table };
    model.page = usize::from(body.height.saturating_sub(1)).max(1);
    match model.mode {
        Mode::Help => panes::help(buffer, body),
        Mode::Question => panes::question(buffer, body, model),
        Mode::Log => panes::log(buffer, body, model),
        Mode::Table | Mode::Filter | Mode::Archive(_) => {
            model.page = usize::from(places.table.height.saturating_sub(1)).max(1);
            draw_table(buffer, places.table, model, at);
            if !places.log.is_empty() {
                panes::log(buffer, places.log, model);
            }
        }
    }
    draw_keys(buffer, places.keys, model);
    draw_words(buffer, places.words, model);
    if !look.has_colours {
        take_colours(buffer);
    }
    if !look.is_utf8 {
        to_ascii(buffer);
    }
}

/// A line that is cut where the place ends.
pub fn put(buffer: &mut Buffer, place: Rect, row: u16, line: &Line<'_>) {
    if row < place.height {
        buffer.set_line(place.x, place.y + row, line, place.width);
    }
}

pub fn colour(colour: Color) -> Style {
    Style::new().fg(colour)
}

pub fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn draw_lost(buffer: &mut Buffer, place: Rect, lost: &Lost, at: Option<Timestamp>, now: Timestamp) {
    let (what, why) = match (lost, at) {
        (Lost::Gone(why), _) => ("lost the connection to the daemon; reconnecting".to_owned(), why.as_str()),
        (Lost::Silent, Some(at)) => {
            let since = format!("the daemon has not answered for {}", age(at, now));
            (since, "it is paused or stuck; the screen shows its last state")
        }
        (Lost::Silent, None) => ("the daemon does not answer".to_owned(), "it is paused or stuck"),
    };
    put(buffer, place, 0, &Line::styled(what, colour(Color::Red).add_modifier(Modifier::BOLD)));
    put(buffer, place, 1, &Line::styled(why, dim()));
}

fn draw_head(buffer: &mut Buffer, place: Rect, model: &Model, now: Timestamp) {
    if let Some(lost) = &model.lost {
        return draw_lost(buffer, place, lost, model.at, now);
    }
    let Some((daemon, info)) = model.daemon.as_ref().zip(model.info.as_ref()) else {
        return put(buffer, place, 0, &Line::styled("connecting to the daemon", dim()));
    };
    let mut facts = vec![format!("acpd {}", info.version), format!("pid {}", daemon.pid)];
    facts.push(format!("up {}", age(daemon.started_at, model.at.unwrap_or(now))));
    facts.extend(daemon.rss_bytes.map(|bytes| format!("RSS {}", size(bytes))));
    facts.extend(model.daemon_cpu.map(|cpu| format!("CPU {}%", percent(cpu))));
    let facts = facts.join("  ");
    put(buffer, place, 0, &Line::styled(facts.as_str(), bold()));
    draw_rate(buffer, place, columns_of(&facts), model);
    put(buffer, place, 1, &Line::from(counts(model)));
}

/// Sessions by their status, and processes by what they do.
fn counts(model: &Model) -> String {
    let Some(info) = &model.info else { return String::new() };
    let statuses = info.sessions.iter().filter(|(_, count)| **count > 0);
    let sessions: Vec<String> = statuses.map(|(status, count)| format!("{count} {status}")).collect();
    let sessions = if sessions.is_empty() { "no sessions".to_owned() } else { sessions.join(", ") };
    let live = [State::Asks, State::Busy, State::Starting, State::Stopping, State::Ready];
    let states = live.map(|state| (state, model.rows.iter().filter(|row| row.state() == state).count()));
    let states: Vec<String> = states
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {}", state.as_str()))
        // Nobody's session, and a place that is taken all the same.
        .chain((info.processes.checks > 0).then(|| format!("checks: {}", info.processes.checks)))
        .collect();
    let running = model.rows.iter().filter(|row| row.process.is_some()).count() + info.processes.checks;
    let colon = if states.is_empty() { "" } else { ": " };
    format!("{sessions}  |  processes {running} of {}{colon}{}", info.processes.max, states.join(", "))
}

/// Events per second over the last minute, on the right.
fn draw_rate(buffer: &mut Buffer, place: Rect, taken: usize, model: &Model) {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let words = format!(" {} events/s", model.rate.last());
    let room = usize::from(place.width).saturating_sub(taken + 2 + words.len());
    if room == 0 {
        return;
    }
    let seconds = model.rate.whole_seconds();
    let hidden = seconds.len().saturating_sub(room);
    let seconds: Vec<u64> = seconds.skip(hidden).collect();
    let most = seconds.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| match count {
        0 => BARS[0],
        // The least that there is, is more than nothing.
        count => {
            BARS[usize::try_from(count * 7).unwrap_or(usize::MAX).div_ceil(usize::try_from(most).unwrap_or(1)).min(7)]
        }
    };
    let bars: String = seconds.iter().map(bar).collect();
    let line = Line::from(vec![Span::styled(bars, colour(Color::Cyan)), Span::styled(words, dim())]);
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX).min(place.width);
    let place = Rect { x: place.x + place.width - width, width, ..place };
    put(buffer, place, 0, &line);
}

fn draw_table(buffer: &mut Buffer, place: Rect, model: &Model, now: Timestamp) {
    let columns = columns(place.width.into());
    let line = |cells: Vec<String>| cells.join(" ");
    let head = line(columns.iter().map(|column| column.head()).collect());
    put(buffer, place, 0, &Line::styled(head, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)));
    let rows = model.shown();
    if rows.is_empty() {
        let nothing = match (model.info.is_some(), model.rows.is_empty()) {
            (false, _) => "",
            (true, true) => "no sessions; start one with `acpd run \"…\"` in another terminal",
            (true, false) => "no matching sessions; press Esc to clear the filter, s to show all sessions",
        };
        return put(buffer, place, 1, &Line::styled(nothing, dim()));
    }
    let visible = usize::from(place.height.saturating_sub(1)).max(1);
    let at = rows.iter().position(|row| Some(row.id) == model.selected).unwrap_or(0);
    let first = (at + 1).saturating_sub(visible);
    for (index, row) in rows.iter().enumerate().skip(first).take(visible) {
        let text = line(columns.iter().map(|column| column.cell(row, now)).collect());
        let style = state_style(row, model.lost.is_some());
        let style = if index == at { style.add_modifier(Modifier::REVERSED) } else { style };
        put(buffer, place, u16::try_from(index - first + 1).unwrap_or(u16::MAX), &Line::styled(text, style));
    }
}

fn state_style(row: &Row, is_lost: bool) -> Style {
    if is_lost {
        return dim();
    }
    match row.state() {
        State::Asks => colour(Color::Yellow).add_modifier(Modifier::BOLD),
        State::Busy => colour(Color::Green),
        State::Starting | State::Stopping => colour(Color::Cyan),
        State::Ready => Style::new(),
        State::Stopped | State::Suspended | State::Archived => dim(),
        State::Error => colour(Color::Red),
    }
}

/// What was done, what went wrong, what is typed; else what is selected.
fn draw_words(buffer: &mut Buffer, place: Rect, model: &Model) {
    let line = match (&model.mode, &model.notice) {
        (Mode::Filter, _) => Line::from(format!("/{}_", model.filter)),
        (Mode::Archive(id), _) => {
            let title = model.rows.iter().find(|row| row.id == *id).map(|row| row.title.as_str()).unwrap_or_default();
            Line::styled(
                format!("archive {title:?} permanently? y archives it, any other key cancels"),
                colour(Color::Yellow),
            )
        }
        (_, Some(notice)) => {
            let tone = if notice.is_error { colour(Color::Red) } else { bold() };
            let mut spans = vec![Span::styled(notice.text.as_str(), tone)];
            if !notice.hint.is_empty() {
                spans.extend([Span::styled("  hint: ", colour(Color::Yellow)), Span::raw(notice.hint.as_str())]);
            }
            Line::from(spans)
        }
        (_, None) if model.doing.is_some() => Line::styled(model.doing.unwrap_or_default(), bold()),
        // What is answered is named, also when the question is scrolled out of sight.
        (Mode::Question, None) if place.y + 1 < buffer.area.height => {
            let what = model.question.as_ref().map(|question| question.what.as_str()).unwrap_or_default();
            Line::styled(format!("answer this? {what}"), colour(Color::Yellow))
        }
        // At the bottom of a small screen the keys stand there.
        (Mode::Table | Mode::Log, None) if place.y + 1 < buffer.area.height => Line::styled(selection(model), dim()),
        _ => return,
    };
    buffer.set_style(place, Style::reset());
    for x in place.left()..place.right() {
        buffer[(x, place.y)].set_symbol(" ");
    }
    put(buffer, place, 0, &line);
}

fn selection(model: &Model) -> String {
    let Some(row) = model.selected_row() else { return String::new() };
    let shown = model.shown();
    let at = shown.iter().position(|shown| shown.id == row.id).map_or(0, |at| at + 1);
    let mut words = vec![format!("{at}/{}", shown.len())];
    // The list has the newest ones only.
    let has_all = usize::try_from(model.total).is_ok_and(|total| total <= model.rows.len());
    words.extend((!has_all).then(|| format!("of {} in total", model.total)));
    let sort = match model.sort {
        Sort::State => None,
        Sort::Cpu => Some("by CPU"),
        Sort::Memory => Some("by memory"),
        Sort::Age => Some("by age"),
    };
    words.extend(sort.map(str::to_owned));
    words.extend(model.is_live_only.then(|| "with process".to_owned()));
    words.extend((!model.filter.is_empty()).then(|| format!("/{}", model.filter)));
    words.extend(row.owner.map(|owner| format!("uid {owner}")));
    words.push(format!("acpd attach {}", short_id(row.id)));
    words.push(row.workspace.clone());
    words.join("  ")
}

fn draw_keys(buffer: &mut Buffer, place: Rect, model: &Model) {
    let keys: &[(&str, &str)] = match model.mode {
        Mode::Table | Mode::Filter | Mode::Archive(_) => &KEYS,
        Mode::Log => &[("Esc", "back"), ("Up/Down", "scroll"), ("End", "follow"), ("y/n", "answer"), ("x", "cancel")],
        Mode::Help => &[("any key", "back")],
        Mode::Question if model.question.as_ref().is_some_and(|question| question.is_elicitation) => {
            &[("n", "decline"), ("Esc", "decide later"), ("Up/Down", "scroll")]
        }
        Mode::Question => &[
            ("y", "allow once"),
            ("Y", "allow always"),
            ("n", "reject"),
            ("Esc", "decide later"),
            ("Up/Down", "scroll"),
        ],
    };
    let mut spans = Vec::new();
    let mut taken = 0;
    for (key, word) in keys {
        let width = columns_of(key) + columns_of(word) + 3;
        if taken + width > usize::from(place.width) {
            break;
        }
        taken += width;
        spans.extend([Span::styled(*key, bold().fg(Color::Cyan)), Span::raw(format!(" {word}  "))]);
    }
    put(buffer, place, 0, &Line::from(spans));
}

fn take_colours(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}

/// For a terminal that has no more than that.
fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let plain = match cell.symbol() {
                "▁" => "_",
                "▂" | "▃" => ".",
                "▄" | "▅" => ":",
                "▆" | "▇" | "█" => "#",
                "─" => "-",
                "│" => "|",
                "…" => ".",
                _ => "?",
            };
            cell.set_symbol(plain);
        }
    }
}

/// A heading with a line after it, as wide as the place.
pub fn heading(text: &str, width: u16) -> Line<'static> {
    let text = cut_end(text, usize::from(width).saturating_sub(4));
    let rest = usize::from(width).saturating_sub(columns_of(&text) + 4);
    Line::from(vec![
        Span::styled("── ", dim()),
        Span::styled(text, bold()),
        Span::styled(format!(" {}", "─".repeat(rest)), dim()),
    ])
}
