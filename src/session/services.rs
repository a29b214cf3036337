//! What acpd does for an agent that asks for it: files ([`super::files`]) and terminals ([`super::terminals`]).
//!
//! ```text
//! request ──▶ a look at the disk ──▶ consent ──▶ the deed ──▶ the event, committed ──▶ the answer
//!               (a thread)                        (a thread)
//! ```
//!
//! The actor waits for none of it: a job on a thread comes back as an input. Few run at once and few wait; beyond that the
//! agent is held back, as it is when it says too much. A file that is read needs no question, so there is one job for it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::task::JoinSet;

use super::actor::{After, SessionActor};
use super::consent::options_of_acpd;
use super::files::FileDone;
use super::link::Phase;
use super::terminals::TerminalDone;
use super::turns::Running;
use crate::acp::client::{self, ClientCall};
use crate::acp::{RpcError, outgoing};
use crate::agent::{Beneath, FileError};
use crate::model::TurnId;
use crate::model::error::chain;
use crate::security::SecurityEvent;

/// Jobs of one session that run at once.
const JOBS_MAX: usize = 4;
/// Jobs that wait, and the bytes that they hold, from which on the agent is held back.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The longest path that Linux takes; of a longer one only the beginning is recorded.
const PATH_BYTES_MAX: usize = 4096;

/// The part of `limits.payload_max` that each of the two texts of a change has in a question.
const EXCERPT_PARTS: usize = 4;

/// What the agent is told of whatever it asks for too late.
pub(super) const CANCELLED: &str = "the turn was cancelled, or the agent is being stopped";

/// Who asked: the request, the turn it came in, and the process that waits for the answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub id: Box<RawValue>,
    pub turn: Option<TurnId>,
    process: u64,
}

/// What a job brings back.
pub(super) enum Done {
    File(FileDone),
    Terminal(TerminalDone),
}

struct Job {
    asked: Asked,
    /// What it holds in memory while it waits.
    bytes: usize,
    work: Box<dyn FnOnce() -> Done + Send>,
}

#[derive(Default)]
pub(super) struct Services {
    /// Counts the session's processes, so that none gets an answer that another one waited for.
    process: u64,
    /// The workspace's directory, held open for as long as a process works in it.
    workspace: Option<Arc<Beneath>>,
    waiting: VecDeque<Job>,
    waiting_bytes: usize,
    under_way: JoinSet<Done>,
}

impl Services {
    /// A new process begins in the workspace.
    pub fn begin(&mut self, workspace: std::io::Result<Beneath>) {
        self.process += 1;
        self.workspace = match workspace {
            Ok(beneath) => Some(Arc::new(beneath)),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot keep the workspace open; the agent cannot use acpd's file access"
                );
                None
            }
        };
    }

    /// The process is gone, and with it whoever waited. What runs comes to its end.
    pub fn end(&mut self) {
        self.process += 1;
        self.workspace = None;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// The number of the process that is there.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Whether the agent may ask for more.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX && self.waiting_bytes < WAITING_BYTES_MAX
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }

    pub fn push(&mut self, asked: Asked, bytes: usize, work: impl FnOnce() -> Done + Send + 'static) {
        self.waiting_bytes += bytes;
        self.waiting.push_back(Job { asked, bytes, work: Box::new(work) });
        self.start();
    }

    fn start(&mut self) {
        while self.under_way.len() < JOBS_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            self.waiting_bytes -= job.bytes;
            self.under_way.spawn_blocking(job.work);
        }
    }

    /// Resolves when a job is done; never, when there is none. Safe to cancel.
    pub async fn next(&mut self) -> Done {
        loop {
            match self.under_way.join_next().await {
                None => return std::future::pending().await,
                Some(Ok(done)) => {
                    self.start();
                    return done;
                }
                // A job that panicked is the session's panic.
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime is going, and everything with it.
                Some(Err(_)) => {}
            }
        }
    }
}

impl SessionActor {
    /// Serves a request of the agent's, when it is one for files or terminals; else it is not ours.
    pub(super) fn on_client_request(&mut self, id: &RawValue, method: &str, params: &RawValue) -> bool {
        let Some(request) = client::read(method, params) else { return false };
        let asked = Asked { id: id.to_owned(), turn: self.running_turn(), process: self.services.process };
        match request {
            Err(error) => self.fail(&asked, RpcError::INVALID_PARAMS, error),
            Ok(request) if self.is_foreign(&request.agent_session) => {
                let message = format!("{:?} is not the session of this process", request.agent_session);
                self.fail(&asked, RpcError::INVALID_PARAMS, message);
            }
            Ok(request) => match request.call {
                ClientCall::File(call) => self.on_file_call(asked, call),
                ClientCall::Create(create) => self.on_create_terminal(asked, create),
                ClientCall::Terminal { terminal, call } => self.on_terminal_call(asked, &terminal, call),
            },
        }
        true
    }

    pub(super) fn on_job_done(&mut self, done: Done) {
        self.restart_silence();
        match done {
            Done::File(done) => self.on_file_done(done),
            Done::Terminal(done) => self.on_terminal_done(done),
        }
    }

