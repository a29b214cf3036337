//! A batch: what every prompt needs of the database, gathered and written by one statement.
//!
//! sqlx runs SQLite on a thread of its own, and the end of every statement wakes whoever waits for it. On a small machine
//! the two threads then take turns on one processor, and a transaction of six statements takes twice as long for that alone.
//! So the rows go as one text into a view, and a trigger puts them where they belong. Both are temporary: each writing
//! connection makes them for itself ([`prepare`]), and no database ever has them.
//!
//! The order within a batch is that of the trigger, not that in which things were gathered: turns are made, started,
//! cancelled and ended, then come messages and events. What must keep another order goes in batches of its own.

use serde::Serialize;
use sqlx::{Executor, QueryBuilder, Sqlite, SqliteConnection};

use super::{Claim, Made, StoreError, StoredEvent};
use crate::model::message::Message;
use crate::model::{SessionId, TurnId, TurnStatus};

/// How SQLite numbers the refusal of a trigger.
const REFUSED_BY_TRIGGER: &str = "1811";

const VIEW: &str = "CREATE TEMP VIEW batch (now, rows) AS SELECT NULL, NULL";

/// Turns only go forward: as many rows must change as are named. What is usual, one turn and one session, is named without a
/// subquery, because SQLite makes a table for each; and one that has nothing to do is not begun.
const TRIGGER: &str = "
CREATE TEMP TRIGGER batch_is_written INSTEAD OF INSERT ON batch
BEGIN
    INSERT INTO turns (id, session_id, status, queued_at, started_at)
        SELECT value ->> 0, value ->> 1, iif(value ->> 2, 'running', 'queued'), new.now, iif(value ->> 2, new.now, NULL)
        FROM json_each(new.rows, '$.turns');

    UPDATE turns SET status = 'running', started_at = new.now
        WHERE new.rows ->> '$.starts[0]' IS NOT NULL AND status = 'queued'
            AND id IN (SELECT value FROM json_each(new.rows, '$.starts'));
    SELECT RAISE(ABORT, 'starts') WHERE changes() <> json_array_length(new.rows, '$.starts');

    UPDATE turns SET cancel_requested_at = coalesce(cancel_requested_at, new.now)
        WHERE new.rows ->> '$.cancels[0]' IS NOT NULL AND status IN ('queued', 'running')
            AND id IN (SELECT value FROM json_each(new.rows, '$.cancels'));
    SELECT RAISE(ABORT, 'cancels') WHERE changes() <> json_array_length(new.rows, '$.cancels');

    UPDATE turns SET status = new.rows ->> '$.end[1]', stop_reason = new.rows ->> '$.end[2]',
            error_code = new.rows ->> '$.end[3]', error_message = new.rows ->> '$.end[4]',
            usage = coalesce(new.rows ->> '$.end[5]', usage), finished_at = new.now
        WHERE id = new.rows ->> '$.end[0]'
            AND (status = 'running' OR (status = 'queued' AND new.rows ->> '$.end[6]'));
    SELECT RAISE(ABORT, 'end') WHERE changes() <> (new.rows ->> '$.end[0]' IS NOT NULL);

    UPDATE turns SET status = ended.value ->> 1, stop_reason = ended.value ->> 2, error_code = ended.value ->> 3,
            error_message = ended.value ->> 4, usage = coalesce(ended.value ->> 5, usage), finished_at = new.now
        FROM json_each(new.rows, '$.ends') AS ended
        WHERE new.rows ->> '$.ends[0]' IS NOT NULL AND turns.id = ended.value ->> 0
            AND (status = 'running' OR (status = 'queued' AND ended.value ->> 6));
    SELECT RAISE(ABORT, 'ends') WHERE changes() <> json_array_length(new.rows, '$.ends');

    INSERT INTO messages (id, session_id, sequence, turn_id, role, content, tool_call_id, model, created_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
            new.now
        FROM json_each(new.rows, '$.messages');

    INSERT INTO events (id, session_id, sequence, turn_id, type, data, message_sequence, created_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, new.now
        FROM json_each(new.rows, '$.events');

    -- Replaces one that is too old and not deleted yet. Whoever claims has seen to it that there is no other.
    INSERT OR REPLACE INTO idempotency_keys (uid, route, scope, key, body_hash, session_id, turn_id, message_id,
            position, after, created_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, unhex(value ->> 4), value ->> 5, value ->> 6,
            value ->> 7, value ->> 8, value ->> 9, new.now
        FROM json_each(new.rows, '$.keys');

    UPDATE sessions SET last_active_at = new.now, updated_at = new.now WHERE id = new.rows ->> '$.active[0]';
    UPDATE sessions SET last_active_at = new.now, updated_at = new.now
        WHERE new.rows ->> '$.active[1]' IS NOT NULL
            AND id IN (SELECT value FROM json_each(new.rows, '$.active') WHERE key > 0);
END";

/// Makes a connection able to take batches.
pub async fn prepare(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for statement in [VIEW, TRIGGER] {
        connection.execute(statement).await?;
    }
    Ok(())
}

/// Rows by their tables, as the trigger reads them.
#[derive(Default, Serialize)]
pub struct Batch {
    #[serde(skip)]
    now: i64,
    turns: Vec<NewTurn>,
    starts: Vec<TurnId>,
    cancels: Vec<TurnId>,
    /// The first turn that ends, and the others.
    end: Option<EndedTurn>,
    ends: Vec<EndedTurn>,
    messages: Vec<MessageRow>,
    events: Vec<EventRow>,
    keys: Vec<KeyRow>,
    active: Vec<SessionId>,
}

/// On an agent that is ready a turn starts where it is made: then it is written as running.
#[derive(Serialize)]
struct NewTurn(TurnId, SessionId, bool);

/// With whether it may end from the queue.
#[derive(Serialize)]
pub struct EndedTurn(
    pub TurnId,
    pub TurnStatus,
    pub Option<String>,
    pub Option<&'static str>,
    pub Option<String>,
    pub Option<String>,
    pub bool,
);

#[derive(Serialize)]
struct MessageRow(String, SessionId, i64, Option<TurnId>, &'static str, String, Option<String>, Option<String>);

#[derive(Serialize)]
struct EventRow(i64, SessionId, i64, Option<TurnId>, String, String, Option<i64>);

#[derive(Serialize)]
struct KeyRow(u32, &'static str, String, String, String, SessionId, Option<TurnId>, Option<String>, usize, i64);

impl Batch {
    pub const OPERATION: &'static str = "to write a batch";

    pub fn new(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    pub fn queue(&mut self, session: SessionId, turn: TurnId) {
        self.turns.push(NewTurn(turn, session, false));
        self.note_activity(session);
    }

    pub fn start(&mut self, turn: TurnId) {
        match self.turns.iter_mut().find(|new| new.0 == turn && !new.2) {
            Some(new) => new.2 = true,
            None => self.starts.push(turn),
        }
    }

    pub fn cancel(&mut self, turn: TurnId) {
        self.cancels.push(turn);
    }

    pub fn end(&mut self, turn: EndedTurn) {
        match self.end {
            None => self.end = Some(turn),
            Some(_) => self.ends.push(turn),
        }
    }

    /// A request's key, with what it brings about and how far the session's log reached before that.
    pub fn remember(&mut self, session: SessionId, claim: &Claim, made: &Made, after: i64) {
        let Claim { uid, route, scope, key, body_hash } = claim;
        let scope = scope.map(|scope| scope.to_string()).unwrap_or_default();
        let hash = body_hash.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let message = made.message.map(|message| message.to_string());
        self.keys.push(KeyRow(
            *uid,
            route,
            scope,
            key.clone(),
            hash,
            session,
            made.turn,
            message,
            made.position,
            after,
        ));
    }

    /// Somebody prompted the session, or it said something.
    pub fn note_activity(&mut self, session: SessionId) {
        if !self.active.contains(&session) {
            self.active.push(session);
        }
    }

    pub fn add_message(&mut self, message: &Message) {
        self.messages.push(MessageRow(
            message.id.to_string(),
            message.session_id,
            message.sequence,
            message.turn_id,
            message.role.as_str(),
            message.content.get().to_owned(),
            message.tool_call_id.clone(),
            message.model.clone(),
        ));
    }

    pub fn add_event(&mut self, event: &StoredEvent) {
        let kind = event.kind.clone().into_owned();
        let data = event.stored_data().to_owned();
        self.events.push(EventRow(event.id, event.session, event.sequence, event.turn, kind, data, event.message));
    }

    pub fn is_empty(&self) -> bool {
        let Self { now: _, turns, starts, cancels, end, ends, messages, events, keys, active } = self;
        turns.is_empty()
            && starts.is_empty()
            && cancels.is_empty()
            && end.is_none()
            && ends.is_empty()
            && messages.is_empty()
            && events.is_empty()
            && keys.is_empty()
            && active.is_empty()
    }

    /// The statement that writes it.
    pub fn statement(&self, sql: &mut QueryBuilder<Sqlite>) -> Result<(), StoreError> {
        sql.push("INSERT INTO batch (now, rows) VALUES (").push_bind(self.now);
        sql.push(", ").push_bind(super::apply::to_json(self)?).push(")");
        Ok(())
    }

    /// Writes it in a transaction of its own.
    pub async fn commit(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut sql = QueryBuilder::new("");
        self.statement(&mut sql)?;
        sql.build().execute(connection).await.map_err(|source| refusal(Self::OPERATION, source))?;
        Ok(())
    }
}

/// What is wrong when the database does not take a statement; for a batch it may be that a turn would go backward.
pub fn refusal(operation: &'static str, source: sqlx::Error) -> StoreError {
    let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
    if code.is_some_and(|code| code == REFUSED_BY_TRIGGER) {
        StoreError::Refused("a turn's change that does not follow from its status")
    } else {
        StoreError::Database { operation, source }
    }
}
