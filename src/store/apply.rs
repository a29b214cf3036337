//! Applies units in one transaction. What every prompt needs is gathered in a [`Script`], with the rows of the two large
//! tables inserted many at a time; what is rare goes to the database at once, after what was gathered before it.

use std::collections::HashMap;

use serde_json::value::RawValue;
use sqlx::SqliteConnection;

use super::script::Script;
use super::writer::Head;
use super::{Catalogue, Committed, NewMessage, NewSession, Op, SessionChange, StoreError, StoredEvent, Unit};
use super::{choices, context, idempotency, prompts, retention, row, usage};
use crate::model::message::Message;
use crate::model::{EventBody, SessionId, SessionStatus, Timestamp, TurnId, TurnStatus};

/// Sessions whose counters are kept at hand; a forgotten one is read again.
const SEQUENCES_MAX: usize = 4096;
/// Rows in one statement. SQLite takes 32,766 variables; ours have at most 9 a row.
const ROWS_PER_STATEMENT: usize = 512;

/// The last numbers that a session's messages and events have.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    message: i64,
    event: i64,
}

/// The numbers that were given last, as of the last commit.
#[derive(Debug)]
pub struct Sequences {
    sessions: HashMap<SessionId, Counters>,
    /// The cursor over all sessions.
    cursor: i64,
}

impl Sequences {
    /// `cursor` is the last one that the database knows of.
    pub fn new(cursor: i64) -> Self {
        Self { sessions: HashMap::new(), cursor }
    }

    pub fn absorb(&mut self, newer: SequencesAfter) {
        let SequencesAfter { sessions, cursor } = newer;
        if self.sessions.len() + sessions.len() > SEQUENCES_MAX {
            self.sessions.clear();
        }
        for (session, counters) in sessions {
            match counters {
                Some(counters) => self.sessions.insert(session, counters),
                None => self.sessions.remove(&session),
            };
        }
        self.cursor = cursor;
    }
}

/// The numbers as they will be when the transaction is committed. A session that was deleted has none.
pub struct SequencesAfter {
    sessions: HashMap<SessionId, Option<Counters>>,
    cursor: i64,
}

/// What a transaction leaves behind: where the logs reach, what is new in them, and the numbers to go on from.
pub struct Applied {
    pub heads: Vec<Head>,
    pub events: Vec<StoredEvent>,
    pub sequences: SequencesAfter,
}

/// One transaction's work.
pub struct Apply<'a> {
    known: &'a Sequences,
    now: Timestamp,
    script: Script,
    sequences: SequencesAfter,
    messages: Vec<Message>,
    events: Vec<StoredEvent>,
    /// How many of the events are in the script or in the database already.
    events_written: usize,
    /// Sessions that somebody prompted or that said something, for `last_active_at`.
    active: Vec<SessionId>,
}

impl<'a> Apply<'a> {
    /// A transaction that begins with whatever is applied first.
    pub fn new(known: &'a Sequences) -> Self {
        let mut script = Script::default();
        script.step("to begin a transaction", |sql| {
            sql.push("BEGIN IMMEDIATE");
        });
        Self {
            known,
            now: Timestamp::now(),
            script,
            sequences: SequencesAfter { sessions: HashMap::new(), cursor: known.cursor },
            messages: Vec::new(),
            events: Vec::new(),
            events_written: 0,
            active: Vec::new(),
        }
    }

    pub async fn unit(&mut self, connection: &mut SqliteConnection, unit: &Unit) -> Result<Committed, StoreError> {
        for change in &unit.catalogue {
            self.script.run(connection).await?;
            self.catalogue(connection, change).await?;
        }
        let mut committed = Committed::default();
        for (session, op) in &unit.ops {
            committed.before.push(self.counters(connection, *session).await?.event);
            self.op(connection, *session, op).await?;
        }
        Ok(committed)
    }

    /// Writes what was gathered, and commits.
    pub async fn commit(mut self, connection: &mut SqliteConnection) -> Result<Applied, StoreError> {
        self.add_rows();
        self.script.step("to commit a transaction", |sql| {
            sql.push("COMMIT");
        });
        self.script.run(connection).await?;
        let cursor = self.sequences.cursor;
        let head = |(session, counters): (&SessionId, &Option<Counters>)| Head {
            session: *session,
            sequence: counters.map_or(0, |counters| counters.event),
            cursor,
            purged: counters.is_none(),
        };
        let heads = self.sequences.sessions.iter().map(head).collect();
        Ok(Applied { heads, events: self.events, sequences: self.sequences })
    }

