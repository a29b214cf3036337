//! What is shown, and what keys do: pure state, without a terminal and without a daemon.

use std::collections::HashMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::control::wire::permissions::{Permission, PermissionList};
use crate::control::wire::{Info, ProcessList, SessionList};
use crate::model::permission::question::Decision;
use crate::model::{PermissionId, SessionId, Timestamp, TurnId};

use super::log::Log;
use super::question::Question;
use super::rate::Rate;
use super::row::Row;

/// Two looks nearer to each other than this say nothing about a processor: the kernel counts in hundredths of a second.
const CPU_MILLIS_MIN: i64 = 900;
/// Characters of what is looked for.
const FILTER_CHARS_MAX: usize = 100;

/// What one look at the daemon found.
#[derive(Debug)]
pub struct Look {
    pub processes: ProcessList,
    /// The rest is asked for when something has changed.
    pub rest: Option<(Info, SessionList, PermissionList)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    State,
    Cpu,
    Memory,
    Age,
}

/// What keys mean now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Table,
    /// What is typed is looked for.
    Filter,
    Log,
    Help,
    Question,
    /// Whether the session is really to be archived.
    Archive(SessionId),
}

/// A word to the person, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    pub hint: String,
    pub is_error: bool,
}

/// What is to be done outside of the model.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Leave,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L: everything is drawn anew.
    Redraw,
    Do(Deed),
}

/// What is asked of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    Cancel {
        session: SessionId,
        turn: Option<TurnId>,
    },
    FindQuestion {
        session: SessionId,
    },
    /// Whether the question that is shown is still open.
    CheckQuestion {
        question: PermissionId,
    },
    Answer {
        question: Box<Question>,
        decision: Decision,
        always: bool,
    },
    Resume {
        session: SessionId,
    },
    Archive {
        session: SessionId,
    },
}

impl Deed {
    /// What is said while it is under way.
    const fn words(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancelling…",
            Self::FindQuestion { .. } | Self::CheckQuestion { .. } => "loading the request…",
            Self::Answer { .. } => "answering…",
            Self::Resume { .. } => "resuming…",
            Self::Archive { .. } => "archiving…",
        }
    }
}

/// Why nothing is heard of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// There is no daemon, for this reason.
    Gone(String),
    /// It is there, and does not answer.
    Silent,
}

/// What a session had used, when.
#[derive(Clone, Copy, Debug)]
struct Used {
    cpu_millis: u64,
    at: Timestamp,
    percent: Option<f64>,
}

impl Used {
    /// What another look shows. It counts when it is late enough after the last one that did.
    fn then(before: Option<Self>, cpu_millis: u64, at: Timestamp) -> Self {
        let Some(before) = before else { return Self { cpu_millis, at, percent: None } };
        let elapsed = at.as_millis() - before.at.as_millis();
        if elapsed < CPU_MILLIS_MIN {
            return before;
        }
        Self { cpu_millis, at, percent: Some(percent(cpu_millis.saturating_sub(before.cpu_millis), elapsed)) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "both are far below what a float has no more room for")]
fn percent(used: u64, elapsed: i64) -> f64 {
    used as f64 * 100.0 / elapsed as f64
}

#[derive(Debug)]
pub struct Model {
    pub info: Option<Info>,
    pub daemon: Option<crate::control::wire::DaemonProcess>,
    pub daemon_cpu: Option<f64>,
    /// When the last look at the daemon was. All that is shown is as it was then.
    pub at: Option<Timestamp>,
    pub lost: Option<Lost>,
    pub rows: Vec<Row>,
    /// How many sessions there are, of which the list has only so many.
    pub total: i64,
    pub selected: Option<SessionId>,
    pub sort: Sort,
    pub is_live_only: bool,
    pub filter: String,
    pub mode: Mode,
    pub notice: Option<Notice>,
    pub log: Log,
    /// How far the log is scrolled back, in rows of the screen.
    pub log_back: usize,
    pub question: Option<Question>,
    pub question_down: usize,
    /// Where the question is shown, and what is there again after it.
    behind: Mode,
    /// What is under way with the daemon, in words. Keys that would ask for more wait for its end.
    pub doing: Option<&'static str>,
    pub rate: Rate,
    /// Rows of the table that are on the screen, and of the log.
    pub page: usize,
    used: HashMap<SessionId, Used>,
    daemon_used: Option<Used>,
}

impl Model {
    pub fn new() -> Self {
        Self {
            info: None,
            daemon: None,
            daemon_cpu: None,
            at: None,
            lost: None,
            rows: Vec::new(),
            total: 0,
            selected: None,
            sort: Sort::State,
            is_live_only: false,
            filter: String::new(),
            mode: Mode::Table,
            notice: None,
            log: Log::default(),
            log_back: 0,
            question: None,
            question_down: 0,
            behind: Mode::Table,
            doing: None,
            rate: Rate::default(),
            page: 10,
            used: HashMap::new(),
            daemon_used: None,
        }
    }

