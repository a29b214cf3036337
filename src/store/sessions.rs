//! A session's row: made, changed, deleted; and what is kept of its process.

use rusqlite::{Params, params};

use super::apply::{Apply, to_json};
use super::{NewSession, Op, SessionChange, StoreError};
use crate::model::event::ImportedFrom;
use crate::model::session::ProcessIdentity;
use crate::model::{By, EventBody, SessionId, SessionStatus};

impl Apply<'_> {
    pub(super) fn create_session(
        &mut self,
        session: SessionId,
        new: &NewSession,
        imported_from: Option<&ImportedFrom>,
    ) -> Result<(), StoreError> {
        self.connection.run(
            "creating a session",
            "INSERT INTO sessions (id, workspace_id, agent, profile, permissions, title, tags, status, created_at, \
             updated_at, last_active_at, status_changed_at, limits, owner_uid, chosen, mode, model, context, policy, \
             mcp_servers) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'active', ?8, ?8, ?8, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            params![
                session.to_string(),
                new.workspace_id.to_string(),
                new.profile.slug,
                to_json(&new.profile)?,
                new.permissions.mode.as_str(),
                new.title,
                to_json(&new.tags)?,
                self.now.as_millis(),
                to_json(&new.limits)?,
                new.owner_uid,
                to_json(&new.chosen)?,
                new.chosen.mode,
                new.chosen.model,
                to_json(&new.context)?,
                to_json(&new.permissions)?,
                new.mcp_servers.as_ref().map(to_json).transpose()?,
            ],
        )?;
        let body = EventBody::SessionCreated {
            workspace_id: new.workspace_id,
            workspace: new.workspace.clone(),
            agent: new.profile.slug.clone(),
            title: new.title.clone(),
            context: new.context.clone(),
            imported_from: imported_from.cloned().map(Box::new),
            by: new.by.clone(),
        };
        self.note_owner(session, new.owner_uid)?;
        self.event(session, None, &body)
    }

    pub(super) fn change_session(&mut self, session: SessionId, change: &SessionChange) -> Result<(), StoreError> {
        self.connection.run(
            "changing a session",
            "UPDATE sessions SET title = coalesce(?2, title), tags = coalesce(?3, tags), limits = coalesce(?4, limits), \
             context = coalesce(?5, context), policy = coalesce(?6, policy), permissions = coalesce(?7, permissions), \
             updated_at = ?8, keep = coalesce(?9, keep) WHERE id = ?1",
            params![
                session.to_string(),
                change.title,
                change.tags.as_ref().map(to_json).transpose()?,
                change.limits.as_ref().map(to_json).transpose()?,
                change.context.as_ref().map(to_json).transpose()?,
                change.permissions.as_ref().map(to_json).transpose()?,
                change.permissions.as_ref().map(|policy| policy.mode.as_str()),
                self.now.as_millis(),
                change.keep,
            ],
        )?;
        let body = EventBody::SessionUpdated {
            title: change.title.clone(),
            tags: change.tags.clone(),
            limits: change.limits,
            context: change.context.clone(),
            permissions: change.permissions.clone(),
            keep: change.keep,
            mode: None,
            model: None,
            config_options: None,
            commands: None,
            by: change.by.clone(),
        };
        self.event(session, None, &body)
    }

    pub(super) fn set_status(
        &mut self,
        session: SessionId,
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
        by: &By,
    ) -> Result<(), StoreError> {
        let changed = self.connection.run(
            "setting a session's status",
            // A mark was for the status before: it must not shorten the stay in this one.
            "UPDATE sessions SET status = ?2, status_changed_at = ?3, updated_at = ?3, expired_seen_at = NULL \
             WHERE id = ?1 AND status = ?4",
            params![session.to_string(), to.as_str(), self.now.as_millis(), from.as_str()],
        )?;
        if changed != 1 {
            return Err(StoreError::Refused("a status change that is not allowed"));
        }
        self.event(session, None, &EventBody::SessionStatus { from, to, reason, by: by.clone() })
    }

    /// Decided here, after everything that was appended before, so that nobody's change is overwritten or missed.
    pub(super) fn set_status_of_all(
        &mut self,
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
    ) -> Result<(), StoreError> {
        let sql = "SELECT id FROM sessions WHERE status = ?1";
        let finding = "finding sessions by status";
        let ids = self.connection.all(finding, sql, [from.as_str()], |row| row.get::<_, String>(0))?;
        tracing::info!(sessions = ids.len(), %from, %to, "changing the status of sessions");
        for id in ids {
            let session =
                id.parse().map_err(|_| StoreError::Damaged { what: format!("{id:?} is not a session id") })?;
            self.counters(session)?;
            self.set_status(session, from, to, reason, &None)?;
        }
        Ok(())
    }

    /// What is kept of a session's process beside its events.
    pub(super) fn process(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        let (id, now) = (session.to_string(), self.now.as_millis());
        match op {
            Op::SetAgentSession { agent_session_id, context_restored, supports_resume } => self.keep(
                "UPDATE sessions SET agent_session_id = ?2, context_restored = ?3, supports_resume = ?4, \
                 updated_at = ?5 WHERE id = ?1",
                params![id, agent_session_id, context_restored.as_str(), supports_resume, now],
            ),
            Op::SetContextRestored(context_restored) => self.keep(
                "UPDATE sessions SET context_restored = ?2, updated_at = ?3 WHERE id = ?1",
                params![id, context_restored.as_str(), now],
            ),
            Op::SetLastError(error) => self.keep(
                "UPDATE sessions SET last_error = ?2, updated_at = ?3 WHERE id = ?1",
                params![id, to_json(error)?, now],
            ),
            Op::SetProcess(identity) => self.set_process(&id, identity),
            Op::ClearProcess => self.keep("DELETE FROM processes WHERE session_id = ?1", [id]),
            _ => Err(StoreError::Refused("an operation that does not concern a process")),
        }
    }

    fn set_process(&self, session: &str, identity: &ProcessIdentity) -> Result<(), StoreError> {
        self.keep(
            "INSERT OR REPLACE INTO processes (session_id, boot_id, daemon_pid, daemon_started, shim_pid, shim_started, \
             agent_pid, agent_started, process_group, cgroup, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                session,
                identity.boot_id,
                identity.daemon.pid,
                identity.daemon.started.cast_signed(),
                identity.shim.pid,
                identity.shim.started.cast_signed(),
                identity.agent.pid,
                identity.agent.started.cast_signed(),
                identity.group,
                identity.cgroup,
                self.now.as_millis(),
            ],
        )
    }

    fn keep(&self, sql: &str, values: impl Params) -> Result<(), StoreError> {
        self.connection.run("storing a process", sql, values).map(drop)
    }

    pub(super) fn purge(&mut self, session: SessionId) -> Result<(), StoreError> {
        self.release_blobs(session)?;
        self.connection.run("deleting a session", "DELETE FROM sessions WHERE id = ?1", [session.to_string()])?;
        self.forget(session);
        Ok(())
    }
}