    /// The workspace that is open.
    pub(super) fn held_workspace(&self) -> Result<Arc<Beneath>, FileError> {
        self.services.workspace.clone().ok_or(FileError::NotFound)
    }

    /// Answers once what was recorded since `mark` is committed.
    pub(super) fn reply(&mut self, asked: &Asked, mark: usize, line: Bytes) {
        self.restart_silence();
        self.outbox.then(mark, After::Reply { process: asked.process, line });
    }

    /// Answers a request with an error, and records nothing.
    pub(super) fn fail(&mut self, asked: &Asked, code: i64, message: impl Into<String>) {
        let line = outgoing::failure(&asked.id, code, message);
        self.reply(asked, self.outbox.mark(), line);
    }

    pub(super) fn is_from_this_process(&self, asked: &Asked) -> bool {
        asked.process == self.services.process
    }

    pub(super) fn send_reply(&mut self, process: u64, line: Bytes) {
        if process != self.services.process {
            return;
        }
        self.restart_silence();
        self.send(line);
    }

    /// Whether the agent waits for something from acpd: then its silence means nothing.
    pub(super) fn owes_answer(&self) -> bool {
        self.is_serving() || self.terminals.is_awaited()
    }

    /// Whether something is under way for the agent that comes to its end: then it is not idle. A command that it waits for
    /// may run for ever, and keeps no process that has no turn.
    pub(super) fn is_serving(&self) -> bool {
        !self.inbox.is_empty() || !self.services.is_idle() || self.terminals.is_starting()
    }

    /// Whether it is decided that the turn ends, or the process: then nothing new is begun for it.
    pub(super) fn is_winding_down(&self) -> bool {
        let is_going = matches!(self.link.phase(), Some(Phase::Stopping { .. }) | None);
        is_going || self.running.as_ref().is_some_and(Running::is_ending)
    }

    /// Whether nobody waits for what was asked any more: its turn is over, or about to be.
    pub(super) fn is_too_late(&self, asked: &Asked) -> bool {
        self.is_winding_down() || asked.turn.is_some_and(|turn| self.running_turn() != Some(turn))
    }

    /// The turn ends before its time: what has not begun for it does not begin.
    pub(super) fn cancel_services(&mut self) {
        self.services.waiting_bytes = 0;
        for job in std::mem::take(&mut self.services.waiting) {
            self.fail(&job.asked, RpcError::CANCELLED, CANCELLED);
        }
    }

    pub(super) fn note_escape(&self, path: &Path, error: &FileError) {
        if error.is_escape() {
            let path = self.workspace.join(path);
            let why = format!("agent of session {}: {error}", self.id);
            self.shared.security.refused(SecurityEvent::PathEscape, None, Some(&path), why);
        }
    }

    /// What a person is shown of a deed of acpd's: the same that an agent shows of its own.
    pub(super) fn question(&self, title: String, kind: &str, mut call: Value) -> Box<RawValue> {
        call["title"] = title.into();
        call["kind"] = kind.into();
        call["status"] = "pending".into();
        let question = serde_json::json!({
            "sessionId": self.link.agent_session(), "toolCall": call, "options": options_of_acpd(),
        });
        to_raw_value(&question).map_or_else(|_| RawValue::NULL.to_owned(), |raw| self.transcript.capped(&raw))
    }

    /// A path, or a word of a command, as it is recorded.
    pub(super) fn recorded(&self, path: impl AsRef<Path>) -> String {
        let mut text = path.as_ref().to_string_lossy().into_owned();
        // Before it is cut: half a secret is not recognized any more.
        self.shared.hub.secrets(self.owner_uid).redact(&mut text);
        text.truncate(text.floor_char_boundary(PATH_BYTES_MAX));
        text
    }

    /// A file's text as it is shown in a question, which has room for two of them.
    pub(super) fn excerpt(&self, text: &str) -> String {
        let room = self.shared.config().limits.payload_max.0 / EXCERPT_PARTS;
        let mut shown = text.to_owned();
        self.shared.hub.secrets(self.owner_uid).redact(&mut shown);
        match json_boundary(&shown, room) {
            end if end < shown.len() => {
                format!("{}\n… (shortened: the whole text has {} bytes)", &shown[..end], text.len())
            }
            _ => shown,
        }
    }
}

/// Where a text ends that takes no more than these bytes in JSON.
fn json_boundary(text: &str, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let width = |character: char| match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    };
    let is_over = |character: char| {
        bytes += width(character);
        bytes > bytes_max
    };
    text.find(is_over).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_what_it_takes_in_json() {
        for (text, bytes_max, cut) in
            [("abc", 3, "abc"), ("abcd", 3, "abc"), ("a\nb", 3, "a\n"), ("\u{1}b", 5, ""), ("aüb", 2, "a"), ("", 0, "")]
        {
            let cut_here = &text[..json_boundary(text, bytes_max)];
            assert_eq!(cut_here, cut, "{text:?}");
            assert!(serde_json::to_string(cut_here).unwrap().len() - 2 <= bytes_max);
        }
    }
}
