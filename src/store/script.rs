//! A script: statements that make their way to the database together.
//!
//! sqlx runs SQLite on a thread of its own, and most of what a small statement costs is the way there and back. So what
//! every prompt needs is gathered, and goes in one trip, from BEGIN to COMMIT. Each step can say that it must change exactly
//! one row; when it does not, the script stops there, before anything is committed.

use futures_util::TryStreamExt;
use sqlx::{Executor, QueryBuilder, Sqlite, SqliteConnection};

use super::StoreError;

/// Steps of a script that is kept prepared. Every text is prepared anew; only the usual, small ones are worth keeping.
const CACHED_STEPS_MAX: usize = 16;
/// Bytes of the text of such a script. A large one has many rows, and hardly comes twice.
const CACHED_BYTES_MAX: usize = 4096;

#[derive(Default)]
pub struct Script {
    sql: Option<QueryBuilder<Sqlite>>,
    steps: Vec<Step>,
}

enum Step {
    /// What the database refused, if it does.
    Statement(&'static str),
    /// Fails when the step before it did not change exactly one row, and why the unit is then refused.
    Check(&'static str),
}

/// SQL has no statement that fails on a condition, but a text that is no JSON is an error. `changes()` is of the statement
/// before.
const CHECK: &str = "SELECT json(iif(changes() = 1, 'true', 'not one row'))";

impl Script {
    /// Adds a statement, written by `write` with its values.
    pub fn step(&mut self, operation: &'static str, write: impl FnOnce(&mut QueryBuilder<Sqlite>)) {
        self.push(Step::Statement(operation), write);
    }

    /// Adds a statement that must change one row; when it does not, `refusal` says what is wrong with it.
    pub fn change(
        &mut self,
        operation: &'static str,
        refusal: &'static str,
        write: impl FnOnce(&mut QueryBuilder<Sqlite>),
    ) {
        self.push(Step::Statement(operation), write);
        self.push(Step::Check(refusal), |sql| {
            sql.push(CHECK);
        });
    }

    fn push(&mut self, step: Step, write: impl FnOnce(&mut QueryBuilder<Sqlite>)) {
        let sql = self.sql.get_or_insert_with(|| QueryBuilder::new(""));
        write(sql);
        sql.push(";");
        self.steps.push(step);
    }

    /// Runs what was gathered, in order, and stops at the first step that fails. Whoever began the transaction rolls back.
    pub async fn run(&mut self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let Some(mut sql) = self.sql.take() else { return Ok(()) };
        let steps = std::mem::take(&mut self.steps);
        let is_usual = steps.len() <= CACHED_STEPS_MAX && sql.sql().as_str().len() <= CACHED_BYTES_MAX;
        let mut outcomes = connection.execute_many(sql.build().persistent(is_usual));
        for step in steps {
            outcomes.try_next().await.map_err(|source| match step {
                Step::Statement(operation) => StoreError::Database { operation, source },
                Step::Check(refusal) => StoreError::Refused(refusal),
            })?;
        }
        Ok(())
    }
}
