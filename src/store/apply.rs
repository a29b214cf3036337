//! Applies units in one transaction; what is done to the rows is in [`super::sessions`], [`super::turns`] and the other
//! rooms of this layer, and here is what holds them together: the order, the numbers, the log.
//!
//! One transaction, one clock. Operations are carried out in their order, each with the event that tells of it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::connection::Connection;
use super::writer::{Appended, Head};
use super::{Committed, NewMessage, Op, StoreError, StoredEvent, Unit};
use crate::model::message::Message;
use crate::model::{EventBody, SessionId, Timestamp, TurnId};
use rusqlite::params;
use serde_json::value::RawValue;

/// Sessions whose counters are kept at hand; a forgotten one is read again.
const SEQUENCES_MAX: usize = 4096;
/// The last numbers that a session's messages and events have, and what else every event of it needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    message: i64,
    event: i64,
    /// Whose the session is, when that is not the daemon's own user.
    owner: Option<u32>,
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
    pub events: Vec<Appended>,
    pub sequences: SequencesAfter,
    /// Questions that nobody waits for any more.
    pub withdrawn: u64,
}

/// One transaction's work.
pub struct Apply<'a> {
    pub(super) connection: &'a Connection,
    known: &'a Sequences,
    pub(super) now: Timestamp,
    sequences: SequencesAfter,
    events: Vec<Appended>,
    pub(super) withdrawn: u64,
    /// The sessions that were prompted, or said something.
    active: Vec<SessionId>,
}

impl<'a> Apply<'a> {
    /// Begins the transaction. Whoever gets an error rolls back.
    pub fn begin(connection: &'a Connection, known: &'a Sequences) -> Result<Self, StoreError> {
        connection.begin()?;
        Ok(Self {
            connection,
            known,
            now: Timestamp::now(),
            sequences: SequencesAfter { sessions: HashMap::new(), cursor: known.cursor },
            events: Vec::new(),
            withdrawn: 0,
            active: Vec::new(),
        })
    }

    pub fn unit(&mut self, unit: &Unit) -> Result<Committed, StoreError> {
        for change in &unit.catalogue {
            self.catalogue(change)?;
        }
        let mut committed = Committed::default();
        for (session, op) in &unit.ops {
            committed.before.push(self.counters(*session)?.event);
            self.op(*session, op)?;
        }
        Ok(committed)
    }

    pub fn commit(self) -> Result<Applied, StoreError> {
        for session in &self.active {
            self.connection.run(
                "storing the last activity of a session",
                "UPDATE sessions SET last_active_at = ?2, updated_at = ?2 WHERE id = ?1",
                params![session.to_string(), self.now.as_millis()],
            )?;
        }
        self.connection.commit()?;
        let cursor = self.sequences.cursor;
        let head = |(session, counters): (&SessionId, &Option<Counters>)| Head {
            session: *session,
            sequence: counters.map_or(0, |counters| counters.event),
            cursor,
            purged: counters.is_none(),
        };
        let heads = self.sequences.sessions.iter().map(head).collect();
        Ok(Applied { heads, events: self.events, sequences: self.sequences, withdrawn: self.withdrawn })
    }

