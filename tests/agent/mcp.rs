//! The agent as a client of MCP servers: it starts what the client of ACP has given it, and calls their tools.

use std::collections::BTreeMap;

use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::wire::End;

/// A client that asks for nothing more than tools.
struct Client;

impl ClientHandler for Client {}

struct Started {
    process: Option<u32>,
    service: RunningService<RoleClient, Client>,
}

/// The servers of the conversation, each started when it is first asked.
#[derive(Default)]
pub struct Servers {
    given: Value,
    started: BTreeMap<String, Started>,
    runtime: Option<Runtime>,
}

impl Servers {
    /// What `session/new`, `session/load` or `session/resume` brought.
    pub fn remember(&mut self, given: &Value) {
        self.given = given.clone();
    }

    /// Asks a server: with `tool` and `arguments` for that, with `pid` for its process, else for its tools.
    pub fn ask(&mut self, name: &str, call: &Value) -> Result<String, End> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| End::refused("the runtime for MCP", error))?,
        };
        let answer = runtime.block_on(self.answer(name, call));
        self.runtime = Some(runtime);
        Ok(answer.unwrap_or_else(|error| format!("error: {error}")))
    }

    async fn answer(&mut self, name: &str, call: &Value) -> Result<String, String> {
        if !self.started.contains_key(name) {
            let started = self.start(name).await?;
            self.started.insert(name.to_owned(), started);
        }
        let Started { process, service } = &self.started[name];
        if call["pid"] == true {
            return Ok(process.map(|process| process.to_string()).unwrap_or_default());
        }
        let Some(tool) = call["tool"].as_str() else {
            let tools = service.list_all_tools().await.map_err(|error| error.to_string())?;
            return serde_json::to_string(&tools).map_err(|error| error.to_string());
        };
        let request = CallToolRequestParams::new(tool.to_owned());
        let request = match call["arguments"].as_object() {
            Some(arguments) => request.with_arguments(arguments.clone()),
            None => request,
        };
        let result = service.call_tool(request).await.map_err(|error| error.to_string())?;
        let texts: Vec<&str> = result.content.iter().filter_map(|block| Some(block.as_text()?.text.as_str())).collect();
        let told = json!({"isError": result.is_error, "text": texts, "structured": result.structured_content});
        Ok(told.to_string())
    }

    async fn start(&self, name: &str) -> Result<Started, String> {
        let given = self.given.as_array().into_iter().flatten().find(|server| server["name"] == name);
        let server = given.ok_or_else(|| format!("no MCP server {name} was given"))?;
        let mut command = Command::new(server["command"].as_str().unwrap_or_default());
        command.args(server["args"].as_array().into_iter().flatten().filter_map(Value::as_str));
        for variable in server["env"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            command.env(text("name"), text("value"));
        }
        let transport = TokioChildProcess::new(command).map_err(|error| error.to_string())?;
        let process = transport.id();
        let service = Client.serve(transport).await.map_err(|error| error.to_string())?;
        Ok(Started { process, service })
    }
}
