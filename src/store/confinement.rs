//! What is kept of a session's confinement.

use rusqlite::params;

use super::StoreError;
use super::apply::{Apply, to_json};
use crate::model::{Sandbox, SessionId};

impl Apply<'_> {
    pub(super) fn set_sandbox(&self, session: SessionId, sandbox: &Sandbox) -> Result<(), StoreError> {
        self.connection.run(
            "storing the sandbox of a process",
            "UPDATE sessions SET sandbox = ?2, updated_at = ?3 WHERE id = ?1",
            params![session.to_string(), to_json(sandbox)?, self.now.as_millis()],
        )?;
        Ok(())
    }
}
