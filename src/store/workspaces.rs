//! Workspaces: which directories are registered, and which directory each was.

use rusqlite::params;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::Apply;
use super::owners::push_sight;
use super::{Store, StoreError, row};
use crate::model::session::{DirectoryIdentity, Workspace};
use crate::model::{SessionId, Sight, WorkspaceId};

impl Store {
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        let row = sqlx::query("SELECT * FROM workspaces WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a workspace"))?;
        row.as_ref().map(row::workspace).transpose()
    }

    /// The workspace that this user has there; of nobody, the daemon's own user.
    pub async fn workspace_by_path(&self, path: &str, owner: Option<u32>) -> Result<Option<Workspace>, StoreError> {
        // The plus keeps the plan with the index by path: one user may have many.
        let row = sqlx::query("SELECT * FROM workspaces WHERE path = ? AND +owner_uid IS ?")
            .bind(path)
            .bind(owner)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a workspace"))?;
        row.as_ref().map(row::workspace).transpose()
    }

    pub async fn workspaces(&self, sight: Sight, limit: i64, offset: i64) -> Result<(Vec<Workspace>, i64), StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM workspaces WHERE TRUE");
        push_sight(&mut query, "owner_uid", sight);
        query.push(" ORDER BY id LIMIT +").push_bind(limit).push(" OFFSET +").push_bind(offset);
        let rows = query.build().fetch_all(&self.pool).await.map_err(StoreError::database("listing workspaces"))?;
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM workspaces WHERE TRUE");
        push_sight(&mut count, "owner_uid", sight);
        let total: i64 = count
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting workspaces"))?;
        let workspaces = rows.iter().map(row::workspace).collect::<Result<_, _>>()?;
        Ok((workspaces, total))
    }
}

impl Apply<'_> {
    pub(super) fn add_workspace(
        &self,
        id: WorkspaceId,
        path: &str,
        owner: Option<u32>,
        identity: &DirectoryIdentity,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "registering a workspace",
            // Two requests may register the same directory at once; the first one names it.
            "INSERT INTO workspaces (id, path, created_at, device, inode, born_at, owner_uid) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
            params![
                id.to_string(),
                path,
                self.now.as_millis(),
                identity.device.cast_signed(),
                identity.inode.cast_signed(),
                identity.born_at,
                owner,
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
            "storing a workspace's directory",
            "UPDATE workspaces SET device = ?2, inode = ?3, born_at = ?4 \
             WHERE id = (SELECT workspace_id FROM sessions WHERE id = ?1)",
            params![session.to_string(), identity.device.cast_signed(), identity.inode.cast_signed(), identity.born_at],
        )?;
        Ok(())
    }
}