    async fn catalogue(&mut self, connection: &mut SqliteConnection, change: &Catalogue) -> Result<(), StoreError> {
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

    async fn op(&mut self, connection: &mut SqliteConnection, session: SessionId, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::QueueTurn { .. } | Op::StartTurn { .. } | Op::RequestCancel { .. } | Op::FinishTurn { .. } => {
                return self.turn(session, op);
            }
            Op::Message(message) if message.blobs.is_empty() => return self.message(session, message),
            Op::Event { turn, body } => return self.event(session, *turn, body),
            _ => self.script.run(connection).await?,
        }
        match op {
            Op::CreateSession(new) => self.create_session(connection, session, new).await,
            Op::SetStatus { from, to, reason } => self.set_status(connection, session, *from, *to, reason).await,
            Op::ChangeSession(change) => self.change_session(connection, session, change).await,
            Op::Message(message) => {
                prompts::keep_blobs(connection, session, message).await?;
                self.message(session, message)
            }
            Op::SetPromptAbilities(_) | Op::KeepForPrompt(_) | Op::TakeForPrompt => {
                prompts::apply(connection, session, op).await
            }
            Op::SetTurnContext { turn, context } => context::set_of_turn(connection, *turn, context).await,
            Op::OweLinks(owed) => context::owe_links(connection, session, *owed).await,
            Op::Remember(remember) => {
                let after = self.loaded(session)?.event;
                let (claim, made) = &**remember;
                idempotency::remember(connection, session, claim, made, after, self.now).await
            }
            Op::Purge => self.purge(connection, session).await,
            Op::SetUsage(change) => usage::set(connection, session, change, self.now).await,
            Op::SetPaused(paused) => usage::set_paused(connection, session, *paused, self.now).await,
            Op::SetChoices(change) => match choices::set(connection, session, change, self.now).await? {
                Some(body) => self.event(session, None, &body),
                None => Ok(()),
            },
            _ => self.process(connection, session, op).await,
        }
    }

