//! What sessions refer to, and what is done to all of them at once.

use super::apply::Apply;
use super::{Catalogue, StoreError};

impl Apply<'_> {
    pub(super) fn catalogue(&mut self, change: &Catalogue) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        match change {
            Catalogue::AddWorkspace { id, path, owner, identity } => {
                self.add_workspace(*id, path, *owner, identity)?;
            }
            Catalogue::RemoveWorkspace { id } => {
                let sql = "DELETE FROM workspaces WHERE id = ?1";
                self.connection.run("removing a workspace", sql, [id.to_string()])?;
            }
            Catalogue::SetStatusOfAll { from, to, reason } => self.set_status_of_all(*from, *to, reason)?,
            Catalogue::ClearProcesses => {
                self.connection.run("deleting the processes of earlier daemons", "DELETE FROM processes", [])?;
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
                self.connection.run("making a test write", sql, [now])?;
            }
            Catalogue::Observe(new) => self.observe(new)?,
            Catalogue::SetAgents(profiles) => self.set_agents(profiles)?,
            Catalogue::AddProfile(profile) => self.add_profile(profile)?,
            Catalogue::ChangeProfile(profile) => self.change_profile(profile)?,
        }
        Ok(())
    }
}
