//! A session as one row: who it is, what it does now, and what that costs. Everything that others wrote is cleaned here.

use crate::cli::text::{age, one_line, steady};
use crate::control::wire::{RunningProcess, Session};
use crate::model::{ProcessState, SessionId, SessionStatus, Timestamp, TurnId};

/// What matters of a session at a glance, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It waits for a person.
    Asks,
    Busy,
    Starting,
    Stopping,
    Ready,
    /// It has no process, and needs none now.
    Stopped,
    Suspended,
    Error,
    Archived,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asks => "asks",
            Self::Busy => "busy",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
            Self::Suspended => "suspended",
            Self::Error => "error",
            Self::Archived => "archived",
        }
    }

    /// Whether there is a process, or somebody to be asked.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Asks | Self::Busy | Self::Starting | Self::Stopping | Self::Ready => true,
            Self::Stopped | Self::Suspended | Self::Error | Self::Archived => false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub id: SessionId,
    pub owner: Option<u32>,
    pub agent: String,
    pub title: String,
    pub workspace: String,
    pub status: SessionStatus,
    pub turns: Option<i64>,
    pub created_at: Option<Timestamp>,
    pub last_active_at: Option<Timestamp>,
    paused: Option<String>,
    last_error: Option<String>,
    pub process: Option<Process>,
    /// The title of its oldest open question.
    pub question: Option<String>,
    open_permissions: usize,
}

/// What a session runs.
#[derive(Clone, Debug)]
pub struct Process {
    pub state: ProcessState,
    pub pid: Option<u32>,
    pub count: usize,
    pub rss_bytes: u64,
    /// In hundredths of one processor, once two looks have shown it.
    pub cpu_percent: Option<f64>,
    pub turn: Option<(TurnId, Timestamp)>,
    pub tool: Option<(String, Option<Timestamp>)>,
    pub queued: usize,
    pub open_permissions: usize,
}

impl Row {
    pub fn of_session(session: &Session) -> Self {
        Self {
            id: session.id,
            owner: session.owner,
            agent: one_line(&session.agent),
            title: steady(&one_line(&session.title)),
            workspace: below_home(&session.workspace),
            status: session.status,
            turns: Some(session.turns),
            created_at: Some(session.created_at),
            last_active_at: Some(session.last_active_at),
            paused: session.paused.as_deref().map(one_line),
            last_error: session.last_error.as_ref().map(|error| one_line(&error.message)),
            process: None,
            question: None,
            open_permissions: usize::try_from(session.open_permissions).unwrap_or(0),
        }
    }

    /// Of a session that is in no list yet.
    pub fn of_process(process: &RunningProcess) -> Self {
        Self {
            id: process.session_id,
            owner: process.owner,
            agent: one_line(&process.agent),
            title: steady(&one_line(&process.title)),
            workspace: below_home(&process.workspace),
            status: SessionStatus::Active,
            turns: None,
            created_at: None,
            last_active_at: None,
            paused: None,
            last_error: None,
            process: None,
            question: None,
            open_permissions: process.open_permissions,
        }
    }

    pub fn run(&mut self, process: &RunningProcess, cpu_percent: Option<f64>) {
        // A prompt gives a session its title.
        self.title = steady(&one_line(&process.title));
        self.process = Some(Process {
            state: process.process_state,
            pid: process.pid,
            count: process.processes,
            rss_bytes: process.rss_bytes,
            cpu_percent,
            turn: process.turn.as_ref().map(|turn| (turn.id, turn.started_at)),
            tool: process.tool.as_ref().map(|tool| (steady(&one_line(&tool.title)), tool.started_at)),
            queued: process.queued_turns,
            open_permissions: process.open_permissions,
        });
    }

    pub fn state(&self) -> State {
        match (self.status, &self.process) {
            (_, Some(_)) if self.questions() > 0 => State::Asks,
            (_, Some(process)) => match process.state {
                ProcessState::Starting => State::Starting,
                ProcessState::Ready => State::Ready,
                ProcessState::Busy => State::Busy,
                ProcessState::Stopping => State::Stopping,
                ProcessState::Stopped => State::Stopped,
            },
            (SessionStatus::Active, None) => State::Stopped,
            (SessionStatus::Suspended, None) => State::Suspended,
            (SessionStatus::Error, None) => State::Error,
            (SessionStatus::Archived, None) => State::Archived,
        }
    }

    /// Questions that wait for an answer.
    pub fn questions(&self) -> usize {
        // The process's own word is newer than the list's.
        self.process.as_ref().map_or(self.open_permissions, |process| process.open_permissions)
    }

    pub fn queued(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.queued)
    }

    pub fn cpu_percent(&self) -> Option<f64> {
        self.process.as_ref().and_then(|process| process.cpu_percent)
    }

    pub fn rss_bytes(&self) -> u64 {
        self.process.as_ref().map_or(0, |process| process.rss_bytes)
    }

    /// What it does, or what it waits for.
    pub fn now(&self, now: Timestamp) -> String {
        let took = |since: Option<Timestamp>| since.map(|since| format!(" {}", age(since, now))).unwrap_or_default();
        let turn = self.process.as_ref().and_then(|process| process.turn);
        let tool = self.process.as_ref().and_then(|process| process.tool.as_ref());
        match self.state() {
            State::Asks => self.question.clone().unwrap_or_else(|| "waits for an answer".to_owned()),
            State::Busy => match tool {
                Some((title, since)) => format!("{title}{}", took(*since)),
                None => format!("answering{}", took(turn.map(|(_, since)| since))),
            },
            State::Starting => "agent is starting".to_owned(),
            State::Stopping => "agent is stopping".to_owned(),
            State::Ready | State::Stopped | State::Suspended | State::Error | State::Archived => {
                match (&self.paused, &self.last_error) {
                    (Some(why), _) => format!("paused: {why}"),
                    (None, Some(error)) if self.process.is_none() => error.clone(),
                    _ => self.last_active_at.map(|at| format!("idle {}", age(at, now))).unwrap_or_default(),
                }
            }
        }
    }

    /// Whether what a person looks for is in it.
    pub fn has(&self, lowercase: &str) -> bool {
        let id = self.id.to_string();
        let fields = [&id, &self.agent, &self.title, &self.workspace];
        fields.iter().any(|field| field.to_lowercase().contains(lowercase)) || self.state().as_str().contains(lowercase)
    }
}

/// A path as people write it.
fn below_home(path: &str) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    match path.strip_prefix(home.as_str()).filter(|rest| !home.is_empty() && rest.starts_with('/')) {
        Some(rest) => one_line(&format!("~{rest}")),
        None => one_line(path),
    }
}
