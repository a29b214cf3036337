//! Looks at workspaces before anything is made or started there: as whoever it is for, and on a thread that may wait.

use std::path::{Path, PathBuf};

use super::{Registry, RegistryError};
use crate::agent::{Grounds, OpenWorkspace, Persona, WorkspaceError};
use crate::model::session::Session;
use crate::model::{Peer, SessionId};
use crate::session::Refusal;

impl Registry {
    /// Runs what looks at files of an owner's, with that owner's rights. It may block: for the disk, and for the user
    /// database before.
    pub(super) async fn look_as<T: Send + 'static>(
        &self,
        owner: Option<u32>,
        look: impl FnOnce(&Persona, &Grounds) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let (config, home, places) = (self.shared().config(), self.shared().home.clone(), self.shared().places.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let persona = Persona::of(owner)?;
            let roots = persona.home(&home).map(|home| config.workspace_roots(home)).unwrap_or_default();
            look(&persona, &Grounds { roots, reserved: places.reserved(), ..Grounds::default() })
        });
        // It panicked, or the daemon is going.
        looked.await.unwrap_or_else(|error| Err(WorkspaceError::NotLooked(error.to_string())))
    }

    /// The real path of a directory that may be a workspace of this owner's.
    pub(super) async fn resolve_workspace(
        &self,
        path: &Path,
        owner: Option<u32>,
        peer: Option<&Peer>,
    ) -> Result<String, WorkspaceError> {
        let path = path.to_owned();
        let resolved = self.look_as(owner, move |persona, grounds| persona.resolve_workspace(&path, grounds)).await;
        resolved.inspect_err(|error| error.report(&self.shared().security, peer))
    }

    /// By the path that was real when it was registered.
    pub(super) async fn open_workspace(
        &self,
        path: &str,
        owner: Option<u32>,
        peer: Option<&Peer>,
    ) -> Result<OpenWorkspace, WorkspaceError> {
        let opened = self.open_quietly(PathBuf::from(path), owner).await;
        opened.inspect_err(|error| error.report(&self.shared().security, peer))
    }

    async fn open_quietly(&self, path: PathBuf, owner: Option<u32>) -> Result<OpenWorkspace, WorkspaceError> {
        self.look_as(owner, move |persona, grounds| persona.open_workspace(&path, grounds)).await
    }

    /// Whether a process could be started for the session now, and whose it would be. What is fatal for it is the actor's to
    /// find out.
    pub(super) async fn check_workspace_of(&self, session: SessionId) -> Result<Option<u32>, RegistryError> {
        let row = self.hub().store().session(session).await?.ok_or(RegistryError::NotFound(session))?;
        let Session { workspace, owner_uid, .. } = row;
        match self.open_quietly(PathBuf::from(workspace), owner_uid).await {
            Ok(_) => Ok(owner_uid),
            Err(error) if error.escape().is_some() => Ok(owner_uid),
            Err(error) => {
                error.report(&self.shared().security, None);
                Err(Refusal::Workspace(error).into())
            }
        }
    }
}
