//! Questions of agents, their answers, and what persons have answered for good.

use futures_util::TryStreamExt;
use rusqlite::params;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::apply::{Apply, to_json};
use super::owners::push_session_sight;
use super::read::{MESSAGES_BYTES_MAX, log_damage};
use super::{Store, StoreError, row};
use crate::model::permission::question::{Decider, Outcome, Permission, Resolution};
use crate::model::permission::standing::StandingRule;
use crate::model::{By, EventBody, PermissionId, RuleId, SessionId, Sight, Timestamp, TurnId};

/// The answer to a question that is open.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub id: PermissionId,
    pub turn: Option<TurnId>,
    pub tool_call_id: Option<String>,
    pub resolution: Resolution,
}

impl Resolved {
    fn event(&self) -> EventBody {
        let Resolution { outcome, decision, option_id, always, by, at: _ } = self.resolution.clone();
        EventBody::PermissionResolved {
            permission_id: self.id,
            tool_call_id: self.tool_call_id.clone(),
            outcome,
            decision,
            option_id,
            always,
            decided_by: by.to_string(),
            by,
        }
    }
}

/// Which questions a list shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct PermissionFilter {
    pub sight: Sight,
    pub session: Option<SessionId>,
    pub open_only: bool,
}

impl Store {
    pub async fn permission(&self, id: PermissionId) -> Result<Option<Permission>, StoreError> {
        let row = sqlx::query("SELECT * FROM permissions WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a permission"))?;
        row.as_ref().map(permission).transpose()
    }

    /// The oldest open ones first, since they wait longest; all of them newest first; fewer than `limit` when they are
    /// large. With how many there are.
    pub async fn permissions(
        &self,
        filter: PermissionFilter,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<Permission>, i64), StoreError> {
        let push_filter = |query: &mut QueryBuilder<Sqlite>| {
            query.push(" WHERE TRUE");
            push_session_sight(query, "session_id", filter.sight);
            if let Some(session) = filter.session {
                query.push(" AND session_id = ").push_bind(session.to_string());
            }
            if filter.open_only {
                query.push(" AND status = 'open'");
            }
        };
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM permissions");
        push_filter(&mut count);
        let total: i64 = count
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting permissions"))?;
        let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM permissions");
        push_filter(&mut query);
        query.push(if filter.open_only { " ORDER BY id" } else { " ORDER BY id DESC" });
        query.push(" LIMIT +").push_bind(limit).push(" OFFSET +").push_bind(offset);
        let mut rows = query.build().fetch(&self.pool);
        let mut permissions = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGES_BYTES_MAX
            && let Some(row) = rows.try_next().await.map_err(StoreError::database("listing permissions"))?
        {
            let permission = permission(&row)?;
            bytes += permission.request.get().len();
            permissions.push(permission);
        }
        drop(rows);
        Ok((permissions, total))
    }

    /// A session's standing rules, in the order in which they were made.
    pub async fn standing_rules(&self, session: SessionId) -> Result<Vec<StandingRule>, StoreError> {
        let rows = sqlx::query("SELECT * FROM permission_rules WHERE session_id = ? ORDER BY id")
            .bind(session.to_string())
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::database("reading permission rules"))?;
        let rule = |row: &SqliteRow| {
            Ok(StandingRule {
                id: row::parsed(row, "id")?,
                allows: row::column(row, "allows")?,
                subject: row::from_json(row, "subject")?,
                made_by: row::from_json(row, "made_by")?,
                made_at: row::time(row, "made_at")?,
            })
        };
        rows.iter().map(rule).collect()
    }
}

fn permission(row: &SqliteRow) -> Result<Permission, StoreError> {
    Ok(Permission {
        id: row::parsed(row, "id")?,
        session: row::parsed(row, "session_id")?,
        turn: row::parsed_option(row, "turn_id")?,
        kind: row::parsed(row, "kind")?,
        tool_call_id: row::column(row, "tool_call_id")?,
        title: row::column(row, "title")?,
        action: row::from_json(row, "action")?,
        options: row::from_json(row, "options")?,
        request: row::raw(row, "request")?,
        status: row::parsed(row, "status")?,
        asked_at: row::time(row, "asked_at")?,
        expires_at: row::column::<Option<i64>>(row, "expires_at")?.map(Timestamp::from_millis),
        resolution: row::json_option(row, "resolution")?,
    })
}

