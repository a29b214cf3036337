//! Rows become vocabulary. A row that does not is damage, told with its table and column.

use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{StoreError, StoredEvent};
use crate::model::message::Message;
use crate::model::session::{DirectoryIdentity, ProcessIdentity, ProcessName, Session, Workspace};
use crate::model::turn::{Turn, TurnError};
use crate::model::{Policy, Timestamp};

pub fn session(row: &SqliteRow) -> Result<Session, StoreError> {
    Ok(Session {
        id: parsed(row, "id")?,
        workspace_id: parsed(row, "workspace_id")?,
        workspace: column(row, "workspace")?,
        workspace_identity: directory(row)?,
        profile: from_json(row, "profile")?,
        mcp_servers: json_option(row, "mcp_servers")?,
        permissions: match json_option(row, "policy")? {
            Some(policy) => policy,
            // Sessions of before there were rules have a mode alone.
            None => Policy::of(parsed(row, "permissions")?),
        },
        open_permissions: column(row, "open_permissions")?,
        title: column(row, "title")?,
        tags: from_json(row, "tags")?,
        status: parsed(row, "status")?,
        agent_session_id: column(row, "agent_session_id")?,
        context_restored: parsed_option(row, "context_restored")?,
        supports_resume: column(row, "supports_resume")?,
        prompt_abilities: json_option(row, "prompt_abilities")?,
        limits: from_json(row, "limits")?,
        context: from_json(row, "context")?,
        links_owed: column(row, "links_owed")?,
        instructions_owed: column(row, "instructions_owed")?,
        owner_uid: column(row, "owner_uid")?,
        sandbox: json_option(row, "sandbox")?.unwrap_or_default(),
        last_error: json_option(row, "last_error")?,
        usage: json_option(row, "usage")?,
        usage_basis: json_option(row, "usage_basis")?,
        paused: column(row, "paused")?,
        mode: column(row, "mode")?,
        model: column(row, "model")?,
        chosen: from_json(row, "chosen")?,
        restored_from: json_option(row, "restored_from")?,
        turns: column(row, "turns")?,
        turns_counted: column(row, "turns_counted")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        last_active_at: time(row, "last_active_at")?,
        status_changed_at: time(row, "status_changed_at")?,
        keep: column(row, "keep")?,
    })
}

/// Nothing, for a workspace that nobody has worked in since identities are kept.
fn directory(row: &SqliteRow) -> Result<Option<DirectoryIdentity>, StoreError> {
    let device: Option<i64> = column(row, "workspace_device")?;
    let inode: Option<i64> = column(row, "workspace_inode")?;
    let born_at = column(row, "workspace_born_at")?;
    let identity = device.zip(inode).map(|(device, inode)| (device.cast_unsigned(), inode.cast_unsigned()));
    Ok(identity.map(|(device, inode)| DirectoryIdentity { device, inode, born_at }))
}

pub fn process(row: &SqliteRow) -> Result<ProcessIdentity, StoreError> {
    let name = |pid, started| {
        Ok(ProcessName { pid: column(row, pid)?, started: column::<i64>(row, started)?.cast_unsigned() })
    };
    Ok(ProcessIdentity {
        boot_id: column(row, "boot_id")?,
        daemon: name("daemon_pid", "daemon_started")?,
        shim: name("shim_pid", "shim_started")?,
        agent: name("agent_pid", "agent_started")?,
        group: column(row, "process_group")?,
        cgroup: column(row, "cgroup")?,
    })
}

pub fn workspace(row: &SqliteRow) -> Result<Workspace, StoreError> {
    Ok(Workspace {
        id: parsed(row, "id")?,
        path: column(row, "path")?,
        owner_uid: column(row, "owner_uid")?,
        created_at: time(row, "created_at")?,
    })
}

pub fn turn(row: &SqliteRow) -> Result<Turn, StoreError> {
    let error = match parsed_option(row, "error_code")? {
        Some(code) => {
            let message = column::<Option<String>>(row, "error_message")?.unwrap_or_default();
            let (hint, retry_after_seconds) = (column(row, "error_hint")?, column(row, "retry_after_seconds")?);
            Some(TurnError { code, message, hint, retry_after_seconds })
        }
        None => None,
    };
    Ok(Turn {
        id: parsed(row, "id")?,
        session_id: parsed(row, "session_id")?,
        status: parsed(row, "status")?,
        stop_reason: column(row, "stop_reason")?,
        error,
        usage: json_option(row, "usage")?,
        queued_at: time(row, "queued_at")?,
        started_at: column::<Option<i64>>(row, "started_at")?.map(Timestamp::from_millis),
        finished_at: column::<Option<i64>>(row, "finished_at")?.map(Timestamp::from_millis),
    })
}

pub fn message(row: &SqliteRow) -> Result<Message, StoreError> {
    Ok(Message {
        id: parsed(row, "id")?,
        session_id: parsed(row, "session_id")?,
        sequence: column(row, "sequence")?,
        turn_id: parsed_option(row, "turn_id")?,
        role: parsed(row, "role")?,
        content: raw(row, "content")?,
        tool_call_id: column(row, "tool_call_id")?,
        model: column(row, "model")?,
        by: json_option(row, "made_by")?,
        created_at: time(row, "created_at")?,
    })
}

/// Of an event joined with the message that it may tell of.
pub fn event(row: &SqliteRow) -> Result<StoredEvent, StoreError> {
    let sequence_of_message: Option<i64> = column(row, "message_sequence")?;
    let data = match sequence_of_message {
        Some(_) => to_raw_value(&message(row)?).map_err(|error| damaged("content", &error))?,
        None => raw(row, "data")?,
    };
    Ok(StoredEvent {
        id: column(row, "event_id")?,
        session: parsed(row, "event_session_id")?,
        sequence: column(row, "event_sequence")?,
        turn: parsed_option(row, "event_turn_id")?,
        kind: column::<String>(row, "type")?.into(),
        data,
        message: sequence_of_message,
        created_at: time(row, "event_created_at")?,
    })
}

pub fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(name).map_err(|error| damaged(name, &error))
}

pub fn parsed<T: FromStr>(row: &SqliteRow, name: &'static str) -> Result<T, StoreError>
where
    T::Err: std::fmt::Display,
{
    column::<&str>(row, name)?.parse().map_err(|error| damaged(name, &error))
}

pub fn parsed_option<T: FromStr>(row: &SqliteRow, name: &'static str) -> Result<Option<T>, StoreError>
where
    T::Err: std::fmt::Display,
{
    column::<Option<&str>>(row, name)?.map(str::parse).transpose().map_err(|error| damaged(name, &error))
}

pub fn time(row: &SqliteRow, name: &'static str) -> Result<Timestamp, StoreError> {
    column(row, name).map(Timestamp::from_millis)
}

pub fn raw(row: &SqliteRow, name: &'static str) -> Result<Box<RawValue>, StoreError> {
    RawValue::from_string(column(row, name)?).map_err(|error| damaged(name, &error))
}

pub fn from_json<T: DeserializeOwned>(row: &SqliteRow, name: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(column(row, name)?).map_err(|error| damaged(name, &error))
}

pub fn json_option<T: DeserializeOwned>(row: &SqliteRow, name: &'static str) -> Result<Option<T>, StoreError> {
    let text: Option<&str> = column(row, name)?;
    text.map(serde_json::from_str).transpose().map_err(|error| damaged(name, &error))
}

fn damaged(column: &'static str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: format!("column {column}: {error}") }
}
