//! A database of the earlier application as documents: its sessions with their repositories and messages.
//!
//! It had five states and no turns. A user's message begins a turn here, and what follows it, up to the next one, is part
//! of that turn. Ids that are no UUIDs become such, always the same ones, so that an import can be repeated.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::value::to_raw_value;

use super::content::{Author, Said, said};
use super::{Labelled, foreign};
use crate::cli::error::ClientError;
use crate::model::export::{Document, ExportedSession, FORMAT, VERSION};
use crate::model::message::Message;
use crate::model::turn::Turn;
use crate::model::{
    AgentProfile, Chosen, Content, MessageId, PermissionMode, Policy, Role, SessionContext, SessionId, SessionLimits,
    SessionStatus, Timestamp, TurnId, TurnStatus,
};
use crate::store::{Cell, ForeignDatabase, ForeignTable};

const TITLE_CHARS_MAX: usize = 200;
/// Times below this are seconds since the epoch, in the year 5138 at the latest; those from the second on are microseconds.
const SECONDS_MAX: i64 = 100_000_000_000;
const MILLIS_MAX: i64 = 100_000_000_000_000;
const STATUSES: &str = "active, suspended, archived, error, completed (becomes active), cancelled (becomes archived)";

/// A table, and where in it things are.
struct Sheet {
    name: &'static str,
    table: ForeignTable,
}

impl Sheet {
    fn read(database: &ForeignDatabase, name: &'static str) -> Result<Self, ClientError> {
        Ok(Self { name, table: database.table(name).map_err(|error| foreign(&error))? })
    }

    fn maybe(&self, spellings: &[&str]) -> Option<usize> {
        self.table.column(spellings)
    }

    fn needed(&self, spellings: &[&str]) -> Result<usize, ClientError> {
        self.maybe(spellings).ok_or_else(|| {
            let (name, columns) = (self.name, self.table.columns.join(", "));
            let message = format!("the table {name} has no column {}; its columns are {columns}", spellings[0]);
            let hint =
                format!("the column can be named {}; rename it in a copy of the database", spellings.join(" or "));
            ClientError::local(message, hint)
        })
    }

    /// What is wrong with a row, by its id or else its number.
    fn wrong(&self, id: &str, problem: &str, hint: &str) -> ClientError {
        ClientError::local(format!("{} {id:?}: {problem}", self.name), hint)
    }
}

/// A session's row.
struct Row {
    id: String,
    path: String,
    title: String,
    status: String,
    agent: Option<String>,
    created_at: Timestamp,
    updated_at: Option<Timestamp>,
}

/// A message's row.
struct Line {
    id: String,
    author: Author,
    content: String,
    at: Timestamp,
}

/// Reads the database. `agent` is who all of its sessions go on with; `policies` are those of the agents here, because the
/// application had none.
pub fn read(
    path: &Path,
    agent: Option<&str>,
    policies: &BTreeMap<String, Policy>,
) -> Result<Vec<Labelled>, ClientError> {
    let database = ForeignDatabase::open(path).map_err(|error| foreign(&error))?;
    let repos = repos(&Sheet::read(&database, "Repo")?)?;
    let rows = sessions(&Sheet::read(&database, "AgentSession")?, &repos)?;
    let mut messages = messages(&Sheet::read(&database, "AgentMessage")?, &rows)?;
    let documents = rows.into_iter().map(|row| {
        let lines = messages.remove(&row.id).unwrap_or_default();
        let label = format!("AgentSession {:?} in {}", row.id, path.display());
        document(row, lines, agent, policies, label)
    });
    documents.collect()
}

fn repos(sheet: &Sheet) -> Result<HashMap<String, String>, ClientError> {
    let id = sheet.needed(&["id"])?;
    let path = sheet.needed(&["path", "localPath", "rootPath", "directory", "workspace"])?;
    let rows = sheet.table.rows.iter();
    Ok(rows.filter_map(|row| Some((text(&row[id])?, text(&row[path])?))).collect())
}

