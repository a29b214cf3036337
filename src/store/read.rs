//! The questions that are asked of the record. Every answer is bounded by the asker.

use std::borrow::Cow;
use std::collections::BTreeMap;

use futures_util::{Stream, TryStreamExt};
use serde_json::value::RawValue;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};

use super::{Fault, Store, StoreError, context, owners, row};
use crate::model::id::part_digits;
use crate::model::message::Message;
use crate::model::session::{ProcessIdentity, Session};
use crate::model::turn::Turn;
use crate::model::{
    Content, MessageId, SessionContext, SessionId, SessionStatus, Sight, Timestamp, TurnId, TurnStatus, Usage,
    WorkspaceId,
};

/// Which sessions a list shows.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    pub sight: Sight,
    pub workspace: Option<WorkspaceId>,
    pub agent: Option<String>,
    /// Empty: all of them.
    pub statuses: Vec<SessionStatus>,
    pub tag: Option<String>,
    /// With exactly this title, or with this at the beginning or the end of the id.
    pub name: Option<String>,
}

/// Whose log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventScope {
    Session(SessionId),
    /// Those of one user's sessions; of nobody, which is the daemon's own user.
    Owner(Option<u32>),
    All,
}

/// An event as it is recorded.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// The cursor over all sessions.
    pub id: i64,
    pub session: SessionId,
    pub sequence: i64,
    pub turn: Option<TurnId>,
    pub kind: Cow<'static, str>,
    pub data: Box<RawValue>,
    /// The sequence of the message that it tells of, if it does. Its data are then the message's.
    pub message: Option<i64>,
    pub created_at: Timestamp,
}

impl StoredEvent {
    /// What its own row says. What a message says is in the message's row already.
    pub(super) fn stored_data(&self) -> &str {
        if self.message.is_some() { "" } else { self.data.get() }
    }
}

/// A turn that was accepted and is not over.
#[derive(Clone, Debug)]
pub struct OpenTurn {
    pub id: TurnId,
    pub session: SessionId,
    pub status: TurnStatus,
    /// Somebody was told that it will be cancelled.
    pub cancel_requested: bool,
    pub prompt: Content,
    /// As far as it is known.
    pub usage: Option<Usage>,
    /// What its prompt names in place of the session's context.
    pub context: Option<SessionContext>,
}

/// The beginning of a message whose end never came.
#[derive(Clone, Debug)]
pub struct UnfinishedText {
    pub id: MessageId,
    pub content: Content,
}

/// A page of messages, or of permissions, ends early when it is this large.
pub(super) const MESSAGES_BYTES_MAX: usize = 8 << 20;

/// In all that follows `LIMIT +?` has its plus because SQLite looks at a bare bound limit when it plans, and plans again
/// whenever that changes.
pub(super) const SESSION_COLUMNS: &str = "SELECT sessions.*, workspaces.path AS workspace, \
     workspaces.device AS workspace_device, workspaces.inode AS workspace_inode, workspaces.born_at AS workspace_born_at, \
     (SELECT count(*) FROM turns WHERE turns.session_id = sessions.id) AS turns, \
     (SELECT count(*) FROM turns WHERE turns.session_id = sessions.id \
     AND NOT (coalesce(error_code, '') IN ('turn_limit', 'cost_limit') AND started_at IS NULL)) AS turns_counted, \
     (SELECT count(*) FROM permissions WHERE permissions.session_id = sessions.id AND permissions.status = 'open') \
     AS open_permissions \
     FROM sessions JOIN workspaces ON workspaces.id = sessions.workspace_id";

/// An event that tells of a message has the message's columns beside it.
pub(super) const EVENT_COLUMNS: &str = "SELECT events.id AS event_id, events.sequence AS event_sequence, events.type, events.data, \
     events.turn_id AS event_turn_id, events.created_at AS event_created_at, events.session_id AS event_session_id, \
     events.message_sequence, messages.* FROM events LEFT JOIN messages \
     ON messages.session_id = events.session_id AND messages.sequence = events.message_sequence";

