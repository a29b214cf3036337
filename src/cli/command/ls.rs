//! `acpd ls`: the sessions, newest first.

use std::path::PathBuf;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::connection::{Daemon, with_query};
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, short_id};
use crate::control::wire::{Session, SessionList};
use crate::model::{SessionStatus, Timestamp};

use super::new::real_directory;

/// List sessions, newest first
#[derive(Args, Debug)]
pub struct Ls {
    /// Also those that are archived or in error, and for root those of all users
    #[arg(long, conflicts_with = "status")]
    pub all: bool,
    /// Only these: active, suspended, archived, error
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub status: Vec<SessionStatus>,
    /// Only those of this agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only those of this directory
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Only those with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// At most this many
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
}

impl Ls {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let parameters = self.parameters(&daemon).await?;
        let answer: Box<RawValue> = daemon.get(&with_query("/v1/sessions", &parameters)).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: SessionList = read(&answer)?;
        let shown = i64::try_from(list.sessions.len()).unwrap_or(i64::MAX);
        output.print(&table(list.sessions).render(output.width(), output.style))?;
        if shown == 0 {
            output.aside("no sessions; `acpd run \"…\"` starts one");
        } else if shown < list.total {
            output.aside(&format!("{shown} of {}; --limit shows more", list.total));
        }
        Ok(Exit::Ok)
    }

    async fn parameters(&self, daemon: &Daemon) -> Result<Vec<(&'static str, String)>, ClientError> {
        let mut parameters = Vec::new();
        let statuses = if self.all { SessionStatus::ALL.as_slice() } else { self.status.as_slice() };
        if !statuses.is_empty() {
            let names: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
            parameters.push(("status", names.join(",")));
        }
        if self.all {
            parameters.push(("all", "true".to_owned()));
        }
        if let Some(agent) = &self.agent {
            parameters.push(("agent", agent.clone()));
        }
        if let Some(directory) = &self.workspace {
            let id = lookup::workspace(daemon, &real_directory(Some(directory))?).await?;
            parameters.push(("workspaceId", id.to_string()));
        }
        if let Some(tag) = &self.tag {
            parameters.push(("tag", tag.clone()));
        }
        if let Some(limit) = self.limit {
            parameters.push(("limit", limit.to_string()));
        }
        Ok(parameters)
    }
}

fn table(sessions: Vec<Session>) -> Table {
    let now = Timestamp::now();
    let home = std::env::var("HOME").unwrap_or_default();
    let mut table = Table::new([
        ("ID", Fit::Whole),
        ("OWNER", Fit::IfAny),
        ("STATUS", Fit::Whole),
        ("PROCESS", Fit::Whole),
        ("AGENT", Fit::Whole),
        ("TURNS", Fit::Number),
        ("AGE", Fit::Number),
        ("TITLE", Fit::CutEnd),
        ("WORKSPACE", Fit::CutStart),
    ]);
    for session in sessions {
        table.row(&[
            short_id(session.id),
            lookup::other_owner(session.owner).unwrap_or_default(),
            session.status.to_string(),
            session.process_state.as_str().to_owned(),
            session.agent,
            session.turns.to_string(),
            age(session.created_at, now),
            session.title,
            below_home(&session.workspace, &home),
        ]);
    }
    table
}

/// The path as people write it.
pub fn below_home(path: &str, home: &str) -> String {
    match path.strip_prefix(home) {
        Some(rest) if !home.is_empty() && (rest.is_empty() || rest.starts_with('/')) => format!("~{rest}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_home_is_short() {
        assert_eq!(below_home("/home/me/src", "/home/me"), "~/src");
        assert_eq!(below_home("/home/me", "/home/me"), "~");
        assert_eq!(below_home("/home/meagain", "/home/me"), "/home/meagain");
        assert_eq!(below_home("/srv", ""), "/srv");
    }
}
