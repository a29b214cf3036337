//! The lines that we write. Each is one JSON object and its newline.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::PROTOCOL_VERSION;
use super::envelope::RpcError;
use crate::model::Choice;
use crate::model::mcp::{ReadyServer, Transport};

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Notification<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: Value,
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: RpcError,
}

const JSONRPC: &str = "2.0";

/// Tells which of our own abilities the agent may use. `acpd agents login` runs the agent in a terminal.
pub fn initialize(id: u64, files: bool, terminals: bool) -> Bytes {
    let params = serde_json::json!({
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": { "fs": { "readTextFile": files, "writeTextFile": files }, "terminal": terminals,
            "elicitation": { "form": {}, "url": {} }, "auth": { "terminal": true } },
        "clientInfo": { "name": "acpd", "title": "acpd", "version": env!("CARGO_PKG_VERSION") },
    });
    request(id, "initialize", &params)
}

/// Has the agent sign in by itself, in a way that needs nobody.
pub fn authenticate(id: u64, method: &str) -> Bytes {
    request(id, "authenticate", &serde_json::json!({ "methodId": method }))
}

/// What a conversation has around it, whether it is begun or taken up again.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    pub workspace: &'a str,
    pub servers: &'a [ReadyServer],
    /// For agents that take one beside the protocol: what is added to their own.
    pub system_prompt: Option<&'a str>,
}

impl Surroundings<'_> {
    fn params(self) -> Value {
        let mut params = serde_json::json!({ "cwd": self.workspace, "mcpServers": mcp_servers(self.servers) });
        if let Some(text) = self.system_prompt {
            params["_meta"] = serde_json::json!({ "systemPrompt": { "append": text } });
        }
        params
    }
}

pub fn new_session(id: u64, surroundings: Surroundings<'_>) -> Bytes {
    request(id, "session/new", &surroundings.params())
}

/// Takes a conversation up again without repeating it.
pub fn resume_session(id: u64, agent_session: &str, surroundings: Surroundings<'_>) -> Bytes {
    request(id, "session/resume", &restore(agent_session, surroundings))
}

/// Takes a conversation up again; the agent repeats it.
pub fn load_session(id: u64, agent_session: &str, surroundings: Surroundings<'_>) -> Bytes {
    request(id, "session/load", &restore(agent_session, surroundings))
}

fn restore(agent_session: &str, surroundings: Surroundings<'_>) -> Value {
    let mut params = surroundings.params();
    params["sessionId"] = agent_session.into();
    params
}

/// With their values: this is the one place where they are written.
fn mcp_servers(servers: &[ReadyServer]) -> Vec<Value> {
    let shape = |ReadyServer { name, transport, values }: &ReadyServer| {
        let values: Vec<Value> =
            values.iter().map(|(name, value)| serde_json::json!({ "name": name, "value": value.reveal() })).collect();
        match transport {
            Transport::Stdio { command, args } => {
                serde_json::json!({ "name": name, "command": command, "args": args, "env": values })
            }
            Transport::Http { url } => {
                serde_json::json!({ "type": "http", "name": name, "url": url, "headers": values })
            }
            Transport::Sse { url } => {
                serde_json::json!({ "type": "sse", "name": name, "url": url, "headers": values })
            }
        }
    };
    servers.iter().map(shape).collect()
}

pub fn prompt(id: u64, agent_session: &str, blocks: &[Value]) -> Bytes {
    request(id, "session/prompt", &serde_json::json!({ "sessionId": agent_session, "prompt": blocks }))
}

/// Has the agent take on what somebody chose.
pub fn choose(id: u64, agent_session: &str, choice: &Choice) -> Bytes {
    let (method, mut params) = match choice {
        Choice::Mode(mode) => ("session/set_mode", serde_json::json!({ "modeId": mode })),
        Choice::Model(model) => ("session/set_model", serde_json::json!({ "modelId": model })),
        // What is no text says its type; a text is the id of a value.
        Choice::Option(option, value @ Value::Bool(_)) => {
            let params = serde_json::json!({ "configId": option, "type": "boolean", "value": value });
            ("session/set_config_option", params)
        }
        Choice::Option(option, value) => {
            ("session/set_config_option", serde_json::json!({ "configId": option, "value": value }))
        }
    };
    params["sessionId"] = agent_session.into();
    request(id, method, &params)
}

pub fn cancel(agent_session: &str) -> Bytes {
    let params = serde_json::json!({ "sessionId": agent_session });
    line(&Notification { jsonrpc: JSONRPC, method: "session/cancel", params })
}

