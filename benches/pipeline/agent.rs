//! The agent of the benchmark: this program in another mode. It speaks as much ACP as is needed and does what the prompt
//! says as fast as it can: `echo` answers with one chunk, `chunks N` with N of them. One write an update, as agents do.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::text::{CHUNK_BYTES, chunk};

/// The first argument that makes this program the agent.
pub const ARGUMENT: &str = "agent";
/// The prompt that is answered with one chunk.
pub const ECHO: &str = "echo";
const SESSION_ID: &str = "bench";

/// The prompt that is answered with so many chunks.
pub fn flood(chunks: usize) -> String {
    format!("chunks {chunks}")
}

#[derive(Deserialize)]
struct Request {
    id: Option<Value>,
    method: Option<String>,
    #[serde(default)]
    params: Params,
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    prompt: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    text: String,
}

/// Speaks ACP on stdin and stdout until stdin ends.
pub fn run() -> anyhow::Result<()> {
    // Standard output without its buffer: what is written here is one system call.
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?).context("a request that is no request")?;
        let (Some(id), Some(method)) = (request.id, request.method) else {
            continue;
        };
        let answer = match method.as_str() {
            "initialize" => json!({"result": {
                "protocolVersion": 1,
                "agentInfo": {"name": "bench", "version": env!("CARGO_PKG_VERSION")},
                "agentCapabilities": {},
                "authMethods": [],
            }}),
            "session/new" => json!({"result": {"sessionId": SESSION_ID}}),
            "session/prompt" => {
                let text = request.params.prompt.last().map_or(ECHO, |block| block.text.as_str());
                let chunks = text.strip_prefix("chunks ").and_then(|count| count.parse().ok()).unwrap_or(1);
                say(&mut output, chunks)?;
                json!({"result": {"stopReason": "end_turn"}})
            }
            _ => json!({"error": {"code": -32601, "message": "there is no such method"}}),
        };
        let mut answer = answer;
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id;
        output.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

/// The line is made once; only the text in it changes.
fn say(output: &mut impl Write, chunks: usize) -> anyhow::Result<()> {
    const BEFORE: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"bench","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#;
    const AFTER: &str = "\"}}}}\n";
    let mut line = format!("{BEFORE}{}{AFTER}", chunk(0)).into_bytes();
    for number in 0..chunks {
        let mut place = &mut line[BEFORE.len()..BEFORE.len() + CHUNK_BYTES];
        write!(place, "{number:015} ")?;
        output.write_all(&line)?;
    }
    Ok(())
}
