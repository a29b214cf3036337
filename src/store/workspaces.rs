//! Workspaces: which directories are registered, and which directory each was.

use rusqlite::params;

use super::StoreError;
use super::apply::Apply;
use crate::model::session::DirectoryIdentity;
use crate::model::{SessionId, WorkspaceId};

impl Apply<'_> {
    pub(super) fn add_workspace(
        &self,
        id: WorkspaceId,
        path: &str,
        identity: &DirectoryIdentity,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "to register a workspace",
            // Two requests may register the same directory at once; the first one names it.
            "INSERT INTO workspaces (id, path, created_at, device, inode, born_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (path) DO NOTHING",
            params![
                id.to_string(),
                path,
                self.now.as_millis(),
                identity.device.cast_signed(),
                identity.inode.cast_signed(),
                identity.born_at,
            ],
        )?;
        Ok(())
    }

    /// The workspace of this session is that directory now.
    pub(super) fn set_workspace_identity(
        &self,
        session: SessionId,
        identity: &DirectoryIdentity,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "to keep which directory a workspace is",
            "UPDATE workspaces SET device = ?2, inode = ?3, born_at = ?4 \
             WHERE id = (SELECT workspace_id FROM sessions WHERE id = ?1)",
            params![session.to_string(), identity.device.cast_signed(), identity.inode.cast_signed(), identity.born_at],
        )?;
        Ok(())
    }
}