    /// What is kept of a session's process beside its events.
    async fn process(
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

    async fn set_status(
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
    async fn set_status_of_all(
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

    async fn create_session(
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

    async fn change_session(
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

    /// Turns only go forward; the statements say so, and an update that meets nothing is a bug that fails the unit.
    fn turn(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        const CHANGING: &str = "to change a turn";
        const NOT_FORWARD: &str = "a turn's change that does not follow from its status";
        let now = self.now.as_millis();
        match op {
            Op::QueueTurn { turn, position } => {
                self.active.push(session);
                self.script.step("to queue a turn", |sql| {
                    sql.push("INSERT INTO turns (status, queued_at, session_id, id) VALUES ('queued', ").push_bind(now);
                    sql.push(", ").push_bind(session.to_string()).push(", ").push_bind(turn.to_string()).push(")");
                });
                self.event(session, Some(*turn), &EventBody::TurnQueued { position: *position })
            }
            Op::StartTurn { turn } => {
                self.script.change(CHANGING, NOT_FORWARD, |sql| {
                    sql.push("UPDATE turns SET status = 'running', started_at = ").push_bind(now);
                    sql.push(" WHERE status = 'queued' AND id = ").push_bind(turn.to_string());
                });
                self.event(session, Some(*turn), &EventBody::TurnStarted {})
            }
            Op::RequestCancel { turn } => {
                self.script.change(CHANGING, NOT_FORWARD, |sql| {
                    sql.push("UPDATE turns SET cancel_requested_at = coalesce(cancel_requested_at, ").push_bind(now);
                    sql.push(") WHERE status IN ('queued', 'running') AND id = ").push_bind(turn.to_string());
                });
                Ok(())
            }
            Op::FinishTurn { turn, status, stop_reason, error, usage } => {
                debug_assert!(status.is_final(), "a turn finishes with a final status");
                let usage_json = usage.as_ref().map(to_json).transpose()?;
                self.script.change(CHANGING, NOT_FORWARD, |sql| {
                    sql.push("UPDATE turns SET status = ").push_bind(status.as_str());
                    sql.push(", stop_reason = ").push_bind(stop_reason.as_deref());
                    sql.push(", error_code = ").push_bind(error.as_ref().map(|error| error.code.as_str()));
                    sql.push(", error_message = ").push_bind(error.as_ref().map(|error| error.message.as_str()));
                    sql.push(", finished_at = ").push_bind(now);
                    sql.push(", usage = coalesce(").push_bind(usage_json).push(", usage)");
                    sql.push(" WHERE (status = 'running' OR (status = 'queued' AND ");
                    sql.push_bind(TurnStatus::Queued.may_become(*status));
                    sql.push(")) AND id = ").push_bind(turn.to_string());
                });
                let body = EventBody::TurnCompleted {
                    status: *status,
                    stop_reason: stop_reason.clone(),
                    error: error.clone(),
                    usage: usage.clone(),
                };
                self.event(session, Some(*turn), &body)
            }
            _ => Err(StoreError::Refused("an operation that is no turn's")),
        }
    }

    fn message(&mut self, session: SessionId, new: &NewMessage) -> Result<(), StoreError> {
        let counters = self.loaded(session)?;
        counters.message += 1;
        let sequence = counters.message;
        let message = Message {
            id: new.id,
            session_id: session,
            sequence,
            turn_id: new.turn,
            role: new.role,
            content: new.content.clone(),
            tool_call_id: new.tool_call_id.clone(),
            model: new.model.clone(),
            created_at: self.now,
        };
        let body = EventBody::MessageCreated(to_raw(&message)?);
        self.messages.push(message);
        self.active.push(session);
        self.log(session, new.turn, &body, Some(sequence))
    }

    fn event(&mut self, session: SessionId, turn: Option<TurnId>, body: &EventBody) -> Result<(), StoreError> {
        self.log(session, turn, body, None)
    }

    fn log(
        &mut self,
        session: SessionId,
        turn: Option<TurnId>,
        body: &EventBody,
        message: Option<i64>,
    ) -> Result<(), StoreError> {
        let (kind, data) = (body.kind().into(), to_raw(body)?);
        let counters = self.loaded(session)?;
        counters.event += 1;
        let sequence = counters.event;
        self.sequences.cursor += 1;
        let (id, created_at) = (self.sequences.cursor, self.now);
        self.events.push(StoredEvent { id, session, sequence, turn, kind, data, message, created_at });
        Ok(())
    }

    async fn purge(&mut self, connection: &mut SqliteConnection, session: SessionId) -> Result<(), StoreError> {
        // What was gathered before must not come back after the deletion.
        self.add_rows();
        self.script.run(connection).await?;
        prompts::release_blobs(connection, session).await?;
        sqlx::query("DELETE FROM sessions WHERE id = ?")
            .bind(session.to_string())
            .execute(connection)
            .await
            .map_err(StoreError::database("to delete a session"))?;
        // Nor is anybody to hear of it.
        self.events.retain(|event| event.session != session);
        self.events_written = self.events.len();
        self.sequences.sessions.insert(session, None);
        Ok(())
    }

    /// Adds the rows that were gathered to the script.
    fn add_rows(&mut self) {
        let now = self.now.as_millis();
        for rows in self.messages.chunks(ROWS_PER_STATEMENT) {
            self.script.step("to insert messages", |sql| {
                sql.push(
                    "INSERT INTO messages (id, session_id, sequence, turn_id, role, content, tool_call_id, model, created_at) ",
                );
                sql.push_values(rows, |mut row, message| {
                    row.push_bind(message.id.to_string())
                        .push_bind(message.session_id.to_string())
                        .push_bind(message.sequence)
                        .push_bind(message.turn_id.map(|turn| turn.to_string()))
                        .push_bind(message.role.as_str())
                        .push_bind(message.content.get())
                        .push_bind(message.tool_call_id.as_deref())
                        .push_bind(message.model.as_deref())
                        .push_bind(now);
                });
            });
        }
        for rows in self.events[self.events_written..].chunks(ROWS_PER_STATEMENT) {
            self.script.step("to insert events", |sql| {
                sql.push(
                    "INSERT INTO events (id, session_id, sequence, turn_id, type, data, created_at, message_sequence) ",
                );
                sql.push_values(rows, |mut row, event| {
                    row.push_bind(event.id)
                        .push_bind(event.session.to_string())
                        .push_bind(event.sequence)
                        .push_bind(event.turn.map(|turn| turn.to_string()))
                        .push_bind(event.kind.as_ref())
                        // What a message says is in its own row already.
                        .push_bind(if event.message.is_some() { "" } else { event.data.get() })
                        .push_bind(now)
                        .push_bind(event.message);
                });
            });
        }
        self.active.sort_unstable();
        self.active.dedup();
        for session in self.active.drain(..) {
            self.script.step("to note a session's activity", |sql| {
                sql.push("UPDATE sessions SET last_active_at = ").push_bind(now);
                sql.push(", updated_at = ").push_bind(now).push(" WHERE id = ").push_bind(session.to_string());
            });
        }
        self.messages.clear();
        self.events_written = self.events.len();
    }

    /// The session's numbers, read from the tables when nobody has them at hand.
    async fn counters(
        &mut self,
        connection: &mut SqliteConnection,
        session: SessionId,
    ) -> Result<Counters, StoreError> {
        if let Some(counters) = self.sequences.sessions.get(&session) {
            return counters.ok_or(StoreError::Refused("a deleted session"));
        }
        let counters = match self.known.sessions.get(&session) {
            Some(counters) => *counters,
            None => read_counters(connection, session).await?,
        };
        self.sequences.sessions.insert(session, Some(counters));
        Ok(counters)
    }

    fn loaded(&mut self, session: SessionId) -> Result<&mut Counters, StoreError> {
        match self.sequences.sessions.get_mut(&session) {
            Some(Some(counters)) => Ok(counters),
            Some(None) | None => Err(StoreError::Refused("a deleted session")),
        }
    }
}

async fn read_counters(connection: &mut SqliteConnection, session: SessionId) -> Result<Counters, StoreError> {
    let (message, event): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT coalesce(max(sequence), 0) FROM messages WHERE session_id = ?1), \
         (SELECT coalesce(max(sequence), 0) FROM events WHERE session_id = ?1)",
    )
    .bind(session.to_string())
    .fetch_one(connection)
    .await
    .map_err(StoreError::database("to read a session's sequences"))?;
    Ok(Counters { message, event })
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Damaged { what: format!("cannot be written as JSON: {error}") })
}

fn to_raw<T: serde::Serialize>(value: &T) -> Result<Box<RawValue>, StoreError> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| StoreError::Damaged { what: format!("cannot be written as JSON: {error}") })
}