    /// Takes in what the daemon says; and what there is to ask it then.
    pub fn take(&mut self, look: Look) -> Option<Deed> {
        let Look { processes, rest } = look;
        match self.lost.take() {
            Some(Lost::Gone(_)) => self.say("reconnected to the daemon"),
            // What became of a key's wish is worth more: the head says the rest.
            Some(Lost::Silent) if self.notice.is_none() => self.say("the daemon is responding again"),
            Some(Lost::Silent) | None => {}
        }
        let mut check = None;
        // Another daemon counts from the beginning.
        if self.daemon.as_ref().is_none_or(|daemon| daemon.pid != processes.daemon.pid) {
            self.daemon_used = None;
            self.used.clear();
        }
        if let Some((info, sessions, questions)) = rest {
            self.info = Some(info);
            self.total = sessions.total;
            self.rows = sessions.sessions.iter().map(Row::of_session).collect();
            self.note_questions(&questions.permissions);
            check = self.missing_question(&questions.permissions);
        }
        self.run(&processes);
        self.daemon_used = processes.daemon.cpu_millis.map(|millis| Used::then(self.daemon_used, millis, processes.at));
        self.daemon_cpu = self.daemon_used.and_then(|used| used.percent);
        self.daemon = Some(processes.daemon);
        self.at = Some(processes.at);
        self.keep_selection();
        check
    }

    /// One that is shown and not listed was answered elsewhere, or asked after the list was made, or is one too many for it.
    fn missing_question(&self, open: &[Permission]) -> Option<Deed> {
        let question = self.question.as_ref()?.id;
        let is_listed = open.iter().any(|permission| permission.id == question);
        (!is_listed).then_some(Deed::CheckQuestion { question })
    }

    /// What became of a question that was not listed: nothing, when it is still open.
    pub fn checked(&mut self, question: PermissionId, answer: Option<String>) {
        if let Some(answer) = answer
            && self.question.as_ref().is_some_and(|shown| shown.id == question)
        {
            self.close_question();
            self.say(answer);
        }
    }

    fn close_question(&mut self) -> Option<Question> {
        self.mode = self.behind;
        self.question.take()
    }

    fn note_questions(&mut self, open: &[Permission]) {
        for row in &mut self.rows {
            // Ids sort by their age.
            let oldest =
                open.iter().filter(|question| question.session_id == row.id).min_by_key(|question| question.id);
            row.question = oldest.map(crate::cli::question::what);
        }
    }

    fn run(&mut self, list: &ProcessList) {
        let mut used = HashMap::new();
        for row in &mut self.rows {
            row.process = None;
        }
        for process in &list.processes {
            let id = process.session_id;
            let now = Used::then(self.used.get(&id).copied(), process.cpu_millis, list.at);
            used.insert(id, now);
            let index = self.rows.iter().position(|row| row.id == id).unwrap_or_else(|| {
                self.rows.push(Row::of_process(process));
                self.rows.len() - 1
            });
            self.rows[index].run(process, now.percent);
        }
        self.used = used;
    }

