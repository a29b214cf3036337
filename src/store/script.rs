//! A script: statements that make their way to the database together, for what is too large for one ([`super::batch`]) or
//! goes with something rare.
//!
//! sqlx calls several statements in one query deprecated; this is the place to look at when that goes.

use futures_util::TryStreamExt;
use sqlx::{Executor, QueryBuilder, Sqlite, SqliteConnection};

use super::{StoreError, batch};

#[derive(Default)]
pub struct Script {
    sql: Option<QueryBuilder<Sqlite>>,
    /// What each statement does, for the error when it is refused.
    operations: Vec<&'static str>,
}

impl Script {
    /// Adds a statement, written by `write` with its values.
    pub fn step(&mut self, operation: &'static str, write: impl FnOnce(&mut QueryBuilder<Sqlite>)) {
        let sql = self.sql.get_or_insert_with(|| QueryBuilder::new(""));
        write(sql);
        sql.push(";");
        self.operations.push(operation);
    }

    /// Runs what was gathered, in order, and stops at the first step that fails. Whoever began the transaction rolls back.
    pub async fn run(&mut self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let Some(mut sql) = self.sql.take() else { return Ok(()) };
        // Hardly one is like another, so they are not kept prepared.
        let mut outcomes = connection.execute_many(sql.build().persistent(false));
        for operation in std::mem::take(&mut self.operations) {
            outcomes.try_next().await.map_err(|source| batch::refusal(operation, source))?;
        }
        Ok(())
    }
}