fn sessions(sheet: &Sheet, repos: &HashMap<String, String>) -> Result<Vec<Row>, ClientError> {
    let id = sheet.needed(&["id"])?;
    let repo = sheet.needed(&["repoId", "repositoryId", "repo"])?;
    let status = sheet.needed(&["status", "state"])?;
    let created = sheet.needed(&["createdAt", "startedAt", "created"])?;
    let updated = sheet.maybe(&["updatedAt", "lastActiveAt", "updated"]);
    let title = sheet.maybe(&["title", "name"]);
    let agent = sheet.maybe(&["agentType", "agent", "agentSlug", "agentName", "provider"]);
    let read = |(number, row): (usize, &Vec<Cell>)| {
        let name = text(&row[id]).unwrap_or_else(|| format!("row {}", number + 1));
        let wrong = |problem: &str, hint: &str| sheet.wrong(&name, problem, hint);
        let repo = text(&row[repo]).unwrap_or_default();
        let path = repos.get(&repo).cloned();
        let path = path.ok_or_else(|| {
            wrong(
                &format!("its Repo {repo:?} does not exist"),
                "add the missing row to the table Repo in a copy of the database",
            )
        })?;
        let at =
            |column: usize, called: &str| time(&row[column]).map_err(|what| wrong(&format!("{called}: {what}"), TIMES));
        Ok(Row {
            created_at: at(created, "createdAt")?,
            updated_at: match updated.filter(|column| row[*column] != Cell::Null) {
                Some(column) => Some(at(column, "updatedAt")?),
                None => None,
            },
            title: title.and_then(|column| text(&row[column])).unwrap_or_default(),
            status: text(&row[status]).unwrap_or_default(),
            agent: agent.and_then(|column| text(&row[column])),
            path,
            id: name,
        })
    };
    sheet.table.rows.iter().enumerate().map(read).collect()
}

const TIMES: &str = "write times as RFC 3339, or as seconds or milliseconds since 1970";

/// The messages of each session, by time; those of the same time in the order of their rows.
fn messages(sheet: &Sheet, sessions: &[Row]) -> Result<HashMap<String, Vec<Line>>, ClientError> {
    let id = sheet.needed(&["id"])?;
    let session = sheet.needed(&["sessionId", "agentSessionId", "session"])?;
    let role = sheet.needed(&["role", "sender", "author"])?;
    let content = sheet.needed(&["content", "text", "body", "message"])?;
    let created = sheet.needed(&["createdAt", "timestamp", "created"])?;
    let mut found: HashMap<String, Vec<Line>> = sessions.iter().map(|row| (row.id.clone(), Vec::new())).collect();
    for (number, row) in sheet.table.rows.iter().enumerate() {
        let name = text(&row[id]).unwrap_or_else(|| format!("row {}", number + 1));
        let wrong = |problem: &str, hint: &str| sheet.wrong(&name, problem, hint);
        let of = text(&row[session]).unwrap_or_default();
        let Some(lines) = found.get_mut(&of) else {
            return Err(wrong(
                &format!("its AgentSession {of:?} does not exist"),
                "delete the message in a copy of the database",
            ));
        };
        let role = text(&row[role]).unwrap_or_default();
        let author = Author::of(&role).ok_or_else(|| {
            let hint = format!("nothing was imported; the roles are {}", Author::words());
            wrong(&format!("acpd does not know the role {role:?}"), &hint)
        })?;
        let at = time(&row[created]).map_err(|what| wrong(&format!("createdAt: {what}"), TIMES))?;
        let content = match &row[content] {
            Cell::Bytes => {
                return Err(wrong(
                    "its content is not text",
                    "nothing was imported; correct it in a copy of the database",
                ));
            }
            cell => text(cell).unwrap_or_default(),
        };
        lines.push(Line { id: name, author, content, at });
    }
    for lines in found.values_mut() {
        // A sort that keeps the order of rows.
        lines.sort_by_key(|line| line.at);
    }
    Ok(found)
}

