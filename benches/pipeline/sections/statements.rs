//! Why two SQLite libraries: one small statement in the caller's own thread (rusqlite, which writes the store), and the same
//! statement through sqlx (which reads the store), whose connection lives in another thread.

use std::time::{Duration, Instant};

use anyhow::Context;
use sqlx::Connection;

use super::Scale;
use crate::table::Row;

const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO t (text) VALUES (?1)";
const TEXT: &str = "one chunk of an answer";
/// Inserts for each turn of the scale: a statement takes microseconds.
const INSERTS_PER_TURN: usize = 100;

pub fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let inserts = u32::try_from(scale.turns * INSERTS_PER_TURN)?;
    let here = in_this_thread(inserts).context("rusqlite")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let elsewhere = runtime.block_on(through_sqlx(inserts)).context("sqlx")?;
    let mut row = Row::lone("one INSERT in a transaction: rusqlite, compared with sqlx", microseconds(here));
    row.compared = format!("sqlx: {}, {:.0}×", microseconds(elsewhere), elsewhere.as_secs_f64() / here.as_secs_f64());
    Ok(vec![row])
}

/// The time of one insert.
fn in_this_thread(inserts: u32) -> anyhow::Result<Duration> {
    let mut connection = rusqlite::Connection::open_in_memory()?;
    connection.execute(TABLE, [])?;
    let transaction = connection.transaction()?;
    let begin = Instant::now();
    for _ in 0..inserts {
        transaction.prepare_cached(INSERT)?.execute([TEXT])?;
    }
    let took = begin.elapsed();
    transaction.commit()?;
    Ok(took / inserts)
}

async fn through_sqlx(inserts: u32) -> anyhow::Result<Duration> {
    let mut connection = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
    sqlx::query(TABLE).execute(&mut connection).await?;
    let mut transaction = connection.begin().await?;
    let begin = Instant::now();
    for _ in 0..inserts {
        sqlx::query(INSERT).bind(TEXT).execute(&mut *transaction).await?;
    }
    let took = begin.elapsed();
    transaction.commit().await?;
    Ok(took / inserts)
}

fn microseconds(duration: Duration) -> String {
    format!("{:.1} µs", duration.as_secs_f64() * 1e6)
}
