//! Files that the agent reads and writes through acpd.
//!
//! The policy judges the *real* path, the one without links, beside the one that was named; and a write goes to that real
//! path and to no other, whatever became of the links meanwhile.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::actor::SessionActor;
use super::consent::Deed;
use super::services::{Asked, CANCELLED, Done};
use crate::acp::client::FileCall;
use crate::acp::{RpcError, outgoing};
use crate::agent::{FileError, FileIdentity, Target, TextRead, Window, check_text};
use crate::model::EventBody;
use crate::model::permission::{Action, ToolKind, Verdict};
use crate::store::Op;

/// A write that waits for consent, or to be done.
pub(super) struct FileWrite {
    pub asked: Asked,
    /// As the agent named it.
    named: PathBuf,
    /// From the workspace, without links.
    real: PathBuf,
    pub content: String,
    /// Which file is there, if there is one. Another one is not replaced.
    found: Option<FileIdentity>,
}

/// A read that waits for consent. What it is answered with is what was there when it was asked for.
pub(super) struct FileRead {
    pub asked: Asked,
    named: PathBuf,
    real: PathBuf,
    window: Window,
    pub content: String,
}

/// What came of a job.
pub(super) enum FileDone {
    Read { asked: Asked, path: PathBuf, window: Window, outcome: Result<TextRead, FileError> },
    Found { asked: Asked, path: PathBuf, content: String, outcome: Result<Target, FileError> },
    Written { write: Box<FileWrite>, decided_by: String, outcome: Result<(), FileError> },
}

/// What is shown of an old text that cannot be: without it, the file would look like a new one.
const OLD_NOT_SHOWN: &str = "(the file is too large to show, or is not text)";

impl FileWrite {
    pub fn title(&self) -> String {
        format!("Write {}", self.real.display())
    }
}

impl FileRead {
    pub fn title(&self) -> String {
        format!("Read {}", self.real.display())
    }
}

impl SessionActor {
    pub(super) fn on_file_call(&mut self, asked: Asked, call: FileCall) {
        if !self.profile.client_files {
            let message = format!("acpd's file access is off (agents.{}.client_files is false)", self.profile.slug);
            return self.fail(&asked, RpcError::METHOD_NOT_FOUND, message);
        }
        let file_max = self.shared.config().limits.file_max.0;
        match call {
            FileCall::Read { path, line, limit } => {
                let workspace = match self.held_workspace() {
                    Ok(workspace) => workspace,
                    Err(error) => return self.refuse_file(&asked, &path, "read", &error),
                };
                let window = Window { line, limit };
                let persona = self.persona.clone();
                self.services.push(asked.clone(), 0, move || {
                    let outcome = persona.run_on_files(|| workspace.read_text(&path, window, file_max));
                    Done::File(FileDone::Read { asked, path, window, outcome })
                });
            }
            FileCall::Write { .. } if self.is_winding_down() => {
                self.fail(&asked, RpcError::CANCELLED, CANCELLED);
            }
            FileCall::Write { path, content } => {
                let checked = check_text(&content, file_max).and_then(|()| self.held_workspace());
                let workspace = match checked {
                    Ok(workspace) => workspace,
                    Err(error) => return self.refuse_file(&asked, &path, "write", &error),
                };
                let persona = self.persona.clone();
                self.services.push(asked.clone(), content.len(), move || {
                    let outcome = persona.run_on_files(|| workspace.find_target(&path));
                    Done::File(FileDone::Found { asked, path, content, outcome })
                });
            }
        }
    }

    pub(super) fn on_file_done(&mut self, done: FileDone) {
        match done {
            // Whoever asked is gone, and nothing has happened yet.
            FileDone::Read { asked, .. } | FileDone::Found { asked, .. } if !self.is_from_this_process(&asked) => {}
            FileDone::Read { asked, path, window, outcome } => self.on_read(&asked, &path, window, outcome),
            FileDone::Found { asked, path, outcome: Err(error), .. } => {
                self.refuse_file(&asked, &path, "write", &error);
            }
            FileDone::Found { asked, path, content, outcome: Ok(target) } => {
                self.on_target(asked, path, content, target);
            }
            FileDone::Written { write, outcome: Err(error), .. } => {
                self.refuse_file(&write.asked, &write.named, "write", &error);
            }
            FileDone::Written { write, decided_by, outcome: Ok(()) } => {
                let FileWrite { asked, real, content, found, .. } = *write;
                let mark = self.outbox.mark();
                let (path, is_new) = (self.recorded(&real), found.is_none());
                let body = EventBody::FileWritten { path, bytes: content.len(), is_new, decided_by };
                self.record(Op::Event { turn: asked.turn, body });
                self.reply(&asked, mark, outgoing::success(&asked.id, json!({})));
            }
        }
    }

