//! `acpd workspaces`: the directories that sessions work in.

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::cli::lookup;
use crate::cli::table::{Fit, Table};
use crate::cli::text::age;
use crate::control::wire::{Workspace, WorkspaceList};
use crate::model::Timestamp;

/// List the directories that have had a session
#[derive(Args, Debug)]
pub struct Workspaces {
    /// Those of all users, for root
    #[arg(long)]
    pub all: bool,
}

impl Workspaces {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let daemon = context.daemon().await?;
        let answer: Box<RawValue> = daemon.get(&format!("/v1/workspaces?limit=1000&all={}", self.all)).await?;
        let output = context.output;
        context.show(&answer, |list: WorkspaceList| table(list.workspaces).render(output.width(), output.style))
    }
}

fn table(workspaces: Vec<Workspace>) -> Table {
    let now = Timestamp::now();
    let mut table =
        Table::new([("ID", Fit::Whole), ("OWNER", Fit::IfAny), ("AGE", Fit::Number), ("PATH", Fit::CutStart)]);
    for workspace in workspaces {
        let owner = lookup::other_owner(workspace.owner).unwrap_or_default();
        table.row(&[workspace.id.to_string(), owner, age(workspace.created_at, now), workspace.path]);
    }
    table
}
