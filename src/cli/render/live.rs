//! How a stream of events is shown on a terminal: finished lines that scroll away, and below them what is still going on,
//! repainted in place: the words that come, the last thoughts, the tools that run, the plan, and what is waited for.
//!
//! Events change what is to be seen; nothing is written before [`Live::paint`], so that catching up with a long session
//! costs a few pictures and not one for each event. When stdout goes to a program, that gets the answer as it is, and the
//! terminal everything else; when stderr goes to a file, that gets the notes in lines, and the terminal the answer.

use std::io::{self, Stderr, Stdout, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::model::{Timestamp, TurnStatus};

use super::super::stream::Event;
use super::super::text::{clean, one_line};
use super::super::transcript;
use super::canvas::Canvas;
use super::checklist::Checklist;
use super::glyphs::Glyphs;
use super::ink::{Colour, Ink, Line};
use super::markdown::{Markdown, Paper};
use super::permission::Permissions;
use super::tally::Tally;
use super::thoughts::Thoughts;
use super::tools::Tools;
use super::waiting::{Wait, Waiting};
use super::{Outcome, Scope, ThoughtsShown, missing};

/// Between two pictures when something has changed, and when only the spinner turns.
const FRAME: Duration = Duration::from_millis(50);
const SPINNER_FRAME: Duration = Duration::from_millis(100);
/// While the log is being caught up with.
const CATCHING_UP_FRAME: Duration = Duration::from_millis(500);

/// What was written last. Unlike things stand apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Prompt,
    Words,
    Note,
    Plan,
    End,
}

/// What does not go to the terminal.
pub enum Beside {
    Nothing,
    Answer {
        stdout: Stdout,
        /// Its last line has not ended.
        in_line: bool,
    },
    Notes(Stderr),
}

impl Beside {
    pub const fn answer(stdout: Stdout) -> Self {
        Self::Answer { stdout, in_line: false }
    }
}

pub struct Live {
    canvas: Canvas,
    beside: Beside,
    glyphs: &'static Glyphs,
    scope: Scope,
    /// The message that is coming in: its id, and its text so far.
    open: Option<(String, String)>,
    words: Markdown,
    thoughts: Thoughts,
    plan: Checklist,
    tools: Tools,
    permissions: Permissions,
    /// A notice, held back until it is known not to be the error that the turn ends with.
    notice: Option<(String, String)>,
    waiting: Waiting,
    tally: Tally,
    last: Kind,
    is_dirty: bool,
    painted_at: Instant,
}

impl Live {
    pub fn new(canvas: Canvas, beside: Beside, glyphs: &'static Glyphs, scope: Scope, thoughts: ThoughtsShown) -> Self {
        let words = Markdown::new(Paper::new(glyphs, canvas.style().is_enabled()));
        Self {
            canvas,
            beside,
            glyphs,
            scope,
            open: None,
            words,
            thoughts: Thoughts::new(thoughts, glyphs),
            plan: Checklist::new(glyphs),
            tools: Tools::new(glyphs),
            permissions: Permissions::default(),
            notice: None,
            waiting: Waiting::new(glyphs),
            tally: Tally::default(),
            last: Kind::Nothing,
            is_dirty: false,
            painted_at: Instant::now(),
        }
    }

    /// Says what is waited for before the first event.
    pub fn wait_for(&mut self, wait: Wait) {
        self.waiting.for_what(wait, Timestamp::now());
    }