impl Store {
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(SESSION_COLUMNS);
        query.push(" WHERE sessions.id = ").push_bind(id.to_string());
        let row = query.build().fetch_optional(&self.pool).await.map_err(StoreError::database("reading a session"))?;
        row.as_ref().map(row::session).transpose()
    }

    /// Those of these sessions that there are, in the order of their ids.
    pub async fn sessions_of(&self, ids: &[SessionId]) -> Result<Vec<Session>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(SESSION_COLUMNS);
        query.push(" WHERE sessions.id IN (");
        let mut listed = query.separated(", ");
        for id in ids {
            listed.push_bind(id.to_string());
        }
        query.push(") ORDER BY sessions.id");
        let rows = query.build().fetch_all(&self.pool).await.map_err(StoreError::database("reading sessions"))?;
        // One row that is damaged does not hide the others.
        Ok(rows.iter().filter_map(|row| row::session(row).inspect_err(log_damage).ok()).collect())
    }

    /// The status alone, for a session that may be damaged; nothing, when there is no such session.
    pub async fn status(&self, id: SessionId) -> Result<Option<SessionStatus>, StoreError> {
        let row = sqlx::query("SELECT status FROM sessions WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a session's status"))?;
        row.as_ref().map(|row| row::parsed(row, "status")).transpose()
    }

    /// Newest first, with how many there are in all.
    pub async fn sessions(
        &self,
        filter: &SessionFilter,
        limit: i64,
        offset: i64,
    ) -> Result<(Vec<Session>, i64), StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("SELECT count(*) FROM sessions");
        push_filter(&mut count, filter);
        let total: i64 = count
            .build_query_scalar()
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting sessions"))?;
        let mut query = QueryBuilder::<Sqlite>::new(SESSION_COLUMNS);
        // Which ones is decided first, by the index alone; only those few are then put together.
        query.push(" WHERE sessions.id IN (SELECT sessions.id FROM sessions");
        push_filter(&mut query, filter);
        query.push(" ORDER BY sessions.created_at DESC, sessions.id DESC LIMIT +").push_bind(limit);
        query.push(" OFFSET +").push_bind(offset);
        query.push(") ORDER BY sessions.created_at DESC, sessions.id DESC");
        let rows = query.build().fetch_all(&self.pool).await.map_err(StoreError::database("listing sessions"))?;
        // One row that is damaged does not hide the others.
        let sessions = rows.iter().filter_map(|row| row::session(row).inspect_err(log_damage).ok());
        Ok((sessions.collect(), total))
    }

    pub async fn count_by_status(&self, sight: Sight) -> Result<BTreeMap<&'static str, i64>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT status, count(*) FROM sessions WHERE TRUE");
        owners::push_sight(&mut query, "owner_uid", sight);
        query.push(" GROUP BY status");
        let rows: Vec<(String, i64)> = query
            .build_query_as()
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::database("counting sessions by status"))?;
        let mut counts: BTreeMap<&'static str, i64> =
            SessionStatus::ALL.iter().map(|status| (status.as_str(), 0)).collect();
        for (status, count) in rows {
            let status: SessionStatus = status.parse().map_err(|what| StoreError::Damaged { what })?;
            counts.insert(status.as_str(), count);
        }
        Ok(counts)
    }

    /// How many messages the session has since a time.
    pub async fn count_messages(&self, session: SessionId, since: Option<Timestamp>) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT count(*) FROM messages WHERE session_id = ?1 AND (?2 IS NULL OR created_at >= ?2)")
            .bind(session.to_string())
            .bind(since.map(Timestamp::as_millis))
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting messages"))
    }

    /// Messages in order, after a sequence and since a time, and how many there are since that time. Fewer than `limit` come
    /// when they are large, but never none when there are any.
    pub async fn messages(
        &self,
        session: SessionId,
        after: i64,
        since: Option<Timestamp>,
        limit: i64,
    ) -> Result<(Vec<Message>, i64), StoreError> {
        // The messages come last: nobody holds them while they wait for a connection.
        let total = self.count_messages(session, since).await?;
        let rows = sqlx::query(
            "SELECT * FROM messages WHERE session_id = ? AND sequence > ? AND created_at >= ? ORDER BY sequence LIMIT +?",
        )
        .bind(session.to_string())
        .bind(after)
        .bind(since.map_or(i64::MIN, Timestamp::as_millis))
        .bind(limit)
        .fetch(&self.pool);
        let messages = bounded_messages(rows, MESSAGES_BYTES_MAX).await?;
        Ok((messages, total))
    }

    /// The newest messages, in order; fewer than `limit` when they are large.
    pub async fn last_messages(&self, session: SessionId, limit: i64) -> Result<Vec<Message>, StoreError> {
        let rows = sqlx::query("SELECT * FROM messages WHERE session_id = ? ORDER BY sequence DESC LIMIT +?")
            .bind(session.to_string())
            .bind(limit)
            .fetch(&self.pool);
        let mut messages = bounded_messages(rows, MESSAGES_BYTES_MAX).await?;
        messages.reverse();
        Ok(messages)
    }

    /// What was said in turns that are over, newest first, until `bytes_max`; and whether that is all. What the agent
    /// only thought and planned is not said, and neither is what waits for the next prompt.
    pub async fn conversation(&self, session: SessionId, bytes_max: usize) -> Result<(Vec<Message>, bool), StoreError> {
        let mut rows = sqlx::query(
            "SELECT messages.* FROM messages LEFT JOIN turns \
             ON turns.session_id = messages.session_id AND turns.id = messages.turn_id \
             WHERE messages.session_id = ? AND coalesce(turns.status, '') NOT IN ('queued', 'running') \
             AND messages.content ->> 'type' NOT IN ('thought', 'plan') \
             AND NOT EXISTS (SELECT 1 FROM waiting_messages WHERE waiting_messages.message_id = messages.id) \
             ORDER BY messages.sequence DESC",
        )
        .bind(session.to_string())
        .fetch(&self.pool);
        let mut messages = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.try_next().await.map_err(StoreError::database("reading a conversation"))? {
            if bytes > bytes_max {
                return Ok((messages, false));
            }
            // One message that is damaged does not hide the others.
            let Ok(message) = row::message(&row).inspect_err(log_damage) else { continue };
            bytes += message.content.get().len();
            messages.push(message);
        }
        Ok((messages, true))
    }

    /// The processes that some daemon has started and none has seen the end of.
    pub async fn processes(&self) -> Result<Vec<(SessionId, ProcessIdentity)>, StoreError> {
        let rows = sqlx::query("SELECT * FROM processes")
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::database("reading processes"))?;
        let process = |row| Ok((row::parsed(row, "session_id")?, row::process(row)?));
        Ok(rows.iter().filter_map(|row| process(row).inspect_err(log_damage).ok()).collect())
    }

    /// In the order they were accepted, whatever the clock did, with how many there are in all.
    pub async fn turns(&self, session: SessionId, limit: i64, offset: i64) -> Result<(Vec<Turn>, i64), StoreError> {
        let rows = sqlx::query("SELECT * FROM turns WHERE session_id = ? ORDER BY row LIMIT +? OFFSET +?")
            .bind(session.to_string())
            .bind(limit)
            .bind(offset)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::database("reading turns"))?;
        let total: i64 = sqlx::query_scalar("SELECT count(*) FROM turns WHERE session_id = ?")
            .bind(session.to_string())
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("counting turns"))?;
        let turns = rows.iter().map(row::turn).collect::<Result<_, _>>()?;
        Ok((turns, total))
    }

    pub async fn turn(&self, session: SessionId, turn: TurnId) -> Result<Option<Turn>, StoreError> {
        let row = sqlx::query("SELECT * FROM turns WHERE session_id = ? AND id = ?")
            .bind(session.to_string())
            .bind(turn.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading a turn"))?;
        row.as_ref().map(row::turn).transpose()
    }

    /// Turns that are queued or running, in the order they were accepted. Their prompts are among the newest messages, and
    /// looked for from there.
    pub async fn open_turns(&self, session: SessionId) -> Result<Vec<OpenTurn>, StoreError> {
        let rows = sqlx::query(
            "SELECT turns.id, turns.session_id, turns.status, turns.cancel_requested_at, turns.usage, turns.context, \
             (SELECT content FROM messages WHERE messages.session_id = turns.session_id AND messages.turn_id = turns.id \
             AND messages.role = 'user' ORDER BY messages.sequence DESC LIMIT 1) AS content FROM turns \
             WHERE turns.status IN ('queued', 'running') AND turns.session_id = ? ORDER BY turns.row",
        )
        .bind(session.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading open turns"))?;
        let open_turn = |row: &SqliteRow| {
            Ok(OpenTurn {
                id: row::parsed(row, "id")?,
                session: row::parsed(row, "session_id")?,
                status: row::parsed(row, "status")?,
                cancel_requested: row::column::<Option<i64>>(row, "cancel_requested_at")?.is_some(),
                prompt: row::from_json(row, "content")?,
                usage: row::json_option(row, "usage")?,
                context: context::of_turn(row)?,
            })
        };
        rows.iter().map(open_turn).collect()
    }

    /// Sessions that have turns which are queued or running, with those turns' ids.
    pub async fn open_turn_ids(&self) -> Result<BTreeMap<SessionId, Vec<TurnId>>, StoreError> {
        let rows = sqlx::query("SELECT session_id, id FROM turns WHERE status IN ('queued', 'running') ORDER BY row")
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::database("reading open turns"))?;
        let mut turns: BTreeMap<SessionId, Vec<TurnId>> = BTreeMap::new();
        let open = |row| Ok((row::parsed(row, "session_id")?, row::parsed(row, "id")?));
        for (session, turn) in rows.iter().filter_map(|row| open(row).inspect_err(log_damage).ok()) {
            turns.entry(session).or_default().push(turn);
        }
        Ok(turns)
    }

    /// Active sessions that have turns waiting, in the order of those turns.
    pub async fn sessions_with_queued_turns(&self) -> Result<Vec<SessionId>, StoreError> {
        let rows = sqlx::query(
            "SELECT sessions.id FROM turns JOIN sessions ON sessions.id = turns.session_id \
             WHERE turns.status = 'queued' AND sessions.status = 'active' GROUP BY sessions.id ORDER BY min(turns.row)",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading queued turns"))?;
        rows.iter().map(|row| row::parsed(row, "id")).collect()
    }

    /// Events after a cursor, in order: the session's sequence, or the id over all sessions. They end early at `bytes_max`,
    /// but there are never none when there are any.
    pub async fn events(
        &self,
        scope: EventScope,
        after: i64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(EVENT_COLUMNS);
        match scope {
            EventScope::Session(session) => {
                query.push(" WHERE events.session_id = ").push_bind(session.to_string());
                query.push(" AND events.sequence > ").push_bind(after).push(" ORDER BY events.sequence");
            }
            EventScope::Owner(owner) => return Ok(self.events_of_owner(owner, after, limit, bytes_max).await?.0),
            EventScope::All => {
                query.push(" WHERE events.id > ").push_bind(after).push(" ORDER BY events.id");
            }
        }
        self.bounded_events(query, limit, bytes_max).await
    }

    /// What a query over events finds, up to the bounds but never none when there are any.
    pub(super) async fn bounded_events(
        &self,
        mut query: QueryBuilder<Sqlite>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        query.push(" LIMIT +").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut rows = query.build().fetch(&self.pool);
        let mut events = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.try_next().await.map_err(StoreError::database("reading events"))? {
            let event = row::event(&row)?;
            bytes += event.data.get().len();
            if bytes > bytes_max && !events.is_empty() {
                break;
            }
            events.push(event);
        }
        Ok(events)
    }

    /// When the process of a turn last did something. The cancellation of a permission request does not count: after a crash, the
    /// next daemon records it.
    pub async fn last_event_at(&self, session: SessionId, turn: TurnId) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT created_at FROM events WHERE session_id = ? AND turn_id = ? AND \
            (type <> 'permission.resolved' OR data ->> '$.by.type' <> 'cancelled') ORDER BY sequence DESC LIMIT 1";
        let query = sqlx::query_scalar::<_, i64>(sql).bind(session.to_string()).bind(turn.to_string());
        let at = query.fetch_optional(&self.pool).await;
        let at = at.map_err(StoreError::database("reading when a turn's last event was"))?;
        Ok(at.map(Timestamp::from_millis))
    }

    /// Text that was streamed in a turn and never became a message, because the daemon died before it was whole.
    pub async fn unfinished_text(&self, session: SessionId, turn: TurnId) -> Result<Vec<UnfinishedText>, StoreError> {
        let rows = sqlx::query(
            "SELECT data ->> 'messageId' AS id, data ->> 'type' AS type, \
             group_concat(data ->> 'text', '' ORDER BY sequence) AS text \
             FROM events WHERE session_id = ?1 AND turn_id = ?2 AND type = 'message.delta' \
             AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = events.data ->> 'messageId') \
             GROUP BY data ->> 'messageId' ORDER BY min(sequence)",
        )
        .bind(session.to_string())
        .bind(turn.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::database("reading unfinished text"))?;
        let text = |row: &SqliteRow| {
            let text: String = row::column(row, "text")?;
            let content = match row::column::<&str>(row, "type")? {
                "thought" => Content::Thought { text, partial: true },
                _ => Content::Text { text, partial: true },
            };
            Ok(UnfinishedText { id: row::parsed(row, "id")?, content })
        };
        rows.iter().map(text).collect()
    }

    /// How far the log reaches.
    pub async fn head(&self, scope: EventScope) -> Result<i64, StoreError> {
        let query = match scope {
            EventScope::Session(session) => {
                sqlx::query_scalar("SELECT coalesce(max(sequence), 0) FROM events WHERE session_id = ?")
                    .bind(session.to_string())
            }
            EventScope::Owner(_) | EventScope::All => {
                // Not the newest that is left: a purge must not move the end of the log back.
                sqlx::query_scalar(
                    "SELECT max(purged_through, coalesce((SELECT max(id) FROM events), 0)) FROM maintenance",
                )
            }
        };
        query.fetch_one(&self.pool).await.map_err(StoreError::database("reading the end of the log"))
    }

    /// The greatest cursor over all that was ever given. When the end of the log is damaged, its index tells, so that what can
    /// be read is served.
    pub async fn last_cursor(&self) -> Result<i64, StoreError> {
        match self.head(EventScope::All).await {
            Err(error) if error.fault() == Fault::Damaged => sqlx::query_scalar(
                "SELECT max(purged_through, coalesce((SELECT max(id) FROM events INDEXED BY sqlite_autoindex_events_1), 0)) \
                 FROM maintenance",
            )
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::database("reading the end of the log from its index")),
            head => head,
        }
    }
}

