//! Applies units in one transaction; what is done to the rows is in [`super::sessions`], [`super::turns`] and the other
//! rooms of this layer, and here is what holds them together: the order, the numbers, the log.
//!
//! One transaction, one clock. What every prompt needs is gathered in a [`Batch`], which one statement writes and commits.
//! What is large goes in a [`Script`], with many rows a statement; what is rare goes to the database at once, after what
//! was gathered before it.

use std::collections::HashMap;

use serde_json::value::RawValue;
use sqlx::SqliteConnection;

use super::batch::Batch;
use super::script::Script;
use super::writer::Head;
use super::{Committed, NewMessage, Op, StoreError, StoredEvent, Unit};
use super::{choices, context, prompts, usage};
use crate::model::message::Message;
use crate::model::{EventBody, SessionId, Timestamp, TurnId};

/// Sessions whose counters are kept at hand; a forgotten one is read again.
const SEQUENCES_MAX: usize = 4096;
/// Rows in one statement. SQLite takes 32,766 variables; ours have at most 9 a row.
const ROWS_PER_STATEMENT: usize = 512;

/// Texts of messages and events up to which all goes into one statement. Beyond that the way there and back counts less
/// than writing and reading the texts once more.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// The last numbers that a session's messages and events have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
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
    pub(super) now: Timestamp,
    pub(super) batch: Batch,
    script: Script,
    /// Whether the transaction has begun; else what was gathered can be written by one statement.
    is_begun: bool,
    sequences: SequencesAfter,
    messages: Vec<Message>,
    events: Vec<StoredEvent>,
    /// How many of the events are in the script or in the database already.
    events_written: usize,
}

impl<'a> Apply<'a> {
    pub fn new(known: &'a Sequences) -> Self {
        let now = Timestamp::now();
        Self {
            known,
            now,
            batch: Batch::new(now.as_millis()),
            script: Script::default(),
            is_begun: false,
            sequences: SequencesAfter { sessions: HashMap::new(), cursor: known.cursor },
            messages: Vec::new(),
            events: Vec::new(),
            events_written: 0,
        }
    }

    pub async fn unit(&mut self, connection: &mut SqliteConnection, unit: &Unit) -> Result<Committed, StoreError> {
        for change in &unit.catalogue {
            self.catch_up(connection).await?;
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
        if self.is_small() {
            self.messages.iter().for_each(|message| self.batch.add_message(message));
            self.events.iter().for_each(|event| self.batch.add_event(event));
            self.batch.commit(connection).await?;
        } else {
            self.add_batch()?;
            self.add_rows();
            self.script.step("to commit a transaction", |sql| {
                sql.push("COMMIT");
            });
            self.script.run(connection).await?;
        }
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

    /// Has the database up to date for what goes to it by itself. Messages and events come last: nothing looks at them.
    async fn catch_up(&mut self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        self.add_batch()?;
        self.script.run(connection).await
    }

    async fn op(&mut self, connection: &mut SqliteConnection, session: SessionId, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::QueueTurn { .. } | Op::StartTurn { .. } | Op::RequestCancel { .. } | Op::FinishTurn { .. } => {
                return self.turn(session, op);
            }
            Op::Message(message) if message.blobs.is_empty() => return self.message(session, message),
            Op::Event { turn, body } => return self.event(session, *turn, body),
            Op::Remember(remember) => {
                let after = self.loaded(session)?.event;
                let (claim, made) = &**remember;
                self.batch.remember(session, claim, made, after);
                return Ok(());
            }
            _ => self.catch_up(connection).await?,
        }
        match op {
            Op::CreateSession(new) => self.create_session(connection, session, new).await,
            Op::SetStatus { from, to, reason } => self.set_status(connection, session, *from, *to, reason).await,
            Op::ChangeSession(change) => self.change_session(connection, session, change).await,
            Op::Message(message) => {
                prompts::keep_blobs(connection, session, message).await?;
                self.message(session, message)
            }
            Op::SetPromptAbilities(_) | Op::KeepForPrompt(_) | Op::ForgetWaiting(_) => {
                prompts::apply(connection, session, op).await
            }
            Op::SetTurnContext { turn, context } => context::set_of_turn(connection, *turn, context).await,
            Op::OweLinks(owed) => context::owe_links(connection, session, *owed).await,
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
        self.batch.note_activity(session);
        self.log(session, new.turn, &body, Some(sequence))
    }

    pub(super) fn event(
        &mut self,
        session: SessionId,
        turn: Option<TurnId>,
        body: &EventBody,
    ) -> Result<(), StoreError> {
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

    /// Forgets a session that is deleted in this transaction: nothing can be written to it, and nobody hears of it.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.events.retain(|event| event.session != session);
        self.events_written = self.events.len();
        self.sequences.sessions.insert(session, None);
    }

    /// Writes what was gathered, in the transaction that was begun.
    pub(super) async fn write(&mut self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        self.add_batch()?;
        self.add_rows();
        self.script.run(connection).await
    }

    /// Adds what was gathered beside messages and events to the script.
    fn add_batch(&mut self) -> Result<(), StoreError> {
        if !self.is_begun {
            self.is_begun = true;
            self.script.step("to begin a transaction", |sql| {
                sql.push("BEGIN IMMEDIATE");
            });
        }
        let batch = std::mem::replace(&mut self.batch, Batch::new(self.now.as_millis()));
        if batch.is_empty() {
            return Ok(());
        }
        let mut statement = Ok(());
        self.script.step(Batch::OPERATION, |sql| statement = batch.statement(sql));
        statement
    }

    /// Adds messages and events, many at a time, to the script.
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
                        .push_bind(event.stored_data())
                        .push_bind(now)
                        .push_bind(event.message);
                });
            });
        }
        self.messages.clear();
        self.events_written = self.events.len();
    }

    /// Whether all that there is to write goes into one statement.
    fn is_small(&self) -> bool {
        let messages = self.messages.iter().map(|message| message.content.get().len());
        let events = self.events.iter().map(|event| event.stored_data().len());
        !self.is_begun && messages.chain(events).sum::<usize>() <= BATCH_BYTES_MAX
    }

    /// The session's numbers, read from the tables when nobody has them at hand.
    pub(super) async fn counters(
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
