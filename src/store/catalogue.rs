//! What sessions refer to, and what is done to all of them at once.

use sqlx::SqliteConnection;

use super::apply::{Apply, to_json};
use super::{Catalogue, StoreError, idempotency, retention};

impl Apply<'_> {
    pub(super) async fn catalogue(
        &mut self,
        connection: &mut SqliteConnection,
        change: &Catalogue,
    ) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        match change {
            Catalogue::AddWorkspace { id, path } => {
                // Two requests may register the same directory at once; the first one names it.
                sqlx::query(
                    "INSERT INTO workspaces (id, path, created_at) VALUES (?, ?, ?) ON CONFLICT (path) DO NOTHING",
                )
                .bind(id.to_string())
                .bind(path)
                .bind(now)
                .execute(connection)
                .await
                .map_err(StoreError::database("to register a workspace"))?;
            }
            Catalogue::RemoveWorkspace { id } => {
                sqlx::query("DELETE FROM workspaces WHERE id = ?")
                    .bind(id.to_string())
                    .execute(connection)
                    .await
                    .map_err(StoreError::database("to remove a workspace"))?;
            }
            Catalogue::SetStatusOfAll { from, to, reason } => {
                self.set_status_of_all(connection, *from, *to, reason).await?;
            }
            Catalogue::ClearProcesses => {
                sqlx::query("DELETE FROM processes")
                    .execute(connection)
                    .await
                    .map_err(StoreError::database("to forget the processes of earlier daemons"))?;
            }
            Catalogue::MarkExpired { session, status_changed_at, seen_at } => {
                retention::mark(connection, *session, *status_changed_at, *seen_at).await?;
            }
            Catalogue::Swept { at } => {
                retention::swept(connection, *at).await?;
                idempotency::forget_old(connection, *at).await?;
            }
            Catalogue::Heartbeat => {
                sqlx::query("INSERT INTO heartbeat (id, at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET at = ?1")
                    .bind(now)
                    .execute(connection)
                    .await
                    .map_err(StoreError::database("a trial write"))?;
            }
            Catalogue::SetAgents(profiles) => {
                sqlx::query("UPDATE agents SET status = 'archived', updated_at = ? WHERE status = 'active'")
                    .bind(now)
                    .execute(&mut *connection)
                    .await
                    .map_err(StoreError::database("to archive the agents that are gone"))?;
                for profile in profiles {
                    sqlx::query(
                        "INSERT INTO agents (slug, name, description, status, profile, created_at, updated_at) \
                         VALUES (?1, ?2, ?3, 'active', ?4, ?5, ?5) ON CONFLICT (slug) DO UPDATE SET \
                         name = ?2, description = ?3, status = 'active', profile = ?4, updated_at = ?5",
                    )
                    .bind(&profile.slug)
                    .bind(&profile.name)
                    .bind(&profile.description)
                    .bind(to_json(&profile.freeze())?)
                    .bind(now)
                    .execute(&mut *connection)
                    .await
                    .map_err(StoreError::database("to record an agent"))?;
                }
            }
        }
        Ok(())
    }
}