    pub(super) fn op(&mut self, session: SessionId, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::CreateSession(new) => self.create_session(session, new, None),
            Op::Import(imported) => self.import(session, imported),
            Op::SetStatus { from, to, reason, by } => self.set_status(session, *from, *to, reason, by),
            Op::ChangeSession(change) => self.change_session(session, change),
            Op::SetAgentSession { .. }
            | Op::SetContextRestored(_)
            | Op::SetProcess(_)
            | Op::ClearProcess
            | Op::SetLastError(_) => self.process(session, op),
            Op::QueueTurn { .. } | Op::StartTurn { .. } | Op::RequestCancel { .. } | Op::FinishTurn { .. } => {
                self.turn(session, op)
            }
            Op::SetUsage(change) => self.set_usage(session, change),
            Op::SetPaused(paused) => self.set_paused(session, *paused),
            Op::SetChoices(change) => self.set_choices(session, change),
            Op::Message(message) => self.message(session, message),
            Op::Event { turn, body } => self.event(session, *turn, body),
            Op::KeepMedia { message, blobs } => self.keep_blobs(session, *message, blobs),
            Op::SetPromptAbilities(_) | Op::KeepForPrompt(_) | Op::ForgetWaiting(_) => self.prompt(session, op),
            Op::SetTurnContext { turn, context } => self.set_turn_context(session, *turn, context),
            Op::OweLinks(owed) => self.owe_links(session, *owed),
            Op::OweInstructions(owed) => self.owe_instructions(session, *owed),
            Op::Remember(remember) => self.remember(session, &remember.0, &remember.1),
            Op::AskPermission(asked) => self.ask_permission(session, asked),
            Op::ResolvePermission(resolved) => self.resolve_permission(session, resolved),
            Op::AddRule(rule) => self.add_rule(session, rule),
            Op::RemoveRule { rule, by } => self.remove_rule(session, *rule, by),
            Op::SetSandbox(sandbox) => self.set_sandbox(session, sandbox),
            Op::SetWorkspaceIdentity(identity) => self.set_workspace_identity(session, identity),
            Op::SetOrigin(origin) => self.set_origin(session, origin),
            Op::AddCheckpoint(new) => self.add_checkpoint(session, new),
            Op::Purge => self.purge(session),
        }
    }

    fn message(&mut self, session: SessionId, new: &NewMessage) -> Result<(), StoreError> {
        self.keep_blobs(session, new.id, &new.blobs)?;
        let counters = self.loaded(session)?;
        counters.message += 1;
        let sequence = counters.message;
        let message = Message {
            id: new.id,
            session_id: session,
            sequence,
            turn_id: new.turn,
            role: new.role,
            content: &*new.content,
            tool_call_id: new.tool_call_id.clone(),
            model: new.model.clone(),
            by: new.by.as_deref().cloned(),
            created_at: self.now,
        };
        self.connection.run(
            "inserting a message",
            "INSERT INTO messages (id, session_id, sequence, turn_id, role, content, tool_call_id, model, created_at, \
             made_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                message.id.to_string(),
                session.to_string(),
                sequence,
                message.turn_id.map(|turn| turn.to_string()),
                message.role.as_str(),
                message.content.get(),
                message.tool_call_id,
                message.model,
                self.now.as_millis(),
                new.by.as_ref().map(to_json).transpose()?,
            ],
        )?;
        self.note_activity(session);
        let body = EventBody::MessageCreated(to_raw(&message)?);
        self.log(session, new.turn, Cow::Owned(body), Some(sequence))
    }

    pub(super) fn event(
        &mut self,
        session: SessionId,
        turn: Option<TurnId>,
        body: &EventBody,
    ) -> Result<(), StoreError> {
        self.log(session, turn, Cow::Borrowed(body), None)
    }

    fn log(
        &mut self,
        session: SessionId,
        turn: Option<TurnId>,
        body: Cow<'_, EventBody>,
        message: Option<i64>,
    ) -> Result<(), StoreError> {
        let kind = body.kind().into();
        let data = match body {
            // It is JSON already, and may be megabytes of it.
            Cow::Owned(EventBody::MessageCreated(data)) => data,
            body => to_raw(&*body)?,
        };
        let counters = self.loaded(session)?;
        counters.event += 1;
        let (sequence, owner) = (counters.event, counters.owner);
        self.sequences.cursor += 1;
        let (id, created_at) = (self.sequences.cursor, self.now);
        let event = StoredEvent { id, session, sequence, turn, kind, data, message, created_at };
        self.connection.run(
            "inserting an event",
            "INSERT INTO events (id, session_id, sequence, turn_id, type, data, created_at, message_sequence) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                id,
                session.to_string(),
                sequence,
                turn.map(|turn| turn.to_string()),
                event.kind,
                event.stored_data(),
                created_at.as_millis(),
                message,
            ],
        )?;
        self.events.push(Appended { owner, event });
        Ok(())
    }

    /// Somebody prompted the session, or it said something.
    pub(super) fn note_activity(&mut self, session: SessionId) {
        if !self.active.contains(&session) {
            self.active.push(session);
        }
    }

    /// What was done to the session in this transaction is no activity of now.
    pub(super) fn forget_activity(&mut self, session: SessionId) {
        self.active.retain(|active| *active != session);
    }

    /// Forgets a session that is deleted in this transaction: nothing can be written to it, and nobody hears of it.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.events.retain(|appended| appended.event.session != session);
        self.sequences.sessions.insert(session, None);
    }

    /// Notes whose a session is that is made in this transaction.
    pub(super) fn note_owner(&mut self, session: SessionId, owner: Option<u32>) -> Result<(), StoreError> {
        self.loaded(session)?.owner = owner;
        Ok(())
    }

    /// How far the session's log reaches.
    pub(super) fn last_event(&mut self, session: SessionId) -> Result<i64, StoreError> {
        self.loaded(session).map(|counters| counters.event)
    }

    /// The session's numbers, read from the tables when nobody has them at hand.
    pub(super) fn counters(&mut self, session: SessionId) -> Result<Counters, StoreError> {
        if let Some(counters) = self.sequences.sessions.get(&session) {
            return counters.ok_or(StoreError::Refused("a deleted session"));
        }
        let counters = match self.known.sessions.get(&session) {
            Some(counters) => *counters,
            None => self.read_counters(session)?,
        };
        self.sequences.sessions.insert(session, Some(counters));
        Ok(counters)
    }

    fn read_counters(&self, session: SessionId) -> Result<Counters, StoreError> {
        let counters = self.connection.first(
            "reading a session's sequences",
            "SELECT (SELECT coalesce(max(sequence), 0) FROM messages WHERE session_id = ?1), \
             (SELECT coalesce(max(sequence), 0) FROM events WHERE session_id = ?1), \
             (SELECT owner_uid FROM sessions WHERE id = ?1)",
            [session.to_string()],
            |row| Ok(Counters { message: row.get(0)?, event: row.get(1)?, owner: row.get(2)? }),
        )?;
        Ok(counters.unwrap_or_default())
    }

    fn loaded(&mut self, session: SessionId) -> Result<&mut Counters, StoreError> {
        match self.sequences.sessions.get_mut(&session) {
            Some(Some(counters)) => Ok(counters),
            Some(None) | None => Err(StoreError::Refused("a deleted session")),
        }
    }
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| not_json(&error))
}

fn to_raw<T: serde::Serialize>(value: &T) -> Result<Box<RawValue>, StoreError> {
    serde_json::value::to_raw_value(value).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> StoreError {
    StoreError::Damaged { what: format!("cannot be written as JSON: {error}") }
}