    /// The rows as they are shown, in order.
    pub fn shown(&self) -> Vec<&Row> {
        let looked_for = self.filter.to_lowercase();
        let is_looked_for = |row: &Row| looked_for.is_empty() || row.has(&looked_for);
        let is_shown = |row: &&Row| (row.state().is_live() || !self.is_live_only) && is_looked_for(row);
        let mut rows: Vec<&Row> = self.rows.iter().filter(is_shown).collect();
        let by_state = |row: &Row| (row.state(), std::cmp::Reverse(row.last_active_at), row.id);
        rows.sort_by(|one, other| {
            let by_choice = match self.sort {
                Sort::State => std::cmp::Ordering::Equal,
                Sort::Cpu => other.cpu_percent().unwrap_or(-1.0).total_cmp(&one.cpu_percent().unwrap_or(-1.0)),
                Sort::Memory => other.rss_bytes().cmp(&one.rss_bytes()),
                // Ids sort by when they were made.
                Sort::Age => one.id.cmp(&other.id),
            };
            // Those that live come first, whatever is asked for.
            let by_life = other.state().is_live().cmp(&one.state().is_live());
            by_life.then(by_choice).then_with(|| by_state(one).cmp(&by_state(other)))
        });
        rows
    }

    pub fn selected_row(&self) -> Option<&Row> {
        self.rows.iter().find(|row| Some(row.id) == self.selected)
    }

    /// What is selected stays selected for as long as it is shown; else it is the first one.
    fn keep_selection(&mut self) {
        let shown = self.shown();
        let is_there = shown.iter().any(|row| Some(row.id) == self.selected);
        let first = shown.first().map(|row| row.id);
        if !is_there {
            self.select(first);
        }
    }

