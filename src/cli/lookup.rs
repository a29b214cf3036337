//! Which session a person means: a whole id, the beginning or the end of one, an exact title, or `-`.

use std::fmt::{Display, Write};
use std::path::Path;

use crate::control::wire::{Session, SessionList, Workspace, WorkspaceList};
use crate::model::{SessionId, WorkspaceId};

use super::connection::{Daemon, with_query};
use super::error::ClientError;
use super::suggest;
use super::text::{cut_end, one_line, short_id};

/// Fewer digits are more likely a slip than a session.
const PART_DIGITS_MIN: usize = 4;
const PAGE: usize = 1000;
const PAGES_MAX: usize = 100;
const CANDIDATES_SHOWN_MAX: usize = 10;
const CANDIDATE_TITLE_COLUMNS: usize = 60;
const EVERY_STATUS: &str = "active,suspended,archived,error";

/// The id of the session that `name` means.
pub async fn session(daemon: &Daemon, name: &str) -> Result<SessionId, ClientError> {
    if name == "-" {
        return newest_here(daemon).await;
    }
    if let Ok(id) = name.to_lowercase().parse() {
        return Ok(id);
    }
    let mut known = sessions(daemon, false).await?;
    if !known.iter().any(|session| is_meant(session, name)) {
        // Root may mean another user's.
        known = sessions(daemon, true).await?;
    }
    choose(&known, name)
}

/// Whose something is, when that is another user than who asks.
pub fn other_owner(owner: Option<u32>) -> Option<String> {
    let uid = owner.filter(|owner| *owner != rustix::process::geteuid().as_raw())?;
    Some(format!("user {uid}"))
}

/// All sessions, of whatever status; with `all` and for root, of whichever user.
pub async fn sessions(daemon: &Daemon, all: bool) -> Result<Vec<Session>, ClientError> {
    let mut sessions = Vec::new();
    for page in 0..PAGES_MAX {
        let parameters = [
            ("status", EVERY_STATUS.to_owned()),
            ("all", all.to_string()),
            ("limit", PAGE.to_string()),
            ("offset", (page * PAGE).to_string()),
        ];
        let list: SessionList = daemon.get(&with_query("/v1/sessions", &parameters)).await?;
        let is_last = list.sessions.len() < PAGE;
        sessions.extend(list.sessions);
        if is_last {
            break;
        }
    }
    Ok(sessions)
}

/// The id of the workspace at `path`, if there has ever been a session in it. A directory that is gone may have been one.
pub async fn workspace(daemon: &Daemon, path: &Path) -> Result<Option<WorkspaceId>, ClientError> {
    let real = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let real = real.map_err(|source| ClientError::io(format!("find {}", path.display()), source))?;
    let known = workspaces(daemon, false).await?;
    if let Some(workspace) = known.iter().find(|workspace| Path::new(&workspace.path) == real) {
        return Ok(Some(workspace.id));
    }
    if real.is_dir() {
        return Ok(None);
    }
    let paths = known.iter().map(|workspace| workspace.path.as_str());
    let otherwise = "`acpd workspaces` lists the directories that have had a session";
    let hint = suggest::hint(&real.to_string_lossy(), paths, otherwise);
    Err(ClientError::local(format!("there is no directory {}", real.display()), hint))
}

/// The workspace at `path`, where something must be in it.
pub async fn known_workspace(daemon: &Daemon, path: &Path) -> Result<WorkspaceId, ClientError> {
    workspace(daemon, path).await?.ok_or_else(|| {
        let message = format!("there has never been a session in {}", path.display());
        ClientError::local(message, "`acpd workspaces` lists the directories that have had one")
    })
}

/// All workspaces; with `all` and for root, of whichever user.
pub async fn workspaces(daemon: &Daemon, all: bool) -> Result<Vec<Workspace>, ClientError> {
    let mut workspaces = Vec::new();
    for page in 0..PAGES_MAX {
        let parameters = [("all", all.to_string()), ("limit", PAGE.to_string()), ("offset", (page * PAGE).to_string())];
        let list: WorkspaceList = daemon.get(&with_query("/v1/workspaces", &parameters)).await?;
        let is_last = list.workspaces.len() < PAGE;
        workspaces.extend(list.workspaces);
        if is_last {
            break;
        }
    }
    Ok(workspaces)
}

