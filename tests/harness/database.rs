//! Another program that has the daemon's database.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

/// The right to write, which nobody else has until it is given back.
pub struct DatabaseLock(SqliteConnection);

impl DatabaseLock {
    /// Takes it from whoever has the state in this directory.
    pub async fn take(state_dir: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(state_dir.join("acpd.db"));
        let mut connection = options.connect().await.expect("the database can be opened");
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("nobody else writes now");
        Self(connection)
    }

    pub async fn give_back(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.expect("it was begun");
        self.0.close().await.expect("the database can be closed");
    }
}