fn document(
    row: Row,
    lines: Vec<Line>,
    agent: Option<&str>,
    policies: &BTreeMap<String, Policy>,
    label: String,
) -> Result<Labelled, ClientError> {
    let mut notes = Vec::new();
    let Some(slug) = agent.map(str::to_owned).or_else(|| row.agent.as_deref().map(slug)) else {
        let hint = "choose an agent with --agent NAME; `acpd agents` lists them";
        return Err(ClientError::local(format!("{label}: the database does not name the agent of this session"), hint));
    };
    let status = status(&row.status).ok_or_else(|| {
        let problem = format!("{label}: acpd does not know the status {:?}", row.status);
        ClientError::local(problem, format!("nothing was imported; the statuses are {STATUSES}"))
    })?;
    if !row.status.eq_ignore_ascii_case(status.as_str()) {
        notes.push(format!("its status was {:?}", row.status));
    }
    let id = row.id.parse().unwrap_or_else(|_| SessionId::derived(row.created_at, &[&row.path, &row.id]));
    if id.to_string() != row.id {
        notes.push(format!("its id was {:?}", row.id));
    }
    let (turns, messages) = record(id, lines);
    let last = messages.iter().map(|message| message.created_at).max().unwrap_or(row.created_at);
    let permissions = policies.get(&slug).cloned().unwrap_or_else(|| Policy::of(PermissionMode::Ask));
    let session = ExportedSession {
        id,
        title: title(&row.title),
        tags: Vec::new(),
        status,
        created_at: row.created_at,
        updated_at: row.updated_at.unwrap_or(last),
        last_active_at: last,
        status_changed_at: None,
        workspace: row.path,
        // Only its name counts: what it runs is this machine's affair.
        agent: AgentProfile::new(&slug).freeze(),
        permissions,
        context: SessionContext::default(),
        limits: SessionLimits::default(),
        mcp_servers: None,
        model: None,
        mode: None,
        chosen: Chosen::default(),
        usage: None,
    };
    let (blobs, checkpoints, observations) = (Vec::new(), Vec::new(), Vec::new());
    let format = FORMAT.to_owned();
    let document = Document { format, version: VERSION, session, turns, messages, blobs, checkpoints, observations };
    Ok(Labelled { label, notes, document })
}

/// One message of a row: the row's id, the number of the part, its time, and what it says.
type Part = (String, usize, Timestamp, Said);

/// What the rows say. The chunks of an answer are one message, as old as the last of them.
fn parts(lines: Vec<Line>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in lines {
        for (index, said) in said(line.author, &line.content, &line.id).into_iter().enumerate() {
            if let Some((_, _, at, before)) = parts.last_mut()
                && before.join(&said)
            {
                *at = line.at;
                continue;
            }
            parts.push((line.id.clone(), index, line.at, said));
        }
    }
    parts.retain(|(_, _, _, said)| !said.is_blank());
    parts
}

/// The messages in order, and the turns that they make.
fn record(session: SessionId, lines: Vec<Line>) -> (Vec<Turn>, Vec<Message>) {
    let (mut turns, mut messages): (Vec<Turn>, Vec<Message>) = (Vec::new(), Vec::new());
    let parts = parts(lines);
    let has_prompts = parts.iter().any(|(_, _, _, said)| said.role == Role::User);
    for (row, index, at, said) in parts {
        let (of, part) = (session.to_string(), index.to_string());
        let words = [&of, &row, &part].map(String::as_str);
        let derived = MessageId::derived(at, &words);
        let id = row.parse().ok().filter(|_| index == 0).unwrap_or(derived);
        // The transcript for the agent has only turns, so text that the agent sent without a prompt gets a turn too.
        let is_unasked = !has_prompts && turns.is_empty() && said.role != Role::System;
        if is_unasked || (said.role == Role::User && index == 0) {
            turns.push(turn(session, TurnId::derived(at, &words), at));
        }
        if matches!(said.role, Role::Agent | Role::ToolCall | Role::ToolResult) {
            turns.last_mut().into_iter().for_each(|turn| answered(turn, at, &said.content));
        }
        // Texts and values always have a JSON form.
        let Ok(content) = to_raw_value(&said.content) else { continue };
        messages.push(Message {
            id,
            session_id: session,
            sequence: i64::try_from(messages.len()).unwrap_or(i64::MAX).saturating_add(1),
            turn_id: turns.last().map(|turn| turn.id),
            role: said.role,
            content,
            tool_call_id: said.tool_call_id,
            model: None,
            by: None,
            created_at: at,
        });
    }
    (turns, messages)
}

/// A turn that nobody has answered yet.
fn turn(session_id: SessionId, id: TurnId, at: Timestamp) -> Turn {
    Turn {
        id,
        session_id,
        status: TurnStatus::Interrupted,
        stop_reason: None,
        error: None,
        usage: None,
        queued_at: at,
        started_at: Some(at),
        finished_at: Some(at),
    }
}

