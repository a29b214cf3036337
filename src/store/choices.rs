//! What agents announce of their modes, models, commands and options, and what was chosen of it.

use rusqlite::params;
use serde_json::value::RawValue;

use super::apply::{Apply, to_json};
use super::{ChoicesChange, Store, StoreError, row};
use crate::model::{Announced, EventBody, SessionId};

impl Store {
    /// What the session's agent announced last.
    pub async fn announced(&self, session: SessionId) -> Result<Announced, StoreError> {
        let row = sqlx::query("SELECT * FROM announced WHERE session_id = ?")
            .bind(session.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::database("reading what an agent announced"))?;
        let Some(row) = row else { return Ok(Announced::default()) };
        let raw = |name| {
            let text: Option<String> = row::column(&row, name)?;
            let damaged = |error| StoreError::Damaged { what: format!("column {name}: {error}") };
            text.map(RawValue::from_string).transpose().map_err(damaged)
        };
        Ok(Announced {
            modes: raw("modes")?,
            models: raw("models")?,
            commands: raw("commands")?,
            config_options: raw("config_options")?,
        })
    }
}

impl Apply<'_> {
    /// Writes what changed, and tells of it, if there is anything to tell.
    pub(super) fn set_choices(&mut self, session: SessionId, change: &ChoicesChange) -> Result<(), StoreError> {
        let id = session.to_string();
        let Announced { modes, models, commands, config_options } = &change.announced;
        if modes.is_some() || models.is_some() || commands.is_some() || config_options.is_some() {
            self.connection.run(
                "storing the agent's announced choices",
                "INSERT INTO announced (session_id, modes, models, commands, config_options) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session_id) DO UPDATE SET \
                 modes = coalesce(?2, modes), models = coalesce(?3, models), commands = coalesce(?4, commands), \
                 config_options = coalesce(?5, config_options)",
                params![
                    id,
                    modes.as_deref().map(RawValue::get),
                    models.as_deref().map(RawValue::get),
                    commands.as_deref().map(RawValue::get),
                    config_options.as_deref().map(RawValue::get),
                ],
            )?;
        }
        let chosen = change.chosen.as_ref().map(to_json).transpose()?;
        self.connection.run(
            "storing the chosen settings",
            "UPDATE sessions SET mode = coalesce(?2, mode), model = coalesce(?3, model), \
             chosen = coalesce(?4, chosen), updated_at = ?5 WHERE id = ?1",
            params![id, change.mode, change.model, chosen, self.now.as_millis()],
        )?;
        let ChoicesChange { mode, model, config_options, commands, by, .. } = change.clone();
        if mode.is_none() && model.is_none() && config_options.is_none() && commands.is_none() {
            return Ok(());
        }
        let body = EventBody::SessionUpdated {
            title: None,
            tags: None,
            limits: None,
            context: None,
            permissions: None,
            keep: None,
            mode,
            model,
            config_options,
            commands,
            by,
        };
        self.event(session, None, &body)
    }
}
