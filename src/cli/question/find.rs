//! Which question a person means: a whole id, the beginning or the end of one, or the only one that is open.

use std::fmt::Write;

use crate::control::wire::permissions::{Permission, PermissionList};

use super::super::connection::{Daemon, with_query};
use super::super::error::ClientError;
use super::super::lookup::is_part;
use super::super::text::{cut_end, short_id};
use super::what;

const PAGE: usize = 1000;
const PAGES_MAX: usize = 100;
const CANDIDATES_SHOWN_MAX: usize = 10;
const CANDIDATE_COLUMNS: usize = 80;

/// The question that `name` means; without a name, the one that is open.
pub async fn permission(daemon: &Daemon, name: Option<&str>) -> Result<Permission, ClientError> {
    if let Some(name) = name.map(str::to_lowercase).filter(|name| name.len() == 36) {
        return daemon.get(&format!("/v1/permissions/{}", path_segment(&name))).await;
    }
    let open = open(daemon).await?;
    let Some(name) = name else { return only(open) };
    match among(open, |permission| permission.id, name) {
        Found::One(permission) => Ok(permission),
        Found::Several(several) => {
            Err(several_match(&format!("{} open permission requests match {name:?}", several.len()), &several))
        }
        // Who is late wants to know who was first.
        Found::None => match among(newest(daemon).await?, |permission| permission.id, name) {
            Found::One(permission) => Ok(permission),
            Found::Several(several) => {
                Err(several_match(&format!("{} permission requests match {name:?}", several.len()), &several))
            }
            Found::None => Err(ClientError::local(
                format!("there is no permission request {name:?}"),
                "`acpd permissions` lists open requests; name one by its id, or by a prefix or suffix of the id",
            )),
        },
    }
}

pub enum Found<T> {
    None,
    One(T),
    Several(Vec<T>),
}

/// Those whose id has this part.
pub fn among<T, I: std::fmt::Display>(all: Vec<T>, id: impl Fn(&T) -> I, part: &str) -> Found<T> {
    let mut found: Vec<T> = all.into_iter().filter(|one| is_part(&id(one), part)).collect();
    match (found.pop(), found.is_empty()) {
        (None, _) => Found::None,
        (Some(one), true) => Found::One(one),
        (Some(last), false) => {
            found.push(last);
            Found::Several(found)
        }
    }
}

fn only(open: Vec<Permission>) -> Result<Permission, ClientError> {
    match <[Permission; 1]>::try_from(open) {
        Ok([permission]) => Ok(permission),
        Err(none) if none.is_empty() => Err(ClientError::local(
            "there are no open permission requests",
            "`acpd permissions --all` lists answered requests and who answered them",
        )),
        Err(several) => Err(several_match(&format!("{} permission requests are open", several.len()), &several)),
    }
}

fn several_match(message: &str, candidates: &[Permission]) -> ClientError {
    let mut message = format!("{message}:");
    for permission in candidates.iter().take(CANDIDATES_SHOWN_MAX) {
        let _ = write!(message, "\n  {}  {}", short_id(permission.id), cut_end(&what(permission), CANDIDATE_COLUMNS));
    }
    if candidates.len() > CANDIDATES_SHOWN_MAX {
        let _ = write!(message, "\n  and {} more", candidates.len() - CANDIDATES_SHOWN_MAX);
    }
    ClientError::local(message, "name one by its id, or by the last 12 digits as shown here")
}

async fn open(daemon: &Daemon) -> Result<Vec<Permission>, ClientError> {
    let mut permissions = Vec::new();
    for page in 0..PAGES_MAX {
        let parameters = [("limit", PAGE.to_string()), ("offset", (page * PAGE).to_string())];
        let list: PermissionList = daemon.get(&with_query("/v1/permissions", &parameters)).await?;
        let is_last = list.permissions.len() < PAGE;
        permissions.extend(list.permissions);
        if is_last {
            break;
        }
    }
    Ok(permissions)
}

/// The newest, whether they are answered or not; for root, of whichever user.
async fn newest(daemon: &Daemon) -> Result<Vec<Permission>, ClientError> {
    let parameters = [("status", "all".to_owned()), ("all", "true".to_owned()), ("limit", PAGE.to_string())];
    let list: PermissionList = daemon.get(&with_query("/v1/permissions", &parameters)).await?;
    Ok(list.permissions)
}

/// What a person typed may be no id at all, and must not become another path.
fn path_segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