/// The last that the agent said in a turn. In the middle of a text, the turn was interrupted.
fn answered(turn: &mut Turn, at: Timestamp, content: &Content) {
    let is_cut_off = matches!(content, Content::Text { partial: true, .. });
    turn.status = if is_cut_off { TurnStatus::Interrupted } else { TurnStatus::Completed };
    turn.stop_reason = (!is_cut_off).then(|| "end_turn".to_owned());
    turn.finished_at = Some(at);
}

/// The five states, and those that are acpd's own.
fn status(text: &str) -> Option<SessionStatus> {
    match text.trim().to_ascii_lowercase().as_str() {
        "completed" => Some(SessionStatus::Active),
        "cancelled" | "canceled" => Some(SessionStatus::Archived),
        kept => kept.parse().ok(),
    }
}

/// A title as a session here may have it.
fn title(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TITLE_CHARS_MAX).collect()
}

/// The name of an agent as profiles have it.
fn slug(text: &str) -> String {
    text.trim().to_ascii_lowercase().replace(' ', "-")
}

/// A cell's words; nothing, when it has none.
fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text.clone()),
        Cell::Integer(number) => Some(number.to_string()),
        Cell::Real(number) => Some(number.to_string()),
        Cell::Null | Cell::Bytes => None,
    }
}

fn time(cell: &Cell) -> Result<Timestamp, String> {
    let time = match cell {
        Cell::Integer(number) => since_epoch(*number),
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is refused")]
        Cell::Real(number) if number.abs() < 1e11 => since_epoch_millis((number * 1000.0) as i64),
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is refused")]
        Cell::Real(number) => since_epoch(*number as i64),
        Cell::Text(text) => {
            let text = text.trim();
            // SQLite's own form has a space for the T, and no zone because it is UTC. Others have one before the zone, too.
            let iso = text.replacen(' ', "T", 1).replacen(' ', "", 1);
            let zoned = || iso.parse().or_else(|_| format!("{iso}Z").parse()).ok();
            text.parse::<i64>().map_or_else(|_| zoned(), since_epoch)
        }
        Cell::Null | Cell::Bytes => None,
    };
    time.ok_or_else(|| match cell {
        Cell::Null => "is missing".to_owned(),
        cell => format!("{:?} is not a time", text(cell).unwrap_or_default()),
    })
}

fn since_epoch(number: i64) -> Option<Timestamp> {
    match number {
        ..=0 => None,
        seconds @ 1..SECONDS_MAX => since_epoch_millis(seconds * 1000),
        millis @ SECONDS_MAX..MILLIS_MAX => since_epoch_millis(millis),
        micros => since_epoch_millis(micros / 1000),
    }
}

/// Times before the epoch, and those that no calendar has, are mistakes.
fn since_epoch_millis(millis: i64) -> Option<Timestamp> {
    let time = Timestamp::from_millis(millis);
    (millis > 0 && time.after(std::time::Duration::ZERO).is_some()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_way_that_databases_have_them() {
        let expected = Timestamp::from_millis(1_763_262_000_000);
        for cell in [
            Cell::Integer(1_763_262_000),
            Cell::Integer(1_763_262_000_000),
            Cell::Integer(1_763_262_000_000_000),
            Cell::Real(1_763_262_000.0),
            Cell::Real(1_763_262_000_000.0),
            Cell::Text("1763262000000".into()),
            Cell::Text("2025-11-16T03:00:00Z".into()),
            Cell::Text("2025-11-16T03:00:00.000+00:00".into()),
            Cell::Text("2025-11-16 03:00:00".into()),
            Cell::Text("2025-11-16 04:00:00.000 +01:00".into()),
        ] {
            assert_eq!(time(&cell), Ok(expected), "{cell:?}");
        }
        for cell in [
            Cell::Null,
            Cell::Bytes,
            Cell::Integer(0),
            Cell::Integer(i64::MAX),
            Cell::Real(f64::NAN),
            Cell::Text("soon".into()),
        ] {
            assert!(time(&cell).is_err(), "{cell:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_time_is_misread_into_a_panic(number in proptest::prelude::any::<i64>(), real in proptest::prelude::any::<f64>(), text in ".{0,40}") {
            for cell in [Cell::Integer(number), Cell::Real(real), Cell::Text(text.clone())] {
                if let Ok(time) = time(&cell) {
                    proptest::prop_assert!(time.as_millis() > 0);
                }
            }
        }
    }
}
