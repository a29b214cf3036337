//! Contexts against the workspace that they speak of.

use std::path::Path;

use super::{Registry, RegistryError};
use crate::agent::{self, PathProblem, WorkspaceError};
use crate::config::Sandbox;
use crate::model::context::Change;
use crate::model::{AgentProfile, ContextChange, ContextProblem, FsScope, Peer, SessionContext, SessionId};
use crate::security::SecurityEvent;
use crate::session::Refusal;

/// A path of a context that names no file in the workspace.
struct Misplaced {
    field: &'static str,
    path: String,
    problem: PathProblem,
}

impl Registry {
    /// A change of a session's context, or of that of one prompt, with paths as they are from the workspace. `peer` is
    /// whoever asks for it.
    pub async fn checked_context(
        &self,
        session: SessionId,
        change: ContextChange,
        peer: Option<&Peer>,
    ) -> Result<ContextChange, RegistryError> {
        change.check().map_err(Refusal::Context)?;
        if change.fs_scope != Change::Keep {
            let problem = "cannot be changed; create a new session for another scope";
            return Err(Refusal::Context(ContextProblem::new("context.fsScope", problem)).into());
        }
        let row = self.hub().store().session(session).await?.ok_or(RegistryError::NotFound(session))?;
        self.check_secrets(row.owner_uid, &change)?;
        let looked = self.looked_up(row.workspace, row.owner_uid, change, |git_ref| *git_ref == Change::Remove);
        looked.await?.map_err(|misplaced| self.misplaced(misplaced, peer))
    }

    /// The context of a session that is to be made.
    pub(super) async fn context_of_new(
        &self,
        workspace: String,
        owner: Option<u32>,
        change: ContextChange,
        peer: Option<&Peer>,
    ) -> Result<SessionContext, RegistryError> {
        change.check().map_err(Refusal::Context)?;
        self.check_secrets(owner, &change)?;
        let looked = self.looked_up(workspace, owner, change, |git_ref| !matches!(git_ref, Change::Set(_)));
        let change = looked.await?.map_err(|misplaced| self.misplaced(misplaced, peer))?;
        Ok(SessionContext::default().changed_by(change).map_err(Refusal::Context)?)
    }

    /// Refuses the value of a secret that an agent of the owner has.
    fn check_secrets(&self, owner: Option<u32>, change: &ContextChange) -> Result<(), Refusal> {
        let Some(redactor) = self.hub().secrets(owner).redactor() else { return Ok(()) };
        let known = change.new_variables().find(|(_, value)| redactor.is_in(value));
        known.map_or(Ok(()), |(name, _)| {
            Err(Refusal::Context(ContextProblem::secret(name, "has the value of an agent's secret")))
        })
    }

    /// The paths of a change as they are from the workspace, and what is checked out there where that is to be detected; all
    /// of it with the rights of whoever the session belongs to.
    async fn looked_up(
        &self,
        workspace: String,
        owner: Option<u32>,
        change: ContextChange,
        is_detected: fn(&Change<String>) -> bool,
    ) -> Result<Result<ContextChange, Misplaced>, WorkspaceError> {
        let looked = self.look_as(owner, move |persona, _| {
            let look = || {
                let workspace = Path::new(&workspace);
                let mut change = inside(workspace, change)?;
                if is_detected(&change.git_ref) {
                    change.git_ref = detected(workspace);
                }
                Ok(change)
            };
            persona.run(look).map_err(|error| WorkspaceError::NotLooked(error.to_string()))
        });
        looked.await
    }

    /// What whoever named it is told; and when it leads out, whoever watches over that.
    fn misplaced(&self, misplaced: Misplaced, peer: Option<&Peer>) -> RegistryError {
        let Misplaced { field, path, problem } = misplaced;
        if matches!(problem, PathProblem::Escape(_)) {
            let why = format!("the file of a context {problem}");
            self.shared().security.refused(SecurityEvent::PathEscape, peer, Some(Path::new(&path)), why);
        }
        Refusal::Context(ContextProblem::new(field, problem.to_string())).into()
    }
}

/// A session narrows what its profile grants, and nobody is unconfined unless the configuration says that they may be.
pub(super) fn check_scope(sandbox: &Sandbox, profile: &AgentProfile, asked: FsScope) -> Result<(), RegistryError> {
    if asked > profile.fs_scope {
        let (granted, asked) = (profile.fs_scope.as_str(), asked.as_str());
        return Err(RegistryError::WiderScope { agent: profile.slug.clone(), granted, asked });
    }
    if asked == FsScope::Full && !sandbox.allow_full {
        return Err(RegistryError::FullScope);
    }
    Ok(())
}

fn detected(workspace: &Path) -> Change<String> {
    agent::git_ref(workspace).map_or(Change::Remove, Change::Set)
}

fn inside(workspace: &Path, mut change: ContextChange) -> Result<ContextChange, Misplaced> {
    let resolve = |field: &'static str, path: &mut String| {
        *path = agent::path_inside(workspace, path).map_err(|problem| Misplaced {
            field,
            path: std::mem::take(path),
            problem,
        })?;
        Ok(())
    };
    if let Change::Set(path) = &mut change.active_file {
        resolve("context.activeFile", path)?;
    }
    if let Change::Set(selection) = &mut change.selection {
        resolve("context.selection.file", &mut selection.file)?;
    }
    Ok(change)
}