    /// An agent that works in the workspace can read it by itself, so a mode has nobody asked; but what the policy forbids
    /// is forbidden, and what a rule wants asked is asked.
    fn on_read(&mut self, asked: &Asked, path: &Path, window: Window, outcome: Result<TextRead, FileError>) {
        let TextRead { real, content } = match outcome {
            Err(FileError::NotFound) if self.profile.adapter.quirks().reads_new_files => {
                let real = path.strip_prefix(&self.workspace).unwrap_or(path).to_owned();
                TextRead { real, content: String::new() }
            }
            Err(error) => return self.refuse_file(asked, path, "read", &error),
            Ok(read) => read,
        };
        let action = Action { kind: ToolKind::Read, paths: paths(&self.workspace, &real, path), ..Action::default() };
        let located = self.located(&action, None);
        let read = FileRead { asked: asked.clone(), named: path.to_owned(), real, window, content };
        match self.permissions.judge(&located) {
            Verdict::Deny { by } => self.refuse_read(&read, &format!("policy {by}")),
            Verdict::Allow { by } => self.perform_read(read, &format!("policy {by}")),
            Verdict::Ask if !self.permissions.has_rule_that_asks(&located) => {
                self.perform_read(read, "policy workspace read");
            }
            Verdict::Ask if self.is_too_late(asked) => self.fail(asked, RpcError::CANCELLED, CANCELLED),
            Verdict::Ask => {
                let absolute = self.recorded(self.workspace.join(&read.real));
                let question = self.question(read.title(), "read", json!({ "locations": [{ "path": absolute }] }));
                self.seek_consent(&action, question, Deed::Read(Box::new(read)));
            }
        }
    }

    pub(super) fn perform_read(&mut self, read: FileRead, by: &str) {
        let FileRead { asked, real, window: Window { line, limit }, content, .. } = read;
        let mark = self.outbox.mark();
        let (path, decided_by) = (self.recorded(&real), by.to_owned());
        let body = EventBody::FileRead { path, bytes: content.len(), line, limit, decided_by };
        self.record(Op::Event { turn: asked.turn, body });
        self.reply(&asked, mark, outgoing::success(&asked.id, json!({ "content": content })));
    }

    pub(super) fn refuse_read(&mut self, read: &FileRead, by: &str) {
        self.refuse_by_policy(&read.asked, &read.named, "read", by);
    }

    fn on_target(&mut self, asked: Asked, named: PathBuf, content: String, target: Target) {
        if self.is_too_late(&asked) {
            return self.fail(&asked, RpcError::CANCELLED, CANCELLED);
        }
        let Target { real, old, identity: found } = target;
        let action = Action { kind: ToolKind::Edit, paths: paths(&self.workspace, &real, &named), ..Action::default() };
        let absolute = self.recorded(self.workspace.join(&real));
        let old = old.or_else(|| found.map(|_| OLD_NOT_SHOWN.to_owned())).map(|old| self.excerpt(&old));
        let new = self.excerpt(&content);
        let write = Box::new(FileWrite { asked, named, real, content, found });
        let question = self.question(
            write.title(),
            "edit",
            json!({
                "locations": [{ "path": absolute }],
                "content": [{ "type": "diff", "path": absolute, "oldText": old, "newText": new }],
            }),
        );
        self.seek_consent(&action, question, Deed::Write(write));
    }

    pub(super) fn refuse_write(&mut self, write: &FileWrite, by: &str) {
        self.refuse_by_policy(&write.asked, &write.named, "write", by);
    }

    pub(super) fn perform_write(&mut self, write: Box<FileWrite>, by: &str) {
        let workspace = match self.held_workspace() {
            Ok(workspace) => workspace,
            Err(error) => return self.refuse_file(&write.asked, &write.named, "write", &error),
        };
        let (persona, umask, decided_by) = (self.persona.clone(), self.shared.umask, by.to_owned());
        self.services.push(write.asked.clone(), write.content.len(), move || {
            let outcome =
                persona.run_on_files(|| workspace.write_text(&write.real, write.found, &write.content, umask));
            Done::File(FileDone::Written { write, decided_by, outcome })
        });
    }

    fn refuse_file(&mut self, asked: &Asked, path: &Path, operation: &'static str, error: &FileError) {
        self.note_escape(path, error);
        let code = match error {
            FileError::NotFound => RpcError::NOT_FOUND,
            FileError::System(_) | FileError::Changed | FileError::Denied => RpcError::INTERNAL_ERROR,
            _ => RpcError::INVALID_PARAMS,
        };
        self.record_refusal(asked, path, operation, code, error.to_string(), None);
    }

    fn refuse_by_policy(&mut self, asked: &Asked, path: &Path, operation: &'static str, by: &str) {
        let reason = format!("permission was denied ({by})");
        self.notice(asked.turn, "permission_rejected", format!("{operation} {}: {reason}", self.recorded(path)));
        self.record_refusal(asked, path, operation, RpcError::INTERNAL_ERROR, reason, Some(by.to_owned()));
    }

    fn record_refusal(
        &mut self,
        asked: &Asked,
        path: &Path,
        operation: &'static str,
        code: i64,
        reason: String,
        decided_by: Option<String>,
    ) {
        let path = self.recorded(path);
        let line = outgoing::failure(&asked.id, code, format!("{path}: {reason}"));
        let mark = self.outbox.mark();
        self.record(Op::Event {
            turn: asked.turn,
            body: EventBody::FileRefused { path, operation, reason, decided_by },
        });
        self.reply(asked, mark, line);
    }
}

/// The path that counts, and the one that was named where that is another.
fn paths(workspace: &Path, real: &Path, named: &Path) -> Vec<String> {
    let is_same = named.strip_prefix(workspace).unwrap_or(named) == real;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    if is_same { vec![text(real)] } else { vec![text(real), text(named)] }
}
