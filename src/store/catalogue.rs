//! What sessions refer to, and what is done to all of them at once.

use rusqlite::params;

use super::apply::{Apply, to_json};
use super::{Catalogue, StoreError};
use crate::model::AgentProfile;

impl Apply<'_> {
    pub(super) fn catalogue(&mut self, change: &Catalogue) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        match change {
            Catalogue::AddWorkspace { id, path, owner, identity } => {
                self.add_workspace(*id, path, *owner, identity)?;
            }
            Catalogue::RemoveWorkspace { id } => {
                let sql = "DELETE FROM workspaces WHERE id = ?1";
                self.connection.run("to remove a workspace", sql, [id.to_string()])?;
            }
            Catalogue::SetStatusOfAll { from, to, reason } => self.set_status_of_all(*from, *to, reason)?,
            Catalogue::ClearProcesses => {
                self.connection.run("to forget the processes of earlier daemons", "DELETE FROM processes", [])?;
            }
            Catalogue::MarkExpired { session, status_changed_at, seen_at } => {
                self.mark_expired(*session, *status_changed_at, *seen_at)?;
            }
            Catalogue::CancelPermissions { session, reason } => self.cancel_permissions(*session, reason)?,
            Catalogue::Swept { at } => {
                self.note_sweep(*at)?;
                self.forget_old_keys(*at)?;
            }
            Catalogue::Heartbeat => {
                let sql = "INSERT INTO heartbeat (id, at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET at = ?1";
                self.connection.run("a trial write", sql, [now])?;
            }
            Catalogue::Observe(new) => self.observe(new)?,
            Catalogue::SetAgents(profiles) => self.set_agents(profiles)?,
        }
        Ok(())
    }

    fn set_agents(&self, profiles: &[AgentProfile]) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        self.connection.run(
            "to archive the agents that are gone",
            "UPDATE agents SET status = 'archived', updated_at = ?1 WHERE status = 'active'",
            [now],
        )?;
        for profile in profiles {
            self.connection.run(
                "to record an agent",
                "INSERT INTO agents (slug, name, description, status, profile, created_at, updated_at) \
                 VALUES (?1, ?2, ?3, 'active', ?4, ?5, ?5) ON CONFLICT (slug) DO UPDATE SET \
                 name = ?2, description = ?3, status = 'active', profile = ?4, updated_at = ?5",
                params![profile.slug, profile.name, profile.description, to_json(&profile.freeze())?, now],
            )?;
        }
        Ok(())
    }
}