    fn select(&mut self, id: Option<SessionId>) {
        if self.selected != id {
            self.selected = id;
            self.log = Log::default();
            self.log_back = 0;
        }
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), hint: String::new(), is_error: false });
    }

    pub fn complain(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), hint: hint.into(), is_error: true });
    }

    /// Shows a question, to be answered.
    pub fn ask(&mut self, question: Question) {
        // Whoever went elsewhere meanwhile is not interrupted.
        if self.mode == Mode::Table || self.mode == Mode::Log {
            self.question = Some(question);
            self.question_down = 0;
            self.behind = std::mem::replace(&mut self.mode, Mode::Question);
        }
    }

    /// What a key does.
    pub fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Action::Interrupt),
                KeyCode::Char('z') => return Some(Action::Suspend),
                KeyCode::Char('l') => return Some(Action::Redraw),
                KeyCode::Char('u') if self.mode == Mode::Filter => self.look_for(String::new()),
                _ => {}
            }
            return None;
        }
        self.notice = None;
        match self.mode {
            Mode::Table => self.table_key(key.code),
            Mode::Filter => self.filter_key(key.code),
            Mode::Log => self.log_key(key.code),
            Mode::Help => {
                self.mode = Mode::Table;
                None
            }
            Mode::Question => self.question_key(key.code),
            Mode::Archive(session) => {
                self.mode = Mode::Table;
                if key.code == KeyCode::Char('y') {
                    return self.deed(Deed::Archive { session });
                }
                self.say("not archived");
                None
            }
        }
    }

    fn table_key(&mut self, key: KeyCode) -> Option<Action> {
        match key {
            KeyCode::Char('q') => return Some(Action::Leave),
            KeyCode::Esc if self.filter.is_empty() => return Some(Action::Leave),
            KeyCode::Esc => self.look_for(String::new()),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => {
                self.is_live_only = !self.is_live_only;
                self.keep_selection();
                self.say(if self.is_live_only { "only sessions with a process" } else { "all sessions" });
            }
            KeyCode::Char('c') => self.sort_by(Sort::Cpu, "sorted by CPU"),
            KeyCode::Char('m') => self.sort_by(Sort::Memory, "sorted by memory"),
            KeyCode::Char('a') => self.sort_by(Sort::Age, "sorted by age, oldest first"),
            KeyCode::Enter if self.selected.is_some() => self.mode = Mode::Log,
            KeyCode::Char('x' | 'y' | 'n' | 'r' | 'A') => return self.session_key(key),
            _ => self.move_key(key),
        }
        None
    }

    fn sort_by(&mut self, sort: Sort, words: &str) {
        let is_again = self.sort == sort;
        self.sort = if is_again { Sort::State } else { sort };
        self.say(if is_again { "sorted by state" } else { words });
    }

    fn move_key(&mut self, key: KeyCode) {
        let shown: Vec<SessionId> = self.shown().iter().map(|row| row.id).collect();
        let Some(last) = shown.len().checked_sub(1) else { return };
        let at = shown.iter().position(|id| Some(*id) == self.selected).unwrap_or(0);
        let to = match key {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp => at.saturating_sub(self.page),
            KeyCode::PageDown => at + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
        self.select(shown.get(to.min(last)).copied());
    }

    /// What is done to the selected session.
    fn session_key(&mut self, key: KeyCode) -> Option<Action> {
        let Some(row) = self.selected_row() else {
            self.complain("no session is selected", "start one with `acpd run \"…\"`");
            return None;
        };
        let session = row.id;
        let turn = row.process.as_ref().and_then(|process| process.turn).map(|(turn, _)| turn);
        match key {
            KeyCode::Char('x') if turn.is_none() && row.queued() == 0 => {
                self.say("no turn is running");
                None
            }
            KeyCode::Char('x') => self.deed(Deed::Cancel { session, turn }),
            KeyCode::Char('y' | 'n') if row.questions() == 0 => {
                self.say("no permission request is open");
                None
            }
            KeyCode::Char('y' | 'n') => self.deed(Deed::FindQuestion { session }),
            KeyCode::Char('r') if row.status == crate::model::SessionStatus::Active => {
                self.say("the session is already active");
                None
            }
            KeyCode::Char('r') => self.deed(Deed::Resume { session }),
            KeyCode::Char('A') => {
                self.mode = Mode::Archive(session);
                None
            }
            _ => None,
        }
    }

    fn deed(&mut self, deed: Deed) -> Option<Action> {
        if let Some(doing) = self.doing {
            self.say(format!("still {doing}"));
            return None;
        }
        self.doing = Some(deed.words());
        Some(Action::Do(deed))
    }

    fn filter_key(&mut self, key: KeyCode) -> Option<Action> {
        let mut filter = std::mem::take(&mut self.filter);
        match key {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                filter.clear();
                self.mode = Mode::Table;
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(character) if filter.chars().count() < FILTER_CHARS_MAX => filter.push(character),
            _ => {}
        }
        self.look_for(filter);
        if matches!(key, KeyCode::Up | KeyCode::Down) {
            self.move_key(key);
        }
        None
    }

    fn look_for(&mut self, filter: String) {
        self.filter = filter;
        self.keep_selection();
    }

    fn log_key(&mut self, key: KeyCode) -> Option<Action> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => {
                self.mode = Mode::Table;
                self.log_back = 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.log_back += 1,
            KeyCode::Down | KeyCode::Char('j') => self.log_back = self.log_back.saturating_sub(1),
            KeyCode::PageUp => self.log_back += self.page,
            KeyCode::PageDown => self.log_back = self.log_back.saturating_sub(self.page),
            // The screen takes it back to as far as the log reaches.
            KeyCode::Home | KeyCode::Char('g') => self.log_back = usize::MAX / 2,
            KeyCode::End | KeyCode::Char('G') => self.log_back = 0,
            KeyCode::Char('x' | 'y' | 'n' | 'r') => return self.session_key(key),
            _ => {}
        }
        None
    }

    fn question_key(&mut self, key: KeyCode) -> Option<Action> {
        let (decision, always) = match key {
            KeyCode::Char('y') => (Decision::Allow, false),
            KeyCode::Char('Y') => (Decision::Allow, true),
            KeyCode::Char('n') => (Decision::Reject, false),
            KeyCode::Up | KeyCode::Char('k') => {
                self.question_down = self.question_down.saturating_sub(1);
                return None;
            }
            KeyCode::Down | KeyCode::Char('j') => {
                self.question_down += 1;
                return None;
            }
            KeyCode::PageUp => {
                self.question_down = self.question_down.saturating_sub(self.page);
                return None;
            }
            KeyCode::PageDown => {
                self.question_down += self.page;
                return None;
            }
            KeyCode::Char('q') | KeyCode::Esc => {
                self.close_question();
                self.say("not answered; the agent is still waiting");
                return None;
            }
            _ => return None,
        };
        let question = Box::new(self.close_question()?);
        self.deed(Deed::Answer { question, decision, always })
    }
}
