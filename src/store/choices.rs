//! What agents announce of their modes, models, commands and options, and what was chosen of it.

use serde_json::value::RawValue;
use sqlx::SqliteConnection;

use super::{ChoicesChange, Store, StoreError, row};
use crate::model::{Announced, EventBody, SessionId, Timestamp};

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

/// Writes what changed, and returns the event that tells of it, if there is anything to tell.
pub(super) async fn set(
    connection: &mut SqliteConnection,
    session: SessionId,
    change: &ChoicesChange,
    now: Timestamp,
) -> Result<Option<EventBody>, StoreError> {
    let Announced { modes, models, commands, config_options } = &change.announced;
    if modes.is_some() || models.is_some() || commands.is_some() || config_options.is_some() {
        sqlx::query(
            "INSERT INTO announced (session_id, modes, models, commands, config_options) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT (session_id) DO UPDATE SET modes = coalesce(?2, modes), models = coalesce(?3, models), \
             commands = coalesce(?4, commands), config_options = coalesce(?5, config_options)",
        )
        .bind(session.to_string())
        .bind(modes.as_deref().map(RawValue::get))
        .bind(models.as_deref().map(RawValue::get))
        .bind(commands.as_deref().map(RawValue::get))
        .bind(config_options.as_deref().map(RawValue::get))
        .execute(&mut *connection)
        .await
        .map_err(StoreError::database("to keep what an agent announces"))?;
    }
    let chosen = change.chosen.as_ref().map(super::apply::to_json).transpose()?;
    sqlx::query(
        "UPDATE sessions SET mode = coalesce(?, mode), model = coalesce(?, model), chosen = coalesce(?, chosen), \
         updated_at = ? WHERE id = ?",
    )
    .bind(&change.mode)
    .bind(&change.model)
    .bind(chosen)
    .bind(now.as_millis())
    .bind(session.to_string())
    .execute(connection)
    .await
    .map_err(StoreError::database("to keep what was chosen"))?;
    let ChoicesChange { mode, model, config_options, commands, .. } = change.clone();
    let is_news = mode.is_some() || model.is_some() || config_options.is_some() || commands.is_some();
    let body = EventBody::SessionUpdated {
        title: None,
        tags: None,
        limits: None,
        context: None,
        mode,
        model,
        config_options,
        commands,
    };
    Ok(Some(body).filter(|_| is_news))
}
