//! Which session a person means: a whole id, the beginning or the end of one, an exact title, or `-`.

use std::fmt::{Display, Write};
use std::path::Path;

use crate::control::wire::{Session, SessionList, Workspace, WorkspaceList};
use crate::model::id::{PART_DIGITS_MIN, part_digits};
use crate::model::{SessionId, WorkspaceId};

use super::account;
use super::connection::{Daemon, with_query};
use super::error::ClientError;
use super::suggest;
use super::text::{cut_end, one_line, short_id};

/// More than any title has: what is left of a longer name means nothing, as the whole does.
const NAME_CHARS_MAX: usize = 1000;
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
    let mut meant = named(daemon, name, false).await?;
    // Root may mean another user's; nobody else sees more with that.
    let is_root = rustix::process::geteuid().is_root();
    if meant.sessions.is_empty() && is_root {
        meant = named(daemon, name, true).await?;
    }
    match meant.sessions.as_slice() {
        [session] => Ok(session.id),
        [] => Err(unknown(name, &page(daemon, is_root, 0).await?)),
        candidates => Err(ambiguous(name, candidates, meant.total)),
    }
}

/// Those that the name may mean, as many as are shown of them.
async fn named(daemon: &Daemon, name: &str, all: bool) -> Result<SessionList, ClientError> {
    let parameters = [
        ("name", name.chars().take(NAME_CHARS_MAX).collect()),
        ("status", EVERY_STATUS.to_owned()),
        ("all", all.to_string()),
        ("limit", CANDIDATES_SHOWN_MAX.to_string()),
    ];
    daemon.get(&with_query("/v1/sessions", &parameters)).await
}

/// Whose something is, when that is another user than who asks.
pub fn other_owner(owner: Option<u32>) -> Option<String> {
    let uid = owner.filter(|owner| *owner != rustix::process::geteuid().as_raw())?;
    Some(account::name(uid))
}

/// All sessions, of whatever status; with `all` and for root, of whichever user.
pub async fn sessions(daemon: &Daemon, all: bool) -> Result<Vec<Session>, ClientError> {
    let mut sessions = Vec::new();
    for number in 0..PAGES_MAX {
        let listed = page(daemon, all, number).await?;
        let is_last = listed.len() < PAGE;
        sessions.extend(listed);
        if is_last {
            break;
        }
    }
    Ok(sessions)
}

async fn page(daemon: &Daemon, all: bool, number: usize) -> Result<Vec<Session>, ClientError> {
    let parameters = [
        ("status", EVERY_STATUS.to_owned()),
        ("all", all.to_string()),
        ("limit", PAGE.to_string()),
        ("offset", (number * PAGE).to_string()),
    ];
    let list: SessionList = daemon.get(&with_query("/v1/sessions", &parameters)).await?;
    Ok(list.sessions)
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
    let otherwise = "`acpd workspaces` lists the known directories";
    let hint = suggest::hint(&real.to_string_lossy(), paths, otherwise);
    Err(ClientError::local(format!("there is no directory {}", real.display()), hint))
}

/// The workspace at `path`, where something must be in it.
pub async fn known_workspace(daemon: &Daemon, path: &Path) -> Result<WorkspaceId, ClientError> {
    workspace(daemon, path).await?.ok_or_else(|| {
        let message = format!("there has never been a session in {}", path.display());
        ClientError::local(message, "`acpd workspaces` lists the known directories")
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
        .map_err(|source| ClientError::io("find the current directory", source))?;
    let none = || {
        ClientError::local(
            format!("no active or suspended session in {}", here.display()),
            "start one here with `acpd run \"…\"`; `acpd ls --all` lists all sessions",
        )
    };
    let workspace_id = workspace(daemon, &here).await?.ok_or_else(none)?;
    let parameters = [("workspaceId", workspace_id.to_string()), ("limit", "1".to_owned())];
    let list: SessionList = daemon.get(&with_query("/v1/sessions", &parameters)).await?;
    list.sessions.first().map(|session| session.id).ok_or_else(none)
}

/// Whoever mistypes a name means one of the newest sessions, which are the ones given here.
fn unknown(name: &str, newest: &[Session]) -> ClientError {
    let names = || {
        format!(
            "`acpd ls --all` lists sessions; name one by its id, an id prefix or suffix of {PART_DIGITS_MIN} or more digits, \
             its exact title, or - for the newest one here"
        )
    };
    let hint = suggest::sessions(name, newest).unwrap_or_else(names);
    ClientError::local(format!("there is no session {name:?}"), hint)
}

/// Whether `name` is the beginning or the end of the id, with or without the hyphens, or the beginning of what is shown
/// of it.
pub fn is_part(id: &impl Display, name: &str) -> bool {
    let whole = id.to_string().replace('-', "");
    part_digits(name)
        .is_some_and(|part| whole.starts_with(&part) || whole.ends_with(&part) || short_id(id).starts_with(&part))
}

/// `candidates` are the first ones of `total`.
fn ambiguous(name: &str, candidates: &[Session], total: i64) -> ClientError {
    let mut message = format!("{total} sessions match {name:?}:");
    for session in candidates {
        let title = cut_end(&one_line(&session.title), CANDIDATE_TITLE_COLUMNS);
        let _ = write!(message, "\n  {}  {}  {title}", short_id(session.id), session.status);
    }
    let more = usize::try_from(total).unwrap_or(0).saturating_sub(candidates.len());
    if more > 0 {
        let _ = write!(message, "\n  and {more} more");
    }
    ClientError::local(message, "give a longer part of the id, such as the last 12 digits shown here")
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

    #[test]
    fn an_id_is_found_by_either_of_its_ends() {
        let id: SessionId = "019a8b1c-7f2e-7c3a-9d4e-5f6a7b8c9d0e".parse().unwrap();
        for name in ["5f6a7b8c9d0e", "5f6a", "9d0e", "9D0E", "9d4e-5f6a7b8c9d0e", "019a8b1c-7f2e", "019a8b1c7f2e"] {
            assert!(is_part(&id, name), "{name}");
        }
        for name in ["d0e", "----", "7c3a", "", "fix the", "9d0e%"] {
            assert!(!is_part(&id, name), "{name}");
        }
    }

    #[test]
    fn what_is_ambiguous_lists_the_candidates() {
        let candidates = [
            session("019a8b1c-7f2f-7c3a-9d4e-aaaa7b8c0000", "document it"),
            session("029a8b1c-7f2f-7c3a-9d4e-bbbb7b8c1111", "document it"),
        ];
        insta::assert_snapshot!(ambiguous("document it", &candidates, 12), @r#"
        12 sessions match "document it":
          aaaa7b8c0000  active  document it
          bbbb7b8c1111  active  document it
          and 10 more
        "#);
    }
}
