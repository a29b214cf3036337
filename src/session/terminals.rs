//! Terminals of the agent's: commands that acpd runs for it, for as long as its process lives.
//!
//! ```text
//! create ──▶ prepared ──▶ consent ──▶ started ──▶ (output, wait, kill)* ──▶ ended ──▶ released
//! ```
//!
//! One that is released, or whose agent is gone, is killed, and is there until nothing is left of it.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::actor::SessionActor;
use super::consent::Deed;
use super::services::{Asked, CANCELLED, Done};
use crate::acp::client::{CreateTerminal, TerminalCall};
use crate::acp::{RpcError, outgoing};
use crate::agent::{
    Command, FileError, Prepared, Process, SpawnError, Terminal, TerminalBounds, TerminalEnd, TerminalError,
    TerminalRights, TerminalTold, prepare,
};
use crate::model::error::chain;
use crate::model::permission::{Action, CommandText, ToolKind};
use crate::model::{Adapter, EventBody};
use crate::store::Op;

/// What was told of terminals and waits for the actor. Each has two things to tell.
const TOLD_MAX: usize = 64;
/// Requests that wait for the end of one terminal.
const WAITS_MAX: usize = 16;

/// Words of a command that was refused, of which there may be any number, that are recorded.
const WORDS_SHOWN_MAX: usize = 64;

/// A terminal that waits for consent, or to be started.
pub(super) struct TerminalStart {
    pub asked: Asked,
    prepared: Prepared,
    output_bytes_max: usize,
}

impl TerminalStart {
    pub fn title(&self) -> String {
        format!("Run {}", self.command().join(" "))
    }

    /// What it holds in memory while it waits.
    pub fn bytes(&self) -> usize {
        self.prepared.args.iter().map(String::len).sum()
    }

    /// What is executed.
    fn command(&self) -> Vec<String> {
        match &self.prepared.text {
            CommandText::Arguments(words) => words.clone(),
            CommandText::Shell(_) => {
                let program = self.prepared.program.display().to_string();
                [vec![program], self.prepared.args.clone()].concat()
            }
        }
    }
}

/// What came of a look at what is to be run.
pub(super) struct TerminalDone {
    asked: Asked,
    create: CreateTerminal,
    outcome: Result<Prepared, TerminalError>,
}

/// A terminal that is there.
struct There {
    terminal: Terminal,
    /// Until it has started: whoever waits for that, and who has allowed it.
    start: Option<(Box<TerminalStart>, String)>,
    waits: Vec<Asked>,
    end: Option<TerminalEnd>,
    /// Nobody knows its id any more.
    is_released: bool,
}

impl There {
    fn release(&mut self) {
        self.is_released = true;
        self.terminal.kill();
    }
}

pub(super) struct Terminals {
    there: BTreeMap<String, There>,
    teller: mpsc::Sender<(String, TerminalTold)>,
    told: mpsc::Receiver<(String, TerminalTold)>,
}

impl Default for Terminals {
    fn default() -> Self {
        let (teller, told) = mpsc::channel(TOLD_MAX);
        Self { there: BTreeMap::new(), teller, told }
    }
}

impl Terminals {
    /// The next thing that a terminal tells. Safe to cancel.
    pub async fn next(&mut self) -> (String, TerminalTold) {
        match self.told.recv().await {
            Some(told) => told,
            // We hold a sender ourselves, so there is no end.
            None => std::future::pending().await,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.there.is_empty()
    }

    pub fn shims(&self) -> impl Iterator<Item = i32> {
        self.there.values().filter(|there| there.end.is_none()).map(|there| there.terminal.shim())
    }

    pub fn is_starting(&self) -> bool {
        self.there.values().any(|there| there.start.is_some())
    }

    pub fn is_awaited(&self) -> bool {
        self.there.values().any(|there| !there.waits.is_empty())
    }

    /// The agent is gone, or on its way: so are its terminals.
    pub fn end(&mut self) {
        for there in self.there.values_mut() {
            there.waits.clear();
            there.release();
        }
        self.there.retain(|_, there| there.end.is_none());
    }
}

impl SessionActor {
    pub(super) fn on_create_terminal(&mut self, asked: Asked, create: CreateTerminal) {
        if self.profile.terminal_commands.is_empty() {
            return self.fail_without_terminals(&asked);
        }
        if self.is_winding_down() {
            return self.fail(&asked, RpcError::CANCELLED, CANCELLED);
        }
        let workspace = match self.held_workspace() {
            Ok(workspace) => workspace,
            Err(error) => return self.refuse_terminal(&asked, &words(&create), &error.to_string(), None),
        };
        let rights = TerminalRights {
            agent: self.profile.slug.clone(),
            listed: self.profile.terminal_commands.clone(),
            variables: self.profile.terminal_env.clone(),
            path: self.shared.environment.get("PATH").cloned(),
        };
        let bytes = create.command.len() + create.args.iter().map(String::len).sum::<usize>();
        let persona = self.persona.clone();
        self.services.push(asked.clone(), bytes, move || {
            let outcome = persona.run(|| prepare(&create, &workspace, &rights));
            let outcome = outcome.map_err(|error| TerminalError::Directory(FileError::System(error))).flatten();
            Done::Terminal(TerminalDone { asked, create, outcome })
        });
    }