/// For rows that are passed over.
pub(super) fn log_damage(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "skipped a damaged row of the database");
}

/// Until there are so many bytes of them.
pub(super) async fn bounded_messages(
    mut rows: impl Stream<Item = Result<SqliteRow, sqlx::Error>> + Unpin,
    bytes_max: usize,
) -> Result<Vec<Message>, StoreError> {
    let mut messages = Vec::new();
    let mut bytes = 0;
    while bytes < bytes_max
        && let Some(row) = rows.try_next().await.map_err(StoreError::database("reading messages"))?
    {
        let message = row::message(&row)?;
        bytes += message.content.get().len();
        messages.push(message);
    }
    Ok(messages)
}

fn push_filter(query: &mut QueryBuilder<Sqlite>, filter: &SessionFilter) {
    query.push(" WHERE TRUE");
    owners::push_sight(query, "sessions.owner_uid", filter.sight);
    if let Some(workspace) = filter.workspace {
        query.push(" AND sessions.workspace_id = ").push_bind(workspace.to_string());
    }
    if let Some(agent) = &filter.agent {
        query.push(" AND sessions.agent = ").push_bind(agent.clone());
    }
    if !filter.statuses.is_empty() {
        // The plus keeps the plan with the index by time: a list shows the newest, and most sessions have the usual statuses.
        query.push(" AND +sessions.status IN (");
        let mut list = query.separated(", ");
        for status in &filter.statuses {
            list.push_bind(status.as_str());
        }
        query.push(")");
    }
    if let Some(tag) = &filter.tag {
        query.push(" AND EXISTS (SELECT 1 FROM json_each(sessions.tags) WHERE value = ");
        query.push_bind(tag.clone()).push(")");
    }
    if let Some(name) = &filter.name {
        push_name(query, name);
    }
}

/// No index helps to find the end of an id, and to look at ten thousand rows takes less than a tenth of a second, even in
/// a build for tests.
fn push_name(query: &mut QueryBuilder<Sqlite>, name: &str) {
    query.push(" AND (sessions.title = ").push_bind(name.to_owned());
    // Of hexadecimal digits alone, so nothing in it means anything to LIKE.
    if let Some(digits) = part_digits(name) {
        query.push(" OR replace(sessions.id, '-', '') LIKE ").push_bind(format!("{digits}%"));
        query.push(" OR replace(sessions.id, '-', '') LIKE ").push_bind(format!("%{digits}"));
        // People see the last group, and copy the beginning of it.
        query.push(" OR substr(sessions.id, -12) LIKE ").push_bind(format!("{digits}%"));
    }
    query.push(")");
}
