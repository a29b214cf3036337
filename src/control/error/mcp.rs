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
                format!("it has none: add some as [agents.{agent}.mcp_servers.NAME], or leave mcpServers out")
            } else {
                format!("it has {}", known.join(", "))
            };
            Answer { hint, ..invalid_answer(&format!("mcpServers[{index}]"), message) }
        }
        McpRefusal::Reserved { index, .. } => {
            let hint = "give yours another name, or name it as a text to have acpd's";
            Answer { hint: hint.to_owned(), ..invalid_answer(&format!("mcpServers[{index}].name"), message) }
        }
        McpRefusal::NotAllowed { agent, .. } => {
            let hint = format!(
                "name servers of the profile's, or have agents.{agent}.mcp_servers_allowed set to true in config.toml"
            );
            Answer::new(StatusCode::FORBIDDEN, "mcp_server_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.mcp_servers_allowed") }))
        }
        McpRefusal::NoTools { agent } => {
            let hint = format!("leave acpdTools out, or have agents.{agent}.acpd_tools set to true in config.toml");
            Answer::new(StatusCode::FORBIDDEN, "mcp_server_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.acpd_tools") }))
        }
        McpRefusal::PrivateUrl { agent, .. } => {
            let hint =
                format!("have it added to the profile, or agents.{agent}.mcp_private_urls set to true in config.toml");
            Answer::new(StatusCode::FORBIDDEN, "mcp_url_not_allowed", message, hint)
                .details(json!({ "setting": format!("agents.{agent}.mcp_private_urls") }))
        }
    }
}