    fn fail_without_terminals(&mut self, asked: &Asked) {
        let key = format!("agents.{}.terminal_commands", self.profile.slug);
        let message = format!("the agent's profile allows no terminals: {key} lists no commands");
        self.fail(asked, RpcError::METHOD_NOT_FOUND, message);
    }

    pub(super) fn on_terminal_done(&mut self, done: TerminalDone) {
        let TerminalDone { asked, create, outcome } = done;
        if !self.is_from_this_process(&asked) {
            return;
        }
        if self.is_too_late(&asked) {
            return self.fail(&asked, RpcError::CANCELLED, CANCELLED);
        }
        let prepared = match outcome {
            Ok(prepared) => prepared,
            Err(error) => {
                if let TerminalError::Directory(error) = &error {
                    self.note_escape(create.cwd.as_deref().unwrap_or(&self.workspace), error);
                }
                return self.refuse_terminal(&asked, &words(&create), &error.to_string(), None);
            }
        };
        let limit = self.shared.config().limits.terminal_output.0;
        let asked_for = create.output_byte_limit.and_then(|bytes| usize::try_from(bytes).ok());
        let output_bytes_max = asked_for.map_or(limit, |bytes| bytes.min(limit));
        let cwd = prepared.place.to_string_lossy().into_owned();
        let action = Action {
            kind: ToolKind::Execute,
            command: Some(prepared.text.clone()),
            cwd: Some(cwd.clone()).filter(|cwd| !cwd.is_empty()),
            env: prepared.environment.clone(),
            ..Action::default()
        };
        let start = TerminalStart { asked, prepared, output_bytes_max };
        let input = json!({ "command": action.command, "cwd": cwd, "env": action.env });
        let question = self.question(start.title(), "execute", json!({ "rawInput": input }));
        self.seek_consent(&action, question, Deed::Terminal(Box::new(start)));
    }

    pub(super) fn refuse_terminal_start(&mut self, start: &TerminalStart, by: &str) {
        let (asked, command) = (&start.asked, start.command());
        let reason = format!("permission was denied ({by})");
        self.notice(asked.turn, "permission_rejected", format!("run {}: {reason}", command.join(" ")));
        self.refuse_terminal(asked, &command, &reason, Some(by));
    }

    pub(super) fn perform_terminal(&mut self, start: Box<TerminalStart>, by: &str) {
        let asked = start.asked.clone();
        let terminals_max = self.shared.config().limits.terminals;
        if self.terminals.there.len() >= terminals_max {
            let reason = format!(
                "the session already has {terminals_max} terminals (limits.terminals); release one \
                first"
            );
            return self.refuse_terminal(&asked, &start.command(), &reason, None);
        }
        let id = format!("terminal-{}", uuid::Uuid::now_v7());
        match self.spawn_terminal(id.clone(), &start) {
            Ok(terminal) => {
                let start = Some((start, by.to_owned()));
                let there = There { terminal, start, waits: Vec::new(), end: None, is_released: false };
                self.terminals.there.insert(id, there);
            }
            Err(error) => self.refuse_terminal(&asked, &start.command(), &chain(&error), None),
        }
    }

    fn spawn_terminal(&self, id: String, start: &TerminalStart) -> Result<Terminal, SpawnError> {
        let Prepared { program, args, environment, directory, .. } = &start.prepared;
        let failed = |source| {
            let (program, workspace) = (program.clone(), self.workspace.clone());
            SpawnError::Spawn { program, workspace, source }
        };
        let (program, args, directory) = (program.clone(), args.clone(), directory.try_clone().map_err(failed)?);
        let (workspace, inherited) = (&self.workspace, self.inherited_environment());
        let mut command = Command::for_terminal(self.id, program, args, workspace, directory, &inherited);
        if let Some(account) = self.persona.account() {
            command = command.owned_by(account);
        }
        let mut command = self.confined(command, Adapter::Generic)?;
        // A person's command works in the user's home.
        command.adapter_home = None;
        command.environment.extend(environment.clone());
        let bounds = TerminalBounds { output_bytes_max: start.output_bytes_max, umask: self.shared.umask };
        let door = self.link.process().and_then(Process::cgroup_door);
        let teller = self.terminals.teller.clone();
        Terminal::spawn(id, &command, bounds, door, &self.shared.host, teller)
    }

