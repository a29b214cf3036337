//! What an agent asks of us as its client: files and terminals.

use std::path::PathBuf;

use agent_client_protocol_schema::v1 as schema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A request of an agent's, with the session that it names.
#[derive(Debug)]
pub struct ClientRequest {
    pub agent_session: String,
    pub call: ClientCall,
}

#[derive(Debug)]
pub enum ClientCall {
    File(FileCall),
    Create(CreateTerminal),
    Terminal { terminal: String, call: TerminalCall },
}

#[derive(Debug)]
pub enum FileCall {
    Read { path: PathBuf, line: Option<u32>, limit: Option<u32> },
    Write { path: PathBuf, content: String },
}

#[derive(Clone, Debug)]
pub struct CreateTerminal {
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<PathBuf>,
    pub output_byte_limit: Option<u64>,
}

/// What is asked of a terminal that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalCall {
    Output,
    WaitForExit,
    Kill,
    Release,
}

/// Reads a request; none, when the method is not one of these.
pub fn read(method: &str, params: &RawValue) -> Option<Result<ClientRequest, String>> {
    Some(match method {
        "fs/read_text_file" => parse(params).map(|request: schema::ReadTextFileRequest| ClientRequest {
            agent_session: request.session_id.0.to_string(),
            call: ClientCall::File(FileCall::Read { path: request.path, line: request.line, limit: request.limit }),
        }),
        "fs/write_text_file" => parse(params).map(|request: schema::WriteTextFileRequest| ClientRequest {
            agent_session: request.session_id.0.to_string(),
            call: ClientCall::File(FileCall::Write { path: request.path, content: request.content }),
        }),
        "terminal/create" => parse(params).map(|request: schema::CreateTerminalRequest| ClientRequest {
            agent_session: request.session_id.0.to_string(),
            call: ClientCall::Create(CreateTerminal {
                command: request.command,
                args: request.args,
                env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
                cwd: request.cwd,
                output_byte_limit: request.output_byte_limit,
            }),
        }),
        "terminal/output" => terminal(params, TerminalCall::Output),
        "terminal/wait_for_exit" => terminal(params, TerminalCall::WaitForExit),
        "terminal/kill" => terminal(params, TerminalCall::Kill),
        "terminal/release" => terminal(params, TerminalCall::Release),
        _ => return None,
    })
}

/// All four have the same parameters.
fn terminal(params: &RawValue, call: TerminalCall) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        session_id: String,
        terminal_id: String,
    }
    let Params { session_id: agent_session, terminal_id: terminal } = parse(params)?;
    Ok(ClientRequest { agent_session, call: ClientCall::Terminal { terminal, call } })
}

fn parse<T: DeserializeOwned>(params: &RawValue) -> Result<T, String> {
    serde_json::from_str(params.get()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(method: &str, params: &str) -> Option<Result<ClientRequest, String>> {
        read(method, &RawValue::from_string(params.to_owned()).unwrap())
    }

    #[test]
    fn requests_are_read_and_what_is_missing_is_named() {
        let request = read_text("fs/read_text_file", r#"{"sessionId":"s","path":"/a","line":2,"_meta":{"x":1}}"#);
        let request = request.unwrap().unwrap();
        assert_eq!(request.agent_session, "s");
        assert!(matches!(request.call, ClientCall::File(FileCall::Read { line: Some(2), limit: None, .. })));
        let request =
            r#"{"sessionId":"s","command":"ls","args":null,"env":[{"name":"A","value":"b"}],"outputByteLimit":5}"#;
        let request = read_text("terminal/create", request).unwrap().unwrap();
        let ClientCall::Create(create) = request.call else { panic!("{request:?}") };
        assert_eq!((create.args.len(), create.env.len(), create.output_byte_limit), (0, 1, Some(5)));
        let error = read_text("terminal/kill", r#"{"sessionId":"s"}"#).unwrap().unwrap_err();
        assert!(error.contains("terminalId"), "{error}");
        let error = read_text("fs/read_text_file", r#"{"sessionId":"s","path":"/a","line":-1}"#).unwrap().unwrap_err();
        assert!(error.contains("-1"), "{error}");
        assert!(read_text("terminal/resize", "{}").is_none());
    }
}
