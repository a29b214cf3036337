//! `acpd workspaces`: the directories that sessions work in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::value::RawValue;

use crate::cli::connection::Daemon;
use crate::cli::context::{Context, read};
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::table::{Fit, Table};
use crate::cli::text::{age, short_id};
use crate::control::wire::{RegisterWorkspace, Session, Workspace, WorkspaceList};
use crate::model::{SessionStatus, Timestamp, WorkspaceId};

use super::ls::below_home;
use super::new::real_directory;

/// List, add and remove workspaces
///
/// A workspace is a directory in which a session has been created, or that was added here.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Workspaces {
    #[command(subcommand)]
    pub action: Option<Action>,
    /// List the workspaces of all users (root only)
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Add a directory and print its workspace id; creating a session does this too
    Add {
        /// Directory [default: the current directory]
        directory: Option<PathBuf>,
    },
    /// Remove a workspace that has no sessions and print its id
    Rm {
        /// Directory, or workspace id, or a prefix or suffix of the id
        workspace: String,
    },
}

impl Workspaces {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        match &self.action {
            None => self.list(context, &daemon).await,
            Some(Action::Add { directory }) => {
                let path = real_directory(directory.as_deref())?;
                let request = RegisterWorkspace { path: path.to_string_lossy().into_owned() };
                let answer: Box<RawValue> = daemon.post("/v1/workspaces", &request).await?;
                told(context, &answer, "registered")
            }
            Some(Action::Rm { workspace }) => {
                let id = find(&daemon, workspace).await?;
                let answer: Box<RawValue> = daemon.delete(&format!("/v1/workspaces/{id}")).await?;
                told(context, &answer, "forgot")
            }
        }
    }

    async fn list(&self, context: &Context, daemon: &Daemon) -> Result<Exit, ClientError> {
        let answer: Box<RawValue> = daemon.get(&format!("/v1/workspaces?limit=1000&all={}", self.all)).await?;
        let output = context.output;
        if output.json {
            output.print_json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list: WorkspaceList = read(&answer)?;
        let sessions = lookup::sessions(daemon, self.all).await?;
        output.print(&table(&list.workspaces, &sessions).render(output.width(), output.style))?;
        if list.workspaces.is_empty() {
            output.aside("no workspaces; `acpd run \"…\"` in a directory adds it");
        }
        Ok(Exit::Ok)
    }
}

fn told(context: &Context, answer: &RawValue, verb: &str) -> Result<Exit, ClientError> {
    let is_seen = context.output.stdout_is_terminal;
    context.show(answer, |workspace: Workspace| {
        if is_seen {
            format!("{verb} {}", crate::cli::text::one_line(&workspace.path))
        } else {
            workspace.id.to_string()
        }
    })
}

/// The workspace that is named by its id, a part of that, or its directory.
async fn find(daemon: &Daemon, name: &str) -> Result<WorkspaceId, ClientError> {
    if let Ok(id) = name.to_lowercase().parse() {
        return Ok(id);
    }
    let known = lookup::workspaces(daemon, false).await?;
    let by_id: Vec<&Workspace> = known.iter().filter(|workspace| lookup::is_part(&workspace.id, name)).collect();
    match by_id.as_slice() {
        [one] => Ok(one.id),
        _ => lookup::known_workspace(daemon, Path::new(name)).await,
    }
}

fn table(workspaces: &[Workspace], sessions: &[Session]) -> Table {
    let now = Timestamp::now();
    let home = std::env::var("HOME").unwrap_or_default();
    let mut counts: HashMap<WorkspaceId, (u64, u64)> = HashMap::new();
    for session in sessions {
        let (open, total) = counts.entry(session.workspace_id).or_default();
        *open += u64::from(matches!(session.status, SessionStatus::Active | SessionStatus::Suspended));
        *total += 1;
    }
    let table = Table::new([
        ("ID", Fit::Whole),
        ("OWNER", Fit::IfAny),
        ("AGE", Fit::Number),
        ("OPEN", Fit::Number),
        ("SESSIONS", Fit::Number),
        ("PATH", Fit::CutStart),
    ]);
    let mut table = table.without_if_narrow(&["OPEN"]);
    for workspace in workspaces {
        let owner = lookup::other_owner(workspace.owner).unwrap_or_default();
        let (open, total) = counts.get(&workspace.id).copied().unwrap_or_default();
        table.row(&[
            short_id(workspace.id),
            owner,
            age(workspace.created_at, now),
            open.to_string(),
            total.to_string(),
            below_home(&workspace.path, &home),
        ]);
    }
    table
}
