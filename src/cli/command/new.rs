//! `acpd new`: makes a session and prints its id.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::context::Context;
use crate::cli::error::ClientError;
use crate::cli::exit::Exit;
use crate::control::wire::{CreateSession, McpChoice, PermissionPolicy, Session, Start};
use crate::model::context::Change;
use crate::model::{ContextChange, FsScope, PermissionMode};

/// Create a session without a prompt and print its id
#[derive(Args, Debug)]
pub struct New {
    #[command(flatten)]
    pub options: SessionOptions,
    /// Start the agent's process with the first prompt instead of now
    #[arg(long)]
    pub lazy: bool,
}

/// What a new session is made of.
#[derive(Args, Debug)]
pub struct SessionOptions {
    /// Agent to use; `acpd agents` lists them
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// Directory to work in [default: the current directory]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Title of the session
    #[arg(long, short, value_name = "TEXT")]
    pub title: Option<String>,
    /// Tag to filter sessions by; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Permission mode: ask, read-only, edit, allow or deny
    #[arg(long, value_name = "MODE")]
    pub permissions: Option<PermissionMode>,
    /// Where the agent may write: sandboxed, project or full
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<FsScope>,
    /// MCP server of the agent to use in the session; can be repeated [default: all]
    #[arg(long = "mcp", value_name = "NAME", conflicts_with = "no_mcp")]
    pub mcp: Vec<String>,
    /// Use none of the agent's MCP servers
    #[arg(long)]
    pub no_mcp: bool,
}

impl New {
    pub async fn execute(self, context: &Context) -> Result<Exit, ClientError> {
        let start = if self.lazy { Start::Lazy } else { Start::Eager };
        let request = self.options.request(start)?;
        let daemon = context.daemon().await?;
        let session: Box<RawValue> = daemon.post("/v1/sessions", &request).await?;
        context.show(&session, |session: Session| session.id.to_string())
    }
}

impl SessionOptions {
    pub fn request(&self, start: Start) -> Result<CreateSession, ClientError> {
        let workspace = real_directory(self.workspace.as_deref())?;
        let workspace = workspace.into_os_string().into_string().map_err(|path| {
            ClientError::local(format!("the path {} is not valid UTF-8", path.display()), "rename the directory")
        })?;
        Ok(CreateSession {
            workspace: Some(workspace),
            agent: self.agent.clone(),
            title: self.title.clone(),
            tags: self.tags.clone(),
            permissions: self.permissions.map(PermissionPolicy::of),
            context: self.scope.map(|scope| ContextChange { fs_scope: Change::Set(scope), ..ContextChange::default() }),
            mcp_servers: (self.no_mcp || !self.mcp.is_empty())
                .then(|| self.mcp.iter().cloned().map(McpChoice::Named).collect()),
            start,
            ..CreateSession::default()
        })
    }
}

/// The real path of the directory; of the current one when none is named.
pub fn real_directory(directory: Option<&Path>) -> Result<PathBuf, ClientError> {
    let directory = directory.unwrap_or(Path::new("."));
    let failed = |source| ClientError::io(format!("use {} as a workspace", directory.display()), source);
    let path = std::fs::canonicalize(directory).map_err(failed)?;
    if path.is_dir() { Ok(path) } else { Err(failed(std::io::ErrorKind::NotADirectory.into())) }
}