    /// Whether the daemon cannot be heard now.
    pub fn cut_off(&mut self, is_lost: bool) {
        self.waiting.cut_off(is_lost);
        self.is_dirty = true;
    }

    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let data = &event.data;
        let at = event.created_at.unwrap_or_else(Timestamp::now);
        self.is_dirty = true;
        // That nothing was heard is no sign of life.
        if event.kind != "turn.waiting" {
            self.waiting.heard(at);
        }
        if event.kind != "turn.completed" {
            self.tell_notice();
        }
        match event.kind.as_str() {
            "process.starting" if *self.waiting.what() != Wait::Nothing || self.scope == Scope::Session => {
                let agent = one_line(data["agent"].as_str().unwrap_or_default());
                self.waiting.for_what(Wait::Starting(agent), at);
            }
            "process.ready" | "process.exited" if matches!(self.waiting.what(), Wait::Starting(_)) => {
                let wait = if self.scope == Scope::Turn { Wait::Agent } else { Wait::Nothing };
                self.waiting.for_what(wait, at);
            }
            "process.waiting" => {
                let message = one_line(data["message"].as_str().unwrap_or_default());
                self.commit(Kind::Note, &[Line::new(&message, Ink::DIM)]);
            }
            "turn.waiting" => self.waiting.is_silent(),
            "turn.started" => {
                self.tally.begin(at);
                self.waiting.for_what(Wait::Agent, at);
            }
            "message.delta" => return self.delta(data, at),
            "message.created" => return self.message(data, at),
            "plan.updated" => {
                let replaced = self.plan.update(&data["update"], self.canvas.columns());
                self.commit(Kind::Plan, &replaced);
            }
            "tool.started" => {
                self.end_words(at);
                self.tally.tool();
                self.tools.updated(data, at);
            }
            "tool.updated" => self.tools.updated(data, at),
            "tool.completed" => {
                self.end_words(at);
                let lines = self.tools.completed(data, at);
                self.commit(Kind::Note, &lines);
            }
            "usage.updated" => self.tally.usage(&data["update"]),
            "permission.requested" => {
                self.permissions.requested(data);
                self.waiting.for_what(Wait::Answer, at);
            }
            "permission.resolved" => self.permission_resolved(data, at),
            "turn.completed" => self.turn_completed(data, at)?,
            _ => {}
        }
        if self.scope == Scope::Session {
            self.session_changed(&event.kind, data, at);
        }
        Ok(())
    }

    /// A key that was pressed while the stream is followed.
    pub fn key(&mut self, key: char) {
        let lines = match key {
            't' | 'T' => self.thoughts.toggle(self.canvas.columns()),
            '?' | 'h' => {
                let leave = match self.scope {
                    Scope::Turn => "Ctrl-C cancels the turn, again detaches",
                    Scope::Session => "Ctrl-C detaches",
                };
                let dot = self.glyphs.dot;
                vec![Line::new(&format!("t folds thoughts {dot} {leave} {dot} ? lists keys"), Ink::DIM)]
            }
            _ => return,
        };
        self.commit(Kind::Note, &lines);
        self.is_dirty = true;
    }

    /// The terminal may have another size, or something else on it.
    pub fn disturbed(&mut self) {
        self.is_dirty = true;
    }

    /// When the next picture is due, if there is anything to see in it.
    pub fn next_frame(&self, is_caught_up: bool) -> Option<Instant> {
        if self.is_dirty {
            return Some(self.painted_at + if is_caught_up { FRAME } else { CATCHING_UP_FRAME });
        }
        let turns = self.painted_at + SPINNER_FRAME;
        match self.waiting.due(!self.words.is_empty()).filter(|_| is_caught_up) {
            _ if !self.tools.is_empty() && is_caught_up => Some(turns),
            Some(due) => Some(due.max(turns)),
            None => None,
        }
    }

    pub fn paint(&mut self) -> io::Result<()> {
        self.is_dirty = false;
        let (now, columns) = (Timestamp::now(), self.canvas.columns());
        let finished = self.words.finished(columns);
        self.commit(Kind::Words, &finished);
        let is_silent = self.waiting.due(!self.words.is_empty()).is_some_and(|due| due <= Instant::now());
        // A tool that runs says so itself.
        let is_told = matches!(self.waiting.what(), Wait::Agent | Wait::Silence)
            && !self.tools.is_empty()
            && !self.waiting.is_cut_off();
        let wait = self.waiting.line(now).filter(|_| is_silent && !is_told);
        let mut notes = self.thoughts.region(columns);
        notes.extend(self.tools.region(now));
        let words = self.words.growing();
        let groups = [
            (Kind::Words, words),
            (Kind::Note, notes),
            (Kind::Plan, self.plan.region(columns)),
            (Kind::End, wait.into_iter().collect()),
        ];
        let mut region = Vec::new();
        let mut last = self.last;
        for (kind, lines) in groups.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            if last != kind && last != Kind::Nothing {
                region.push(Line::default());
            }
            region.extend(lines);
            last = kind;
        }
        self.painted_at = Instant::now();
        self.canvas.paint(&region)
    }

    /// Makes room for something else on the terminal, in the middle of a turn.
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.tell_notice();
        self.flush_words();
        self.is_dirty = true;
        // What comes next is somebody else's.
        if self.last == Kind::Words && !matches!(self.beside, Beside::Notes(_)) {
            self.canvas.commit(&Line::default());
            self.last = Kind::Note;
        }
        self.canvas.clear()
    }

    /// Ends whatever is open, so that what is printed next begins a new line.
    pub fn close(&mut self) -> io::Result<()> {
        self.end_words(Timestamp::now());
        self.end_piped()?;
        self.tell_notice();
        self.is_dirty = true;
        self.canvas.clear()
    }

    fn delta(&mut self, data: &Value, at: Timestamp) -> io::Result<()> {
        let (Some(id), Some(text)) = (data["messageId"].as_str(), data["text"].as_str()) else {
            return Ok(());
        };
        if self.open.as_ref().is_none_or(|(open, _)| open != id) {
            self.end_message(at)?;
            self.open = Some((id.to_owned(), String::new()));
        }
        if let Some((_, shown)) = &mut self.open {
            shown.push_str(text);
        }
        self.show(data["type"] == "thought", text, at)
    }

    fn message(&mut self, data: &Value, at: Timestamp) -> io::Result<()> {
        let content = &data["content"];
        let text = content["text"].as_str().unwrap_or_default();
        match (data["role"].as_str(), content["type"].as_str()) {
            (Some("agent"), Some(kind @ ("text" | "thought"))) => {
                let missing = if let Some(missing) = missing(self.open.as_ref(), &data["id"], text) {
                    missing
                } else {
                    self.end_message(at)?;
                    text
                };
                self.show(kind == "thought", missing, at)?;
                self.end_message(at)?;
            }
            (Some("agent"), Some("blocks")) => {
                self.end_message(at)?;
                let blocks = content["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
                let lines: Vec<Line> =
                    blocks.iter().map(|block| Line::new(&one_line(&transcript::block(block)), Ink::DIM)).collect();
                self.commit(Kind::Note, &lines);
            }
            (Some("user"), _) if self.scope == Scope::Session => self.prompt(content, at)?,
            // The answer to the question has been told, with what to do about it.
            (Some("system"), Some("notice")) if content["code"] == "permission_rejected" => {}
            (Some("system"), Some("notice")) => {
                let code = content["code"].as_str().unwrap_or_default();
                self.notice = Some((code.to_owned(), text.to_owned()));
            }
            _ => {}
        }
        Ok(())
    }

    fn show(&mut self, is_thought: bool, text: &str, at: Timestamp) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if is_thought {
            if !self.thoughts.is_open() {
                self.end_words(at);
                self.waiting.for_what(Wait::Thoughts, at);
            }
            self.thoughts.push(text, at);
            return Ok(());
        }
        self.end_thought(at);
        let Beside::Answer { stdout, in_line } = &mut self.beside else {
            self.words.push(text);
            return Ok(());
        };
        let text = clean(text);
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        *in_line = if text.is_empty() { *in_line } else { !text.ends_with('\n') };
        Ok(())
    }

    fn end_message(&mut self, at: Timestamp) -> io::Result<()> {
        self.open = None;
        self.end_words(at);
        self.end_piped()
    }

    /// Nothing more belongs to what was said or thought so far.
    fn end_words(&mut self, at: Timestamp) {
        self.end_thought(at);
        self.flush_words();
    }

    fn flush_words(&mut self) {
        let lines = self.words.end(self.canvas.columns());
        self.commit(Kind::Words, &lines);
        self.words = Markdown::new(Paper::new(self.glyphs, self.canvas.style().is_enabled()));
    }

    fn end_thought(&mut self, at: Timestamp) {
        if self.thoughts.is_open() {
            let lines = self.thoughts.end(at, self.canvas.columns());
            self.commit(Kind::Note, &lines);
            if *self.waiting.what() == Wait::Thoughts {
                self.waiting.for_what(Wait::Agent, at);
            }
        }
    }

    fn end_piped(&mut self) -> io::Result<()> {
        if let Beside::Answer { stdout, in_line } = &mut self.beside
            && std::mem::take(in_line)
        {
            stdout.write_all(b"\n")?;
            stdout.flush()?;
        }
        Ok(())
    }

    fn prompt(&mut self, content: &Value, at: Timestamp) -> io::Result<()> {
        self.end_message(at)?;
        let blocks = content["blocks"].as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        let texts: Vec<String> = blocks.iter().map(transcript::block).collect();
        let lines: Vec<Line> =
            texts.join("\n").lines().map(|line| Line::new(&format!("> {line}"), Ink::BOLD)).collect();
        self.commit(Kind::Prompt, &lines);
        Ok(())
    }

    fn permission_resolved(&mut self, data: &Value, at: Timestamp) {
        self.end_words(at);
        self.waiting.for_what(Wait::Agent, at);
        let Some(resolved) = self.permissions.resolved(data) else { return };
        let yellow = Ink::PLAIN.colour(Colour::Yellow);
        let mut lines = vec![Line::new(&resolved.line, yellow)];
        lines.extend(resolved.hint.map(|hint| Line::new("hint:", yellow).and(&format!(" {hint}"), Ink::PLAIN)));
        self.commit(Kind::Note, &lines);
    }

    fn turn_completed(&mut self, data: &Value, at: Timestamp) -> io::Result<()> {
        self.end_message(at)?;
        self.waiting.for_what(Wait::Nothing, at);
        let left = self.tools.end();
        self.commit(Kind::Note, &left);
        let plan = self.plan.end(self.canvas.columns());
        self.commit(Kind::Plan, &plan);
        let Ok(outcome) = serde_json::from_value::<Outcome>(data.clone()) else {
            self.tell_notice();
            return Ok(());
        };
        if outcome.error.as_ref().is_some_and(|error| self.notice.as_ref().is_some_and(|(code, _)| *code == error.code))
        {
            self.notice = None;
        }
        self.tell_notice();
        let yellow = Ink::PLAIN.colour(Colour::Yellow);
        let mut lines = Vec::new();
        if let Some(error) = &outcome.error {
            let red = Ink::PLAIN.colour(Colour::Red);
            lines.push(Line::new("error:", red).and(&format!(" {}", error.message), Ink::PLAIN));
            if let Some(hint) = &error.hint {
                lines.push(Line::new("hint:", yellow).and(&format!(" {hint}"), Ink::PLAIN));
            }
        } else {
            match (outcome.status, outcome.stop_reason.as_deref()) {
                (TurnStatus::Completed, None | Some("end_turn")) => {}
                (TurnStatus::Completed, Some(reason)) => {
                    lines.push(Line::new(&format!("the agent stopped: {}", one_line(reason)), yellow));
                }
                (status, _) => lines.push(Line::new(&format!("the turn is {status}"), yellow)),
            }
        }
        self.commit(Kind::Note, &lines);
        let tally = self.tally.line(outcome.status, data, at, self.glyphs);
        self.commit(Kind::End, tally.as_slice());
        Ok(())
    }

    fn session_changed(&mut self, kind: &str, data: &Value, at: Timestamp) {
        let text = |field: &str| one_line(data[field].as_str().unwrap_or_default());
        let line = match kind {
            "session.status" => format!("the session is {}", text("to")),
            "log.reset" => super::log_reset(data),
            "process.exited" if data["reason"] == "crash" && data["error"].is_string() => {
                format!("the agent's process exited: {}", text("error"))
            }
            "process.exited" if data["reason"] == "crash" => "the agent's process exited".to_owned(),
            _ => return,
        };
        self.end_words(at);
        self.commit(Kind::Note, &[Line::new(&line, Ink::DIM)]);
    }

    fn tell_notice(&mut self) {
        if let Some((_, text)) = self.notice.take() {
            let text = clean(&text);
            let lines: Vec<Line> =
                text.lines().map(|line| Line::new(line, Ink::PLAIN.colour(Colour::Yellow))).collect();
            self.commit(Kind::Note, &lines);
        }
    }

    fn commit(&mut self, kind: Kind, lines: &[Line]) {
        if lines.is_empty() {
            return;
        }
        if let Beside::Notes(stderr) = &mut self.beside
            && kind != Kind::Words
        {
            // Nobody is left to be told when stderr cannot be written.
            let _ = lines.iter().try_for_each(|line| writeln!(stderr, "{}", line.text()));
            return;
        }
        if self.last != kind && self.last != Kind::Nothing {
            self.canvas.commit(&Line::default());
        }
        self.last = kind;
        for line in lines {
            self.canvas.commit(line);
        }
    }
}

#[cfg(test)]
mod tests;
