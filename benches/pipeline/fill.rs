//! A large store, made quickly: acpd makes the schema and one session of its own, and the rest is multiplied from that
//! by SQLite itself. Then acpd does what it does while it is idle, the index among it, as it would have done over the years: else it
//! would be busy with that while it is measured. The store is kept below cargo's target directory for the next run.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::daemon::{Home, directory};

/// To be raised when the rows below change, so that a kept store is made anew.
const RECIPE: u32 = 2;
const TURNS_PER_SESSION: usize = 10;
const MESSAGES_PER_TURN: usize = 10;
pub const MESSAGES_PER_SESSION: usize = TURNS_PER_SESSION * MESSAGES_PER_TURN;

/// A database with so many sessions.
pub fn large_store(sessions: usize) -> anyhow::Result<PathBuf> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let home = Home::create()?;
    let (daemon, _) = home.start()?;
    // The session that the others are made after.
    daemon.create_lazy_session()?;
    drop(daemon);
    let kept = runtime.block_on(async {
        let options = SqliteConnectOptions::new()
            .filename(home.database())
            .foreign_keys(false)
            .journal_mode(SqliteJournalMode::Off)
            .synchronous(SqliteSynchronous::Off);
        let mut connection = options.connect().await?;
        let schema: i64 =
            sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(&mut connection).await?;
        let kept = directory().join(format!("bench-store-{schema}-{RECIPE}-{sessions}.db"));
        if !kept.exists() {
            eprintln!("making a store of {sessions} sessions: {}", kept.display());
            fill(&mut connection, sessions).await.context("cannot fill the store")?;
        }
        connection.close().await?;
        anyhow::Ok(kept)
    })?;
    if !kept.exists() {
        tidy(&home)?;
        // Only a whole store gets the name.
        std::fs::rename(home.database(), &kept)?;
    }
    Ok(kept)
}

/// Has acpd do all that is due.
fn tidy(home: &Home) -> anyhow::Result<()> {
    let (daemon, _) = home.start()?;
    while daemon.client()?.post("/v1/gc", &json!({}), 200)?["store"]["complete"] != true {}
    Ok(())
}

/// Numbers that everything is made from: sessions from 0, turns and messages from 0 within each.
const NUMBERS: &str = "WITH RECURSIVE \
     session_numbers (session) AS (SELECT 0 UNION ALL SELECT session + 1 FROM session_numbers WHERE session + 1 < $sessions), \
     turn_numbers (turn) AS (SELECT 0 UNION ALL SELECT turn + 1 FROM turn_numbers WHERE turn + 1 < $turns), \
     message_numbers (message) AS \
     (SELECT 0 UNION ALL SELECT message + 1 FROM message_numbers WHERE message + 1 < $turns * $messages) ";

/// A UUID v7 with the time of its session, and then numbers that no other one has. `$first` is where the times begin.
const SESSION_ID: &str = "format('%08x-%04x-7000-8000-%012x', ($first + session * 1000) >> 16, \
     ($first + session * 1000) & 65535, session)";
const TURN_ID: &str = "format('%08x-%04x-7001-8%03x-%012x', ($first + session * 1000) >> 16, \
     ($first + session * 1000) & 65535, turn, session)";

async fn fill(connection: &mut SqliteConnection, sessions: usize) -> anyhow::Result<()> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let first = now - 1000 * i64::try_from(sessions)?;
    for statement in statements() {
        let statement = statement
            .replace("$session_id", SESSION_ID)
            .replace("$turn_id", TURN_ID)
            .replace("$sessions", &sessions.to_string())
            .replace("$turns", &TURNS_PER_SESSION.to_string())
            .replace("$messages", &MESSAGES_PER_TURN.to_string())
            .replace("$first", &first.to_string())
            .replace("$now", &now.to_string());
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// One statement a table. Only the columns that a row needs are named; the others have their defaults.
fn statements() -> [String; 4] {
    [
        format!(
            "INSERT INTO sessions (id, workspace_id, agent, profile, permissions, title, tags, status, created_at, \
             updated_at, last_active_at, status_changed_at) {NUMBERS} \
             SELECT $session_id, workspace_id, agent, profile, permissions, 'Session number ' || session, '[]', \
             CASE session % 20 WHEN 0 THEN 'error' WHEN 1 THEN 'archived' WHEN 2 THEN 'archived' ELSE 'suspended' END, \
             $first + session * 1000, $now, $first + session * 1000 + 500, $now \
             FROM session_numbers, (SELECT * FROM sessions LIMIT 1)"
        ),
        format!(
            "INSERT INTO turns (id, session_id, status, stop_reason, queued_at, started_at, finished_at) {NUMBERS} \
             SELECT $turn_id, $session_id, 'completed', 'end_turn', $first + session * 1000 + turn, \
             $first + session * 1000 + turn, $first + session * 1000 + turn FROM session_numbers, turn_numbers"
        ),
        format!(
            "INSERT INTO messages (id, session_id, sequence, turn_id, role, content, created_at) {NUMBERS}, \
             placed (session, turn, message) AS \
             (SELECT session, message / $messages, message FROM session_numbers, message_numbers) \
             SELECT format('%08x-%04x-7002-8%03x-%012x', ($first + session * 1000) >> 16, \
             ($first + session * 1000) & 65535, message, session), $session_id, message + 1, $turn_id, \
             CASE message % $messages WHEN 0 THEN 'user' ELSE 'agent' END, \
             json_object('type', 'text', 'text', 'Message ' || message || ' of session ' || session || \
             ': the quick brown fox jumps over the lazy dog, and goes on for about as long as a short paragraph does, \
             because most of what is said in a session is neither a word nor a book.', 'partial', json('false')), \
             $first + session * 1000 + message FROM placed"
        ),
        format!(
            "INSERT INTO events (session_id, sequence, turn_id, type, data, created_at) {NUMBERS}, \
             kinds (kind, type, data) AS (VALUES (1, 'turn.queued', '{{\"position\":0}}'), (2, 'turn.started', '{{}}'), \
             (3, 'turn.completed', '{{\"status\":\"completed\",\"stopReason\":\"end_turn\",\"error\":null}}')) \
             SELECT $session_id, turn * 3 + kind, $turn_id, type, data, $first + session * 1000 + turn \
             FROM session_numbers, turn_numbers, kinds"
        ),
    ]
}
