//! Contexts against the workspace that they speak of.

use std::path::Path;

use super::{Registry, RegistryError};
use crate::agent;
use crate::config::Sandbox;
use crate::model::context::Change;
use crate::model::{AgentProfile, ContextChange, ContextProblem, FsScope, SessionContext, SessionId};
use crate::session::Refusal;

impl Registry {
    /// A change of a session's context, or of that of one prompt, with paths as they are from the workspace.
    pub async fn checked_context(
        &self,
        session: SessionId,
        change: ContextChange,
    ) -> Result<ContextChange, RegistryError> {
        change.check().map_err(Refusal::Context)?;
        if change.fs_scope != Change::Keep {
            let problem = "is for the session's life, from when it was made; make a new session for another scope";
            return Err(Refusal::Context(ContextProblem::new("context.fsScope", problem)).into());
        }
        let row = self.hub().store().session(session).await?.ok_or(RegistryError::NotFound(session))?;
        let mut change = inside(Path::new(&row.workspace), change)?;
        if change.git_ref == Change::Remove {
            change.git_ref = detected(Path::new(&row.workspace));
        }
        Ok(change)
    }
}

/// The context of a session that is to be made.
pub(super) fn of_new(workspace: &str, change: ContextChange) -> Result<SessionContext, Refusal> {
    change.check().map_err(Refusal::Context)?;
    let workspace = Path::new(workspace);
    let mut change = inside(workspace, change)?;
    if !matches!(change.git_ref, Change::Set(_)) {
        change.git_ref = detected(workspace);
    }
    SessionContext::default().changed_by(change).map_err(Refusal::Context)
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

fn inside(workspace: &Path, mut change: ContextChange) -> Result<ContextChange, Refusal> {
    let resolve = |field: &str, path: &mut String| {
        *path = agent::path_inside(workspace, path)
            .map_err(|problem| Refusal::Context(ContextProblem::new(field, problem)))?;
        Ok::<(), Refusal>(())
    };
    if let Change::Set(path) = &mut change.active_file {
        resolve("context.activeFile", path)?;
    }
    if let Change::Set(selection) = &mut change.selection {
        resolve("context.selection.file", &mut selection.file)?;
    }
    Ok(change)
}
