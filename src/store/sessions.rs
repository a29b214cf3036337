//! A session's row: made, changed, deleted; and what is kept of its process.

use sqlx::SqliteConnection;

use super::apply::{Apply, to_json};
use super::{NewSession, Op, SessionChange, StoreError, prompts, row};
use crate::model::{EventBody, SessionId, SessionStatus};

impl Apply<'_> {
    pub(super) async fn create_session(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
        new: &NewSession,
    ) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        sqlx::query(
            "INSERT INTO sessions (id, workspace_id, agent, profile, permissions, title, tags, status, created_at, \
             updated_at, last_active_at, status_changed_at, limits, owner_uid, chosen, mode, model, context) \
             VALUES (?, ?, ?, ?, ?, ?, ?, 'active', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(session.to_string())
        .bind(new.workspace_id.to_string())
        .bind(&new.profile.slug)
        .bind(to_json(&new.profile)?)
        .bind(new.permissions.as_str())
        .bind(&new.title)
        .bind(to_json(&new.tags)?)
        .bind(now)
        .bind(now)
        .bind(now)
        .bind(now)
        .bind(to_json(&new.limits)?)
        .bind(new.owner_uid)
        .bind(to_json(&new.chosen)?)
        .bind(&new.chosen.mode)
        .bind(&new.chosen.model)
        .bind(to_json(&new.context)?)
        .execute(connection)
        .await
        .map_err(StoreError::database("to create a session"))?;
        let body = EventBody::SessionCreated {
            workspace_id: new.workspace_id,
            workspace: new.workspace.clone(),
            agent: new.profile.slug.clone(),
            title: new.title.clone(),
        };
        self.event(session, None, &body)
    }

    pub(super) async fn change_session(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
        change: &SessionChange,
    ) -> Result<(), StoreError> {
        let tags = change.tags.as_ref().map(to_json).transpose()?;
        let limits = change.limits.as_ref().map(to_json).transpose()?;
        let context = change.context.as_ref().map(to_json).transpose()?;
        sqlx::query(
            "UPDATE sessions SET title = coalesce(?, title), tags = coalesce(?, tags), limits = coalesce(?, limits), \
             context = coalesce(?, context), updated_at = ? WHERE id = ?",
        )
        .bind(&change.title)
        .bind(tags)
        .bind(limits)
        .bind(context)
        .bind(self.now.as_millis())
        .bind(session.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("to change a session"))?;
        let body = EventBody::SessionUpdated {
            title: change.title.clone(),
            tags: change.tags.clone(),
            limits: change.limits,
            context: change.context.clone(),
            mode: None,
            model: None,
            config_options: None,
            commands: None,
        };
        self.event(session, None, &body)
    }

    pub(super) async fn set_status(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
    ) -> Result<(), StoreError> {
        let changed = sqlx::query(
            // A mark was for the status before: it must not shorten the stay in this one.
            "UPDATE sessions SET status = ?, status_changed_at = ?, updated_at = ?, expired_seen_at = NULL \
             WHERE id = ? AND status = ?",
        )
        .bind(to.as_str())
        .bind(self.now.as_millis())
        .bind(self.now.as_millis())
        .bind(session.to_string())
        .bind(from.as_str())
        .execute(connection)
        .await
        .map_err(StoreError::database("to set a session's status"))?;
        if changed.rows_affected() != 1 {
            return Err(StoreError::Refused("a status that does not follow from the session's own"));
        }
        self.event(session, None, &EventBody::SessionStatus { from, to, reason })
    }

    /// Decided here, after everything that was appended before, so that nobody's change is overwritten or missed.
    pub(super) async fn set_status_of_all(
        &mut self,
        connection: &mut SqliteConnection,
        from: SessionStatus,
        to: SessionStatus,
        reason: &'static str,
    ) -> Result<(), StoreError> {
        let rows = sqlx::query("SELECT id FROM sessions WHERE status = ?")
            .bind(from.as_str())
            .fetch_all(&mut *connection)
            .await
            .map_err(StoreError::database("to find the sessions of a status"))?;
        tracing::info!(sessions = rows.len(), %from, %to, "changing the status of sessions");
        for row in rows {
            let session = row::parsed(&row, "id")?;
            self.counters(connection, session).await?;
            self.set_status(connection, session, from, to, reason).await?;
        }
        Ok(())
    }

    /// What is kept of a session's process beside its events.
    pub(super) async fn process(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
        op: &Op,
    ) -> Result<(), StoreError> {
        let now = self.now.as_millis();
        let query = match op {
            Op::SetAgentSession { agent_session_id, context_restored, supports_resume } => sqlx::query(
                "UPDATE sessions SET agent_session_id = ?, context_restored = ?, supports_resume = ?, updated_at = ? \
                 WHERE id = ?",
            )
            .bind(agent_session_id)
            .bind(context_restored.as_str())
            .bind(supports_resume)
            .bind(now),
            Op::SetContextRestored(context_restored) => {
                sqlx::query("UPDATE sessions SET context_restored = ?, updated_at = ? WHERE id = ?")
                    .bind(context_restored.as_str())
                    .bind(now)
            }
            Op::SetLastError(error) => sqlx::query("UPDATE sessions SET last_error = ?, updated_at = ? WHERE id = ?")
                .bind(to_json(error)?)
                .bind(now),
            Op::SetProcess(identity) => sqlx::query(
                "INSERT OR REPLACE INTO processes (boot_id, daemon_pid, daemon_started, shim_pid, shim_started, agent_pid, agent_started, \
                 process_group, cgroup, created_at, session_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&identity.boot_id)
            .bind(identity.daemon.pid)
            .bind(identity.daemon.started.cast_signed())
            .bind(identity.shim.pid)
            .bind(identity.shim.started.cast_signed())
            .bind(identity.agent.pid)
            .bind(identity.agent.started.cast_signed())
            .bind(identity.group)
            .bind(&identity.cgroup)
            .bind(now),
            Op::ClearProcess => sqlx::query("DELETE FROM processes WHERE session_id = ?"),
            _ => return Err(StoreError::Refused("an operation that is no process's")),
        };
        query
            .bind(session.to_string())
            .execute(connection)
            .await
            .map_err(StoreError::database("to keep what is known of a process"))?;
        Ok(())
    }

    pub(super) async fn purge(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
    ) -> Result<(), StoreError> {
        // What was gathered before must not come back after the deletion.
        self.write(connection).await?;
        prompts::release_blobs(connection, session).await?;
        sqlx::query("DELETE FROM sessions WHERE id = ?")
            .bind(session.to_string())
            .execute(connection)
            .await
            .map_err(StoreError::database("to delete a session"))?;
        self.forget(session);
        Ok(())
    }
}
