//! The session's workspace: looked at when a process starts and when a prompt comes, and entered by descriptor.
//!
//! A directory that is not there may come back, and one that was replaced at the same path is taken up with a word. A path
//! that now leads out of the roots must not be worked in any more: that is the end of the session.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::Refusal;
use super::actor::SessionActor;
use super::link::Link;
use crate::agent::{self, NoProgram, OpenWorkspace, Persona, WorkspaceError};
use crate::model::error::chain;
use crate::model::event::ExitReason;
use crate::model::session::DirectoryIdentity;
use crate::model::{ErrorCode, SessionStatus, Trigger, TurnError};
use crate::store::Op;

/// Where a process is started, and as whom.
pub struct StartingPlace {
    /// The owner, as the user database has them now.
    pub persona: Persona,
    /// The directory that it works in, whatever is put at its path from now on.
    pub workspace: OpenWorkspace,
    /// What the owner may run.
    pub program: Result<PathBuf, NoProgram>,
}

pub type Entered = Result<StartingPlace, WorkspaceError>;

/// A look at all of that. The user database or the disk may be far away, so it is a thread that waits for them.
pub struct Entry(JoinHandle<Entered>);

impl Entry {
    /// Resolves once. Safe to cancel.
    pub async fn next(&mut self) -> Entered {
        match (&mut self.0).await {
            Ok(entered) => entered,
            // A job that panicked is the session's panic.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is going, and everything with it.
            Err(_) => std::future::pending().await,
        }
    }
}

impl SessionActor {
    fn open_workspace(&self) -> Result<OpenWorkspace, WorkspaceError> {
        let opened = self.persona.open_workspace(&self.workspace, &self.shared.grounds(&self.persona));
        opened.inspect_err(|error| error.report(&self.shared.security, None))
    }

    /// Looks up what the next process is started with, which comes back as an input.
    pub(super) fn enter_workspace(&self) -> Entry {
        let (shared, owner) = (Arc::clone(&self.shared), self.owner_uid);
        let (path, command) = (self.workspace.clone(), self.profile.command.clone());
        Entry(tokio::task::spawn_blocking(move || {
            // Asked anew for each process: the owner may have got another home or other groups.
            let persona = Persona::of(owner)?;
            let workspace = persona.open_workspace(&path, &shared.grounds(&persona));
            let workspace = workspace.inspect_err(|error| error.report(&shared.security, None))?;
            let found = persona.run(|| agent::find_agent(&command, &shared.environment));
            let program = found.unwrap_or(Err(NoProgram::NotOnPath(command)));
            Ok(StartingPlace { persona, workspace, program })
        }))
    }

    /// Which directory the workspace is now; when that is another one than before, with a word.
    pub(super) fn take_up_workspace(&mut self, identity: DirectoryIdentity) {
        let known = self.workspace_identity;
        if known.is_none_or(|known| !known.is(&identity)) {
            if known.is_some() {
                let text = format!(
                    "{} is now another directory than before; the agent works in the new one",
                    self.workspace.display()
                );
                tracing::warn!(workspace = %self.workspace.display(), "the workspace directory was replaced; using the new one");
                self.notice(None, "workspace_replaced", text);
            }
            self.workspace_identity = Some(identity);
            self.record(Op::SetWorkspaceIdentity(identity));
        }
    }

    /// What keeps a prompt from being taken on by the process that is there. One that works in a directory which is not
    /// its workspace any more makes room for another.
    pub(super) fn look_at_workspace(&mut self) -> Result<(), Refusal> {
        if !matches!(self.link, Link::Up(_)) {
            return Ok(());
        }
        match self.open_workspace() {
            Ok(opened) => {
                let is_same = self.workspace_identity.is_some_and(|known| known.is(&opened.identity));
                if !is_same && self.has_idle_process() {
                    self.stop_process(ExitReason::Idle);
                }
                Ok(())
            }
            Err(error) => {
                let Some(cause) = error.escape() else { return Err(Refusal::Workspace(error)) };
                self.give_up(TurnError::new(ErrorCode::WorkspaceEscaped, cause));
                Err(Refusal::NotActive(SessionStatus::Error))
            }
        }
    }

    /// No process can be started there.
    pub(super) fn on_bad_workspace(&mut self, error: &WorkspaceError) {
        self.link = Link::Stopped;
        let escape = error.escape().map(|cause| TurnError::new(ErrorCode::WorkspaceEscaped, cause));
        let told = TurnError::new(ErrorCode::AgentExited, format!("cannot start the agent: {}", chain(error)));
        let told = escape.clone().unwrap_or(TurnError { hint: error.hint(), ..told });
        self.record_exit(None, ExitReason::Crash, None, Some(&told));
        match escape {
            Some(cause) => self.give_up(cause),
            None => self.fail_current_turn(told),
        }
    }

    /// The session ends in error, and a message says why: that of the turn that fails, or one of the session's own.
    fn give_up(&mut self, cause: TurnError) {
        self.set_last_error(&cause);
        let fails_turn = self.running.as_ref().map_or(!self.queue.is_empty(), |running| !running.is_ending());
        if !fails_turn {
            self.notice(None, cause.code.as_str(), cause.message.clone());
        }
        self.fail_current_turn(cause);
        self.cancel_everything(&None);
        // A fact: the table does not deny it.
        self.change_status(Trigger::Fatal, "fatal", None).ok();
        self.stop_process(ExitReason::Crash);
    }
}
