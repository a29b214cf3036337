//! The processes of agents as the daemon measures them now, beside the sessions that they work for.

use std::collections::HashMap;

use hyper::StatusCode;

use crate::control::wire::{DaemonProcess, ProcessList, RunningProcess, Session};
use crate::model::{ProcessState, SessionId};

use super::connection::Daemon;
use super::error::ClientError;
use super::style::Paint;
use super::table::Cell;
use super::text::size;

/// What stands for a process that is not there.
const NONE: &str = "—";

#[derive(Debug, Default)]
pub struct Processes {
    by_session: HashMap<SessionId, RunningProcess>,
    pub daemon: Option<DaemonProcess>,
}

impl Processes {
    /// The processes; with `all` and for root, of whichever user. An older daemon cannot tell, and has none to tell of.
    pub async fn ask(daemon: &Daemon, all: bool) -> Result<Self, ClientError> {
        match daemon.get::<ProcessList>(&format!("/v1/processes?all={all}")).await {
            Ok(list) => {
                let by_session = list.processes.into_iter().map(|process| (process.session_id, process)).collect();
                Ok(Self { by_session, daemon: Some(list.daemon) })
            }
            Err(ClientError::Api { status: StatusCode::NOT_FOUND, .. }) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub fn of(&self, session: SessionId) -> Option<&RunningProcess> {
        self.by_session.get(&session)
    }

    /// What the session's process does: busy, ready, starting, stopping; or that there is none.
    pub fn state(&self, session: &Session) -> &'static str {
        state_word(self.state_of(session))
    }

    pub fn state_cell(&self, session: &Session) -> Cell {
        state_cell(self.state_of(session))
    }

    fn state_of(&self, session: &Session) -> ProcessState {
        self.of(session.id).map_or(session.process_state, |process| process.process_state)
    }

    pub fn memory(&self, session: SessionId) -> String {
        self.of(session).map(|process| size(process.rss_bytes)).unwrap_or_default()
    }

    pub fn queued(&self, session: SessionId) -> u64 {
        self.of(session).map_or(0, |process| process.queued_turns as u64)
    }
}

fn state_word(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Stopped => NONE,
        other => other.as_str(),
    }
}

pub fn state_cell(state: ProcessState) -> Cell {
    let paint = match state {
        ProcessState::Busy => Paint::Bold,
        ProcessState::Stopped => Paint::Dim,
        _ => Paint::Plain,
    };
    Cell::new(state_word(state), paint)
}