/// The answer to `session/request_permission`: the chosen option, or that nothing was chosen.
pub fn permission(id: &RawValue, option: Option<&str>) -> Bytes {
    let outcome = match option {
        Some(option) => serde_json::json!({ "outcome": { "outcome": "selected", "optionId": option } }),
        None => serde_json::json!({ "outcome": { "outcome": "cancelled" } }),
    };
    line(&Answer { jsonrpc: JSONRPC, id, result: outcome })
}

/// The answer to `elicitation/create`.
pub fn elicitation(id: &RawValue, action: &str, content: Option<&Map<String, Value>>) -> Bytes {
    let mut result = serde_json::json!({ "action": action });
    if let Some(content) = content {
        result["content"] = content.clone().into();
    }
    success(id, result)
}

/// The answer to a request of the agent's that went well.
pub fn success(id: &RawValue, result: Value) -> Bytes {
    line(&Answer { jsonrpc: JSONRPC, id, result })
}

pub fn failure(id: &RawValue, code: i64, message: impl Into<String>) -> Bytes {
    let error = RpcError { code, message: message.into(), data: None };
    line(&Failure { jsonrpc: JSONRPC, id, error })
}

fn request(id: u64, method: &str, params: &Value) -> Bytes {
    line(&Request { jsonrpc: JSONRPC, id, method, params })
}

fn line<T: Serialize>(message: &T) -> Bytes {
    // Values, texts and numbers always have a JSON form; an empty line, which agents skip, stands for the impossible.
    let mut text = serde_json::to_vec(message).unwrap_or_default();
    text.push(b'\n');
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_the_shape_of_the_protocol() {
        let server = |name: &str, transport, value: (&str, &str)| ReadyServer {
            name: name.to_owned(),
            transport,
            values: vec![(value.0.to_owned(), value.1.into())],
        };
        let url = || "https://a.example/mcp".to_owned();
        let stdio = Transport::Stdio { command: "/usr/bin/mcp".to_owned(), args: vec!["-x".to_owned()] };
        let shapes = mcp_servers(&[
            server("a", stdio, ("KEY", "1")),
            server("b", Transport::Http { url: url() }, ("Authorization", "Bearer 2")),
            server("c", Transport::Sse { url: url() }, ("X", "3")),
        ]);
        assert_eq!(
            serde_json::json!(shapes),
            serde_json::json!([
                {"name": "a", "command": "/usr/bin/mcp", "args": ["-x"], "env": [{"name": "KEY", "value": "1"}]},
                {"type": "http", "name": "b", "url": url(), "headers": [{"name": "Authorization", "value": "Bearer 2"}]},
                {"type": "sse", "name": "c", "url": url(), "headers": [{"name": "X", "value": "3"}]},
            ])
        );
        // The library of the protocol reads them, and says the same.
        for shape in shapes {
            let read: agent_client_protocol_schema::v1::McpServer = serde_json::from_value(shape.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), shape);
        }
    }

    #[test]
    fn what_we_write_is_one_line_each() {
        let id = RawValue::from_string("\"q-1\"".to_owned()).unwrap();
        let plain = |workspace| Surroundings { workspace, servers: &[], system_prompt: None };
        let lines = [
            initialize(0, true, false),
            authenticate(9, "api-key"),
            new_session(1, plain("/home/me/a \"b\"\nc")),
            new_session(10, Surroundings { system_prompt: Some("Be brief."), ..plain("/home/me") }),
            prompt(2, "s", &[serde_json::json!({"type": "text", "text": "two\nlines"})]),
            resume_session(3, "s", plain("/home/me")),
            load_session(4, "s", plain("/home/me")),
            choose(5, "s", &Choice::Mode("plan".to_owned())),
            choose(6, "s", &Choice::Model("m".to_owned())),
            choose(7, "s", &Choice::Option("effort".to_owned(), serde_json::json!("low"))),
            choose(8, "s", &Choice::Option("brave".to_owned(), serde_json::json!(true))),
            cancel("s"),
            permission(&id, Some("once")),
            permission(&id, None),
            elicitation(&id, "accept", serde_json::json!({"name": "x"}).as_object()),
            elicitation(&id, "decline", None),
            success(&id, serde_json::json!({"content": "two\nlines"})),
            failure(&id, RpcError::METHOD_NOT_FOUND, "no such method"),
        ];
        let mut shown = String::new();
        for line in &lines {
            let text = std::str::from_utf8(line).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            shown.push_str(text);
        }
        insta::with_settings!({filters => vec![(env!("CARGO_PKG_VERSION"), "[version]")]}, {
            insta::assert_snapshot!(shown);
        });
    }
}
