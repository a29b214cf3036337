//! `acpd permissions`: the questions of agents, those that wait for an answer or all.

use std::collections::HashMap;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::account;
use crate::cli::connection::with_query;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, short_id};
use crate::cli::{lookup, question};
use crate::control::wire::Session;
use crate::control::wire::permissions::{Permission, PermissionList};
use crate::model::permission::question::PermissionStatus;
use crate::model::{SessionId, Timestamp};

use super::ls::below_home;

/// List open permission requests, newest first
///
/// Answer a request with `acpd approve` or `acpd reject`. A request waits for an answer even when no terminal is attached
/// to its session.
#[derive(Args, Debug)]
pub struct Permissions {
    /// Only this session: id, id prefix or suffix, exact title, or - for the newest one here
    pub session: Option<String>,
    /// Include answered requests, with the person or rule that answered them; as root, of all users
    #[arg(long)]
    pub all: bool,
    /// List at most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

impl Permissions {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let path = match &self.session {
            Some(name) => format!("/v1/sessions/{}/permissions", lookup::session(&daemon, name).await?),
            None => "/v1/permissions".to_owned(),
        };
        let mut parameters = vec![("status", if self.all { "all" } else { "open" }.to_owned())];
        if self.all {
            parameters.push(("all", "true".to_owned()));
        }
        parameters.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        let answer: Box<RawValue> = daemon.get(&with_query(&path, &parameters)).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: PermissionList = read(&answer)?;
        if list.permissions.is_empty() {
            output.aside(if self.all { "no permission requests" } else { "no open permission requests" });
            return Ok(Exit::Ok);
        }
        let shown = i64::try_from(list.permissions.len()).unwrap_or(i64::MAX);
        let table = if self.all {
            all(&list.permissions)
        } else {
            let sessions = lookup::sessions(&daemon, false).await?.into_iter();
            open(&list.permissions, &sessions.map(|session| (session.id, session)).collect())
        };
        output.print(&table.render(output.width(), output.style))?;
        if let ([permission], false) = (list.permissions.as_slice(), self.all) {
            let id = short_id(permission.id);
            output.aside(&format!("answer with `acpd approve {id}` or `acpd reject {id}`"));
        } else if !self.all {
            output.aside("answer with `acpd approve ID` or `acpd reject ID`");
        }
        if shown < list.total {
            output.aside(&format!("{shown} of {}; --limit shows more", list.total));
        }
        Ok(Exit::Ok)
    }
}

fn open(permissions: &[Permission], sessions: &HashMap<SessionId, Session>) -> Table {
    let now = Timestamp::now();
    let home = std::env::var("HOME").unwrap_or_default();
    let table = Table::new([
        ("ID", Fit::Whole),
        ("AGE", Fit::Number),
        ("SESSION", Fit::Whole),
        ("TITLE", Fit::CutEnd),
        ("WORKSPACE", Fit::CutStart),
        ("REQUEST", Fit::CutEnd),
    ]);
    let mut table = table.without_if_narrow(&["WORKSPACE", "TITLE"]);
    for permission in permissions {
        let session = sessions.get(&permission.session_id);
        table.row(&[
            short_id(permission.id),
            age(permission.asked_at, now),
            short_id(permission.session_id),
            session.map(|session| session.title.clone()).unwrap_or_default(),
            session.map(|session| below_home(&session.workspace, &home)).unwrap_or_default(),
            question::what(permission),
        ]);
    }
    table
}

fn all(permissions: &[Permission]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("AGE", Fit::Number),
        ("SESSION", Fit::Whole),
        ("REQUEST", Fit::CutEnd),
        ("ANSWER", Fit::Whole),
        ("AGO", Fit::Number),
        ("BY", Fit::CutEnd),
    ]);
    for permission in permissions {
        let resolution = permission.resolution.as_ref();
        let verdict = match permission.status {
            PermissionStatus::Open => "open".to_owned(),
            PermissionStatus::Expired => "expired".to_owned(),
            PermissionStatus::Cancelled => "cancelled".to_owned(),
            PermissionStatus::Answered => resolution.map(question::verdict).unwrap_or_default(),
        };
        table.row(&[
            short_id(permission.id),
            age(permission.asked_at, now),
            short_id(permission.session_id),
            question::what(permission),
            verdict,
            resolution.map(|resolution| age(resolution.at, now)).unwrap_or_default(),
            resolution.map(|resolution| account::decided_by(&resolution.by)).unwrap_or_default(),
        ]);
    }
    table
}