async fn newest_here(daemon: &Daemon) -> Result<SessionId, ClientError> {
    let here = std::env::current_dir()
        .and_then(std::fs::canonicalize)
        .map_err(|source| ClientError::io("tell the current directory", source))?;
    let none = || {
        ClientError::local(
            format!("there is no session in {}", here.display()),
            "`acpd ls` lists the sessions of every directory; `acpd run \"…\"` starts one here",
        )
    };
    let workspace_id = workspace(daemon, &here).await?.ok_or_else(none)?;
    let parameters = [("workspaceId", workspace_id.to_string()), ("limit", "1".to_owned())];
    let list: SessionList = daemon.get(&with_query("/v1/sessions", &parameters)).await?;
    list.sessions.first().map(|session| session.id).ok_or_else(none)
}

fn choose(sessions: &[Session], name: &str) -> Result<SessionId, ClientError> {
    let candidates: Vec<&Session> = sessions.iter().filter(|session| is_meant(session, name)).collect();
    match candidates.as_slice() {
        [session] => Ok(session.id),
        [] => {
            let names = || {
                format!(
                    "`acpd ls --all` lists them; a session is named by its id, {PART_DIGITS_MIN} or more digits of its \
                     beginning or end, its exact title, or - for the newest of this directory"
                )
            };
            let hint = suggest::sessions(name, sessions).unwrap_or_else(names);
            Err(ClientError::local(format!("there is no session {name:?}"), hint))
        }
        several => Err(ambiguous(name, several)),
    }
}

fn is_meant(session: &Session, name: &str) -> bool {
    session.title == name || is_part(&session.id, name)
}

/// Whether `name` is the beginning or the end of the id, with or without the hyphens, or the beginning of what is shown
/// of it.
pub fn is_part(id: &impl Display, name: &str) -> bool {
    let digits = |text: &str| text.replace('-', "").to_lowercase();
    let part = digits(name);
    let whole = digits(&id.to_string());
    part.len() >= PART_DIGITS_MIN
        && (whole.starts_with(&part) || whole.ends_with(&part) || short_id(id).starts_with(&part))
}

fn ambiguous(name: &str, candidates: &[&Session]) -> ClientError {
    let mut message = format!("{} sessions match {name:?}:", candidates.len());
    for session in candidates.iter().take(CANDIDATES_SHOWN_MAX) {
        let title = cut_end(&one_line(&session.title), CANDIDATE_TITLE_COLUMNS);
        let _ = write!(message, "\n  {}  {}  {title}", short_id(session.id), session.status);
    }
    if candidates.len() > CANDIDATES_SHOWN_MAX {
        let _ = write!(message, "\n  and {} more", candidates.len() - CANDIDATES_SHOWN_MAX);
    }
    ClientError::local(message, "give more of the id, or its last 12 digits as shown here")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session(id: &str, title: &str) -> Session {
        let time = "2025-11-16T03:00:00.007Z";
        serde_json::from_value(json!({
            "id": id, "workspaceId": "019a8b1c-0000-7000-8000-000000000001", "workspace": "/home/me", "agent": "demo",
            "title": title, "tags": [], "status": "active", "processState": "stopped", "supportsResume": false,
            "sandbox": "none", "permissions": {"mode": "ask"}, "turns": 0, "createdAt": time, "updatedAt": time,
            "lastActiveAt": time, "statusChangedAt": time,
        }))
        .unwrap()
    }

    fn sessions() -> Vec<Session> {
        vec![
            session("019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e", "fix the test"),
            session("019a8b1c-7f2f-7c3a-9d4e-aaaa7b8c0000", "document it"),
            session("029a8b1c-7f2f-7c3a-9d4e-bbbb7b8c1111", "document it"),
        ]
    }

    fn chosen(name: &str) -> Result<String, String> {
        choose(&sessions(), name).map(|id| id.to_string()[24..].to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_session_is_found_by_either_end_of_its_id_and_by_its_title() {
        for name in
            ["5f6a7b8c9d0e", "9d0e", "9D0E", "9d4e-5f6a7b8c9d0e", "019a8b1c-7f2e", "019a8b1c7f2e", "fix the test"]
        {
            assert_eq!(chosen(name).as_deref(), Ok("5f6a7b8c9d0e"), "{name}");
        }
        assert_eq!(chosen("029a").as_deref(), Ok("bbbb7b8c1111"));
    }

    #[test]
    fn what_is_too_short_or_in_the_middle_is_nothing() {
        for name in ["d0e", "----", "7c3a", "", "fix the", "Fix the test"] {
            assert_eq!(chosen(name), Err(format!("there is no session {name:?}")));
        }
    }

    #[test]
    fn what_is_ambiguous_lists_the_candidates() {
        insta::assert_snapshot!(chosen("document it").unwrap_err(), @r#"
        2 sessions match "document it":
          aaaa7b8c0000  active  document it
          bbbb7b8c1111  active  document it
        "#);
        assert!(chosen("019a8b1c").unwrap_err().starts_with("2 sessions match"));
    }
}