impl Apply<'_> {
    pub(super) fn ask_permission(&mut self, session: SessionId, asked: &Permission) -> Result<(), StoreError> {
        self.connection.run(
            "storing a permission request",
            "INSERT INTO permissions (id, session_id, turn_id, kind, tool_call_id, title, action, options, request, status, \
             asked_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'open', ?10, ?11)",
            params![
                asked.id.to_string(),
                session.to_string(),
                asked.turn.map(|turn| turn.to_string()),
                asked.kind.as_str(),
                asked.tool_call_id,
                asked.title,
                to_json(&asked.action)?,
                to_json(&asked.options)?,
                asked.request.get(),
                asked.asked_at.as_millis(),
                asked.expires_at.map(Timestamp::as_millis),
            ],
        )?;
        let body = EventBody::PermissionRequested {
            permission_id: asked.id,
            kind: asked.kind,
            tool_call_id: asked.tool_call_id.clone(),
            title: asked.title.clone(),
            action: asked.action.clone(),
            options: asked.options.clone(),
            request: asked.request.clone(),
            expires_at: asked.expires_at,
        };
        self.event(session, asked.turn, &body)
    }

    /// Only an open question is answered, and once.
    pub(super) fn resolve_permission(&mut self, session: SessionId, resolved: &Resolved) -> Result<(), StoreError> {
        let changed = self.connection.run(
            "storing a permission answer",
            "UPDATE permissions SET status = ?3, resolution = ?4 WHERE id = ?1 AND session_id = ?2 AND status = 'open'",
            params![
                resolved.id.to_string(),
                session.to_string(),
                resolved.resolution.by.status().as_str(),
                to_json(&resolved.resolution)?,
            ],
        )?;
        if changed != 1 {
            return Err(StoreError::Refused("an answer to a permission request that is not open"));
        }
        self.event(session, resolved.turn, &resolved.event())
    }

    /// Nobody waits for these any more: those of one session, or all that there are.
    pub(super) fn cancel_permissions(&mut self, session: Option<SessionId>, reason: &str) -> Result<(), StoreError> {
        let rows = self.connection.all(
            "finding open permission requests",
            "SELECT session_id, id, turn_id, tool_call_id FROM permissions \
             WHERE status = 'open' AND session_id = coalesce(?1, session_id) ORDER BY id",
            [session.map(|session| session.to_string())],
            |row| {
                let (session, id): (String, String) = (row.get(0)?, row.get(1)?);
                Ok((session, id, row.get::<_, Option<String>>(2)?, row.get(3)?))
            },
        )?;
        let resolution = Resolution {
            outcome: Outcome::Cancelled,
            decision: None,
            option_id: None,
            always: false,
            by: Decider::Cancelled { reason: reason.to_owned() },
            at: self.now,
        };
        for (session, id, turn, tool_call_id) in rows {
            let (Ok(session), Ok(id)) = (session.parse(), id.parse()) else {
                // One row that is damaged does not keep the daemon from starting.
                log_damage(&StoreError::Damaged {
                    what: format!("the permission request {id:?} of session {session:?}"),
                });
                continue;
            };
            let turn = turn.and_then(|turn| turn.parse().ok());
            self.counters(session)?;
            let resolved = Resolved { id, turn, tool_call_id, resolution: resolution.clone() };
            self.resolve_permission(session, &resolved)?;
            self.withdrawn += 1;
        }
        Ok(())
    }

    pub(super) fn add_rule(&self, session: SessionId, rule: &StandingRule) -> Result<(), StoreError> {
        self.connection.run(
            "adding a permission rule",
            "INSERT INTO permission_rules (id, session_id, allows, subject, made_by, made_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                rule.id.to_string(),
                session.to_string(),
                rule.allows,
                to_json(&rule.subject)?,
                to_json(&rule.made_by)?,
                rule.made_at.as_millis(),
            ],
        )?;
        Ok(())
    }

    pub(super) fn remove_rule(&mut self, session: SessionId, rule: RuleId, by: &By) -> Result<(), StoreError> {
        let sql = "DELETE FROM permission_rules WHERE id = ?1 AND session_id = ?2";
        self.connection.run("removing a permission rule", sql, [rule.to_string(), session.to_string()])?;
        self.event(session, None, &EventBody::PermissionRevoked { rule_id: rule, by: by.clone() })
    }
}