    pub(super) fn on_terminal_told(&mut self, id: &str, told: TerminalTold) {
        let Some(there) = self.terminals.there.get_mut(id) else { return };
        match told {
            TerminalTold::Started => {
                let Some((start, decided_by)) = there.start.take() else { return };
                let mark = self.outbox.mark();
                let body = EventBody::TerminalCreated {
                    terminal_id: id.to_owned(),
                    command: start.command(),
                    cwd: self.recorded(&start.prepared.place),
                    env: start.prepared.environment.clone(),
                    decided_by,
                };
                self.record(Op::Event { turn: start.asked.turn, body });
                let line = outgoing::success(&start.asked.id, json!({ "terminalId": id }));
                self.reply(&start.asked, mark, line);
            }
            TerminalTold::Ended(end) => self.on_terminal_ended(id, end),
        }
    }

    fn on_terminal_ended(&mut self, id: &str, end: TerminalEnd) {
        let Some(there) = self.terminals.there.get_mut(id) else { return };
        let waits = std::mem::take(&mut there.waits);
        if let Some((start, _)) = there.start.take() {
            self.terminals.there.remove(id);
            let reason = end.failure.unwrap_or_else(|| "the terminal ended before its command started".to_owned());
            return self.refuse_terminal(&start.asked, &start.command(), &reason, None);
        }
        there.end = Some(end.clone());
        if there.is_released {
            self.terminals.there.remove(id);
        }
        let mark = self.outbox.mark();
        let (exit_code, signal) = (end.code, signal_name(&end));
        let body = EventBody::TerminalExited { terminal_id: id.to_owned(), exit_code, signal };
        self.record(Op::Event { turn: self.running_turn(), body });
        for asked in waits {
            self.reply(&asked, mark, outgoing::success(&asked.id, status(&end)));
        }
    }

    pub(super) fn on_terminal_call(&mut self, asked: Asked, id: &str, call: TerminalCall) {
        if self.profile.terminal_commands.is_empty() {
            return self.fail_without_terminals(&asked);
        }
        let Some(there) = self.terminals.there.get_mut(id).filter(|there| !there.is_released) else {
            let message = format!("there is no terminal {:?}", self.recorded(id));
            return self.fail(&asked, RpcError::NOT_FOUND, message);
        };
        let answer = match (call, &there.end) {
            (TerminalCall::Output, end) => {
                let (output, truncated) = there.terminal.output(end.is_some());
                let mut answer = json!({ "output": output, "truncated": truncated });
                if let Some(end) = end {
                    answer["exitStatus"] = status(end);
                }
                answer
            }
            (TerminalCall::WaitForExit, Some(end)) => status(end),
            (TerminalCall::WaitForExit, None) if there.waits.len() < WAITS_MAX => return there.waits.push(asked),
            (TerminalCall::WaitForExit, None) => {
                let message = format!("{WAITS_MAX} requests already wait for this terminal to end");
                return self.fail(&asked, RpcError::INTERNAL_ERROR, message);
            }
            (TerminalCall::Kill, _) => {
                there.terminal.kill();
                json!({})
            }
            (TerminalCall::Release, Some(_)) => {
                self.terminals.there.remove(id);
                json!({})
            }
            (TerminalCall::Release, None) => {
                there.release();
                json!({})
            }
        };
        let line = outgoing::success(&asked.id, answer);
        self.reply(&asked, self.outbox.mark(), line);
    }

    /// The agent takes back that it waits for the end of a terminal.
    pub(super) fn cancel_waits(&mut self, request: &RawValue) {
        let is_meant = |asked: &mut Asked| asked.id.get() == request.get();
        let waits = self.terminals.there.values_mut().flat_map(|there| there.waits.extract_if(.., is_meant));
        let waits: Vec<Asked> = waits.collect();
        for asked in waits {
            self.fail(&asked, RpcError::CANCELLED, "the agent cancelled the request");
        }
    }

    fn refuse_terminal(&mut self, asked: &Asked, command: &[String], reason: &str, by: Option<&str>) {
        let code = if by.is_some() { RpcError::INTERNAL_ERROR } else { RpcError::INVALID_PARAMS };
        let mark = self.outbox.mark();
        let body = EventBody::TerminalRefused {
            command: command.iter().take(WORDS_SHOWN_MAX).map(|word| self.recorded(word)).collect(),
            reason: reason.to_owned(),
            decided_by: by.map(str::to_owned),
        };
        self.record(Op::Event { turn: asked.turn, body });
        self.reply(asked, mark, outgoing::failure(&asked.id, code, reason));
    }
}

fn words(create: &CreateTerminal) -> Vec<String> {
    [std::slice::from_ref(&create.command), &create.args].concat()
}

fn status(end: &TerminalEnd) -> Value {
    json!({ "exitCode": end.code, "signal": signal_name(end) })
}

fn signal_name(end: &TerminalEnd) -> Option<String> {
    let number = end.signal?;
    Some(Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned()))
}
