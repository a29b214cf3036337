//! Refusals of MCP servers.

use axum::http::StatusCode;
use serde_json::json;

use super::{Answer, invalid_answer, misreading};
use crate::registry::McpRefusal;

pub fn answer(refusal: McpRefusal) -> Answer {
    let message = misreading::cut(refusal.to_string(), super::WORDS_CHARS_MAX);
    match refusal {
        McpRefusal::Unknown { agent, index, known, .. } => {
            let hint = if known.is_empty() {
                format!(
                    "agent {agent} has no MCP servers: add one as [agents.{agent}.mcp_servers.NAME], or leave \
                    mcpServers out"
                )
            } else {
                format!("its MCP servers are {}", known.join(", "))
            };
            Answer { hint, ..invalid_answer(&format!("mcpServers[{index}]"), message) }
        }
        McpRefusal::Reserved { index, .. } => {
            let hint = "choose another name; to use acpd's own server, give only its name as a string";
            Answer { hint: hint.to_owned(), ..invalid_answer(&format!("mcpServers[{index}].name"), message) }
        }
        McpRefusal::NotAllowed { agent, .. } => {
            let hint = format!(
                "choose servers of the profile, or set agents.{agent}.mcp_servers_allowed to true in config.toml"
            );
            Answer::new(StatusCode::FORBIDDEN, "mcp_server_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.mcp_servers_allowed") }))
        }
        McpRefusal::NoTools { agent } => {
            let hint = format!("leave acpdTools out, or set agents.{agent}.acpd_tools to true in config.toml");
            Answer::new(StatusCode::FORBIDDEN, "mcp_server_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.acpd_tools") }))
        }
        McpRefusal::PrivateUrl { agent, .. } => {
            let hint =
                format!("add the server to the profile, or set agents.{agent}.mcp_private_urls to true in config.toml");
            Answer::new(StatusCode::FORBIDDEN, "mcp_url_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.mcp_private_urls") }))
        }
    }
}
